//! A job of two processes on two GPUs whose kernels wait for each other.

use crate::parts::MEETING;
use crate::puppet::Puppet;
use crate::stage::{Program, Setup, Stage, until};

use programs::meeting::FILE_BYTES;

/// How a process ends whose kernel waited in vain.
const LATE: i32 = 3;
/// Work that nobody waits for, longer than any of these tests.
const HOLD: &str = "launch 300 1000";

/// Two processes of one job, each on its own GPU.
fn meeting(stage: &Stage, flags: &[&str], arguments: &[&str]) -> [Program; 2] {
    let file = stage.path("words");
    std::fs::write(&file, vec![0; FILE_BYTES as usize]).unwrap();
    let file = file.to_str().unwrap().to_owned();
    [("device=0", "first", &[][..]), ("device=1", "second", &["--second"][..])].map(|(gpu, name, which)| {
        let flags = [&["--name", "meet", "--gpus", gpu][..], flags].concat();
        let program = [&[MEETING, &file][..], which, arguments].concat();
        stage.program(name, &flags, &program)
    })
}

/// A program that has a GPU to the end of its work, by policy.
fn holder(stage: &Stage, gpu: usize) -> Puppet {
    let name = format!("hold{gpu}");
    let mut puppet = Puppet::spawn(stage, &name, stage.under_rota(gpu, &name));
    puppet.is_ready();
    puppet.does(HOLD);
    until("it has its turn", || turns(stage, puppet.pid()) > 0);
    puppet
}

fn turns(stage: &Stage, pid: u32) -> usize {
    stage.events().iter().filter(|event| event["event"] == "turn_begin" && event["pid"] == pid).count()
}

fn wants(stage: &Stage, pid: u32) -> bool {
    stage.events().iter().any(|event| event["event"] == "wants" && event["pid"] == pid)
}

fn pause(stage: &Stage, job: &str) {
    assert!(stage.rota().args(["pause", job]).output().unwrap().status.success());
}

/// Two GPUs, each held by somebody, and the two who want to meet behind them.
fn kept_apart(flags: &[&str], arguments: &[&str]) -> (Stage, [Puppet; 2], [Program; 2]) {
    let rotad = ["--policy", "serial"];
    let stage = Stage::new(&Setup { gpus: 2, gpu_mib: 64, arena_mib: 64, rotad: &rotad });
    let holders = [holder(&stage, 0), holder(&stage, 1)];
    let members = meeting(&stage, flags, arguments);
    until("both want to meet", || members.iter().all(|member| wants(&stage, member.pid())));
    (stage, holders, members)
}

#[test]
fn without_a_gang_those_who_never_run_at_the_same_time_miss_each_other() {
    let (stage, holders, [mut first, mut second]) = kept_apart(&[], &["--patience-ms", "2000"]);
    // The first has its GPU, and waits there for one that has not.
    pause(&stage, "hold0");
    let late = |program: &mut Program| {
        let mut status = None;
        until(&format!("{} gives up", program.name), || {
            status = program.try_end();
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.code()), Some(LATE), "{}", program.name);
    };
    late(&mut first);
    assert!(turns(&stage, first.pid()) > 0);
    assert_eq!(turns(&stage, second.pid()), 0, "they had turns at the same time");
    // Each begins before it is known to want a turn, and may have left its first word by then.
    let met = first.said().steps;
    assert!(met <= 1, "they met {met} times");
    // The second has its GPU when the first has none: it finds one word more, and waits for the next in vain.
    pause(&stage, "hold1");
    late(&mut second);
    assert_eq!(second.said().steps, met + 1);
    drop(holders);
    stage.finish();
}

#[test]
fn a_gang_waits_for_all_its_gpus_and_meets_on_the_same_schedule() {
    let (stage, holders, members) = kept_apart(&["--gang"], &["--patience-ms", "30000"]);
    pause(&stage, "hold0");
    // Long after a program alone would have had the GPU.
    std::thread::sleep(std::time::Duration::from_secs(1));
    for member in &members {
        assert_eq!(turns(&stage, member.pid()), 0, "{} runs without the other", member.name);
    }
    pause(&stage, "hold1");
    for member in members {
        assert_eq!(member.ends_well().steps, 40);
    }
    drop(holders);
    stage.finish();
}

#[test]
fn a_gang_meets_under_contention_on_both_gpus() {
    let rotad = ["--turn", "40ms"];
    let stage = Stage::new(&Setup { gpus: 2, gpu_mib: 64, arena_mib: 64, rotad: &rotad });
    let busy = ["--mib", "4", "--piece-mib", "4", "--kernel-ms", "30", "--steps", "1000000"];
    let mut others = [0, 1].map(|gpu| stage.worker(gpu, &format!("busy{gpu}"), &busy));
    others.iter_mut().for_each(|other| other.goes_on(1));
    // On a quiet machine a hundred of them end within one turn.
    let rounds = 1000;
    let words = ["--patience-ms", "30000", "--rounds", &rounds.to_string()];
    let members = meeting(&stage, &["--gang"], &words);
    let pids = members.each_ref().map(Program::pid);
    for member in members {
        assert_eq!(member.ends_well().steps, rounds);
    }
    for (other, pid) in others.iter_mut().zip(pids) {
        assert!(turns(&stage, pid) > 0 && turns(&stage, other.pid()) > 1, "they took turns");
        other.goes_on(2);
    }
    drop(others);
    stage.finish();
}
