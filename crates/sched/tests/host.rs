//! Random histories of tenants that are larger than their GPU, beside a model that knows what each was granted where: nothing
//! is granted twice or beyond a budget, and what is not there any more counts nowhere.

extern crate rota_sched as sched;

use sched::{
    Action, Bytes, Core, Event, GpuId, GpuSpec, HandleId, JobId, Owned, RequestId, Settings, TenantId, Terms,
    Time, WhenFull,
};
use std::collections::BTreeMap;

const JOBS: u64 = 3;
const CAPACITY: Bytes = Bytes::from_gib(8);
const HANDLE_MAX: Bytes = Bytes::from_gib(1);
const STEPS: usize = 4_000;
const SEEDS: u64 = 24;

/// xorshift64*: a seed is a history.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.below(all.len() as u64) as usize])
    }
}

/// What a tenant has by what it was told.
#[derive(Default)]
struct Tenant {
    job: u64,
    gone: bool,
    asked: BTreeMap<RequestId, Bytes>,
    /// Granted and not used: on the device, and on the host.
    grants: BTreeMap<RequestId, (Bytes, Bytes)>,
    device: BTreeMap<HandleId, Bytes>,
    host: BTreeMap<HandleId, Bytes>,
}

impl Tenant {
    fn on_host(&self) -> Bytes {
        self.host.values().copied().sum::<Bytes>() + self.grants.values().map(|&(_, host)| host).sum()
    }

    fn on_device(&self) -> Bytes {
        self.device.values().copied().sum::<Bytes>() + self.grants.values().map(|&(device, _)| device).sum()
    }
}

struct History {
    core: Core,
    chance: Chance,
    now: u64,
    next: u64,
    tenants: BTreeMap<TenantId, Tenant>,
    budgets: BTreeMap<u64, Bytes>,
    host_max: Bytes,
    granted_on_host: u64,
    denied: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let host_max = Bytes::from_gib(12);
        let settings = Settings { host_max, handle_max: HANDLE_MAX, ..Settings::default() };
        let mut history = Self {
            core: Core::new(settings),
            chance: Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            now: 0,
            next: 1,
            tenants: BTreeMap::new(),
            budgets: BTreeMap::new(),
            host_max,
            granted_on_host: 0,
            denied: 0,
        };
        let spec = GpuSpec { capacity: CAPACITY, reserve: Bytes::ZERO, numa: 0, links: Vec::new() };
        history.tell(Event::Gpu { gpu: GpuId(0), spec });
        history.tell(Event::Arena(Bytes::from_gib(64)));
        (0..JOBS).for_each(|job| history.set_terms(job));
        history
    }

    fn set_terms(&mut self, job: u64) {
        // One of them has nothing of the host's.
        let host_max = Bytes(if job == 0 { 0 } else { self.chance.below(10) << 30 });
        let memory_max = (self.chance.below(3) == 0).then(|| Bytes::from_gib(2 + self.chance.below(6)));
        let when_full = if self.chance.below(4) == 0 { WhenFull::Wait } else { WhenFull::Fail };
        self.budgets.insert(job, host_max);
        let terms = Terms { host_max, memory_max, when_full, ..Terms::default() };
        self.tell(Event::Job { job: JobId(job), terms });
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn tell(&mut self, event: Event) {
        self.now += 1_000_000;
        let actions = self.core.step(Time(self.now), event);
        self.core.check().unwrap();
        for action in actions {
            match action {
                Action::Grant { tenant, request } => self.granted(tenant, request, Bytes::ZERO),
                Action::GrantHost { tenant, request, host } => {
                    assert!(host > Bytes::ZERO);
                    self.granted(tenant, request, host);
                }
                Action::Deny { tenant, request, .. } => {
                    self.denied += 1;
                    let was_asked = self.tenants.get_mut(&tenant).and_then(|it| it.asked.remove(&request));
                    assert!(was_asked.is_some(), "{request} of {tenant} is denied, and was not asked for");
                }
                _ => {}
            }
        }
    }

    fn granted(&mut self, id: TenantId, request: RequestId, host: Bytes) {
        let tenant = self.tenants.get_mut(&id).expect("somebody is granted something");
        let asked = tenant.asked.remove(&request).expect("it was asked for, and once");
        assert!(host <= asked);
        tenant.grants.insert(request, (asked - host, host));
        self.granted_on_host += u64::from(host > Bytes::ZERO);
        assert_eq!(self.core.has_host_grant(id, request).unwrap_or_default(), host);
        assert_eq!(self.core.has_grant(id, request).unwrap_or_default(), asked - host);
    }

    fn someone(&mut self, test: impl Fn(&Tenant) -> bool) -> Option<TenantId> {
        let all: Vec<TenantId> = self.tenants.iter().filter(|(_, it)| test(it)).map(|(&id, _)| id).collect();
        self.chance.of(&all)
    }

    fn step(&mut self) {
        match self.chance.below(20) {
            0..2 => self.arrive(),
            2..6 => self.ask(),
            6..11 => self.claim(),
            11..14 => self.free(),
            14 => self.give_back(),
            15 => {
                if let Some(id) = self.someone(|it| !it.gone) {
                    self.tenants.get_mut(&id).unwrap().gone = true;
                    // Whoever is gone waits for nothing.
                    self.tenants.get_mut(&id).unwrap().asked.clear();
                    self.tell(Event::Left(id));
                }
            }
            16..18 => {
                if let Some(id) = self.someone(|it| it.gone) {
                    self.tenants.remove(&id);
                    self.tell(Event::Buried(id));
                }
            }
            18 => {
                let job = self.chance.below(JOBS);
                self.set_terms(job);
            }
            _ => self.tell(Event::Tick),
        }
        self.compare();
    }

    fn arrive(&mut self) {
        if self.tenants.len() >= 5 {
            return;
        }
        let (tenant, job) = (TenantId(self.number()), self.chance.below(JOBS));
        self.tenants.insert(tenant, Tenant { job, ..Tenant::default() });
        self.tell(Event::Arrived { tenant, job: JobId(job), gpu: GpuId(0), residue: Bytes::from_mib(100) });
    }

    fn ask(&mut self) {
        let Some(tenant) = self.someone(|it| !it.gone && it.asked.len() < 3) else { return };
        let request = RequestId(self.number());
        let most_mib = if self.chance.below(3) == 0 { 6000 } else { 700 };
        let bytes = Bytes((1 + self.chance.below(most_mib)) << 20);
        let on_host = self.chance.below(4) == 0;
        self.tenants.get_mut(&tenant).unwrap().asked.insert(request, bytes);
        self.tell(match on_host {
            true => Event::AskHost { tenant, request, bytes },
            false => Event::Ask { tenant, request, bytes },
        });
    }

    /// Uses a grant, or a part of it, where it was granted; sometimes more than it is, which is not believed.
    fn claim(&mut self) {
        let Some(id) = self.someone(|it| !it.gone && !it.grants.is_empty()) else { return };
        let grants: Vec<RequestId> = self.tenants[&id].grants.keys().copied().collect();
        let request = self.chance.of(&grants).unwrap();
        let (device, host) = self.tenants[&id].grants[&request];
        let on_host = self.chance.below(2) == 0;
        let granted = if on_host { host } else { device };
        let bytes = match self.chance.below(8) {
            0 => granted + Bytes(1),
            1 => Bytes(granted.0 / 2),
            _ => granted,
        };
        let handle = HandleId(self.number());
        let owned = Owned { tenant: id, handle };
        if bytes > Bytes::ZERO && bytes <= granted {
            let tenant = self.tenants.get_mut(&id).unwrap();
            let left = if on_host { (device, host - bytes) } else { (device - bytes, host) };
            match left {
                (Bytes::ZERO, Bytes::ZERO) => tenant.grants.remove(&request),
                left => tenant.grants.insert(request, left),
            };
            (if on_host { &mut tenant.host } else { &mut tenant.device }).insert(handle, bytes);
        }
        self.tell(match on_host {
            true => Event::ClaimedHost { owned, request, bytes },
            false => Event::Claimed { owned, request, bytes },
        });
    }

    fn free(&mut self) {
        let Some(id) = self.someone(|it| !it.gone && it.host.len() + it.device.len() > 0) else { return };
        let it = &self.tenants[&id];
        let all: Vec<HandleId> = it.host.keys().chain(it.device.keys()).copied().collect();
        let handle = self.chance.of(&all).unwrap();
        let it = self.tenants.get_mut(&id).unwrap();
        it.host.remove(&handle);
        it.device.remove(&handle);
        self.tell(Event::Freed { tenant: id, handles: vec![handle] });
    }

    fn give_back(&mut self) {
        let Some(id) = self.someone(|it| !it.gone && it.grants.len() + it.asked.len() > 0) else { return };
        let it = &self.tenants[&id];
        let all: Vec<RequestId> = it.grants.keys().chain(it.asked.keys()).copied().collect();
        let request = self.chance.of(&all).unwrap();
        let it = self.tenants.get_mut(&id).unwrap();
        it.grants.remove(&request);
        it.asked.remove(&request);
        self.tell(Event::Returned { tenant: id, request });
    }

    fn compare(&self) {
        let (used, _) = self.core.host();
        let granted: Bytes = self.tenants.values().map(Tenant::on_host).sum();
        // What is set aside for requests that wait is known to the core alone.
        let asked: Bytes = self.tenants.values().flat_map(|it| it.asked.values()).copied().sum();
        assert!(granted <= used && used <= granted + asked, "{granted} granted, {used} used");
        assert!(used <= self.host_max, "{used} of {}", self.host_max);
        for (&id, tenant) in self.tenants.iter().filter(|(_, tenant)| !tenant.gone) {
            let Some(described) = self.core.describe(id, Time(self.now)) else { continue };
            let waiting: Bytes = tenant.asked.values().copied().sum();
            assert!(tenant.on_host() <= described.host && described.host <= tenant.on_host() + waiting);
            assert_eq!(described.resident + described.away + described.granted, tenant.on_device());
        }
    }
}

#[test]
fn device_and_host_add_up_whatever_happens() {
    let (mut on_host, mut denied) = (0, 0);
    for seed in 1..=SEEDS {
        let mut history = History::new(seed);
        for _ in 0..STEPS {
            history.step();
        }
        // At the end nobody is left, and nothing.
        let all: Vec<(TenantId, bool)> = history.tenants.iter().map(|(&id, it)| (id, it.gone)).collect();
        for (id, gone) in all {
            if !gone {
                history.tenants.get_mut(&id).unwrap().asked.clear();
                history.tell(Event::Left(id));
            }
            history.tenants.remove(&id);
            history.tell(Event::Buried(id));
        }
        assert_eq!(history.core.host().0, Bytes::ZERO, "seed {seed}");
        (on_host, denied) = (on_host + history.granted_on_host, denied + history.denied);
    }
    assert!(on_host > 1_000 && denied > 1_000, "{on_host} grants on the host, {denied} denied: too tame");
}

#[test]
fn no_job_gets_more_of_the_host_than_it_may_have() {
    for seed in 100..100 + SEEDS {
        let mut history = History::new(seed);
        let mut before: BTreeMap<u64, Bytes> = BTreeMap::new();
        for _ in 0..STEPS {
            history.step();
            for (job, budget) in history.budgets.clone() {
                let living = history.tenants.iter().filter(|(_, it)| it.job == job && !it.gone);
                let described = living.filter_map(|(&id, _)| history.core.describe(id, Time(history.now)));
                let has: Bytes = described.map(|described| described.host).sum();
                // A budget that shrank takes nothing away, nor what is set aside already, but nothing comes to it.
                let had = before.insert(job, has).unwrap_or_default();
                assert!(
                    has <= budget.max(had),
                    "seed {seed}: job {job} has {has} of {budget}, and had {had}"
                );
            }
        }
    }
}
