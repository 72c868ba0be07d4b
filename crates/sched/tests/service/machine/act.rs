//! What the core wants done is done, and is over after as long as it takes.

use super::{CLAIM, CONTEXT, FREEZE, Machine, PER_MOVE, PER_SECOND, THAW, What};
use crate::program::{Step, Waits};
use sched::{Action, Bytes, GpuId, OpId, Outcome, Owned, Span, TenantId};

impl Machine {
    pub(super) fn act(&mut self, action: Action) {
        let text = |action: &Action| {
            let text = format!("{action:?}");
            text.chars().take(150).collect::<String>()
        };
        self.note(|| format!("  does {}", text(&action)));
        self.watch_action(&action);
        match action {
            Action::Freeze { op, tenant, .. } => self.grip(op, tenant, FREEZE, What::Frozen(op, tenant)),
            Action::Thaw { op, tenant, .. } => {
                assert_eq!(self.process(tenant).away(), Bytes::ZERO, "{tenant} is thawed with memory away");
                self.grip(op, tenant, THAW, What::Thawed(op, tenant));
            }
            Action::Slice { op, .. } => {
                self.plan(Span(10_000), What::Done(op, Outcome::Done { took: Span(10_000) }));
            }
            Action::Move { op, gpu, out, into, .. } => self.start_move(op, gpu, out, into),
            Action::Inspect { .. } | Action::Overdue { .. } => panic!("nothing went wrong, and {action:?}"),
            Action::Admit { tenant } => {
                self.plan(CONTEXT, What::Context(tenant));
            }
            Action::Drop(copies) => {
                for owned in copies {
                    let process = self.process(owned.tenant);
                    process.handles.entry(owned.handle).and_modify(|held| held.copied = false);
                }
            }
            Action::Refuse { tenant, .. } | Action::End { tenant, .. } => self.end(tenant),
            Action::Grant { tenant, request } => {
                if let Waits::Memory(open, bytes, _) = self.process(tenant).waits {
                    assert_eq!(open, request);
                    // It is on its way, and nobody is waited for.
                    self.plan(CLAIM, What::Claims(tenant, request, bytes));
                }
            }
            Action::Deny { tenant, .. } => {
                let process = self.process(tenant);
                process.denied += 1;
                process.waits = Waits::Nothing;
                // Some free something and go on, others end.
                if process.denied.is_multiple_of(3) || process.handles.is_empty() {
                    process.steps.clear();
                    process.steps.push_back(Step::End);
                } else {
                    process.steps.push_front(Step::Free(1));
                }
                // Not from within what the core says.
                process.waits = Waits::Host;
                self.plan(CLAIM, What::Goes(tenant));
            }
            _ => {}
        }
    }

    fn grip(&mut self, op: OpId, tenant: TenantId, took: Span, over: What) {
        let process = self.process(tenant);
        process.grip = Some(op);
        let gpu = process.gpu;
        self.gpus.get_mut(&gpu).expect("it is there").grips += 1;
        self.plan(took, over);
    }

    fn start_move(&mut self, op: OpId, gpu: GpuId, out: Vec<Owned>, into: Vec<Owned>) {
        let mut sums = [Bytes::ZERO; 2];
        for (sum, (list, away)) in sums.iter_mut().zip([(&out, true), (&into, false)]) {
            for owned in list {
                let process = self.process(owned.tenant);
                assert!(!process.thawed, "{owned:?} moves while its tenant runs");
                if let Some(held) = process.handles.get_mut(&owned.handle) {
                    held.away = away;
                    if !(away && held.copied) {
                        *sum += held.bytes;
                    }
                    held.copied = !away;
                }
            }
        }
        let took = sums[0].max(sums[1]).at(PER_SECOND) + PER_MOVE;
        self.gpus.get_mut(&gpu).expect("it is there").moving = true;
        self.plan(took, What::Moved(op, gpu, out, into, took));
    }
}
