//! What is done with what the core wants.

use super::Daemon;
use crate::executor::{Aim, Link, Switch, SwitchTo, Work};
use crate::reasons;
use sched::{Action, Event, GpuId, OpId, Outcome, TenantId};
use serde_json::json;

impl Daemon {
    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Freeze { op, tenant, scope } => {
                let is_waited_for = !self.core.is_widened_if_ready(tenant);
                let to = if is_waited_for { SwitchTo::Frozen(scope) } else { SwitchTo::FrozenIfReady };
                self.switch(op, tenant, to);
            }
            Action::Thaw { op, tenant, slice } => self.switch(op, tenant, SwitchTo::Thawed(slice)),
            Action::Slice { op, tenant, slice } => self.switch(op, tenant, SwitchTo::Sliced(slice)),
            Action::Move { op, gpu, out, into, room } => {
                self.move_begins(op, &out, &into);
                self.executor(gpu).order(Work::Move { op, out, into, room });
            }
            Action::Prepare { op, tenant, handles } => self.prepare(op, tenant, handles),
            Action::Rehome { op, tenant, down, up } => self.rehome(op, tenant, down, up),
            Action::Inspect { op, tenants } => self.inspect(op, tenants),
            Action::TurnBegins { tenant, .. } => self.turn_begins(tenant),
            Action::TurnEnds { tenant, ran } => {
                self.jobs.turn_ends(tenant, ran);
                self.note("turn_end", tenant, json!({ "ran_ns": ran.0 }));
                self.measure();
            }
            Action::Admit { tenant } => self.welcome(tenant),
            Action::Queue { tenant, place, forecast, why } => {
                self.keep_waiting(tenant, reasons::at_the_door(why, place, forecast));
            }
            Action::Refuse { tenant, why } => self.refuse(tenant, &reasons::words(why)),
            Action::Grant { tenant, request } => self.grant(tenant, request),
            Action::GrantHost { tenant, request, host } => self.grant_on_host(tenant, request, host),
            Action::Deny { tenant, request, why } => self.deny_or_wait(tenant, request, why),
            Action::End { tenant, why } => self.end(tenant, &why),
            Action::Overdue { op } => {
                let what = format!("action {op} of the core was not over by its deadline");
                tracing::error!("{what}");
                self.events.note("error", json!({ "what": what }));
            }
            Action::Place { gpus, why, .. } => {
                self.placed = Some((gpus, why));
            }
            Action::WarmUp { tenant } => {
                let took = self.gpu_is_free_for(tenant);
                if let Some(known) = self.known.get(&tenant).filter(|_| !self.warming.is_told(tenant)) {
                    known.link.order_warm_up();
                }
                self.note("warm_up", tenant, json!({ "granted_ns": took.0 }));
            }
            Action::HintMissed { tenant, why } => self.hint_missed(tenant, why),
            // The core is told of no copies of what is on the device: to it their space is free, as it is to the mover, which
            // drops them itself. Grants are used at once, so none can come back.
            Action::Drop(_) | Action::Reclaim { .. } => {
                tracing::debug!("not done here: {action:?}");
            }
        }
    }

    fn switch(&mut self, op: OpId, tenant: TenantId, to: SwitchTo) {
        let Some(known) = self.known.get(&tenant) else {
            // It left in the same moment.
            return self.step(Event::Done { op, outcome: Outcome::Failed });
        };
        let (gpu, link) = (known.gpu, known.link.clone());
        let is_freeze = matches!(to, SwitchTo::Frozen(_));
        let aim = is_freeze.then(|| self.aim(gpu)).flatten();
        let warms = is_freeze.then(|| self.warms_after(gpu, tenant)).flatten();
        // Before the order, which takes it back; the ring behind that, which it is not to delay: a freeze takes longer than to be woken.
        let is_rung_for = self.attention.leaves_room() && warms.as_ref().is_some_and(Link::expect_warm_up);
        let hinted = warms.as_ref().map(|hinted| hinted.who.tenant).zip(aim);
        let then_by = hinted.and_then(|(hinted, aim)| self.stands_by_for(hinted, aim.expect));
        let switch = Switch { op: Some(op), link, to, aim, warms: warms.clone(), then_by };
        self.executor(gpu).switch(switch);
        if let Some(hinted) = warms {
            self.warming.follows(op, hinted.who.tenant);
            if is_rung_for {
                hinted.ring_for_warm_up();
            }
        }
        if !matches!(to, SwitchTo::Sliced(_)) {
            self.mustering.is_switched(tenant);
            self.switch_begins(op, tenant, gpu, !matches!(to, SwitchTo::Thawed(_)));
        }
    }

    /// Who is to warm up as soon as a tenant is off: word of that by way of the main loop would come later.
    fn warms_after(&self, gpu: GpuId, frozen: TenantId) -> Option<Link> {
        self.known.get(&self.core.warmed_after(gpu, frozen)?).map(|known| known.link.clone())
    }

    /// What a freeze is for that is ordered now.
    pub(super) fn aim(&self, gpu: GpuId) -> Option<Aim> {
        let (due, expect) = self.core.aim(gpu)?;
        Some(Aim { due, ordered: self.now(), expect })
    }

    /// Looks where the memory of these is: they are on one GPU.
    fn inspect(&mut self, op: OpId, tenants: Vec<TenantId>) {
        match tenants.iter().find_map(|tenant| self.known.get(tenant)) {
            Some(known) => self.executor(known.gpu).order(Work::Inspect(op, tenants)),
            // All of them left in the same moment.
            None => {
                let outcome = Outcome::Found { away: Vec::new(), unsettled: Vec::new() };
                self.step(Event::Done { op, outcome });
            }
        }
    }

    fn turn_begins(&mut self, tenant: TenantId) {
        let turns = self.core.describe(tenant, self.now()).map_or(0, |described| described.turns);
        self.jobs.turn_begins(tenant, self.now());
        self.note("turn_begin", tenant, json!({ "turn": turns }));
        self.measure();
        if let Some(settings) = self.lengths.next() {
            self.step(Event::Settings(Box::new(settings)));
        }
    }

    /// Ends a program that could go on: without the daemon and without its page's word that its memory is there, it
    /// ends itself and says why.
    fn end(&mut self, tenant: TenantId, why: &str) {
        let Some(known) = self.known.get(&tenant) else { return };
        let what = format!("the program is ended: {why}");
        tracing::error!("tenant {tenant}: {what}");
        self.events.note_of(&known.link.who, "error", json!({ "what": what }));
        known.link.grip.condemn();
        known.link.outgoing.hang_up();
    }
}
