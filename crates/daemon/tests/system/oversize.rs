//! Programs that are larger than their GPU, and those who only say so.

use crate::world::{CAPACITY_BYTES, World, await_that, await_welcome, hello, rules};
use rota_daemon::daemon::Rules;
use sched::{Bytes, Settings};
use wire::{
    Answer, BLOCK_BYTES, Change, Command, Connection, FromDaemon, GrantId, HandleId, JobRequest, SizedHandle,
    TenantId, ToDaemon,
};

/// What there is in the host's memory for all.
const HOST_BYTES: u64 = 8 * BLOCK_BYTES;

fn world() -> World {
    let rules = rules();
    let settings = Settings { host_max: Bytes(HOST_BYTES), ..rules.settings };
    World::begin(Rules { settings, ..rules })
}

fn open(world: &World, oversize_bytes: Option<u64>) -> Answer {
    let asked = Change { oversize_bytes, ..Change::default() };
    world.command(Command::Open(JobRequest { name: "test".into(), asked, ..JobRequest::default() }))
}

fn tenant(world: &World) -> (TenantId, Connection) {
    let connection = Connection::connect(&world.socket()).unwrap();
    connection.send(&hello("large"), &[]).unwrap();
    let (tenant, _) = await_welcome(&connection);
    (tenant, connection)
}

/// What the daemon says to a request.
fn answer(connection: &Connection, request: ToDaemon) -> FromDaemon {
    connection.send(&request, &[]).unwrap();
    connection.receive::<FromDaemon>().unwrap().0
}

fn hosted(grant: u64, handle: u64, bytes: u64) -> ToDaemon {
    let handle = SizedHandle { handle: HandleId(handle), bytes };
    ToDaemon::Hosted { grant: GrantId(grant), handle }
}

fn host_bytes(world: &World, tenant: TenantId) -> u64 {
    world.listed(tenant).map_or(0, |tenant| tenant.host_bytes)
}

#[test]
fn what_the_gpu_cannot_have_is_granted_on_the_host_and_counted_until_it_is_freed() {
    let world = world();
    assert!(
        matches!(open(&world, Some(wire::OVERSIZE_ALL)), Answer::Opened(opened) if opened.terms.oversize_bytes == HOST_BYTES)
    );
    let (id, large) = tenant(&world);
    let much = ToDaemon::Grow { grant: GrantId(1), bytes: CAPACITY_BYTES };
    let Answer::Memory(memory) = world.command(Command::Memory { job: "test".into() }) else { panic!() };
    assert_eq!(memory.gpus[0].limit_bytes, CAPACITY_BYTES + HOST_BYTES);
    assert!(matches!(answer(&large, much), FromDaemon::Denied { .. }), "more than the budget has");
    let some = ToDaemon::GrowHost { grant: GrantId(2), bytes: 6 * BLOCK_BYTES };
    let granted = FromDaemon::GrantedHost { grant: GrantId(2), host_bytes: 6 * BLOCK_BYTES };
    assert_eq!(answer(&large, some), granted);
    large.send(&hosted(2, 10, 4 * BLOCK_BYTES), &[]).unwrap();
    large.send(&ToDaemon::Returned { grant: GrantId(2) }, &[]).unwrap();
    await_that("it is counted", || host_bytes(&world, id) == 4 * BLOCK_BYTES);
    let pin = ToDaemon::Pin { request: GrantId(3), handles: vec![HandleId(10)] };
    let FromDaemon::Denied { reason, .. } = answer(&large, pin) else { panic!("it is pinned") };
    assert!(reason.contains("lies in the host's"), "{reason}");
    large.send(&ToDaemon::Freed { handles: vec![HandleId(10)] }, &[]).unwrap();
    await_that("it is free", || host_bytes(&world, id) == 0);
}

#[test]
fn without_a_budget_nobody_gets_any() {
    let world = world();
    let (_, plain) = tenant(&world);
    let asked = answer(&plain, ToDaemon::GrowHost { grant: GrantId(1), bytes: BLOCK_BYTES });
    assert!(matches!(asked, FromDaemon::Denied { .. }), "{asked:?}");
    let FromDaemon::Denied { reason, .. } =
        answer(&plain, ToDaemon::Grow { grant: GrantId(2), bytes: CAPACITY_BYTES })
    else {
        panic!("more than the GPU has")
    };
    assert!(reason.contains("would not fit on the GPU"), "{reason}");
}

#[test]
fn who_claims_what_it_was_not_granted_is_put_out() {
    let world = world();
    assert!(matches!(open(&world, Some(HOST_BYTES)), Answer::Opened(_)));
    let lies = [
        hosted(7, 1, BLOCK_BYTES),
        hosted(1, 1, 2 * BLOCK_BYTES),
        hosted(1, 1, 0),
        hosted(1, 1, BLOCK_BYTES + 1),
        hosted(1, 1, 1 << 40),
    ];
    for lie in lies {
        let (id, liar) = tenant(&world);
        let some = ToDaemon::GrowHost { grant: GrantId(1), bytes: BLOCK_BYTES };
        assert!(matches!(answer(&liar, some), FromDaemon::GrantedHost { .. }));
        liar.send(&lie, &[]).unwrap();
        await_that(&format!("it is put out for {lie:?}"), || world.listed(id).is_none());
    }
}

#[test]
fn what_was_there_before_counts_no_further_than_its_job_may_have() {
    let world = world();
    assert!(matches!(open(&world, Some(4 * BLOCK_BYTES)), Answer::Opened(_)));
    let (id, before) = tenant(&world);
    let handles =
        (1..=6).map(|handle| SizedHandle { handle: HandleId(handle), bytes: BLOCK_BYTES }).collect();
    before.send(&ToDaemon::HostedBefore { handles }, &[]).unwrap();
    await_that("it is counted", || host_bytes(&world, id) == 4 * BLOCK_BYTES);
    before.send(&ToDaemon::Freed { handles: (1..=6).map(HandleId).collect() }, &[]).unwrap();
    await_that("it is free", || host_bytes(&world, id) == 0);
}
