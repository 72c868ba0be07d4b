//! What latency-critical tenants say of their requests, and what follows; phases in which a tenant gives way.
//!
//! A hint becomes an event for the core, whoever gives it: the program, the shim, or the rhythm of past requests
//! ([`sched::Rhythm`]), which is listened to only where the program gives none itself. What hints are worth is learnt by the
//! core. How many requests a tenant serves, and in how many phases it is, its page says: a message that is lost, or that
//! comes before another, changes nothing for long.

use super::Daemon;
use super::attention::FOLLOWS_WITHIN;
use super::limits::Refusal;
use sched::{Described, Event, JobId, Missed, RequestId, Rhythm, Span, TenantId, Time};
use serde_json::json;
use wire::{Change, Class, FromDaemon, GrantId, HintSource, Hints, Page, monotonic_ns};

/// So many requests without a hint of the program's own, and its rhythm is listened to.
const UNHINTED_MIN: u32 = 16;

/// How often a tenant is told to load its warm-up kernel ahead of all requests. It does not if one has begun when it hears that.
const PREPARED_MAX: u32 = 8;

/// What is known of one tenant's hints, beside what the core knows.
#[derive(Debug, Default)]
pub(super) struct Hinting {
    sdk: u64,
    shim: u64,
    forecast: u64,
    rhythm: Rhythm,
    /// Requests since the program gave a hint itself.
    unhinted: u32,
    /// When the request came that is served, if one is.
    begun: Option<Time>,
    /// How long the last one took.
    took: Option<Span>,
    /// When it was noticed to be over.
    ended: Option<Time>,
    /// The last requests, the latest in the lowest bit; set if it followed the one before at once.
    followed: u16,
    /// How often it was told to load its warm-up kernel, ahead of all requests.
    prepared: u32,
    /// The last launch of that kernel which the core heard of, on the monotonic clock.
    launch_told_ns: u64,
}

impl Hinting {
    /// A request came, at this instant. Says when to expect the next one, if that can be foretold and somebody is to be told.
    fn came(&mut self, at: Time, may_be_forecast: bool) -> Option<Time> {
        self.unhinted = self.unhinted.saturating_add(1);
        let due = self.rhythm.came(at);
        let due = due.filter(|_| may_be_forecast && self.unhinted >= UNHINTED_MIN)?;
        self.forecast += 1;
        Some(due)
    }

    /// A request came, at this instant.
    pub(super) fn request_came(&mut self, at: Time) {
        self.begun = Some(at);
        let follows = self.ended.is_some_and(|ended| at <= ended + FOLLOWS_WITHIN);
        self.followed = self.followed << 1 | u16::from(follows);
    }

    /// It is over, which was noticed at this instant.
    pub(super) fn request_is_noticed_over(&mut self, at: Time) {
        if let Some(begun) = self.begun.take() {
            self.took = Some(at.since(begun));
            self.ended = Some(at);
        }
    }

    /// How long the last one took.
    pub(super) fn took(&self) -> Option<Span> {
        self.took
    }

    /// Whether another one may follow at once when one is over: some of the last ones did.
    pub(super) fn follows_at_once(&self) -> bool {
        self.followed != 0
    }

    /// Whether to have it load its warm-up kernel now, ahead of all requests: a latency-critical one that has none, and neither has
    /// work nor is about to.
    fn prepares(&mut self, page: &Page, wants: bool) -> bool {
        let (launched, failed) = page.warm_ups();
        // Once more only where it could not.
        let told = self.prepared;
        let is_new = page.critical() && launched == 0 && told < PREPARED_MAX && u64::from(told) <= failed;
        let is_idle = !wants && page.requests_open() == 0 && page.idle_since_ns().is_some();
        let prepares = is_new && is_idle && page.resident() && !page.frozen();
        self.prepared += u32::from(prepares);
        prepares
    }

    /// When its last warm-up kernel was launched, by the page, if nobody has told the core of it.
    fn untold_launch(&mut self, page: &Page) -> Option<u64> {
        let at_ns = page.warmed_ns().filter(|&at_ns| at_ns > self.launch_told_ns)?;
        self.launch_told_ns = at_ns;
        Some(at_ns)
    }

    /// The program, or its shim, gave a hint. False if it is of no use.
    fn heard(&mut self, source: HintSource, may_be_forecast: bool) -> bool {
        match source {
            HintSource::Sdk => {
                self.sdk += 1;
                self.unhinted = 0;
                true
            }
            HintSource::Shim => {
                self.shim += 1;
                // Whoever came in its rhythm has been waited for already.
                self.rhythm.gap().is_none() || !may_be_forecast
            }
        }
    }
}

impl Daemon {
    /// Writes into the pages of a job's tenants whether it is latency-critical, and how soon its requests are to be served.
    pub(super) fn tell_of_class(&self, job: JobId) {
        let Some(job) = self.jobs.get(job) else { return };
        let critical = job.terms.class == Class::LatencyCritical;
        for known in job.members.iter().filter_map(|tenant| self.known.get(tenant)) {
            known.link.grip.page().set_class(critical, job.terms.slo_ns);
        }
    }

    /// A tenant, or its shim, says that kernels follow at an instant of the monotonic clock.
    pub(super) fn hint(&mut self, tenant: TenantId, at_ns: u64, source: HintSource) {
        let Some(known) = self.known.get_mut(&tenant) else { return };
        let (now_ns, page) = (monotonic_ns(), known.link.grip.page());
        let (may_be_forecast, has_work) = (page.may_be_forecast(), page.idle_since_ns().is_none());
        if !known.hinting.heard(source, may_be_forecast) {
            return;
        }
        // The shim saw the request's own first work: it is there, or over already, and only its kernels are to come. Word of it
        // that is heard later is not to be taken for those.
        match source {
            HintSource::Shim if has_work => self.wants(tenant, now_ns),
            HintSource::Shim => known.idleness.rested(now_ns),
            HintSource::Sdk => {}
        }
        let within = Span(at_ns.saturating_sub(monotonic_ns()));
        self.step(Event::Hint { tenant, within });
    }

    /// A request of a latency-critical tenant came, at this instant: the next one may be foretold.
    pub(super) fn foretell(&mut self, tenant: TenantId, at: Time) {
        if !self.is_critical(tenant) {
            return;
        }
        let Some(known) = self.known.get_mut(&tenant) else { return };
        let may_be_forecast = known.link.grip.page().may_be_forecast();
        if let Some(due) = known.hinting.came(at, may_be_forecast) {
            self.step(Event::Hint { tenant, within: due.since(self.now()) });
        }
    }

    /// A tenant says that a request was served. One that is latency-critical, serves no other and has no work is idle at
    /// once: nobody has to wait until that shows.
    pub(super) fn served(&mut self, tenant: TenantId) {
        let (critical, now_ns) = (self.is_critical(tenant), monotonic_ns());
        let Some(known) = self.known.get(&tenant) else { return };
        let page = known.link.grip.page();
        if self.attention.sees_end_of(tenant) {
            // Another one may follow at once: it is over when the page has shown for a moment that none has.
            return;
        }
        if critical && known.idleness.wants() && page.requests_open() == 0 && page.is_idle_when_watched() {
            self.goes_idle(tenant, Span::ZERO, now_ns);
        }
    }

    /// Has latency-critical tenants load their warm-up kernels while they have no work: that takes some 20 ms in the driver, for
    /// which the first hinted request would wait.
    pub(super) fn prepare_warm_ups(&mut self) {
        for known in self.known.values_mut().filter(|known| known.context) {
            if known.hinting.prepares(known.link.grip.page(), known.idleness.wants()) {
                known.link.order_warm_up();
            }
        }
    }

    /// A request is over: if a warm-up kernel was launched for it, the core learns how soon that was. Not before, since one that
    /// was launched late counts most.
    pub(super) fn tell_of_launch(&mut self, tenant: TenantId) {
        let Some(known) = self.known.get_mut(&tenant) else { return };
        if let Some(at_ns) = known.hinting.untold_launch(known.link.grip.page()) {
            let at = self.time_of(at_ns);
            self.step(Event::Warmed { tenant, at });
        }
    }

    /// An instant of the monotonic clock that is past, on the daemon's clock.
    pub(super) fn time_of(&self, at_ns: u64) -> Time {
        self.now().before(Span(monotonic_ns().saturating_sub(at_ns)))
    }

    /// A tenant entered or left a phase in which it gives way.
    pub(super) fn phase(&mut self, tenant: TenantId) {
        let Some(known) = self.known.get(&tenant) else { return };
        let (gives_way, name) = (known.link.grip.page().gives_way(), known.link.grip.page().phase_name());
        self.note("phase", tenant, json!({ "gives_way": gives_way, "name": name }));
        self.step(Event::GivesWay { tenant, gives_way });
        if gives_way {
            self.look_at = Some(self.now());
        }
    }

    /// A tenant asks for other terms for its job, as its user could.
    pub(super) fn set_for(&mut self, tenant: TenantId, request: RequestId, change: &Change) {
        let Some(known) = self.known.get(&tenant) else { return };
        let (pid, name) = (known.link.who.pid, known.link.who.job.clone());
        let job = self.jobs.of(tenant).ok_or_else(|| self.unknown(&name));
        match job.and_then(|job| self.change_terms(job, pid, change)) {
            Ok(()) => self.say(tenant, FromDaemon::Changed { request: GrantId(request.0) }),
            Err(Refusal { reason, hint }) => {
                let reason = hint.map_or(reason.clone(), |hint| format!("{reason} ({hint})"));
                self.say(tenant, FromDaemon::Denied { grant: GrantId(request.0), reason });
            }
        }
    }

    /// A hint was not honoured. It is counted by the core; what the tenant cannot help is noted.
    pub(super) fn hint_missed(&self, tenant: TenantId, why: Missed) {
        let why = match why {
            Missed::Late => "late",
            Missed::Guarantee => "guarantee",
            Missed::Unfrozen => "unfrozen",
            // As many as it likes to send, or none is ever honoured.
            Missed::Early | Missed::Distrusted | Missed::Unable | Missed::Unfavoured => return,
        };
        let aim = self.known.get(&tenant).and_then(|known| self.aim(known.gpu));
        self.note("hint_missed", tenant, json!({ "why": why, "aim": aim.map(|aim| aim.fields()) }));
    }

    pub(super) fn is_critical(&self, tenant: TenantId) -> bool {
        let job = self.jobs.of(tenant).and_then(|job| self.jobs.get(job));
        job.is_some_and(|job| job.terms.class == Class::LatencyCritical)
    }

    /// What became of a tenant's hints, if it may have given any.
    pub(super) fn hints_of(&self, tenant: TenantId, described: &Described) -> Option<Hints> {
        let known = self.known.get(&tenant)?;
        let (hinting, page, counts) = (&known.hinting, known.link.grip.page(), described.hints);
        let (warm_ups, warm_ups_failed) = page.warm_ups();
        let rhythm = hinting.rhythm.gap().filter(|_| page.may_be_forecast());
        let hints = Hints {
            sdk: hinting.sdk,
            shim: hinting.shim,
            forecast: hinting.forecast,
            good: counts.good,
            early: counts.early,
            late: counts.late,
            false_: counts.false_,
            missed: counts.missed,
            dropped: page.hints_dropped(),
            warm_ups,
            warm_ups_failed,
            warm_ups_awaited: page.warm_ups_awaited(),
            rhythm_ns: rhythm.map(|gap| gap.0),
        };
        (self.is_critical(tenant) || hints != Hints::default()).then_some(hints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::SharedPage;

    const GAP: Span = Span::from_millis(10);

    fn at(micros: u64) -> Time {
        Time(1_000_000_000 + 1000 * micros)
    }

    /// So many requests in a rhythm, each hinted by whom it may be. How many were foretold.
    fn foretold(hinting: &mut Hinting, source: Option<HintSource>, may_be_forecast: bool) -> usize {
        let mut now = Time(1_000_000_000);
        let request = |_: &u64| {
            now = now + GAP;
            if let Some(source) = source {
                hinting.heard(source, may_be_forecast);
            }
            hinting.came(now, may_be_forecast) == Some(now + GAP)
        };
        (0..100).filter(request).count()
    }

    #[test]
    fn requests_in_a_rhythm_are_foretold_unless_the_program_hints_itself_or_wants_none() {
        assert!(foretold(&mut Hinting::default(), None, true) > 70);
        assert_eq!(foretold(&mut Hinting::default(), None, false), 0);
        let mut program = Hinting::default();
        assert_eq!(foretold(&mut program, Some(HintSource::Sdk), true), 0);
        assert_eq!((program.sdk, program.forecast), (100, 0));
        assert!(foretold(&mut program, None, true) > 70, "it gives none any more");
    }

    #[test]
    fn each_launch_of_the_warm_up_kernel_is_told_once() {
        let (page, mut hinting) = (SharedPage::create(1).unwrap(), Hinting::default());
        assert_eq!(hinting.untold_launch(&page), None);
        page.count_warm_up(true);
        assert_eq!(hinting.untold_launch(&page), page.warmed_ns());
        assert_eq!(hinting.untold_launch(&page), None, "that one was");
        page.count_warm_up(false);
        assert_eq!(hinting.untold_launch(&page), None, "there was none");
        page.count_warm_up(true);
        assert_eq!(hinting.untold_launch(&page), page.warmed_ns());
    }

    #[test]
    fn the_warm_up_kernel_is_loaded_only_while_there_is_no_request() {
        let (page, mut hinting) = (SharedPage::create(1).unwrap(), Hinting::default());
        page.set_class(true, None);
        assert!(!hinting.prepares(&page, false), "it has work, or nobody knows");
        assert!(page.rest(1));
        assert!(!hinting.prepares(&page, true), "a request was just told");
        page.set_requests_open(1);
        assert!(!hinting.prepares(&page, false), "a request is served, and its first work is to come");
        page.set_requests_open(0);
        page.set_frozen(true);
        assert!(!hinting.prepares(&page, false));
        page.set_frozen(false);
        assert!(hinting.prepares(&page, false));
        assert!(!hinting.prepares(&page, false), "it was told");
        page.count_warm_up(false);
        assert!(hinting.prepares(&page, false), "it could not");
        page.count_warm_up(true);
        assert!(!hinting.prepares(&page, false), "it has it");
        page.set_class(false, None);
        assert!(!Hinting::default().prepares(&page, false), "nobody hints");
    }

    #[test]
    fn how_long_the_last_request_took_is_known() {
        let mut hinting = Hinting::default();
        assert_eq!(hinting.took(), None);
        hinting.request_came(at(0));
        assert_eq!(hinting.took(), None);
        hinting.request_is_noticed_over(at(80));
        assert_eq!(hinting.took(), Some(Span::from_micros(80)));
        hinting.request_came(at(10_000));
        hinting.request_is_noticed_over(at(10_200));
        hinting.request_is_noticed_over(at(10_300));
        assert_eq!(hinting.took(), Some(Span::from_micros(200)), "it ended once");
    }

    #[test]
    fn requests_that_come_in_bursts_are_remembered_to_follow_each_other() {
        let mut hinting = Hinting::default();
        let mut request = |begun: u64| {
            hinting.request_came(at(begun));
            hinting.request_is_noticed_over(at(begun + 100));
            hinting.follows_at_once()
        };
        assert!((1..50).all(|n| !request(n * 10_000)), "each comes alone");
        for burst in (1_000_000..2_000_000).step_by(100_000) {
            // Eight, 10 us after the one before.
            let followed: Vec<_> = (0..8).map(|n| request(burst + n * 110)).collect();
            assert_eq!(&followed[1..], [true; 7]);
            assert_eq!(followed[0], burst > 1_000_000, "the first of the first was not to be known");
        }
        assert!(!(0..16).map(|n| request(3_000_000 + n * 10_000)).last().unwrap(), "they do not any more");
    }

    #[test]
    fn what_the_shim_sees_counts_only_where_nothing_was_foretold() {
        let mut hinting = Hinting::default();
        assert!(hinting.heard(HintSource::Shim, true));
        assert!(foretold(&mut hinting, Some(HintSource::Shim), true) > 70);
        assert!(!hinting.heard(HintSource::Shim, true));
        assert!(hinting.heard(HintSource::Shim, false), "nobody foretells");
    }
}
