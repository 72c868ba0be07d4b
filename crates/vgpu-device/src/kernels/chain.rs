//! Kernels of a single thread, or without memory: they run beside others at no cost.

use vgpu_messages::quantity::{Nanos, Rate};

use super::{Kernel, Pace, Step};
use crate::space::touch::{Fault, Touch, aligned};

/// A bound on the steps of kernels that watch memory.
pub(super) const WATCH_STEP: Nanos = Nanos(100_000);

/// `heartbeat`: counts until it is told to stop.
#[derive(Debug)]
pub struct Beat {
    counter: u64,
    stop: u64,
    limit: u64,
    rate: Rate,
    value: Option<u64>,
    rounds: u64,
    spent: Nanos,
}

impl Beat {
    /// Nothing is counted yet.
    pub fn new(counter: u64, stop: u64, limit: u64, rate: Rate) -> Self {
        Self { counter, stop, limit, rate, value: None, rounds: 0, spent: Nanos::ZERO }
    }
}

impl Kernel for Beat {
    fn run(&mut self, time: Nanos, _now: Nanos, memory: &mut Touch<'_>) -> Result<Step, Fault> {
        let value = match self.value {
            Some(value) => value,
            None => memory.word(self.counter)?,
        };
        self.value = Some(value);
        if self.rounds >= self.limit || memory.word(self.stop)? != 0 {
            return Ok(Step::Done);
        }
        self.spent += time;
        let rounds = self.rate.amount_in(self.spent).min(self.limit);
        if rounds > self.rounds {
            self.value = Some(value.wrapping_add(rounds - self.rounds));
            memory.set_word(self.counter, value.wrapping_add(rounds - self.rounds))?;
            self.rounds = rounds;
        }
        Ok(if self.rounds >= self.limit { Step::Done } else { Step::More })
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

/// `spin`: rounds or time, whichever ends first.
#[derive(Debug)]
pub struct Spin {
    rounds: Pace,
    nanos: u64,
    begin: Option<Nanos>,
}

impl Spin {
    /// Not begun.
    pub fn new(rounds: u64, nanos: u64, rate: Rate) -> Self {
        Self { rounds: Pace::new(rounds, rate), nanos, begin: None }
    }
}

impl Kernel for Spin {
    fn run(&mut self, time: Nanos, now: Nanos, _memory: &mut Touch<'_>) -> Result<Step, Fault> {
        let begin = *self.begin.get_or_insert(Nanos(now.0.saturating_sub(time.0)));
        self.rounds.advance(time);
        let over = self.rounds.is_over() || now.since(begin).0 >= self.nanos;
        Ok(if over { Step::Done } else { Step::More })
    }

    fn remaining(&self, now: Nanos) -> Option<Nanos> {
        let begin = self.begin.unwrap_or(now);
        Some(self.rounds.remaining().min(Nanos(self.nanos).since(now.since(begin))))
    }

    fn is_heavy(&self) -> bool {
        false
    }

    fn longest_step(&self) -> Nanos {
        Nanos(u64::MAX)
    }
}

/// A kernel that nobody knows: takes time.
#[derive(Debug)]
pub struct NoOp {
    left: Nanos,
}

impl NoOp {
    /// For so long.
    pub fn new(time: Nanos) -> Self {
        Self { left: time }
    }
}

impl Kernel for NoOp {
    fn run(&mut self, time: Nanos, _now: Nanos, _memory: &mut Touch<'_>) -> Result<Step, Fault> {
        self.left = self.left.since(time);
        Ok(if self.left == Nanos::ZERO { Step::Done } else { Step::More })
    }

    fn remaining(&self, _now: Nanos) -> Option<Nanos> {
        Some(self.left)
    }

    fn is_heavy(&self) -> bool {
        true
    }

    fn longest_step(&self) -> Nanos {
        Nanos(u64::MAX)
    }
}

/// A kernel that never ends, by a fault that was asked for.
#[derive(Debug)]
pub struct Stuck;

impl Kernel for Stuck {
    fn run(&mut self, _time: Nanos, _now: Nanos, _memory: &mut Touch<'_>) -> Result<Step, Fault> {
        Ok(Step::More)
    }

    fn remaining(&self, _now: Nanos) -> Option<Nanos> {
        Some(Nanos(u64::MAX / 4))
    }

    fn is_heavy(&self) -> bool {
        true
    }

    fn longest_step(&self) -> Nanos {
        Nanos(u64::MAX)
    }
}

/// The word that a kernel watches or tells, checked when it begins.
pub(super) fn place(address: u64) -> Result<u64, Fault> {
    aligned(address).map(|()| address)
}
