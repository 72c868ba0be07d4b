//! Which tenants have work, and how much of their time.
//!
//! Tenants say it in their pages (`wire::Page`), which are looked at here: those of tenants who want turns, every
//! [`IDLE_AFTER`] while somebody else waits, rarely otherwise. Whoever had no work for so long is idle, to the core, until
//! it says that it has some: it is watched from before the look that found it so, so that this cannot be missed. A tenant
//! whose page says nothing has work all the time.
//!
//! How busy a tenant is, is measured over stretches of time in which it was thawed from beginning to end; what it could not
//! do while it was frozen says nothing.

use super::Daemon;
use super::arrivals::Arriving;
use sched::{Event, GpuId, Ratio, Span, TenantId, Time};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use wire::{Class, Page, monotonic_ns};

/// How long a tenant may be without work before it is idle: a program that waits for its results and goes on at once is
/// not.
const IDLE_AFTER: Span = Span(2_000_000);

/// The same where two run side by side, and fill each other's pauses: nobody waits for what the other does not use, and a
/// program whose pauses are short oversleeps now and then.
const IDLE_AFTER_BESIDE: Span = Span(20_000_000);

/// No program is heard of later than this after it had work, on a machine that is not far too busy: what is said to be older
/// counts as so old.
const HEARD_WITHIN: Span = Span::from_millis(10);

/// How long a request may be without work before it counts for none: whoever began it may never end it.
const PAUSE_IN_REQUEST_MAX: Span = Span(5_000_000_000);

/// How often to look at a tenant that gives way as soon as it has no work.
const GIVES_WAY_LOOK: Span = Span(1_000_000);

/// How often to look while nobody waits.
const LOOK_EVERY: Span = Span(100_000_000);

/// Stretches shorter than this say nothing.
const STRETCH_MIN_NS: u64 = 1_000_000;

/// So much time counts, at least once and at most twice.
const WINDOW_NS: u64 = 500_000_000;

/// Before so much of it was seen, nothing is said.
const SEEN_MIN_NS: u64 = 50_000_000;

/// What the core believes may be so far from what is measured, in millionths.
const TELL_BEYOND: u32 = 50_000;

const WHOLE: f64 = 1_000_000.0;

/// What is known of one tenant's work.
#[derive(Debug, Default)]
pub(super) struct Idleness {
    /// It has work, as the core was told last.
    wants: bool,
    /// Where the stretch that is measured began.
    mark: Option<Mark>,
    window: Window,
    /// When it was last found to have no work, on the monotonic clock.
    rested_ns: u64,
    /// How busy the core believes it to be.
    believed: Option<Ratio>,
}

/// A page at an instant.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at_ns: u64,
    idle_ns: u64,
    freezes: u64,
}

impl Mark {
    fn of(page: &Page, at_ns: u64) -> Self {
        let freezes = page.freeze_generation();
        Self { at_ns, idle_ns: page.idle_total_ns(at_ns), freezes }
    }

    /// How long a tenant was thawed since `before`, and which share of it it had work; None if that cannot be said.
    fn since(&self, before: &Mark) -> Option<(u64, f64)> {
        let span = self.at_ns.saturating_sub(before.at_ns);
        let thawed = self.freezes == before.freezes && self.freezes.is_multiple_of(2);
        if !thawed || span < STRETCH_MIN_NS {
            return None;
        }
        let idle = self.idle_ns.saturating_sub(before.idle_ns).min(span);
        Some((span, 1.0 - idle as f64 / span as f64))
    }
}

/// How busy a tenant that had work for a share of a stretch would have been alone, beside others that had work for `beside`
/// of it: its work took longer by what the others took.
fn alone(share: f64, beside: f64) -> f64 {
    let slower = 1.0 + beside;
    share / (share + (1.0 - share) * slower)
}

/// Busy time of the last stretches.
#[derive(Debug, Default)]
struct Window {
    now: Seen,
    before: Seen,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    span_ns: u64,
    busy_ns: f64,
}

impl Window {
    fn add(&mut self, span_ns: u64, busy: f64) {
        self.now.span_ns += span_ns;
        self.now.busy_ns += span_ns as f64 * busy;
        if self.now.span_ns >= WINDOW_NS {
            self.before = std::mem::take(&mut self.now);
        }
    }

    fn busy(&self) -> Option<Ratio> {
        let span = self.now.span_ns + self.before.span_ns;
        let busy = (self.now.busy_ns + self.before.busy_ns) / span as f64;
        (span >= SEEN_MIN_NS).then_some(Ratio((busy * WHOLE) as u32))
    }
}

impl Idleness {
    /// Has it work, as the core was told last?
    pub(super) fn wants(&self) -> bool {
        self.wants
    }

    /// It has no work, which was seen after this instant of the monotonic clock.
    pub(super) fn rested(&mut self, at_ns: u64) {
        self.rested_ns = self.rested_ns.max(at_ns);
    }

    /// Is word of work since this instant out of date? It was found to have none after that.
    fn is_over(&self, since_ns: u64) -> bool {
        !self.wants && since_ns <= self.rested_ns
    }

    /// What the core is to be told, if it believes something else.
    fn news(&mut self) -> Option<Ratio> {
        let busy = self.window.busy()?;
        // The first time also if it is what is believed of everybody: what nobody measured does not count.
        if self.believed.is_some_and(|believed| believed.0.abs_diff(busy.0) <= TELL_BEYOND) {
            return None;
        }
        // As the core does: half of what it was and half of what it is, but for the first time.
        self.believed = Some(self.believed.map_or(busy, |believed| Ratio(believed.0.midpoint(busy.0))));
        Some(busy)
    }
}

/// How long after it had work a tenant is heard of, by its own word: neither before, nor longer than is believed.
fn heard_after(now_ns: u64, since_ns: u64) -> Span {
    Span(now_ns.saturating_sub(since_ns)).min(HEARD_WITHIN)
}

/// Where more than one wants turns, or any of the others is.
fn sought(wanting: impl Iterator<Item = GpuId>, others: impl Iterator<Item = GpuId>) -> BTreeSet<GpuId> {
    let mut wanted = BTreeSet::new();
    let mut sought: BTreeSet<GpuId> = others.collect();
    for gpu in wanting {
        if !wanted.insert(gpu) {
            sought.insert(gpu);
        }
    }
    sought
}

/// Where several run, all of them best-effort: whoever is latency-critical has its work told from its pauses at once.
fn side_by_side(running: impl Iterator<Item = (GpuId, Class)>) -> BTreeSet<GpuId> {
    let running: Vec<_> = running.collect();
    let several = sought(running.iter().map(|&(gpu, _)| gpu), std::iter::empty());
    let critical = |gpu: &GpuId| running.contains(&(*gpu, Class::LatencyCritical));
    several.into_iter().filter(|gpu| !critical(gpu)).collect()
}

impl Daemon {
    /// A tenant has channels from now on: has it work for them?
    pub(super) fn find_demand(&mut self, tenant: TenantId) {
        let Some(known) = self.known.get(&tenant) else { return };
        if !known.link.grip.page().is_idle_when_watched() {
            self.has_work(tenant, self.now());
        }
    }

    /// A tenant was taken off the GPU. One that had no work may have some by now of which it tells only once the driver has it,
    /// which may be when it is back.
    pub(super) fn find_untold_work(&mut self, tenant: TenantId) {
        if self.known.get(&tenant).is_some_and(|known| known.context && !known.idleness.wants()) {
            self.find_demand(tenant);
        }
    }

    /// A tenant has no channels any more.
    pub(super) fn without_demand(&mut self, tenant: TenantId) {
        let Some(known) = self.known.get_mut(&tenant) else { return };
        known.link.grip.page().stop_watching();
        known.idleness.mark = None;
        if std::mem::take(&mut known.idleness.wants) {
            self.demand_changed(tenant);
            self.step(Event::Idle(tenant));
        }
    }

    /// A tenant that was watched says that it has work, since this instant of the monotonic clock. Without channels, that is
    /// found out when it has some.
    pub(super) fn wants(&mut self, tenant: TenantId, since_ns: u64) {
        let Some(known) = self.known.get(&tenant).filter(|known| known.context) else { return };
        if known.idleness.is_over(since_ns) && known.link.grip.page().is_idle_when_watched() {
            // It was seen to begin, and to end, before this was heard.
            return;
        }
        self.has_work(tenant, self.now().before(heard_after(monotonic_ns(), since_ns)));
    }

    fn has_work(&mut self, tenant: TenantId, since: Time) {
        let Some(known) = self.known.get_mut(&tenant) else { return };
        if std::mem::replace(&mut known.idleness.wants, true) {
            return;
        }
        known.idleness.mark = None;
        let warmed = known.link.grip.page().warmed_ns();
        self.demand_changed(tenant);
        let mut fields = json!({ "since_ns": since.0 });
        if let Some(at_ns) = warmed {
            fields["warmed_ns"] = self.time_of(at_ns).0.into();
        }
        self.note("wants", tenant, fields);
        self.step(Event::Wants { tenant, ago: self.now().since(since) });
        self.foretell(tenant, since);
        self.mind_request(tenant, Some(since));
        // Whoever has the turn may have been without work for long.
        self.look_at = Some(self.now());
    }

    /// Looks who has no work, and how busy the others are.
    pub(super) fn look(&mut self) {
        let (now, now_ns) = (self.now(), monotonic_ns());
        let (sought, side_by_side) = (self.sought(), self.side_by_side());
        let mut next = None::<Time>;
        let mut idle = Vec::new();
        for (&tenant, known) in self.known.iter().filter(|(_, known)| known.idleness.wants) {
            let someone_waits = sought.contains(&known.gpu);
            let after = if side_by_side.contains(&known.gpu) { IDLE_AFTER_BESIDE } else { IDLE_AFTER };
            let page = known.link.grip.page();
            let spent = page.idle_since_ns().map(|since| Span(now_ns.saturating_sub(since)));
            // In a request, what has no work just now is about to have some.
            let in_request = page.requests_open() > 0 && page.critical();
            let spent = spent.filter(|spent| !in_request || *spent >= PAUSE_IN_REQUEST_MAX);
            let (after, look) = match page.gives_way() {
                true => (Span::ZERO, GIVES_WAY_LOOK),
                false => (after, after),
            };
            let due = match spent {
                Some(spent) if someone_waits && spent >= after => {
                    if page.is_idle_when_watched() {
                        idle.push((tenant, spent));
                        continue;
                    }
                    now + look
                }
                _ if !someone_waits => now + LOOK_EVERY,
                Some(spent) => now + Span(after.0 - spent.0),
                None => now + look,
            };
            next = Some(next.map_or(due, |next| next.min(due)));
        }
        self.look_at = next;
        self.measure();
        for (tenant, spent) in idle {
            self.goes_idle(tenant, spent, now_ns);
        }
        self.prepare_warm_ups();
    }

    /// A tenant has had no work for so long, and is watched since this instant of the monotonic clock, or later: what it says of work
    /// since then is new.
    pub(super) fn goes_idle(&mut self, tenant: TenantId, spent: Span, watched_ns: u64) {
        if let Some(known) = self.known.get_mut(&tenant) {
            known.idleness.wants = false;
            known.idleness.rested(watched_ns);
            known.idleness.mark = None;
            known.link.grip.page().await_end(false);
        }
        self.demand_changed(tenant);
        self.note("idle", tenant, json!({ "for_ns": spent.0 }));
        self.step(Event::Idle(tenant));
        self.mind_request(tenant, None);
        self.tell_of_launch(tenant);
    }

    /// The GPUs that somebody waits for: a second one that wants turns, one at the door, or one that asks for memory only.
    fn sought(&self) -> BTreeSet<GpuId> {
        let wanting = self.known.values().filter(|known| known.idleness.wants).map(|known| known.gpu);
        let asking = self.known.values().filter(|known| !known.idleness.wants && known.demands.asks());
        let others = asking.map(|known| known.gpu).chain(self.arriving.values().map(Arriving::gpu));
        sought(wanting, others)
    }

    /// The GPUs on which tenants fill each other's pauses.
    fn side_by_side(&self) -> BTreeSet<GpuId> {
        let wanting = self.known.iter().filter(|(_, known)| known.idleness.wants);
        let on_the_gpu = wanting.filter(|&(&tenant, _)| !self.deep.is_away(tenant));
        let thawed = on_the_gpu.filter(|(_, known)| !known.link.grip.page().frozen());
        let job = |tenant: TenantId| self.jobs.of(tenant).and_then(|job| self.jobs.get(job));
        let class = |tenant| job(tenant).map_or(Class::BestEffort, |job| job.terms.class);
        side_by_side(thawed.map(|(&tenant, known)| (known.gpu, class(tenant))))
    }

    /// Measures how busy tenants were since the last time, and tells the core what it does not know.
    pub(super) fn measure(&mut self) {
        let now_ns = monotonic_ns();
        let mut stretches = Vec::new();
        let mut together = BTreeMap::<GpuId, f64>::new();
        for (&tenant, known) in self.known.iter_mut().filter(|(_, known)| known.idleness.wants) {
            // Thawed for the driver's sake, and without any work of its own.
            if self.deep.is_away(tenant) {
                known.idleness.mark = None;
                continue;
            }
            let mark = Mark::of(known.link.grip.page(), now_ns);
            let Some(before) = known.idleness.mark else {
                known.idleness.mark = Some(mark);
                continue;
            };
            let seen = mark.since(&before);
            if seen.is_some() || mark.freezes != before.freezes {
                known.idleness.mark = Some(mark);
            }
            if let Some((span, share)) = seen {
                *together.entry(known.gpu).or_default() += share;
                stretches.push((tenant, span, share));
            }
        }
        for (tenant, span, share) in stretches {
            let Some(known) = self.known.get_mut(&tenant) else { continue };
            let beside = together.get(&known.gpu).map_or(0.0, |together| together - share);
            known.idleness.window.add(span, alone(share, beside));
            if let Some(busy) = known.idleness.news() {
                self.note("measured", tenant, json!({ "busy": f64::from(busy.0) / WHOLE }));
                self.step(Event::Measured { tenant, busy });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn mark(at_ms: u64, idle_ms: u64, freezes: u64) -> Mark {
        Mark { at_ns: at_ms * MS, idle_ns: idle_ms * MS, freezes }
    }

    #[test]
    fn only_time_in_which_it_was_thawed_says_how_busy_a_tenant_is() {
        assert_eq!(mark(20, 5, 2).since(&mark(10, 0, 2)), Some((10 * MS, 0.5)));
        assert_eq!(mark(20, 5, 4).since(&mark(10, 0, 2)), None, "frozen and thawed in between");
        assert_eq!(mark(20, 5, 3).since(&mark(10, 0, 3)), None, "frozen all the time");
        assert_eq!(mark(10, 0, 2).since(&mark(10, 0, 2)), None, "no time at all");
    }

    #[test]
    fn nobody_has_work_before_it_says_so_by_more_than_is_believed() {
        assert_eq!(heard_after(100 * MS, 99 * MS), Span(MS));
        assert_eq!(heard_after(100 * MS, 100 * MS + 1), Span::ZERO, "nor later");
        assert_eq!(heard_after(100 * MS, u64::MAX), Span::ZERO);
        assert_eq!(heard_after(100 * MS, 0), HEARD_WITHIN);
    }

    #[test]
    fn who_waits_for_one_gpu_does_not_wait_for_another() {
        let found = |wanting: &[u16], others: &[u16]| {
            let [wanting, others] = [wanting, others].map(|gpus| gpus.iter().copied().map(GpuId));
            sought(wanting, others).into_iter().map(|gpu| gpu.0).collect::<Vec<_>>()
        };
        assert!(found(&[0, 1], &[]).is_empty(), "each has a GPU of its own");
        assert_eq!(found(&[0, 1, 1], &[]), [1]);
        assert_eq!(found(&[0], &[2]), [2]);
    }

    #[test]
    fn only_best_effort_tenants_fill_each_others_pauses() {
        use Class::{BestEffort, LatencyCritical};
        let found = |running: &[(u16, Class)]| {
            let running = running.iter().map(|&(gpu, class)| (GpuId(gpu), class));
            side_by_side(running).into_iter().map(|gpu| gpu.0).collect::<Vec<_>>()
        };
        assert!(found(&[(0, BestEffort), (1, BestEffort)]).is_empty(), "each is alone");
        assert_eq!(found(&[(0, BestEffort), (1, BestEffort), (1, BestEffort)]), [1]);
        let beside_critical = [(0, BestEffort), (0, LatencyCritical), (1, BestEffort), (1, BestEffort)];
        assert_eq!(found(&beside_critical), [1]);
    }

    #[test]
    fn work_beside_others_counts_as_if_it_were_alone() {
        assert_eq!(alone(0.5, 0.0), 0.5);
        assert_eq!(alone(1.0, 1.0), 1.0, "it never paused");
        assert_eq!(alone(0.0, 1.0), 0.0);
        // 6 of work and 4 of pause, at half the speed: 12 and 4.
        assert!((alone(0.75, 1.0) - 0.6).abs() < 1e-9);
    }

    #[test]
    fn the_core_is_told_until_it_believes_it() {
        let mut idleness = Idleness::default();
        idleness.window.add(40 * MS, 0.5);
        assert_eq!(idleness.news(), None, "too little was seen");
        idleness.window.add(10 * MS, 0.5);
        assert_eq!(idleness.news(), Some(Ratio(500_000)));
        assert_eq!(idleness.news(), None);
        // Twice the window: nothing of what was before counts.
        for _ in 0..100 {
            idleness.window.add(10 * MS, 1.0);
        }
        let told = std::iter::from_fn(|| idleness.news()).count();
        assert!((2..10).contains(&told), "{told}");
        assert!(idleness.believed.unwrap().0 > 940_000);
    }

    #[test]
    fn the_core_is_told_once_also_of_one_that_is_as_busy_as_it_believes() {
        let mut idleness = Idleness::default();
        idleness.window.add(50 * MS, 0.99);
        assert_eq!(idleness.news(), Some(Ratio(990_000)));
        assert_eq!(idleness.news(), None);
    }

    #[test]
    fn a_change_shows_within_two_windows_and_a_single_odd_stretch_hardly() {
        let mut window = Window::default();
        for _ in 0..30 {
            window.add(20 * MS, 0.6);
        }
        window.add(20 * MS, 1.0);
        assert!(window.busy().unwrap() < Ratio(650_000));
        for _ in 0..50 {
            window.add(20 * MS, 1.0);
        }
        assert!(window.busy().unwrap() > Ratio(990_000));
    }
}
