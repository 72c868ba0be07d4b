//! What must not end a keeper that has something away: signals, and a log that cannot be written.

use crate::process::{Process, command, refusal};
use crate::world::*;
use rota_keeper::*;
use rustix::fs::OFlags;
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::process::Stdio;

/// More lines than a pipe and the log have room for.
const WORKERS: usize = 400;

/// Something is away, and many workers come and go, each with a few lines in the log. It is still away then.
fn keeps_what_is_away(keeper: &mut Process) {
    let mut worker = keeper.worker();
    await_that("there is room", || worker.progress().expect("an answer").ready_bytes >= 4 << 20);
    reserve(&mut worker, 1, 2);
    assert_eq!(worker.record_out(&[out(1)]).expect("an answer"), [Outcome::Done]);
    drop(worker);
    for _ in 0..WORKERS {
        drop(connect(&keeper.socket()));
    }
    let mut worker = keeper.worker();
    assert_eq!(worker.recorded(TENANT).expect("an answer").len(), 1);
    assert_eq!(worker.leave(End::Forced).expect("an answer"), (true, 2 * BLOCK_BYTES));
    assert!(keeper.child.0.wait().expect("it ends").success());
}

#[test]
fn nobody_has_to_read_its_log() {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    drop(reader);
    keeps_what_is_away(&mut Process::logging_to(Stdio::from(writer)));
}

#[test]
fn its_log_may_be_on_a_full_disk() {
    let full = OpenOptions::new().write(true).open("/dev/full").expect("it is everywhere");
    keeps_what_is_away(&mut Process::logging_to(Stdio::from(full)));
}

#[test]
fn its_log_may_be_read_by_somebody_who_sleeps() {
    let (_reader, writer) = rustix::pipe::pipe().expect("a pipe");
    fill(&writer);
    keeps_what_is_away(&mut Process::logging_to(Stdio::from(writer)));
}

/// Until a further byte would have to wait.
fn fill(pipe: &OwnedFd) {
    let flags = rustix::fs::fcntl_getfl(pipe).expect("it has flags");
    rustix::fs::fcntl_setfl(pipe, flags | OFlags::NONBLOCK).expect("it is ours");
    for bytes in [4096, 1] {
        while rustix::io::write(pipe, &vec![b'.'; bytes]).is_ok() {}
    }
    rustix::fs::fcntl_setfl(pipe, flags).expect("it is ours");
}

#[test]
fn no_signals_end_it_while_something_is_away() {
    let mut keeper = Process::start();
    let mut worker = keeper.worker();
    await_that("there is room", || worker.progress().expect("an answer").ready_bytes >= 4 << 20);
    reserve(&mut worker, 1, 2);
    worker.record_out(&[out(1)]).expect("an answer");
    drop(worker);
    for signal in [Signal::HUP, Signal::TERM, Signal::INT, Signal::QUIT, Signal::USR1, Signal::XFSZ] {
        for _ in 0..2 {
            keeper.signal(signal);
            // Heard, before the next one comes.
            let mut worker = keeper.worker();
            assert_eq!(worker.recorded(TENANT).expect("it is there still").len(), 1, "{signal:?}");
        }
    }
    let mut worker = keeper.worker();
    worker.died(TENANT).expect("an answer");
    drop(worker);
    assert!(keeper.child.0.wait().expect("it ends").success());
}

#[test]
fn a_terminal_that_closes_means_nothing() {
    let keeper = Process::start();
    drop(connect(&keeper.socket()));
    keeper.signal(Signal::HUP);
    drop(connect(&keeper.socket()));
    keeper.signal(Signal::HUP);
    let mut worker = connect(&keeper.socket());
    worker.progress().expect("it is there still, with nothing away");
}

#[test]
fn a_place_has_one_keeper() {
    let keeper = Process::start();
    let mut worker = connect(&keeper.socket());
    let why = refusal(&mut command(&keeper.socket()));
    assert!(why.contains("another keeper is at"), "{why}");
    assert!(keeper.socket().exists());
    worker.progress().expect("the first one does not notice");
}

#[test]
fn one_that_starts_or_ends_has_its_place_already_and_still() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("keeper");
    // There is no socket yet, or none any more.
    let lock = File::create(folder.path().join("keeper.lock")).expect("a file");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("nobody has it");
    let why = refusal(&mut command(&socket));
    assert!(why.contains("its lock is held"), "{why}");
    assert!(!socket.exists());
}

#[test]
fn one_that_cannot_start_leaves_no_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("keeper");
    let why = refusal(command(&socket).args(["--part", "1MiB"]));
    assert!(why.contains("a multiple of 2 MiB is needed"), "{why}");
    assert!(!socket.exists());
}
