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
    let (turns, steps) = (other.turns(), late.steps());
    await_that("the other one has turns meanwhile", || other.turns() > turns + 1);
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
