//! The end of the daemon.

use crate::door::knock;
use crate::process::Process;
use crate::tenant::{Manners, Tenant};
use crate::world::{LARGE_BYTES, World, await_that, hello, rules};
use rota_daemon::daemon::{Input, Lost};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::time::Duration;
use wire::{BLOCK_BYTES, Connection, FromDaemon, WireError};

/// Nobody says anything for so long.
const UNTOLD_FOR: Duration = Duration::from_millis(200);

#[test]
fn without_tenants_it_ends_at_once() {
    let world = World::begin(rules());
    world.stop();
    await_that("the daemon ends", || world.ended());
}

#[test]
fn it_waits_for_tenants_that_go_on_and_takes_no_new_ones() {
    let world = World::begin(rules());
    let a = Tenant::with_memory(&world, LARGE_BYTES);
    let b = Process::start(&world, Manners::Good, LARGE_BYTES);
    world.stop();

    let turns = a.turns();
    await_that("turns go on", || a.turns() >= turns + 3);
    let late = Connection::connect(&world.socket()).expect("it still listens");
    late.send(&hello("late"), &[]).unwrap();
    match late.receive::<FromDaemon>().expect("an answer").0 {
        FromDaemon::Refused { reason } => assert!(reason.contains("stopping"), "{reason}"),
        other => panic!("a newcomer got {other:?}"),
    }

    let victim = b.id();
    b.end();
    await_that("one has left", || world.listed(victim).is_none());
    assert!(!world.ended(), "ended with a tenant");
    drop(a);
    await_that("the daemon ends with the last tenant", || world.ended());
}

#[test]
fn told_twice_it_ends_with_tenants() {
    let world = World::begin(rules());
    let a = Tenant::with_memory(&world, LARGE_BYTES);
    let b = Tenant::with_memory(&world, LARGE_BYTES);
    world.stop();
    let turns = a.turns();
    await_that("it goes on at first", || a.turns() > turns + 1);
    world.stop();
    await_that("the daemon ends", || world.ended());
    await_that("the one that is away is told that it waits for nothing", || {
        [&a, &b].iter().any(|tenant| tenant.refused().is_some_and(|why| why.contains("was stopped")))
    });
}

/// So whoever waits at the door hears nothing from this one, and asks the next.
#[test]
fn work_that_fails_is_for_the_next_worker() {
    let world = World::begin(rules());
    let stubborn = [7, 6].map(|blocks| (Tenant::join_with(&world, Manners::IgnoresUnmap), blocks));
    for (tenant, blocks) in &stubborn {
        tenant.allocate(blocks * BLOCK_BYTES);
    }
    let before = knock(&world);
    assert!(matches!(before.receive::<FromDaemon>(), Ok((FromDaemon::Waiting { .. }, _))));
    world.breaks();
    let late = knock(&world);
    assert!(matches!(world.end(), Err(Lost::Context(_))));
    for newcomer in [before, late] {
        sockopt::set_socket_timeout(&newcomer, sockopt::Timeout::Recv, Some(UNTOLD_FOR)).unwrap();
        let told = newcomer.receive::<FromDaemon>();
        assert!(matches!(told, Err(WireError::System(Errno::AGAIN))), "{told:?}");
    }
}

/// Where the device ends, it is by chance what is heard of first.
#[test]
fn a_device_that_ends_is_lost_whether_work_fails_before_or_not() {
    for fails_for in [Duration::ZERO, Duration::from_millis(20)] {
        let world = World::begin(rules());
        let inputs = world.inputs.clone();
        world.breaks();
        std::thread::sleep(fails_for);
        inputs.send(Input::Lost("the device ended".into())).expect("the daemon waits for this");
        assert!(matches!(world.end(), Err(Lost::Gpu(why)) if why == "the device ended"));
    }
}
