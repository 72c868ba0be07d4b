//! Names of published memory that are asked for before their owner is back.
//!
//! A new worker knows no names until the programs of the last one have published them again. Whoever opens one meanwhile waits
//! for that, so that nobody is told that a name means nothing because a worker was replaced, or the keeper with it. So do those
//! who had one open before and say so again.

use super::Daemon;
use sched::{RequestId, TenantId};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use wire::Token;

/// How long a new worker waits for names: programs come back within seconds, or are stopped.
const NAMES_WITHIN: Duration = Duration::from_secs(10);

/// The most that one tenant waits for at a time, and all together. What a program has open, it waits for at once.
const AWAITED_BY_ONE_MAX: usize = 1024;
const AWAITED_MAX: usize = 65_536;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct AwaitedNames {
    until: Option<Instant>,
    /// Who waits for each, in the order in which they came.
    asked: BTreeMap<Token, VecDeque<(TenantId, RequestId)>>,
    /// How much each waits for.
    counts: BTreeMap<TenantId, usize>,
}

impl AwaitedNames {
    /// Names may come, if somebody is expected.
    pub(super) fn of(somebody_is_expected: bool) -> Self {
        Self { until: somebody_is_expected.then(|| Instant::now() + NAMES_WITHIN), ..Self::default() }
    }

    /// Somebody came back of whom nobody knew, so others may.
    pub(super) fn expect_more(&mut self) {
        self.until = Some(Instant::now() + NAMES_WITHIN);
    }

    /// Has somebody wait for a name. False if none comes any more, or it waits for too many.
    pub(super) fn wait(&mut self, tenant: TenantId, request: RequestId, token: Token) -> bool {
        let by_one = self.counts.get(&tenant).copied().unwrap_or(0);
        let by_all: usize = self.counts.values().sum();
        let waits = self.until.is_some_and(|until| until > Instant::now())
            && by_one < AWAITED_BY_ONE_MAX
            && by_all < AWAITED_MAX;
        if waits {
            self.asked.entry(token).or_default().push_back((tenant, request));
            *self.counts.entry(tenant).or_default() += 1;
        }
        waits
    }

    /// Those who wait for a name do so no more.
    fn take(&mut self, token: Token) -> VecDeque<(TenantId, RequestId)> {
        let waited = self.asked.remove(&token).unwrap_or_default();
        waited.iter().for_each(|(tenant, _)| self.count_down(*tenant));
        waited
    }

    /// A tenant does not want a name any more, once: the request that it came with first.
    fn take_first(&mut self, tenant: TenantId, token: Token) -> Option<RequestId> {
        let waiting = self.asked.get_mut(&token)?;
        let at = waiting.iter().position(|(waits, _)| *waits == tenant)?;
        let (_, request) = waiting.remove(at)?;
        if waiting.is_empty() {
            self.asked.remove(&token);
        }
        self.count_down(tenant);
        Some(request)
    }

    fn count_down(&mut self, tenant: TenantId) {
        if let Some(count) = self.counts.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&tenant);
            }
        }
    }

    /// Somebody is gone.
    pub(super) fn forget(&mut self, tenant: TenantId) {
        if self.counts.remove(&tenant).is_some() {
            self.asked.retain(|_, waiting| {
                waiting.retain(|(waits, _)| *waits != tenant);
                !waiting.is_empty()
            });
        }
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
        for (tenant, request) in self.awaited_names.take(token) {
            self.open_published(tenant, request, token);
        }
    }

    /// Somebody closes what it had open before, and whose owner is not back: it does not wait for that any more.
    pub(super) fn close_awaited(&mut self, tenant: TenantId, token: Token) {
        if let Some(request) = self.awaited_names.take_first(tenant, token) {
            self.deny(tenant, request, "it was closed".into());
        }
    }

    /// Denies those who have waited long enough. From then on nobody waits.
    pub(super) fn deny_late_names(&mut self) {
        if self.awaited_names.until.is_none_or(|until| until > Instant::now()) {
            return;
        }
        self.awaited_names.until = None;
        self.awaited_names.counts.clear();
        for (token, waiting) in std::mem::take(&mut self.awaited_names.asked) {
            for (tenant, request) in waiting {
                self.open_published(tenant, request, token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TenantId = TenantId(1);
    const TWO: TenantId = TenantId(2);

    #[test]
    fn nobody_keeps_others_from_waiting() {
        let mut names = AwaitedNames::of(true);
        let asked = (0..).map(RequestId).zip((0..).map(Token));
        let taken = asked.take_while(|&(request, token)| names.wait(ONE, request, token)).count();
        assert_eq!(taken, AWAITED_BY_ONE_MAX);
        assert!(names.wait(TWO, RequestId(0), Token(0)));
        // What has come makes room.
        assert_eq!(names.take(Token(0)).len(), 2);
        assert!(names.wait(ONE, RequestId(0), Token(7)) && !names.wait(ONE, RequestId(0), Token(8)));
        names.forget(ONE);
        assert_eq!((names.asked.len(), names.counts.len()), (0, 0));
        assert!(!AwaitedNames::of(false).wait(ONE, RequestId(0), Token(0)), "nobody is expected");
    }

    #[test]
    fn what_is_closed_is_waited_for_once_less() {
        let mut names = AwaitedNames::of(true);
        for (tenant, request) in [(ONE, 1), (TWO, 2), (ONE, 3)] {
            assert!(names.wait(tenant, RequestId(request), Token(7)));
        }
        assert_eq!(names.take_first(ONE, Token(8)), None);
        assert_eq!(names.take_first(ONE, Token(7)), Some(RequestId(1)));
        assert_eq!(names.take(Token(7)), [(TWO, RequestId(2)), (ONE, RequestId(3))]);
        assert_eq!(names.take_first(ONE, Token(7)), None);
        assert_eq!((names.asked.len(), names.counts.len()), (0, 0));
    }
}
