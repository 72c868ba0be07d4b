//! The figures of one run.

use crate::record::{Fate, Foretold, Record};
use crate::scenario::Scenario;
use sched::{Class, Span};
use serde::Serialize;
use std::collections::BTreeMap;

/// The figures of one run. What does not apply is absent; the names are those of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Who decided.
    pub policy: String,
    /// Until the last one ended, or the limit.
    pub makespan_ns: u64,
    /// Out and in, added.
    pub moved_bytes: u64,
    /// The share of the GPUs' time in which memory moved and nobody could run because of it.
    pub moving_ratio: f64,
    /// The longest gap between two turns of a best-effort tenant that had work.
    pub turn_gap_ns_max: Option<u64>,
    /// The longest wait for anything: a turn, the door, memory.
    pub wait_ns_max: Option<u64>,
    /// Half of the requests of latency-critical tenants took no longer.
    pub lc_latency_ns_p50: Option<u64>,
    /// Of a hundred of them 99 took no longer.
    pub lc_latency_ns_p99: Option<u64>,
    /// Best-effort work done, of what the GPUs could have done while any was wanted, less what latency-critical
    /// tenants used.
    pub be_throughput_ratio: Option<f64>,
    /// How evenly best-effort jobs got on, each by the share it should have had: Jain's index, 1 is even.
    pub jain: Option<f64>,
    /// Did everybody get to the end of its work, or to the death that the scenario has for it?
    pub finished: bool,
    /// How far what was said of waits for a turn when they began was off, as a share of the wait: half of them by no more.
    pub forecast_error_ratio_p50: Option<f64>,
    /// The same, nine tenths of them by no more.
    pub forecast_error_ratio_p90: Option<f64>,
    /// Did the GPU only switch, with nobody getting on?
    pub livelock: bool,
    /// What else people should know of this run.
    pub note: Option<String>,
}

impl Row {
    /// The figures of a record.
    pub fn of(policy: &str, scenario: &Scenario, record: &Record) -> Self {
        let gaps = record.tenants.iter().filter(|fate| fate.best_effort).map(|fate| fate.gap_max);
        let time = record.makespan.as_secs_f64() * scenario.gpus.len() as f64;
        let mut latencies = record.latencies.clone();
        latencies.sort_unstable();
        Self {
            policy: policy.into(),
            makespan_ns: record.makespan.0,
            moved_bytes: record.moved.0,
            moving_ratio: if time > 0.0 { record.moving.as_secs_f64() / time } else { 0.0 },
            // Whoever runs to its end in one go has no second turn.
            turn_gap_ns_max: gaps.max().filter(|_| policy != "serial").map(|gap| gap.0),
            wait_ns_max: record.tenants.iter().map(|fate| fate.wait_max.0).max(),
            lc_latency_ns_p50: percentile(&latencies, 50).map(|latency| latency.0),
            lc_latency_ns_p99: percentile(&latencies, 99).map(|latency| latency.0),
            be_throughput_ratio: throughput(record),
            jain: jain(scenario, record),
            finished: record.finished,
            forecast_error_ratio_p50: forecast_error(&record.forecasts, 50),
            forecast_error_ratio_p90: forecast_error(&record.forecasts, 90),
            livelock: record.livelock,
            note: nothing_done(record),
        }
    }

    /// The run in one line, for people.
    pub fn headline(&self) -> String {
        let done = if self.finished { "all done in" } else { "not done after" };
        let mut words = vec![format!("{done} {}", Span(self.makespan_ns))];
        if self.moving_ratio > 0.0 {
            words.push(format!("{:.1}% of the time moving", self.moving_ratio * 100.0));
        }
        if let Some(gap) = self.turn_gap_ns_max.filter(|gap| *gap > 0) {
            words.push(format!("gaps up to {}", Span(gap)));
        }
        if let Some(p99) = self.lc_latency_ns_p99 {
            words.push(format!("latency p99 {}", Span(p99)));
        }
        words.extend(self.note.clone());
        format!("{}: {}", self.policy, words.join(", "))
    }
}

/// A few names, and how many more there are.
pub(crate) fn named(what: &str, names: &[String]) -> Option<String> {
    const NAMED_MAX: usize = 4;
    let some = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => None,
        1..=NAMED_MAX => Some(format!("{what}: {some}")),
        more => Some(format!("{what}: {some} and {} more", more - NAMED_MAX)),
    }
}

/// Who never got to do anything, where not everybody got to the end.
fn nothing_done(record: &Record) -> Option<String> {
    let idle = record.tenants.iter().filter(|fate| !record.finished && fate.work == Span::ZERO);
    named("nothing done", &idle.map(|fate| fate.name.clone()).collect::<Vec<_>>())
}

/// The smallest of sorted values that is not below so many per cent of them.
fn percentile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// By how much a forecast was off, as a share of the wait: so many per cent of all waits by no more. A wait of which nothing
/// was said is off by all of it. Where nothing was said of any, as nobody could know, there is nothing to judge.
fn forecast_error(forecasts: &[Foretold], percent: usize) -> Option<f64> {
    if forecasts.iter().all(|wait| wait.said.is_none()) {
        return None;
    }
    let off = |wait: &Foretold| match wait.said {
        Some(said) => said.0.abs_diff(wait.was.0) as f64 / wait.was.0.max(1) as f64,
        None => 1.0,
    };
    let mut errors: Vec<f64> = forecasts.iter().map(off).collect();
    errors.sort_unstable_by(f64::total_cmp);
    percentile(&errors, percent)
}

fn throughput(record: &Record) -> Option<f64> {
    let (best_effort, critical): (Vec<_>, Vec<_>) = record.tenants.iter().partition(|fate| fate.best_effort);
    let done: Span = best_effort.iter().map(|fate| fate.work).sum();
    let room = record.wanted.as_secs_f64() - critical.into_iter().map(work_beside).sum::<f64>();
    (room > 0.0).then(|| done.as_secs_f64() / room)
}

/// Seconds of a latency-critical tenant's work while best-effort ones wanted to run, if its work was spread evenly over the
/// time it ran.
fn work_beside(fate: &Fate) -> f64 {
    match fate.ran {
        Span::ZERO => 0.0,
        ran => fate.work.as_secs_f64() * fate.ran_beside.as_secs_f64() / ran.as_secs_f64(),
    }
}

/// Each job's speed while it wanted to run, over the share it should have had: user first, then job.
fn jain(scenario: &Scenario, record: &Record) -> Option<f64> {
    let mut user_weights = BTreeMap::new();
    for job in &scenario.jobs {
        *user_weights.entry(job.terms.user).or_insert(0.0) += f64::from(job.terms.weight);
    }
    let mut speeds: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for fate in record.tenants.iter().filter(|fate| fate.best_effort) {
        let wanted = fate.wanted.as_secs_f64();
        let speed = if wanted > 0.0 { fate.work.as_secs_f64() / wanted } else { 0.0 };
        speeds.entry(fate.job).or_default().push(speed);
    }
    let shares: Vec<f64> = speeds
        .into_iter()
        .filter_map(|(job, speeds)| {
            let terms = &scenario.jobs.get(job)?.terms;
            debug_assert_eq!(terms.class, Class::BestEffort);
            let due = f64::from(terms.weight) / user_weights[&terms.user];
            Some(speeds.iter().sum::<f64>() / speeds.len() as f64 / due)
        })
        .collect();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (shares.len() > 1 && squares > 0.0)
        .then(|| shares.iter().sum::<f64>().powi(2) / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Stretch, What};
    use crate::scenario::file;
    use crate::tally;
    use sched::{TenantId, Time};

    const TWO: &str = r#"
about = "two"
gpu = { capacity = "16GiB" }
job = [
  { name = "a", memory = "1GiB", weight = 3, work = { kind = "steady", total = "3s" } },
  { name = "b", memory = "1GiB", work = { kind = "steady", total = "3s" } },
]
"#;

    fn fate(id: u64, work: u64, gap: u64) -> Fate {
        Fate {
            tenant: TenantId(id),
            job: id as usize,
            name: format!("t{id}"),
            arrived: Time::ZERO,
            ended: None,
            work: Span::from_secs(work),
            gap_max: Span::from_secs(gap),
            wait_max: Span::from_secs(gap + 1),
            best_effort: true,
            wanted: Span::ZERO,
            ran: Span::ZERO,
            ran_beside: Span::ZERO,
            late: 0,
        }
    }

    fn stretch(id: u64, what: What, begin: u64, end: u64) -> Stretch {
        let [begin, end] = [begin, end].map(|seconds| Time(seconds * 1_000_000_000));
        Stretch { tenant: TenantId(id), gpu: 0, what, begin, end }
    }

    /// A record of tenants that did these things.
    fn record(tenants: Vec<Fate>, stretches: Vec<Stretch>) -> Record {
        let mut record = Record { tenants, stretches, ..Record::default() };
        tally::add_up(&mut record);
        record
    }

    fn row(record: &Record) -> Row {
        Row::of("rota", &file::parse("two", "two.toml", TWO, &[]).unwrap(), record)
    }

    #[test]
    fn who_did_nothing_is_named_up_to_a_point() {
        let record =
            |finished| Record { tenants: vec![fate(0, 1, 0), fate(1, 0, 0)], finished, ..Record::default() };
        assert_eq!(row(&record(false)).note.as_deref(), Some("nothing done: t1"));
        assert_eq!(row(&record(true)).note, None);
        let names = |count: usize| (1..=count).map(|number| format!("t{number}")).collect::<Vec<_>>();
        assert_eq!(named("x", &names(0)), None);
        assert_eq!(named("x", &names(2)).unwrap(), "x: t1, t2");
        assert_eq!(named("x", &names(6)).unwrap(), "x: t1, t2, t3, t4 and 2 more");
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let hundred: Vec<u32> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 50), Some(50));
        assert_eq!(percentile(&hundred, 99), Some(99));
        assert_eq!(percentile(&[7], 99), Some(7));
        assert_eq!(percentile::<u32>(&[], 50), None);
    }

    #[test]
    fn throughput_counts_time_in_which_anybody_wanted_to_run() {
        let stretches = vec![
            stretch(0, What::Ran, 0, 4),
            stretch(1, What::Waited, 2, 6),
            stretch(1, What::Ran, 6, 10),
            stretch(0, What::Idle, 4, 20),
        ];
        let record = Record {
            makespan: Span::from_secs(20),
            moving: Span::from_secs(1),
            ..record(vec![fate(0, 3, 2), fate(1, 4, 5)], stretches)
        };
        let row = row(&record);
        assert_eq!(row.be_throughput_ratio, Some(0.7));
        assert_eq!(row.moving_ratio, 0.05);
        assert_eq!(row.turn_gap_ns_max, Some(5_000_000_000));
        assert_eq!(row.wait_ns_max, Some(6_000_000_000));
        assert_eq!(row.lc_latency_ns_p99, None);
        assert_eq!(
            row.headline(),
            "rota: not done after 20.00 s, 5.0% of the time moving, gaps up to 5.00 s"
        );
        let serial = Row::of("serial", &file::parse("two", "two.toml", TWO, &[]).unwrap(), &record);
        assert_eq!(serial.turn_gap_ns_max, None);
    }

    #[test]
    fn what_latency_critical_tenants_used_is_not_there_for_others() {
        let tenants = || vec![fate(0, 8, 0), Fate { best_effort: false, ..fate(1, 2, 0) }];
        let beside = record(tenants(), vec![stretch(0, What::Ran, 0, 10), stretch(1, What::Ran, 6, 10)]);
        assert_eq!(row(&beside).be_throughput_ratio, Some(1.0));
        // What it does while nobody else is there takes nothing from anybody.
        let after = record(tenants(), vec![stretch(0, What::Ran, 0, 8), stretch(1, What::Ran, 10, 30)]);
        assert_eq!(row(&after).be_throughput_ratio, Some(1.0));
        let alone = record(tenants(), vec![stretch(1, What::Ran, 0, 8)]);
        assert_eq!(row(&alone).be_throughput_ratio, None);
    }

    #[test]
    fn fairness_is_measured_by_what_each_should_have_had() {
        let record = |a, b| {
            let stretches = vec![stretch(0, What::Ran, 0, 8), stretch(1, What::Waited, 0, 8)];
            record(vec![fate(0, a, 0), fate(1, b, 0)], stretches)
        };
        assert_eq!(row(&record(6, 2)).jain, Some(1.0));
        let even = row(&record(4, 4)).jain.unwrap();
        assert!((even - 0.8).abs() < 1e-9, "{even}");
    }

    #[test]
    fn forecasts_are_judged_by_the_wait_that_was() {
        let wait = |said: Option<u64>, was| Foretold {
            tenant: TenantId(1),
            begin: Time::ZERO,
            said: said.map(Span::from_secs),
            was: Span::from_secs(was),
        };
        assert_eq!(
            forecast_error(&[wait(Some(5), 10), wait(Some(11), 10), wait(Some(40), 10)], 50),
            Some(0.5)
        );
        assert_eq!(
            forecast_error(&[wait(Some(5), 10), wait(Some(11), 10), wait(Some(40), 10)], 90),
            Some(3.0)
        );
        assert_eq!(forecast_error(&[wait(None, 10), wait(Some(11), 10), wait(Some(40), 10)], 50), Some(1.0));
        assert_eq!(forecast_error(&[wait(None, 10)], 50), None);
        assert_eq!(forecast_error(&[], 50), None);
    }
}
