//! What a new worker finds is what was recorded.

use crate::world::*;
use rota_keeper::message::{BATCH_MAX, SEGMENTS_PER_ANSWER_MAX};
use rota_keeper::*;

#[test]
fn a_new_worker_finds_what_was_recorded_and_nothing_else() {
    let world = World::new(16);
    let mut worker = world.worker_with_tenant();
    let facts = [false, true].map(|zero| BlockFact { hash: [7; 16], zero });
    let away = reserve(&mut worker, 1, 2);
    let clean = reserve(&mut worker, 2, 1);
    reserve(&mut worker, 3, 4);
    let first = Out { key: key(1), facts: facts.to_vec() };
    assert_eq!(worker.record_out(&[first, out(2)]).expect("an answer"), [Outcome::Done; 2]);
    let back = In { key: key(2), keep_clean: true };
    assert_eq!(worker.record_in(&[back]).expect("an answer"), [Outcome::Done]);
    drop(worker);

    let mut worker = world.worker();
    assert_eq!(worker.welcome().highest_tenant, Some(TENANT));
    assert_eq!(worker.tenants().expect("an answer"), [(TENANT, Process::this())]);
    let blocks = |count| count * BLOCK_BYTES;
    let expected = [
        // The second block is zero, and has no place.
        Recorded {
            handle: 1,
            bytes: blocks(2),
            place: Place::Away,
            extents: vec![Extent { bytes: BLOCK_BYTES, ..away[0] }],
            facts: facts.to_vec(),
        },
        Recorded { handle: 2, bytes: blocks(1), place: Place::Clean, extents: clean, facts: Vec::new() },
    ];
    assert_eq!(worker.recorded(TENANT).expect("an answer"), expected);
    assert_eq!(worker.recorded(TenantNumber(9)).expect("an answer"), []);
    let progress = worker.progress().expect("an answer");
    assert_eq!((progress.reserved_bytes, progress.orphaned_bytes), (0, blocks(4)));
    assert_eq!(worker.reclaim().expect("an answer"), blocks(4));
    assert_eq!(worker.record_out(&[out(3)]).expect("an answer"), [Outcome::NotReserved]);
    drop(worker);
    assert_eq!(world.stop(), blocks(2));
}

#[test]
fn all_memory_is_handed_over_in_several_messages() {
    let segments = 2 * SEGMENTS_PER_ANSWER_MAX as u64 + 5;
    let world = World::in_many_segments(segments);
    let mut worker = world.worker_with_tenant();
    let view = map_all(&mut worker);
    assert_eq!(u64::from(view.segments()), segments);
    let more: Result<(), ClientError> = worker.segments(view.segments(), |more, _| panic!("{more:?}"));
    more.expect("an answer");
    let unwanted: Result<(), ClientError> = worker.segments(0, |_, _| Err(ClientError::Strange));
    assert!(matches!(unwanted, Err(ClientError::Strange)), "the first error is the last word");
    let extents = reserve(&mut worker, 1, 100);
    for (number, run) in extents.iter().enumerate() {
        let address = view.address(*run).expect("all of it is mapped");
        // SAFETY: reserved for us, and mapped.
        unsafe { address.write_bytes(number as u8 + 1, run.bytes as usize) };
    }
    worker.record_out(&[out(1)]).expect("an answer");
    drop((worker, view));

    let mut worker = world.worker();
    let view = map_all(&mut worker);
    let recorded = worker.recorded(TENANT).expect("an answer").remove(0);
    assert_eq!(recorded.extents, extents);
    for (number, run) in recorded.extents.iter().enumerate() {
        let address = view.address(*run).expect("all of it is mapped");
        // SAFETY: mapped, and nobody writes to what is away.
        let bytes = unsafe { std::slice::from_raw_parts(address, run.bytes as usize) };
        assert!(bytes.iter().all(|&byte| byte == number as u8 + 1));
    }
    drop(worker);
    world.stop();
}

#[test]
fn long_lists_are_sent_in_pieces_and_answered_as_one() {
    const HANDLES: usize = 2 * BATCH_MAX + 2;
    let world = World::new(HANDLES as u64);
    let mut worker = world.worker_with_tenant();
    let handles = 0..HANDLES as u64;
    let all: Vec<Wanted> = handles.clone().map(|handle| wanted(handle, 1)).collect();
    let reserved = worker.reserve(None, &all).expect("an answer");
    assert_eq!(reserved.len(), HANDLES);
    assert!(reserved.iter().all(|reservation| matches!(reservation, Reservation::Space { .. })));
    let fact = BlockFact { hash: [1; 16], zero: false };
    let outs: Vec<Out> = all.iter().map(|wanted| Out { key: wanted.key, facts: vec![fact] }).collect();
    assert_eq!(worker.record_out(&outs).expect("an answer"), [Outcome::Done; HANDLES]);
    let listed: Vec<u64> =
        worker.recorded(TENANT).expect("an answer").iter().map(|recorded| recorded.handle).collect();
    assert_eq!(listed, handles.clone().collect::<Vec<_>>());
    let keys: Vec<HandleKey> = handles.map(key).collect();
    assert_eq!(worker.free(&keys).expect("an answer"), [Outcome::Done; HANDLES]);
    assert_eq!(worker.cancel(&keys).expect("an answer"), [Outcome::AlreadySo; HANDLES]);
    drop(worker);
    assert_eq!(world.stop(), 0);
}

#[test]
fn the_seed_of_the_first_worker_is_that_of_all() {
    let world = World::new(4);
    let mut worker = world.worker();
    assert_eq!(worker.welcome().seed, None);
    let seed = HashSeed::new(&[7; 32]).expect("32 bytes will do");
    assert_eq!(worker.keep_seed(seed.clone()).expect("an answer"), Outcome::Done);
    drop(worker);
    let mut worker = world.worker();
    assert_eq!(worker.welcome().seed, Some(seed));
    let other = HashSeed::new(&[8; 16]).expect("16 bytes will do");
    assert_eq!(worker.keep_seed(other).expect("an answer"), Outcome::OtherSeed);
    drop(worker);
    world.stop();
}

#[test]
fn a_worker_that_reconnects_goes_on_with_what_is_recorded() {
    let world = World::new(8);
    let mut worker = world.worker_with_tenant();
    reserve(&mut worker, 1, 2);
    worker.record_out(&[out(1)]).expect("an answer");
    reserve(&mut worker, 2, 2);
    worker.reconnect().expect("the same keeper is there");
    assert_eq!(
        worker.record_out(&[out(1), out(2)]).expect("an answer"),
        [Outcome::AlreadySo, Outcome::NotReserved]
    );
    assert_eq!(worker.reclaim().expect("an answer"), 2 * BLOCK_BYTES);
    drop(worker);
    world.stop();
}
