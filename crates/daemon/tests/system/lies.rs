//! Tenants that say what cannot be true. They are not believed, and nobody else pays.

use crate::tenant::Tenant;
use crate::world::{LARGE_BYTES, World, await_that, await_welcome, hello, rules};
use rota_daemon::daemon::Rules;
use std::os::fd::AsFd;
use wire::{BLOCK_BYTES, Connection, FromDaemon, GrantId, HandleId, SizedHandle, ToDaemon};

fn tenant(world: &World) -> Connection {
    let connection = Connection::connect(&world.socket()).unwrap();
    connection.send(&hello("liar"), &[]).unwrap();
    await_welcome(&connection);
    connection
}

fn claim(connection: &Connection, grant: u64, handle: HandleId, bytes: u64) {
    let file = std::fs::File::open("/dev/null").unwrap();
    let claim =
        ToDaemon::Allocated { grant: GrantId(grant), handle: SizedHandle { handle, bytes }, passable: false };
    // It may have been hung up on already.
    let _ = connection.send(&claim, &[file.as_fd()]);
}

fn assert_others_go_on(world: &World) {
    let (a, b) = (Tenant::with_memory(world, LARGE_BYTES), Tenant::with_memory(world, LARGE_BYTES));
    let goals = [a.turns() + 3, b.turns() + 3];
    await_that("others have turns", || a.turns() >= goals[0] && b.turns() >= goals[1]);
}

#[test]
fn memory_that_was_never_granted_is_not_believed() {
    let world = World::begin(rules());
    for bytes in [BLOCK_BYTES, 1 << 40, (u64::MAX / 2) / BLOCK_BYTES * BLOCK_BYTES] {
        let liar = tenant(&world);
        for number in 0..4 {
            claim(&liar, number, HandleId(number), bytes);
        }
        await_that("it is put out", || liar.receive::<FromDaemon>().is_err());
    }
    assert_others_go_on(&world);
}

#[test]
fn a_handle_named_twice_ends_its_tenant_and_nothing_else() {
    let world = World::begin(rules());
    let a = Tenant::with_memory(&world, LARGE_BYTES);
    let id = a.id();
    claim(a.connection(), 999, a.handles()[0], BLOCK_BYTES);
    await_that("it is put out", || world.listed(id).is_none());
    // It lives on in this process, so what it has stays counted; what is left is enough for another.
    let b = Tenant::join(&world);
    b.allocate(BLOCK_BYTES);
    let steps = b.steps();
    await_that("another one runs", || b.steps() > steps);
}

#[test]
fn a_tenant_with_channels_that_are_not_reported_is_never_moved() {
    let world = World::begin(rules());
    let (a, b) = (Tenant::with_memory(&world, LARGE_BYTES), Tenant::with_memory(&world, LARGE_BYTES));
    await_that("both have turns", || a.turns() > 1 && b.turns() > 1);
    // A channel is born, and its report does not come.
    a.page().raise_channel_generation();
    let errors = || world.events_named("error").iter().filter(|error| error["tenant"] == a.id().0).count();
    await_that("people are told, more than once", || errors() > 2);
    assert!(a.wrong().is_empty(), "its memory was moved while it could run: {:?}", a.wrong());
    let steps = a.steps();
    await_that("it runs on", || a.steps() > steps);
}

#[test]
fn what_could_never_take_turns_is_denied() {
    let world = World::begin(Rules { arena_bytes: 13 * BLOCK_BYTES, ..rules() });
    let (a, b) = (Tenant::join(&world), Tenant::join(&world));
    a.allocate_in_three(13 * BLOCK_BYTES);
    // GPU and arena would both be full, and nothing could go either way.
    let granted =
        (0..13).take_while(|_| matches!(b.verdict(b.grow(BLOCK_BYTES)), crate::tenant::Verdict::Granted));
    assert!(granted.count() < 13);
}
