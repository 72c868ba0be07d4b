//! The end of the daemon.

use crate::process::Process;
use crate::tenant::{Manners, Tenant};
use crate::world::{LARGE_BYTES, World, await_that, hello, rules};
use wire::{Connection, FromDaemon};

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
