//! `rota pause --deep`: nothing of a program is left on the GPU, and it goes on where it was.

use rustix::process::{Pid, Signal};
use std::time::Duration;
use wire::NotDeep;

use crate::parts::{PUPPET, newest, on_virtual_gpu};
use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until};

pub(crate) fn stage() -> Stage {
    Stage::new(&Setup { gpus: 1, gpu_mib: 96, arena_mib: 96, rotad: &["--turn", "100ms"] })
}

/// A program with memory and no work.
pub(crate) fn idle(stage: &Stage, name: &str) -> Puppet {
    let mut program = Puppet::start(stage, name, &[]);
    program.does("keep 24");
    program.does("refill");
    program.does("synchronize");
    program
}

pub(crate) fn rota(stage: &Stage, words: &[&str]) -> String {
    let said = stage.rota().args(words).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// What the device has of a program.
pub(crate) fn on_device(stage: &Stage, program: &Puppet) -> Option<u64> {
    let its = |pid: i32| u32::try_from(pid) == Ok(program.pid());
    let processes = stage.figures(0).processes;
    processes.iter().find(|process| its(process.pid)).map(|process| process.memory_bytes)
}

/// Pauses it, and waits until it is nowhere.
pub(crate) fn put_away(stage: &Stage, name: &str, program: &Puppet) {
    let before = stage.count("deep");
    let said = rota(stage, &["pause", "--deep", name]);
    assert!(said.contains("is paused, and nothing of it is on the GPU"), "{said}");
    assert!(stage.count("deep") > before, "it is not waited for");
    assert_eq!(on_device(stage, program), None);
    assert!(stage.listing().tenants.iter().all(|tenant| tenant.not_deep.is_none()));
}

/// Pauses it, and is told that something of it stays on the GPU.
pub(crate) fn is_not_put_away(stage: &Stage, name: &str) -> String {
    let said = stage.rota().args(["pause", "--deep", name]).output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(1), "{text}");
    assert!(said.stdout.is_empty());
    assert!(text.contains(&format!("rota: {name} is paused, but not deep: ")), "{text}");
    text
}

/// Resumes it, and waits until it is there.
pub(crate) fn bring_back(stage: &Stage, name: &str) {
    let before = stage.count("deep_back");
    rota(stage, &["resume", name]);
    until("it is back", || stage.count("deep_back") > before);
}

#[test]
fn a_program_without_work_gives_up_everything_and_comes_back_as_it_was() {
    let stage = stage();
    let mut program = idle(&stage, "deep");
    assert!(on_device(&stage, &program).is_some());
    for _ in 0..3 {
        put_away(&stage, "deep", &program);
        let described = rota(&stage, &["describe", "deep"]);
        assert!(described.contains("it has nothing on the GPU; its calls of the driver wait"), "{described}");
        // The calls wait, and are right once all is back: launches, which need no memory when they are made, too.
        program.begin("refill");
        program.begin("check");
        let mut other = idle(&stage, "other");
        other.does("check");
        other.end();
        assert_eq!(on_device(&stage, &program), None);
        bring_back(&stage, "deep");
        program.has_done("refill");
        program.has_done("check");
        assert!(on_device(&stage, &program).is_some());
        program.does("launch 2 20");
        program.does("synchronize");
        program.does("check");
    }
    program.end();
    stage.finish();
}

#[test]
fn one_in_the_middle_of_its_work_is_refused_and_goes_on_later() {
    let stage = stage();
    let mut program = idle(&stage, "busy");
    program.does("launch 40 100");
    let told = is_not_put_away(&stage, "busy");
    assert!(told.contains("work that nobody has waited for"), "{told}");
    assert!(stage.count("deep_refused") > 0);
    let described = rota(&stage, &["describe", "busy"]);
    assert!(
        described
            .contains("its context stays on the GPU: the program has given the GPU work that nobody has"),
        "{described}"
    );
    let listed = rota(&stage, &["ps"]);
    assert!(listed.contains("not deep: work nobody waited for"), "{listed}");
    assert_eq!(stage.listing().tenants[0].not_deep, Some(NotDeep::Work));
    assert!(on_device(&stage, &program).is_some());
    rota(&stage, &["resume", "busy"]);
    assert_eq!(stage.listing().tenants[0].not_deep, None);
    program.does("synchronize");
    program.does("check");
    program.end();
    stage.finish();
}

#[test]
fn events_say_how_long_each_step_took() {
    let stage = stage();
    let program = idle(&stage, "deep");
    put_away(&stage, "deep", &program);
    bring_back(&stage, "deep");
    let events = stage.events();
    let times = |name: &str, steps: [&str; 2]| {
        let event = events.iter().find(|event| event["event"] == name).unwrap();
        steps.map(|step| event[step].as_u64().unwrap()).iter().sum::<u64>()
            < event["took_ns"].as_u64().unwrap()
    };
    assert!(times("deep", ["lock_ns", "out_ns"]) && times("deep_back", ["in_ns", "unlock_ns"]));
    program.end();
    stage.finish();
}

#[test]
fn one_that_waits_inside_of_the_driver_is_refused_and_goes_on_later() {
    let stage = stage();
    let mut program = idle(&stage, "busy");
    program.does("launch 1 1000");
    program.begin("synchronize");
    until("it waits", || stage.count("turn_begin") > 0);
    std::thread::sleep(Duration::from_millis(100));
    let told = is_not_put_away(&stage, "busy");
    assert!(told.contains("did not leave the driver"), "{told}");
    let described = rota(&stage, &["describe", "busy"]);
    assert!(described.contains("did not leave the driver"), "{described}");
    assert!(described.contains("not tried again before it is resumed"), "{described}");
    assert_eq!(stage.listing().tenants[0].not_deep, Some(NotDeep::Calls));
    rota(&stage, &["resume", "busy"]);
    program.has_done("synchronize");
    program.does("check");
    program.end();
    stage.finish();
}

#[test]
fn one_that_waits_in_rota_is_out_of_the_driver_and_refused_for_its_work() {
    let stage = stage();
    let mut command = stage.under_rota(0, "patient");
    command.env("ROTA_WAITS", "patient").arg(PUPPET);
    let mut program = Puppet::by(&stage, "patient", command);
    program.does("keep 24");
    // Its waits are rota's once it has been frozen.
    let freezes = stage.count("freeze");
    rota(&stage, &["pause", "patient"]);
    until("it is frozen", || stage.count("freeze") > freezes);
    rota(&stage, &["resume", "patient"]);
    program.does("synchronize");
    program.does("launch 1 1000");
    program.begin("stream");
    std::thread::sleep(Duration::from_millis(100));
    is_not_put_away(&stage, "patient");
    let described = rota(&stage, &["describe", "patient"]);
    assert!(described.contains("work that nobody has waited for"), "{described}");
    rota(&stage, &["resume", "patient"]);
    program.has_done("stream");
    put_away(&stage, "patient", &program);
    program.begin("launch 2 20");
    bring_back(&stage, "patient");
    program.has_done("launch 2 20");
    program.does("stream");
    program.does("check");
    program.end();
    stage.finish();
}

#[test]
fn one_that_is_stopped_comes_back_when_it_goes_on() {
    let stage = stage();
    let mut program = idle(&stage, "deep");
    put_away(&stage, "deep", &program);
    let pid = Pid::from_raw(program.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    rota(&stage, &["resume", "deep"]);
    until("that is said", || rota(&stage, &["describe", "deep"]).contains("the program is stopped"));
    assert_eq!(on_device(&stage, &program), None);
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    until("it is back", || stage.count("deep_back") > 0);
    program.does("check");
    program.end();
    stage.finish_after_errors();
}

#[test]
fn one_for_whose_context_strangers_leave_no_room_waits_until_they_do() {
    let stage = stage();
    let mut program = idle(&stage, "deep");
    put_away(&stage, "deep", &program);
    let mut command = std::process::Command::new(PUPPET);
    on_virtual_gpu(&mut command, stage.folder());
    let mut stranger = Puppet::by(&stage, "stranger", command);
    stranger.says("fill 1024");
    rota(&stage, &["resume", "deep"]);
    program.begin("launch 2 20");
    let why = || {
        let described = rota(&stage, &["describe", "deep"]);
        ["waits until there is room for its context", "cuCheckpointProcessRestore answers"]
            .iter()
            .any(|why| described.contains(why))
    };
    until("it is said what it waits for", why);
    std::thread::sleep(Duration::from_millis(500));
    assert!(why() && on_device(&stage, &program).is_none());
    let listed = rota(&stage, &["ps"]);
    assert!(listed.contains("come back"), "{listed}");
    stranger.end();
    until("it is back", || stage.count("deep_back") > 0);
    program.has_done("launch 2 20");
    program.does("check");
    program.end();
    stage.finish_after_errors();
}

#[test]
fn workers_are_killed_at_all_instants_of_the_way_and_no_byte_is_wrong() {
    let stage = stage();
    let mut program = idle(&stage, "deep");
    // A step has a process of its own, so that a way takes some tens of milliseconds.
    for (round, after_ms) in [0, 5, 10, 20, 30, 45, 60, 80, 110, 150].into_iter().enumerate() {
        let later = Duration::from_millis(after_ms);
        let deep = stage.count("deep");
        rota(&stage, &["pause", "--deep", "--no-wait", "deep"]);
        if round % 2 == 0 {
            std::thread::sleep(later);
            assert!(stage.kill_worker());
            stage.status();
        }
        until("it is put away", || stage.count("deep") > deep);
        program.begin("refill");
        program.begin("check");
        rota(&stage, &["resume", "deep"]);
        if round % 2 == 1 {
            std::thread::sleep(later);
            assert!(stage.kill_worker());
            stage.status();
        }
        // Not for a turn: with all of its memory there it goes on without a worker, and the next one may find it done.
        until("it goes on", || program.has_answered());
        program.has_done("refill");
        program.has_done("check");
        program.does("synchronize");
    }
    program.end();
    stage.finish_after_errors();
}

#[test]
fn the_next_worker_finds_who_is_put_away_and_brings_it_back() {
    let stage = stage();
    let mut program = idle(&stage, "deep");
    put_away(&stage, "deep", &program);
    assert!(stage.kill_worker());
    until("the next one finds it", || {
        stage.events().iter().any(|event| event["event"] == "deep" && event["found"] == true)
    });
    assert_eq!(on_device(&stage, &program), None);
    bring_back(&stage, "deep");
    program.does("check");
    program.does("launch 2 20");
    program.does("synchronize");
    program.end();
    stage.finish();
}

#[test]
fn nothing_is_asked_of_another_that_has_the_number_of_a_program() {
    let stage = stage();
    let program = idle(&stage, "deep");
    let pid = program.pid();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let answer = |start: u64| {
        let mut helper = std::process::Command::new(newest("rotad"));
        on_virtual_gpu(&mut helper, stage.folder());
        let (parent, pid, start) = (std::process::id().to_string(), pid.to_string(), start.to_string());
        helper.args(["checkpoint-step", "--parent", &parent, "--pid", &pid, "--start", &start, "state"]);
        let said = helper.output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap()
    };
    assert_eq!((answer(start).trim_end(), answer(start - 1).trim_end()), ("running", "gone"));
    program.end();
    stage.finish();
}

#[test]
fn one_that_dies_meanwhile_leaves_nothing() {
    let stage = stage();
    let program = idle(&stage, "deep");
    put_away(&stage, "deep", &program);
    program.kill();
    until("nothing of it is left", || stage.listing().tenants.is_empty());
    let mut other = idle(&stage, "other");
    other.does("check");
    other.end();
    stage.finish();
}
