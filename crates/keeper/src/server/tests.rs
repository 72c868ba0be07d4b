use super::*;
use crate::client::{Client, Patience};
use crate::keeper::Part;
use crate::message::{Outcome, Reservation, Wanted};
use crate::names::{HandleKey, Process, TenantNumber};
use crate::{BLOCK_BYTES, End};
use rustix::process::{Pid, Uid};
use std::process::{Command, Stdio};

#[test]
fn only_the_owner_and_root_may_be_workers() {
    let (root, owner, other) = (Uid::ROOT, Uid::from_raw(1000), Uid::from_raw(1001));
    assert!(may_be_worker(owner, owner) && may_be_worker(root, owner) && may_be_worker(root, root));
    assert!(!may_be_worker(other, owner) && !may_be_worker(owner, root));
}

/// Asks for space, and again while the arena is not ready.
fn reserve(keeper: &mut Keeper, tenant: TenantNumber) {
    let introduced = keeper.answer(Request::Introduce { tenant, process: Process::this() });
    assert_eq!(introduced.answer, Answer::Outcome(Outcome::Done));
    loop {
        keeper.take_up();
        let wanted = vec![Wanted { key: HandleKey { tenant, handle: 1 }, bytes: BLOCK_BYTES }];
        match keeper.answer(Request::Reserve { near: None, wanted }).answer {
            Answer::Reserved(all) if matches!(all[0], Reservation::Space { .. }) => return,
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[test]
fn space_that_a_process_may_still_write_to_is_nobodys_until_it_has_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("keeper");
    let listener = Listener::bind(&socket).expect("a socket");
    let part = Part { bytes: 2 * BLOCK_BYTES, node: None };
    let mut server = Server::new(Keeper::start(&[part], BLOCK_BYTES).expect("a small arena"), listener);
    reserve(&mut server.keeper, TenantNumber(1));
    // As if this process were the worker that has lost its connection.
    let mut earlier = Command::new("cat").stdin(Stdio::piped()).spawn().expect("a process");
    let watch = pidfd_open(Pid::from_child(&earlier), PidfdFlags::empty()).expect("it is ours");
    let (connection, its) = Connection::pair().expect("two ends");
    server.worker = Some(Worker { connection, pid: earlier.id(), watch });
    drop(its);
    let serves = std::thread::spawn(move || server.run());

    let mut next = Client::connect(&socket, Patience::default()).expect("the keeper is there");
    assert_eq!(next.reclaim().expect("an answer"), 0, "the process is there");
    assert_eq!(next.progress().expect("an answer").orphaned_bytes, BLOCK_BYTES);
    drop(earlier.stdin.take());
    // Not reaped: it has ended all the same.
    let limit = Instant::now() + Duration::from_secs(60);
    while next.progress().expect("an answer").orphaned_bytes > 0 {
        assert!(Instant::now() < limit, "the space of a process that has ended is nobody's");
        std::thread::sleep(Duration::from_millis(1));
    }
    next.leave(End::Forced).expect("it may leave");
    serves.join().expect("it does not panic");
    earlier.wait().expect("it has ended");
}
