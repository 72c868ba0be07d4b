//! Even requests beside the same work, announced in each way there is: not at all, by the shim, by forecast, by the program.
//! What each way did and what it cost is told in the same figures, which fit each other.

use std::rc::Rc;

use serde_json::Value;
use wire::{Answer, Hints, LcMode, Statistics};

use crate::parts::{PUPPET, newest};
use crate::puppet::Puppet;
use crate::stage::{Program, Setup, Stage, until};

/// Requests that are served at a time.
const COUNT: u64 = 40;

/// They come so far apart: a machine that wakes programs late does so by less than an eighth of it.
const GAP_MS: u64 = 25;

/// Each way by its name in `ROTA_HINTS`, and what the program does.
const UNHINTED: (&str, &str) = ("off", "serve");
const BY_SHIM: (&str, &str) = ("shim", "serve");
/// Who only sees when there is work takes an input some time before a kernel for a request of its own.
const BY_FORECAST: (&str, &str) = ("forecast", "requests");
const BY_PROGRAM: (&str, &str) = ("sdk", "serve-hinted");

/// What there is to see of one way.
#[derive(Debug)]
struct Seen {
    /// Requests that were served.
    asked: u64,
    hints: Hints,
    service: Statistics,
    work: Statistics,
    lc_mode: LcMode,
}

impl Seen {
    fn given(&self) -> u64 {
        self.hints.sdk + self.hints.shim + self.hints.forecast
    }

    /// Of the hints, those of which it is known what became of them.
    fn settled(&self) -> u64 {
        let Hints { good, early, late, false_, missed, .. } = self.hints;
        good + early + late + false_ + missed
    }
}

/// A stage with both programs on it.
struct Scene {
    stage: Stage,
    work: Program,
    service: Puppet,
    line: String,
    asked: u64,
}

impl Scene {
    fn open((hinting, verb): (&str, &str)) -> Self {
        let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 64, rotad: &[] });
        let mut work = stage.worker(0, "work", &["--mib", "8", "--piece-mib", "4", "--seconds", "600"]);
        work.goes_on(1);
        let mut command = stage.under_rota_with(0, "service", &["--class", "lc", "--slo", "60s"]);
        command.env("ROTA_HINTS", hinting).env("ROTA_SDK", newest("librota.so")).arg(PUPPET);
        let service = Puppet::by(&stage, "service", command);
        Self { stage, work, service, line: format!("{verb} {COUNT} {GAP_MS}"), asked: 0 }
    }

    /// Serves some requests, and looks.
    fn serves(&mut self) -> Seen {
        self.service.does(&self.line);
        self.asked += COUNT;
        self.work.goes_on(1);
        self.look()
    }

    fn look(&self) -> Seen {
        let listing = self.stage.listing();
        let of = |job: &str| listing.tenants.iter().find(|tenant| tenant.job == job).expect("it is there");
        let (service, work) = (of("service"), of("work"));
        Seen {
            asked: self.asked,
            hints: service.hints.expect("it is latency-critical"),
            service: service.statistics.clone().expect("it is let in"),
            work: work.statistics.clone().expect("it is let in"),
            lc_mode: lc_mode(&self.stage),
        }
    }

    /// Nothing more comes: all that was under way has ended. Two hints of one request count as one.
    fn rests(&self) -> Seen {
        until("the GPU is nobody's first any more, and every hint has ended", || {
            let seen = self.look();
            seen.lc_mode.on_for_ns.is_none() && seen.settled() * 10 >= seen.given() * 9
        });
        self.look()
    }

    /// How often the work was taken off for a request, and not for the rest of what was off already.
    fn freezes_ahead(&self) -> u64 {
        let events = self.stage.events();
        let ahead = |event: &&Rc<Value>| {
            event["event"] == "freeze" && event["aim"].is_object() && event["rest"].is_null()
        };
        events.iter().filter(ahead).count() as u64
    }

    fn close(mut self) {
        self.work.goes_on(1);
        self.service.end();
        self.work.kill();
        self.stage.finish();
    }
}

fn lc_mode(stage: &Stage) -> LcMode {
    match stage.ask(wire::Command::Describe { what: "gpu0".into() }) {
        Answer::Described(description) => description.gpu.expect("it was asked for").lc_mode,
        other => panic!("the daemon answered {other:?}"),
    }
}

/// Whatever the way.
fn check(scene: &Scene, seen: &Seen) {
    let requests = seen.service.requests.expect("some have ended");
    let by_program = scene.line.starts_with("serve-hinted");
    assert_eq!(requests.by_program, by_program, "{seen:?}");
    if by_program {
        assert_eq!(requests.times.count, seen.asked, "{seen:?}");
    }
    // An input counts apart where nobody knows better; two at once are one.
    assert!(requests.times.count <= 2 * seen.asked, "{seen:?}");
    assert_eq!(requests.slo_missed, 0, "{seen:?}");
    // A kernel of a millisecond.
    assert!(requests.times.max_ns >= 1_000_000 && requests.times.count > 0, "{seen:?}");
    assert!(seen.settled() <= seen.given(), "one thing becomes of a hint: {seen:?}");
    let (mode, work) = (seen.lc_mode, &seen.work);
    assert!(mode.begun > 0 && mode.lasted_ns > 0, "{seen:?}");
    // There is nobody else whom it could have cost anything, or who could have been the cause.
    assert_eq!(mode.freezes, work.freezes, "{seen:?}");
    assert!(mode.switching_ns <= work.switching_ns, "{seen:?}");
    assert!(mode.held_back_ns <= work.frozen_ns + work.switching_ns, "{seen:?}");
    assert!(mode.held_back_ns <= mode.lasted_ns, "{seen:?}");
    assert_eq!(seen.service.freezes, 0, "{seen:?}");
    let ahead = scene.freezes_ahead();
    assert!(ahead <= seen.given() && ahead <= mode.freezes, "{ahead} ahead of requests: {seen:?}");
}

/// Serves requests until the GPU was made free for some of them. Where processors are busy, a freeze may be over so late that
/// the work comes back at once.
fn is_hinted(way: (&str, &str), source: impl Fn(&Hints) -> u64) {
    let mut scene = Scene::open(way);
    until("some requests find the GPU free, and the work waits for them", || {
        let seen = scene.serves();
        let is_free = seen.hints.good > 0 && seen.service.granted.is_some();
        is_free && seen.lc_mode.held_back_ns > 0 && scene.freezes_ahead() > 0
    });
    let seen = scene.rests();
    check(&scene, &seen);
    assert_eq!(source(&seen.hints), seen.given(), "nobody else gives hints: {seen:?}");
    assert!(seen.lc_mode.freezes > 0 && seen.lc_mode.switching_ns > 0, "that is its price: {seen:?}");
    assert!(seen.hints.warm_ups > 0, "{seen:?}");
    let granted = seen.service.granted.expect("somebody was taken off for it");
    assert!(granted.count <= seen.given(), "{seen:?}");
    scene.close();
}

#[test]
fn requests_that_nobody_hints_cost_the_work_beside_them_no_freeze() {
    let mut scene = Scene::open(UNHINTED);
    scene.serves();
    let seen = scene.rests();
    check(&scene, &seen);
    assert_eq!((seen.given(), seen.service.granted), (0, None), "{seen:?}");
    let mode = seen.lc_mode;
    assert_eq!(
        (mode.freezes, mode.held_back_ns, mode.switching_ns),
        (0, 0, 0),
        "it has its slices: {seen:?}"
    );
    scene.close();
}

#[test]
fn requests_that_the_shim_hints_find_the_gpu_free_at_a_price_that_is_told() {
    is_hinted(BY_SHIM, |hints| hints.shim);
}

#[test]
fn requests_that_are_foretold_find_the_gpu_free_at_a_price_that_is_told() {
    is_hinted(BY_FORECAST, |hints| hints.forecast);
}

#[test]
fn requests_that_the_program_hints_find_the_gpu_free_at_a_price_that_is_told() {
    is_hinted(BY_PROGRAM, |hints| hints.sdk);
}
