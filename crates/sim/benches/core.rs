//! How fast the core is: what it was told in simulated runs is told to it again, with nothing else around it.
//!
//! Two hundred, two thousand and twenty thousand tenants on eight GPUs work in bursts; a part of them does not fit. A look
//! over the whole is printed: events a second, the share of events that cause a decision, and how the time for one event
//! grows with the number of tenants, beside how the logarithm of that number does.

use rota_sim::scenario::{Faults, Gpu, Job, Memory, Physics, Scenario, Work};
use sched::{Bytes, Core, Event, Ratio, Settings, Span, Terms, Time, UserId, WhenFull};
use std::time::Instant;

const GPUS: u32 = 8;
const JOBS: u32 = 200;
/// Each run is told again so often; the fastest counts, since everything else is the machine.
const ROUNDS: usize = 5;
/// Everybody has come by then.
const SETTLED: Time = Time(5_000_000_000);

fn main() {
    println!("tenants    events  decisions  ns/event   events/s  growth  of log n");
    let mut smallest = None;
    for (tenants, seconds) in [(200, 120), (2_000, 90), (20_000, 60)] {
        let scenario = scenario(tenants, seconds);
        let heard = rota_sim::listen(&scenario);
        let (ns, decisions, events) = best_of(&scenario.settings, &heard);
        let (base_ns, base_log) = *smallest.get_or_insert((ns, f64::from(tenants).ln()));
        println!(
            "{tenants:7}  {events:8}  {:8.1}%  {ns:8.0}  {:9.0}  {:6.2}  {:8.2}",
            100.0 * decisions,
            1e9 / ns,
            ns / base_ns,
            f64::from(tenants).ln() / base_log,
        );
    }
}

/// Nanoseconds for one event, the share of events with a decision, and how many there were.
fn best_of(settings: &Settings, heard: &[(Time, Event)]) -> (f64, f64, usize) {
    let settled = heard.partition_point(|&(at, _)| at < SETTLED);
    let mut best = f64::MAX;
    let mut decisions = 0;
    for _ in 0..ROUNDS {
        let mut core = Core::new(settings.clone());
        for (at, event) in &heard[..settled] {
            core.step(*at, event.clone());
        }
        let rest: Vec<_> = heard[settled..].to_vec();
        decisions = 0;
        let begin = Instant::now();
        for (at, event) in rest {
            decisions += usize::from(!core.step(at, event).is_empty());
        }
        best = best.min(begin.elapsed().as_nanos() as f64);
    }
    let events = heard.len() - settled;
    (best / events as f64, decisions as f64 / events as f64, events)
}

fn scenario(tenants: u32, seconds: u64) -> Scenario {
    // A GPU holds about four fifths of what its tenants have, however many they are.
    let each = Bytes::from_gib(100).0 * u64::from(GPUS) / u64::from(tenants) / 4 * 4;
    let gpu = Gpu {
        capacity: Bytes::from_gib(80),
        reserve: Bytes::ZERO,
        residue: Bytes::ZERO,
        out_per_second: 55_000_000_000,
        in_per_second: 55_000_000_000,
        both_per_second: 46_000_000_000,
        physics: Physics::default(),
    };
    let jobs = (0..JOBS).map(|job| Job {
        name: format!("job-{job}"),
        terms: Terms {
            user: UserId(job % 20),
            weight: 1 + job % 3,
            when_full: WhenFull::Wait,
            ..Terms::default()
        },
        tenants: tenants / JOBS,
        gpus: (0..tenants / JOBS).map(|tenant| ((job + tenant) % GPUS) as u16).collect(),
        arrives: Span::from_millis(u64::from(job) * 10),
        dies: None,
        memory: Memory {
            bytes: Bytes(each),
            handle: Bytes(each / 4),
            dirty: Ratio::ONE,
            growth: None,
            pause: None,
        },
        work: Work::Bursts { on: Span::from_millis(100), off: Span::from_millis(400), count: 0 },
    });
    Scenario {
        name: format!("bench-{tenants}"),
        about: String::new(),
        seed: 1,
        limit: Span::from_secs(seconds),
        gpus: vec![gpu; GPUS as usize],
        arena: Bytes::from_gib(4_000),
        settings: Settings { tenants_max: tenants, turn_min: Span::from_millis(50), ..Settings::default() },
        jobs: jobs.collect(),
        faults: Faults::default(),
        unified_quanta: Vec::new(),
    }
}
