//! Requests of a latency-critical program beside best-effort work, as they are hinted: well, falsely, late, all the time, not at
//! all, by whatever kind of launch; and what is told of them afterwards.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use wire::{Hints, Statistics};

use crate::parts::newest;
use crate::puppet::Puppet;
use crate::stage::{Program, Setup, Stage, until};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn stage() -> Stage {
    Stage::new(&Setup { gpus: 1, gpu_mib: 128, arena_mib: 128, rotad: &[] })
}

/// Work that goes on all the time.
fn work(stage: &Stage, name: &str) -> Program {
    let mut work = stage.worker(0, name, &["--mib", "8", "--piece-mib", "4", "--seconds", "600"]);
    work.goes_on(1);
    work
}

fn listed(stage: &Stage, job: &str) -> wire::Tenant {
    stage.listing().tenants.into_iter().find(|tenant| tenant.job == job).expect("it is there")
}

fn hints(stage: &Stage) -> Hints {
    listed(stage, "service").hints.expect("it is latency-critical")
}

fn statistics(stage: &Stage, job: &str) -> Statistics {
    listed(stage, job).statistics.expect("it is let in")
}

fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// An input, kernels that follow some time later and are waited for so, and a pause.
fn request(service: &mut Puppet, launch: &str, wait: &str) {
    service.does("read");
    pause(3);
    service.does(launch);
    service.does(wait);
    pause(5);
}

#[test]
fn every_kind_of_launch_is_seen_behind_an_input() {
    let stage = stage();
    let mut work = work(&stage, "work");
    for launch in ["launch 1 1", "launch-ex 1", "launch-cooperative 1", "launch-graph"] {
        let mut service = Puppet::start_with(&stage, "service", &["--class", "lc"], &[]);
        service.does("instantiate 1");
        // What was captured counts as work until then.
        service.does("synchronize");
        until(&format!("{launch} was seen, and hinted"), || {
            request(&mut service, launch, "stream");
            hints(&stage).shim > 0
        });
        service.end();
        until("it is gone", || stage.listing().tenants.iter().all(|tenant| tenant.job != "service"));
    }
    work.goes_on(1);
    work.kill();
    stage.finish();
}

#[test]
fn requests_that_nobody_tells_of_are_seen_and_their_end_is_told_at_once() {
    let stage = stage();
    let mut work = work(&stage, "work");
    for wait in ["stream", "synchronize", "event", "poll", "poll-event"] {
        let mut service = Puppet::start_with(&stage, "service", &["--class", "lc", "--slo", "1ms"], &[]);
        let pid = service.pid();
        let at_once = |event: &serde_json::Value| {
            event["event"] == "idle" && event["pid"] == pid && event["for_ns"] == 0
        };
        let mut asked = 0;
        until(&format!("an end was told, by {wait}"), || {
            request(&mut service, "launch 1 1", wait);
            asked += 1;
            stage.events().iter().any(|event| at_once(event))
        });
        let seen = statistics(&stage, "service").requests.expect("some have ended");
        assert!(!seen.by_program);
        // The last one has ended when the next begins. A pause within one may come out longer than it was meant to be.
        assert!(seen.times.count + 1 >= asked, "{} of {asked} requests were seen", seen.times.count);
        let long = seen.times.p50_ns >= 4_000_000 && seen.slo_missed > 0;
        assert!(long, "3 ms of preparation, 1 ms of work: {seen:?}");
        if wait == "stream" {
            let described = stage.rota().args(["describe", "service"]).output().unwrap();
            let text = String::from_utf8(described.stdout).unwrap();
            assert!(text.contains(" as seen from outside: p50 "), "{text}");
        }
        service.end();
        until("it is gone", || stage.listing().tenants.iter().all(|tenant| tenant.job != "service"));
    }
    let cost = statistics(&stage, "work");
    assert!(cost.freezes > 0 && cost.switching_ns > 0, "{cost:?}");
    work.goes_on(1);
    work.kill();
    stage.finish();
}

/// Is there a compiler here? What needs it is left out where there is none, and says so.
fn have_compiler() -> bool {
    let found = Command::new("cc").arg("--version").output().is_ok_and(|out| out.status.success());
    if !found {
        eprintln!("left out: there is no cc here");
    }
    found
}

/// A service that hints as its first argument says, for as many requests as its second does, and stays until its input ends.
const HINTER: &str = r#"
#include "gpu.h"
#include "rota.h"
#include <string.h>
int main(int count, char **arguments) {
    const char *manner = arguments[1];
    int requests = atoi(arguments[2]);
    (void)count;
    gpu_begin();
    for (int number = 0; number < requests; number++) {
        rota_request request;
        if (!strcmp(manner, "well")) rota_hint(5000000);
        if (!strcmp(manner, "late")) rota_hint(0);
        if (!strcmp(manner, "false")) rota_hint(3000000), sleep_ms(20);
        if (!strcmp(manner, "constant")) for (int more = 0; more < 20; more++) rota_hint(2000000), sleep_ms(1);
        sleep_ms(5);
        if (!strcmp(manner, "false") && number % 20) continue;
        rota_request_begin(&request, 0, 0);
        gpu_work(number);
        rota_request_end(&request);
        sleep_ms(5);
    }
    rota_phase_begin("tidying");
    puts("done");
    fflush(stdout);
    getchar();
    return 0;
}
"#;

fn hinter(stage: &Stage) -> PathBuf {
    let (source, program) = (stage.path("hinter.c"), stage.path("hinter"));
    std::fs::write(&source, HINTER).unwrap();
    let linked = stage.path("librota.so.1");
    std::os::unix::fs::symlink(newest("librota.so"), &linked).unwrap();
    let out = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1"])
        .args(["include", "examples"].map(|folder| format!("-I{ROOT}/crates/sdk/{folder}")))
        .arg(&source)
        .arg(&linked)
        .args(["-ldl", &format!("-Wl,-rpath,{}", stage.folder().display()), "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    program
}

/// Runs the service so, until it is done, and looks at it.
fn served(stage: &Stage, program: &Path, manner: &str, requests: u32, hinting: &str) -> (Hints, Statistics) {
    let mut command = stage.under_rota_with(0, "service", &["--class", "lc", "--slo", "1s"]);
    command.arg(program).args([manner, &requests.to_string()]).env("ROTA_HINTS", hinting);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "done\n", "it hints {manner}");
    // So many hints for a request as the program above gives.
    let each = match manner {
        _ if hinting != "sdk" => 0,
        "missing" => 0,
        "constant" => 20,
        _ => 1,
    };
    // The last of them may be on their way, and those that nothing followed end some time later.
    until("all hints have come and ended", || {
        let seen = hints(stage);
        if seen.sdk + seen.dropped < each * u64::from(requests) {
            return false;
        }
        let ended = seen.good + seen.early + seen.late + seen.false_ + seen.missed;
        ended * 10 >= (seen.sdk + seen.shim + seen.forecast) * 9
    });
    let seen = (hints(stage), statistics(stage, "service"));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    until("it is gone", || stage.listing().tenants.iter().all(|tenant| tenant.job != "service"));
    seen
}

#[test]
fn hints_that_are_good_false_late_constant_or_missing_are_told_apart_and_work_goes_on() {
    if !have_compiler() {
        return;
    }
    let stage = stage();
    let mut works: Vec<Program> = (0..4).map(|number| work(&stage, &format!("work-{number}"))).collect();
    let program = hinter(&stage);
    let mut go_on = || works.iter_mut().for_each(|work| work.goes_on(1));

    let (seen, told) = served(&stage, &program, "well", 60, "sdk");
    assert_eq!((seen.sdk + seen.dropped, seen.shim, seen.forecast), (60, 0, 0), "{seen:?}");
    assert!(seen.good > 0 && seen.warm_ups > 0, "{seen:?}");
    let requests = told.requests.expect("it tells of them");
    assert!(requests.by_program && requests.times.count == 60 && requests.slo_missed == 0, "{requests:?}");
    let granted = told.granted.expect("somebody was taken off for it");
    assert!(granted.count > 0 && granted.max_ns > 0, "{granted:?}");
    assert_eq!(told.phase.as_deref(), Some("tidying"));
    go_on();

    let (seen, _) = served(&stage, &program, "false", 100, "sdk");
    assert!(seen.false_ >= 4 && seen.missed > 0, "it is not believed for long: {seen:?}");
    go_on();

    let (seen, _) = served(&stage, &program, "late", 40, "sdk");
    assert!(seen.missed + seen.late > 0, "{seen:?}");
    go_on();

    let (seen, _) = served(&stage, &program, "constant", 20, "sdk");
    assert!(seen.false_ + seen.missed > seen.good, "most of them mean nothing: {seen:?}");
    go_on();

    let (seen, told) = served(&stage, &program, "missing", 40, "sdk");
    assert_eq!(
        (seen.sdk, seen.good + seen.early + seen.late + seen.false_ + seen.missed),
        (0, 0),
        "{seen:?}"
    );
    assert!(told.requests.is_some_and(|requests| requests.times.count == 40), "{told:?}");
    go_on();

    let (seen, told) = served(&stage, &program, "well", 20, "off");
    assert_eq!(seen, Hints { dropped: seen.dropped, ..Hints::default() }, "hints are off");
    assert!(told.requests.is_some_and(|requests| requests.times.count == 20), "{told:?}");
    go_on();

    works.iter_mut().for_each(Program::kill);
    stage.finish();
}
