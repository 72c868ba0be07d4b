//! Requests for bytes.

use crate::tenant::{Manners, Order, Tenant, Verdict};
use crate::world::{CAPACITY_BYTES, LARGE_BYTES, SMALL_BYTES, World, await_that, rules, turns_of};
use rota_daemon::daemon::Rules;
use std::time::Duration;
use wire::{BLOCK_BYTES, TenantState};

fn denied(tenant: &Tenant, bytes: u64) -> String {
    match tenant.verdict(tenant.grow(bytes)) {
        Verdict::Denied(reason) => reason,
        Verdict::Granted => panic!("{bytes} bytes were granted"),
    }
}

#[test]
fn what_can_never_fit_is_denied_with_a_reason() {
    let world = World::begin(rules());
    let a = Tenant::with_memory(&world, SMALL_BYTES);
    let too_much = denied(&a, CAPACITY_BYTES);
    assert!(too_much.contains("would not fit on the GPU"), "{too_much}");
    for bytes in [0, 1, BLOCK_BYTES + 1] {
        let odd = denied(&a, bytes);
        assert!(odd.contains("not a multiple"), "{odd}");
    }
    assert!(denied(&a, u64::MAX / BLOCK_BYTES * BLOCK_BYTES).contains("would not fit"));
    assert_eq!(world.events_named("denied").len(), 5);
    // It has lost nothing by asking.
    a.allocate(BLOCK_BYTES);
    let steps = a.steps();
    await_that("it goes on", || a.steps() > steps);
}

#[test]
fn what_device_and_arena_cannot_hold_together_is_denied() {
    let world = World::begin(Rules { arena_bytes: BLOCK_BYTES, ..rules() });
    let _a = Tenant::with_memory(&world, LARGE_BYTES);
    let b = Tenant::with_memory(&world, SMALL_BYTES);
    let reason = denied(&b, SMALL_BYTES);
    assert!(reason.contains("all programs together"), "{reason}");
}

#[test]
fn room_is_made_in_the_middle_of_a_turn() {
    // So long that the turn is still the same when the request is heard.
    let world = World::begin(turns_of(Duration::from_secs(3)));
    let a = Tenant::with_memory(&world, LARGE_BYTES);
    let b = Tenant::with_memory(&world, SMALL_BYTES);
    await_that("the second has its turn", || {
        world.listed(b.id()).expect("it is there").state == TenantState::Running
    });
    assert_eq!(world.events_named("move_begin").len(), 0);
    b.allocate(SMALL_BYTES);
    assert!(a.was_asked_to(Order::Unmap), "there was room without moving anything");
    let moves = world.events_named("move_begin");
    assert_eq!(moves.len(), 1, "{moves:?}");
    assert_eq!(moves[0]["out"][0]["tenant"], a.id().0);
    assert_eq!(moves[0]["into"].as_array().map(Vec::len), Some(0), "in the middle of a turn");
    assert_eq!(world.listed(b.id()).expect("it is there").state, TenantState::Running);
    let turns = a.turns();
    await_that("the first comes back", || a.turns() > turns);
}

#[test]
fn one_that_waits_for_room_gets_it_with_its_turn() {
    let world = World::begin(rules());
    let a = Tenant::with_memory(&world, LARGE_BYTES);
    let b = Tenant::join(&world);
    b.allocate(LARGE_BYTES);
    assert!(a.was_asked_to(Order::Unmap));
    let goals = [a.turns() + 3, b.turns() + 3];
    await_that("both have turns", || a.turns() >= goals[0] && b.turns() >= goals[1]);
}

#[test]
fn a_request_is_granted_when_what_was_to_go_out_is_freed_instead() {
    let world = World::begin(turns_of(Duration::from_secs(3)));
    let a = Tenant::join_with(&world, Manners::FreesAtUnmap);
    a.allocate(LARGE_BYTES);
    let b = Tenant::with_memory(&world, SMALL_BYTES);
    await_that("it is b's turn", || world.listed(b.id()).expect("there").state == TenantState::Running);
    assert_eq!(b.verdict(b.grow(SMALL_BYTES)), Verdict::Granted);
    assert!(a.was_asked_to(Order::Unmap));
}
