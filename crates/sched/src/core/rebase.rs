//! The state with everything taken out that does not matter for what happens next, so that a model checker sees that it
//! has been here before: instants count from now, virtual times from the least, actions from the first that is open.

use super::{Core, Due};
use crate::gpu::Gpu;
use crate::tenant::{Grip, Tenant};
use crate::{OpId, Span, Time};
use std::collections::BTreeMap;

/// Now, in a state that was moved: late enough that what lies before it can be told apart.
const ORIGIN: u64 = 1 << 50;

/// What lies further back than this makes no difference any more.
const PAST_MAX: u64 = 1 << 42;

impl Core {
    /// The same state with the present at a fixed instant, and its actions numbered from one.
    pub fn rebased(&self) -> Self {
        let mut moved = self.clone();
        let now = self.now.0;
        let at = |time: &mut Time| *time = shifted(*time, now);
        let numbers: BTreeMap<OpId, OpId> = self.ops.keys().copied().zip((1..).map(OpId)).collect();
        let number = |op: &mut OpId| *op = numbers.get(op).copied().unwrap_or(OpId(0));
        let least = self.tenants.iter().map(|(_, tenant)| tenant.virtual_time).min().unwrap_or(0);

        moved.now = Time(ORIGIN);
        moved.next_op = numbers.len() as u64 + 1;
        moved.ops = self.ops.iter().map(|(op, open)| (numbers[op], open.clone())).collect();
        moved.ops.values_mut().for_each(|open| at(&mut open.deadline));
        moved.due = self
            .due
            .iter()
            .map(|&(time, due)| {
                let due = match due {
                    Due::Op(op) => Due::Op(numbers[&op]),
                    other => other,
                };
                (shifted(time, now), due)
            })
            .collect();
        at(&mut moved.end_not_before);
        for (_, tenant) in moved.tenants.iter_mut() {
            rebase_tenant(tenant, &at, &number, least);
        }
        for books in moved.gpus.values_mut() {
            rebase_gpu(books, &at, &number, least);
        }
        let everybody: Vec<_> = moved.tenants.iter().map(|(id, _)| id).collect();
        for books in moved.gpus.values_mut() {
            books.line.clear();
            books.way.clear();
            books.door.clear();
        }
        for id in everybody {
            if let Some(tenant) = moved.tenants.get_mut(id) {
                (tenant.in_line, tenant.in_way) = (None, None);
            }
            moved.relist(id);
            let Some(tenant) = moved.tenants.get(id) else { continue };
            if tenant.phase == crate::tenant::Phase::Queued {
                let (gpu, key) = (tenant.gpu, super::door::door_key(id, tenant));
                moved.gpu_mut(gpu).door.insert(key);
            }
        }
        moved.concerned.clear();
        moved
    }
}

fn shifted(time: Time, now: u64) -> Time {
    match time {
        Time::MAX => Time::MAX,
        Time(at) if at >= now => Time(ORIGIN.saturating_add(at - now)),
        // Everything that is long past is the same.
        Time(at) => Time(ORIGIN - (now - at).min(PAST_MAX)),
    }
}

fn rebase_tenant(tenant: &mut Tenant, at: &impl Fn(&mut Time), number: &impl Fn(&mut OpId), least: u64) {
    let now = Time(ORIGIN);
    // How long something has been over does not matter, only that it is.
    let over = |time: &mut Time| {
        at(time);
        *time = (*time).max(now);
    };
    at(&mut tenant.arrived);
    at(&mut tenant.idle_since);
    at(&mut tenant.queued_at);
    tenant.since = now;
    over(&mut tenant.grip_retry);
    over(&mut tenant.not_before);
    for held in tenant.handles.values_mut() {
        over(&mut held.stuck_until);
    }
    match &mut tenant.grip {
        Grip::Freezing(op, _) | Grip::Widening(op) | Grip::Thawing(op, _) => number(op),
        Grip::Thawed | Grip::Frozen(_) => {}
    }
    if let Some(op) = &mut tenant.slicing {
        number(op);
    }
    tenant.turns = 0;
    tenant.used = crate::Ratio::ONE;
    tenant.virtual_time -= least;
}

fn rebase_gpu(books: &mut Gpu, at: &impl Fn(&mut Time), number: &impl Fn(&mut OpId), least: u64) {
    let now = Time(ORIGIN);
    let over = |time: &mut Time| {
        at(time);
        *time = (*time).max(now);
    };
    over(&mut books.move_retry);
    over(&mut books.stuck_until);
    over(&mut books.critical_until);
    for time in books
        .starved_since
        .iter_mut()
        .chain(&mut books.burials_since)
        .chain(&mut books.held_since)
        .chain(&mut books.wake)
    {
        at(time);
    }
    if let Some(turn) = &mut books.turn {
        at(&mut turn.since);
        at(&mut turn.charged);
        over(&mut turn.until);
    }
    if let Some((_, since)) = &mut books.filler {
        at(since);
    }
    for hold in &mut books.holds {
        at(&mut hold.from);
        at(&mut hold.expect);
        at(&mut hold.until);
    }
    if let Some(moving) = &mut books.moving {
        number(&mut moving.op);
    }
    if let Some(looking) = &mut books.looking {
        number(looking);
    }
    books.present = books.present.saturating_sub(least);
    books.stay = Span::ZERO;
}
