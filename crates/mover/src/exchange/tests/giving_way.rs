//! Clean copies make room before anything goes to a disk, and before any move waits or stops.

use super::{A, B, C, Setup};
use crate::test_keeper::process;
use crate::{BLOCK_BYTES, CleanCopies};

/// What each of three tenants has, in handles of these blocks, on a device for one of them.
const EACH: [u64; 3] = [2, 1, 1];

const ROUNDS: u64 = 4;

/// What goes out in these, in all.
const OUT_BLOCKS: u64 = ROUNDS * 12;

/// Takes turns for some rounds. What went out, was copied and went to the disk, in blocks, and the most that copies had.
fn rounds(mut setup: Setup, how: CleanCopies) -> (u64, u64, u64, u64) {
    setup.mover.keep_copies(how).expect("a device that hashes");
    setup.mover.introduce(C, process(C)).expect("a keeper that takes it in");
    for owner in [A, B, C] {
        setup.allocate(owner, &EACH);
        if owner != C {
            let away = setup.turn(owner, owner);
            let outcome = setup.exchange(away);
            assert_eq!((outcome.failed, outcome.stuck), (vec![], None));
        }
    }
    let (mut out, mut copied, mut sunk, mut kept) = (0, 0, 0, 0);
    for round in 0..ROUNDS {
        for (goes, comes) in [(C, A), (A, B), (B, C)] {
            let plan = setup.turn(goes, comes);
            let outcome = setup.exchange(plan);
            assert_eq!((outcome.failed, outcome.stuck), (vec![], None), "round {round}");
            out += outcome.bytes_out / BLOCK_BYTES;
            copied += outcome.copied_bytes / BLOCK_BYTES;
            sunk += outcome.sunk_bytes / BLOCK_BYTES;
            kept = kept.max(setup.mover.arena().look_at_kept() / BLOCK_BYTES);
            setup.check_places();
        }
    }
    (out, copied, sunk, kept)
}

/// Where all that is away fits into the arena, and where more and more of it does not.
#[test]
fn copies_send_nothing_to_the_disk() {
    for arena_blocks in [12, 11, 8, 5] {
        let of = |how| rounds(Setup::with_cellar(5, arena_blocks, 64), how);
        let (out, _, sunk_without, none) = of(CleanCopies::Off);
        assert_eq!((out, none), (OUT_BLOCKS, 0));
        assert_eq!(sunk_without == 0, arena_blocks > 10, "{sunk_without} of {arena_blocks}");
        let (out, copied, sunk, kept) = of(CleanCopies::On);
        assert_eq!(out, OUT_BLOCKS);
        assert!(kept > 0, "there were none to drop");
        // How far ahead the disk's threads are varies a little.
        let most = sunk_without + sunk_without / 8;
        assert!(
            sunk <= most,
            "{sunk} blocks, {sunk_without} without copies, of {arena_blocks}; {copied} copied"
        );
    }
}

/// Two are away at a time, and what goes needs room before what comes has left its own.
#[test]
fn without_a_disk_no_move_stops_for_copies() {
    let (out, _, _, kept) = rounds(Setup::new(5, 8 + 2), CleanCopies::On);
    assert_eq!(out, OUT_BLOCKS);
    assert!(kept > 0, "there were none to drop");
}

#[test]
fn with_room_for_all_they_stay_and_nothing_is_copied_twice() {
    let (out, copied, sunk, kept) = rounds(Setup::with_cellar(5, 12 + 2, 64), CleanCopies::On);
    // Of the last one the first way out was among these.
    assert_eq!((out, copied, sunk), (OUT_BLOCKS, 4, 0));
    assert_eq!(kept, 4);
}
