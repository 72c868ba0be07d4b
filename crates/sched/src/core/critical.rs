//! Latency-critical tenants: the mode a GPU is in while one is active, and hints.
//!
//! In that mode exactly one best-effort tenant runs, on the shortest slice. A hint takes it off some time ahead of a
//! request; it comes back when the request is served, or when nothing came.

use super::Core;
use crate::gpu::Hold;
use crate::hints::Plan;
use crate::tenant::{Grip, Tenant};
use crate::{Action, Favour, GpuId, Missed, Span, TenantId, Time};

/// Hints that wait on one GPU.
const HOLDS_MAX: usize = 64;

/// However long a request takes: so long best-effort work is held back for it at most.
const HOLD_MAX: Span = Span::from_millis(500);

/// Or half of it, a quarter, and so on, as the guarantee allows, but not less than this: to put best-effort work on and
/// off for less helps nobody, and no more hints are heard until its share is back.
const HOLD_MIN: Span = Span::from_millis(50);

impl Core {
    /// Is somebody latency-critical at work on a GPU, or was just now?
    pub fn is_critical(&self, gpu: GpuId) -> bool {
        self.gpus.get(gpu).is_some_and(|books| books.critical_mode)
    }

    /// A latency-critical tenant began a request, at this instant, or ended one.
    pub(super) fn critical_stirred(&mut self, id: TenantId, began: Option<Time>) {
        let Some(gpu) = self.tenants.get(id).map(|tenant| tenant.gpu) else { return };
        let until = self.now + self.settings.lc_linger;
        self.gpu_mut(gpu).critical_until = until;
        match began {
            Some(at) => self.request_came(gpu, id, at),
            None => self.request_served(gpu, id),
        }
    }

    /// On while somebody latency-critical has work, and for some time after: changing it costs.
    pub(super) fn set_critical_mode(&mut self, gpu: GpuId) {
        self.note_load(gpu);
        self.mind_pressed(gpu);
        self.expire_holds(gpu);
        let (now, linger) = (self.now, self.settings.lc_linger);
        let books = self.gpu_mut(gpu);
        // A hint counts as a request that is there once it is no further away than one that was is remembered.
        let stirred = now < books.critical_until || books.holds.iter().any(|hold| hold.from <= now + linger);
        books.critical_mode = books.critical_wanting > 0 || (stirred && !books.critical.is_empty());
    }

    /// Does somebody latency-critical serve requests? It makes room for its like only, also between two of them: each
    /// would wait for all of its memory otherwise.
    pub(super) fn has_requests(&self, tenant: &Tenant) -> bool {
        let lately = self.now < tenant.idle_since + self.settings.lc_linger;
        tenant.critical && !tenant.paused && (tenant.wants || lately)
    }

    /// Is best-effort work held back now?
    pub(super) fn holds_back(&self, gpu: GpuId) -> bool {
        let books = self.gpu_of(gpu);
        // Whoever is off already stays off if it would have to go again before it had come back.
        if self.is_pressed(gpu) {
            return true;
        }
        let ahead = if books.held_since.is_some() { self.costs.freeze + self.costs.thaw } else { Span::ZERO };
        books.holds.iter().any(|hold| hold.from <= self.now + ahead && !hold.is_released(self.now))
    }

    pub(super) fn hint(&mut self, id: TenantId, within: Span) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let gpu = tenant.gpu;
        let able = able(tenant);
        match self.plan_hold(gpu, id, within, able) {
            Ok(Some(hold)) => {
                self.gpu_mut(gpu).holds.push(hold);
                self.concerned.insert(gpu);
            }
            // The same request, hinted once more.
            Ok(None) => {}
            Err(why) => {
                if let Some(tenant) = self.tenants.get_mut(id) {
                    tenant.hints.missed();
                }
                self.actions.push(Action::HintMissed { tenant: id, why });
            }
        }
    }

    fn plan_hold(
        &mut self,
        gpu: GpuId,
        id: TenantId,
        within: Span,
        able: bool,
    ) -> Result<Option<Hold>, Missed> {
        if !able {
            return Err(Missed::Unable);
        }
        if self.settings.favour != Favour::Latency {
            return Err(Missed::Unfavoured);
        }
        // What is held back then is not made up for by slices: those are all that best-effort work has.
        if self.is_crowded(gpu) {
            return Err(Missed::Guarantee);
        }
        let (now, lead) = (self.now, self.settings.hint_lead);
        self.tell_held(gpu);
        let books = self.gpu_of(gpu);
        if books.holds.len() >= HOLDS_MAX {
            return Err(Missed::Distrusted);
        }
        // It may be off already for a request that is pressed for time.
        let pressed = books.pressed_until.since(now);
        if !books.guarantee.allows(now, pressed + within.min(lead) + lead, self.settings.be_guarantee) {
            return Err(Missed::Guarantee);
        }
        // By what freezes for hints took here, and not by what freezing costs in general: that counts from before anybody was
        // frozen, and what is frozen in whole, which takes longer.
        if self.someone_runs(gpu) && self.gpu_mut(gpu).lead.is_too_near(within, lead) {
            return Err(Missed::Late);
        }
        let books = self.gpu_of(gpu);
        let measured = books.lead.within(lead);
        let tenant = self.tenants.get_mut(id).ok_or(Missed::Unable)?;
        let plan = tenant.hints.plan(now, within, measured)?;
        let hold = |plan: Plan| Hold {
            tenant: id,
            from: plan.freeze_at,
            expect: plan.expect,
            until: plan.until,
            came: None,
            release: None,
            begun: false,
            honoured: false,
        };
        Ok(plan.map(hold))
    }

    /// When best-effort work was to go for a hint, and when its request is expected: of the first that holds it back now.
    pub fn aim(&self, gpu: GpuId) -> Option<(Time, Time)> {
        let holds = |hold: &&Hold| hold.from <= self.now && !hold.is_released(self.now);
        let began = self.gpu_of(gpu).holds.iter().filter(holds);
        began.map(|hold| (hold.from, hold.expect)).min()
    }

    /// Somebody was taken off for a moment, which took so long. If that was the last one who was in the way of a request, it
    /// is known how long that took in all; the request may be over by now.
    pub(super) fn learn_lead(&mut self, gpu: GpuId, took: Span) {
        if self.someone_runs(gpu) {
            return;
        }
        let (aim, now) = (self.aim(gpu), self.now);
        let in_all = aim.map_or(took, |(from, _)| now.since(from).max(took));
        self.gpu_mut(gpu).lead.learn(in_all, aim.map(|_| now));
    }

    /// Whoever hinted had its context loaded, by a launch at this instant.
    pub(super) fn learn_launch(&mut self, id: TenantId, at: Time) {
        if let Some(gpu) = self.tenants.get(id).filter(|tenant| tenant.critical).map(|tenant| tenant.gpu) {
            self.gpu_mut(gpu).lead.launched(at);
        }
    }

    /// Is there best-effort work that would have to go off first?
    pub(super) fn someone_runs(&self, gpu: GpuId) -> bool {
        let running = self.gpu_of(gpu).running.iter().filter_map(|&id| self.tenants.get(id));
        running.into_iter().any(|tenant| !tenant.critical && tenant.may_run())
    }

    /// Tells the guarantee for how long best-effort work has been held back: also while it still is, since holds that
    /// follow each other may never end.
    pub(super) fn tell_held(&mut self, gpu: GpuId) {
        let now = self.now;
        let books = self.gpu_mut(gpu);
        if let Some(since) = &mut books.held_since {
            books.guarantee.hold(*since, now);
            *since = now;
        }
    }

    /// For how long best-effort work may be held back for a request from now on.
    fn hold_max(&self, gpu: GpuId) -> Span {
        let allowed =
            |&span: &Span| self.gpu_of(gpu).guarantee.allows(self.now, span, self.settings.be_guarantee);
        let halves = std::iter::successors(Some(HOLD_MAX), |span| Some(Span(span.0 / 2)));
        halves.take_while(|&span| span > HOLD_MIN).find(allowed).unwrap_or(HOLD_MIN)
    }

    /// A request came, at this instant, which may have been a moment ago: hints are judged by when it came, and not by how
    /// soon that was heard.
    fn request_came(&mut self, gpu: GpuId, id: TenantId, at: Time) {
        let now = self.now;
        let ready = !self.someone_runs(gpu);
        self.tell_held(gpu);
        let until = now + self.hold_max(gpu);
        let release = self.release_of(gpu, id, at);
        let awaited = self.tenants.get(id).and_then(|tenant| tenant.hints.awaited(at));
        let hinted = |hold: &Hold| hold.tenant == id && hold.came.is_none() && Some(hold.expect) == awaited;
        let Some(index) = self.gpu_of(gpu).holds.iter().position(hinted) else {
            if let Some(tenant) = self.tenants.get_mut(id) {
                tenant.hints.came(at, ready);
            }
            return;
        };
        if !self.gpu_of(gpu).holds[index].begun && !self.begin_hold(gpu, index) {
            return;
        }
        let hold = &mut self.gpu_mut(gpu).holds[index];
        hold.came = Some(at);
        hold.release = release;
        hold.from = hold.from.min(now);
        hold.until = until;
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.hints.came(at, ready);
        }
        if !ready {
            self.actions.push(Action::HintMissed { tenant: id, why: Missed::Unfrozen });
        }
    }

    /// When best-effort work may come back although a hinted request is served that began at this instant.
    fn release_of(&self, gpu: GpuId, id: TenantId, began: Time) -> Option<Time> {
        let lasts = self.tenants.get(id).filter(|_| self.settings.thaw_ahead)?.lasts;
        self.gpu_of(gpu).thaws.release(began, lasts)
    }

    fn request_served(&mut self, gpu: GpuId, id: TenantId) {
        let now = self.now;
        let over = |hold: &Hold| hold.tenant == id && (hold.came.is_some() || hold.expect <= now);
        let (over, rest): (Vec<Hold>, _) = self.gpu_of(gpu).holds.iter().copied().partition(over);
        self.gpu_mut(gpu).holds = rest;
        let took = over.iter().filter_map(|hold| hold.came).map(|came| now.since(came)).max();
        if let (Some(took), Some(tenant)) = (took, self.tenants.get_mut(id)) {
            tenant.lasts.learn(took);
        }
        // A request that came while another one was served was seen by nobody: it is served too.
        let unseen = over.into_iter().filter(|hold| hold.came.is_none());
        for hold in unseen {
            if let Some(tenant) = self.tenants.get_mut(id) {
                tenant.hints.came_meanwhile(hold.expect);
            }
            self.report_unhonoured(&hold);
        }
        if self.gpu_of(gpu).critical_wanting == 0 {
            self.end_if_about_to(gpu);
        }
    }

    /// Nobody was off in time, and the request did not say so either.
    fn report_unhonoured(&mut self, hold: &Hold) {
        if !hold.honoured {
            self.actions.push(Action::HintMissed { tenant: hold.tenant, why: Missed::Unfrozen });
        }
    }

    /// Hints of those who cannot run any more, whatever comes.
    fn drop_vain_holds(&mut self, gpu: GpuId) {
        let vain = |hold: &Hold| !self.tenants.get(hold.tenant).is_some_and(able);
        let vain: Vec<Hold> = self.gpu_of(gpu).holds.iter().filter(|hold| vain(hold)).copied().collect();
        for hold in vain {
            self.gpu_mut(gpu).holds.retain(|other| *other != hold);
            let Some(tenant) = self.tenants.get_mut(hold.tenant).filter(|_| hold.came.is_none()) else {
                continue;
            };
            tenant.hints.withdrawn(hold.expect);
            self.actions.push(Action::HintMissed { tenant: hold.tenant, why: Missed::Unable });
        }
    }

    /// Hints whose time has come.
    fn begin_holds(&mut self, gpu: GpuId) {
        let now = self.now;
        let begins = |hold: &Hold| !hold.begun && hold.from <= now && hold.came.is_none();
        while let Some(at) = self.gpu_of(gpu).holds.iter().position(begins) {
            self.begin_hold(gpu, at);
        }
    }

    /// One hint's time has come, or its request. Many that are far ahead may each have been allowed alone: so the guarantee is
    /// asked again. False if there is no hold any more.
    fn begin_hold(&mut self, gpu: GpuId, at: usize) -> bool {
        self.tell_held(gpu);
        let (now, lead, guarantee) = (self.now, self.settings.hint_lead, self.settings.be_guarantee);
        let books = self.gpu_mut(gpu);
        let hold = &mut books.holds[at];
        hold.begun |= books.guarantee.allows(now, hold.expect.since(now).min(lead) + lead, guarantee);
        if hold.begun {
            return true;
        }
        let Hold { tenant, expect, .. } = books.holds.remove(at);
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.hints.withdrawn(expect);
        }
        self.actions.push(Action::HintMissed { tenant, why: Missed::Guarantee });
        false
    }

    /// Hints that nothing followed.
    fn expire_holds(&mut self, gpu: GpuId) {
        let now = self.now;
        self.drop_vain_holds(gpu);
        self.begin_holds(gpu);
        if self.gpu_of(gpu).holds.iter().any(|hold| hold.until <= now) {
            let (over, rest) = self.gpu_of(gpu).holds.iter().copied().partition(|hold| hold.until <= now);
            let over: Vec<Hold> = over;
            self.gpu_mut(gpu).holds = rest;
            for hold in over {
                let Some(tenant) = self.tenants.get_mut(hold.tenant).filter(|_| hold.came.is_none()) else {
                    continue;
                };
                if tenant.wants {
                    tenant.hints.came_meanwhile(hold.expect);
                } else {
                    let held_for = now.since(hold.from);
                    tenant.hints.expired(now, hold.expect);
                    // Whoever lets others stand still pays for it as if it had run.
                    self.charge_to(hold.tenant, held_for);
                }
                self.report_unhonoured(&hold);
            }
        }
        let (held, thaw) = (self.holds_back(gpu), self.costs.thaw);
        let books = self.gpu_mut(gpu);
        match (books.held_since, held) {
            (None, true) => {
                books.held_since = Some(now);
                self.end_if_about_to(gpu);
            }
            (Some(since), false) => {
                // It is off until it is thawed.
                books.guarantee.hold(since, now + thaw);
                books.held_since = None;
                books.warmed = false;
            }
            _ => {}
        }
    }

    /// Best-effort work is off: whoever hinted gets its context loaded.
    pub(super) fn warm_up(&mut self, gpu: GpuId) {
        if !self.holds_back(gpu) || self.someone_runs(gpu) {
            return;
        }
        let now = self.now;
        for hold in &mut self.gpu_mut(gpu).holds {
            hold.honoured |= hold.from <= now;
        }
        if let Some(tenant) = self.not_warmed(gpu) {
            self.gpu_mut(gpu).warmed = true;
            self.actions.push(Action::WarmUp { tenant });
        }
    }

    /// Whose context is to be loaded, and is not yet.
    fn not_warmed(&self, gpu: GpuId) -> Option<TenantId> {
        let books = self.gpu_of(gpu);
        // Whoever is off for another cannot load it now, and is no reason that nobody does.
        let is_on = |tenant: &Tenant| able(tenant) && tenant.grip == Grip::Thawed;
        let could = |hold: &&Hold| hold.came.is_none() && self.tenants.get(hold.tenant).is_some_and(is_on);
        let next = books.holds.iter().filter(could).min_by_key(|hold| hold.expect)?;
        (!books.warmed && next.from <= self.now).then_some(next.tenant)
    }

    /// Whose context is to be loaded once a tenant is off that is being frozen: an [`Action::WarmUp`] follows then.
    pub fn warmed_after(&self, gpu: GpuId, frozen: TenantId) -> Option<TenantId> {
        let running = self.gpu_of(gpu).running.iter().filter(|&&id| id != frozen);
        let mut others = running.filter_map(|&id| self.tenants.get(id));
        let another_runs = others.any(|tenant| !tenant.critical && tenant.may_run());
        self.not_warmed(gpu).filter(|_| self.holds_back(gpu) && !another_runs)
    }

    /// Is best-effort work off for a request that is there, or about to be?
    pub fn holds_for_hint(&self, gpu: GpuId) -> bool {
        self.gpu_of(gpu).holds.iter().any(|hold| hold.from <= self.now)
    }

    /// Where and when best-effort work has to go next for a hint, after the last event.
    pub fn next_departure(&self) -> Option<(GpuId, Time)> {
        let busy = self.gpus.iter().filter(|(gpu, _)| self.someone_runs(*gpu));
        let begins = busy.flat_map(|(gpu, books)| books.holds.iter().map(move |hold| (gpu, hold.from)));
        begins.filter(|&(_, from)| from > self.now).min_by_key(|&(_, from)| from)
    }

    pub(super) fn drop_hold_of(&mut self, id: TenantId) {
        let Some(gpu) = self.tenants.get(id).map(|tenant| tenant.gpu) else { return };
        self.gpu_mut(gpu).holds.retain(|hold| hold.tenant != id);
    }

    /// When a hold begins or ends next, or counts as a request that is there.
    pub(super) fn next_hold(&self, gpu: GpuId) -> Option<Time> {
        let holds = self.gpu_of(gpu).holds.iter();
        let counts = |hold: &Hold| hold.from.before(self.settings.lc_linger);
        holds
            .flat_map(|hold| [Some(counts(hold)), Some(hold.from), hold.release, Some(hold.until)])
            .flatten()
            .filter(|&at| at > self.now)
            .min()
    }
}

/// Could a tenant use the GPU at once, so that a hint of it means anything? Also one that is off for a moment, for another.
fn able(tenant: &Tenant) -> bool {
    tenant.critical && tenant.is_whole() && !tenant.paused && tenant.context
}
