//! The first moments of a worker that follows another: who was there comes back before anything is decided.
//!
//! Programs of the last worker have their memory on the device whether they are known here or not. Were the first of them
//! given a turn, or memory, before the others are known, there would be no room for it. So newcomers, turns and requests for
//! memory wait until all are back whom the keeper knows, or a moment has passed. Who comes later is taken in all the same.

use super::{Daemon, Input};
use crate::executor::Work;
use crate::names::tenant as named;
use sched::TenantId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long those are waited for who do not come: they are stopped, most likely.
const GATHER_WITHIN: Duration = Duration::from_secs(2);

/// How often to look whether those are alive who have not come.
const LOOK_WHILE_GATHERING: Duration = Duration::from_millis(20);
const LOOK_LATER: Duration = Duration::from_secs(1);

/// Who is expected, and what waits for them.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Not back yet, or not in full.
    expected: BTreeMap<TenantId, keeper::Process>,
    /// Until when everything waits.
    until: Option<Instant>,
    held: Vec<Input>,
    look_at: Option<Instant>,
    /// The driver is theirs meanwhile: they show their memory, and it is mapped here.
    arena: Option<mover::HeldBack>,
}

impl Gathering {
    /// Expects those whom the keeper knows, alive or not.
    pub(super) fn of(arena: &mover::Arena) -> Self {
        let expected: BTreeMap<_, _> =
            arena.found().into_iter().map(|(owner, process)| (named(owner), process)).collect();
        let now = Instant::now();
        let until = (!expected.is_empty()).then(|| now + GATHER_WITHIN);
        let arena = until.map(|_| arena.hold_back());
        Self { look_at: until.map(|_| now), until, expected, held: Vec::new(), arena }
    }

    /// Does anything wait?
    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Is somebody expected still?
    pub(super) fn expects(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Channels that are to be noted when everybody is back.
    pub(super) fn hold_channels(&mut self, all: Vec<(TenantId, usize)>) {
        self.held.extend(all.into_iter().map(|(tenant, channels)| Input::Channels(tenant, channels)));
    }

    /// Those of somebody are not to be noted yet.
    pub(super) fn drop_channels(&mut self, of: TenantId) {
        self.held.retain(|input| !matches!(input, Input::Channels(tenant, _) if *tenant == of));
    }

    /// When to look next.
    pub(super) fn wake_within(&self) -> Option<Duration> {
        Some(self.look_at?.saturating_duration_since(Instant::now()))
    }
}

impl Daemon {
    /// Takes what has to wait. Gives back what has not.
    pub(super) fn hold_back(&mut self, input: Input) -> Option<Input> {
        if let Input::Hello(newcomer) = &input {
            self.forsake_predecessor(newcomer.process);
        }
        let input = self.wait_for_fellows(input)?;
        if !self.gathering.is_on() {
            return Some(input);
        }
        match input {
            Input::Channels(tenant, _) => {
                self.gathering.held.push(input);
                self.gathered(tenant);
                None
            }
            // Whoever asks how things are is told of all who are there.
            Input::Hello(_) | Input::RootGone(..) | Input::List(_) | Input::Command(_) => {
                self.gathering.held.push(input);
                None
            }
            // What others have on the device is not known yet, so nobody can tell what there is room for.
            Input::Grow(..) | Input::Keep(..) | Input::GrowHost(..) => {
                self.gathering.held.push(input);
                None
            }
            // Those who are not back yet would count as programs outside of rota.
            Input::Sight(_) => None,
            other => Some(other),
        }
    }

    /// A process that says hello has no memory from before: should one be expected that is this very process, then its
    /// program was replaced by another (`exec`) while no worker was there. With several GPUs nobody can tell: it may be
    /// expected on one of them, and new on another.
    fn forsake_predecessor(&mut self, process: keeper::Process) {
        if self.setup.gpus.len() > 1 || !self.gathering.expects() {
            return;
        }
        let expected = self.gathering.expected.iter().filter(|(_, expected)| **expected == process);
        let gone: Vec<TenantId> =
            expected.map(|(&tenant, _)| tenant).filter(|tenant| self.is_out(tenant)).collect();
        for tenant in gone {
            tracing::info!("tenant {tenant} is another program now, which knows nothing of its memory");
            self.gathered(tenant);
            self.executors[0].order(Work::Forsake(tenant));
        }
    }

    /// Somebody is back in full, or will never be.
    pub(super) fn gathered(&mut self, tenant: TenantId) {
        self.gathering.expected.remove(&tenant);
        self.gathering.look_at = Some(Instant::now());
    }

    /// Neither here nor about to be.
    fn is_out(&self, tenant: &TenantId) -> bool {
        !self.known.contains_key(tenant) && !self.returning.contains_key(tenant)
    }

    /// Somebody was back, and is not any more.
    pub(super) fn expect_again(&mut self, tenant: TenantId, process: keeper::Process) {
        self.gathering.expected.insert(tenant, process);
        self.gathering.look_at = Some(Instant::now());
    }

    /// Looks who is expected still, and goes on if nobody is.
    pub(super) fn look_for_the_expected(&mut self) {
        let now = Instant::now();
        if self.gathering.look_at.is_none_or(|at| at > now) {
            return;
        }
        let gone: Vec<TenantId> = self
            .gathering
            .expected
            .iter()
            .filter(|(tenant, process)| self.is_out(tenant) && !process.is_there())
            .map(|(&tenant, _)| tenant)
            .collect();
        for tenant in gone {
            tracing::info!("tenant {tenant} ended while no worker was there");
            self.gathering.expected.remove(&tenant);
            self.executors[0].order(Work::Forsake(tenant));
        }
        let is_over = !self.gathering.expects() || self.gathering.until.is_some_and(|until| until <= now);
        if self.gathering.is_on() && is_over {
            self.go_on();
        }
        let pause = if self.gathering.is_on() { LOOK_WHILE_GATHERING } else { LOOK_LATER };
        self.gathering.look_at = self.gathering.expects().then(|| now + pause);
    }

    /// Everybody is here who will be: turns begin.
    fn go_on(&mut self) {
        (self.gathering.until, self.gathering.arena) = (None, None);
        let late = self.gathering.expected.len();
        let here = self.known.len();
        tracing::info!("{here} programs of the last worker are back, {late} are not");
        self.events.note("gathered", serde_json::json!({ "here": here, "late": late }));
        let jobs: Vec<_> = self.jobs.iter().map(|(id, _)| id).collect();
        for job in jobs {
            self.mind_several(job);
        }
        let held = std::mem::take(&mut self.gathering.held);
        let mut begun = Vec::new();
        let mut others = Vec::new();
        for input in held {
            match input {
                Input::Channels(tenant, channels) => {
                    if self.note_channels(tenant, channels > 0) && channels > 0 {
                        begun.push(tenant);
                    }
                }
                // It may have gone while it waited.
                Input::Grow(tenant, ..) | Input::Keep(tenant, ..) | Input::GrowHost(tenant, ..)
                    if !self.known.contains_key(&tenant) => {}
                other => others.push(other),
            }
        }
        // Only when all are known, so that whoever is first finds the others where they are.
        begun.into_iter().for_each(|tenant| self.find_demand(tenant));
        others.into_iter().for_each(|input| self.take_in(input));
        let jobs: Vec<_> = self.jobs.iter().map(|(id, _)| id).collect();
        jobs.into_iter().for_each(|job| self.end_if_empty(job));
    }
}
