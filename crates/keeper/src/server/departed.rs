//! Workers whose connection has ended with copies out under way. As long as their processes are there, what those have on a
//! device may still write to the arena, whatever the next worker believes: its space is nobody's until then.

use crate::names::has_ended;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Departed {
    processes: Vec<Departing>,
    /// The worker that is here wants the space.
    is_awaited: bool,
}

#[derive(Debug)]
struct Departing {
    pid: u32,
    watch: OwnedFd,
}

impl Departed {
    pub(super) fn add(&mut self, pid: u32, watch: OwnedFd) {
        self.processes.push(Departing { pid, watch });
    }

    /// A worker says that nothing of those before it is under way; of its own process, which may have come again, it knows.
    /// May the space be used at once? Otherwise it is waited for.
    pub(super) fn await_by(&mut self, worker: u32) -> bool {
        self.processes.retain(|process| process.pid != worker);
        self.is_awaited = true;
        self.have_gone()
    }

    /// The worker that waited is gone: the next one says for itself that it may be.
    pub(super) fn await_no_more(&mut self) {
        self.is_awaited = false;
    }

    /// Are all of them gone that somebody waits for? True once.
    pub(super) fn have_gone(&mut self) -> bool {
        self.processes.retain(|process| !has_ended(&process.watch));
        self.processes.is_empty() && std::mem::take(&mut self.is_awaited)
    }

    /// What becomes readable when somebody is gone who is waited for.
    pub(super) fn watches(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.processes.iter().filter(|_| self.is_awaited).map(|process| process.watch.as_fd())
    }
}
