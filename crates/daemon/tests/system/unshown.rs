//! Memory that somebody comes back with and does not show.

use crate::process::Process;
use crate::rejoining::{OTHER_EPOCH, answer_unshown, handle, memory, rejoin, this_process};
use crate::tenant::{Manners, Tenant, Verdict};
use crate::world::{CAPACITY_BYTES, LARGE_BYTES, RESERVE_BYTES, RESIDUE_BYTES, World, await_that, rules};
use std::os::fd::AsFd as _;
use wire::quantity::Memory;
use wire::{
    Answer, BLOCK_BYTES, Change, Command, Connection, Description, FromDaemon, HandleId, JobRequest,
    TenantId, ToDaemon,
};

/// Tenants of an earlier worker, all of them this process.
fn world(numbers: &[u32]) -> World {
    let survivors: Vec<_> = numbers.iter().map(|&number| (TenantId(number), this_process())).collect();
    World::after(rules(), &survivors)
}

/// One of them comes back with so many blocks, and shows none.
fn come_back(world: &World, number: u32, blocks: u64) -> Connection {
    let word = rejoin(world, TenantId(number), OTHER_EPOCH, true);
    let (welcome, connection) = answer_unshown(world, &word, (1..=blocks).map(handle).collect());
    assert!(matches!(welcome, FromDaemon::Welcome { .. }), "{welcome:?}");
    await_that("it is there", || world.listed(TenantId(number)).is_some());
    connection
}

fn resident_bytes(world: &World, number: u32) -> u64 {
    world.listed(TenantId(number)).expect("it is there").resident_bytes
}

fn pinned_bytes(world: &World, number: u32) -> u64 {
    let Answer::Described(Description { jobs, .. }) =
        world.command(Command::Describe { what: "back".into() })
    else {
        panic!("its job is not there");
    };
    let mut tenants = jobs.into_iter().flat_map(|job| job.tenants);
    tenants.find(|view| view.tenant == TenantId(number)).expect("it is there").pinned_bytes
}

#[test]
fn nobody_is_believed_more_than_the_device_can_have() {
    let world = world(&[5, 6]);
    let _first = come_back(&world, 5, 10);
    assert_eq!(resident_bytes(&world, 5), 10 * BLOCK_BYTES);
    // Two contexts are there, and ten blocks.
    let _second = come_back(&world, 6, 50);
    assert_eq!(resident_bytes(&world, 6), CAPACITY_BYTES - 10 * BLOCK_BYTES - 2 * RESIDUE_BYTES);
    let said = world.events_named("error");
    assert!(said.iter().any(|event| event["what"].to_string().contains("do not count")), "{said:?}");
}

#[test]
fn nobody_is_believed_more_than_its_job_may_have() {
    let world = world(&[5]);
    let asked = Change { memory: Some(Memory::Bytes(4 * BLOCK_BYTES)), ..Change::default() };
    let opened =
        world.command(Command::Open(JobRequest { name: "back".into(), asked, ..JobRequest::default() }));
    assert!(matches!(opened, Answer::Opened(_)), "{opened:?}");
    let _connection = come_back(&world, 5, 10);
    assert_eq!(resident_bytes(&world, 5), 4 * BLOCK_BYTES - RESIDUE_BYTES);
}

#[test]
fn what_is_never_shown_is_promised_to_nobody_else() {
    let world = world(&[5]);
    let connection = come_back(&world, 5, 6);
    // A file may follow in a moment, but not of what its program has pinned.
    assert_eq!(pinned_bytes(&world, 5), 0);
    let pin = ToDaemon::Pin { request: wire::GrantId(1), handles: vec![HandleId(1), HandleId(2)] };
    connection.send(&pin, &[]).expect("the daemon hears");
    let (pinned, _) = connection.receive::<FromDaemon>().expect("the daemon answers");
    assert_eq!(pinned, FromDaemon::Pinned { request: wire::GrantId(1) });
    assert_eq!(pinned_bytes(&world, 5), 2 * BLOCK_BYTES);
    await_that("none followed", || pinned_bytes(&world, 5) == 6 * BLOCK_BYTES);
    let other = Tenant::join(&world);
    let left = CAPACITY_BYTES - RESERVE_BYTES - 2 * RESIDUE_BYTES - 6 * BLOCK_BYTES;
    let grant = other.grow(left + BLOCK_BYTES);
    assert!(matches!(other.verdict(grant), Verdict::Denied(_)));
    let handle = other.allocate(left);
    other.free(handle);
    // What is shown may move, unless it is pinned.
    for number in 1..=4 {
        let file = memory(BLOCK_BYTES);
        let shown = ToDaemon::Shown { handle: HandleId(number), passable: false };
        connection.send(&shown, &[file.as_fd()]).expect("the daemon hears");
    }
    await_that("what is shown may move", || pinned_bytes(&world, 5) == 4 * BLOCK_BYTES);
    // What the other one freed is let go of when the mover comes to it.
    await_that("only that is imported", || world.imported_bytes() == 4 * BLOCK_BYTES);
    connection.send(&ToDaemon::Unpin { handles: vec![HandleId(1)] }, &[]).expect("the daemon hears");
    await_that("nor has to stay what is unpinned", || pinned_bytes(&world, 5) == 3 * BLOCK_BYTES);
}

#[test]
fn what_is_pinned_and_not_shown_is_so_whatever_others_have() {
    let world = world(&[5]);
    // It leaves too little beside what it has, and who is to stay was asked before.
    let _other = Process::start(&world, Manners::Good, LARGE_BYTES + 2 * BLOCK_BYTES);
    let connection = come_back(&world, 5, 4);
    let pin = ToDaemon::Pin { request: wire::GrantId(1), handles: (1..=4).map(HandleId).collect() };
    connection.send(&pin, &[]).expect("the daemon hears");
    let (pinned, _) = connection.receive::<FromDaemon>().expect("the daemon answers");
    assert_eq!(pinned, FromDaemon::Pinned { request: wire::GrantId(1) });
    assert_eq!(pinned_bytes(&world, 5), 4 * BLOCK_BYTES);
}
