//! Newcomers who wait at the door while room is made for their contexts.

use crate::process::Process;
use crate::tenant::{Manners, Tenant};
use crate::world::{SMALL_BYTES, World, await_that, await_welcome, hello, rules, turns_of};
use rota_daemon::daemon::Rules;
use sched::Settings;
use std::time::Duration;
use wire::{BLOCK_BYTES, Connection, FromDaemon, TenantState};

/// Somebody comes.
pub(crate) fn knock(world: &World) -> Connection {
    let connection = Connection::connect(&world.socket()).unwrap();
    connection.send(&hello("newcomer"), &[]).unwrap();
    connection
}

#[test]
fn many_newcomers_cost_nobody_its_turn_and_leave_nothing_behind() {
    let rules = Rules { arena_bytes: 7 * BLOCK_BYTES, ..turns_of(Duration::from_millis(200)) };
    let world = World::begin(rules);
    let (a, b) = (Tenant::join(&world), Tenant::join(&world));
    for tenant in [&a, &b] {
        for _ in 0..9 {
            tenant.allocate(BLOCK_BYTES);
        }
    }
    let newcomers: Vec<Connection> = (0..6).map(|_| knock(&world)).collect();
    let answered = newcomers.iter().filter(|newcomer| newcomer.receive::<FromDaemon>().is_ok()).count();
    assert_eq!(answered, newcomers.len(), "each is refused, let in, or told to wait");
    let (moves, goals) = (world.events_named("move_begin").len(), [a.turns() + 5, b.turns() + 5]);
    await_that("both have turns", || a.turns() >= goals[0] && b.turns() >= goals[1]);
    let turns = a.turns() + b.turns() + 10 - goals[0] - goals[1] + 10;
    let moved = world.events_named("move_begin").len() - moves;
    assert!(moved as u64 <= 4 * turns, "{moved} moves in about {turns} turns");
}

#[test]
fn one_that_dies_at_the_door_is_struck_off() {
    // Two that never unmap keep the room that a newcomer's context needs.
    let world = World::begin(rules());
    let stubborn = [7, 6].map(|blocks| {
        let tenant = Tenant::join_with(&world, Manners::IgnoresUnmap);
        (tenant, blocks)
    });
    for (tenant, blocks) in &stubborn {
        tenant.allocate(blocks * BLOCK_BYTES);
    }
    // Were those who went away still counted, the seventh would find no room even to wait for.
    for number in 1..=8 {
        await_that(&format!("newcomer {number} is told to wait"), || {
            matches!(knock(&world).receive::<FromDaemon>(), Ok((FromDaemon::Waiting { .. }, _)))
        });
    }
    await_that("those who went away are struck off", || world.listing().tenants.len() == 2);
}

/// How many are let in, and how many wait.
fn inside_and_queued(world: &World) -> (usize, usize) {
    let tenants = world.listing().tenants;
    let queued = tenants.iter().filter(|tenant| tenant.state == TenantState::Queued).count();
    (tenants.len() - queued, queued)
}

#[test]
fn more_than_may_come_wait_for_their_place() {
    let usual = rules();
    let settings = Settings { tenants_max: 2, ..usual.settings.clone() };
    let world = World::begin(Rules { settings, ..usual });
    let (a, b) = (Process::start(&world, Manners::Good, SMALL_BYTES), Tenant::join(&world));
    let waiting = [1, 2].map(|place| {
        let newcomer = knock(&world);
        match newcomer.receive::<FromDaemon>() {
            Ok((FromDaemon::Waiting { reason }, _)) => {
                assert!(reason.contains("tenants_max"), "{reason}");
                assert!(reason.contains(&format!("number {place} in the queue")), "{reason}");
            }
            other => panic!("one too many got {other:?}"),
        }
        newcomer
    });
    assert_eq!(inside_and_queued(&world), (2, 2));
    a.end();
    await_welcome(&waiting[0]);
    let steps = b.steps();
    await_that("the one who stayed runs", || b.steps() > steps);
    assert_eq!(inside_and_queued(&world), (2, 1), "the second one waits still");
}
