//! Requests of a latency-critical program beside a best-effort one: hinted, falsely hinted, hinted too late, left in the
//! middle; phases in which a program gives way; terms that a program asks for itself.

use crate::tenant::{Tenant, Verdict};
use crate::world::{SMALL_BYTES, World, await_some, await_that, rules, turns_of};
use std::time::{Duration, Instant};
use wire::{
    Answer, Change, Class, Command, Description, HintSource, Hints, JobRequest, LcMode, TenantState,
    ToDaemon, monotonic_ns,
};

pub(crate) const SERVICE: &str = "service";
pub(crate) const MS: u64 = 1_000_000;

/// However unlucky the machine is.
const TRIES_MAX: usize = 500;

/// A latency-critical program without work, whose job is there.
fn service(world: &World) -> Tenant {
    let asked = Change { class: Some(Class::LatencyCritical), ..Change::default() };
    let request = JobRequest { name: SERVICE.into(), asked, ..JobRequest::default() };
    assert!(matches!(world.command(Command::Open(request)), Answer::Opened(_)));
    let tenant = Tenant::join_in(world, SERVICE);
    await_that("its page says what it is", || tenant.page().critical());
    assert!(tenant.page().rest(monotonic_ns()));
    tenant
}

/// With a best-effort program beside it, which has work all the time.
pub(crate) fn beside_work() -> (World, Tenant, Tenant) {
    let world = World::begin(rules());
    let service = service(&world);
    let work = Tenant::with_memory(&world, SMALL_BYTES);
    let has_context = |tenant: wire::Tenant| tenant.state != TenantState::Joined;
    await_that("the service is on", || world.listed(service.id()).is_some_and(has_context));
    await_that("the work is on", || work.steps() > 0);
    (world, service, work)
}

fn idles(world: &World, tenant: &Tenant) -> usize {
    count(world, "idle", tenant)
}

fn count(world: &World, event: &str, tenant: &Tenant) -> usize {
    let id = u64::from(tenant.id().0);
    world.events_named(event).iter().filter(|event| event["tenant"] == id).count()
}

fn hints(world: &World, tenant: &Tenant) -> Hints {
    world.listed(tenant.id()).and_then(|listed| listed.hints).expect("it is latency-critical")
}

pub(crate) fn hint(tenant: &Tenant, within_ns: u64) {
    tenant.say(&ToDaemon::Hint { at_ns: monotonic_ns() + within_ns, source: HintSource::Sdk });
}

/// A request has work.
pub(crate) fn begin(tenant: &Tenant) {
    tenant.page().set_requests_open(1);
    if tenant.page().wake(monotonic_ns()) {
        tenant.say(&ToDaemon::Wants { since_ns: monotonic_ns() });
    }
}

/// A request is served.
pub(crate) fn end(tenant: &Tenant) {
    tenant.page().rest(monotonic_ns());
    tenant.page().set_requests_open(0);
    tenant.say(&ToDaemon::Served);
}

/// Hints a request, and begins it once others are off, or it is past its time.
pub(crate) fn request(service: &Tenant, work: &Tenant) {
    hint(service, 5 * MS);
    let due = Instant::now() + Duration::from_millis(30);
    while !work.page().frozen() && Instant::now() < due {
        std::thread::sleep(Duration::from_micros(50));
    }
    begin(service);
}

#[test]
fn a_request_that_nobody_ends_counts_for_none_after_a_while() {
    let (world, service, _work) = beside_work();
    let wanted = count(&world, "wants", &service);
    begin(&service);
    await_that("it has a request", || count(&world, "wants", &service) > wanted);
    let before = idles(&world, &service);
    let begun = Instant::now();
    service.page().rest(monotonic_ns());
    await_that("it counts for none", || idles(&world, &service) > before);
    assert!(begun.elapsed() > Duration::from_secs(2), "its pauses are its own for a while");
}

#[test]
fn a_hinted_request_finds_the_gpu_free_and_its_end_frees_it_for_others() {
    let (world, service, work) = beside_work();
    await_that("its kernel is loaded", || service.warm_ups() > 0);
    let before = service.warm_ups();
    for _ in 0..TRIES_MAX {
        request(&service, &work);
        end(&service);
        await_that("others may go on", || !work.page().frozen());
        if hints(&world, &service).good > 0 && service.warm_ups() > before {
            break;
        }
    }
    let seen = hints(&world, &service);
    assert!(seen.good > 0 && seen.sdk >= seen.good, "{seen:?}");
    assert!(service.warm_ups() > before, "nobody loaded its context");
    let at_once = |event: &serde_json::Value| event["for_ns"] == 0 && event["job"] == SERVICE;
    assert!(world.events_named("idle").iter().any(at_once), "its word was not enough");
    let freezes = world.events_named("freeze");
    let is_aimed = |event: &&serde_json::Value| event["scope"] == "compute" && event["aim"].is_object();
    let aimed = freezes.iter().find(is_aimed).expect("a freeze for a hint");
    let aim = &aimed["aim"];
    let instants = [&aim["due_ns"], &aim["ordered_ns"], &aimed["begun_ns"], &aimed["t_ns"]];
    let instants = instants.map(|at| at.as_u64().expect("people are told when"));
    assert!(instants.is_sorted() && aim["expect_ns"].as_u64() > Some(instants[0]), "{aimed}");
    let steps = work.steps();
    await_that("work goes on", || work.steps() > steps);
}

fn lc_mode(world: &World) -> LcMode {
    match world.command(Command::Describe { what: "gpu0".into() }) {
        Answer::Described(Description { gpu: Some(gpu), .. }) => gpu.lc_mode,
        other => panic!("asked for a GPU, got {other:?}"),
    }
}

#[test]
fn when_a_gpu_is_latency_critical_programs_first_and_what_that_took_from_others_is_told() {
    let (world, service, work) = beside_work();
    let listed = || world.listing().gpus[0].lc_mode_for_ns;
    let ends = || world.events_named("lc_mode_end");
    await_that("nobody has stirred for a while", || lc_mode(&world).on_for_ns.is_none());
    assert_eq!(listed(), None);
    let (before, ended) = (lc_mode(&world), ends().len());
    for _ in 0..TRIES_MAX {
        request(&service, &work);
        end(&service);
        await_that("others may go on", || !work.page().frozen());
        // On a busy machine a freeze is over so late that the work comes back at once.
        let seen = lc_mode(&world);
        if seen.freezes >= before.freezes + 3 && seen.held_back_ns > before.held_back_ns {
            break;
        }
    }
    let seen = lc_mode(&world);
    assert!(seen.freezes >= before.freezes + 3 && seen.begun > before.begun, "{before:?} {seen:?}");
    assert!(seen.held_back_ns > before.held_back_ns && seen.switching_ns > before.switching_ns, "{seen:?}");
    assert!(seen.lasted_ns >= seen.held_back_ns, "{seen:?}");
    await_that("it is over", || listed().is_none() && ends().len() > ended);
    let (seen, ends) = (lc_mode(&world), ends());
    assert_eq!(world.events_named("lc_mode_begin").len(), ends.len());
    let sum = |field: &str| ends.iter().map(|end| end[field].as_u64().unwrap()).sum::<u64>();
    let told = LcMode {
        on_for_ns: None,
        begun: ends.len() as u64,
        lasted_ns: sum("lasted_ns"),
        held_back_ns: sum("held_back_ns"),
        freezes: sum("freezes"),
        switching_ns: sum("switching_ns"),
    };
    assert_eq!(seen, told, "the events tell all of it");
}

/// Hints a request, and looks at the page until it is past its time. Whether a warm-up was ordered, and expected before that.
fn watched(service: &Tenant) -> (bool, bool) {
    let page = service.page();
    let ordered = page.warm_ups_ordered();
    hint(service, 3 * MS);
    let due = Instant::now() + Duration::from_millis(10);
    let mut expected = false;
    while page.warm_ups_ordered() == ordered && Instant::now() < due {
        expected |= page.warm_up_is_expected(monotonic_ns());
    }
    begin(service);
    end(service);
    (page.warm_ups_ordered() > ordered, expected)
}

#[test]
fn whoever_stays_awake_for_warm_ups_is_told_when_a_freeze_begins_and_ordered_to_when_it_is_over() {
    let (_world, service, work) = beside_work();
    await_that("its kernel is loaded", || service.warm_ups() > 0);
    let next = || {
        let seen = watched(&service);
        await_that("others may go on", || !work.page().frozen());
        std::thread::sleep(Duration::from_millis(5));
        seen
    };
    let seen: Vec<_> = (0..20).map(|_| next()).collect();
    assert!(seen.iter().any(|&(ordered, _)| ordered), "{seen:?}");
    assert!(!seen.iter().any(|&(_, expected)| expected), "it sleeps: {seen:?}");
    service.page().await_warm_ups();
    assert!((0..TRIES_MAX).any(|_| next() == (true, true)), "nobody tells it");
}

#[test]
fn a_service_loads_its_warm_up_kernel_in_its_first_pause_and_others_load_none() {
    let (world, service, work) = beside_work();
    await_that("the service is told to", || service.warm_ups() > 0);
    assert!(world.events_named("warm_up").is_empty(), "nothing was hinted");
    let told = service.warm_ups();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!((service.warm_ups(), work.warm_ups()), (told, 0), "once it has, it is not told again");
}

#[test]
fn moves_go_gently_while_a_request_is_served_and_some_time_after() {
    let (world, service, _work) = beside_work();
    await_that("nobody needs the bus", || !world.pace.is_gentle());
    begin(&service);
    await_that("moves go gently", || world.pace.is_gentle());
    end(&service);
    await_that("the request is over", || !world.pace.is_gentle());
}

#[test]
fn a_program_inside_a_request_is_not_taken_for_idle() {
    let (world, service, _work) = beside_work();
    begin(&service);
    // Between two kernels, say.
    service.page().rest(monotonic_ns());
    let wanted = |event: &serde_json::Value| event["job"] == SERVICE;
    await_that("it has work", || world.events_named("wants").iter().any(wanted));
    let before = idles(&world, &service);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(idles(&world, &service), before);
    service.page().set_requests_open(0);
    service.say(&ToDaemon::Served);
    await_that("it is idle", || idles(&world, &service) > before);
}

#[test]
fn hints_that_nothing_follows_are_counted_and_then_not_listened_to() {
    let (world, service, work) = beside_work();
    for _ in 0..TRIES_MAX {
        let before = hints(&world, &service);
        if before.false_ >= 4 && before.missed > 0 {
            break;
        }
        hint(&service, 3 * MS);
        let ended = |hints: Hints| hints.false_ + hints.missed > before.false_ + before.missed;
        await_that("the hint ends", || ended(hints(&world, &service)));
    }
    let seen = hints(&world, &service);
    assert!(seen.false_ >= 4 && seen.missed > 0 && seen.good == 0, "{seen:?}");
    let steps = work.steps();
    await_that("work goes on", || work.steps() > steps);
}

#[test]
fn who_hints_all_the_time_is_found_out_and_others_go_on() {
    let (world, service, work) = beside_work();
    let (mut round, steps) = (0, work.steps());
    await_that("most of its hints are not listened to", || {
        hint(&service, 2 * MS);
        round += 1;
        if round % 20 == 0 {
            begin(&service);
            end(&service);
        }
        let seen = hints(&world, &service);
        seen.false_ >= 4 && seen.missed > 10 * seen.good.max(1)
    });
    await_that("work goes on meanwhile", || {
        hint(&service, 2 * MS);
        work.steps() > steps + 10
    });
}

#[test]
fn a_hint_that_comes_too_late_is_missed_and_said_so() {
    let (world, service, work) = beside_work();
    await_that("the work is on", || !work.page().frozen());
    for _ in 0..TRIES_MAX {
        hint(&service, 0);
        if world.events_named("hint_missed").iter().any(|event| event["why"] == "late") {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(hints(&world, &service).missed > 0);
    assert!(!world.events_named("hint_missed").is_empty());
}

#[test]
fn a_program_that_dies_inside_a_request_holds_nobody_back() {
    let (world, service, work) = beside_work();
    let held = (0..TRIES_MAX).any(|_| {
        request(&service, &work);
        std::thread::sleep(Duration::from_millis(20));
        let held = work.page().frozen();
        if !held {
            end(&service);
            await_that("others may go on", || !work.page().frozen());
        }
        held
    });
    assert!(held, "nobody made room for it");
    drop(service);
    let left = await_some("it is gone", || world.events_named("left").pop());
    await_that("others may go on", || !work.page().frozen());
    let since = left["t_ns"].as_u64().expect("a time");
    let thawed = await_some("the thaw is told", || {
        let later = |event: &serde_json::Value| event["t_ns"].as_u64().is_some_and(|at| at >= since);
        world.events_named("thaw").into_iter().find(later)
    });
    let waited = thawed["t_ns"].as_u64().expect("a time") - since;
    assert!(waited < 400 * MS, "its request was waited for: {waited} ns");
}

#[test]
fn whoever_is_in_a_phase_gives_way_as_soon_as_it_has_no_work() {
    let world = World::begin(turns_of(Duration::from_secs(600)));
    let (saver, other) = (Tenant::join(&world), Tenant::join(&world));
    let first = await_some("one of them has its turn", || {
        let frozen = [&saver, &other].map(|tenant| tenant.page().frozen());
        (frozen[0] != frozen[1]).then_some(frozen[1])
    });
    let (saver, other) = if first { (saver, other) } else { (other, saver) };
    saver.page().set_phases_open(1);
    saver.say(&ToDaemon::Phase);
    await_that("that is heard", || !world.events_named("phase").is_empty());
    assert!(other.page().frozen(), "it has work still");
    saver.page().rest(monotonic_ns());
    await_that("the other one has its turn", || !other.page().frozen());
    assert_eq!(world.events_named("phase")[0]["gives_way"], true);
}

#[test]
fn a_program_changes_its_jobs_terms_as_far_as_its_user_may() {
    let world = World::begin(rules());
    let service = service(&world);
    let set = |class, weight| {
        service.verdict(service.request(|request| ToDaemon::Set { request, class, weight }, &[]))
    };
    assert_eq!(set(Some(Class::BestEffort), Some(3)), Verdict::Granted);
    assert!(!service.page().critical());
    let Answer::Described(found) = world.command(Command::Describe { what: SERVICE.into() }) else {
        panic!("it is there")
    };
    assert_eq!((found.jobs[0].terms.class, found.jobs[0].terms.weight), (Class::BestEffort, 3));
    let Verdict::Denied(reason) = set(None, Some(5_000)) else { panic!("more than anybody may have") };
    assert!(reason.contains("weight"), "{reason}");
    assert_eq!(set(Some(Class::LatencyCritical), None), Verdict::Granted);
    assert!(service.page().critical());
}

#[test]
fn a_program_that_is_frozen_before_it_has_told_of_its_work_is_found_to_have_some() {
    let (world, service, _work) = beside_work();
    // Seen to have none, so that it is watched: what it had when it came is over.
    await_that("it is idle", || service.page().is_watched());
    let wanted = count(&world, "wants", &service);
    // The driver keeps its launch, behind which it would tell.
    assert!(service.page().wake(monotonic_ns()), "the daemon is to be told");
    world.command(Command::Pause { job: SERVICE.into() });
    await_that("it is off", || service.page().frozen());
    await_that("its work is known", || count(&world, "wants", &service) > wanted);
    world.command(Command::Resume { job: SERVICE.into() });
    await_that("it goes on", || !service.page().frozen());
}
