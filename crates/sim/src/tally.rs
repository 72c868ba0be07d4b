//! Sums over who did what when, kept as it happens: a list of it all is as long as a picture needs, and no longer.

use crate::record::{Record, Stretch, What};
use sched::Time;
use std::collections::{BTreeMap, BTreeSet};

/// What goes on now on each GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    gpus: BTreeMap<u16, Now>,
}

/// What goes on now on one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
struct Now {
    /// Everything up to here is added up.
    since: Time,
    /// Best-effort tenants that are not idle.
    wanting: u32,
    /// Latency-critical tenants that run.
    critical: BTreeSet<usize>,
}

impl Tally {
    /// A tenant of `record` did one thing up to now, since an instant, and does another from now on. Time does not go back.
    pub(crate) fn change(
        &mut self,
        record: &mut Record,
        tenant: usize,
        gpu: u16,
        before: Option<(What, Time)>,
        after: Option<What>,
        now: Time,
    ) {
        let on = self.gpus.entry(gpu).or_default();
        on.pass(record, now);
        let fate = &mut record.tenants[tenant];
        let wants = |what: What| what != What::Idle;
        if let Some((_, since)) = before.filter(|&(what, _)| wants(what)) {
            fate.wanted += now.since(since);
        }
        if fate.best_effort {
            on.wanting += u32::from(after.is_some_and(wants));
            on.wanting -= u32::from(before.is_some_and(|(what, _)| wants(what)));
        } else if after == Some(What::Ran) {
            on.critical.insert(tenant);
        } else {
            on.critical.remove(&tenant);
        }
    }
}

/// Adds up all stretches of a record that has every one of them.
pub(crate) fn add_up(record: &mut Record) {
    let index: BTreeMap<_, _> =
        record.tenants.iter().enumerate().map(|(at, fate)| (fate.tenant, at)).collect();
    // Of what happens at one instant, ends come first.
    let mut changes: Vec<(Time, bool, usize)> = Vec::new();
    for (at, stretch) in record.stretches.iter().enumerate() {
        changes.extend([(stretch.begin, true, at), (stretch.end, false, at)]);
    }
    changes.sort_unstable();
    let mut tally = Tally::default();
    let stretches = std::mem::take(&mut record.stretches);
    for (now, begins, at) in changes {
        let Stretch { tenant, gpu, what, begin, .. } = stretches[at];
        let (before, after) = if begins { (None, Some(what)) } else { (Some((what, begin)), None) };
        tally.change(record, index[&tenant], gpu, before, after, now);
    }
    record.stretches = stretches;
}

impl Now {
    /// Adds up what went on until now.
    fn pass(&mut self, record: &mut Record, now: Time) {
        let span = now.since(self.since);
        self.since = now;
        if self.wanting > 0 {
            record.wanted += span;
        }
        for &tenant in &self.critical {
            let fate = &mut record.tenants[tenant];
            fate.ran += span;
            if self.wanting > 0 {
                fate.ran_beside += span;
            }
        }
    }
}
