//! Memory that cannot move: pinned for others who know no freeze, or kept by the driver.

use crate::tenant::{Manners, Order, Tenant, Verdict};
use crate::world::{
    CAPACITY_BYTES, LARGE_BYTES, RESERVE_BYTES, RESIDUE_BYTES, SMALL_BYTES, World, await_that, roomy, rules,
    turns_of,
};
use std::time::Duration;
use wire::{BLOCK_BYTES, GrantId, HANDLES_MAX, HandleId, SizedHandle, TenantState, ToDaemon};

fn await_turns(tenants: &[&Tenant]) {
    let goals: Vec<_> = tenants.iter().map(|tenant| tenant.turns() + 3).collect();
    await_that("all have turns", || tenants.iter().zip(&goals).all(|(tenant, goal)| tenant.turns() >= *goal));
}

#[test]
fn what_is_pinned_stays_while_the_rest_moves() {
    let world = World::begin(roomy());
    let a = Tenant::with_memory(&world, LARGE_BYTES);
    // The smallest: everything else of it has to go.
    let pinned = a.handles()[0];
    assert_eq!(a.pin(&[pinned]), Verdict::Granted);
    let b = Tenant::with_memory(&world, LARGE_BYTES + 4 * BLOCK_BYTES);
    await_turns(&[&a, &b]);
    await_that("the rest was moved", || a.unmapped().len() == 2);
    assert!(!a.unmapped().contains(&pinned));
    // Pinned twice and unpinned once is pinned.
    assert_eq!(a.pin(&[pinned]), Verdict::Granted);
    a.request(|_| ToDaemon::Unpin { handles: vec![pinned] }, &[]);
    await_turns(&[&a, &b]);
    assert!(!a.unmapped().contains(&pinned));
    a.request(|_| ToDaemon::Unpin { handles: vec![pinned] }, &[]);
    // Only a larger neighbour needs all of it; there is room for that one once the daemon has heard.
    await_that("there is room", || {
        let grant = b.grow(BLOCK_BYTES);
        let granted = b.verdict(grant) == Verdict::Granted;
        if granted {
            b.use_grant(grant, BLOCK_BYTES);
        }
        granted
    });
    await_that("it may go again", || a.unmapped().contains(&pinned));
    await_turns(&[&a, &b]);
}

#[test]
fn what_is_away_is_pinned_once_it_is_back() {
    let world = World::begin(rules());
    let a = Tenant::with_memory(&world, LARGE_BYTES);
    let b = Tenant::with_memory(&world, LARGE_BYTES);
    for _ in 0..3 {
        await_that("it is away", || world.listed(a.id()).expect("it is there").state == TenantState::Away);
        let handles = a.handles();
        assert_eq!(a.pin(&handles[..1]), Verdict::Granted);
        assert!(a.resident().contains(&handles[0]), "pinned before it was there");
        a.request(|_| ToDaemon::Unpin { handles: handles[..1].to_vec() }, &[]);
        await_turns(&[&a, &b]);
    }
}

#[test]
fn what_is_on_its_way_out_is_pinned_once_it_is_back() {
    let world = World::begin(rules());
    let a = Tenant::join_with(&world, Manners::UnmapsLate);
    a.allocate_in_three(LARGE_BYTES);
    let b = Tenant::join(&world);
    let grant = b.grow(LARGE_BYTES);
    await_that("it is asked to unmap", || a.was_asked_to(Order::Unmap));
    let pinned = a.handles()[0];
    let request = a.request(|request| ToDaemon::Pin { request, handles: vec![pinned] }, &[]);
    a.answer();
    assert_eq!(b.verdict(grant), Verdict::Granted);
    b.use_grant(grant, LARGE_BYTES);
    assert_eq!(a.verdict(request), Verdict::Granted);
    assert!(a.unmapped().contains(&pinned), "it was on its way");
    assert!(a.resident().contains(&pinned), "pinned before it was there");
    await_turns(&[&a, &b]);
    assert!(a.resident().contains(&pinned));
}

#[test]
fn pins_of_what_is_not_there_are_denied_and_too_many_at_once_put_out() {
    let world = World::begin(rules());
    let a = Tenant::with_memory(&world, LARGE_BYTES);
    assert!(matches!(a.pin(&[HandleId(999)]), Verdict::Denied(_)));
    // Not an error: it may have been freed.
    a.request(|_| ToDaemon::Unpin { handles: vec![HandleId(999)] }, &[]);
    assert_eq!(a.pin(&a.handles()), Verdict::Granted);
    let handles = vec![a.handles()[0]; HANDLES_MAX + 1];
    a.request(|request| ToDaemon::Pin { request, handles }, &[]);
    await_that("it is put out", || a.refused().is_some());
}

#[test]
fn what_is_kept_counts_to_the_byte_and_never_moves() {
    let world = World::begin(rules());
    let a = Tenant::join(&world);
    let kept = a.keep(SMALL_BYTES);
    let used = || world.listing().gpus[0].used_bytes;
    await_that("it counts", || used() == RESIDUE_BYTES + SMALL_BYTES);
    // What is kept cannot make room for this.
    let b = Tenant::join(&world);
    let rest = CAPACITY_BYTES - RESERVE_BYTES - 2 * RESIDUE_BYTES - SMALL_BYTES;
    b.allocate(rest - BLOCK_BYTES);
    let handle = a.allocate(2 * BLOCK_BYTES);
    await_turns(&[&a, &b]);
    assert!(a.unmapped().contains(&handle));
    let peak = world.meter.peak();
    assert!(peak + RESERVE_BYTES <= CAPACITY_BYTES, "{peak} bytes were in use");
    a.let_go(kept, SMALL_BYTES);
    a.free(handle);
    b.free(b.handles()[0]);
    await_that("it is free again", || used() == 2 * RESIDUE_BYTES);
}

#[test]
fn what_is_kept_without_a_grant_or_twice_is_not_believed() {
    let world = World::begin(rules());
    let kept = |grant, handle, bytes| ToDaemon::Kept { grant, handle: SizedHandle { handle, bytes } };
    let a = Tenant::join(&world);
    a.request(|_| kept(GrantId(77), HandleId(1), BLOCK_BYTES), &[]);
    await_that("it is put out", || world.listed(a.id()).is_none());
    let b = Tenant::join(&world);
    let handle = b.keep(BLOCK_BYTES);
    let grant = b.request(|grant| ToDaemon::Keep { grant, bytes: BLOCK_BYTES }, &[]);
    assert_eq!(b.verdict(grant), Verdict::Granted);
    b.request(|_| kept(grant, handle, BLOCK_BYTES), &[]);
    await_that("it is put out", || world.listed(b.id()).is_none());
    let c = Tenant::join(&world);
    let grant = c.request(|grant| ToDaemon::Keep { grant, bytes: BLOCK_BYTES }, &[]);
    assert_eq!(c.verdict(grant), Verdict::Granted);
    c.request(|_| kept(grant, HandleId(5), BLOCK_BYTES / 2), &[]);
    await_that("it is put out", || world.listed(c.id()).is_none());
    // Asked for as memory that moves, so nobody has looked whether it may stay.
    let d = Tenant::join(&world);
    let grant = d.grow(BLOCK_BYTES);
    assert_eq!(d.verdict(grant), Verdict::Granted);
    d.request(|_| kept(grant, HandleId(6), BLOCK_BYTES), &[]);
    await_that("it is put out", || world.listed(d.id()).is_none());
}

#[test]
fn nothing_is_pinned_or_kept_that_leaves_another_no_room() {
    let world = World::begin(rules());
    let (a, b) = (Tenant::with_memory(&world, LARGE_BYTES), Tenant::with_memory(&world, LARGE_BYTES));
    await_turns(&[&a, &b]);
    // 13 blocks are for both: 8 of the other leave 5.
    assert!(matches!(a.pin(&a.handles()), Verdict::Denied(_)));
    let keep = |bytes| a.verdict(a.request(|grant| ToDaemon::Keep { grant, bytes }, &[]));
    assert!(matches!(keep(6 * BLOCK_BYTES), Verdict::Denied(_)));
    await_turns(&[&a, &b]);
    let kept = a.keep(3 * BLOCK_BYTES);
    await_turns(&[&a, &b]);
    // What was just given back can be had again at once.
    a.let_go(kept, 3 * BLOCK_BYTES);
    assert_eq!(keep(5 * BLOCK_BYTES), Verdict::Granted);
    await_turns(&[&b]);
}

#[test]
fn what_others_grew_by_meanwhile_is_not_in_the_way_of_what_is_kept() {
    let world = World::begin(turns_of(Duration::from_secs(1)));
    let a = Tenant::with_memory(&world, LARGE_BYTES);
    let b = Tenant::with_memory(&world, LARGE_BYTES);
    // Just so much that the other would find room beside it, as it is now.
    let bytes = CAPACITY_BYTES - RESERVE_BYTES - 2 * RESIDUE_BYTES - LARGE_BYTES;
    await_that("the other grows before the turn in which that would be kept", || {
        await_that("it is away", || world.listed(a.id()).expect("it is there").state == TenantState::Away);
        let request = a.request(|grant| ToDaemon::Keep { grant, bytes }, &[]);
        let grant = b.grow(BLOCK_BYTES);
        await_that("one of them is answered", || a.is_answered(request) || b.is_answered(grant));
        let kept = (!b.is_answered(grant)).then(|| a.verdict(request));
        if kept == Some(Verdict::Granted) {
            // Something held this test up, and the turn came first: the other has to wait for what is kept.
            a.request(|_| ToDaemon::Returned { grant: request }, &[]);
            assert_eq!(b.verdict(grant), Verdict::Granted);
            b.request(|_| ToDaemon::Returned { grant }, &[]);
            return false;
        }
        assert_eq!(b.verdict(grant), Verdict::Granted);
        b.use_grant(grant, BLOCK_BYTES);
        assert!(matches!(kept.unwrap_or_else(|| a.verdict(request)), Verdict::Denied(_)));
        true
    });
    await_turns(&[&a, &b]);
}
