//! Unified memory with an exclusive quantum: one tenant at a time has the GPU, and its memory follows page by page.
//!
//! The model. A lock goes round among those who have work, first come first served, for a quantum each; whoever has
//! nothing to do gives it up at once, and whoever is alone keeps it. The holder passes over all of its memory again and
//! again, and its work gets on by what it has passed over, at [`PASS_BYTES_PER_SECOND`]. A page that is not on the
//! device costs one fault ([`Physics::fault`](crate::scenario::Physics), 15 us for 4 KiB) before the pass goes on; if
//! the device is full, the page used longest ago goes out for it, whoever it belongs to. The very first touch of a page
//! is free while there is room: nothing has to be fetched, and one program alone runs at nearly native speed.
//!
//! What follows for four programs of 12 GiB on 16 GiB: bringing one of them in takes 47 s. Within a quantum of 30 s
//! nobody ever finishes a single pass before the next one's faults push its pages out again. With 60 s there are 13 s of
//! work left in each quantum.
//!
//! Pages are kept in pieces of [`PIECE`], which come and go whole: a turn may end late by one of them.

mod pages;

use super::books::Books;
use super::program::Program;
use super::{Seat, seats, until_done};
use crate::record::{Record, What};
use crate::scenario::{Gpu, Job, Scenario};
use pages::{Pages, Touched};
use sched::{Bytes, Span, Time};
use std::collections::VecDeque;

/// What comes and goes together.
const PIECE: Bytes = Bytes::from_mib(32);
/// A page of unified memory.
const PAGE: Bytes = Bytes(4096);
/// How fast a program passes over memory that is there: 12 GiB in 40 ms, as the programs do that this was seen with.
const PASS_BYTES_PER_SECOND: u64 = 320_000_000_000;

/// Runs a scenario so, with this quantum.
pub fn run(scenario: &Scenario, quantum: Span) -> Record {
    until_done(scenario, |record| record, |scenario| once(scenario, quantum))
}

fn once(scenario: &Scenario, quantum: Span) -> Record {
    let seats = seats(scenario);
    let limit = Time(scenario.limit.0);
    let mut books = Books::new(&seats);
    for (number, gpu) in scenario.gpus.iter().enumerate() {
        let here =
            (0..seats.len()).filter(|&seat| usize::from(seats[seat].gpu) == number).collect::<Vec<_>>();
        Locked::new(gpu, scenario.seed, quantum, &seats, &here).run(limit, &mut books);
    }
    books.close_all(limit)
}

/// One GPU under one lock.
struct Locked<'s> {
    gpu: &'s Gpu,
    quantum: Span,
    pages: Pages,
    holders: Vec<Holder<'s>>,
    /// Who wants the lock, in the order in which they came to want it.
    queue: VecDeque<usize>,
    /// Who has it.
    holding: Option<usize>,
}

struct Holder<'s> {
    seat: usize,
    job: &'s Job,
    program: Option<Program<'s>>,
    /// What is left of the piece of work at hand.
    left: Span,
    over: bool,
    /// Where its pass is.
    at: usize,
}

impl<'s> Locked<'s> {
    fn new(gpu: &'s Gpu, seed: u64, quantum: Span, seats: &[Seat<'s>], here: &[usize]) -> Self {
        let holders = here
            .iter()
            .map(|&seat| {
                let job = seats[seat].terms;
                let program = Some(Program::new(job, seed, seat, Time(job.arrives.0)));
                Holder { seat, job, program, left: Span::ZERO, over: false, at: 0 }
            })
            .collect::<Vec<_>>();
        // Contexts stay on the device, and nothing of them can be fetched page by page.
        let room = gpu.capacity.less(Bytes(gpu.residue.0 * here.len() as u64));
        let pages = Pages::new(here.len(), (room.0 / PIECE.0) as usize);
        Self { gpu, quantum, pages, holders, queue: VecDeque::new(), holding: None }
    }

    fn run(&mut self, limit: Time, books: &mut Books) {
        let mut now = Time::ZERO;
        while now < limit {
            self.enqueue(now, books);
            let Some(holder) = self.queue.pop_front() else {
                match self.next_want(now) {
                    Some(next) if next < limit => now = next,
                    _ => break,
                }
                continue;
            };
            now = self.turn(holder, now, limit, books);
        }
    }

    /// Those who have come to want the lock by now, in order.
    fn enqueue(&mut self, now: Time, books: &mut Books) {
        let mut wanting: Vec<(Time, usize)> = Vec::new();
        for index in 0..self.holders.len() {
            let holder = &mut self.holders[index];
            let dies = holder.dies();
            if !holder.over && dies <= now {
                holder.over = true;
                self.pages.forget(index);
                books.ends(self.holders[index].seat, dies.max(Time(self.holders[index].job.arrives.0)));
                continue;
            }
            if let Some(wants) = holder.wants().filter(|wants| *wants <= now) {
                if self.holding == Some(index) || self.queue.contains(&index) {
                    continue;
                }
                wanting.push((wants, index));
            }
        }
        wanting.sort_unstable();
        for (since, index) in wanting {
            books.is(self.holders[index].seat, What::Waited, since);
            self.queue.push_back(index);
        }
        self.queue.retain(|&index| !self.holders[index].over);
    }

    fn next_want(&self, now: Time) -> Option<Time> {
        let all = self.holders.iter().filter(|holder| !holder.over);
        all.filter_map(|holder| holder.wants().map(|wants| wants.min(holder.dies())))
            .min()
            .map(|at| at.max(now))
    }

    /// One turn: until the quantum is over and somebody waits, or there is nothing to do.
    fn turn(&mut self, index: usize, mut now: Time, limit: Time, books: &mut Books) -> Time {
        let seat = self.holders[index].seat;
        books.turn_begins(seat, now);
        self.holding = Some(index);
        let mut until = (now + self.quantum).min(limit);
        loop {
            now = self.work(index, now, until.min(self.holders[index].dies()), books);
            self.enqueue(now, books);
            let holder = &self.holders[index];
            if holder.over {
                self.pages.forget(index);
                break;
            }
            let has_work = holder.wants().is_some_and(|wants| wants <= now);
            if now >= limit || !has_work {
                if !has_work {
                    books.is(seat, What::Idle, now);
                }
                break;
            }
            if now >= until {
                if !self.queue.is_empty() {
                    books.turn_ends(seat, now);
                    books.is(seat, What::Waited, now);
                    self.queue.push_back(index);
                    break;
                }
                until = (now + self.quantum).min(limit);
            }
        }
        self.pages.used_all(index);
        self.holding = None;
        now
    }

    /// Passes over memory until there is nothing to do or the time is up.
    fn work(&mut self, index: usize, mut now: Time, until: Time, books: &mut Books) -> Time {
        let fault = self.gpu.physics.fault.times(PIECE.0 / PAGE.0);
        while now < until {
            let holder = &mut self.holders[index];
            let Some(program) = &mut holder.program else { break };
            if program.ready().is_none_or(|ready| ready > now) {
                break;
            }
            if holder.left == Span::ZERO {
                holder.left = program.take(&self.gpu.physics, false);
            }
            let pieces = program.memory(now).0.div_ceil(PIECE.0) as usize;
            self.pages.grow(index, pieces);
            if self.pages.all_there(index) {
                let ran = holder.left.min(until.since(now));
                books.is(holder.seat, What::Ran, now);
                holder.ran(&mut now, ran, books);
                continue;
            }
            let step = PIECE.at(PASS_BYTES_PER_SECOND).min(holder.left);
            let at = holder.at % pieces;
            holder.at = at + 1;
            match self.pages.touch(index, at) {
                Touched::There | Touched::New => books.is(holder.seat, What::Ran, now),
                Touched::Fetched { was_out, pushed_out } => {
                    books.is(holder.seat, What::MovedIn, now);
                    let moved = u64::from(was_out) + u64::from(pushed_out);
                    books.moved(moved * PIECE.0, fault);
                    now = now + fault;
                }
            }
            holder.ran(&mut now, step, books);
        }
        now
    }
}

impl Holder<'_> {
    /// When it wants or came to want the lock.
    fn wants(&self) -> Option<Time> {
        if self.over {
            return None;
        }
        self.program.as_ref().and_then(Program::ready)
    }

    fn dies(&self) -> Time {
        self.job.dies.map_or(Time::MAX, |dies| Time(dies.0))
    }

    fn ran(&mut self, now: &mut Time, span: Span, books: &mut Books) {
        *now = *now + span;
        self.left = self.left.less(span);
        books.work(self.seat, span);
        let Some(program) = &mut self.program else { return };
        if self.left == Span::ZERO {
            books.latency(program.done(*now));
            if program.ready().is_none() {
                self.over = true;
                self.program = None;
                books.ends(self.seat, *now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::builtin::find;
    use crate::scenario::file::parse;

    fn seed(quantum: u64) -> Record {
        run(&find("seed-4x12", &[]).unwrap(), Span::from_secs(quantum))
    }

    #[test]
    fn a_quantum_shorter_than_bringing_memory_in_never_ends() {
        let record = seed(30);
        assert!(!record.finished);
        assert_eq!(record.makespan, Span::from_secs(100_000));
        assert!(record.tenants.iter().all(|fate| fate.ended.is_none()));
    }

    /// 47 of 60 seconds go into faults: each turn has 13 s of work, and 636 s need about 50 turns.
    #[test]
    fn a_longer_one_ends_late() {
        let record = seed(60);
        assert!(record.finished);
        let seconds = record.makespan.as_secs_f64();
        assert!((2_500.0..3_300.0).contains(&seconds), "{seconds}");
        assert!(record.moving.as_secs_f64() / seconds > 0.7);
        let longer = seed(120).makespan.as_secs_f64();
        assert!((900.0..1_300.0).contains(&longer), "{longer}");
    }

    #[test]
    fn one_alone_runs_at_native_speed() {
        let text = r#"
about = "one"
gpu = { capacity = "16GiB" }
job = { name = "a", memory = "12GiB", work = { kind = "steady", total = "159s" } }
"#;
        let record = run(&parse("one", "one.toml", text, &[]).unwrap(), Span::from_secs(30));
        assert!(record.makespan.0.abs_diff(159_000_000_000) < 1_000_000, "{}", record.makespan);
        assert_eq!(record.moved, Bytes::ZERO);
    }

    #[test]
    fn those_who_fit_together_do_not_fault() {
        let record = run(&find("small-co-residents", &[]).unwrap(), Span::from_secs(2));
        assert!(record.finished);
        assert_eq!(record.moved, Bytes::ZERO);
        assert!(record.makespan.0.abs_diff(60_000_000_000) < 10_000_000, "{}", record.makespan);
        assert!(record.tenants[0].gap_max >= Span::from_secs(9), "{}", record.tenants[0].gap_max);
    }

    #[test]
    fn deaths_and_bursts_come_to_an_end() {
        for name in ["deaths", "bursty", "lc-four-be", "growing", "gangs"] {
            let scenario = find(name, &[]).unwrap();
            let record = run(&scenario, Span::from_secs(120));
            assert!(record.finished, "{name} at {}", record.makespan);
            for fate in record.tenants {
                assert!(fate.ended.is_some(), "{name}: {}", fate.name);
            }
        }
    }
}
