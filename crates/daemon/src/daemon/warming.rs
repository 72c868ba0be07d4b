//! Who was told to warm up by the thread that switches, so that nobody is told twice for one request.
//!
//! That thread tells it when best-effort work is off, or about to be, and the core wants the same when it hears that it is. So what the core
//! wants while it hears of a freeze with which the order went is done already; what it wants at any other time, however soon after,
//! is for another request.

use sched::{OpId, Outcome, TenantId};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Warming {
    /// By the freeze after which they are told.
    told_after: BTreeMap<OpId, TenantId>,
    /// While the core hears of that freeze.
    told: Option<TenantId>,
}

impl Warming {
    /// A freeze begins after which this one is told.
    pub(super) fn follows(&mut self, freeze: OpId, whom: TenantId) {
        self.told_after.insert(freeze, whom);
    }

    /// An action is over. To be told before the core is.
    pub(super) fn action_ends(&mut self, op: OpId, outcome: &Outcome) {
        let after = self.told_after.remove(&op);
        self.told = after.filter(|_| matches!(outcome, Outcome::Done { .. }));
    }

    /// The core has heard of it. Who was told after it, if it was a freeze for that.
    pub(super) fn action_ended(&mut self) -> Option<TenantId> {
        self.told.take()
    }

    /// Was it told already what the core wants it to be told now?
    pub(super) fn is_told(&self, tenant: TenantId) -> bool {
        self.told == Some(tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched::Span;

    #[test]
    fn only_while_the_core_hears_of_its_freeze_somebody_is_told_already() {
        let (mut warming, [one, other]) = (Warming::default(), [TenantId(1), TenantId(2)]);
        let done = Outcome::Done { took: Span::ZERO };
        warming.follows(OpId(1), one);
        assert!(!warming.is_told(one), "it is not off yet");
        warming.action_ends(OpId(7), &done);
        assert!(!warming.is_told(one), "something else was done");
        assert_eq!(warming.action_ended(), None);
        warming.action_ends(OpId(1), &done);
        assert!(warming.is_told(one) && !warming.is_told(other));
        assert_eq!(warming.action_ended(), Some(one));
        assert!(!warming.is_told(one), "what is wanted a moment later is for another request");
        warming.action_ends(OpId(1), &done);
        assert!(!warming.is_told(one), "that freeze was told of");
        warming.follows(OpId(2), one);
        warming.action_ends(OpId(2), &Outcome::Failed);
        assert!(!warming.is_told(one), "nobody was told");
    }
}
