//! Which events came in which states of a tenant: counted, so that a test can ask for every cell.

use super::World;
use super::execute::How;
use super::truth::Op;
use sched::{Event, State, TenantId};
use std::collections::BTreeMap;
use std::fmt::Write;

/// States of a tenant, as the core describes them, and what it does not describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seen {
    In(State),
    /// It left and is not buried.
    Left,
    /// It is buried, was refused, or never came.
    Nobody,
}

impl Seen {
    pub(crate) const ALL: [Self; 9] = [
        Self::In(State::Queued),
        Self::In(State::Joined),
        Self::In(State::Running),
        Self::In(State::Frozen),
        Self::In(State::Moving),
        Self::In(State::Away),
        Self::In(State::Paused),
        Self::Left,
        Self::Nobody,
    ];

    fn name(self) -> String {
        match self {
            Self::In(state) => format!("{state:?}"),
            other => format!("{other:?}"),
        }
    }
}

/// Kinds of events, in the order of their declaration.
pub(crate) const KINDS: [&str; 42] = [
    "Gpu",
    "Settings",
    "Unmanaged",
    "Strangers",
    "Arena",
    "User",
    "Job",
    "JobOver",
    "Pause",
    "Resume",
    "Deep",
    "Place",
    "Arrived",
    "Rejoined",
    "Context",
    "ContextGone",
    "Shares",
    "Ask",
    "AskHost",
    "ClaimedHost",
    "HostedBefore",
    "Claimed",
    "Adopted",
    "Pinned",
    "Copied",
    "Returned",
    "Freed",
    "Wants",
    "Idle",
    "Measured",
    "Hint",
    "Warmed",
    "GivesWay",
    "Answers",
    "Left",
    "Lingers",
    "Buried",
    "Done",
    "DoneFailed",
    "DoneLate",
    "Tick",
    "Residue",
];

/// How often which kind of event came in which state.
#[derive(Default)]
pub(crate) struct Matrix(pub(crate) BTreeMap<(&'static str, Seen), u64>);

impl Matrix {
    /// An event is about to be told. One that names nobody concerns everybody.
    pub(crate) fn count(&mut self, world: &World, event: &Event) {
        let job = |job: &sched::JobId| -> Vec<TenantId> {
            world.tenants.iter().filter(|(_, t)| t.job == *job).map(|(&id, _)| id).collect()
        };
        let on = |gpu: &sched::GpuId| -> Vec<TenantId> {
            world.tenants.iter().filter(|(_, t)| t.gpu == *gpu).map(|(&id, _)| id).collect()
        };
        let all = || world.tenants.keys().copied().collect::<Vec<_>>();
        let (kind, who) = match event {
            Event::Gpu { gpu, .. } => ("Gpu", on(gpu)),
            Event::Settings(_) => ("Settings", all()),
            Event::Unmanaged { gpu, .. } => ("Unmanaged", on(gpu)),
            Event::Strangers { gpu, .. } => ("Strangers", on(gpu)),
            Event::Arena(_) => ("Arena", all()),
            Event::User { .. } => ("User", all()),
            Event::Job { job: id, .. } => ("Job", job(id)),
            Event::JobOver(id) => ("JobOver", job(id)),
            Event::Pause(id) => ("Pause", job(id)),
            Event::Resume(id) => ("Resume", job(id)),
            Event::Deep { job: id, .. } => ("Deep", job(id)),
            Event::Place { .. } => ("Place", all()),
            Event::Arrived { tenant, .. } => ("Arrived", vec![*tenant]),
            Event::Rejoined { tenant, .. } => ("Rejoined", vec![*tenant]),
            Event::Context { tenant, present: true } => ("Context", vec![*tenant]),
            Event::Context { tenant, present: false } => ("ContextGone", vec![*tenant]),
            Event::Shares(one, other) => ("Shares", vec![*one, *other]),
            Event::Ask { tenant, .. } => ("Ask", vec![*tenant]),
            Event::AskHost { tenant, .. } => ("AskHost", vec![*tenant]),
            Event::ClaimedHost { owned, .. } => ("ClaimedHost", vec![owned.tenant]),
            Event::Looked { tenant, .. } => ("Looked", vec![*tenant]),
            Event::HomeIs { owned, .. } => ("HomeIs", vec![owned.tenant]),
            Event::HostedBefore { tenant, .. } => ("HostedBefore", vec![*tenant]),
            Event::Claimed { owned, .. } => ("Claimed", vec![owned.tenant]),
            Event::Adopted { owned, .. } => ("Adopted", vec![owned.tenant]),
            Event::Pinned { owned, .. } => ("Pinned", vec![owned.tenant]),
            Event::Copied { owned, .. } => ("Copied", vec![owned.tenant]),
            Event::Returned { tenant, .. } => ("Returned", vec![*tenant]),
            Event::Freed { tenant, .. } => ("Freed", vec![*tenant]),
            Event::Wants { tenant, .. } => ("Wants", vec![*tenant]),
            Event::Idle(tenant) => ("Idle", vec![*tenant]),
            Event::Measured { tenant, .. } => ("Measured", vec![*tenant]),
            Event::Hint { tenant, .. } => ("Hint", vec![*tenant]),
            Event::Warmed { tenant, .. } => ("Warmed", vec![*tenant]),
            Event::GivesWay { tenant, .. } => ("GivesWay", vec![*tenant]),
            Event::Answers(tenant) => ("Answers", vec![*tenant]),
            Event::Left(tenant) => ("Left", vec![*tenant]),
            Event::Lingers(tenant) => ("Lingers", vec![*tenant]),
            Event::Buried(tenant) => ("Buried", vec![*tenant]),
            Event::Done { .. } => ("DoneLate", Vec::new()),
            Event::Tick => ("Tick", all()),
            Event::Residue { tenant, .. } => ("Residue", vec![*tenant]),
        };
        self.add(world, kind, who);
    }

    /// An action is about to end.
    pub(crate) fn count_op(&mut self, world: &World, op: &Op, how: How) {
        let kind = match how {
            _ if op.overdue => "DoneLate",
            How::Fail => "DoneFailed",
            _ => "Done",
        };
        self.add(world, kind, op.concerns());
    }

    /// The state that somebody is in.
    pub(crate) fn seen(world: &World, tenant: TenantId) -> Seen {
        match world.tenants.get(&tenant) {
            Some(t) if !t.lives() => Seen::Left,
            _ => world.core.describe(tenant, world.now).map_or(Seen::Nobody, |seen| Seen::In(seen.state)),
        }
    }

    /// Has this been reached?
    pub(crate) fn has(&self, kind: &'static str, seen: Seen) -> bool {
        self.0.contains_key(&(kind, seen))
    }

    fn add(&mut self, world: &World, kind: &'static str, who: impl IntoIterator<Item = TenantId>) {
        for tenant in who {
            *self.0.entry((kind, Self::seen(world, tenant))).or_default() += 1;
        }
    }

    /// Adds up.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (cell, count) in &other.0 {
            *self.0.entry(*cell).or_default() += count;
        }
    }

    /// As a table.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("{:<12}", "event");
        for seen in Seen::ALL {
            let _ = write!(text, "{:>9}", seen.name());
        }
        for kind in KINDS {
            let _ = write!(text, "\n{kind:<12}");
            for seen in Seen::ALL {
                let _ = write!(text, "{:>9}", self.0.get(&(kind, seen)).copied().unwrap_or(0));
            }
        }
        text
    }
}
