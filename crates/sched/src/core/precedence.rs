//! Who goes before whom on a GPU with somebody latency-critical: which slice each has, and who is frozen for a request of
//! another.
//!
//! - **Best-effort work** has the shortest slice, so that a request waits for a switch only. It has a longer one where it would
//!   get less than its guarantee, where what it gets done is favoured, and where somebody may run whose slice nobody sets:
//!   then it would only be switched to, and never get anywhere.
//! - **Latency-critical ones among each other**: the tighter SLO goes first. One that has more time for its requests has a short
//!   slice beside one that has less; and if its requests are long, it is off the GPU while a request of the other is served. Not
//!   for longer than twice that one's SLO: one that is late, or never idle, has no precedence any more.

use super::Core;
use crate::guarantee::HALF;
use crate::tenant::Tenant;
use crate::{Favour, GpuId, Ratio, Slice, Span, TenantId, Time};

/// One service is frozen for another only if its requests usually take so many times a freeze and a thaw.
const LONG_TIMES: u64 = 2;

/// And if the other's SLO is so many times that: otherwise its request is over before it pays.
pub(super) const SLACK_TIMES: u64 = 4;

/// It goes first for so many times its SLO: requests that come while it has one are not seen, and have their time too.
const PRECEDENCE_TIMES: u64 = 2;

/// Slices of a service and of best-effort work beside it, and what of the time the latter has then, both being busy. By
/// lengths of 10, 2.05 and 1.2 and 20 ms, and two switches of 0.23 ms.
const PAIRS: [(Slice, Slice, Ratio); 4] = [
    (Slice::Critical, Slice::Guaranteed, Ratio::from_percent(10)),
    (Slice::Own, Slice::Guaranteed, Ratio::from_percent(32)),
    (Slice::Own, Slice::Own, Ratio::from_percent(44)),
    (Slice::Own, Slice::Long, Ratio::ONE),
];

/// Best-effort work has the longer slices until requests are there for less than this part of what made them necessary: they
/// make requests take longer.
const STAYS_CROWDED: Ratio = Ratio::from_percent(80);

impl Core {
    /// The slice of somebody latency-critical. One with a tighter SLO does not wait for a long slice of one that has more
    /// time, or no SLO at all.
    pub(super) fn slice_of_critical(&self, gpu: GpuId, id: TenantId) -> Slice {
        let Some(tenant) = self.tenants.get(id) else { return Slice::Critical };
        let is_late = |other: &Tenant| self.precedence_until(other).is_some_and(|until| until <= self.now);
        let waits = |other: &Tenant| {
            slo(other) < slo(tenant) && (!self.is_frozen_for(tenant, other) || is_late(other))
        };
        match () {
            () if self.serving(gpu).any(|(_, other)| waits(other)) => Slice::Guaranteed,
            () if self.is_crowded(gpu) => self.slices_by_guarantee().0,
            () => Slice::Critical,
        }
    }

    /// The slice of the best-effort tenant that runs beside them.
    pub(super) fn slice_beside_critical(&self, gpu: GpuId) -> Slice {
        if self.is_crowded(gpu) {
            return self.slices_by_guarantee().1;
        }
        let is_longer = self.settings.favour == Favour::Throughput || self.gpu_of(gpu).has_strangers();
        if is_longer { Slice::Guaranteed } else { Slice::Shortest }
    }

    fn slices_by_guarantee(&self) -> (Slice, Slice) {
        let guarantee = self.settings.be_guarantee;
        let enough = PAIRS.iter().find(|(_, _, share)| *share >= guarantee);
        enough.map_or((Slice::Own, Slice::Long), |&(critical, other, _)| (critical, other))
    }

    /// Do the latency-critical leave best-effort work less than its share?
    pub(super) fn is_crowded(&self, gpu: GpuId) -> bool {
        self.gpu_of(gpu).crowded
    }

    /// Notes for how long the latency-critical have requests. Two things have to say that they leave too little: how busy they
    /// are, which is all that counts while each waits for itself only, and how much of the time any of them has requests,
    /// because while they wait for each other each of them looks busy. And it has to last: a burst takes all of the time for a
    /// second or two also of services that leave enough, and longer slices of others would make them late.
    pub(super) fn note_load(&mut self, gpu: GpuId) {
        let now = self.now;
        let most = self.settings.be_guarantee.rest();
        let enough = Ratio(STAYS_CROWDED.of(Span(u64::from(most.0))).0 as u32);
        let busy: u32 = self.serving(gpu).filter(|(_, t)| t.measured).map(|(_, t)| t.busy.0).sum();
        let books = self.gpu_mut(gpu);
        if let Some(since) = books.load_since.take() {
            books.load.hold(since, now);
        }
        let limit = if books.crowded { enough } else { most };
        let is_busy = Ratio(busy) > limit;
        if is_busy && books.critical_wanting > 0 {
            books.load_since = Some(now);
        }
        let mean = books.load.mean(now);
        books.crowded = is_busy && mean > limit.of(HALF);
    }

    /// Is somebody latency-critical off the GPU for now, because one with a tighter SLO has a request?
    pub(super) fn makes_way_for_tighter(&self, gpu: GpuId, tenant: &Tenant) -> bool {
        let goes_first = |other: &Tenant| {
            self.is_frozen_for(tenant, other)
                && self.precedence_until(other).is_some_and(|until| self.now < until)
        };
        tenant.wants && self.serving(gpu).any(|(_, other)| goes_first(other))
    }

    /// Is it worth freezing one service for the requests of another?
    fn is_frozen_for(&self, tenant: &Tenant, other: &Tenant) -> bool {
        let grip = self.costs.freeze + self.costs.thaw;
        let is_long = tenant.habits.usual_work().is_some_and(|work| work >= grip.times(LONG_TIMES));
        let is_tighter = slo(other) < slo(tenant) && slo(other) >= grip.times(SLACK_TIMES);
        is_long && is_tighter && self.gang_of(tenant).is_none()
    }

    /// Until when a request that is there goes before those of others that have more time.
    pub(super) fn precedence_until(&self, tenant: &Tenant) -> Option<Time> {
        let is_served = tenant.wants && tenant.is_whole();
        tenant.slo.filter(|_| is_served).map(|slo| tenant.queued_at + slo.times(PRECEDENCE_TIMES))
    }

    /// When somebody's precedence ends next.
    pub(super) fn next_precedence(&self, gpu: GpuId) -> Option<Time> {
        let ends = self.serving(gpu).filter_map(|(_, tenant)| self.precedence_until(tenant));
        ends.filter(|&until| until > self.now).min()
    }

    /// The latency-critical who are there and not paused.
    pub(super) fn serving(&self, gpu: GpuId) -> impl Iterator<Item = (TenantId, &Tenant)> {
        let critical = self.gpu_of(gpu).critical.iter();
        let known = critical.filter_map(|&id| Some((id, self.tenants.get(id)?)));
        known.filter(|(_, tenant)| tenant.context && !tenant.paused)
    }
}

fn slo(tenant: &Tenant) -> Span {
    tenant.slo.unwrap_or(Span::MAX)
}
