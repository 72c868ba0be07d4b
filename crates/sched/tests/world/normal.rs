//! States that differ only in when they are, or in numbers that nobody will ask about again, are one state.

use super::World;
use sched::{OpId, Time};
use std::collections::BTreeMap;

impl World {
    /// The same state at another time.
    pub(crate) fn normal(mut self) -> Self {
        // Completions that nobody waits for get the smallest numbers, in their order.
        let strangers = self.ops.iter().filter(|(_, op)| op.overdue).map(|(&id, _)| id);
        let mut names: BTreeMap<OpId, OpId> = strangers.zip((1..).map(OpId)).collect();
        let first = OpId(names.len() as u64 + 1);
        let (core, now, numbers) = self.core.rebased(first);
        self.core = core;
        names.extend(numbers);
        self.op_last = OpId(names.len() as u64);
        let (from, to) = (self.now.0, now.0);
        let shift = |at: Time| Time((at.0 + to).saturating_sub(from));
        self.upset_at = if self.calm() { Time::ZERO } else { shift(self.upset_at) };
        let ops = std::mem::take(&mut self.ops).into_iter();
        self.ops = ops
            .map(|(id, mut op)| {
                op.due = if op.overdue { Time::ZERO } else { shift(op.due) };
                (names[&id], op)
            })
            .collect();
        self.now = now;
        for t in self.tenants.values_mut() {
            (t.turns, t.thaws) = (t.turns.min(1), 0);
            if let Some(hint) = &mut t.hinted {
                hint.at = shift(hint.at);
            }
        }
        self
    }
}
