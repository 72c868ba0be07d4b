//! The truth outside of the core: which tenants live, what is where, which actions are open.
//!
//! A [`World`] owns a core. It tells it events ([`World::tell`]), takes its actions, ends them well or badly
//! ([`World::finish`]) and checks from outside, against its own books, all that always holds. It finds mistakes, it does
//! not stop at them: they are in [`World::broken`], so that random runs and the model checker can both use it. It has no
//! randomness and no will of its own: what happens next is the choice of whoever drives it.

// Every test binary uses another part of it.
#![allow(dead_code)]

pub(crate) mod directed;
pub(crate) mod execute;
pub(crate) mod finale;
pub(crate) mod happen;
pub(crate) mod happenings;
pub(crate) mod life;
pub(crate) mod matrix;
pub(crate) mod nonsense;
pub(crate) mod normal;
pub(crate) mod promises;
pub(crate) mod random;
pub(crate) mod rules;
pub(crate) mod truth;

use rules::{Broken, Rule};
use sched::{Action, Bytes, Core, Event, GpuId, JobId, OpId, RequestId, Settings, TenantId, Time};
use std::collections::BTreeMap;
use truth::{Gpu, Job, Op, Tenant};

/// A core, and everything around it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) now: Time,
    pub(crate) settings: Settings,
    pub(crate) gpus: BTreeMap<GpuId, Gpu>,
    pub(crate) arena: Bytes,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    /// Also those who left, until they are buried.
    pub(crate) tenants: BTreeMap<TenantId, Tenant>,
    /// Not over, or given up by the core and still to be completed too late.
    pub(crate) ops: BTreeMap<OpId, Op>,
    /// The newest action: none may have its number again.
    pub(crate) op_last: OpId,
    /// What somebody sent that can only be denied, and is not yet.
    pub(crate) to_deny: Option<(TenantId, RequestId)>,
    /// Who came although it is there or was, and is not refused yet.
    pub(crate) to_refuse: Option<TenantId>,
    /// When something last went wrong or changed on purpose, so that nobody's patience is measured across it.
    pub(crate) upset_at: Time,
    /// Turns of others that somebody who wants one may see go by.
    pub(crate) patience_max: u32,
    /// How often time may pass for somebody who wants a turn.
    pub(crate) ticks_max: u32,
    pub(crate) broken: Vec<Broken>,
}

impl World {
    /// A core with nobody there.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            core: Core::new(settings.clone()),
            now: Time(1_000_000_000),
            settings,
            gpus: BTreeMap::new(),
            arena: Bytes::ZERO,
            jobs: BTreeMap::new(),
            tenants: BTreeMap::new(),
            ops: BTreeMap::new(),
            op_last: OpId(0),
            to_deny: None,
            to_refuse: None,
            upset_at: Time::ZERO,
            patience_max: u32::MAX,
            ticks_max: u32::MAX,
            broken: Vec::new(),
        }
    }

    /// Something happens: first in the world, then the core hears of it, then its actions begin.
    pub(crate) fn tell(&mut self, event: Event) -> Vec<Action> {
        self.notice_kept_hints();
        if event == Event::Tick {
            self.count_ticks();
        }
        self.happen(&event);
        let tick = event == Event::Tick;
        let answers = self.answers_due(&event);
        let actions = self.core.step(self.now, event);
        self.check_answers(answers, &actions);
        for action in &actions {
            self.take(action);
        }
        self.ops.retain(|_, op| !(op.lost && op.forgotten));
        self.check(tick);
        actions
    }

    /// Time passes to when the core wants to be woken, or to `at` if that is sooner.
    pub(crate) fn pass(&mut self, at: Time) {
        self.now = self.now.max(at);
    }

    /// Notes a mistake.
    pub(crate) fn broke(&mut self, rule: Rule, text: String) {
        self.broken.push(Broken { rule, text });
    }

    /// Notes a mistake unless `holds`.
    pub(crate) fn require(&mut self, rule: Rule, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.broke(rule, text());
        }
    }
}
