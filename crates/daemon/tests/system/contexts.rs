//! Programs that give up their context and make another one. What is frozen then is the program, not the context.

use crate::tenant::Tenant;
use crate::world::{LARGE_BYTES, SMALL_BYTES, World, await_that, turns_of};
use std::time::Duration;
use wire::TenantState;

/// Long enough that a state that was seen is still there when it is acted on.
const LONG_TURN: Duration = Duration::from_millis(500);

/// Two of this size, one of which makes another context while it is in this state.
fn renew_one(world: &World, bytes: u64, state: TenantState) -> (Tenant, Tenant) {
    let (a, b) = (Tenant::with_memory(world, bytes), Tenant::with_memory(world, bytes));
    drop_context_when(world, &a, state);
    a.make_context();
    let goals = [a.turns() + 3, b.turns() + 3];
    await_that("both have turns again", || a.turns() >= goals[0] && b.turns() >= goals[1]);
    (a, b)
}

fn drop_context_when(world: &World, tenant: &Tenant, state: TenantState) {
    let now = || world.listed(tenant.id()).expect("it is there").state;
    await_that(&format!("it is {state}"), || now() == state);
    tenant.drop_context();
    await_that("it takes no turns", || now() == TenantState::Joined);
}

#[test]
fn a_context_that_is_made_while_its_program_is_frozen_runs() {
    let world = World::begin(turns_of(LONG_TURN));
    let (a, b) = renew_one(&world, SMALL_BYTES, TenantState::Frozen);
    // Also when there is nobody left to take turns with.
    drop_context_when(&world, &a, TenantState::Frozen);
    drop(b);
    let steps = a.steps();
    a.make_context();
    await_that("it runs alone", || a.steps() > steps + 2);
}

#[test]
fn a_context_that_is_made_while_memory_is_away_gets_its_turn() {
    let world = World::begin(turns_of(LONG_TURN));
    renew_one(&world, LARGE_BYTES, TenantState::Away);
}
