//! What a latency-critical program says of a request that it begins and ends itself, and what it does not say twice.

use crate::bench::*;
use wire::{FromDaemon, ToDaemon, monotonic_ns};

/// It says that it has work, and since when: not before that instant.
fn is_wants(message: &ToDaemon, not_before_ns: u64) -> bool {
    let when = not_before_ns..=monotonic_ns();
    matches!(message, ToDaemon::Wants { since_ns } if when.contains(since_ns))
}

#[test]
fn the_work_of_a_request_that_was_begun_is_told_once_and_not_by_its_first_call() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, ..) = daemon.serve(&mut program, 100);
    daemon.page.set_class(true, None);
    let say = |program: &mut Program, what: &str| {
        assert_eq!(program.ask(&format!("call rota_shim_request_{what} 0")), "0");
    };
    for _ in 0..3 {
        wait_for(|| daemon.page.is_idle_when_watched());
        let before = monotonic_ns();
        say(&mut program, "begin");
        assert!(is_wants(&daemon.next().0, before));
        assert_eq!(program.ask(&format!("copy {address:x} 5")), "0");
        assert_eq!(program.ask("call cuCtxSynchronize"), "0");
        // The daemon knows: nothing has to be said of another one that begins meanwhile.
        say(&mut program, "begin");
        say(&mut program, "end");
        assert_eq!(daemon.next().0, ToDaemon::Served);
        say(&mut program, "end");
        assert_eq!(daemon.next().0, ToDaemon::Served);
    }
    assert!(!daemon.has_more());
    // Without a request the work itself tells.
    wait_for(|| daemon.page.is_idle_when_watched());
    let before = monotonic_ns();
    assert_eq!(program.ask(&format!("copy {address:x} 5")), "0");
    assert!(is_wants(&daemon.next().0, before));
}

#[test]
fn work_that_cannot_be_told_when_its_request_begins_is_told_by_its_first_call() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, ..) = daemon.serve(&mut program, 100);
    daemon.page.set_class(true, None);
    // Hints until the socket takes no more, of which all that are lost are counted.
    while daemon.page.hints_dropped() == 0 {
        program.ask("call rota_shim_hint 5f5e100");
    }
    wait_for(|| daemon.page.is_idle_when_watched());
    let (dropped, lost) = ("3", daemon.page.hints_dropped());
    assert_eq!(program.ask("call rota_shim_request_begin 0"), dropped);
    assert_eq!(daemon.page.hints_dropped(), lost + 1);
    let before = monotonic_ns();
    assert_eq!(program.ask(&format!("copy {address:x} 5")), "0");
    loop {
        match daemon.next().0 {
            ToDaemon::Hint { .. } => {}
            other => break assert!(is_wants(&other, before), "{other:?}"),
        }
    }
}

#[test]
fn the_warm_up_kernel_is_not_loaded_once_a_request_has_begun_but_after_it() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    daemon.serve(&mut program, 100);
    daemon.page.set_class(true, None);
    wait_for(|| daemon.page.is_idle_when_watched());
    let loads_when_ordered = |ordered: u64| {
        daemon.page.order_warm_up();
        daemon.send(FromDaemon::WarmUp);
        // This driver loads nothing, so none is ever launched.
        wait_for(|| daemon.page.warm_ups() == (0, ordered));
        bench.log().contains(&"load".to_owned())
    };
    assert_eq!(program.ask("call rota_shim_request_begin 0"), "0");
    assert!(!loads_when_ordered(1), "the request would wait for that");
    assert_eq!(program.ask("call rota_shim_request_end 0"), "0");
    wait_for(|| daemon.page.is_idle_when_watched());
    assert!(loads_when_ordered(2));
}
