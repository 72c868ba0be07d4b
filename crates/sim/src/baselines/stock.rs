//! All at once, as the driver does it without help: memory has to hold everybody, and compute goes round by time slices.
//!
//! A program that finds no memory, when it starts or when it grows, fails with out of memory and is gone; the run is
//! then not finished. Slices and switches are those of [`Device`], as measured. A tenant counts as running while it has
//! work, because its slices are too short to be told one by one; its longest gap is one round of all who had work.

use super::books::Books;
use super::program::Program;
use super::{Seat, seats, until_done};
use crate::gpu::{Device, GroupId};
use crate::record::{Record, What};
use crate::scenario::{Gpu, Job, Scenario};
use sched::{Bytes, Time};

/// Runs a scenario so, and names who failed with out of memory.
pub fn run(scenario: &Scenario) -> (Record, Vec<String>) {
    until_done(scenario, |(record, _)| record, once)
}

fn once(scenario: &Scenario) -> (Record, Vec<String>) {
    let seats = seats(scenario);
    let limit = Time(scenario.limit.0);
    let mut books = Books::new(&seats);
    let mut failed = Vec::new();
    for (number, gpu) in scenario.gpus.iter().enumerate() {
        let here: Vec<usize> =
            (0..seats.len()).filter(|&seat| usize::from(seats[seat].gpu) == number).collect();
        let mut shared = Shared::new(gpu, scenario.seed, &seats, &here);
        shared.run(limit, &mut books);
        failed.extend(shared.failed);
    }
    failed.sort_unstable();
    let record = books.close_all(limit);
    let names = failed.iter().map(|&seat: &usize| record.tenants[seat].name.clone()).collect();
    (record, names)
}

/// One GPU and who is on it.
struct Shared<'s> {
    gpu: &'s Gpu,
    device: Device,
    used: Bytes,
    guests: Vec<Guest<'s>>,
    failed: Vec<usize>,
    seed: u64,
}

struct Guest<'s> {
    seat: usize,
    terms: &'s Job,
    /// Nothing before it comes and after it is gone.
    program: Option<Program<'s>>,
    group: GroupId,
    state: State,
    holds: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Coming,
    Pausing,
    Computing,
    Gone,
}

impl<'s> Shared<'s> {
    fn new(gpu: &'s Gpu, seed: u64, seats: &[Seat<'s>], here: &[usize]) -> Self {
        let mut device = Device::new(&gpu.physics);
        let guests = here
            .iter()
            .map(|&seat| Guest {
                seat,
                terms: seats[seat].terms,
                program: None,
                group: device.add(gpu.physics.slice_own),
                state: State::Coming,
                holds: Bytes::ZERO,
            })
            .collect();
        Self { gpu, device, used: Bytes::ZERO, guests, failed: Vec::new(), seed }
    }

    fn run(&mut self, limit: Time, books: &mut Books) {
        let mut now = Time::ZERO;
        while let Some(next) = self.next(now).filter(|next| *next < limit) {
            now = next;
            for group in self.device.advance(now) {
                self.piece_over(group, now, books);
            }
            for guest in 0..self.guests.len() {
                self.look_after(guest, now, books);
            }
        }
        for guest in &mut self.guests {
            books.work(guest.seat, self.device.done(limit, guest.group));
        }
    }

    /// When anything happens next.
    fn next(&self, now: Time) -> Option<Time> {
        self.guests.iter().filter_map(|guest| guest.next(now)).chain(self.device.next()).min()
    }

    fn piece_over(&mut self, group: GroupId, now: Time, books: &mut Books) {
        let Some(guest) = self.guests.iter_mut().find(|guest| guest.group == group) else { return };
        let Some(program) = &mut guest.program else { return };
        books.latency(program.done(now));
        guest.state = State::Pausing;
        let rests = program.rests();
        if program.ready().is_none() {
            let seat = guest.seat;
            self.used = self.used.less(guest.holds);
            guest.leave();
            books.ends(seat, now);
        } else if rests {
            books.is(guest.seat, What::Idle, now);
        }
    }

    /// Lets a guest come, die, grow or begin its next piece, if that is due.
    fn look_after(&mut self, index: usize, now: Time, books: &mut Books) {
        let guest = &mut self.guests[index];
        if guest.state == State::Gone {
            return;
        }
        if guest.terms.dies.is_some_and(|dies| Time(dies.0) <= now) {
            let (seat, group) = (guest.seat, guest.group);
            self.used = self.used.less(guest.holds);
            guest.leave();
            self.device.remove(now, group);
            books.ends(seat, now);
            return;
        }
        if guest.state == State::Coming {
            if Time(guest.terms.arrives.0) > now {
                return;
            }
            guest.state = State::Pausing;
            guest.program = Some(Program::new(guest.terms, self.seed, guest.seat, now));
            books.is(guest.seat, What::Idle, now);
        }
        let Some(program) = &mut guest.program else { return };
        let needs = program.memory(now) + self.gpu.residue;
        let used = self.used.less(guest.holds) + needs;
        if used > self.gpu.capacity {
            let (seat, group) = (guest.seat, guest.group);
            self.used = self.used.less(guest.holds);
            guest.leave();
            self.device.remove(now, group);
            self.failed.push(seat);
            books.fails(seat, now);
            return;
        }
        (self.used, guest.holds) = (used, needs);
        if guest.state == State::Pausing && program.ready().is_some_and(|ready| ready <= now) {
            let busy = program.take(&self.gpu.physics, self.device.dozes(now));
            guest.state = State::Computing;
            books.is(guest.seat, What::Ran, now);
            let group = guest.group;
            self.device.submit(now, group, busy);
            self.note_round(books);
        }
    }

    /// With these at work, nobody is off for longer than all others take once.
    fn note_round(&self, books: &mut Books) {
        let busy = self.guests.iter().filter(|guest| guest.state == State::Computing);
        let others = busy.clone().count() as u64 - 1;
        let round = (self.gpu.physics.slice_own + self.gpu.physics.switch).times(others);
        for guest in busy {
            books.gap(guest.seat, round);
            books.wait(guest.seat, round);
        }
    }
}

impl Guest<'_> {
    fn next(&self, now: Time) -> Option<Time> {
        let dies = self.terms.dies.map(|dies| Time(dies.0));
        let program = self.program.as_ref();
        let own = match self.state {
            State::Coming => Some(Time(self.terms.arrives.0)),
            State::Pausing => program.and_then(Program::ready),
            State::Computing => None,
            State::Gone => return None,
        };
        let grows = program.and_then(|program| program.grows(now));
        [own, dies, grows].into_iter().flatten().min().map(|next| next.max(now))
    }

    fn leave(&mut self) {
        self.state = State::Gone;
        self.program = None;
        self.holds = Bytes::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::builtin::find;
    use sched::Span;

    #[test]
    fn whoever_does_not_fit_fails() {
        let (record, failed) = run(&find("seed-4x12", &[]).unwrap());
        assert_eq!(failed, ["tenant-2", "tenant-3", "tenant-4"]);
        assert!(!record.finished);
        assert!(record.makespan.0.abs_diff(159_000_000_000) < 1_000_000, "{}", record.makespan);
        assert_eq!(record.tenants[1].ended, None);
    }

    #[test]
    fn slices_cost_a_tenth_of_the_time() {
        let (record, failed) = run(&find("small-co-residents", &[]).unwrap());
        assert!(failed.is_empty() && record.finished);
        let share = 60.0 / record.makespan.as_secs_f64();
        assert!((0.86..0.92).contains(&share), "{share}");
        assert!(
            record.tenants.iter().all(|fate| fate.work.0.abs_diff(10_000_000_000) < 1_000),
            "{:?}",
            record.tenants
        );
        assert!(record.tenants[0].gap_max > Span::from_millis(10));
    }

    #[test]
    fn growing_ends_in_out_of_memory() {
        let (record, failed) = run(&find("growing", &[]).unwrap());
        assert_eq!(failed.len(), 1);
        assert!(!record.finished);
        let worse = record.tenants.iter().find(|fate| fate.ended.is_none()).unwrap();
        assert!(worse.work > Span::ZERO && worse.work < Span::from_secs(120), "{}", worse.work);
    }

    #[test]
    fn a_service_waits_for_everybody_elses_slices() {
        let (record, _) = run(&find("lc-four-be-unhinted", &[]).unwrap());
        let mut latencies = record.latencies;
        latencies.sort_unstable();
        let p99 = latencies[latencies.len() * 99 / 100];
        assert!((6_000_000..10_000_000).contains(&p99.0), "{p99}");
    }
}
