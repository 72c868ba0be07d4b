//! Memory that one tenant lets others open.

use crate::process::Process;
use crate::rejoining::{OTHER_EPOCH, answer, rejoin, this_process};
use crate::tenant::{Manners, Tenant, Verdict};
use crate::world::{CAPACITY_BYTES, LARGE_BYTES, RESIDUE_BYTES, SMALL_BYTES, World, await_that, rules};
use rota_daemon::daemon::About;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use wire::{BLOCK_BYTES, FromDaemon, GrantId, HANDLES_MAX, HandleId, SizedHandle, TenantId, ToDaemon, Token};

/// What is published in these tests.
pub(crate) const TOKEN: Token = Token(0x1234_5678_9abc_def0_1122_3344_5566_7788);

fn used(world: &World) -> u64 {
    world.listing().gpus[0].used_bytes
}

/// Can it not be opened any more?
fn is_closed(tenant: &Tenant) -> bool {
    let opened = tenant.open(TOKEN).is_ok();
    if opened {
        tenant.close(TOKEN);
    }
    !opened
}

fn await_turns(tenants: &[&Tenant]) {
    let goals: Vec<_> = tenants.iter().map(|tenant| tenant.turns() + 3).collect();
    await_that("all have turns", || tenants.iter().zip(&goals).all(|(tenant, goal)| tenant.turns() >= *goal));
}

#[test]
fn what_is_published_is_the_owners_memory_while_others_move() {
    let world = World::begin(rules());
    let (a, b) = (Tenant::join(&world), Tenant::join(&world));
    let shared = a.allocate(BLOCK_BYTES);
    assert_eq!(a.pin(&[shared]), Verdict::Granted);
    assert_eq!(a.publish(TOKEN, &[shared]), Verdict::Granted);
    let opened = b.open(TOKEN).unwrap();
    assert_eq!(opened.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>(), [BLOCK_BYTES]);
    a.allocate_in_three(SMALL_BYTES);
    b.allocate_in_three(LARGE_BYTES);
    let c = Tenant::with_memory(&world, LARGE_BYTES);
    let bytes = || {
        let mut bytes = vec![0; 64];
        opened[0].1.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let before = bytes();
    await_turns(&[&a, &b, &c]);
    await_that("the owner still writes to what is open", || bytes() != before);
    assert!(!a.unmapped().contains(&shared));
    b.close(TOKEN);
    await_turns(&[&a, &b, &c]);
}

#[test]
fn large_memory_comes_in_many_handles() {
    const COUNT: usize = HANDLES_MAX + 6;
    let capacity = CAPACITY_BYTES + COUNT as u64 * BLOCK_BYTES;
    let world = World::with_capacity(capacity, rules(), About::default());
    let (a, b) = (Tenant::join(&world), Tenant::join(&world));
    let shared: Vec<_> = (0..COUNT).map(|_| a.allocate(BLOCK_BYTES)).collect();
    for some in shared.chunks(HANDLES_MAX) {
        assert_eq!(a.pin(some), Verdict::Granted);
    }
    assert_eq!(a.publish(TOKEN, &shared), Verdict::Granted);
    assert_eq!(b.open(TOKEN).unwrap().len(), COUNT);
    // Each once: how much is sent for one request has a bound.
    let twice = [shared[0], shared[0]];
    assert!(matches!(a.publish(Token(TOKEN.0 + 1), &twice), Verdict::Denied(_)));
}

#[test]
fn a_file_that_its_tenant_keeps_from_being_closed_is_not_taken() {
    let world = World::begin(rules());
    let a = Tenant::join(&world);
    let grant = a.grow(BLOCK_BYTES);
    assert_eq!(a.verdict(grant), Verdict::Granted);
    // It lies in a file system, and who knows in whose.
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let handle = SizedHandle { handle: HandleId(9), bytes: BLOCK_BYTES };
    a.request(|_| ToDaemon::Allocated { grant, handle, passable: false }, &[file.as_fd()]);
    await_that("it is put out", || world.listed(a.id()).is_none());
}

#[test]
fn what_is_open_counts_until_the_last_one_closes_it() {
    let world = World::begin(rules());
    let (a, b, c) = (Tenant::join(&world), Tenant::join(&world), Tenant::join(&world));
    let handles = [a.allocate(BLOCK_BYTES), a.allocate(2 * BLOCK_BYTES)];
    assert_eq!(a.pin(&handles), Verdict::Granted);
    assert_eq!(a.publish(TOKEN, &handles), Verdict::Granted);
    b.open(TOKEN).unwrap();
    b.open(TOKEN).unwrap();
    c.open(TOKEN).unwrap();
    for handle in handles {
        a.free(handle);
    }
    await_that("it cannot be opened any more", || is_closed(&b));
    let contexts = 3 * RESIDUE_BYTES;
    assert_eq!(used(&world), contexts + 3 * BLOCK_BYTES);
    b.close(TOKEN);
    c.close(TOKEN);
    // One too many is nothing.
    c.close(TOKEN);
    assert_eq!(used(&world), contexts + 3 * BLOCK_BYTES);
    b.close(TOKEN);
    await_that("it is free", || used(&world) == contexts);
    // Free memory that nobody had open is free at once.
    let alone = a.allocate(BLOCK_BYTES);
    assert_eq!(a.pin(&[alone]), Verdict::Granted);
    assert_eq!(a.publish(TOKEN, &[alone]), Verdict::Granted);
    a.free(alone);
    await_that("it is free", || used(&world) == contexts);
}

#[test]
fn what_is_closed_before_its_owner_is_back_is_not_open() {
    // Somebody is expected, so names may come still.
    let world = World::after(rules(), &[(TenantId(5), this_process())]);
    let (owner, opener) = (Tenant::join(&world), Tenant::join(&world));
    let shared = owner.allocate(BLOCK_BYTES);
    assert_eq!(owner.pin(&[shared]), Verdict::Granted);
    opener.request(|request| ToDaemon::Open { request, token: TOKEN }, &[]);
    opener.close(TOKEN);
    opener.free(opener.allocate(BLOCK_BYTES));
    assert_eq!(owner.publish(TOKEN, &[shared]), Verdict::Granted);
    owner.free(shared);
    await_that("it is free", || used(&world) == 2 * RESIDUE_BYTES);
}

#[test]
fn who_outlived_the_keeper_waits_for_names_too() {
    let world = World::begin(rules());
    let owner = Tenant::join(&world);
    let shared = owner.allocate(BLOCK_BYTES);
    assert_eq!(owner.pin(&[shared]), Verdict::Granted);
    let word = rejoin(&world, TenantId(50), OTHER_EPOCH, true);
    let (welcome, opener) = answer(&world, &word, Vec::new(), Vec::new());
    assert!(matches!(welcome, FromDaemon::Welcome { .. }), "{welcome:?}");
    let open = ToDaemon::Open { request: GrantId(1), token: TOKEN };
    opener.send(&open, &[]).expect("the daemon hears");
    // It is heard before this.
    let grow = ToDaemon::Grow { grant: GrantId(2), bytes: BLOCK_BYTES };
    opener.send(&grow, &[]).expect("the daemon hears");
    let answered = || opener.receive::<FromDaemon>().expect("the daemon answers").0;
    assert_eq!(answered(), FromDaemon::Granted { grant: GrantId(2) });
    assert_eq!(owner.publish(TOKEN, &[shared]), Verdict::Granted);
    let opened = answered();
    assert!(matches!(opened, FromDaemon::Opened { request: GrantId(1), .. }), "{opened:?}");
}

#[test]
fn what_a_dead_owner_leaves_counts_until_it_is_closed() {
    let world = World::begin(rules());
    let b = Tenant::join(&world);
    let mut a = Process::start(&world, Manners::Publishes, LARGE_BYTES);
    let opened: u64 = b.open(a.token()).unwrap().iter().map(|(bytes, _)| bytes).sum();
    assert_eq!(opened, LARGE_BYTES);
    a.kill();
    await_that("it is buried", || world.events_named("reaped").len() == 1);
    assert!(b.open(a.token()).is_err());
    // Fourteen blocks were left for it alone, and eight are not free.
    let has = |blocks| {
        let grant = b.grow(blocks * BLOCK_BYTES);
        let granted = b.verdict(grant) == Verdict::Granted;
        b.request(|_| ToDaemon::Returned { grant }, &[]);
        granted
    };
    assert!(has(6) && !has(7));
    b.close(a.token());
    await_that("all of it is free", || has(14));
}

#[test]
fn what_a_dead_one_had_open_is_closed() {
    let world = World::begin(rules());
    let a = Tenant::join(&world);
    let shared = a.allocate(BLOCK_BYTES);
    assert_eq!(a.pin(&[shared]), Verdict::Granted);
    assert_eq!(a.publish(TOKEN, &[shared]), Verdict::Granted);
    let mut b = Process::start(&world, Manners::Opens, LARGE_BYTES);
    a.free(shared);
    await_that("it is freed", || is_closed(&a));
    assert_eq!(used(&world), 2 * RESIDUE_BYTES + LARGE_BYTES + BLOCK_BYTES);
    b.kill();
    await_that("nothing is left", || used(&world) == RESIDUE_BYTES);
}

#[test]
fn what_cannot_be_published_or_opened_is_denied() {
    let world = World::begin(rules());
    let a = Tenant::with_memory(&world, SMALL_BYTES);
    let (one, two) = (a.handles()[0], a.handles()[1]);
    assert!(a.open(TOKEN).is_err(), "nobody published it");
    assert!(matches!(a.publish(TOKEN, &[one]), Verdict::Denied(_)), "it is not pinned");
    assert_eq!(a.pin(&[one]), Verdict::Granted);
    let null = std::fs::File::open("/dev/null").unwrap();
    let publish = |handle: HandleId, bytes| {
        let handles = vec![SizedHandle { handle, bytes }];
        a.verdict(a.request(
            |request| ToDaemon::Publish { request, token: TOKEN, handles, complete: true },
            &[null.as_fd()],
        ))
    };
    assert!(matches!(publish(HandleId(999), BLOCK_BYTES), Verdict::Denied(_)), "it is not there");
    assert!(matches!(publish(one, 2 * BLOCK_BYTES), Verdict::Denied(_)), "it is not so large");
    // The second of three parts is wrong: the whole is, and the last one is answered.
    for handle in [one, two] {
        let handles = vec![SizedHandle { handle, bytes: BLOCK_BYTES }];
        let part = |request| ToDaemon::Publish { request, token: TOKEN, handles, complete: false };
        a.request(part, &[null.as_fd()]);
    }
    assert!(matches!(publish(one, BLOCK_BYTES), Verdict::Denied(_)));
    assert!(a.open(TOKEN).is_err());
    // And then it can be done right, but not twice.
    assert_eq!(a.publish(TOKEN, &[one]), Verdict::Granted);
    assert!(matches!(a.publish(TOKEN, &[one]), Verdict::Denied(_)));
    let b = Tenant::join(&world);
    assert!(matches!(b.publish(TOKEN, &[b.allocate(BLOCK_BYTES)]), Verdict::Denied(_)));
    assert_eq!(b.open(TOKEN).unwrap().len(), 1);
    b.request(|request| ToDaemon::Publish { request, token: TOKEN, handles: vec![], complete: true }, &[]);
    await_that("it is put out", || b.refused().is_some());
}

/// Whether this test may be somebody else for a moment.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn nobody_else_opens_what_is_published() {
    const NOBODY: u32 = 65_534;
    if !is_root() {
        eprintln!("skipped: only root can be somebody else");
        return;
    }
    let world = World::begin(rules());
    let a = Tenant::join(&world);
    let shared = a.allocate(BLOCK_BYTES);
    assert_eq!(a.pin(&[shared]), Verdict::Granted);
    assert_eq!(a.publish(TOKEN, &[shared]), Verdict::Granted);
    let socket = world.socket();
    for path in [socket.parent().unwrap(), &socket] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let refused = std::thread::scope(|scope| {
        let stranger = scope.spawn(|| {
            // Of this thread only, and what it is when it connects is what the daemon sees.
            let nobody = rustix::process::Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            Tenant::join(&world).open(TOKEN).is_err()
        });
        stranger.join().unwrap()
    });
    assert!(refused, "another user opened it");
    assert_eq!(Tenant::join(&world).open(TOKEN).unwrap().len(), 1);
}
