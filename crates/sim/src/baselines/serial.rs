//! One after the other, in the order in which they come, each at native speed to its end.
//!
//! With several GPUs each is a queue of its own. A service is started when its turn comes, and its requests begin then:
//! what its clients would have to wait before that is the wait of the tenant, not a latency.

use super::books::Books;
use super::program::Program;
use super::{Seat, seats, until_done};
use crate::record::{Record, What};
use crate::scenario::{Gpu, Scenario};
use sched::Time;

/// Runs a scenario so.
pub fn run(scenario: &Scenario) -> Record {
    until_done(scenario, |record| record, once)
}

fn once(scenario: &Scenario) -> Record {
    let seats = seats(scenario);
    let limit = Time(scenario.limit.0);
    let mut books = Books::new(&seats);
    let mut free = vec![Time::ZERO; scenario.gpus.len()];
    for number in 0..seats.len() {
        let job = seats[number].job;
        let gang = seats[number].terms.terms.gang;
        let first_of_gang = !gang || seats[..number].iter().all(|seat| seat.job != job);
        if !first_of_gang {
            continue;
        }
        // Who belongs to a gang begins with the others.
        let together: Vec<usize> = (number..seats.len())
            .filter(|&other| other == number || (gang && seats[other].job == job))
            .collect();
        let arrives = Time(seats[number].terms.arrives.0);
        let begins = together.iter().map(|&seat| free[usize::from(seats[seat].gpu)]).fold(arrives, Time::max);
        for seat in together {
            let ended = alone(scenario, &seats[seat], seat, begins, limit, &mut books);
            let free = &mut free[usize::from(seats[seat].gpu)];
            *free = ended.max(*free);
        }
    }
    books.close_all(limit)
}

/// One tenant from its beginning to its end, and when that was.
fn alone(
    scenario: &Scenario,
    seat: &Seat<'_>,
    number: usize,
    begins: Time,
    limit: Time,
    books: &mut Books,
) -> Time {
    let Gpu { physics, .. } = &scenario.gpus[usize::from(seat.gpu)];
    let dies = seat.terms.dies.map_or(Time::MAX, |dies| Time(dies.0));
    let until = limit.min(dies);
    books.is(number, What::Waited, Time(seat.terms.arrives.0));
    let mut program = Program::new(seat.terms, scenario.seed, number, begins);
    let mut now = begins.min(until);
    let mut idle_since = None;
    while let Some(ready) = program.ready() {
        if now.max(ready) >= until {
            now = until;
            break;
        }
        if ready > now {
            // Short pauses between steps are part of a turn.
            books.is(number, if program.rests() { What::Idle } else { What::Ran }, now);
            idle_since = Some(now);
            now = ready;
        }
        let dozes = idle_since.take().is_some_and(|since| now.since(since) > physics.doze);
        let busy = program.take(physics, dozes);
        let ran = busy.min(until.since(now));
        books.is(number, What::Ran, now);
        books.work(number, ran);
        now = now + ran;
        if ran < busy {
            break;
        }
        books.latency(program.done(now));
    }
    if now < limit {
        books.ends(number, now);
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::builtin::find;
    use crate::scenario::file::parse;
    use sched::Span;

    #[test]
    fn four_programs_take_four_times_as_long_as_one() {
        let record = run(&find("seed-4x12", &[]).unwrap());
        assert_eq!(record.makespan, Span::from_secs(636));
        assert!(record.finished);
        assert_eq!(record.moved.0, 0);
        assert_eq!(record.tenants.iter().map(|fate| fate.work).sum::<Span>(), Span::from_secs(636));
        let waits: Vec<_> = record.tenants.iter().map(|fate| fate.wait_max).collect();
        assert_eq!(waits, [0, 159, 318, 477].map(Span::from_secs));
    }

    #[test]
    fn a_gang_begins_on_all_its_gpus_at_once() {
        let record = run(&find("gangs", &[]).unwrap());
        assert!(record.finished);
        assert_eq!(record.makespan, Span::from_secs(160));
    }

    #[test]
    fn whoever_is_killed_makes_room() {
        let text = r#"
about = "two"
gpu = { capacity = "16GiB" }
job = [
  { name = "a", memory = "1GiB", dies = "5s", work = { kind = "steady", total = "60s" } },
  { name = "b", memory = "1GiB", work = { kind = "steady", total = "10s" } },
  { name = "c", memory = "1GiB", dies = "6s", work = { kind = "steady", total = "10s" } },
]
"#;
        let record = run(&parse("two", "two.toml", text, &[]).unwrap());
        assert_eq!(record.makespan, Span::from_secs(15));
        assert!(record.finished);
        assert_eq!(record.tenants[2].work, Span::ZERO);
    }

    #[test]
    fn whoever_never_ends_keeps_the_others_out() {
        let text = r#"
about = "two"
limit = "20s"
gpu = { capacity = "16GiB" }
job = [
  { name = "a", memory = "1GiB", work = { kind = "steps", busy = "1s", pause = "1s" } },
  { name = "b", memory = "1GiB", work = { kind = "steady", total = "10s" } },
]
"#;
        let record = run(&parse("two", "two.toml", text, &[]).unwrap());
        assert!(!record.finished);
        assert_eq!((record.tenants[0].work, record.tenants[1].work), (Span::from_secs(10), Span::ZERO));
        assert_eq!(record.makespan, Span::from_secs(20));
    }

    #[test]
    fn a_service_alone_answers_as_measured() {
        let mut latencies = run(&find("lc-alone", &[]).unwrap()).latencies;
        latencies.sort_unstable();
        let p50 = latencies[latencies.len() / 2];
        assert!((75_000..110_000).contains(&p50.0), "{p50}");
    }
}
