//! How a program becomes a tenant, and what becomes of it without its daemon, or at its own end.

use crate::bench::*;
use wire::{FromDaemon, ToDaemon};

#[test]
fn a_program_that_exits_hangs_up_instead_of_failing() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (_, handle, _) = daemon.serve(&mut program, 100);
    program.ask("deinitialize");
    daemon.send(FromDaemon::Unmap { handles: vec![handle.handle] });
    assert!(daemon.hung_up(), "no answer can be given for memory that is gone");
    assert!(program.end().success());
    assert_eq!(bench.stderr(), "", "nothing is wrong");
}

#[test]
fn a_program_that_exits_right_after_an_allocation_is_told_of_no_failure() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    program.ask("deinitialize");
    program.tell("alloc 100");
    daemon.grant(0x100);
    program.allocated();
    // When it is tried again, what the first time led to is said.
    wait_for(|| bench.log().iter().filter(|line| *line == "export at the end").count() >= 2);
    assert!(program.end().success());
    assert_eq!(bench.stderr(), "", "nothing is wrong");
}

#[test]
fn without_its_daemon_a_resident_program_goes_on() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, ..) = daemon.serve(&mut program, 100);
    program.ask(&format!("write {address:x} 77"));
    program.tell("alloc 400000");
    daemon.next();
    drop(daemon);
    let native = program.allocated();
    assert!(bench.log().contains(&"native alloc".to_owned()), "who waits for the daemon goes on natively");
    assert_eq!(program.ask(&format!("read {address:x}")), "77");
    assert_eq!(program.ask(&format!("free {native:x}")), "0");
    assert_eq!(program.ask(&format!("free {address:x}")), "0");
    assert!(bench.log().contains(&"address free".to_owned()));
    // The agent says so last, and a program that ends does not wait for it.
    wait_for(|| {
        bench.stderr() == "rota: the daemon is gone; running on without rota until there is one again\n"
    });
    assert!(program.end().success());
}

#[test]
fn without_any_daemon_a_program_that_is_away_ends() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[("ROTA_WAIT_FOR_DAEMON", "1")]);
    program.enter();
    let (_, handle, _) = daemon.serve(&mut program, 100);
    daemon.page.set_frozen(true);
    daemon.page.revoke_residency();
    daemon.send(FromDaemon::Unmap { handles: vec![handle.handle] });
    daemon.next();
    drop(daemon);
    assert_eq!(program.child.wait().unwrap().code(), Some(125));
    assert!(bench.stderr().contains("cannot go on"), "{}", bench.stderr());
    assert!(!bench.log().contains(&"thaw".to_owned()));
}

#[test]
fn a_forked_child_is_no_tenant() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    assert_eq!(program.ask("fork"), "0");
    assert_eq!(bench.log(), ["native alloc", "native free"]);
    daemon.serve(&mut program, 100);
}

#[test]
fn without_a_daemon_the_program_is_told_and_runs() {
    let bench = Bench::new();
    let mut program = bench.start(&[]);
    assert_eq!(program.ask("init"), "0");
    program.enter();
    program.tell("alloc 100");
    program.allocated();
    assert_eq!(bench.log(), ["native alloc"]);
    assert!(program.end().success());
    let stderr = bench.stderr();
    assert!(
        stderr.starts_with("rota: cannot reach ") && stderr.ends_with("; running without rota\n"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1);
}

#[test]
fn a_refused_program_is_told_why() {
    let bench = Bench::new();
    let listener = bench.listen();
    let mut program = bench.start(&[]);
    program.tell("init");
    let connection = listener.accept().unwrap();
    connection.receive::<ToDaemon>().unwrap();
    connection.send(&FromDaemon::Refused { reason: "it speaks version 0".to_owned() }, &[]).unwrap();
    assert_eq!(program.answer(), "0");
    let expected = "rota: the daemon refuses this program: it speaks version 0; running without rota\n";
    assert_eq!(bench.stderr(), expected);
}

#[test]
fn a_program_that_needs_the_daemon_gets_an_error_and_nothing_else() {
    let bench = Bench::new();
    let mut program = bench.start(&[("ROTA_REQUIRED", "1")]);
    const SYSTEM_NOT_READY: &str = "802";
    assert_eq!(program.ask("init"), SYSTEM_NOT_READY);
    assert_eq!(program.ask("init"), SYSTEM_NOT_READY, "asking again changes nothing");
    assert!(program.end().success());
    let stderr = bench.stderr();
    assert!(
        stderr.starts_with("rota: cannot reach ") && stderr.contains("CUDA is not available"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1);
}

#[test]
fn a_disabled_or_unasked_shim_is_silent() {
    for (variable, value) in [("ROTA_DISABLE", "1"), ("ROTA_SOCKET", "")] {
        let bench = Bench::new();
        let mut program = bench.start(&[(variable, value)]);
        assert_eq!(program.ask("init"), "0");
        program.enter();
        program.tell("alloc 100");
        program.allocated();
        assert_eq!(bench.log(), ["native alloc"]);
        assert!(program.end().success());
        assert_eq!(bench.stderr(), "");
    }
}

#[test]
fn a_trace_needs_no_daemon() {
    let bench = Bench::new();
    let trace = bench.path("trace");
    let mut program = bench.start(&[("ROTA_SOCKET", ""), ("ROTA_IOCTL_TRACE", trace.to_str().unwrap())]);
    assert_eq!(program.ask("init"), "0");
    program.enter();
    let text = std::fs::read_to_string(&trace).unwrap();
    assert_eq!(text.lines().count(), 6, "{text}");
    assert!(text.lines().next().unwrap().contains(" c020462b "), "{text}");
}
