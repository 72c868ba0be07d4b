//! A program that takes its time while its memory changes places: everybody's moves wait for it.

use super::*;
use crate::events::{Events, Who};
use crate::executor::Link;
use crate::executor::moves::Requests;
use crate::grip::Grip;
use crate::outgoing::Outgoing;
use crate::resource_manager::ResourceManager;
use mover::fake_device::FakeDevice;
use mover::{Arena, Reply};
use rustix::fs::MemfdFlags;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use wire::{BLOCK_BYTES, Connection, SharedPage};

const TENANT: TenantId = TenantId(1);
/// On the device, and in the host's memory.
const COLD: Owned = Owned { tenant: TENANT, handle: sched::HandleId(1) };
const HOT: Owned = Owned { tenant: TENANT, handle: sched::HandleId(2) };

/// The first one of what is in the host's memory.
const BYTE: u8 = 0x77;

struct Fixture {
    memory: Memory<FakeDevice>,
    replies: Sender<Reply>,
    program: Connection,
    // In this order: its files are in the folder.
    _keeper: keeper::InProcess,
    _folder: tempfile::TempDir,
}

fn file() -> OwnedFd {
    let file = rustix::fs::memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, BLOCK_BYTES).unwrap();
    file
}

fn prepared(questions: &[wire::Question]) -> Reply {
    let files = questions.iter().map(|_| file()).collect();
    Reply::Prepared { owner: owner(TENANT), questions: in_mover(questions), files }
}

fn exchanged(questions: &[wire::Question]) -> Reply {
    Reply::Exchanged { owner: owner(TENANT), questions: in_mover(questions) }
}

fn in_mover(questions: &[wire::Question]) -> Vec<Question> {
    questions.iter().map(|it| Question { handle: it.handle.0, number: it.number }).collect()
}

/// That these questions are about one handle.
fn are_about(questions: &[wire::Question], owned: Owned) -> bool {
    matches!(questions, [question] if question.handle.0 == owned.handle.0)
}

/// A program with a handle in each home, that has made memory of the host's for the one on the device.
fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let device = FakeDevice::new(8 * BLOCK_BYTES);
    let parts = [keeper::Part { bytes: 8 * BLOCK_BYTES, node: None }];
    let keeper =
        keeper::InProcess::start(&folder.path().join("keeper"), &parts, keeper::SEGMENT_BYTES).unwrap();
    let client = keeper::Client::connect(keeper.socket(), keeper::Patience::default()).unwrap();
    let arena = Arena::open(client, device.registrar()).unwrap();
    let (replies, heard) = mpsc::channel();
    let events = Events::begin(None).unwrap();
    let mut memory = Memory::new(Mover::new(device, arena), heard, events, Some(Duration::from_secs(3600)));
    let (daemon, program) = Connection::pair().unwrap();
    let manager = ResourceManager { ioctl: |_, _, _| 0, owns: |_| true };
    let link = Link {
        who: Who { tenant: TENANT, pid: 1, job: "test".into() },
        process: keeper::Process::this(),
        domain: None,
        grip: Arc::new(Grip::new(SharedPage::create(1).unwrap(), manager)),
        outgoing: Outgoing::start(Arc::new(daemon)).unwrap(),
    };
    memory.links.insert(TENANT, link);
    memory.introduce(TENANT, keeper::Process::this());
    memory.mover.adopt(key(COLD), BLOCK_BYTES, file()).unwrap();
    let hot = file();
    rustix::io::pwrite(&hot, &[BYTE], 0).unwrap();
    memory.mover.adopt_hosted(key(HOT), BLOCK_BYTES, hot).unwrap();
    assert_eq!(memory.begin_homing(TENANT, &[key(COLD)], Home::Host), [key(COLD)]);
    let asked = program.receive::<FromDaemon>().unwrap().0;
    let FromDaemon::Prepare { questions, home: wire::Home::Host } = asked else { panic!("{asked:?}") };
    assert_eq!(memory.mover.late(prepared(&questions), &mut Requests(&memory.links)), None);
    Fixture { memory, replies, program, _keeper: keeper, _folder: folder }
}

fn changed(outcome: Outcome) -> (Vec<Owned>, Vec<Owned>, Vec<Owned>) {
    match outcome {
        Outcome::Rehomed { down, up, unsettled, .. } => (down, up, unsettled),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_has_one_time_limit_for_all_that_it_is_asked() {
    for is_late in [false, true] {
        let mut fixture = fixture();
        let Fixture { memory, replies, program, .. } = &mut fixture;
        let within = Duration::from_secs(if is_late { 2 } else { 60 });
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut exchanges = 0;
                loop {
                    match program.receive::<FromDaemon>().unwrap().0 {
                        FromDaemon::Exchange { questions } => {
                            replies.send(exchanged(&questions)).unwrap();
                            exchanges += 1;
                            if exchanges == 2 {
                                return;
                            }
                        }
                        FromDaemon::Prepare { questions, .. } => {
                            // One that is late has made it when nobody wants it any more.
                            if !is_late {
                                replies.send(prepared(&questions)).unwrap();
                            }
                        }
                        // The last that a late one hears: what it made is not wanted any more.
                        FromDaemon::Discard { questions } => {
                            return assert!(are_about(&questions, HOT), "{questions:?}");
                        }
                        other => panic!("{other:?}"),
                    }
                }
            });
            memory.rehome_within(TENANT, &[COLD], &[HOT], within)
        });
        let up = if is_late { vec![] } else { vec![HOT] };
        assert_eq!(changed(outcome), (vec![COLD], up, vec![]));
        assert!(memory.mover.is_hosted(key(COLD)));
        assert_eq!(memory.mover.is_hosted(key(HOT)), is_late);
    }
}

#[test]
fn what_comes_into_free_room_comes_with_nothing_gone_for_it() {
    let mut fixture = fixture();
    let Fixture { memory, replies, program, .. } = &mut fixture;
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                match program.receive::<FromDaemon>().unwrap().0 {
                    FromDaemon::Prepare { questions, home } => {
                        assert!(are_about(&questions, HOT) && home == wire::Home::Device, "{questions:?}");
                        replies.send(prepared(&questions)).unwrap();
                    }
                    FromDaemon::Exchange { questions } => replies.send(exchanged(&questions)).unwrap(),
                    // What was made for another one is not wanted.
                    FromDaemon::Discard { questions } => {
                        return assert!(are_about(&questions, COLD), "{questions:?}");
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
        memory.rehome_within(TENANT, &[], &[HOT], Duration::from_secs(60))
    });
    assert_eq!(changed(outcome), (vec![], vec![HOT], vec![]));
    assert_eq!((memory.mover.is_hosted(key(COLD)), memory.mover.is_hosted(key(HOT))), (false, false));
}

#[test]
fn one_that_has_no_time_left_is_not_asked_and_all_stays_as_it_is() {
    let mut fixture = fixture();
    let Fixture { memory, program, .. } = &mut fixture;
    let outcome = memory.rehome_within(TENANT, &[COLD], &[HOT], Duration::ZERO);
    assert_eq!(changed(outcome), (vec![], vec![], vec![]));
    assert_eq!((memory.mover.is_hosted(key(COLD)), memory.mover.is_hosted(key(HOT))), (false, true));
    let told = program.receive::<FromDaemon>().unwrap().0;
    assert!(matches!(&told, FromDaemon::Discard { questions } if are_about(questions, COLD)), "{told:?}");
}

/// A program that stood still for longer than it is waited for hears all at once: two questions, with the first given up in
/// between. It does what it hears in that order.
#[test]
fn one_that_answers_a_question_that_was_given_up_is_waited_for() {
    let mut fixture = fixture();
    let Fixture { memory, replies, program, .. } = &mut fixture;
    let outcome = memory.rehome_within(TENANT, &[], &[HOT], Duration::from_millis(50));
    assert_eq!(changed(outcome), (vec![], vec![], vec![]));
    let hears = || program.receive::<FromDaemon>().unwrap().0;
    let FromDaemon::Prepare { questions: first, .. } = hears() else { panic!("it is asked first") };
    let FromDaemon::Discard { questions: given_up } = hears() else { panic!("that is given up") };
    assert!(given_up.contains(&first[0]), "{given_up:?}");
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let FromDaemon::Prepare { questions: second, .. } = hears() else { panic!("it is asked again") };
            assert!(are_about(&second, HOT) && second != first, "{second:?}");
            replies.send(prepared(&first)).unwrap();
            let made = prepared(&second);
            let Reply::Prepared { files, .. } = &made else { panic!("{made:?}") };
            let memory = files[0].try_clone().unwrap();
            replies.send(made).unwrap();
            // It has nothing of the first any more.
            let FromDaemon::Exchange { questions } = hears() else { panic!("it is filled") };
            let mut first_byte = [0];
            rustix::io::pread(&memory, &mut first_byte[..], 0).unwrap();
            assert_eq!((questions.clone(), first_byte), (second, [BYTE]));
            replies.send(exchanged(&questions)).unwrap();
        });
        memory.rehome_within(TENANT, &[], &[HOT], Duration::from_secs(60))
    });
    assert_eq!(changed(outcome), (vec![], vec![HOT], vec![]));
    assert!(!memory.mover.is_hosted(key(HOT)));
}

#[test]
fn whom_no_look_had_time_for_is_the_first_of_the_next() {
    let owners = || [1, 4, 6].map(Owner).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(in_turn(owners(), None), [1, 4, 6].map(Owner));
    assert_eq!(in_turn(owners(), Some(Owner(1))), [4, 6, 1].map(Owner));
    assert_eq!(in_turn(owners(), Some(Owner(5))), [6, 1, 4].map(Owner));
    assert_eq!(in_turn(owners(), Some(Owner(6))), [1, 4, 6].map(Owner));
}

/// Hung up on, it looks there whether it may go on without the daemon.
#[test]
fn one_whose_memory_is_dropped_is_never_told_that_all_of_it_is_there() {
    let lose: [fn(&mut Fixture); 3] = [
        |fixture| fixture.memory.end(owner(TENANT)),
        |fixture| fixture.memory.hear(Reply::Gone { owner: owner(TENANT) }),
        |fixture| {
            fixture.replies.send(Reply::Gone { owner: owner(TENANT) }).unwrap();
            // What it has is on its way out when it goes.
            fixture.memory.exchange(&[COLD], &[], sched::Bytes::ZERO);
        },
    ];
    for (number, lose) in lose.into_iter().enumerate() {
        let mut fixture = fixture();
        fixture.memory.links[&TENANT].grip.page().revoke_residency();
        lose(&mut fixture);
        fixture.memory.mover.forget_owner(owner(TENANT));
        fixture.memory.commit_if_whole(TENANT);
        assert!(!fixture.memory.links[&TENANT].grip.page().resident(), "{number}");
    }
}
