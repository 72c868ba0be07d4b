//! Exchanges with an arena that is too small, and a cellar beside it: all that moves moves, through a real file, and whatever
//! the disk does, no byte is wrong and none stays taken.

use super::disk::{Fault, On, TestDisk};
use super::world::Content;
use super::{A, B, C, LONG, Setup, key, plan};
use crate::exchange::{MoveError, Plan, Stuck};
use crate::mover::Whereabouts;
use crate::test_keeper::process;
use crate::{BLOCK_BYTES, CleanCopies, HandleKey, Owner};
use cellar::GRANULE_BYTES;

impl Setup {
    /// With a cellar that takes so many blocks.
    pub(super) fn with_cellar(capacity_blocks: u64, arena_blocks: u64, cellar_blocks: u64) -> Setup {
        Setup::with_disk(capacity_blocks, arena_blocks, TestDisk::new(cellar_blocks * BLOCK_BYTES))
    }

    fn with_disk(capacity_blocks: u64, arena_blocks: u64, disk: TestDisk) -> Setup {
        let mut setup = Setup::new(capacity_blocks, arena_blocks);
        disk.open(setup.mover.arena());
        setup.disk = Some(disk);
        setup
    }

    /// The next worker's, which is to have no cellar: what is in that of the last can be brought back.
    fn without_cellar(self) -> Setup {
        let Setup { mover, tenants, keeper, .. } = self;
        drop(mover);
        let device = crate::fake_device::FakeDevice::new(tenants.world().capacity());
        let (sender, replies) = std::sync::mpsc::channel();
        tenants.world().meet(sender, device.imports());
        let arena = keeper.arena(crate::device::Device::registrar(&device));
        arena.wait_until_prepared();
        arena.open_cellar(None).expect("that of the worker before");
        let mover = crate::Mover::new(device, arena);
        let mut setup = Setup { mover, tenants, replies, keeper, disk: None };
        for owner in [A, B] {
            let handles = setup.tenants.world().report(owner);
            let adopted = setup.mover.adopt_tenant(owner, process(owner), handles, &mut setup.tenants);
            assert!(adopted.expect("it is known").failed.is_empty());
        }
        setup
    }

    fn disk(&self) -> TestDisk {
        self.disk.clone().expect("there is a cellar")
    }

    fn cellar_blocks(&self) -> u64 {
        self.mover.arena().cellar_statistics().expect("there is a cellar").plain_bytes / BLOCK_BYTES
    }

    /// All of one goes, all of the other comes.
    pub(super) fn turn(&mut self, goes: Owner, comes: Owner) -> Plan {
        let of = |setup: &Setup, owner, whereabouts| -> Vec<HandleKey> {
            let handles = setup.mover.handles(owner).into_iter();
            handles.filter(|view| view.whereabouts == whereabouts).map(|view| view.key).collect()
        };
        let room_bytes =
            crate::device::Device::capacity(self.mover.device_mut()).expect("it works").free_bytes;
        let (out, into) = (of(self, goes, Whereabouts::Device), of(self, comes, Whereabouts::Arena));
        Plan { out, into, room_bytes, deadline: LONG }
    }
}

/// A of 4 blocks on a device of 5, B of 4 away, with an arena of so many.
fn a_in_b_away(arena_blocks: u64, cellar_blocks: u64) -> Setup {
    let mut setup = Setup::with_cellar(5, arena_blocks, cellar_blocks);
    let away = setup.allocate(B, &[1, 2, 1]);
    let outcome = setup.exchange(plan(&away, &[], 0));
    assert_eq!((outcome.moved_out, outcome.stuck), (away, None));
    setup.allocate(A, &[2, 1, 1]);
    setup
}

#[test]
fn what_does_not_fit_goes_to_the_cellar_and_comes_back() {
    // From an arena for one handle to one that needs no cellar.
    for arena_blocks in 2..10 {
        let mut setup = a_in_b_away(arena_blocks, 64);
        for (goes, comes) in [(A, B), (B, A), (A, B), (B, A)] {
            let plan = setup.turn(goes, comes);
            let outcome = setup.exchange(plan.clone());
            setup.check_told(&plan, &outcome);
            assert_eq!((outcome.failed, outcome.stuck), (vec![], None), "an arena of {arena_blocks}");
            assert_eq!((outcome.bytes_out, outcome.bytes_in), (4 * BLOCK_BYTES, 4 * BLOCK_BYTES));
            assert!(outcome.sunk_bytes > 0 || arena_blocks > 3, "an arena of {arena_blocks}");
            assert!(outcome.sunk_bytes <= 4 * BLOCK_BYTES, "no more than what goes out");
            setup.check_places();
            assert!(setup.cellar_blocks() >= 4u64.saturating_sub(arena_blocks));
        }
        setup.check_all();
    }
}

/// Two programs that change places move no more through the disk than what does not fit into the arena.
#[test]
fn as_long_as_the_cellar_has_room_it_gets_only_what_does_not_fit() {
    for (blocks, arena_blocks, sunk, fetched) in [(8, 2, 8, 8), (16, 8, 11, 11), (32, 16, 25, 25)] {
        let mut setup = Setup::with_cellar(blocks, arena_blocks, 96);
        setup.tenants.world().fill_densely();
        let ones = vec![1; blocks as usize];
        let away = setup.allocate(B, &ones);
        assert_eq!(setup.exchange(plan(&away, &[], 0)).moved_out.len(), ones.len());
        setup.allocate(A, &ones);
        for (goes, comes) in [(A, B), (B, A), (A, B)] {
            let plan = setup.turn(goes, comes);
            let outcome = setup.exchange(plan);
            assert_eq!((outcome.failed, outcome.stuck), (vec![], None));
            let moved = (outcome.sunk_bytes / BLOCK_BYTES, outcome.fetched_bytes / BLOCK_BYTES);
            assert!(moved.0 <= sunk && moved.1 <= fetched, "{moved:?} of {blocks}, arena {arena_blocks}");
        }
    }
}

/// Where nothing more goes to the cellar, what is there is not fetched into space that what goes out needs.
#[test]
fn one_that_fails_or_is_switched_off_stands_in_nobodys_way() {
    for fails in [true, false] {
        let mut setup = Setup::with_cellar(4, 6, 64);
        setup.tenants.world().fill_densely();
        setup.mover.introduce(C, process(C)).expect("a new tenant");
        // One of B's goes to the cellar, as C comes after it.
        for (owner, sizes) in [(B, &[2, 2][..]), (C, &[2, 2])] {
            let keys = setup.allocate(owner, sizes);
            assert_eq!(setup.exchange(plan(&keys, &[], 0)).moved_out.len(), 2);
        }
        assert_eq!(setup.cellar_blocks(), 2);
        setup.mover.forget_owner(C);
        setup.tenants.world().happen(super::world::Event::Dies(C));
        setup.take_late();
        assert_eq!(setup.cellar_blocks(), 2, "it is B's");
        setup.allocate(A, &[4]);
        let disk = setup.disk();
        if fails {
            (0..64).for_each(|nth| disk.fail(On::Write, nth, Fault::Error(libc::EIO)));
        } else {
            setup = setup.without_cellar();
        }
        let plan = setup.turn(A, B);
        let outcome = setup.exchange(plan);
        assert_eq!((outcome.failed, outcome.stuck), (vec![], None), "it fails: {fails}");
        disk.heal();
        setup.check_places();
    }
}

/// What comes from the cellar needs a way through the arena, which what goes out must not take: with a full cellar nothing else
/// would give it back, and nobody who is in the cellar would ever come again. Its disk may be full long before its limit: that shows
/// when the file is to grow, so the move that finds it out may end early, and the next one goes through.
#[test]
fn as_long_as_two_of_the_largest_fit_everybody_comes_through_a_full_cellar() {
    everybody_comes_through(|cellar_blocks| TestDisk::new(cellar_blocks * BLOCK_BYTES), 0);
    let full_before =
        |cellar_blocks| TestDisk::new(64 * BLOCK_BYTES).with_room_for(cellar_blocks * BLOCK_BYTES);
    everybody_comes_through(full_before, 1);
}

fn everybody_comes_through(disk_of: impl Fn(u64) -> TestDisk, early_ends_max: usize) {
    const SHAPES: [&[u64]; 4] = [&[2, 1, 1], &[1, 1, 1, 1], &[2, 2], &[1, 1, 2]];
    const AWAY_BLOCKS: u64 = 8;
    for shape in 0..SHAPES.len() {
        for (arena_blocks, free_blocks, spare_blocks) in
            (4..8).flat_map(|arena| (4..6).flat_map(move |free| [0, 1].map(|spare| (arena, free, spare))))
        {
            let cellar_blocks = (AWAY_BLOCKS + free_blocks).saturating_sub(arena_blocks).max(1);
            let mut setup = Setup::with_disk(4 + spare_blocks, arena_blocks, disk_of(cellar_blocks));
            setup.tenants.world().fill_densely();
            setup.mover.introduce(C, process(C)).expect("a new tenant");
            let mut early_ends = 0;
            for (number, owner) in [A, B, C].into_iter().enumerate() {
                let keys = setup.allocate(owner, SHAPES[(shape + number) % SHAPES.len()]);
                if owner != C {
                    assert_eq!(setup.exchange(plan(&keys, &[], 0)).moved_out.len(), keys.len());
                }
            }
            for (goes, comes) in [(C, A), (A, B), (B, C), (C, B), (B, A), (A, C), (C, A), (A, B)] {
                let outcome = loop {
                    let plan = setup.turn(goes, comes);
                    let outcome = setup.exchange(plan.clone());
                    setup.check_told(&plan, &outcome);
                    setup.check_places();
                    if outcome.stuck.is_none() || early_ends == early_ends_max {
                        break outcome;
                    }
                    early_ends += 1;
                    // Who was there goes on.
                    let back = setup.turn(comes, goes);
                    assert_eq!(setup.exchange(back).stuck, None, "{goes} instead of {comes}");
                };
                assert_eq!(
                    (outcome.failed, outcome.stuck),
                    (vec![], None),
                    "{goes} for {comes}, arena {arena_blocks}, cellar {cellar_blocks}, shape {shape}, spare {spare_blocks}"
                );
            }
        }
    }
}

#[test]
fn zero_blocks_take_no_disk_and_clean_copies_stay_right() {
    let mut setup = Setup::with_cellar(5, 2, 64);
    setup.mover.keep_copies(CleanCopies::On).expect("a device that hashes");
    setup.allocate(B, &[2, 1, 1]);
    for block in 0..2 {
        setup.tenants.world().write(key(B, 0), block, Content::Zero);
    }
    let away = plan(&[key(B, 0), key(B, 1), key(B, 2)], &[], 0);
    assert_eq!(setup.exchange(away).moved_out.len(), 3);
    setup.allocate(A, &[2, 1, 1]);
    for version in 1..4 {
        for (goes, comes) in [(A, B), (B, A)] {
            let plan = setup.turn(goes, comes);
            let outcome = setup.exchange(plan);
            assert_eq!((outcome.failed, outcome.stuck), (vec![], None));
            setup.check_places();
            if version < 3 {
                setup.tenants.world().write(key(comes, 1), 0, Content::Version(version));
            } else {
                setup.tenants.world().write(key(comes, 0), 1, Content::Version(9));
            }
        }
    }
    let cellar = setup.mover.arena().cellar_statistics().expect("there is one");
    assert!(cellar.totals.zero_blocks > 0, "{cellar:?}");
    setup.check_all();
}

#[test]
fn a_full_cellar_or_disk_stops_the_move_and_loses_nothing() {
    // Too small a limit; then a disk that has no room, at once or later; then one that fails.
    let faults = [
        (GRANULE_BYTES, None),
        (64 * BLOCK_BYTES, Some((On::Allocate, 0, libc::ENOSPC))),
        (64 * BLOCK_BYTES, Some((On::Write, 1, libc::ENOSPC))),
        (64 * BLOCK_BYTES, Some((On::Write, 0, libc::EIO))),
    ];
    for (limit_bytes, fault) in faults {
        let mut setup = Setup::with_disk(9, 2, TestDisk::new(limit_bytes));
        let a = setup.allocate(A, &[2, 1, 1]);
        if let Some((on, nth, code)) = fault {
            setup.disk().fail(on, nth, Fault::Error(code));
        }
        let wanted = plan(&a, &[], 0);
        let outcome = setup.exchange(wanted.clone());
        setup.check_told(&wanted, &outcome);
        let Some(Stuck::NoCellar { why, .. }) = &outcome.stuck else { panic!("{outcome:?}") };
        assert!(why.contains("tenant 1"), "{why}");
        assert!(outcome.failed.iter().all(|(_, error)| *error == MoveError::NotStarted), "{outcome:?}");
        assert!(outcome.must_end.is_empty());
        setup.check_places();
        setup.check_rules();
        // What hindered it is over: it is tried again. With the limit it never is.
        if fault.is_some() {
            let left = setup.turn(A, B);
            assert_eq!(setup.exchange(left.clone()).moved_out.len(), left.out.len());
            setup.check_all();
        }
    }
}

#[test]
fn a_block_that_cannot_be_had_ends_its_tenant_and_names_it() {
    for fault in [Fault::Flip, Fault::Error(libc::EIO)] {
        let mut setup = Setup::with_cellar(9, 4, 64);
        let a = setup.allocate(A, &[2, 2]);
        let b = setup.allocate(B, &[2]);
        assert_eq!(setup.exchange(plan(&a, &[], 0)).moved_out, a);
        assert_eq!(setup.exchange(plan(&b, &[], 0)).moved_out, b);
        assert!(setup.cellar_blocks() > 0);
        setup.disk().fail(On::Read, 0, fault);
        let both: Vec<HandleKey> = a.iter().chain(&b).copied().collect();
        let wanted = plan(&[], &both, 9);
        let outcome = setup.exchange(wanted.clone());
        setup.check_told(&wanted, &outcome);
        let [(lost, MoveError::Lost(why))] = &outcome.failed[..] else { panic!("{outcome:?}") };
        let named = format!("of handle {} of tenant {}", lost.handle, lost.owner.0);
        assert!(why.contains(&named) && why.contains("block "), "{why}");
        assert_eq!(outcome.must_end, [lost.owner]);
        assert_eq!(outcome.moved_in.len(), 2, "nobody else is hurt");
        let lost = *lost;
        setup.check_places();
        setup.mover.forget_owner(lost.owner);
        setup.tenants.world().happen(super::world::Event::Dies(lost.owner));
        setup.take_late();
        setup.check_all();
    }
}

#[test]
fn what_dies_or_is_freed_on_its_way_leaves_nothing() {
    let total = {
        let mut setup = a_in_b_away(2, 64);
        let plan = setup.turn(A, B);
        setup.exchange(plan);
        setup.tenants.world().requests
    };
    for request in 4..=total {
        for who in [A, B] {
            for event in [
                super::world::Event::Dies(who),
                super::world::Event::Frees(key(who, 0)),
                super::world::Event::Frees(key(who, 2)),
            ] {
                let mut setup = a_in_b_away(2, 64);
                setup.tenants.world().twist = Some((request, super::world::Twist::After(event)));
                let plan = setup.turn(A, B);
                let outcome = setup.exchange(plan.clone());
                setup.check_told(&plan, &outcome);
                setup.take_late();
                setup.check_all();
            }
        }
    }
}

#[test]
fn the_real_one_is_polled_and_never_waited_for() {
    let mut setup = Setup::new(9, 2);
    let disk = TestDisk::new(64 * BLOCK_BYTES);
    let arena = setup.mover.arena().clone();
    arena.open_cellar(Some(disk.settings.clone())).expect("a cellar");
    drop(arena);
    setup.disk = Some(disk);
    let a = setup.allocate(A, &[2, 2, 1]);
    let mut wanted = plan(&a, &[], 0);
    wanted.deadline = LONG;
    assert_eq!(setup.exchange(wanted).moved_out, a);
    assert!(setup.cellar_blocks() >= 3);
    setup.check_all();
}

#[test]
fn one_that_nobody_wants_any_more_gives_back_what_it_has() {
    let mut setup = a_in_b_away(2, 64);
    let before = setup.cellar_blocks();
    assert!(before >= 2);
    assert_eq!(setup.mover.arena().room_bytes(), (2 + 64) * BLOCK_BYTES);
    setup = setup.without_cellar();
    let arena = setup.mover.arena();
    assert_eq!((arena.has_cellar(), arena.room_bytes()), (false, 2 * BLOCK_BYTES));
    assert_eq!(setup.cellar_blocks(), before);
    let stuck = setup.turn(A, B);
    assert!(setup.exchange(stuck).stuck.is_some(), "nothing more goes there");
    // With A gone there is room for all of B.
    setup.tenants.world().happen(super::world::Event::Dies(A));
    setup.tenants.world().tear_down();
    setup.take_late();
    let back = setup.turn(A, B);
    let outcome = setup.exchange(back);
    assert_eq!((outcome.failed, setup.cellar_blocks()), (vec![], 0));
    setup.check_places();
}
