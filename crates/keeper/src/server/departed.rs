//! The worker that was here last and went without a word. Its connection has ended, but its process may be there for as long
//! as the driver takes to let go of its memory. Until it has ended, what it has on a device may write to the arena, and
//! its threads to the cellar, whatever another worker believes.

use crate::names::has_ended;
use std::os::fd::OwnedFd;

/// See the module.
#[derive(Debug)]
pub(super) struct Departed {
    pub(super) pid: u32,
    /// Readable when its process has ended, all of it.
    pub(super) watch: OwnedFd,
}

impl Departed {
    /// Has the process of this number to wait for it? Of itself, should it have come again, a process knows what is under way.
    pub(super) fn keeps_out(&self, pid: u32) -> bool {
        self.pid != pid && !has_ended(&self.watch)
    }
}
