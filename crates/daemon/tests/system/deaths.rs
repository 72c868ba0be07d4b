//! A tenant is killed at the worst moments. The others go on, and all it had is given back.

use crate::process::Process;
use crate::tenant::{Manners, Tenant};
use crate::world::{LARGE_BYTES, RESIDUE_BYTES, SMALL_BYTES, World, await_that, rules, turns_of};
use std::time::Duration;
use wire::TenantState;

/// Turns so long that a state that was seen is still there when it is acted on, most of the time. Nothing here fails
/// if it is not.
const LONG_TURN: Duration = Duration::from_millis(200);

/// Kills the victim, and checks what is left.
fn kill_and_check(world: &World, mut victim: Process, survivor: &Tenant, bytes: u64) {
    victim.kill();
    await_that("the death is noticed", || world.listed(victim.id()).is_none());
    await_that("the dead tenant is reaped", || {
        world.events_named("reaped").iter().any(|event| event["tenant"] == victim.id().0)
    });
    assert!(!victim.control_file_is_held(), "a copy of its control file is open");

    let steps = survivor.steps();
    await_that("the survivor runs", || survivor.steps() > steps + 2);
    await_that("all it had is given back", || {
        let listing = world.listing();
        let gpu = &listing.gpus[0];
        listing.tenants.len() == 1
            && listing.tenants[0].state == TenantState::Running
            && gpu.arena_used_bytes == 0
            && gpu.used_bytes == bytes + RESIDUE_BYTES
            && world.imported_bytes() == bytes
    });

    // Its place can be taken.
    let newcomer = Tenant::with_memory(world, bytes);
    let goals = [survivor.turns() + 3, newcomer.turns() + 3];
    await_that("the survivor and a newcomer have turns", || {
        survivor.turns() >= goals[0] && newcomer.turns() >= goals[1]
    });
}

fn await_state(world: &World, process: &Process, state: TenantState) {
    await_that(&format!("the victim is {state}"), || {
        world.listed(process.id()).expect("it lives").state == state
    });
}

#[test]
fn one_is_killed_while_it_runs() {
    let world = World::begin(turns_of(LONG_TURN));
    let survivor = Tenant::with_memory(&world, LARGE_BYTES);
    let victim = Process::start(&world, Manners::Good, LARGE_BYTES);
    await_state(&world, &victim, TenantState::Running);
    kill_and_check(&world, victim, &survivor, LARGE_BYTES);
}

#[test]
fn one_is_killed_while_it_is_frozen() {
    let world = World::begin(turns_of(LONG_TURN));
    let survivor = Tenant::with_memory(&world, SMALL_BYTES);
    let victim = Process::start(&world, Manners::Good, SMALL_BYTES);
    await_state(&world, &victim, TenantState::Frozen);
    kill_and_check(&world, victim, &survivor, SMALL_BYTES);
}

#[test]
fn one_is_killed_while_it_is_away() {
    let world = World::begin(turns_of(LONG_TURN));
    let survivor = Tenant::with_memory(&world, LARGE_BYTES);
    let victim = Process::start(&world, Manners::Good, LARGE_BYTES);
    await_state(&world, &victim, TenantState::Away);
    kill_and_check(&world, victim, &survivor, LARGE_BYTES);
}

#[test]
fn one_is_killed_while_it_is_to_unmap() {
    let world = World::begin(rules());
    let survivor = Tenant::with_memory(&world, LARGE_BYTES);
    let victim = Process::start(&world, Manners::IgnoresUnmap, LARGE_BYTES);
    victim.await_line("unmap");
    assert_eq!(world.listed(victim.id()).expect("it lives").state, TenantState::Moving);
    kill_and_check(&world, victim, &survivor, LARGE_BYTES);
}

#[test]
fn one_is_killed_while_it_is_to_create() {
    let world = World::begin(rules());
    let survivor = Tenant::with_memory(&world, LARGE_BYTES);
    let victim = Process::start(&world, Manners::IgnoresCreate, LARGE_BYTES);
    victim.await_line("create");
    assert_eq!(world.listed(victim.id()).expect("it lives").state, TenantState::Moving);
    kill_and_check(&world, victim, &survivor, LARGE_BYTES);
}

#[test]
fn one_that_ends_by_itself_found_nothing_wrong() {
    let world = World::begin(rules());
    let survivor = Tenant::with_memory(&world, LARGE_BYTES);
    let process = Process::start(&world, Manners::Good, LARGE_BYTES);
    await_that("the process has turns", || world.listed(process.id()).expect("it lives").turns >= 5);
    process.end();
    let steps = survivor.steps();
    await_that("the other goes on", || survivor.steps() > steps + 2);
}
