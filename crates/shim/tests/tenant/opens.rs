//! Memory of other processes, opened while one daemon follows another: each open counts once with the one that is there.

use crate::bench::*;
use rustix::fs::MemfdFlags;
use std::os::fd::AsFd as _;
use wire::{BLOCK_BYTES, FromDaemon, GrantId, Listener, SharedPage, ToDaemon, Token};

const TOKEN: u64 = 0x77;

fn take_over(held: &Listener) -> Daemon {
    Daemon::take_over(SharedPage::create(2).unwrap(), held).0
}

/// A program that asks for memory of others, and its daemon, which has not answered.
fn opening(bench: &Bench, variables: &[(&str, &str)]) -> (Program, Daemon, GrantId) {
    let (mut program, daemon) = bench.tenant(variables);
    program.enter();
    program.tell(&format!("open-name {TOKEN:x} {BLOCK_BYTES:x}"));
    let request = asked(&daemon);
    (program, daemon, request)
}

fn asked(daemon: &Daemon) -> GrantId {
    match daemon.next().0 {
        ToDaemon::Open { request, token } if token == Token(TOKEN.into()) => request,
        other => panic!("{other:?}"),
    }
}

fn give(daemon: &Daemon, request: GrantId) {
    let file = rustix::fs::memfd_create("others", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, BLOCK_BYTES).unwrap();
    let opened = FromDaemon::Opened { request, sizes: vec![BLOCK_BYTES], complete: true };
    daemon.connection.send(&opened, &[file.as_fd()]).unwrap();
}

/// Closes what is open, and says what the daemon heard until then.
fn heard_to_the_close(program: &mut Program, daemon: &Daemon, address: &str) -> Vec<ToDaemon> {
    assert_eq!(program.ask(&format!("call cuIpcCloseMemHandle {address}")), "0");
    let mut heard = Vec::new();
    loop {
        match daemon.next().0 {
            ToDaemon::Closed { token } if token == Token(TOKEN.into()) => return heard,
            other => heard.push(other),
        }
    }
}

#[test]
fn what_one_daemon_did_not_answer_counts_once_with_the_next() {
    let bench = Bench::new();
    let (mut program, daemon, _) = opening(&bench, &[]);
    let held = bench.listen();
    drop(daemon);
    let daemon = take_over(&held);
    let request = asked(&daemon);
    give(&daemon, request);
    let answer = program.answer();
    let address = answer.strip_prefix("0 ").unwrap();
    assert_eq!(heard_to_the_close(&mut program, &daemon, address), []);
    assert!(program.end().success());
}

#[test]
fn what_another_daemon_gave_is_told_to_the_next() {
    let bench = Bench::new();
    let waits = bench.path("import-waits");
    std::fs::write(&waits, "").unwrap();
    let (mut program, daemon, request) = opening(&bench, &[("FAKE_IMPORT_WAITS", waits.to_str().unwrap())]);
    give(&daemon, request);
    wait_for(|| bench.log().iter().any(|line| line == "importing"));
    let held = bench.listen();
    drop(daemon);
    let daemon = take_over(&held);
    let (message, _) = daemon.receive();
    assert!(matches!(message, ToDaemon::Channels { .. }), "it is back: {message:?}");
    std::fs::remove_file(&waits).unwrap();
    let answer = program.answer();
    let address = answer.strip_prefix("0 ").unwrap();
    let heard = heard_to_the_close(&mut program, &daemon, address);
    assert!(matches!(heard[..], [ToDaemon::Open { .. }]), "{heard:?}");
    assert!(program.end().success());
}

#[test]
fn what_failed_is_closed_only_with_the_daemon_that_gave_it() {
    for is_replaced in [false, true] {
        let bench = Bench::new();
        let waits = bench.path("import-waits");
        std::fs::write(&waits, "").unwrap();
        let variables = [("FAKE_IMPORT_WAITS", waits.to_str().unwrap()), ("FAKE_IMPORTS_FAIL", "1")];
        let (mut program, mut daemon, request) = opening(&bench, &variables);
        give(&daemon, request);
        wait_for(|| bench.log().iter().any(|line| line == "importing"));
        if is_replaced {
            let held = bench.listen();
            drop(daemon);
            daemon = take_over(&held);
            let (message, _) = daemon.receive();
            assert!(matches!(message, ToDaemon::Channels { .. }), "it is back: {message:?}");
        }
        std::fs::remove_file(&waits).unwrap();
        assert_eq!(program.answer(), "801 0");
        // What comes after it is heard after it.
        program.tell(&format!("alloc {:x}", 64_u64 << 20));
        let mut closed = 0;
        loop {
            match daemon.next().0 {
                ToDaemon::Closed { .. } => closed += 1,
                ToDaemon::Grow { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(closed, usize::from(!is_replaced));
        program.child.kill().unwrap();
        program.child.wait().unwrap();
    }
}
