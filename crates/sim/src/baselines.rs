//! What rota is compared with: the same programs on the same GPUs, without the core.
//!
//! - [`serial`]: one after the other, each at native speed.
//! - [`stock`]: all at once, by the driver's own time slices.
//! - [`unified`]: unified memory with an exclusive quantum, page fault by page fault.
//!
//! A baseline decides as that system does, and shares with rota what programs do ([`program`]) and how their fates are
//! written down ([`books`]).

mod books;
mod program;
pub mod serial;
pub mod stock;
pub mod unified;

use crate::record::{Fate, Record};
use crate::scenario::{Job, Scenario};
use crate::workload;
use sched::{Bytes, Span, Time};

/// Runs a scenario until everybody has ended whose work has an end. What the others do after that is not compared.
fn until_done<T>(scenario: &Scenario, record: impl Fn(&T) -> &Record, run: impl Fn(&Scenario) -> T) -> T {
    let whole = run(scenario);
    let endless = |fate: &&Fate| !workload::ends(&scenario.jobs[fate.job].work);
    let fates = &record(&whole).tenants;
    let last = fates.iter().filter(|fate| !endless(fate)).map(|fate| fate.ended).max().flatten();
    match last {
        Some(last) if record(&whole).finished && fates.iter().any(|fate| endless(&fate)) => {
            run(&Scenario { limit: last.since(Time::ZERO) + Span(1), ..scenario.clone() })
        }
        _ => whole,
    }
}

/// A tenant to be: its job, and which GPU it goes to.
struct Seat<'s> {
    job: usize,
    terms: &'s Job,
    gpu: u16,
}

/// Everybody in the order in which they come. Who names no GPU goes to the one with the most memory left, as people do
/// who look before they start a program.
fn seats(scenario: &Scenario) -> Vec<Seat<'_>> {
    let mut left: Vec<Bytes> = scenario.gpus.iter().map(|gpu| gpu.capacity).collect();
    let mut jobs: Vec<(usize, &Job)> = scenario.jobs.iter().enumerate().collect();
    jobs.sort_by_key(|(_, job)| job.arrives);
    let mut seats = Vec::new();
    for (index, job) in jobs {
        for tenant in 0..job.tenants as usize {
            let most_left = (0..left.len()).rev().max_by_key(|&gpu| left[gpu]).unwrap_or(0) as u16;
            let gpu = job.gpus.get(tenant).copied().unwrap_or(most_left);
            let room = &mut left[usize::from(gpu)];
            *room = room.less(job.memory.bytes).less(scenario.gpus[usize::from(gpu)].residue);
            seats.push(Seat { job: index, terms: job, gpu });
        }
    }
    seats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_cut_when_the_others_have_ended() {
        let text = r#"
about = "two"
limit = "60s"
gpu = { capacity = "16GiB" }
job = [
  { name = "a", memory = "1GiB", work = { kind = "steady", total = "5s" } },
  { name = "b", memory = "1GiB", work = { kind = "steps", busy = "10ms", pause = "10ms" } },
]
"#;
        let scenario = parse("two", "two.toml", text, &[]).unwrap();
        let runs =
            [unified::run(&scenario, Span::from_secs(30)), stock::run(&scenario).0, serial::run(&scenario)];
        for record in runs {
            assert!(record.finished);
            assert!((5.0..12.0).contains(&record.makespan.as_secs_f64()), "{}", record.makespan);
        }
    }
    use crate::scenario::file::parse;

    #[test]
    fn who_names_no_gpu_goes_where_most_is_left() {
        let text = r#"
about = "three"
gpu = { capacity = "16GiB", count = 2 }
job = [
  { name = "late", memory = "1GiB", arrives = "1s", work = { kind = "steady", total = "1s" } },
  { name = "named", memory = "8GiB", gpus = [0], work = { kind = "steady", total = "1s" } },
  { name = "free", copies = 2, memory = "4GiB", work = { kind = "steady", total = "1s" } },
]
"#;
        let scenario = parse("three", "three.toml", text, &[]).unwrap();
        let seats: Vec<_> = seats(&scenario).iter().map(|seat| (seat.job, seat.gpu)).collect();
        assert_eq!(seats, [(1, 0), (2, 1), (3, 1), (0, 0)]);
    }
}
