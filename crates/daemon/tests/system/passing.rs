//! Memory that goes from one tenant to the next.

use crate::tenant::{Manners, Order, Tenant, Verdict};
use crate::world::{World, await_that, rules};
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
