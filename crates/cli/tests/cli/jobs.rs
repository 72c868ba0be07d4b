//! Terms of jobs: what `rota run`, `set`, `pause` and `resume` ask of the daemon, and what they make of its answers.

use crate::fake_daemon::{FakeDaemon, TERMS, complaint, listing, rota, stdout};
use crate::run::empty_library;
use crate::views::job;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use wire::quantity::Memory;
use wire::{Answer, Change, Class, Description, JobRequest, JobView, Priority, Terms};

/// The job that `rota run` with these words opens.
fn opened(adjust: impl FnOnce(&mut Command), words: &[&str]) -> JobRequest {
    let daemon = FakeDaemon::start(listing(vec![]));
    let mut command = daemon.rota();
    command.env("ROTA_SHIM", empty_library(&daemon, "librota_shim.so")).args(["run", "-q"]).args(words);
    adjust(&mut command);
    assert_eq!(stdout(command.args(["--", "echo", "ran"])), "ran\n");
    match &daemon.asked()[..] {
        [wire::Command::Open(request)] => request.clone(),
        other => panic!("asked {other:?}"),
    }
}

fn described(job: JobView) -> FakeDaemon {
    FakeDaemon::answering(Answer::Described(Description { schema_version: 1, gpu: None, jobs: vec![job] }))
}

#[test]
fn terms_are_asked_for_as_they_were_typed() {
    let words = "--name nightly --memory 8GiB --weight 3 --cores 30% --priority low --class lc --slo 10ms --wait --reserve";
    let request = opened(|_| (), &words.split(' ').collect::<Vec<_>>());
    let asked = Change {
        weight: Some(3),
        class: Some(Class::LatencyCritical),
        priority: Some(Priority::Low),
        memory: Some(Memory::Bytes(8 << 30)),
        cores_millionths: Some(300_000),
        slo_ns: Some(10_000_000),
        wait: Some(true),
        gang: None,
        oversize_bytes: None,
        reserve: Some(true),
    };
    assert_eq!(request, JobRequest { name: "nightly".into(), asked, ..JobRequest::default() });
}

#[test]
fn a_reserve_is_asked_for_taken_back_or_wished_for() {
    let asked = |words: &[&str]| opened(|_| (), words).asked.reserve;
    assert_eq!(
        (asked(&[]), asked(&["--reserve"]), asked(&["--no-reserve"])),
        (None, Some(true), Some(false))
    );
    let environment = opened(|command| _ = command.env("ROTA_RESERVE", "1"), &[]);
    assert_eq!((environment.asked.reserve, environment.usual.reserve), (None, Some(true)));
    let none = opened(|command| _ = command.env("ROTA_RESERVE", "0"), &[]);
    assert_eq!(none.usual.reserve, None);
}

#[test]
fn larger_than_the_gpu_is_a_size_or_as_much_as_there_is() {
    let asked = |words: &[&str]| opened(|_| (), words).asked.oversize_bytes;
    assert_eq!(asked(&[]), None);
    assert_eq!(asked(&["--oversize"]), Some(wire::OVERSIZE_ALL));
    assert_eq!(asked(&["--oversize=8GiB"]), Some(8 << 30));
    assert_eq!(asked(&["--oversize=none"]), Some(0));
    let environment = opened(|command| _ = command.env("ROTA_OVERSIZE", "2GiB"), &[]);
    assert_eq!((environment.asked.oversize_bytes, environment.usual.oversize_bytes), (None, Some(2 << 30)));
}

#[test]
fn the_environment_is_a_wish_and_a_flag_beats_it() {
    let environment = |command: &mut Command| {
        command
            .env("ROTA_MEMORY", "50%")
            .env("ROTA_WEIGHT", "2")
            .env("ROTA_WAIT", "1")
            .env("ROTA_CLASS", "be");
    };
    let request = opened(environment, &["--weight", "5", "--no-wait"]);
    assert_eq!(request.asked, Change { weight: Some(5), wait: Some(false), ..Change::default() });
    let usual = Change {
        memory: Some(Memory::Millionths(500_000)),
        class: Some(Class::BestEffort),
        ..Change::default()
    };
    assert_eq!(request.usual, usual);
    let request = opened(|_| (), &[]);
    assert!(request.asked.is_empty() && request.usual.is_empty());
}

#[test]
fn class_slo_and_priority_are_taken_from_the_environment_unless_a_flag_says_otherwise() {
    let environment = |command: &mut Command| {
        command.env("ROTA_CLASS", "lc").env("ROTA_SLO", "10ms").env("ROTA_PRIORITY", "high");
    };
    let usual = Change {
        class: Some(Class::LatencyCritical),
        slo_ns: Some(10_000_000),
        priority: Some(Priority::High),
        ..Change::default()
    };
    let request = opened(environment, &[]);
    assert_eq!((request.asked, request.usual), (Change::default(), usual));
    let request = opened(environment, &["--class", "be", "--slo", "5ms", "--priority", "idle"]);
    let asked = Change {
        class: Some(Class::BestEffort),
        slo_ns: Some(5_000_000),
        priority: Some(Priority::Idle),
        ..Change::default()
    };
    assert_eq!((request.asked, request.usual), (asked, Change::default()));
}

#[test]
fn a_variable_without_sense_is_named_with_125_and_nothing_runs() {
    let daemon = FakeDaemon::start(listing(vec![]));
    let run = |variable: &str, value: &str, words: &[&str]| {
        let mut command = daemon.rota();
        command.env("ROTA_SHIM", empty_library(&daemon, "librota_shim.so")).env(variable, value);
        command.args(["run", "-q"]).args(words).args(["--", "echo", "--slo", "ran"]);
        command
    };
    for (variable, value, expected) in [
        ("ROTA_SLO", "10", "`10` has no unit"),
        ("ROTA_PRIORITY", "hihg", "a similar value exists: 'high'"),
        ("ROTA_CLASS", "xx", "[possible values: be, lc]"),
        ("ROTA_OVERSIZE", "much", "much"),
        ("ROTA_TIMEOUT", "10", "`10` has no unit"),
    ] {
        let text = complaint(&mut run(variable, value, &[]), 125);
        assert!(text.contains(expected), "{text}");
        assert!(text.contains(&format!("this is what {variable} says in the environment")), "{text}");
    }
    let mut command = run("ROTA_SLO", "10ms", &[]);
    let text = complaint(command.env("ROTA_CLASS", OsStr::from_bytes(b"l\xff")), 125);
    assert!(text.contains("this is what ROTA_CLASS says in the environment"), "{text}");
    assert!(daemon.asked().is_empty(), "no job is begun for it");
    // A flag is all that counts, with sense or without.
    assert_eq!(stdout(&mut run("ROTA_SLO", "10", &["--slo", "10ms"])), "--slo ran\n");
    for words in [&["--slo", "10"][..], &["--slo=10"]] {
        let text = complaint(&mut run("ROTA_SLO", "10", words), 2);
        assert!(!text.contains("ROTA_SLO says"), "{text}");
    }
}

#[test]
fn that_a_process_has_one_class_is_said_where_it_is_chosen() {
    for verb in ["run", "set"] {
        let help = stdout(rota().args([verb, "--help"])).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("A process has one class as a whole, its job's"), "{verb}: {help}");
    }
}

#[test]
fn quantities_without_sense_are_wrong_usage() {
    for (words, expected) in [
        (["--memory", "8"], "`8` has no unit; write for example 8GiB or 50%"),
        (["--memory", "120%"], "`120%` is out of range"),
        (["--cores", "0.3"], "`0.3` has no unit; write for example 30%"),
        (["--cores", "130%"], "`130%` is more than all of it, which is 100%"),
        (["--slo", "10"], "`10` has no unit"),
        (["--priority", "hihg"], "a similar value exists: 'high'"),
        (["--class", "xx"], "[possible values: be, lc]"),
        (["--weight", "heavy"], "invalid digit"),
    ] {
        let text = complaint(rota().arg("run").args(words).args(["--", "true"]), 2);
        assert!(text.contains(expected), "{words:?}: {text}");
    }
}

#[test]
fn refused_terms_are_125_with_reason_and_hint_and_nothing_runs() {
    let reason = "12.0 GiB of memory were asked for, and this user may have 8.0 GiB";
    let daemon = FakeDaemon::answering(Answer::Refused { reason: reason.into(), hint: Some("ask".into()) });
    let mut command = daemon.rota();
    command.env("ROTA_SHIM", empty_library(&daemon, "librota_shim.so"));
    let text = complaint(command.args(["run", "--memory", "12GiB", "--", "echo", "ran"]), 125);
    assert_eq!(text, format!("rota: {reason}\nhint: ask\n"));
}

#[test]
fn set_changes_what_was_typed_and_nothing_else() {
    let terms =
        Terms { weight: 3, memory_max_bytes: Some(8 << 30), cores_max_millionths: Some(300_000), ..TERMS };
    let daemon = described(JobView { terms, ..job() });
    let mut command = daemon.rota();
    command.env("ROTA_MEMORY", "1GiB").env("ROTA_WAIT", "1").args(["set", "nightly", "--weight", "3"]);
    assert_eq!(
        stdout(&mut command),
        "nightly: weight 3, class be, priority normal, memory up to 8.0 GiB, up to 30% of the time\n"
    );
    let change = Change { weight: Some(3), ..Change::default() };
    assert_eq!(daemon.asked(), [wire::Command::Set { job: "nightly".into(), change }]);
    let json = stdout(daemon.rota().args(["set", "nightly", "--weight", "3", "--json"]));
    assert!(json.contains("\"cores_max_millionths\": 300000"), "{json}");
}

#[test]
fn set_without_anything_to_set_is_a_failure_with_a_hint() {
    let text = complaint(rota().args(["set", "nightly", "--socket", "/nowhere/s"]), 1);
    assert_eq!(
        text,
        "rota: nothing to change was named\n\
         hint: rota set nightly --weight 3; `rota set --help` shows what else\n"
    );
}

#[test]
fn pause_and_resume_say_what_holds_now() {
    let daemon = described(JobView { paused: true, ..job() });
    assert_eq!(
        stdout(daemon.rota().args(["pause", "nightly"])),
        "nightly is paused; `rota resume nightly` lets it go on\n"
    );
    assert_eq!(daemon.asked(), [wire::Command::Pause { job: "nightly".into() }]);
    let daemon = described(job());
    assert_eq!(stdout(daemon.rota().args(["resume", "nightly"])), "nightly may run\n");
    assert_eq!(daemon.asked(), [wire::Command::Resume { job: "nightly".into() }]);
}

#[test]
fn a_deep_pause_is_waited_for_unless_one_does_not_want_to() {
    let job = || "nightly".to_owned();
    let daemon = described(JobView { paused: true, ..crate::views::job() });
    let output = daemon.rota().args(["pause", "--deep", "nightly"]).output().unwrap();
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "rota: nightly is paused; waiting until nothing of it is on the GPU\n"
    );
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "nightly is paused, and nothing of it is on the GPU; `rota resume nightly` lets it go on\n"
    );
    let asked = [wire::Command::PauseDeep { job: job() }, wire::Command::AwaitDeep { job: job() }];
    assert_eq!(daemon.asked(), asked);
    let text = stdout(daemon.rota().args(["pause", "--deep", "--no-wait", "nightly"]));
    assert!(text.starts_with("nightly is paused, and gives up its contexts where it can; "), "{text}");
    assert_eq!(daemon.asked()[2..], asked[..1]);
    complaint(rota().args(["pause", "--no-wait", "nightly"]), 2);
}

#[test]
fn what_nobody_knows_is_said_with_what_there_is() {
    let refusal = Answer::Refused {
        reason: "nothing here is called `x`: no job, no process, no GPU".into(),
        hint: Some("the jobs there are: a, b".into()),
    };
    for words in [&["describe", "x"][..], &["set", "x", "--weight", "1"], &["pause", "x"], &["resume", "x"]] {
        let daemon = FakeDaemon::answering(refusal.clone());
        let text = complaint(daemon.rota().args(words), 1);
        assert_eq!(
            text,
            "rota: nothing here is called `x`: no job, no process, no GPU\nhint: the jobs there are: a, b\n"
        );
    }
}

#[test]
fn a_program_that_the_shim_cannot_get_into_is_told_of_before_it_runs() {
    let daemon = FakeDaemon::start(listing(vec![]));
    let source = daemon.folder.path().join("p.c");
    std::fs::write(&source, "void _start(void) { __asm__(\"mov $60, %eax; xor %edi, %edi; syscall\"); }")
        .unwrap();
    let program = daemon.folder.path().join("alone");
    let built =
        Command::new("cc").args(["-nostdlib", "-static"]).arg(&source).arg("-o").arg(&program).status();
    assert!(built.unwrap().success());
    let mut command = daemon.rota();
    command.env("ROTA_SHIM", empty_library(&daemon, "librota_shim.so"));
    let output = command.args(["run", "--"]).arg(&program).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let notice = format!("rota: {} is linked statically, so there is no loader", program.display());
    assert!(stderr.lines().nth(1).is_some_and(|line| line.starts_with(&notice)), "{stderr}");
}
