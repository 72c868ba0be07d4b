//! Two movers with one arena: space that one gives back is there for the other.

use super::world::FakeTenants;
use super::{A, B, LONG, SHORT, Setup, Stuck, plan};
use crate::{BLOCK_BYTES, Mover};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// A second GPU beside that of `first`, with the same arena.
fn beside(first: &Setup, capacity_blocks: u64) -> Setup {
    let capacity = capacity_blocks * BLOCK_BYTES;
    let device = first.mover.device().beside(1, capacity);
    let (sender, replies) = channel();
    let tenants = FakeTenants::new(sender, device.imports(), capacity);
    let keeper = Arc::clone(&first.keeper);
    Setup { mover: Mover::new(device, first.mover.arena().clone()), tenants, replies, keeper, disk: None }
}

#[test]
fn space_that_another_mover_gives_back_is_waited_for() {
    let mut first = Setup::new(4, 4);
    let mut second = beside(&first, 4);
    let away = first.allocate(A, &[4]);
    assert_eq!(first.exchange(plan(&away, &[], 0)).moved_out, away);
    assert_eq!(second.mover.arena().free_bytes(), 0);
    let out = second.allocate(B, &[2, 2]);
    let mut wanted = plan(&out, &[], 0);
    wanted.deadline = LONG;
    let back = away.clone();
    let (begun, begins) = channel();
    let outcome = std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            begins.recv().expect("the test begins");
            // So that the exchange has found that there is no space. Should it not have, the test passes all the same.
            std::thread::sleep(Duration::from_millis(20));
            first.exchange(plan(&[], &back, 4))
        });
        begun.send(()).expect("the other waits");
        let outcome = second.exchange(wanted);
        assert_eq!(other.join().expect("no panic").moved_in, away);
        outcome
    });
    // Whichever was tried when the space came.
    let mut moved_out = outcome.moved_out;
    moved_out.sort_unstable();
    assert_eq!((moved_out, outcome.stuck), (out, None));
}

#[test]
fn space_that_never_comes_is_waited_for_no_longer_than_a_step_may_take() {
    let mut first = Setup::new(4, 4);
    let mut second = beside(&first, 4);
    let away = first.allocate(A, &[3]);
    assert_eq!(first.exchange(plan(&away, &[], 0)).moved_out, away);
    let out = second.allocate(B, &[2, 1]);
    let mut wanted = plan(&out, &[], 0);
    wanted.deadline = SHORT;
    second.drive_clock();
    let outcome = second.exchange(wanted.clone());
    second.check_told(&wanted, &outcome);
    assert_eq!(outcome.moved_out, out[1..], "what fits is moved");
    let (need_bytes, ready_bytes) = (2 * BLOCK_BYTES, 4 * BLOCK_BYTES);
    assert_eq!(outcome.stuck, Some(Stuck::NoArenaSpace { need_bytes, free_bytes: 0, ready_bytes }));
}
