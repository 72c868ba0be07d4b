//! Contexts that end, by whatever call.

use crate::bench::*;
use wire::{FromDaemon, SizedHandle, ToDaemon};

/// Waits until the daemon has heard that the memory is freed and that no channel is left.
fn all_goes(daemon: &Daemon, handle: SizedHandle) {
    let (mut is_freed, mut no_groups) = (false, false);
    while !(is_freed && no_groups) {
        match daemon.receive().0 {
            ToDaemon::Channels { groups, .. } => no_groups = groups.is_empty(),
            message => is_freed = message == freed(handle),
        }
    }
}

#[test]
fn a_context_takes_its_memory_and_channels_with_it() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (_, handle, _) = daemon.serve(&mut program, 100);
    program.enter();
    assert_eq!(program.ask("end-context cuDevicePrimaryCtxRelease_v2"), "0", "still retained once");
    assert!(!bench.log().iter().any(|line| line == "address free"));
    assert_eq!(program.ask("end-context cuDevicePrimaryCtxRelease_v2"), "0");
    all_goes(&daemon, handle);
}

#[test]
fn every_call_that_ends_a_context_takes_its_memory_with_it() {
    for call in [
        "cuCtxDestroy",
        "cuCtxDestroy_v2",
        "cuCtxDetach",
        "cuDevicePrimaryCtxRelease",
        "cuDevicePrimaryCtxReset",
        "cuDevicePrimaryCtxReset_v2",
    ] {
        let bench = Bench::new();
        let (mut program, daemon) = bench.tenant(&[]);
        program.enter();
        let (_, handle, _) = daemon.serve(&mut program, 100);
        assert_eq!(program.ask(&format!("end-context {call}")), "0", "{call}");
        all_goes(&daemon, handle);
    }
}

#[test]
fn a_context_that_is_let_go_of_by_one_of_two_keeps_its_memory() {
    for call in ["cuCtxDetach", "cuDevicePrimaryCtxRelease"] {
        let bench = Bench::new();
        let (mut program, daemon) = bench.tenant(&[]);
        program.enter();
        let (_, handle, _) = daemon.serve(&mut program, 100);
        program.enter();
        assert_eq!(program.ask(&format!("end-context {call}")), "0", "{call}");
        assert!(!bench.log().iter().any(|line| line == "address free"), "{call}");
        assert_eq!(program.ask(&format!("end-context {call}")), "0", "{call}");
        all_goes(&daemon, handle);
    }
}

#[test]
fn memory_of_a_green_context_lives_on_with_the_primary_one() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    assert_eq!(program.ask("green"), "0");
    let (_, handle, _) = daemon.serve(&mut program, 100);
    assert_eq!(program.ask("end-context cuGreenCtxDestroy"), "0");
    daemon.send(FromDaemon::Unmap { handles: vec![handle.handle] });
    assert_eq!(daemon.next().0, ToDaemon::Unmapped { handles: vec![handle.handle] });
    let log = bench.log();
    assert!(!log.iter().any(|line| line == "entered a dead context" || line == "address free"), "{log:?}");
    assert_eq!(program.ask("end-context cuDevicePrimaryCtxRelease_v2"), "0");
    all_goes(&daemon, handle);
}
