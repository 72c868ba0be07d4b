//! The core against queueing theory: one server, Poisson arrivals, any service times, and switches that cost nothing.
//!
//! Customers are tenants that want a turn when they come and are idle when they are served. The core is driven by its
//! ordinary `step`; it knows nothing of queues.
//!
//! Long queues need more customers for a good mean than a test has time for, so two things make it better. Arrivals and
//! service times are stratified samples in random order: their distributions are exact. And the same customers go through
//! a queue of a few lines as well, which also serves many more of them: where those few customers were lucky or not is
//! taken off the core's mean (a control variate). A core that serves in another order than the few lines still shows.

use std::collections::{BTreeSet, VecDeque};

use rota_sim::random::Random;
use sched::{
    Action, Bytes, Core, Costs, Event, GpuId, GpuSpec, JobId, Outcome, PolicyKind, Priority, Settings, Span,
    TenantId, Terms, Time,
};

/// Mean service time: long enough that nanoseconds are a continuum.
const MEAN: f64 = 1e9;
/// How far from theory the core may be.
const TOLERANCE: f64 = 0.05;
const LOADS: [f64; 3] = [0.3, 0.6, 0.9];

/// How long service takes, with mean 1.
#[derive(Clone, Copy, Debug)]
enum Service {
    /// Always the same.
    Deterministic,
    /// Squared coefficient of variation 1.
    Exponential,
    /// One of two exponentials, balanced, with a squared coefficient of variation of 4.
    Hyperexponential,
}

const SERVICES: [Service; 3] = [Service::Deterministic, Service::Exponential, Service::Hyperexponential];

impl Service {
    fn second_moment(self) -> f64 {
        match self {
            Self::Deterministic => 1.0,
            Self::Exponential => 2.0,
            Self::Hyperexponential => 5.0,
        }
    }

    /// A sample of `count`, in random order.
    fn sample(self, random: &mut Random, count: usize) -> Vec<f64> {
        let mut all = match self {
            Self::Deterministic => vec![1.0; count],
            Self::Exponential => exponentials(random, count, 1.0),
            Self::Hyperexponential => {
                let often = 0.5 * (1.0 + (3.0f64 / 5.0).sqrt());
                let many = (often * count as f64).round() as usize;
                let mut all = exponentials(random, many, 1.0 / (2.0 * often));
                all.extend(exponentials(random, count - many, 1.0 / (2.0 * (1.0 - often))));
                all
            }
        };
        shuffle(random, &mut all);
        all
    }
}

/// One from each of `count` equal parts of an exponential, in random order.
fn exponentials(random: &mut Random, count: usize, mean: f64) -> Vec<f64> {
    let strata = 0..count;
    let mut all: Vec<f64> =
        strata.map(|one| -mean * (1.0 - (one as f64 + random.unit()) / count as f64).ln()).collect();
    shuffle(random, &mut all);
    all
}

fn shuffle(random: &mut Random, all: &mut [f64]) {
    for last in (1..all.len()).rev() {
        let other = (random.unit() * (last + 1) as f64) as usize;
        all.swap(last, other);
    }
}

/// A customer: when it comes, how long it takes, and which class it is of.
struct Customer {
    comes: f64,
    takes: f64,
    class: usize,
}

fn customers(load: f64, service: Service, count: usize, lane: u64) -> Vec<Customer> {
    let mut random = Random::new(11, lane);
    let between = exponentials(&mut random, count, 1.0 / load);
    let takes = service.sample(&mut random, count);
    let mut now = 0.0;
    let mut customer = |(between, takes): (f64, f64)| {
        now += between;
        Customer { comes: now, takes, class: usize::from(random.unit() < 0.5) }
    };
    between.into_iter().zip(takes).map(&mut customer).collect()
}

/// The server: what the core lets run, runs.
struct Server {
    core: Core,
    now: Time,
    thawed: BTreeSet<usize>,
    /// The customer that each tenant is, and what is left of its service.
    serves: Vec<Option<(usize, u64)>>,
    /// Tenants with no customer, of each class.
    free: [VecDeque<usize>; 2],
    wanting: usize,
}

impl Server {
    fn new(policy: PolicyKind) -> Self {
        let nothing = Costs {
            freeze: Span::ZERO,
            thaw: Span::ZERO,
            out_per_second: 1,
            in_per_second: 1,
            per_move: Span::ZERO,
        };
        let for_ever = Span::from_secs(1_000_000_000);
        let settings = Settings {
            policy,
            turn_min: for_ever,
            turn_max: for_ever,
            ageing: Span::MAX,
            tenants_max: 1_000_000,
            costs: nothing,
            ..Settings::default()
        };
        let mut server = Self {
            core: Core::new(settings),
            now: Time::ZERO,
            thawed: BTreeSet::new(),
            serves: Vec::new(),
            free: [VecDeque::new(), VecDeque::new()],
            wanting: 0,
        };
        let spec =
            GpuSpec { capacity: Bytes::from_gib(100), reserve: Bytes::ZERO, numa: 0, links: Vec::new() };
        server.tell(Event::Gpu { gpu: GpuId(0), spec });
        server.tell(Event::Arena(Bytes::from_gib(100)));
        for (job, priority) in [(JobId(1), Priority::High), (JobId(2), Priority::Low)] {
            server.tell(Event::Job { job, terms: Terms { priority, ..Terms::default() } });
        }
        server
    }

    /// Tells the core, and does at once what it wants.
    fn tell(&mut self, event: Event) {
        let mut told = VecDeque::from([event]);
        while let Some(event) = told.pop_front() {
            for action in self.core.step(self.now, event) {
                let done = |op| Event::Done { op, outcome: Outcome::Done { took: Span::ZERO } };
                match action {
                    Action::Freeze { op, tenant, .. } => {
                        self.thawed.remove(&(tenant.0 as usize - 1));
                        told.push_back(done(op));
                    }
                    Action::Thaw { op, tenant, .. } => {
                        self.thawed.insert(tenant.0 as usize - 1);
                        told.push_back(done(op));
                    }
                    Action::Slice { op, .. } => told.push_back(done(op)),
                    Action::Admit { tenant } => told.push_back(Event::Context { tenant, present: true }),
                    Action::TurnBegins { .. } | Action::TurnEnds { .. } => {}
                    other => panic!("nobody expects {other:?} here"),
                }
            }
        }
    }

    /// A tenant for a customer: one that is free, or a new one.
    fn tenant(&mut self, class: usize) -> usize {
        if let Some(free) = self.free[class].pop_front() {
            return free;
        }
        let index = self.serves.len();
        self.serves.push(None);
        self.thawed.insert(index);
        let (tenant, job) = (TenantId(index as u64 + 1), JobId(class as u64 + 1));
        self.tell(Event::Arrived { tenant, job, gpu: GpuId(0), residue: Bytes(1) });
        index
    }

    /// Who is being served. Only one may be.
    fn served(&self) -> Option<usize> {
        let mut all = self.thawed.iter().copied().filter(|&one| self.serves[one].is_some());
        let first = all.next();
        assert!(all.next().is_none(), "two are served at {} ns", self.now.0);
        first
    }

    /// Serves everybody and returns how long each was there.
    fn run(&mut self, customers: &[Customer]) -> Vec<f64> {
        let mut stayed = vec![0.0; customers.len()];
        let mut coming = customers.iter().enumerate().peekable();
        loop {
            let served = self.served();
            assert!(served.is_some() || self.wanting == 0, "nobody is served at {} ns", self.now.0);
            let arrival = coming.peek().map(|(_, customer)| Time((customer.comes * MEAN) as u64));
            let left = served.and_then(|one| self.serves[one]).map(|(_, left)| left);
            let over = left.map(|left| self.now + Span(left));
            let wake = self.core.wake_at();
            let Some(next) = [arrival, over, wake].into_iter().flatten().min() else { return stayed };
            if let Some((_, left)) = served.and_then(|one| self.serves[one].as_mut()) {
                *left -= next.since(self.now).0;
            }
            self.now = self.now.max(next);
            if over == Some(next) {
                let one = served.expect("whoever is over was served");
                let (number, _) = self.serves[one].take().expect("whoever is over was served");
                stayed[number] = self.now.0 as f64 / MEAN - customers[number].comes;
                self.free[customers[number].class].push_back(one);
                self.wanting -= 1;
                self.tell(Event::Idle(TenantId(one as u64 + 1)));
            } else if arrival == Some(next) {
                let (number, customer) = coming.next().expect("it was just seen");
                let one = self.tenant(customer.class);
                self.serves[one] = Some((number, ((customer.takes * MEAN) as u64).max(1)));
                self.wanting += 1;
                self.tell(Event::wants(TenantId(one as u64 + 1)));
            } else {
                self.tell(Event::Tick);
            }
        }
    }
}

/// How long each customer is there if they are served in the order in which they come.
fn in_order(customers: &[Customer]) -> Vec<f64> {
    let mut free_at = 0.0f64;
    let leaves = customers.iter().map(|customer| {
        free_at = free_at.max(customer.comes) + customer.takes;
        free_at - customer.comes
    });
    leaves.collect()
}

/// How long each customer is there if the first class interrupts the second, which then goes on where it was.
fn by_priority(customers: &[Customer]) -> Vec<f64> {
    let mut stayed = vec![0.0; customers.len()];
    let mut queues: [VecDeque<(usize, f64)>; 2] = Default::default();
    let mut now = 0.0;
    for next in 0..=customers.len() {
        let until = customers.get(next).map_or(f64::INFINITY, |customer| customer.comes);
        while let Some(queue) = queues.iter_mut().find(|queue| !queue.is_empty()) {
            let (one, left) = queue.front_mut().expect("it is not empty");
            if now + *left > until {
                *left -= until - now;
                break;
            }
            now += *left;
            stayed[*one] = now - customers[*one].comes;
            queue.pop_front();
        }
        now = until;
        if let Some(customer) = customers.get(next) {
            queues[customer.class].push_back((next, customer.takes));
        }
    }
    stayed
}

/// Customers for the core, and for the few lines: more where queues are long.
fn counts(load: f64) -> (usize, usize) {
    if load > 0.8 { (30_000, 6_000_000) } else { (20_000, 500_000) }
}

fn mean_by_class(customers: &[Customer], stayed: &[f64], less_service: bool) -> [f64; 2] {
    let (mut sums, mut counts) = ([0.0; 2], [0.0; 2]);
    for (customer, stayed) in customers.iter().zip(stayed) {
        sums[customer.class] += stayed - if less_service { customer.takes } else { 0.0 };
        counts[customer.class] += 1.0;
    }
    [sums[0] / counts[0], sums[1] / counts[1]]
}

/// Runs one case and notes where the core is off.
fn check(
    policy: PolicyKind,
    (load, service): (f64, Service),
    few_lines: fn(&[Customer]) -> Vec<f64>,
    theory: [f64; 2],
    misses: &mut Vec<String>,
) {
    let waiting = policy == PolicyKind::Serial;
    let (few, many) = counts(load);
    let endless = customers(load, service, many, 1);
    let mean = mean_by_class(&endless, &few_lines(&endless), waiting);
    let customers = customers(load, service, few, 2);
    let luck = mean_by_class(&customers, &few_lines(&customers), waiting);
    let core = mean_by_class(&customers, &Server::new(policy).run(&customers), waiting);
    for class in 0..2 {
        let seen = core[class] - (luck[class] - mean[class]);
        let off = seen / theory[class] - 1.0;
        let what = format!("{policy:?}, load {load}, {service:?}, class {class}");
        println!("{what}: {seen:.4} seen, {:.4} in theory, {:+.1}%", theory[class], off * 100.0);
        if off.abs() > TOLERANCE {
            misses.push(format!("{what}: {seen:.4} seen, {:.4} in theory", theory[class]));
        }
        // The same order on the same customers, to the rounding of the core's clock.
        if (core[class] / luck[class] - 1.0).abs() > 1e-4 {
            misses.push(format!(
                "{what}: {:.6} for the core, {:.6} for a plain queue",
                core[class], luck[class]
            ));
        }
    }
}

#[test]
fn first_come_first_served() {
    let mut misses = Vec::new();
    for load in LOADS {
        for service in SERVICES {
            // Pollaczek and Khinchine; nobody is before anybody else.
            let theory = load * service.second_moment() / (2.0 * (1.0 - load));
            check(PolicyKind::Serial, (load, service), in_order, [theory; 2], &mut misses);
        }
    }
    assert!(misses.is_empty(), "{misses:#?}");
}

#[test]
fn preemptive_resume_priority() {
    let mut misses = Vec::new();
    for load in LOADS {
        for service in SERVICES {
            let (high, second) = (load / 2.0, service.second_moment());
            let theory = [
                1.0 + high * second / (2.0 * (1.0 - high)),
                1.0 / (1.0 - high) + load * second / (2.0 * (1.0 - high) * (1.0 - load)),
            ];
            check(PolicyKind::Priority, (load, service), by_priority, theory, &mut misses);
        }
    }
    assert!(misses.is_empty(), "{misses:#?}");
}
