//! Names of published memory that are asked for before their owner is back.
//!
//! A new worker knows no names until the programs of the last one have published them again. Whoever opens one meanwhile waits
//! for that, so that nobody is told that a name means nothing because a worker was replaced.

use super::Daemon;
use sched::{RequestId, TenantId};
use std::time::{Duration, Instant};
use wire::Token;

/// How long a new worker waits for names: programs come back within seconds, or are stopped.
const NAMES_WITHIN: Duration = Duration::from_secs(10);

/// The most who wait at a time. A thread of a program waits for each.
const AWAITED_MAX: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct AwaitedNames {
    until: Option<Instant>,
    asked: Vec<(TenantId, RequestId, Token)>,
}

impl AwaitedNames {
    /// Names may come, if somebody is expected.
    pub(super) fn of(somebody_is_expected: bool) -> Self {
        Self { until: somebody_is_expected.then(|| Instant::now() + NAMES_WITHIN), asked: Vec::new() }
    }

    /// Has somebody wait for a name. False if none comes any more.
    pub(super) fn wait(&mut self, tenant: TenantId, request: RequestId, token: Token) -> bool {
        let waits = self.until.is_some_and(|until| until > Instant::now()) && self.asked.len() < AWAITED_MAX;
        if waits {
            self.asked.push((tenant, request, token));
        }
        waits
    }
}

impl Daemon {
    /// When those are denied who wait in vain.
    pub(super) fn names_wake_within(&self) -> Option<Duration> {
        let waits = !self.awaited_names.asked.is_empty();
        let until = self.awaited_names.until.filter(|_| waits)?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// Something is published: those who wait for it get it.
    pub(super) fn name_has_come(&mut self, token: Token) {
        let all = std::mem::take(&mut self.awaited_names.asked);
        let (come, waiting) = all.into_iter().partition::<Vec<_>, _>(|(.., wanted)| *wanted == token);
        self.awaited_names.asked = waiting;
        for (tenant, request, token) in come {
            self.open_published(tenant, request, token);
        }
    }

    /// Denies those who have waited long enough. From then on nobody waits.
    pub(super) fn deny_late_names(&mut self) {
        if self.awaited_names.until.is_none_or(|until| until > Instant::now()) {
            return;
        }
        self.awaited_names.until = None;
        for (tenant, request, token) in std::mem::take(&mut self.awaited_names.asked) {
            self.open_published(tenant, request, token);
        }
    }
}
