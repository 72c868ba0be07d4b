//! What will happen, by time; at one instant in the order in which it was planned.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use sched::{OpId, Outcome, Owned, RequestId, Scope, Slice, Span, TenantId, Time};

/// What will happen.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    JobComes(usize),
    JobDies(usize),
    ContextMade(usize),
    Claims(usize, RequestId),
    Adopts(Owned),
    Grows(usize),
    /// The host has what it needs for the next of a tenant's first handles.
    Loads(usize),
    /// A freeze, thaw or change of slice is real from now on.
    Grip(Effect),
    /// Word of a freeze that was done reaches the core, after what was found about copies.
    Gripped(usize, OpId, Span),
    Done(OpId, Outcome),
    /// Somebody has looked where things are.
    Inspected(OpId, Vec<TenantId>),
    MoveEnds(usize),
    Answers(usize),
    /// A pause is over.
    Resumes(usize),
    /// The next request is known, and hinted if it is.
    Announces(usize),
    Hints(usize, Span),
    Request(usize, Span),
    /// A tenant's busy share is due, unless it was frozen since: the count tells.
    Measures(usize, u64),
    Buried(usize),
}

/// What a grip does to a tenant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect {
    pub(super) tenant: TenantId,
    pub(super) what: Grip,
}

/// How a tenant is held from now on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Grip {
    Freeze(Scope),
    Spare,
    Thaw(Slice),
    Slice(Slice),
}

/// The queue. Small keys are sorted; what happens lies beside them.
#[derive(Default)]
pub(super) struct Queue {
    order: BinaryHeap<Reverse<(Time, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    planned: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: Time, happening: Happening) {
        self.planned += 1;
        self.order.push(Reverse((at, self.planned)));
        self.happenings.insert(self.planned, happening);
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.order.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn pop(&mut self) -> Option<Happening> {
        let Reverse((_, number)) = self.order.pop()?;
        self.happenings.remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_comes_first_and_equals_keep_their_order() {
        let mut queue = Queue::default();
        for (at, name) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            queue.push(Time(at), Happening::Resumes(name));
        }
        assert_eq!(queue.next(), Some(Time(3)));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|one| if let Happening::Resumes(name) = one { name } else { unreachable!() })
            .collect();
        assert_eq!(order, [1, 3, 0, 2]);
        assert_eq!(queue.next(), None);
    }
}
