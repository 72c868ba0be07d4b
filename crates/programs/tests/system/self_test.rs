//! The self-test: its own program ends with it, however it ends.

use std::process::{Command, Stdio};

use rustix::process::Pid;

use crate::parts::{newest, with_parts};
use crate::stage::{Setup, Stage, children, until};

/// The program that the self-test has started.
fn program_of(self_test: u32) -> Option<Pid> {
    let is_it = |pid: &Pid| {
        let line = std::fs::read_to_string(format!("/proc/{}/cmdline", number(*pid)));
        line.is_ok_and(|line| line.contains("self-test-tenant"))
    };
    children(self_test).into_iter().find(is_it)
}

fn number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

/// Perhaps nobody is there to take notice of it.
fn has_ended(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", number(pid)));
    status.is_err() || status.is_ok_and(|status| status.contains("\nState:\tZ"))
}

#[test]
fn one_that_is_killed_leaves_no_kernel_behind() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 16, rotad: &[] });
    let is_on_gpu = |pid: &Pid| stage.figures(0).processes.iter().any(|on| on.pid == number(*pid));
    let mut command = Command::new(newest("rotad"));
    with_parts(&mut command);
    command.args(["self-test", "--vgpu"]).arg(stage.folder());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut caught = None;
    // It is over in a moment, and then there is nothing to kill.
    until("it is caught in the act", || {
        let mut self_test = command.spawn().unwrap();
        while self_test.try_wait().unwrap().is_none() && caught.is_none() {
            // With a context, and so about to have a kernel that ends only when it is told to.
            caught = program_of(self_test.id()).filter(is_on_gpu);
        }
        self_test.kill().unwrap();
        self_test.wait().unwrap();
        caught.is_some()
    });
    let program = caught.unwrap();
    until("its program ends with it", || has_ended(program));
    until("nothing is left of it", || !is_on_gpu(&program));
    stage.finish();
}
