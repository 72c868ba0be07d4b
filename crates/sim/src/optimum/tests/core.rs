//! How near the core comes, in several orders of turns.

use crate::optimum::{Judged, of_scenario};
use crate::scenario::{Scenario, Work, builtin};
use sched::{Bytes, PolicyKind, Priority, Span};

fn with(seed: u64, change: impl FnOnce(&mut Scenario)) -> Judged {
    let mut scenario = builtin::find("six-fit-three", &[]).unwrap();
    scenario.seed = seed;
    change(&mut scenario);
    let (record, judged) = of_scenario(&scenario).unwrap();
    assert!(record.finished);
    judged
}

fn show(name: &str, change: impl Fn(&mut Scenario)) {
    for seed in 1..5 {
        let j = with(seed, &change);
        println!(
            "{name} {seed}: moved {} least {} exact {} steps {} ratio {:.3}",
            j.moved,
            j.least.bytes,
            j.least.exact,
            j.steps,
            j.ratio().unwrap_or(0.0)
        );
    }
}

#[test]
fn print_them() {
    show("steady", |_| {});
    show("short turns", |s| s.settings.gap_max = Span::from_secs(5));
    show("weights 1..6", |s| s.jobs.iter_mut().zip(1..).for_each(|(j, w)| j.terms.weight = w));
    show("weights 3,3,1,1,1,1", |s| {
        s.jobs.iter_mut().zip([3, 3, 1, 1, 1, 1]).for_each(|(j, w)| j.terms.weight = w)
    });
    show("users", |s| {
        s.jobs.iter_mut().zip([1, 1, 1, 1, 2, 3]).for_each(|(j, w)| j.terms.user = sched::UserId(w))
    });
    show("bursts", |s| {
        for j in &mut s.jobs {
            j.work = Work::Bursts { on: Span::from_secs(4), off: Span::from_secs(10), count: 10 }
        }
    });
    show("short bursts", |s| {
        for j in &mut s.jobs {
            j.work = Work::Bursts { on: Span::from_secs(1), off: Span::from_secs(5), count: 30 }
        }
    });
    show("busy bursts", |s| {
        for j in &mut s.jobs {
            j.work = Work::Bursts { on: Span::from_secs(6), off: Span::from_secs(2), count: 10 }
        }
    });
    show("steps", |s| {
        for j in &mut s.jobs {
            j.work = Work::Steps { busy: Span::from_millis(80), pause: Span::from_millis(60), count: 400 }
        }
    });
    show("priorities", |s| {
        s.settings.policy = PolicyKind::Priority;
        s.jobs
            .iter_mut()
            .zip([
                Priority::High,
                Priority::High,
                Priority::Normal,
                Priority::Normal,
                Priority::Low,
                Priority::Low,
            ])
            .for_each(|(j, p)| j.terms.priority = p)
    });
    show("priorities bursts", |s| {
        s.settings.policy = PolicyKind::Priority;
        for j in &mut s.jobs {
            j.work = Work::Bursts { on: Span::from_secs(4), off: Span::from_secs(10), count: 10 }
        }
        s.jobs
            .iter_mut()
            .zip([
                Priority::High,
                Priority::High,
                Priority::Normal,
                Priority::Normal,
                Priority::Low,
                Priority::Low,
            ])
            .for_each(|(j, p)| j.terms.priority = p)
    });
    show("sizes", |s| {
        s.jobs.iter_mut().zip([2, 3, 4, 4, 5, 6]).for_each(|(j, g)| j.memory.bytes = Bytes::from_gib(g))
    });
    show("sizes handles", |s| {
        s.jobs.iter_mut().zip([2u64, 3, 4, 4, 5, 6]).for_each(|(j, g)| {
            j.memory.bytes = Bytes::from_gib(g);
            j.memory.handle = Bytes::from_mib(100 * g)
        })
    });
    show("caps", |s| {
        s.jobs
            .iter_mut()
            .zip([20u32, 30, 10, 15, 10, 15])
            .for_each(|(j, g)| j.terms.compute_max = Some(sched::Ratio::from_percent(g)))
    });
    show("arrivals", |s| s.jobs.iter_mut().zip(0..).for_each(|(j, g)| j.arrives = Span::from_secs(g * 17)));
    show("1GiB handles", |s| s.jobs.iter_mut().for_each(|j| j.memory.handle = Bytes::from_gib(1)));
    show("clean half", |s| s.jobs.iter_mut().for_each(|j| j.memory.dirty = sched::Ratio::from_percent(50)));
}
