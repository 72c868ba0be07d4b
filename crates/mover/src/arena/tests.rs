//! With the real keeper, and a device in plain memory.

use super::*;
use crate::BLOCK_BYTES;
use crate::device::Device;
use crate::fake_device::{FakeDevice, Operation};
use crate::test_keeper::{Later, TestKeeper, process};
use keeper::ClientError;
use std::time::Duration;

const SEGMENT: u64 = 2 * BLOCK_BYTES;
const A: Owner = Owner(1);

fn key(handle: u64) -> HandleKey {
    HandleKey { owner: A, handle }
}

/// An arena of so many blocks that has a tenant.
fn arena(blocks: u64, device: &FakeDevice) -> (Arena, Arc<TestKeeper>) {
    let keeper = TestKeeper::start(blocks, SEGMENT);
    let arena = keeper.arena(device.registrar());
    arena.introduce(A, process(A)).expect("a tenant");
    (arena, keeper)
}

/// The same, all of it ready.
fn ready(blocks: u64, device: &FakeDevice) -> (Arena, Arc<TestKeeper>) {
    let (arena, keeper) = arena(blocks, device);
    arena.wait_until_prepared();
    (arena, keeper)
}

fn take(arena: &Arena, handle: u64, blocks: u64) -> Option<Taken> {
    arena.take(key(handle), blocks * BLOCK_BYTES).expect("the keeper answers")
}

/// Fills what was taken with this byte.
fn fill(arena: &Arena, extents: &Extents, byte: u8) {
    arena.make_usable(extents).expect("it is there");
    for &run in extents.runs() {
        // SAFETY: the run was taken, so it is mapped and nobody else uses it.
        unsafe { arena.address(run).write_bytes(byte, run.bytes as usize) };
    }
}

fn is_filled(arena: &Arena, extents: &Extents, byte: u8) -> bool {
    arena.make_usable(extents).expect("it is there");
    extents.runs().iter().all(|&run| {
        // SAFETY: the run was taken, so it is mapped and nobody else uses it.
        let bytes = unsafe { std::slice::from_raw_parts(arena.address(run), run.bytes as usize) };
        bytes.iter().all(|&other| other == byte)
    })
}

fn record_out(arena: &Arena, handle: u64, hashes: Option<&[BlockHash]>) {
    let outcomes = arena.record_out([(key(handle), hashes)].into_iter());
    assert_eq!(outcomes.expect("the keeper answers"), [Outcome::Done]);
}

#[test]
fn space_is_near_to_its_device_as_far_as_there_is_some() {
    // Every machine has node 0; on one without NUMA all space is as near.
    let parts = [None, Some(Node(0))].map(|node| keeper::Part { bytes: SEGMENT, node });
    let keeper = TestKeeper::of_parts(&parts, SEGMENT);
    let arena = keeper.arena(FakeDevice::new(0).registrar());
    arena.introduce(A, process(A)).expect("a tenant");
    arena.wait_until_prepared();
    let places = |taken: Option<Taken>| {
        let taken = taken.expect("there is space");
        taken.extents.runs().iter().map(|run| run.offset / SEGMENT).collect::<Vec<_>>()
    };
    let near = arena.near(Some(Node(0)));
    let first = places(take(&near, 1, 1));
    let mut is_bound = false;
    let looked = arena.0.link.ask(|client| {
        client.segments(0, |segment, _| -> Result<(), ClientError> {
            is_bound |= segment.node.is_some();
            Ok(())
        })
    });
    looked.expect("an answer");
    if is_bound {
        assert_eq!(first, [1]);
        assert_eq!(places(take(&arena, 2, 1)), [0]);
        assert_eq!(places(take(&near, 3, 2)), [1, 0], "what is far is better than none");
    }
}

#[test]
fn all_of_it_becomes_ready_and_is_undone() {
    let device = FakeDevice::new(1 << 30);
    let (arena, _keeper) = arena(5, &device);
    arena.wait_until_prepared();
    assert_eq!((arena.size_bytes(), arena.ready_bytes()), (5 * BLOCK_BYTES, 5 * BLOCK_BYTES));
    assert_eq!(device.registered_bytes(), 5 * BLOCK_BYTES);
    assert!(!arena.is_growing());
    assert_eq!((arena.stopped(), arena.lost()), (None, None));
    let all = take(&arena, 1, 5).expect("all is free");
    assert_eq!(all.extents.runs().len(), 3, "a run ends where its segment ends");
    fill(&arena, &all.extents, 7);
    arena.free(key(1));
    assert_eq!(arena.free_bytes(), 5 * BLOCK_BYTES);
    drop(arena);
    assert_eq!(device.registered_bytes(), 0);
}

#[test]
fn space_for_several_is_taken_up_to_the_first_that_does_not_fit() {
    let device = FakeDevice::new(1 << 30);
    let (arena, _keeper) = ready(4, &device);
    let wanted = [(1, 1), (2, 4), (3, 1)].map(|(handle, blocks)| (key(handle), blocks * BLOCK_BYTES));
    let taken = arena.take_in_order(&wanted).expect("the keeper answers");
    assert_eq!(taken.len(), 1);
    assert_eq!(arena.free_bytes(), 3 * BLOCK_BYTES, "what is behind gets nothing");
    arena.cancel_all(&[key(1)]);
    assert_eq!(arena.free_bytes(), 4 * BLOCK_BYTES);
}

#[test]
fn gently_it_is_registered_in_short_steps_and_copied_as_those() {
    const LARGE: u64 = 2 * memory::STEP_BYTES + BLOCK_BYTES;
    let device = FakeDevice::new(1 << 30);
    let keeper = TestKeeper::start(3 * LARGE / BLOCK_BYTES, LARGE);
    let (registrar, go) = Later::before(device.registrar());
    let arena = keeper.arena(registrar);
    arena.be_gentle(true);
    // The first segment may have been begun before.
    drop(go);
    arena.introduce(A, process(A)).expect("a tenant");
    arena.wait_until_prepared();
    assert_eq!(device.registered_bytes(), 3 * LARGE);
    let offset = |bytes| Extent { offset: 2 * LARGE + bytes, bytes: 0 };
    let run = |from, to: u64| Extent { bytes: to - from, ..offset(from) };
    let step = memory::STEP_BYTES;
    let cut = arena.registered_parts(run(BLOCK_BYTES, LARGE));
    assert_eq!(cut, [run(BLOCK_BYTES, step), run(step, 2 * step), run(2 * step, LARGE)]);
    assert_eq!(arena.registered_parts(run(0, step)), [run(0, step)]);
    drop(arena);
    assert_eq!(device.registered_bytes(), 0, "each step is undone");
}

#[test]
fn while_others_need_the_driver_only_what_somebody_waits_for_is_registered() {
    let device = FakeDevice::new(1 << 30);
    let keeper = TestKeeper::start(4 * SEGMENT / BLOCK_BYTES, SEGMENT);
    let (registrar, go) = Later::before(device.registrar());
    let arena = keeper.arena(registrar);
    let held = [arena.hold_back(), arena.hold_back()];
    // The first segment may have been begun before.
    drop(go);
    arena.introduce(A, process(A)).expect("a tenant");
    let last = Extent { offset: 3 * SEGMENT, bytes: BLOCK_BYTES };
    arena.make_usable(&Extents::new(vec![last])).expect("it is registered, as it is waited for");
    assert!(device.registered_bytes() <= 2 * SEGMENT, "only that, and what was begun before");
    let [first, second] = held;
    drop(first);
    std::thread::sleep(Duration::from_millis(20));
    assert!(device.registered_bytes() <= 2 * SEGMENT, "somebody needs the driver still");
    drop(second);
    arena.wait_until_prepared();
    assert_eq!(device.registered_bytes(), 4 * SEGMENT);
}

#[test]
fn what_cannot_be_pinned_can_be_used_all_the_same() {
    let mut device = FakeDevice::new(1 << 30);
    device.fail(Operation::Register, 3);
    let (arena, _keeper) = arena(8, &device);
    arena.wait_until_prepared();
    assert_eq!((arena.ready_bytes(), device.registered_bytes()), (8 * BLOCK_BYTES, 4 * BLOCK_BYTES));
    assert!(arena.stopped().expect("it stopped").contains("cannot pin"));
    fill(&arena, &take(&arena, 1, 8).expect("all is free").extents, 7);
    drop(arena);
    assert_eq!(device.registered_bytes(), 0);
}

#[test]
fn clones_share_the_space_and_the_last_one_ends_it() {
    let device = FakeDevice::new(1 << 30);
    let (arena, _keeper) = arena(4, &device);
    let other = arena.clone();
    arena.serve_mover();
    assert!(!arena.is_shared() && !other.is_shared(), "whoever only looks at it gives no space back");
    other.serve_mover();
    assert!(arena.is_shared() && other.is_shared());
    arena.wait_until_prepared();
    assert!(take(&arena, 1, 3).is_some());
    assert_eq!(other.free_bytes(), BLOCK_BYTES);
    assert_eq!(take(&other, 2, 2), None);
    other.free(key(1));
    assert_eq!(arena.free_bytes(), 4 * BLOCK_BYTES);
    drop(arena);
    assert_eq!(device.registered_bytes(), 4 * BLOCK_BYTES);
    drop(other);
    assert_eq!(device.registered_bytes(), 0);
}

#[test]
fn dropping_it_while_it_grows_is_fine() {
    let device = FakeDevice::new(1 << 30);
    drop(arena(16, &device));
    assert_eq!(device.registered_bytes(), 0);
}

#[test]
fn what_ends_with_its_process_is_left_registered_and_the_keeper_hears_of_the_end() {
    let device = FakeDevice::new(1 << 30);
    let (arena, keeper) = ready(4, &device);
    arena.end_with_process();
    take(&arena, 1, 2).expect("it is free");
    drop(arena);
    assert_eq!(device.registered_bytes(), 4 * BLOCK_BYTES);
    let next = keeper.arena(FakeDevice::new(1 << 30).registrar());
    next.wait_until_prepared();
    assert_eq!(next.free_bytes(), 4 * BLOCK_BYTES, "what was reserved is free");
}

#[test]
fn clean_copies_give_way_the_oldest_first_and_no_more_than_is_needed() {
    let device = FakeDevice::new(1 << 30);
    let (arena, _keeper) = ready(6, &device);
    let hash = [BlockHash { bits: 5, zero: false }; 2];
    for handle in 1..=3 {
        take(&arena, handle, 2).expect("it is free");
        record_out(&arena, handle, Some(&hash));
        assert_eq!(arena.record_in(&[(key(handle), true)]), Ok(vec![Outcome::Done]));
    }
    assert_eq!((arena.free_bytes(), arena.look_at_kept()), (6 * BLOCK_BYTES, 6 * BLOCK_BYTES));
    assert_eq!(take(&arena, 9, 7), None, "nothing goes for what would not fit all the same");
    assert_eq!(arena.look_at_kept(), 6 * BLOCK_BYTES);
    assert!(!take(&arena, 4, 3).expect("two give way").reused);
    assert_eq!((arena.free_bytes(), arena.look_at_kept()), (3 * BLOCK_BYTES, 2 * BLOCK_BYTES));
    assert!(take(&arena, 3, 2).expect("its own place").reused);
    let again = arena.retake(key(3), 2 * BLOCK_BYTES).expect("what it had is free");
    assert_eq!(again.bytes(), 2 * BLOCK_BYTES);
    record_out(&arena, 3, None);
}

#[test]
fn a_copy_without_its_zero_blocks_stays_and_takes_no_more_than_those() {
    let device = FakeDevice::new(1 << 30);
    let (arena, _keeper) = ready(6, &device);
    let hash = |zero| BlockHash { bits: 5, zero };
    let keep = |handle, hashes: &[BlockHash]| {
        take(&arena, handle, hashes.len() as u64).expect("it is free");
        record_out(&arena, handle, Some(hashes));
        assert_eq!(arena.record_in(&[(key(handle), true)]), Ok(vec![Outcome::Done]));
    };
    // The oldest has a place for one of its two blocks.
    keep(1, &[hash(false), hash(true)]);
    keep(2, &[hash(false)]);
    keep(3, &[hash(false)]);
    take(&arena, 4, 3).expect("it is free");
    let taken = take(&arena, 1, 2).expect("one gives way");
    assert!(taken.reused);
    assert_eq!((taken.extents.bytes(), arena.look_at_kept()), (2 * BLOCK_BYTES, BLOCK_BYTES));
    assert!(take(&arena, 3, 1).expect("its own place").reused, "another one than was needed went");
}

#[test]
fn a_new_worker_finds_tenants_bytes_and_seed() {
    let device = FakeDevice::new(1 << 30);
    let (arena, keeper) = ready(6, &device);
    let [one, other] = [Seed::from_bytes([1; Seed::BYTES]), Seed::from_bytes([2; Seed::BYTES])];
    assert_eq!(arena.seed(&one), Ok(one.clone()));
    let hashes = [BlockHash { bits: u128::MAX - 5, zero: false }, BlockHash { bits: 0, zero: true }];
    let taken = take(&arena, 1, 2).expect("it is free");
    fill(&arena, &taken.extents, 3);
    record_out(&arena, 1, Some(&hashes));
    take(&arena, 2, 3).expect("it is free");
    arena.cut();
    drop(arena);

    let arena = keeper.arena(device.registrar());
    assert_eq!((arena.highest_tenant(), arena.found()), (Some(A), vec![(A, process(A))]));
    assert_eq!(arena.seed(&other), Ok(one));
    let recorded = arena.recorded(A).expect("the keeper answers");
    let [Recorded { handle: 1, place: keeper::Place::Away, .. }] = recorded[..] else {
        panic!("{recorded:?}")
    };
    assert_eq!(recorded[0].facts.iter().map(hash_of).collect::<Vec<_>>(), hashes);
    assert!(is_filled(&arena, &Extents::new(recorded[0].extents.clone()), 3));
    arena.wait_until_prepared();
    assert_eq!(arena.free_bytes(), 2 * BLOCK_BYTES, "a copy of the dead worker may be under way");
    assert_eq!(arena.reclaim(), Ok(3 * BLOCK_BYTES));
    let stranger = keeper::Process { start_ticks: 8, ..process(A) };
    assert_eq!(arena.take_found(A, stranger), Some(Err(process(A))));
    assert_eq!(arena.take_found(Owner(2), process(A)), None);
    assert_eq!(arena.take_found(A, process(A)), Some(Ok(())));
    assert_eq!((arena.take_found(A, process(A)), arena.found()), (None, vec![]));
    arena.died(A);
    assert_eq!(arena.free_bytes(), 6 * BLOCK_BYTES);
}

#[test]
fn a_worker_that_ends_drops_what_it_had_reserved() {
    let device = FakeDevice::new(1 << 30);
    let (arena, keeper) = ready(6, &device);
    take(&arena, 1, 2).expect("it is free");
    drop(arena);
    let arena = keeper.arena(device.registrar());
    arena.wait_until_prepared();
    assert_eq!(arena.free_bytes(), 6 * BLOCK_BYTES);
    take(&arena, 1, 2).expect("it is free");
    arena.at_end_say_nothing();
    arena.at_end(End::Stay);
    drop(arena);
    assert_eq!(keeper.arena(device.registrar()).reclaim(), Ok(2 * BLOCK_BYTES), "something may be under way");
}

#[test]
fn without_the_keeper_nothing_is_given_and_it_says_why() {
    let device = FakeDevice::new(1 << 30);
    let keeper = TestKeeper::start(4, SEGMENT);
    let arena = keeper.arena(device.registrar());
    arena.wait_until_prepared();
    assert_eq!(
        arena.take(key(1), BLOCK_BYTES),
        Err(ArenaError::Refused(Outcome::UnknownTenant)),
        "a refusal is an answer"
    );
    arena.introduce(A, process(A)).expect("a tenant");
    let taken = take(&arena, 1, 1).expect("it is free");
    let lost = arena.0.link.ask::<()>(|_| Err(ClientError::Gone)).expect_err("nobody answers");
    assert!(matches!(&lost, ArenaError::Lost { why } if why.contains("keeper is gone")), "{lost}");
    assert_eq!(arena.take(key(2), BLOCK_BYTES), Err(lost.clone()), "the keeper is not asked any more");
    assert!(arena.lost().is_some());
    assert_eq!(arena.record_in(&[(key(1), false)]), Err(lost));
    assert_eq!((arena.free_bytes(), arena.ready_bytes()), (0, 0));
    fill(&arena, &taken.extents, 1);
}
