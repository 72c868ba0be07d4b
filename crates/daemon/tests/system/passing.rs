//! Memory that goes from one tenant to the next.

use crate::process::Process;
use crate::tenant::{Manners, Order, Tenant, Verdict};
use crate::world::{LARGE_BYTES, World, await_that, rules};
use wire::{BLOCK_BYTES, HandleId, ToDaemon};

const HANDLES: u64 = 3;

/// A tenant with handles of the same size, that fill most of the device.
fn tenant(world: &World, manners: Manners) -> (Tenant, Vec<HandleId>) {
    let tenant = Tenant::join_with(world, manners);
    let handles = (0..HANDLES).map(|_| tenant.allocate(3 * BLOCK_BYTES)).collect();
    (tenant, handles)
}

fn await_turns(tenants: &[&Tenant]) {
    let goals: Vec<_> = tenants.iter().map(|tenant| tenant.turns() + 4).collect();
    await_that("all have turns", || tenants.iter().zip(&goals).all(|(tenant, goal)| tenant.turns() >= *goal));
}

#[test]
fn programs_that_say_so_have_each_others_memory() {
    let world = World::begin(rules());
    let (a, _) = tenant(&world, Manners::Passes);
    let (b, _) = tenant(&world, Manners::Passes);
    await_turns(&[&a, &b]);
    assert!(a.was_asked_to(Order::Take) && b.was_asked_to(Order::Take));
}

#[test]
fn who_does_not_say_so_has_its_own() {
    let world = World::begin(rules());
    let (a, _) = tenant(&world, Manners::Passes);
    let (b, _) = tenant(&world, Manners::Good);
    await_turns(&[&a, &b]);
    assert!(!a.was_asked_to(Order::Take) && !b.was_asked_to(Order::Take));
}

#[test]
fn what_was_pinned_once_is_never_passed() {
    let world = World::begin(rules());
    let (a, handles) = tenant(&world, Manners::Passes);
    assert_eq!(a.pin(&handles), Verdict::Granted);
    a.request(|_| ToDaemon::Unpin { handles }, &[]);
    let (b, _) = tenant(&world, Manners::Passes);
    await_turns(&[&a, &b]);
    assert!(a.was_asked_to(Order::Unmap), "it was moved");
    assert!(!a.was_asked_to(Order::Take) && !b.was_asked_to(Order::Take));
}

#[test]
fn who_cannot_take_creates_instead() {
    let world = World::begin(rules());
    let (a, _) = tenant(&world, Manners::Passes);
    let (b, _) = tenant(&world, Manners::PassesOnly);
    await_turns(&[&a, &b]);
    assert!(b.was_asked_to(Order::Take) && b.was_asked_to(Order::Create));
}

#[test]
fn who_becomes_another_has_its_own_from_then_on() {
    let world = World::begin(rules());
    let a = Tenant::join_with(&world, Manners::Passes);
    a.allocate_in_three(LARGE_BYTES);
    let mut b = Process::start(&world, Manners::Passes, LARGE_BYTES);
    let passed = || -> Vec<u64> {
        let moves = world.events_named("move_end");
        moves.iter().map(|end| end["passed_bytes"].as_u64().expect("a number")).collect()
    };
    await_that("memory is passed both ways", || passed().iter().filter(|bytes| **bytes > 0).count() >= 4);
    b.become_strange();
    // One may have been under way.
    let before = passed().len() + 1;
    await_that("they still take turns", || passed().len() >= before + 6);
    assert_eq!(passed()[before..].iter().sum::<u64>(), 0);
    b.end();
}
