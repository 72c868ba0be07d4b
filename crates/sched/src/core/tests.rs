//! How the core behaves, case by case. What always holds whatever happens is checked in `tests/`.

mod ahead;
mod books;
mod critical;
mod deep;
mod describe;
mod door;
mod failures;
mod fillers;
mod forecasts;
mod gangs;
mod gaps;
mod grants;
mod handover;
mod hardship;
mod hints;
mod homes;
mod host;
mod meeting;
mod moves;
mod no_room;
mod outlook;
mod pieces;
mod pinned;
mod pressed;
mod pressure;
mod priorities;
mod rebase;
mod rejoined;
mod release;
mod reserve;
mod shares;
mod standstill;
mod turns;
mod waiting;
mod way;
mod widening;

use crate::*;
use std::collections::{BTreeMap, BTreeSet};

const GIB: u64 = 1 << 30;

/// Events at one instant. More, and the core goes round in circles.
const AT_ONCE_MAX: usize = 1_000;

/// Events in one stretch of time. More, and it is busy with itself.
const EVENTS_MAX: usize = 10_000;

/// A node that does what the core says, at fixed costs, and keeps a diary.
struct Rig {
    core: Core,
    now: Time,
    pending: BTreeMap<(Time, u64), Event>,
    count: u64,
    /// Who is thawed, since when, and on which slice.
    thawed: BTreeMap<TenantId, (Time, Slice)>,
    ran: BTreeMap<TenantId, Span>,
    sizes: BTreeMap<Owned, Bytes>,
    away: BTreeSet<Owned>,
    next_handle: u64,
    requests: BTreeMap<(TenantId, RequestId), Bytes>,
    diary: Vec<(Time, Action)>,
    /// Completions of these are lost.
    lose: fn(&Action) -> bool,
    /// These fail.
    fail: fn(&Action) -> bool,
    /// Memory of these does not come in.
    refuse: fn(TenantId) -> bool,
    /// Freezes of a tenant begin so much later than they are asked for, and it runs on meanwhile.
    late: BTreeMap<TenantId, Span>,
    /// If there is such a list, the mover does not know new memory, and that is in the list.
    unknown: Option<Vec<Owned>>,
    freeze: Span,
    thaw: Span,
    bandwidth: u64,
}

impl Rig {
    /// One GPU of 16 GiB with nothing in reserve, and an arena of 64 GiB.
    fn new(settings: Settings) -> Self {
        let mut rig = Self {
            core: Core::new(settings),
            now: Time::ZERO,
            pending: BTreeMap::new(),
            count: 0,
            thawed: BTreeMap::new(),
            ran: BTreeMap::new(),
            sizes: BTreeMap::new(),
            away: BTreeSet::new(),
            next_handle: 1,
            requests: BTreeMap::new(),
            diary: Vec::new(),
            lose: |_| false,
            fail: |_| false,
            refuse: |_| false,
            late: BTreeMap::new(),
            unknown: None,
            freeze: Span::from_millis(1),
            thaw: Span::from_micros(500),
            bandwidth: 40 << 30,
        };
        rig.gpu(0, 16);
        rig.tell(Event::Arena(Bytes::from_gib(64)));
        rig
    }

    fn gpu(&mut self, gpu: u16, gib: u64) {
        let spec = GpuSpec { capacity: Bytes(gib * GIB), reserve: Bytes::ZERO, numa: 0, links: Vec::new() };
        self.tell(Event::Gpu { gpu: GpuId(gpu), spec });
    }

    fn job(&mut self, job: u64, terms: Terms) {
        self.tell(Event::Job { job: JobId(job), terms });
    }

    /// A tenant with a context and so many handles of 1 GiB. A job of its own if there is none of that number.
    fn tenant(&mut self, id: u64, job: u64, gpu: u16, gib: u64) -> TenantId {
        let tenant = TenantId(id);
        if !self.core.jobs.contains(JobId(job)) {
            self.job(job, Terms::default());
        }
        self.tell(Event::Arrived { tenant, job: JobId(job), gpu: GpuId(gpu), residue: Bytes::ZERO });
        self.tell(Event::Context { tenant, present: true });
        for piece in 0..gib {
            self.ask(tenant, piece, GIB);
        }
        tenant
    }

    /// The same, with work to do.
    fn busy(&mut self, id: u64, job: u64, gpu: u16, gib: u64) -> TenantId {
        let tenant = self.tenant(id, job, gpu, gib);
        self.tell(Event::wants(tenant));
        tenant
    }

    fn ask(&mut self, tenant: TenantId, request: u64, bytes: u64) {
        let request = RequestId(request);
        self.requests.insert((tenant, request), Bytes(bytes));
        self.tell(Event::Ask { tenant, request, bytes: Bytes(bytes) });
    }

    fn tell(&mut self, event: Event) {
        if let Event::Left(tenant) = event {
            self.off(tenant);
            self.away.retain(|owned| owned.tenant != tenant);
        }
        // Contexts begin thawed, those of tenants with memory away excepted.
        if let Event::Context { tenant, present: true } = event
            && !self.away.iter().any(|owned| owned.tenant == tenant)
        {
            self.thawed.insert(tenant, (self.now, Slice::Own));
        }
        let actions = self.core.step(self.now, event);
        self.core.check().unwrap();
        assert!(self.core.wake_at().is_none_or(|at| at > self.now), "what is due now was not done now");
        for action in actions {
            self.diary.push((self.now, action.clone()));
            self.act(action);
        }
    }

    fn after(&mut self, span: Span, event: Event) {
        self.count += 1;
        self.pending.insert((self.now + span, self.count), event);
    }

    fn off(&mut self, tenant: TenantId) {
        if let Some((since, _)) = self.thawed.remove(&tenant) {
            let ran = self.ran.entry(tenant).or_default();
            *ran += self.now.since(since);
        }
    }

    fn act(&mut self, action: Action) {
        if (self.lose)(&action) {
            return;
        }
        let failed = (self.fail)(&action);
        match action {
            Action::Freeze { op, tenant, .. } => {
                let late = self.late.get(&tenant).copied().unwrap_or_default();
                if !failed {
                    self.off(tenant);
                    *self.ran.entry(tenant).or_default() += late;
                }
                let outcome = if failed { Outcome::Failed } else { Outcome::Done { took: self.freeze } };
                self.after(late + self.freeze, Event::Done { op, outcome });
            }
            Action::Thaw { op, tenant, slice } => {
                assert!(
                    self.away.iter().all(|owned| owned.tenant != tenant),
                    "{tenant} is thawed with memory away"
                );
                if !failed {
                    self.thawed.insert(tenant, (self.now + self.thaw, slice));
                }
                let outcome = if failed { Outcome::Failed } else { Outcome::Done { took: self.thaw } };
                self.after(self.thaw, Event::Done { op, outcome });
            }
            Action::Slice { op, tenant, slice } => {
                if let Some(thawed) = self.thawed.get_mut(&tenant).filter(|_| !failed) {
                    thawed.1 = slice;
                }
                let outcome = if failed { Outcome::Failed } else { Outcome::Done { took: Span(1000) } };
                self.after(Span(1000), Event::Done { op, outcome });
            }
            Action::Move { op, out, into, .. } => {
                for owned in out.iter().chain(&into) {
                    assert!(
                        !self.thawed.contains_key(&owned.tenant),
                        "{owned:?} moves while its tenant runs"
                    );
                }
                let bytes = |all: &[Owned]| -> Bytes { all.iter().map(|owned| self.sizes[owned]).sum() };
                let took = bytes(&out).max(bytes(&into)).at(self.bandwidth);
                if failed {
                    self.after(took, Event::Done { op, outcome: Outcome::Failed });
                    return;
                }
                let into: Vec<Owned> =
                    into.into_iter().filter(|owned| !(self.refuse)(owned.tenant)).collect();
                self.away.extend(&out);
                self.away.retain(|owned| !into.contains(owned));
                self.after(
                    took,
                    Event::Done { op, outcome: Outcome::Moved { out, into, unsettled: vec![], took } },
                );
            }
            Action::Inspect { op, tenants } => {
                let away =
                    self.away.iter().filter(|owned| tenants.contains(&owned.tenant)).copied().collect();
                self.after(
                    Span(1000),
                    Event::Done { op, outcome: Outcome::Found { away, unsettled: vec![] } },
                );
            }
            Action::Grant { tenant, request } => {
                let handle = HandleId(self.next_handle);
                self.next_handle += 1;
                let owned = Owned { tenant, handle };
                let bytes = self.requests[&(tenant, request)];
                self.sizes.insert(owned, bytes);
                self.tell(Event::Claimed { owned, request, bytes });
                match &mut self.unknown {
                    Some(unknown) => unknown.push(owned),
                    None => self.tell(Event::Adopted { owned, movable: true }),
                }
            }
            Action::End { tenant, .. } => {
                self.after(Span(1000), Event::Left(tenant));
                self.after(Span(2000), Event::Buried(tenant));
            }
            _ => {}
        }
    }

    /// Lets time pass up to an instant.
    fn until(&mut self, seconds: f64) {
        let end = Time((seconds * 1e9) as u64);
        let (mut last, mut at_once) = (self.now, 0);
        for _ in 0..EVENTS_MAX {
            let pending = self.pending.first_key_value().map(|(&(at, _), _)| at);
            let next = [pending, self.core.wake_at()].into_iter().flatten().min().filter(|&at| at <= end);
            let Some(next) = next else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            at_once = if self.now == last { at_once + 1 } else { 0 };
            assert!(at_once < AT_ONCE_MAX, "time stands still at {:?}", self.now);
            last = self.now;
            if pending == Some(next) {
                let (_, event) = self.pending.pop_first().unwrap();
                self.tell(event);
            } else {
                self.tell(Event::Tick);
            }
        }
        panic!("no end of events at {:?}", self.now);
    }

    /// Lets time pass until something is so, which has to be within two minutes. Says when, in seconds.
    fn wait_for(&mut self, what: impl Fn(&Self) -> bool) -> f64 {
        let mut at = self.now.0 as f64 / 1e9;
        let (end, actions_max) = (at + 120.0, self.diary.len() + EVENTS_MAX);
        while !what(self) {
            assert!(at < end && self.diary.len() < actions_max, "waited in vain");
            at += 0.005;
            self.until(at);
        }
        at
    }

    /// For how long a tenant could run so far, in seconds.
    fn ran(&self, tenant: TenantId) -> f64 {
        let so_far = self.ran.get(&tenant).copied().unwrap_or_default();
        let now = self.thawed.get(&tenant).map_or(Span::ZERO, |&(since, _)| self.now.since(since));
        (so_far + now).as_secs_f64()
    }

    /// One of its handles.
    fn handle_of(&self, tenant: TenantId) -> HandleId {
        self.sizes.keys().rfind(|owned| owned.tenant == tenant).unwrap().handle
    }

    fn runs(&self) -> Vec<u64> {
        self.thawed.keys().map(|tenant| tenant.0).collect()
    }

    /// What of the diary the filter names, since an instant in seconds.
    fn said<T>(&self, since: f64, what: impl Fn(&Action) -> Option<T>) -> Vec<T> {
        let since = Time((since * 1e9) as u64);
        self.diary.iter().filter(|(at, _)| *at >= since).filter_map(|(_, action)| what(action)).collect()
    }

    #[allow(dead_code)]
    fn dump(&self, since: f64, until: f64) {
        for (at, action) in &self.diary {
            let t = at.0 as f64 / 1e9;
            if t >= since && t <= until && !matches!(action, Action::Grant { .. }) {
                let text = format!("{action:?}");
                eprintln!("{t:.4} {}", &text[..text.len().min(160)]);
            }
        }
    }

    /// Whose turns began, since an instant in seconds.
    fn turns(&self, since: f64) -> Vec<u64> {
        self.said(since, |action| match action {
            Action::TurnBegins { tenant, .. } => Some(tenant.0),
            _ => None,
        })
    }

    /// The moves since an instant: how many GiB went out, and how many came in.
    fn moves(&self, since: f64) -> Vec<(u64, u64)> {
        self.said(since, |action| match action {
            Action::Move { out, into, .. } => {
                let gib = |all: &[Owned]| all.iter().map(|owned| self.sizes[owned].0).sum::<u64>() / GIB;
                Some((gib(out), gib(into)))
            }
            _ => None,
        })
    }
}

fn settings() -> Settings {
    Settings::default()
}

fn close(value: f64, expected: f64, tolerance: f64) {
    assert!(
        (value - expected).abs() <= expected.abs() * tolerance,
        "{value} is not {expected} within {tolerance}"
    );
}
