//! Programs free memory at any time, wherever it is: that is work for the CPU, which nobody freezes.

use crate::tenant::{Manners, Tenant};
use crate::world::{
    CAPACITY_BYTES, LARGE_BYTES, RESERVE_BYTES, RESIDUE_BYTES, World, await_that, roomy, rules,
};
use wire::{BLOCK_BYTES, TenantState};

fn await_turns(a: &Tenant, b: &Tenant) {
    let goals = [a.turns() + 3, b.turns() + 3];
    await_that("both have turns", || a.turns() >= goals[0] && b.turns() >= goals[1]);
}

/// Frees all, and checks that nothing is left anywhere.
fn free_all_and_check(world: &World, tenants: &[&Tenant]) {
    for tenant in tenants {
        for handle in tenant.handles() {
            tenant.free(handle);
        }
    }
    await_that("nothing is left", || {
        let gpu = &world.listing().gpus[0];
        let contexts = RESIDUE_BYTES * tenants.len() as u64;
        gpu.used_bytes == contexts && gpu.arena_used_bytes == 0 && world.imported_bytes() == 0
    });
}

#[test]
fn handles_are_freed_while_away() {
    let world = World::begin(roomy());
    let a = Tenant::with_memory(&world, LARGE_BYTES);
    // Nearly all there is: no handle of the first fits beside it.
    let b = Tenant::with_memory(&world, 13 * BLOCK_BYTES);
    for left in [2, 1, 0] {
        await_that("it is away", || world.listed(a.id()).expect("it is there").state == TenantState::Away);
        a.free(a.handles()[0]);
        await_turns(&a, &b);
        assert_eq!(a.handles().len(), left);
    }
    assert_eq!(world.listed(a.id()).expect("it is there").away_bytes, 0);
    free_all_and_check(&world, &[&a, &b]);
}

#[test]
fn handles_are_freed_while_they_go_out() {
    freed_in_a_move(Manners::FreesAtUnmap);
}

#[test]
fn handles_are_freed_while_they_come_in() {
    freed_in_a_move(Manners::FreesAtCreate);
}

fn freed_in_a_move(manners: Manners) {
    let world = World::begin(rules());
    let a = Tenant::with_memory(&world, LARGE_BYTES);
    let b = Tenant::join_with(&world, manners);
    b.allocate_in_three(LARGE_BYTES);
    await_that("some are freed", || b.handles().len() <= 2);
    await_turns(&a, &b);
    free_all_and_check(&world, &[&a, &b]);
}

#[test]
fn memory_comes_and_goes_all_the_time() {
    let world = World::begin(rules());
    let a = Tenant::with_memory(&world, LARGE_BYTES);
    let b = Tenant::with_memory(&world, LARGE_BYTES);
    std::thread::scope(|scope| {
        for tenant in [&a, &b] {
            scope.spawn(move || {
                for round in 0..12 {
                    let handles = tenant.handles();
                    tenant.free(handles[round * 7 % handles.len()]);
                    tenant.allocate(BLOCK_BYTES * (1 + round as u64 % 2));
                }
            });
        }
    });
    await_turns(&a, &b);
    let peak = world.meter.peak();
    assert!(peak + RESERVE_BYTES <= CAPACITY_BYTES, "{peak} bytes were in use");
    free_all_and_check(&world, &[&a, &b]);
}

#[test]
fn what_was_just_freed_can_be_had_again_at_once() {
    let world = World::begin(rules());
    let a = Tenant::join(&world);
    // More than half of all there is for one.
    let bytes = 12 * BLOCK_BYTES;
    let mut handle = a.allocate(bytes);
    for _ in 0..20 {
        a.free(handle);
        handle = a.allocate(bytes);
    }
    assert_eq!(world.events_named("denied"), Vec::<serde_json::Value>::new());
    let peak = world.meter.peak();
    assert!(peak + RESERVE_BYTES <= CAPACITY_BYTES, "{peak} bytes were in use");
}
