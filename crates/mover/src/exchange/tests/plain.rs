//! Plans that can be done, and such as cannot be: what is moved, in which order, and what is said.

use super::{A, B, MoveError, Owner, Setup, Stuck, Tenants, key, plan, process, usual};
use crate::BLOCK_BYTES;
use crate::device::{DeviceError, Registrar};
use crate::exchange::Gone;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

#[test]
fn all_goes_out_and_all_comes_in() {
    let (mut setup, plan) = usual();
    setup.mover.device_mut().polls_per_copy = 3;
    let outcome = setup.exchange(plan.clone());
    assert_eq!(outcome.moved_out, plan.out);
    assert_eq!(outcome.moved_in, plan.into);
    assert_eq!(outcome.failed, []);
    assert_eq!(outcome.stuck, None);
    assert_eq!((outcome.bytes_out, outcome.bytes_in), (4 * BLOCK_BYTES, 4 * BLOCK_BYTES));
    assert!(outcome.out.end > outcome.out.start && outcome.into.end > outcome.into.start);
    assert!(outcome.into.start < outcome.out.end, "both ways at once");
    assert_eq!(setup.mover.away_bytes(A), 4 * BLOCK_BYTES);
    assert_eq!(setup.mover.resident_bytes(B), 4 * BLOCK_BYTES);
    assert!(setup.tenants.world().most_used > 4 * BLOCK_BYTES, "the room is used");
    setup.check_told(&plan, &outcome);
    setup.check_all();
}

#[test]
fn a_scattered_arena_is_no_obstacle() {
    let (mut setup, plan) = usual();
    let other = Owner(9);
    let arena = setup.mover.arena();
    arena.introduce(other, process(other)).expect("a new tenant");
    for handle in 0..5 {
        assert!(arena.take(key(other, handle), BLOCK_BYTES).expect("the keeper answers").is_some());
    }
    for handle in [0, 2, 4] {
        arena.free(key(other, handle));
    }
    let outcome = setup.exchange(plan.clone());
    assert_eq!((outcome.moved_out.len(), outcome.moved_in.len()), (3, 3), "{outcome:?}");
    setup.mover.forget_owner(other);
    setup.check_all();
}

#[test]
fn a_small_arena_makes_the_ways_alternate() {
    // 11 blocks of arena, 10 of them taken by B: A leaves piece by piece, as B's pieces come in.
    let (mut setup, plan) = Setup::a_in_b_away(&[1; 10], &[1; 10], 11, 11);
    let outcome = setup.exchange(plan.clone());
    assert_eq!((outcome.moved_out, outcome.moved_in), (plan.out, plan.into));
    setup.check_places();
}

#[test]
fn a_full_arena_without_room_is_said() {
    let (mut setup, plan) = Setup::a_in_b_away(&[3, 2], &[3, 2], 5, 6);
    let outcome = setup.exchange(plan.clone());
    assert_eq!(
        outcome.stuck,
        Some(Stuck::NoArenaSpace {
            need_bytes: 3 * BLOCK_BYTES,
            free_bytes: BLOCK_BYTES,
            ready_bytes: 6 * BLOCK_BYTES
        })
    );
    assert!(outcome.failed.iter().all(|(_, error)| *error == MoveError::NotStarted));
    setup.check_told(&plan, &outcome);
    setup.check_places();
}

#[test]
fn no_room_is_said() {
    let (mut setup, mut plan) = Setup::a_in_b_away(&[2], &[1, 5], 6, 16);
    plan.room_bytes = 2 * BLOCK_BYTES;
    let outcome = setup.exchange(plan.clone());
    assert_eq!(outcome.moved_in, [key(B, 0)]);
    assert_eq!(
        outcome.stuck,
        Some(Stuck::NoRoom { need_bytes: 5 * BLOCK_BYTES, room_bytes: 3 * BLOCK_BYTES })
    );
    setup.check_told(&plan, &outcome);
    setup.check_places();
}

#[test]
fn out_of_order_is_better_than_stuck() {
    // The first of A fits only after the second has left and the first of B has come.
    let (mut setup, plan) = Setup::a_in_b_away(&[3, 1], &[2, 2], 5, 6);
    let outcome = setup.exchange(plan.clone());
    assert_eq!(outcome.stuck, None);
    assert_eq!((outcome.moved_out.len(), outcome.moved_in.len()), (2, 2));
    setup.check_places();
}

#[test]
fn a_plan_that_cannot_be_is_refused_by_handle() {
    let (mut setup, _) = usual();
    let unknown = key(A, 99);
    let outcome = setup.exchange(plan(&[key(B, 0), unknown], &[key(A, 0), unknown], 2));
    assert_eq!(
        outcome.failed,
        [(key(B, 0), MoveError::NotResident), (unknown, MoveError::Unknown), (key(A, 0), MoveError::NotAway)]
    );
    setup.check_all();
}

#[test]
fn more_handles_than_one_request_holds() {
    let (mut setup, plan) = Setup::a_in_b_away(&[1; 70], &[1; 70], 140, 150);
    let outcome = setup.exchange(plan.clone());
    assert_eq!((outcome.moved_out, outcome.moved_in), (plan.out, plan.into));
    setup.check_places();
}

/// Takes its time.
struct SlowRegistrar(Box<dyn Registrar>);

impl Registrar for SlowRegistrar {
    unsafe fn register(&mut self, start: *mut u8, bytes: u64) -> Result<(), DeviceError> {
        std::thread::sleep(Duration::from_millis(5));
        // SAFETY: the caller answers for it.
        unsafe { self.0.register(start, bytes) }
    }

    unsafe fn unregister(&mut self, start: *mut u8) -> Result<(), DeviceError> {
        // SAFETY: the caller answers for it.
        unsafe { self.0.unregister(start) }
    }
}

#[test]
fn an_arena_that_still_grows_is_waited_for() {
    let mut setup = Setup::with_registrar(8, 8, |registrar| Box::new(SlowRegistrar(registrar)));
    let out = setup.allocate(A, &[4, 4]);
    let outcome = setup.exchange(plan(&out, &[], 0));
    assert_eq!((outcome.moved_out, outcome.stuck), (out, None));
    setup.check_places();
}

/// Tenants that answer from another thread, later.
struct Remote(Sender<(Owner, Vec<u64>, bool)>);

impl Tenants for Remote {
    fn unmap(&mut self, owner: Owner, handles: &[u64]) -> Result<(), Gone> {
        self.0.send((owner, handles.to_vec(), false)).map_err(|_| Gone)
    }

    fn create(&mut self, owner: Owner, handles: &[u64]) -> Result<(), Gone> {
        self.0.send((owner, handles.to_vec(), true)).map_err(|_| Gone)
    }

    fn take(&mut self, owner: Owner, _: &[(u64, Arc<OwnedFd>)]) -> Result<(), Gone> {
        unreachable!("{owner} trusts nobody")
    }
}

#[test]
fn answers_come_from_another_thread() {
    let (mut setup, plan) = Setup::a_in_b_away(&[1; 20], &[2; 10], 24, 30);
    let (sender, requests) = channel::<(Owner, Vec<u64>, bool)>();
    let mut agents = setup.tenants.clone();
    let thread = std::thread::spawn(move || {
        for (owner, handles, is_create) in requests {
            std::thread::sleep(Duration::from_micros(300));
            let result =
                if is_create { agents.create(owner, &handles) } else { agents.unmap(owner, &handles) };
            result.expect("nobody dies here");
        }
    });
    let mut remote = Remote(sender);
    let outcome = setup.mover.exchange(plan.clone(), &mut remote, &setup.replies);
    drop(remote);
    thread.join().expect("no tenant failed");
    assert_eq!((outcome.moved_out, outcome.moved_in), (plan.out, plan.into));
    setup.check_places();
}
