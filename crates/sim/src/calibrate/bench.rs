//! Programs on one GPU with no core: what the measuring programs did, step by step.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sched::{Span, Time};

use super::programs::{
    ANY_TIME, AT_ANY_TIME, BURST_JITTER, Looping, Pace, Requests, SLEEP_LATE, SLEEP_LATE_SPREAD,
};
use crate::gpu::{Device, GroupId, grip_effect, request};
use crate::random::Random;
use crate::scenario::Physics;

/// Who freezes and thaws.
#[derive(Clone, Copy, Debug)]
pub(super) enum Controller {
    /// Nobody.
    None,
    /// Each looping program in turn, for so long.
    Turns(Span),
    /// The first looping program goes so long ahead of each request, with or without a warm-up, and comes back after.
    Ahead(Span, bool),
    /// It goes when a request comes, and comes back after.
    Reactive,
}

/// What is set up.
#[derive(Clone, Debug)]
pub(super) struct SetUp {
    /// Looping programs, with the slice of each.
    pub looping: Vec<(Looping, Span)>,
    /// The latency-critical one, with its slice.
    pub requests: Option<(Requests, Span)>,
    /// Who freezes and thaws.
    pub controller: Controller,
    /// For how long.
    pub length: Span,
}

/// What was seen.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Kernels a second of each looping program.
    pub rates: Vec<f64>,
    /// Of each request, in order of size.
    pub latencies: Vec<Span>,
    /// Short slices that only switched.
    pub livelock: bool,
}

impl Seen {
    /// In microseconds; `share` of the requests took no longer.
    pub(super) fn latency(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies
            .get((last as f64 * share).round() as usize)
            .map_or(f64::NAN, |span| span.0 as f64 / 1e3)
    }

    /// Kernels a second of all looping programs.
    pub(super) fn sum(&self) -> f64 {
        self.rates.iter().sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Burst(usize),
    Request,
    Answer,
    Freeze(usize),
    Off(usize),
    Frozen(usize),
    Thaw(usize),
    Back(usize),
    Thawed(usize),
}

struct Bench<'a> {
    set_up: &'a SetUp,
    physics: &'a Physics,
    device: Device,
    random: Random,
    now: Time,
    queue: BinaryHeap<Reverse<(Time, u64, Next)>>,
    queued: u64,
    groups: Vec<GroupId>,
    critical: Option<GroupId>,
    asked: Option<Time>,
    latencies: Vec<Span>,
}

/// Runs a set-up.
pub(super) fn run(physics: &Physics, set_up: &SetUp) -> Seen {
    let mut device = Device::new(physics);
    let groups = set_up.looping.iter().map(|&(_, slice)| device.add(slice)).collect();
    let critical = set_up.requests.map(|(_, slice)| device.add(slice));
    let mut bench = Bench {
        set_up,
        physics,
        device,
        random: Random::new(1, 0),
        now: Time::ZERO,
        queue: BinaryHeap::new(),
        queued: 0,
        groups,
        critical,
        asked: None,
        latencies: Vec::new(),
    };
    bench.begin();
    let end = Time::ZERO + set_up.length;
    while bench.step(end) {}
    let seconds = set_up.length.as_secs_f64();
    let rate = |index: usize, device: &mut Device| {
        let done = device.done(end, bench.groups[index]);
        done.0 as f64 / set_up.looping[index].0.kernel.0 as f64 / seconds
    };
    let rates = (0..bench.groups.len()).map(|index| rate(index, &mut bench.device)).collect();
    bench.latencies.sort_unstable();
    Seen { rates, latencies: bench.latencies, livelock: bench.device.livelock() }
}

impl Bench<'_> {
    fn begin(&mut self) {
        for index in 0..self.groups.len() {
            self.after(Span::ZERO, Next::Burst(index));
        }
        if let Some((requests, _)) = self.set_up.requests {
            let (Pace::Sleeping(first) | Pace::Every(first)) = requests.pace;
            self.after(first, Next::Request);
            if let Controller::Ahead(lead, _) = self.set_up.controller {
                self.after(first.less(lead), Next::Freeze(0));
            }
        }
        if let Controller::Turns(length) = self.set_up.controller {
            for index in 1..self.groups.len() {
                self.device.freeze(self.now, self.groups[index]);
            }
            self.after(length, Next::Freeze(0));
        }
    }

    fn after(&mut self, span: Span, next: Next) {
        self.queued += 1;
        self.queue.push(Reverse((self.now + span, self.queued, next)));
    }

    fn step(&mut self, end: Time) -> bool {
        let queued = self.queue.peek().map(|Reverse((at, ..))| *at);
        let Some(now) = [queued, self.device.next()].into_iter().flatten().min().filter(|at| *at <= end)
        else {
            return false;
        };
        self.now = now;
        for group in self.device.advance(now) {
            self.finished(group);
        }
        if queued == Some(now)
            && let Some(Reverse((_, _, next))) = self.queue.pop()
        {
            self.happen(next);
        }
        true
    }

    fn finished(&mut self, group: GroupId) {
        if let Some(index) = self.groups.iter().position(|one| *one == group) {
            let (looping, _) = self.set_up.looping[index];
            let late = self.random.span(looping.spread);
            self.after(looping.pause + late, Next::Burst(index));
        } else if let (Some(asked), Some((requests, _))) = (self.asked, self.set_up.requests) {
            let launched = asked + requests.launching;
            self.after(launched.since(self.now), Next::Answer);
        }
    }

    fn happen(&mut self, next: Next) {
        match next {
            Next::Burst(index) => {
                let (looping, _) = self.set_up.looping[index];
                let burst = self.random.spread(looping.burst, BURST_JITTER);
                self.device.submit(self.now, self.groups[index], burst);
            }
            Next::Request => self.request(),
            Next::Answer => self.answer(),
            Next::Freeze(index) => {
                let took = self.random.spread(self.physics.freeze_compute, self.physics.jitter);
                self.device.freezing(self.now, self.groups[index]);
                self.after(grip_effect(took, self.physics.grip_effect), Next::Off(index));
                self.after(took, Next::Frozen(index));
            }
            Next::Off(index) => self.device.freeze(self.now, self.groups[index]),
            Next::Frozen(index) => match self.set_up.controller {
                Controller::Turns(_) => self.happen(Next::Thaw((index + 1) % self.groups.len())),
                Controller::Ahead(_, true) => self.warm_up(),
                _ => {}
            },
            Next::Thaw(index) => {
                let took = self.random.spread(self.physics.thaw, self.physics.jitter);
                self.after(grip_effect(took, self.physics.grip_effect), Next::Back(index));
                self.after(took, Next::Thawed(index));
            }
            Next::Back(index) => {
                let (_, slice) = self.set_up.looping[index];
                self.device.thaw(self.now, self.groups[index], slice);
            }
            Next::Thawed(index) => {
                if let Controller::Turns(length) = self.set_up.controller {
                    self.after(length, Next::Freeze(index));
                }
            }
        }
    }

    fn warm_up(&mut self) {
        if let (None, Some(critical)) = (self.asked, self.critical) {
            self.device.submit(self.now, critical, self.physics.warm_up);
        }
    }

    fn request(&mut self) {
        let (Some((requests, _)), Some(critical)) = (self.set_up.requests, self.critical) else { return };
        let dozes = self.device.dozes(self.now);
        let service = request(self.physics, &mut self.random, requests.service, dozes);
        self.device.submit(self.now, critical, service);
        self.asked = Some(self.now);
        if let Pace::Every(period) = requests.pace {
            self.after(period, Next::Request);
            if let Controller::Ahead(lead, _) = self.set_up.controller {
                self.after(period.less(lead), Next::Freeze(0));
            }
        }
        if matches!(self.set_up.controller, Controller::Reactive) {
            self.happen(Next::Freeze(0));
        }
    }

    fn answer(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        self.latencies.push(self.now.since(asked));
        if let Some((Requests { pace: Pace::Sleeping(pause), .. }, _)) = self.set_up.requests {
            let mut late = SLEEP_LATE + self.random.span(SLEEP_LATE_SPREAD);
            if self.random.happens(AT_ANY_TIME) {
                late += self.random.below(ANY_TIME);
            }
            self.after(pause + late, Next::Request);
        }
        if matches!(self.set_up.controller, Controller::Ahead(..) | Controller::Reactive) {
            self.happen(Next::Thaw(0));
        }
    }
}
