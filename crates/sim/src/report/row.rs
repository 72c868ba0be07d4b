//! The figures of one run.

use crate::record::{Fate, Record, What};
use crate::scenario::Scenario;
use sched::{Class, Span, TenantId, Time};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

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
    /// How far forecasts of waiting were off, as a share of the wait: half of them by no more.
    pub forecast_error_ratio_p50: Option<f64>,
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
            forecast_error_ratio_p50: forecast_error(&record.forecasts),
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

/// Forecasts of waits that turned out to be none say nothing about their size.
fn forecast_error(forecasts: &[(Span, Span)]) -> Option<f64> {
    let mut errors: Vec<f64> = forecasts
        .iter()
        .filter(|(_, was)| *was > Span::ZERO)
        .map(|(said, was)| said.0.abs_diff(was.0) as f64 / was.0 as f64)
        .collect();
    errors.sort_unstable_by(f64::total_cmp);
    percentile(&errors, 50)
}

fn throughput(record: &Record) -> Option<f64> {
    let (best_effort, critical): (Vec<_>, Vec<_>) = record.tenants.iter().partition(|fate| fate.best_effort);
    if best_effort.is_empty() {
        return None;
    }
    let whose: BTreeSet<TenantId> = best_effort.iter().map(|fate| fate.tenant).collect();
    let mut by_gpu: BTreeMap<u16, Vec<(Time, Time)>> = BTreeMap::new();
    for stretch in &record.stretches {
        if stretch.what != What::Idle && whose.contains(&stretch.tenant) {
            by_gpu.entry(stretch.gpu).or_default().push((stretch.begin, stretch.end));
        }
    }
    by_gpu.values_mut().for_each(merge);
    let wanted: Span = by_gpu.values().flatten().map(|(begin, end)| end.since(*begin)).sum();
    let taken: f64 = critical.iter().map(|fate| work_within(record, fate, &by_gpu)).sum();
    let done: Span = best_effort.iter().map(|fate| fate.work).sum();
    let room = wanted.as_secs_f64() - taken;
    (room > 0.0).then(|| done.as_secs_f64() / room)
}

/// Makes one of those that touch.
fn merge(spans: &mut Vec<(Time, Time)>) {
    spans.sort_unstable();
    let mut merged: Vec<(Time, Time)> = Vec::new();
    for &(begin, end) in spans.iter() {
        match merged.last_mut() {
            Some((_, until)) if *until >= begin => *until = end.max(*until),
            _ => merged.push((begin, end)),
        }
    }
    *spans = merged;
}

/// Seconds of a tenant's work that fell into these times, if its work was spread evenly over the time it ran.
fn work_within(record: &Record, fate: &Fate, times: &BTreeMap<u16, Vec<(Time, Time)>>) -> f64 {
    let (mut ran, mut within) = (Span::ZERO, Span::ZERO);
    for stretch in record.stretches.iter().filter(|one| one.tenant == fate.tenant && one.what == What::Ran) {
        ran += stretch.end.since(stretch.begin);
        let Some(times) = times.get(&stretch.gpu) else { continue };
        let first = times.partition_point(|(_, end)| *end <= stretch.begin);
        for (begin, end) in times[first..].iter().take_while(|(begin, _)| *begin < stretch.end) {
            within += stretch.end.min(*end).since(stretch.begin.max(*begin));
        }
    }
    if ran == Span::ZERO { 0.0 } else { fate.work.as_secs_f64() * within.as_secs_f64() / ran.as_secs_f64() }
}

/// Each job's speed while it wanted to run, over the share it should have had: user first, then job.
fn jain(scenario: &Scenario, record: &Record) -> Option<f64> {
    let mut wanted: BTreeMap<TenantId, Span> = BTreeMap::new();
    for stretch in record.stretches.iter().filter(|stretch| stretch.what != What::Idle) {
        *wanted.entry(stretch.tenant).or_default() += stretch.end.since(stretch.begin);
    }
    let mut user_weights = BTreeMap::new();
    for job in &scenario.jobs {
        *user_weights.entry(job.terms.user).or_insert(0.0) += f64::from(job.terms.weight);
    }
    let mut speeds: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for fate in record.tenants.iter().filter(|fate| fate.best_effort) {
        let wanted = wanted.get(&fate.tenant).copied().unwrap_or_default().as_secs_f64();
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
    use crate::record::Stretch;
    use crate::scenario::file;

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
            weight: 1,
        }
    }

    fn stretch(id: u64, what: What, begin: u64, end: u64) -> Stretch {
        let [begin, end] = [begin, end].map(|seconds| Time(seconds * 1_000_000_000));
        Stretch { tenant: TenantId(id), gpu: 0, what, begin, end }
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
        let record = Record {
            tenants: vec![fate(0, 3, 2), fate(1, 4, 5)],
            stretches: vec![
                stretch(0, What::Ran, 0, 4),
                stretch(1, What::Waited, 2, 6),
                stretch(1, What::Ran, 6, 10),
                stretch(0, What::Idle, 4, 20),
            ],
            makespan: Span::from_secs(20),
            moving: Span::from_secs(1),
            ..Record::default()
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
        let mut critical = fate(1, 2, 0);
        critical.best_effort = false;
        let record = Record {
            tenants: vec![fate(0, 8, 0), critical],
            stretches: vec![stretch(0, What::Ran, 0, 10), stretch(1, What::Ran, 6, 10)],
            ..Record::default()
        };
        assert_eq!(row(&record).be_throughput_ratio, Some(1.0));
        // What it does while nobody else is there takes nothing from anybody.
        let record =
            Record { stretches: vec![stretch(0, What::Ran, 0, 8), stretch(1, What::Ran, 10, 30)], ..record };
        assert_eq!(row(&record).be_throughput_ratio, Some(1.0));
    }

    #[test]
    fn fairness_is_measured_by_what_each_should_have_had() {
        let record = |a, b| Record {
            tenants: vec![fate(0, a, 0), fate(1, b, 0)],
            stretches: vec![stretch(0, What::Ran, 0, 8), stretch(1, What::Waited, 0, 8)],
            ..Record::default()
        };
        assert_eq!(row(&record(6, 2)).jain, Some(1.0));
        let even = row(&record(4, 4)).jain.unwrap();
        assert!((even - 0.8).abs() < 1e-9, "{even}");
    }

    #[test]
    fn forecasts_are_judged_by_the_wait_that_was() {
        let seconds = |said, was| (Span::from_secs(said), Span::from_secs(was));
        assert_eq!(forecast_error(&[seconds(5, 10), seconds(11, 10), seconds(40, 10)]), Some(0.5));
        assert_eq!(forecast_error(&[seconds(5, 0)]), None);
    }
}
