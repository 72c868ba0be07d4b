//! An agent that answers after the daemon has given up waiting: its program was stopped by its user, say.

use crate::tenant::{Manners, Order, Tenant, Verdict};
use crate::world::{LARGE_BYTES, RULES, SMALL_BYTES, World, await_that};

#[test]
fn an_unmap_that_comes_late_takes_nothing_from_under_a_kernel() {
    let world = World::begin(RULES);
    let late = Tenant::join_with(&world, Manners::UnmapsLate);
    late.allocate_in_three(LARGE_BYTES);
    let other = Tenant::with_memory(&world, SMALL_BYTES);
    let request = other.grow(LARGE_BYTES);
    await_that("the late one is to unmap", || late.was_asked_to(Order::Unmap));
    await_that("people are told", || world.events_named("error").iter().any(|e| e["tenant"] == late.id().0));

    // Its order still stands, so it must not run: it could lose its memory at any moment.
    let (running, steps) = (other.steps(), late.steps());
    await_that("the other one runs meanwhile", || other.steps() > running + 10);
    assert_eq!(late.steps(), steps, "it runs with an order to unmap outstanding");

    // The request has waited, and is granted as soon as there is room.
    late.answer();
    assert_eq!(other.verdict(request), Verdict::Granted);
    other.use_grant(request, LARGE_BYTES);
    let goals = [late.turns() + 3, other.turns() + 3];
    await_that("both have turns when they do not fit", || {
        late.turns() >= goals[0] && other.turns() >= goals[1]
    });
}

#[test]
fn a_create_that_comes_late_is_undone_and_done_again_when_there_is_time() {
    let world = World::begin(RULES);
    let late = Tenant::join_with(&world, Manners::CreatesLate);
    late.allocate_in_three(LARGE_BYTES);
    let other = Tenant::with_memory(&world, LARGE_BYTES);
    await_that("the late one is to create", || late.was_asked_to(Order::Create));
    await_that("people are told", || world.events_named("error").iter().any(|e| e["tenant"] == late.id().0));
    let running = other.steps();
    await_that("the other one runs meanwhile", || other.steps() > running + 10);
    // Memory that nobody waits for any more comes up, and goes again. Then both take turns as if nothing had been.
    late.answer();
    let goals = [late.turns() + 5, other.turns() + 5];
    await_that("both have turns", || late.turns() >= goals[0] && other.turns() >= goals[1]);
    let errors = world.events_named("error").len();
    let goals = [late.turns() + 10, other.turns() + 10];
    await_that("both have more turns", || late.turns() >= goals[0] && other.turns() >= goals[1]);
    assert_eq!(world.events_named("error").len(), errors, "books and memory disagree");
}
