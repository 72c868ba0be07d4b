//! A program that takes its time while its memory changes places: everybody's moves wait for it.

use super::*;
use crate::events::{Events, Who};
use crate::executor::Link;
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

fn prepared(handles: &[HandleId]) -> Reply {
    let files = handles.iter().map(|_| file()).collect();
    Reply::Prepared { owner: owner(TENANT), handles: handles.iter().map(|handle| handle.0).collect(), files }
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
    memory.mover.adopt_hosted(key(HOT), BLOCK_BYTES, file()).unwrap();
    assert_eq!(memory.begin_homing(TENANT, &[key(COLD)], Home::Host), [key(COLD)]);
    let asked = program.receive::<FromDaemon>().unwrap().0;
    assert!(matches!(asked, FromDaemon::Prepare { home: wire::Home::Host, .. }), "{asked:?}");
    let made = prepared(&[HandleId(COLD.handle.0)]);
    assert_eq!(memory.mover.late(made, &mut Requests(&memory.links)), None);
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
                        FromDaemon::Exchange { handles } => {
                            let handles = handles.iter().map(|handle| handle.0).collect();
                            replies.send(Reply::Exchanged { owner: owner(TENANT), handles }).unwrap();
                            exchanges += 1;
                            if exchanges == 2 {
                                return;
                            }
                        }
                        FromDaemon::Prepare { handles, .. } => {
                            // One that is late has made it when nobody wants it any more.
                            if !is_late {
                                replies.send(prepared(&handles)).unwrap();
                            }
                        }
                        // The last that a late one hears: what it made is not wanted any more.
                        FromDaemon::Discard { handles } => {
                            return assert_eq!(handles, [HandleId(HOT.handle.0)]);
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
                    FromDaemon::Prepare { handles, home } => {
                        assert_eq!((&handles[..], home), (&[HandleId(HOT.handle.0)][..], wire::Home::Device));
                        replies.send(prepared(&handles)).unwrap();
                    }
                    FromDaemon::Exchange { handles } => {
                        let handles = handles.iter().map(|handle| handle.0).collect();
                        replies.send(Reply::Exchanged { owner: owner(TENANT), handles }).unwrap();
                    }
                    // What was made for another one is not wanted.
                    FromDaemon::Discard { handles } => {
                        return assert_eq!(handles, [HandleId(COLD.handle.0)]);
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
    let discarded = FromDaemon::Discard { handles: vec![HandleId(COLD.handle.0)] };
    assert_eq!(program.receive::<FromDaemon>().unwrap().0, discarded);
}

#[test]
fn whom_no_look_had_time_for_is_the_first_of_the_next() {
    let owners = || [1, 4, 6].map(Owner).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(in_turn(owners(), None), [1, 4, 6].map(Owner));
    assert_eq!(in_turn(owners(), Some(Owner(1))), [4, 6, 1].map(Owner));
    assert_eq!(in_turn(owners(), Some(Owner(5))), [6, 1, 4].map(Owner));
    assert_eq!(in_turn(owners(), Some(Owner(6))), [1, 4, 6].map(Owner));
}
