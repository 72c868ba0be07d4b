//! What a program does, piece by piece: when it next has work, and how much.

use crate::gpu::request;
use crate::random::Random;
use crate::scenario::{Job, Physics};
use crate::workload::{self, Coming, Next, Requests};
use sched::{Bytes, Span, Time};

/// Apart from the lanes of what tenants do, which are small numbers.
const SPREAD_LANE: u64 = 1 << 41;

/// One tenant's program: the same steps as under rota, with whoever runs it as its clock.
#[derive(Clone, Debug)]
pub(super) struct Program<'s> {
    job: &'s Job,
    steps: Steps,
    /// Of the requests' own lengths.
    random: Random,
    began: Time,
    piece: Option<Piece>,
}

#[derive(Clone, Debug)]
enum Steps {
    Own(workload::Program),
    Asked(Requests),
}

/// Work that is ready, or will be.
#[derive(Clone, Copy, Debug)]
struct Piece {
    ready: Time,
    busy: Span,
    /// Its host says that it has nothing to do until then.
    rests: bool,
}

impl<'s> Program<'s> {
    /// A program that begins now. The same number and seed give the same program.
    pub(super) fn new(job: &'s Job, seed: u64, number: usize, began: Time) -> Self {
        let lane = number as u64 + 1;
        let steps = match Requests::new(&job.work, seed, lane) {
            Some(requests) => Steps::Asked(requests),
            None => Steps::Own(workload::Program::new(&job.work, seed, lane)),
        };
        let random = Random::new(seed, SPREAD_LANE + lane);
        let mut program = Self { job, steps, random, began, piece: None };
        program.follow(began, began);
        program
    }

    /// When its next piece is ready, until that is over; nothing once the program is.
    pub(super) fn ready(&self) -> Option<Time> {
        self.piece.map(|piece| piece.ready)
    }

    /// Is it known to have nothing to do before its next piece?
    pub(super) fn rests(&self) -> bool {
        self.piece.is_some_and(|piece| piece.rests)
    }

    /// GPU time of the piece that is ready.
    pub(super) fn take(&mut self, physics: &Physics, dozes: bool) -> Span {
        let busy = self.piece.map_or(Span::ZERO, |piece| piece.busy);
        let busy = match self.steps {
            Steps::Own(_) => busy,
            Steps::Asked(_) => request(physics, &mut self.random, busy, dozes),
        };
        busy.max(Span(1))
    }

    /// The piece is over: how long it took, if somebody waited for the answer.
    pub(super) fn done(&mut self, now: Time) -> Option<Span> {
        let ready = self.piece.take()?.ready;
        self.follow(now, ready);
        matches!(self.steps, Steps::Asked(_)).then(|| now.since(ready))
    }

    /// The next piece after one that became ready at `before` and is over now.
    fn follow(&mut self, now: Time, before: Time) {
        self.piece = match &mut self.steps {
            Steps::Asked(requests) => requests.next().map(|Coming { after, service, .. }| Piece {
                ready: before + after,
                busy: service,
                rests: true,
            }),
            Steps::Own(program) => {
                let (mut ready, mut rests) = (now, false);
                loop {
                    match program.next() {
                        Next::Compute(busy) => break Some(Piece { ready, busy, rests }),
                        Next::Pause(pause) => ready = ready + pause,
                        Next::Rest(rest) => (ready, rests) = (ready + rest, true),
                        Next::Over => break None,
                    }
                }
            }
        };
    }

    /// What it holds now.
    pub(super) fn memory(&self, now: Time) -> Bytes {
        let memory = &self.job.memory;
        match memory.growth {
            None => memory.bytes,
            Some((step, every, up_to)) => {
                let steps = now.since(self.began).0 / every.0;
                Bytes(memory.bytes.0.saturating_add(step.0.saturating_mul(steps))).min(up_to)
            }
        }
    }

    /// When it next asks for more memory.
    pub(super) fn grows(&self, now: Time) -> Option<Time> {
        let (_, every, up_to) = self.job.memory.growth?;
        let next = self.began + every.times(now.since(self.began).0 / every.0 + 1);
        (self.memory(now) < up_to).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::builtin::find;

    /// When each piece was ready and how long it took, with nobody in the way.
    fn alone(program: &mut Program<'_>) -> Vec<(Time, Span)> {
        let mut pieces = Vec::new();
        while let Some(ready) = program.ready() {
            let busy = program.take(&Physics::default(), false);
            pieces.push((ready, busy));
            program.done(ready + busy);
        }
        pieces
    }

    #[test]
    fn programs_repeat_and_end() {
        for name in ["bursty", "poisson-lc", "training-steps", "seed-4x12"] {
            let scenario = find(name, &[]).unwrap();
            let program = |number| Program::new(&scenario.jobs[0], 1, number, Time::ZERO);
            let pieces = alone(&mut program(0));
            assert_eq!(pieces, alone(&mut program(0)), "{name}");
            let random = matches!(name, "bursty" | "poisson-lc");
            assert_eq!(random, pieces != alone(&mut program(1)), "{name}");
        }
    }

    #[test]
    fn requests_come_whether_or_not_the_last_one_is_served() {
        let scenario = find("lc-alone", &[]).unwrap();
        let mut program = Program::new(&scenario.jobs[0], 1, 0, Time::ZERO);
        assert_eq!(program.ready(), Some(Time(10_000_000)));
        assert_eq!(program.done(Time(35_000_000)), Some(Span::from_millis(25)));
        assert_eq!(program.ready(), Some(Time(20_000_000)));
    }

    #[test]
    fn memory_grows_step_by_step() {
        let scenario = find("growing", &[]).unwrap();
        let program = Program::new(&scenario.jobs[0], 1, 0, Time(1_000));
        let after = |seconds| Time(1_000) + Span::from_secs(seconds);
        assert_eq!(program.memory(after(4)), Bytes::from_gib(2));
        assert_eq!(program.grows(after(4)), Some(after(5)));
        assert_eq!(program.memory(after(5)), Bytes::from_gib(3));
        assert_eq!(program.memory(after(500)), Bytes::from_gib(12));
        assert_eq!(program.grows(after(500)), None);
    }
}
