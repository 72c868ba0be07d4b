//! The bounds of requests, how the arena is divided, and what follows a farewell.

use super::*;
use crate::message::{BlockFact, In, Lack, Out};
use crate::names::{HandleKey, HashSeed, TenantNumber};
use rustix::event::{PollFd, PollFlags};

const SEGMENT: u64 = 4 * BLOCK_BYTES;

fn keeper(parts: &[Part]) -> Keeper {
    let mut keeper = Keeper::start(parts, SEGMENT).expect("a small arena");
    make_ready(&mut keeper);
    let process = Process { pid: 1, start_ticks: 1 };
    let introduced = keeper.answer(Request::Introduce { tenant: TenantNumber(1), process }).answer;
    assert_eq!(introduced, Answer::Outcome(Outcome::Done));
    keeper
}

fn make_ready(keeper: &mut Keeper) {
    while keeper.progress().growing {
        let mut bell = [PollFd::from_borrowed_fd(keeper.bell(), PollFlags::IN)];
        rustix::event::poll(&mut bell, None).expect("it rings");
        keeper.take_up();
    }
}

fn part(blocks: u64) -> Part {
    Part { bytes: blocks * BLOCK_BYTES, node: None }
}

fn key(handle: u64) -> HandleKey {
    HandleKey { tenant: TenantNumber(1), handle }
}

fn reserve(handle: u64, blocks: u64) -> Request {
    let bytes = blocks.wrapping_mul(BLOCK_BYTES);
    Request::Reserve { near: None, wanted: vec![Wanted { key: key(handle), bytes }] }
}

#[test]
fn each_part_has_its_segments() {
    let mut keeper = keeper(&[part(6), part(4), part(1)]);
    let Progress { wanted_bytes, ready_bytes, free_bytes, segments, growing, stopped, .. } =
        keeper.progress();
    assert_eq!(
        (wanted_bytes, ready_bytes, free_bytes),
        (11 * BLOCK_BYTES, 11 * BLOCK_BYTES, 11 * BLOCK_BYTES)
    );
    assert_eq!((segments, growing, stopped), (4, false, None));
    let Answer::Welcome(welcome) = keeper.answer(Request::Hello { version: VERSION }).answer else {
        panic!()
    };
    assert_eq!((welcome.segments, welcome.segment_bytes), (4, SEGMENT));
    assert_eq!((welcome.keeper, welcome.highest_tenant), (Process::this(), Some(TenantNumber(1))));
    let reply = keeper.answer(Request::Segments { known: 1 });
    let Answer::Segments(views) = reply.answer else { panic!() };
    assert_eq!((views.len(), reply.files.len()), (3, 3));
    let mut sizes: Vec<(u64, u64)> = keeper
        .segments
        .iter()
        .map(|segment| (segment.view().offset / SEGMENT, segment.view().bytes))
        .collect();
    sizes.sort_unstable();
    let blocks = BLOCK_BYTES;
    assert_eq!(sizes, [(0, 4 * blocks), (1, 2 * blocks), (2, 4 * blocks), (3, blocks)]);
    for known in [4, u32::MAX] {
        assert_eq!(keeper.answer(Request::Segments { known }).answer, Answer::Segments(Vec::new()));
    }
}

#[test]
fn an_arena_that_cannot_be_is_refused() {
    let start = |parts: &[Part], segment_bytes| Keeper::start(parts, segment_bytes).map(drop);
    assert!(matches!(start(&[part(0)], SEGMENT), Err(KeeperError::BadSize { bytes: 0 })));
    assert!(matches!(start(&[part(1)], 0), Err(KeeperError::BadSize { bytes: 0 })));
    assert!(matches!(start(&[part(1)], 5), Err(KeeperError::BadSize { bytes: 5 })));
    assert!(matches!(start(&[], SEGMENT), Err(KeeperError::TooLarge { segments: 0 })));
    assert!(matches!(start(&[part(u64::MAX / BLOCK_BYTES); 3], SEGMENT), Err(KeeperError::TooLarge { .. })));
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit < u64::from(SEGMENTS_MAX) {
        let wrong = start(&[part(limit - FILES_SPARE + 1)], BLOCK_BYTES);
        assert!(matches!(wrong, Err(KeeperError::TooManyFiles { .. })), "some files are for sockets");
    }
    // More than any host has, and in one piece: no file is so long, so that none is filled if it is not refused.
    let wrong = start(&[Part { bytes: 1 << 62, node: None }], 1 << 62);
    assert!(matches!(wrong, Err(KeeperError::HostMemory(_))), "{wrong:?}");
}

#[test]
fn more_than_may_be_in_a_request_ends_the_connection_and_changes_nothing() {
    let mut keeper = keeper(&[part(4)]);
    assert!(matches!(keeper.answer(reserve(1, 1)).answer, Answer::Reserved(_)));
    let before = keeper.progress();
    let fact = BlockFact { hash: [0; 16], zero: true };
    let many = |count: usize| (0..count as u64).map(key);
    let wanted = |blocks| move |key| Wanted { key, bytes: blocks * BLOCK_BYTES };
    let requests = [
        Request::Free { keys: many(BATCH_MAX + 1).collect() },
        Request::Cancel { keys: many(BATCH_MAX + 1).collect() },
        Request::RecordIn { handles: many(BATCH_MAX + 1).map(|key| In { key, keep_clean: false }).collect() },
        Request::RecordOut { handles: vec![Out { key: key(1), facts: vec![fact; FACTS_MAX + 1] }] },
        Request::Reserve { near: None, wanted: many(BATCH_MAX + 1).map(wanted(1)).collect() },
        Request::Reserve { near: None, wanted: many(2).map(wanted(RESERVED_BLOCKS_MAX / 2 + 1)).collect() },
    ];
    for request in requests {
        let reply = keeper.answer(request);
        assert_eq!((reply.answer, reply.then), (Answer::Refused(Refusal::OutOfOrder), Then::HangUp));
        assert_eq!(keeper.progress(), before);
    }
}

#[test]
fn the_longest_answers_fit_into_a_message() {
    // Every extent is one block, far behind, so that its numbers are long.
    let extents =
        vec![Extent { offset: 4 << 40, bytes: BLOCK_BYTES }; RESERVED_BLOCKS_MAX as usize / BATCH_MAX];
    let space = Reservation::Space { extents, reused: true };
    let longest = Answer::Reserved(vec![space; BATCH_MAX]);
    let bytes = postcard::to_stdvec(&longest).expect("it can be written").len();
    assert!(bytes <= wire::MESSAGE_BYTES_MAX, "{bytes}");
    let no_space = Lack {
        missing_bytes: u64::MAX,
        free_bytes: u64::MAX,
        clean_bytes: u64::MAX,
        orphaned_bytes: u64::MAX,
    };
    let longest = Answer::Reserved(vec![Reservation::NoSpace(no_space); BATCH_MAX]);
    assert!(postcard::to_stdvec(&longest).expect("it can be written").len() <= wire::MESSAGE_BYTES_MAX);
    let fact = BlockFact { hash: [255; 16], zero: true };
    let key = HandleKey { tenant: TenantNumber(u32::MAX), handle: u64::MAX };
    let mut handles = vec![Out { key, facts: Vec::new() }; BATCH_MAX];
    handles[0].facts = vec![fact; FACTS_MAX];
    let longest = Request::RecordOut { handles };
    let bytes = postcard::to_stdvec(&longest).expect("it can be written").len();
    assert!(bytes <= wire::MESSAGE_BYTES_MAX, "{bytes}");
    let process = Process { pid: u32::MAX, start_ticks: u64::MAX };
    let all = vec![(TenantNumber(u32::MAX), process); crate::message::TENANTS_PER_ANSWER_MAX];
    let bytes = postcard::to_stdvec(&Answer::Tenants(all)).expect("it can be written").len();
    assert!(bytes <= wire::MESSAGE_BYTES_MAX, "{bytes}");
}

#[test]
fn a_worker_of_another_version_is_told_which() {
    let mut keeper = keeper(&[part(4)]);
    let reply = keeper.answer(Request::Hello { version: VERSION + 1 });
    assert_eq!(reply.answer, Answer::Refused(Refusal::Version { keeper: VERSION }));
    assert_eq!(reply.then, Then::HangUp);
}

#[test]
fn a_seed_is_kept_once_for_all_workers() {
    let mut keeper = keeper(&[part(4)]);
    assert_eq!(keeper.welcome().seed, None);
    let seed = |byte, count| -> HashSeed {
        let bytes = postcard::to_stdvec(&vec![byte; count]).expect("it can be written");
        postcard::from_bytes(&bytes).expect("as it comes in a message")
    };
    let mut keep = |seed| keeper.answer(Request::KeepSeed { seed }).answer;
    for wrong in [0, 15, 65] {
        assert_eq!(keep(seed(1u8, wrong)), Answer::Refused(Refusal::OutOfOrder), "{wrong}");
    }
    assert_eq!(keep(seed(1, 16)), Answer::Outcome(Outcome::Done));
    assert_eq!(keep(seed(1, 16)), Answer::Outcome(Outcome::AlreadySo));
    assert_eq!(keep(seed(2, 64)), Answer::Outcome(Outcome::OtherSeed));
    keeper.lose_worker();
    assert_eq!(keeper.welcome().seed, HashSeed::new(&[1; 16]));
}

#[test]
fn it_ends_with_something_away_only_if_forced() {
    let mut keeper = keeper(&[part(4)]);
    keeper.answer(reserve(1, 1));
    keeper.answer(Request::RecordOut { handles: vec![Out { key: key(1), facts: Vec::new() }] });
    keeper.answer(reserve(2, 1));
    let mut leave = |end| {
        let reply = keeper.answer(Request::Leave { end });
        (reply.answer, reply.then)
    };
    let stays = Answer::Left { ends: false, away_bytes: BLOCK_BYTES };
    assert_eq!(leave(End::Stay), (stays.clone(), Then::HangUp));
    assert_eq!(leave(End::IfNothingAway), (stays, Then::HangUp));
    assert_eq!(leave(End::Forced), (Answer::Left { ends: true, away_bytes: BLOCK_BYTES }, Then::End));
    assert_eq!(keeper.progress().free_bytes, 3 * BLOCK_BYTES, "its reservation is dropped");
    keeper.answer(Request::Died { tenant: TenantNumber(1) });
    let reply = keeper.answer(Request::Leave { end: End::IfNothingAway });
    assert_eq!(reply.then, Then::End);
}
