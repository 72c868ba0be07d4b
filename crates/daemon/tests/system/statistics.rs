//! What programs went through, as the daemon counts it and tells people: requests, how soon somebody had the GPU, freezes, moves.

use crate::requests::{MS, SERVICE, begin, beside_work, end, hint, request};
use crate::tenant::Tenant;
use crate::world::{LARGE_BYTES, World, await_some, await_that, rules, turns_of};
use std::time::{Duration, Instant};
use wire::{Answer, Command, Statistics, ToDaemon, monotonic_ns};

const TRIES_MAX: usize = 500;

fn statistics(world: &World, tenant: &Tenant) -> Statistics {
    world.listed(tenant.id()).and_then(|listed| listed.statistics).expect("it is let in")
}

#[test]
fn how_soon_a_hinted_request_had_the_gpu_is_counted_and_what_that_cost_the_others() {
    let (world, service, work) = beside_work();
    assert_eq!(statistics(&world, &service), Statistics::default());
    for _ in 0..TRIES_MAX {
        request(&service, &work);
        end(&service);
        await_that("others may go on", || !work.page().frozen());
        if statistics(&world, &service).granted.is_some_and(|granted| granted.max_ns > 0) {
            break;
        }
    }
    let seen = statistics(&world, &service);
    let granted = seen.granted.expect("somebody was taken off for it");
    assert!(granted.max_ns > 0, "that takes time");
    // Another thread writes them.
    await_that("the events are written", || world.events_named("warm_up").len() as u64 >= granted.count);
    let events = world.events();
    let of = |name: &str, tenant: &Tenant| {
        let id = u64::from(tenant.id().0);
        events.iter().filter(|event| event["event"] == name && event["tenant"] == id).count() as u64
    };
    assert_eq!(granted.count, of("warm_up", &service), "each time that it had the GPU");
    let took = events.iter().filter_map(|event| event["granted_ns"].as_u64()).max();
    assert_eq!(took, Some(granted.max_ns), "the events say the same");
    assert_eq!(seen.freezes, 0, "nobody takes the service off");
    let cost = statistics(&world, &work);
    assert!(cost.freezes > 0 && cost.freezes <= of("freeze", &work), "{cost:?}");
    assert!(cost.frozen_ns > 0 && cost.switching_ns > 0 && cost.moving_ns == 0, "{cost:?}");
}

#[test]
fn the_end_of_a_request_is_awaited_only_while_others_are_kept_off_for_it() {
    let (_world, service, work) = beside_work();
    await_that("others are kept off for it", || {
        hint(&service, 5 * MS);
        let due = Instant::now() + Duration::from_millis(30);
        while !service.page().end_is_awaited() && Instant::now() < due {
            std::thread::sleep(Duration::from_micros(50));
        }
        let awaited = service.page().end_is_awaited();
        begin(&service);
        end(&service);
        await_that("others may go on", || !work.page().frozen());
        awaited
    });
    await_that("nobody waits for it", || !service.page().end_is_awaited());
}

#[test]
fn requests_and_phases_are_told_as_the_page_says() {
    let (world, service, _work) = beside_work();
    service.page().tell_requests();
    for took in [70_000, 80_000, 2_000_000] {
        service.page().add_request(took, Some(1_000_000));
    }
    service.page().set_phase_name(b"checkpoint");
    service.page().set_phases_open(1);
    service.say(&ToDaemon::Phase);
    let phase = await_some("the phase is told", || world.events_named("phase").pop());
    assert_eq!(phase["name"], "checkpoint");
    let Answer::Described(found) = world.command(Command::Describe { what: SERVICE.into() }) else {
        panic!("it is there")
    };
    let seen = found.jobs[0].tenants[0].statistics.clone().expect("it is let in");
    assert_eq!(
        (Some(&seen), seen.phase.as_deref()),
        (Some(&statistics(&world, &service)), Some("checkpoint"))
    );
    let requests = seen.requests.expect("some have ended");
    assert_eq!((requests.by_program, requests.times.count, requests.slo_missed), (true, 3, 1));
    assert_eq!(requests.times.max_ns, 2_000_000);
    drop(service);
    let left = await_some("it is gone", || world.events_named("left").pop());
    assert_eq!(left["statistics"]["requests"]["times"]["count"], 3, "{left}");
}

#[test]
fn whoever_comes_to_have_work_while_it_is_off_has_the_gpu_some_time_later() {
    let world = World::begin(turns_of(Duration::from_millis(20)));
    let (one, other) = (Tenant::join(&world), Tenant::join(&world));
    await_that("it was off and has none", || {
        one.page().rest(monotonic_ns());
        // The other has work: on a busy machine it takes its time to get the GPU.
        let off = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            one.page().frozen()
        });
        if one.page().wake(monotonic_ns()) {
            one.say(&ToDaemon::Wants { since_ns: monotonic_ns() });
        }
        await_that("it has its turn", || !one.page().frozen());
        off && statistics(&world, &one).granted.is_some_and(|granted| granted.max_ns > 0)
    });
    assert!(statistics(&world, &one).freezes > 0);
    assert!(statistics(&world, &other).frozen_ns > 0);
}

#[test]
fn moves_count_for_everybody_whose_memory_was_in_them() {
    let world = World::begin(rules());
    let tenants = [(); 2].map(|()| Tenant::with_memory(&world, LARGE_BYTES));
    await_that("all had turns and were moved", || {
        tenants.iter().all(|tenant| {
            let seen = statistics(&world, tenant);
            seen.moving_ns > 0 && seen.freezes > 0
        })
    });
}
