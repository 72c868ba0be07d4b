//! Programs in namespaces of their own, as container engines make them: other process numbers, other users, other files. What
//! `rota cdi generate` writes is applied by hand, and nothing else of the host's is there but what a program is made of.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::parts::{WORKER, newest, with_parts};
use crate::stage::{Program, Setup, Stage, until, until_counted};

/// Namespaces of users, processes and mounts; whoever waits for it takes it along when it is killed.
const NAMESPACES: [&str; 6] = ["-U", "-r", "-p", "-f", "-m", "--kill-child=SIGKILL"];

/// Can namespaces be made here?
pub(crate) fn possible() -> bool {
    let tried = Command::new("unshare").args(NAMESPACES).args(["--mount-proc", "true"]).status();
    let possible = tried.is_ok_and(|status| status.success());
    if !possible {
        eprintln!("no namespaces can be made here: this is not tested");
    }
    possible
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The file for container engines.
fn cdi(stage: &Stage) -> Value {
    let output = stage.rota().args(["cdi", "generate"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What an engine does with the file, as a script for the namespaces: a root of its own with what programs are made of, the
/// mounts, the environment, and then the program.
fn container(file: &Value, root: &Path, device: &str, job: &str, program: &[&str]) -> String {
    let device = file["devices"].as_array().unwrap().iter().find(|one| one["name"] == device).unwrap();
    let edits = [&file["containerEdits"], &device["containerEdits"]];
    let of = |key: &str| {
        edits.iter().flat_map(|edits| edits[key].as_array().cloned().unwrap_or_default()).collect()
    };
    let (mounts, env): (Vec<Value>, Vec<Value>) = (of("mounts"), of("env"));
    let root = quoted(root.to_str().unwrap());
    let folder = quoted(Path::new(WORKER).parent().unwrap().to_str().unwrap());
    let mut script = format!(
        "set -e\nmount -t tmpfs none {root}\n\
         for name in bin lib lib64 usr etc dev; do\n\
         if [ -L /$name ]; then cp -P /$name {root}/; else mkdir {root}/$name; mount --rbind /$name {root}/$name; fi\ndone\n\
         mkdir -p {root}/proc {root}{folder}\nmount -t proc proc {root}/proc\nmount --bind {folder} {root}{folder}\n"
    );
    for mount in &mounts {
        let text = |key: &str| mount[key].as_str().unwrap();
        let (host, inside) = (quoted(text("hostPath")), quoted(text("containerPath")));
        let options: Vec<&str> =
            mount["options"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(options.contains(&"bind"));
        let _ = writeln!(
            script,
            "if [ -d {host} ]; then mkdir -p {root}{inside}; else mkdir -p $(dirname {root}{inside}); touch {root}{inside}; fi\n\
             mount --bind {host} {root}{inside}\nmount -o remount,{} {root}{inside}",
            options.join(",")
        );
    }
    let _ = write!(script, "exec chroot {root} /usr/bin/env -i PATH=/usr/bin:/bin ROTA_JOB={}", quoted(job));
    for variable in &env {
        let _ = write!(script, " {}", quoted(variable.as_str().unwrap()));
    }
    for word in program {
        let _ = write!(script, " {}", quoted(word));
    }
    script
}

pub(crate) fn start(stage: &Stage, device: &str, job: &str, program: &[&str]) -> Program {
    let root = stage.path(&format!("root-{job}"));
    std::fs::create_dir(&root).unwrap();
    let mut command = Command::new("unshare");
    with_parts(&mut command);
    // What the host has set is not in a container.
    command.args(NAMESPACES).args(["sh", "-c", &container(&cdi(stage), &root, device, job, program)]);
    stage.start(job, command)
}

/// The process of a job, by the daemon's word.
fn pid_of(stage: &Stage, job: &str) -> Option<u32> {
    stage.listing().tenants.iter().find(|tenant| tenant.job == job).map(|tenant| tenant.pid)
}

#[test]
fn a_program_in_a_container_is_a_tenant_like_any_other() {
    if !possible() {
        return;
    }
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 64, rotad: &["--turn", "50ms"] });
    let large = ["--mib", "24", "--piece-mib", "4", "--steps", "1000000", "--kernel-ms", "20"];
    let words = |seed| [&[WORKER][..], &large, &["--seed", seed]].concat();
    let mut inside = start(&stage, "all", "inside", &words("1"));
    until("it is there", || {
        assert_eq!(inside.try_end(), None, "{}", inside.log());
        pid_of(&stage, "inside").is_some()
    });
    // Its number is the host's: there it is another than the one it has itself, which is the first.
    let pid = pid_of(&stage, "inside").unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
    let numbers: Vec<&str> = numbers.split_whitespace().collect();
    assert!(numbers.len() >= 2 && numbers.ends_with(&["1"]), "{numbers:?}");
    let ps = stage.rota().arg("ps").output().unwrap();
    let shown = String::from_utf8(ps.stdout).unwrap();
    let line = shown.lines().find(|line| line.contains("inside")).unwrap();
    assert_eq!(line.split_whitespace().next(), Some(pid.to_string().as_str()), "{shown}");
    // And so is its user, whatever it is called inside.
    let described = stage.rota().args(["describe", "inside", "--json"]).output().unwrap();
    let described: Value = serde_json::from_slice(&described.stdout).unwrap();
    assert_eq!(described["jobs"][0]["uid"], rustix::process::geteuid().as_raw());

    // Beside one that it does not fit with, both are frozen and moved, and find every byte right.
    let mut outside = stage.worker(0, "outside", &[&large[..], &["--seed", "2"]].concat());
    let told = |what: &str| {
        let events = stage.events().into_iter();
        events.filter(|event| event["event"] == what && event["job"] == "inside").count()
    };
    until_counted("it was frozen", 4, || told("freeze"));
    until_counted("it was moved out", 2, || told("away"));
    until_counted("it was moved in", 2, || told("resident"));
    inside.goes_on(2);
    outside.goes_on(2);

    // Its end is seen, and nothing of it stays.
    rustix::process::kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    until("it is gone", || pid_of(&stage, "inside").is_none());
    until("its container is gone", || inside.try_end().is_some());
    outside.goes_on(2);
    drop(outside);
    stage.finish();
}

#[test]
fn a_container_may_have_one_gpu_of_several() {
    if !possible() {
        return;
    }
    let stage = Stage::new(&Setup { gpus: 2, gpu_mib: 64, arena_mib: 64, rotad: &[] });
    let second = stage.listing().gpus[1].uuid.clone();
    let program =
        start(&stage, "1", "second", &[WORKER, "--mib", "4", "--piece-mib", "4", "--steps", "1000000"]);
    until("it is there", || pid_of(&stage, "second").is_some());
    assert_eq!(stage.listing().tenants[0].gpu, second);
    drop(program);
    stage.finish();
}

#[test]
fn whoever_the_daemon_cannot_see_is_refused_with_the_reason() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("vgpu.toml"),
        "memory = '64MiB'\ncontext_memory = '4MiB'\nlinger = '1s'\n",
    )
    .unwrap();
    let socket = folder.path().join("rotad.sock");
    // A daemon in a container: processes of the host have no numbers there.
    let mut command = Command::new("unshare");
    with_parts(&mut command);
    command
        .args(NAMESPACES)
        .arg(newest("rotad"))
        .arg("--vgpu")
        .arg(folder.path())
        .arg("--socket")
        .arg(&socket);
    let log = std::fs::File::create(folder.path().join("rotad.log")).unwrap();
    let mut daemon = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let rota = || {
        let mut command = Command::new(newest("rota"));
        with_parts(&mut command);
        command.arg("--socket").arg(&socket);
        command
    };
    until("the daemon answers", || {
        assert_eq!(
            daemon.try_wait().unwrap(),
            None,
            "{}",
            std::fs::read_to_string(folder.path().join("rotad.log")).unwrap()
        );
        rota().arg("ps").output().unwrap().status.success()
    });
    let output = rota().args(["run", "--vgpu", "--", "echo", "ran"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(125), &b""[..]), "{said}");
    assert!(
        said.contains("the daemon cannot see this process, because it runs in another container"),
        "{said}"
    );
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}
