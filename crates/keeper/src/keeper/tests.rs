//! The bounds of requests, how the arena is divided, and what follows a farewell.

use super::*;
use crate::message::{BlockFact, In, Lack, Out};
use crate::names::{HandleKey, TenantNumber};
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
    let no_space = Lack { free_bytes: u64::MAX, clean_bytes: u64::MAX, orphaned_bytes: u64::MAX };
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

#[test]
fn a_successor_has_the_same_memory_and_the_same_index() {
    let mut first = keeper(&[part(6), part(4)]);
    let Answer::Reserved(reserved) = first.answer(reserve(1, 3)).answer else { panic!() };
    let Reservation::Space { extents, .. } = &reserved[0] else { panic!("{reserved:?}") };
    let segment = first.segments.iter().find(|segment| segment.view().offset == extents[0].offset);
    let segment = segment.expect("it has a segment");
    rustix::io::pwrite(segment.file(), b"kept", 0).expect("it can be written");
    first.answer(Request::RecordOut { handles: vec![Out { key: key(1), facts: Vec::new() }] });
    let recorded = first.answer(Request::Recorded { tenant: TenantNumber(1), after: None }).answer;
    let welcome = first.welcome();
    let Inheritance { written, files } = first.bequeath().expect("it can be written");
    let copies = || files.iter().map(|file| file.try_clone_to_owned().expect("a file")).collect::<Vec<_>>();

    let wrong = Keeper::inherit(&written, copies().split_off(1)).expect_err("a file is missing");
    assert!(matches!(wrong, SuccessionError::Files { files: 2, segments: 3 }), "{wrong}");
    let mut later = written.clone();
    later[0] += 1;
    let wrong = Keeper::inherit(&later, copies()).expect_err("another version");
    assert!(matches!(wrong, SuccessionError::Version { written: 2 }), "{wrong}");
    let wrong = Keeper::inherit(&written[..written.len() - 1], copies()).expect_err("cut off");
    assert!(matches!(wrong, SuccessionError::Unreadable(_)), "{wrong}");
    let null = || std::fs::File::open("/dev/null").expect("it is everywhere").into();
    let wrong = Keeper::inherit(&written, vec![null(), null(), null()]).expect_err("no memory");
    assert!(matches!(wrong, SuccessionError::Segment(_)), "{wrong}");

    let mut next = Keeper::inherit(&written, copies()).expect("it takes over");
    drop(first);
    assert_eq!(next.answer(Request::Recorded { tenant: TenantNumber(1), after: None }).answer, recorded);
    assert_eq!(next.welcome(), welcome, "workers take it for the same");
    let Answer::Segments(views) = next.answer(Request::Segments { known: 0 }).answer else { panic!() };
    let at = views.iter().position(|view| view.offset == extents[0].offset).expect("it has a segment");
    let mut bytes = [0; 4];
    rustix::io::pread(next.segments[at].file(), &mut bytes, 0).expect("it can be read");
    assert_eq!(&bytes, b"kept");
}

#[test]
fn a_successor_makes_the_rest_ready() {
    let mut first = keeper(&[part(6), part(4)]);
    // As if it had not become ready yet.
    let missing = first.segments.pop().expect("there are three");
    let written = first.index.write();
    let views: Vec<_> = first.segments.iter().map(Segment::view).collect();
    first.index = Index::read(written, SEGMENT, views.into_iter()).expect("nothing is in it");
    let Inheritance { written, files } = first.bequeath().expect("it can be written");
    let files = files.iter().map(|file| file.try_clone_to_owned().expect("a file")).collect();
    let mut next = Keeper::inherit(&written, files).expect("it takes over");
    make_ready(&mut next);
    assert_eq!(next.progress().ready_bytes, 10 * BLOCK_BYTES);
    assert_eq!(next.segments[2].view(), missing.view());
}
