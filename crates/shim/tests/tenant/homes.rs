//! Memory that changes its home, by a daemon that asks, gives up, and asks again.

use std::os::fd::OwnedFd;

use crate::bench::*;
use rustix::process::{Pid, Signal};
use wire::{FromDaemon, Home, Question, SharedPage, SizedHandle, ToDaemon};

const BYTES: u64 = 64 << 20;

/// How many pieces of memory a program has, by the driver's files.
fn pieces(program: &Program) -> usize {
    let files = std::fs::read_dir(format!("/proc/{}/fd", program.child.id())).unwrap();
    let names = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    names.filter(|name| name.to_string_lossy().contains("memfd:device")).count()
}

/// A program that has one piece of memory, with a word in it.
fn tenant(bench: &Bench, word: u64) -> (Program, Daemon, u64, SizedHandle) {
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, handle, _) = daemon.serve(&mut program, BYTES);
    program.ask(&format!("write {address:x} {word:x}"));
    wait_for(|| pieces(&program) == 1);
    (program, daemon, address, handle)
}

fn prepare(daemon: &Daemon, question: Question, home: Home) {
    daemon.send(FromDaemon::Prepare { questions: vec![question], home });
}

/// The file of what was prepared, with a word in it.
fn prepared(daemon: &Daemon, question: Question, word: u64) -> OwnedFd {
    let (message, mut files) = daemon.next();
    assert_eq!(message, ToDaemon::Prepared { questions: vec![question] });
    let file = files.remove(0);
    rustix::io::pwrite(&file, &word.to_le_bytes(), 0).unwrap();
    file
}

fn exchange(daemon: &Daemon, question: Question) -> ToDaemon {
    daemon.page.set_frozen(true);
    daemon.page.revoke_residency();
    daemon.send(FromDaemon::Exchange { questions: vec![question] });
    daemon.next().0
}

fn exchanged(question: Question) -> ToDaemon {
    ToDaemon::Exchanged { questions: vec![question] }
}

fn stayed(question: Question) -> ToDaemon {
    ToDaemon::Stayed { questions: vec![question], code: 0, call: "not now".to_owned() }
}

#[test]
fn only_what_was_made_for_that_question_is_put_under_the_address() {
    let bench = Bench::new();
    let (mut program, daemon, address, SizedHandle { handle, .. }) = tenant(&bench, 0x11);
    let question = |number| Question { handle, number };
    for (home, first, second, word) in [(Home::Host, 1, 2, 0x22), (Home::Device, 7, 9, 0x33)] {
        let (first, second) = (question(first), question(second));
        prepare(&daemon, first, home);
        prepared(&daemon, first, 0xbad);
        let before = program.ask(&format!("read {address:x}"));
        assert_eq!(exchange(&daemon, second), stayed(second), "nothing was made for it yet");
        prepare(&daemon, second, home);
        prepared(&daemon, second, word);
        wait_for(|| pieces(&program) == 2);
        assert_eq!(exchange(&daemon, first), stayed(first), "that is gone");
        daemon.send(FromDaemon::Discard { questions: vec![first] });
        assert_eq!(program.ask(&format!("read {address:x}")), before);
        assert_eq!(exchange(&daemon, second), exchanged(second));
        assert_eq!(program.ask(&format!("read {address:x}")), format!("{word:x}"));
        wait_for(|| pieces(&program) == 1);
    }
    assert_eq!(bench.stderr(), "");
}

/// Also if nothing is made for the next.
#[test]
fn what_was_made_for_a_question_goes_when_the_next_comes() {
    let bench = Bench::new();
    let (program, daemon, _, SizedHandle { handle, .. }) = tenant(&bench, 0x11);
    let question = |number| Question { handle, number };
    prepare(&daemon, question(1), Home::Host);
    prepared(&daemon, question(1), 0xbad);
    prepare(&daemon, question(2), Home::Device);
    assert_eq!(daemon.next().0, stayed(question(2)), "it is there already");
    wait_for(|| pieces(&program) == 1);
    assert_eq!(exchange(&daemon, question(1)), stayed(question(1)));
}

#[test]
fn one_that_was_stopped_has_only_what_it_was_asked_for_last() {
    let bench = Bench::new();
    let (mut program, daemon, address, SizedHandle { handle, .. }) = tenant(&bench, 0x11);
    let question = |number| Question { handle, number };
    // There is nothing of the host's to be made for the first any more when it goes on. It may or may not have begun.
    let pid = Pid::from_raw(program.child.id() as i32).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    prepare(&daemon, question(1), Home::Host);
    daemon.send(FromDaemon::Discard { questions: vec![question(1)] });
    prepare(&daemon, question(2), Home::Host);
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    let (mut message, mut files) = daemon.next();
    if message == (ToDaemon::Prepared { questions: vec![question(1)] }) {
        (message, files) = daemon.next();
    }
    assert_eq!(message, ToDaemon::Prepared { questions: vec![question(2)] });
    rustix::io::pwrite(&files[0], &0x22u64.to_le_bytes(), 0).unwrap();
    wait_for(|| pieces(&program) == 2);
    assert_eq!(exchange(&daemon, question(2)), exchanged(question(2)));
    assert_eq!(program.ask(&format!("read {address:x}")), "22");
    // What is of the device is made at once: it is answered, and let go.
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    prepare(&daemon, question(3), Home::Device);
    daemon.send(FromDaemon::Discard { questions: vec![question(3)] });
    prepare(&daemon, question(4), Home::Device);
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    prepared(&daemon, question(3), 0xbad);
    prepared(&daemon, question(4), 0x44);
    wait_for(|| pieces(&program) == 2);
    assert_eq!(exchange(&daemon, question(4)), exchanged(question(4)));
    assert_eq!(program.ask(&format!("read {address:x}")), "44");
}

/// The next daemon counts from the start.
#[test]
fn what_the_last_daemon_asked_for_is_nothing_to_the_next() {
    let bench = Bench::new();
    let (mut program, daemon, address, SizedHandle { handle, .. }) = tenant(&bench, 0x11);
    let question = Question { handle, number: 1 };
    prepare(&daemon, question, Home::Host);
    prepared(&daemon, question, 0xbad);
    drop(daemon);
    let (daemon, _) = Daemon::take_over(SharedPage::create(2).unwrap(), &bench.listen());
    wait_for(|| pieces(&program) == 1);
    assert_eq!(exchange(&daemon, question), stayed(question));
    assert_eq!(program.ask(&format!("read {address:x}")), "11");
    prepare(&daemon, question, Home::Host);
    prepared(&daemon, question, 0x22);
    assert_eq!(exchange(&daemon, question), exchanged(question));
    assert_eq!(program.ask(&format!("read {address:x}")), "22");
}

/// Answers that were not sent yet: their files are memory too, and their numbers come again.
#[test]
fn what_the_last_daemon_did_not_hear_keeps_no_memory_and_is_not_told_to_the_next() {
    let bench = Bench::new();
    let (mut program, daemon, address, SizedHandle { handle, .. }) = tenant(&bench, 0x11);
    let more = [(); 2].map(|()| daemon.serve(&mut program, BYTES).1.handle);
    let all = [handle, more[0], more[1]];
    let about = |number| all.map(|handle| Question { handle, number }).to_vec();
    for question in about(1) {
        prepare(&daemon, question, Home::Host);
        prepared(&daemon, question, 0x22);
        assert_eq!(exchange(&daemon, question), exchanged(question));
    }
    wait_for(|| pieces(&program) == all.len());
    let pid = Pid::from_raw(program.child.id() as i32).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    daemon.page.commit_residency(7);
    daemon.page.set_frozen(false);
    // What is of the device is made at once, and the answers wait behind each other.
    daemon.send(FromDaemon::Prepare { questions: about(2), home: Home::Device });
    drop(daemon);
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    wait_for(|| bench.stderr().contains("the daemon is gone"));
    wait_for(|| pieces(&program) == all.len());

    let (daemon, _) = Daemon::take_over(SharedPage::create(2).unwrap(), &bench.listen());
    let question = about(2)[0];
    prepare(&daemon, question, Home::Device);
    // What it says of itself comes first.
    let mut message = daemon.next();
    while matches!(message.0, ToDaemon::HostedBefore { .. } | ToDaemon::HostShown { .. }) {
        message = daemon.next();
    }
    assert_eq!(message.0, ToDaemon::Prepared { questions: vec![question] });
    rustix::io::pwrite(&message.1[0], &0x33u64.to_le_bytes(), 0).unwrap();
    let mut answer = exchange(&daemon, question);
    while matches!(answer, ToDaemon::HostShown { .. }) {
        answer = daemon.next().0;
    }
    assert_eq!(answer, exchanged(question));
    assert_eq!(program.ask(&format!("read {address:x}")), "33");
}
