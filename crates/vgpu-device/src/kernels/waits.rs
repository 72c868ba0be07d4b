//! Kernels that wait for somebody else.

use vgpu_messages::quantity::Nanos;

use super::chain::{WATCH_STEP, place};
use super::{Kernel, Step};
use crate::space::touch::{Fault, Touch};

/// `wait_for_peer`: until a word has a value, or the time is over.
#[derive(Debug)]
pub(super) struct WaitForPeer {
    word: u64,
    value: u64,
    nanos: u64,
    outcome: u64,
    begin: Option<Nanos>,
}

impl WaitForPeer {
    /// Not begun.
    pub(super) fn new(word: u64, value: u64, nanos: u64, outcome: u64) -> Self {
        Self { word, value, nanos, outcome, begin: None }
    }
}

impl Kernel for WaitForPeer {
    fn run(&mut self, time: Nanos, now: Nanos, memory: &mut Touch<'_>) -> Result<Step, Fault> {
        let begin = *self.begin.get_or_insert(Nanos(now.0.saturating_sub(time.0)));
        let result = if memory.word(place(self.word)?)? == self.value {
            1
        } else if now.since(begin).0 >= self.nanos {
            2
        } else {
            return Ok(Step::More);
        };
        if self.outcome != 0 {
            memory.set_word(place(self.outcome)?, result)?;
        }
        Ok(Step::Done)
    }

    fn remaining(&self, _now: Nanos) -> Option<Nanos> {
        None
    }

    fn is_heavy(&self) -> bool {
        false
    }

    fn longest_step(&self) -> Nanos {
        WATCH_STEP
    }
}
