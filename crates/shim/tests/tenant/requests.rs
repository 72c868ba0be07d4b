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

#[test]
fn word_of_work_goes_behind_the_launch_where_a_request_would_wait_for_it_and_the_launch_waits_for_nothing() {
    let bench = Bench::new();
    let held = bench.path("held");
    let (mut program, daemon) = bench.tenant(&[("LAUNCH_HELD", held.to_str().unwrap())]);
    program.enter();
    daemon.serve(&mut program, 100);
    let mut launches = 0;
    // Whether it is told while the driver keeps the launch.
    let mut told_before = |critical, resident, frozen| {
        daemon.page.set_class(critical, None);
        daemon.page.set_frozen(frozen);
        match resident {
            true => daemon.page.commit_residency(1),
            false => daemon.page.revoke_residency(),
        }
        wait_for(|| daemon.page.is_idle_when_watched());
        let begin = monotonic_ns();
        std::fs::write(&held, "").unwrap();
        program.tell("call cuGraphLaunch 1 0");
        launches += 1;
        wait_for(|| bench.log().iter().filter(|word| *word == "launch").count() == launches);
        assert_eq!(daemon.page.idle_since_ns(), None, "the page says it at once");
        // Whoever is told late may be told of by then only on a machine that is far too busy.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let before = daemon.has_more();
        std::fs::remove_file(&held).unwrap();
        assert_eq!(program.answer(), "0");
        assert!(is_wants(&daemon.next().0, begin));
        daemon.page.set_frozen(false);
        assert_eq!(program.ask("call cuCtxSynchronize"), "0");
        before
    };
    assert!(told_before(false, true, false), "best-effort");
    assert!(!told_before(true, true, false), "its launch goes first");
    assert!(told_before(true, true, true), "the driver may keep it until it is thawed");
    assert!(told_before(true, false, false), "its memory is away");
}
