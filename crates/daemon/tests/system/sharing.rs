//! Tenants that take turns, those that fit together and those that do not.

use crate::engine::{self, Switch};
use crate::tenant::{Order, Tenant};
use crate::world::{
    CAPACITY_BYTES, LARGE_BYTES, RESERVE_BYTES, RESIDUE_BYTES, SMALL_BYTES, World, await_that, rules,
};
use rota_daemon::daemon::Rules;
use sched::{PolicyKind, Settings};
use std::collections::BTreeMap;
use wire::{BLOCK_BYTES, TenantState};

const TURNS: u64 = 10;

/// From the moment on when each of them has been frozen once, one runs, and while the next one is put on before it is taken
/// off, those two.
fn assert_one_at_a_time(switches: &[Switch], tenants: usize) {
    let mut frozen = BTreeMap::new();
    let mut everybody_was_frozen = false;
    for (at, switch) in switches.iter().enumerate() {
        if switch.frozen || frozen.contains_key(&switch.client) {
            frozen.insert(switch.client, switch.frozen);
        }
        everybody_was_frozen |= frozen.len() == tenants;
        let running = frozen.values().filter(|&&frozen| !frozen).count();
        let others_go = |next: &Switch| next.frozen && next.client != switch.client;
        let switching = running == 2 && !switch.frozen && switches.get(at + 1).is_none_or(others_go);
        assert!(!everybody_was_frozen || running <= 1 || switching, "{running} run at once: {switches:x?}");
    }
    assert!(everybody_was_frozen, "they never took turns: {switches:x?}");
}

fn await_turns(tenants: &[&Tenant], more: u64) {
    let goals: Vec<u64> = tenants.iter().map(|tenant| tenant.turns() + more).collect();
    await_that(&format!("everybody has {more} more turns"), || {
        tenants.iter().zip(&goals).all(|(tenant, &goal)| tenant.turns() >= goal || !tenant.wrong().is_empty())
    });
}

#[test]
fn two_that_do_not_fit_together_alternate_and_keep_every_byte() {
    let world = World::begin(rules());
    let (a, b) = (Tenant::with_memory(&world, LARGE_BYTES), Tenant::with_memory(&world, LARGE_BYTES));
    await_that("the daemon knows all of their memory", || {
        world.listing().tenants.iter().all(|listed| listed.resident_bytes + listed.away_bytes == LARGE_BYTES)
    });
    let goal = [a.turns() + TURNS, b.turns() + TURNS];
    await_that("both have their turns", || {
        let listing = world.listing();
        let running = listing.tenants.iter().filter(|tenant| tenant.state == TenantState::Running);
        assert!(running.count() <= 1, "two run at once: {listing:?}");
        for tenant in &listing.tenants {
            assert_eq!(
                tenant.resident_bytes + tenant.away_bytes,
                LARGE_BYTES,
                "bytes are missing: {listing:?}"
            );
            assert_ne!(tenant.state, TenantState::Joined, "it has a context: {listing:?}");
            let away = tenant.away_bytes > 0;
            assert!(!away || tenant.state != TenantState::Running, "it runs while away: {listing:?}");
            assert!(away || tenant.state != TenantState::Away, "nothing is away: {listing:?}");
        }
        let gpu = &listing.gpus[0];
        assert!(gpu.used_bytes + RESERVE_BYTES <= gpu.capacity_bytes, "too much is used: {listing:?}");
        assert_eq!(gpu.arena_used_bytes, listing.tenants.iter().map(|tenant| tenant.away_bytes).sum::<u64>());
        (a.turns() >= goal[0] && b.turns() >= goal[1]) || !(a.wrong().is_empty() && b.wrong().is_empty())
    });
    assert_one_at_a_time(&engine::switches(&[a.client(), b.client()]), 2);
    assert!(a.was_asked_to(Order::Unmap) && b.was_asked_to(Order::Unmap), "they fit together after all");
    let peak = world.meter.peak();
    assert!(peak + RESERVE_BYTES <= CAPACITY_BYTES, "{peak} bytes were in use");
    assert_eq!(world.events_named("error"), Vec::<serde_json::Value>::new());
}

#[test]
fn five_that_do_not_fit_together_all_have_turns() {
    let world = World::begin(rules());
    let tenants: Vec<Tenant> = (0..5).map(|_| Tenant::join(&world)).collect();
    for tenant in &tenants {
        tenant.allocate_in_three(SMALL_BYTES);
    }
    await_turns(&tenants.iter().collect::<Vec<_>>(), 4);
    let clients: Vec<u32> = tenants.iter().map(Tenant::client).collect();
    assert_one_at_a_time(&engine::switches(&clients), tenants.len());
    let peak = world.meter.peak();
    assert!(peak + RESERVE_BYTES <= CAPACITY_BYTES, "{peak} bytes were in use");
    assert_eq!(world.events_named("error"), Vec::<serde_json::Value>::new());
}

#[test]
fn two_that_fit_together_take_turns_and_nothing_moves() {
    let world = World::begin(rules());
    let (a, b) = (Tenant::with_memory(&world, SMALL_BYTES), Tenant::with_memory(&world, SMALL_BYTES));
    await_turns(&[&a, &b], TURNS);
    assert_one_at_a_time(&engine::switches(&[a.client(), b.client()]), 2);
    assert_eq!(world.events_named("move_begin"), Vec::<serde_json::Value>::new());
    assert_eq!(world.listing().gpus[0].arena_used_bytes, 0);
}

#[test]
fn one_alone_runs_without_being_frozen() {
    let world = World::begin(rules());
    let a = Tenant::with_memory(&world, LARGE_BYTES);
    await_that("it runs", || a.steps() >= 10);
    assert_eq!(world.listed(a.id()).expect("it is there").state, TenantState::Running);
    assert!(engine::switches(&[a.client()]).iter().all(|switch| !switch.frozen), "frozen for nobody");
}

#[test]
fn room_is_made_for_a_newcomers_context() {
    let world = World::begin(rules());
    let tenants: Vec<Tenant> = (0..5).map(|_| Tenant::with_memory(&world, SMALL_BYTES)).collect();
    await_turns(&tenants.iter().collect::<Vec<_>>(), 4);
    let peak = world.meter.peak();
    assert!(peak + RESERVE_BYTES <= CAPACITY_BYTES, "{peak} bytes were in use");
}

#[test]
fn only_as_much_moves_as_the_next_one_needs() {
    let world = World::begin(rules());
    let (a, b) = (Tenant::join(&world), Tenant::join(&world));
    for tenant in [&a, &b] {
        for _ in 0..LARGE_BYTES / BLOCK_BYTES {
            tenant.allocate(BLOCK_BYTES);
        }
    }
    await_turns(&[&a, &b], TURNS);
    let usable = CAPACITY_BYTES - RESERVE_BYTES - 2 * RESIDUE_BYTES;
    let lacking = 2 * LARGE_BYTES - usable;
    let moves = world.events_named("move_end");
    assert!(moves.len() as u64 >= TURNS, "{} moves", moves.len());
    for moved in moves {
        for way in ["bytes_out", "bytes_in"] {
            let bytes = moved[way].as_u64().expect("a number");
            assert!(bytes <= lacking && bytes < LARGE_BYTES, "{bytes} bytes moved for {lacking}: {moved}");
        }
    }
    assert_eq!(world.events_named("error"), Vec::<serde_json::Value>::new());
}

#[test]
fn the_policy_decides_whether_they_alternate_or_come_one_after_the_other() {
    let usual = rules();
    let settings = Settings { policy: PolicyKind::Serial, ..usual.settings.clone() };
    let world = World::begin(Rules { settings, ..usual });
    let (a, b) = (Tenant::with_memory(&world, SMALL_BYTES), Tenant::with_memory(&world, SMALL_BYTES));
    let state = |tenant: &Tenant| world.listed(tenant.id()).expect("it is there").state;
    await_that("the second waits", || state(&b) == TenantState::Frozen && engine::is_off(b.client()));
    let (done, waited) = (a.steps(), b.steps());
    await_that("the first one runs on", || a.steps() > done + 50);
    // Its last step may not have been counted yet.
    assert!(b.steps() <= waited + 1, "it ran before the first one was done");
    drop(a);
    await_that("the second one runs", || b.steps() > waited + 1);
}
