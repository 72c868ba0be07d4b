//! Jobs with terms, as people give them: limits, shares, pauses, rules, and a daemon that comes when it is needed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::parts::{WORKER, newest, with_parts};
use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until};

const ROTA_FAILED: i32 = 125;

fn stage(rotad: &[&str]) -> Stage {
    Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 64, rotad })
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// `rota WORDS --json`, which succeeds.
fn json(stage: &Stage, words: &[&str]) -> Value {
    let output = stage.rota().args(words).arg("--json").output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn job(stage: &Stage, name: &str) -> Value {
    json(stage, &["describe", name])["jobs"][0].clone()
}

fn run(stage: &Stage, words: &[&str], program: &[&str]) -> Output {
    stage.rota().args(["run", "--vgpu", "-q"]).args(words).arg("--").args(program).output().unwrap()
}

#[test]
fn a_program_has_as_much_memory_as_its_job_may() {
    let stage = stage(&[]);
    let worker = [WORKER, "--mib", "24", "--piece-mib", "4", "--steps", "2"];
    let output = run(&stage, &["--memory", "40MiB"], &worker);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = run(&stage, &["--memory", "20MiB"], &worker);
    assert!(!output.status.success(), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("OUT_OF_MEMORY"), "{}", text(&output.stderr));
    stage.finish();
}

#[test]
fn weights_are_shares_and_a_change_of_them_holds_at_once() {
    let stage = stage(&["--turn", "50ms"]);
    // Long kernels: whoever has gaps shares its turns with others, beside all weights.
    let endless = ["--mib", "4", "--piece-mib", "4", "--kernel-ms", "200", "--seconds", "1000"];
    let programs = ["light", "heavy"].map(|name| stage.worker(0, name, &endless));
    let is_there = |name: &str| stage.rota().args(["describe", name]).output().unwrap().status.success();
    until("both are there", || is_there("light") && is_there("heavy"));
    json(&stage, &["set", "heavy", "--weight", "4"]);
    // Of both at the same instant.
    let ran = || {
        let jobs = json(&stage, &["describe", "gpu0"])["jobs"].clone();
        let jobs = jobs.as_array().unwrap();
        ["light", "heavy"].map(|name| {
            let job = jobs.iter().find(|job| job["job"] == name).unwrap();
            job["ran_ns"].as_u64().unwrap()
        })
    };
    until("both run", || ran().iter().all(|ran| *ran > 0));
    let begin = ran();
    // Who has the GPU for longer because the daemon was held up pays for it in its next turns.
    until("the heavy one has had 2 s more, and the light one about a fourth of that", || {
        let end = ran();
        let [light, heavy] = [0, 1].map(|which| end[which] - begin[which]);
        heavy > 2_000_000_000 && (2.0..7.0).contains(&(heavy as f64 / light.max(1) as f64))
    });
    assert_eq!(job(&stage, "heavy")["terms"]["weight"], 4);
    drop(programs);
    stage.finish();
}

/// What a job's terms say of these.
fn terms(stage: &Stage, name: &str) -> Value {
    let terms = &job(stage, name)["terms"];
    ["class", "slo_ns", "priority"].map(|key| terms[key].clone()).to_vec().into()
}

#[test]
fn class_slo_and_priority_come_from_the_environment_and_change_while_the_program_runs() {
    let stage = stage(&["--policy", "priority"]);
    let mut command = stage.under_rota_with(0, "p", &["--priority", "low"]);
    command.envs([("ROTA_CLASS", "lc"), ("ROTA_SLO", "20ms"), ("ROTA_PRIORITY", "high")]);
    command.arg(crate::parts::PUPPET);
    let mut program = Puppet::by(&stage, "p", command);
    assert_eq!(terms(&stage, "p"), serde_json::json!(["lc", 20_000_000, "low"]), "the flag goes first");
    until("it has the class: its requests are seen", || {
        program.does("requests 2 5");
        !job(&stage, "p")["tenants"][0]["statistics"]["requests"].is_null()
    });

    assert_eq!(stage.count("turn_begin"), 0, "it runs whenever it has work");
    let set = ["set", "p", "--class", "be", "--priority", "idle"];
    assert_eq!(json(&stage, &set)["jobs"][0]["terms"]["class"], "be");
    assert_eq!(terms(&stage, "p"), serde_json::json!(["be", null, "idle"]), "an SLO goes with its class");
    until("it takes turns", || {
        program.does("requests 2 5");
        stage.count("turn_begin") > 0
    });

    let set = ["set", "p", "--class", "lc", "--slo", "5ms"];
    assert_eq!(json(&stage, &set)["jobs"][0]["terms"]["class"], "lc");
    assert_eq!(
        terms(&stage, "p"),
        serde_json::json!(["lc", 5_000_000, "idle"]),
        "what was not named is as it was"
    );
    // Requests of 1 ms: all of them miss this.
    json(&stage, &["set", "p", "--slo", "1us"]);
    let missed =
        || job(&stage, "p")["tenants"][0]["statistics"]["requests"]["slo_missed"].as_u64().unwrap_or(0);
    let before = missed();
    until("its requests are measured by the new SLO", || {
        program.does("requests 2 5");
        missed() > before
    });
    program.end();
    stage.finish();
}

#[test]
fn a_paused_program_stands_still() {
    let stage = stage(&[]);
    let program = stage.worker(0, "p", &["--mib", "8", "--piece-mib", "4", "--steps", "100000"]);
    until("it works", || program.said().steps > 2);
    assert_eq!(json(&stage, &["pause", "p"])["jobs"][0]["paused"], true);
    until("it is off the GPU", || stage.listing().tenants[0].state == wire::TenantState::Paused);
    let mut steps = program.said().steps;
    // What it had said before may still be on its way.
    until("it stands still", || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        std::mem::replace(&mut steps, program.said().steps) == steps
    });
    let output = stage.rota().args(["resume", "p"]).output().unwrap();
    assert_eq!(text(&output.stdout), "p may run\n");
    until("it goes on", || program.said().steps > steps + 2);
    drop(program);
    stage.finish();
}

#[test]
fn a_job_is_there_as_long_as_its_first_process() {
    let stage = stage(&[]);
    let mut command = stage.rota();
    let mut child =
        command.args(["run", "--vgpu", "-q", "--name", "idle", "--", "sleep", "1000"]).spawn().unwrap();
    until("the job is there", || stage.rota().args(["describe", "idle"]).output().unwrap().status.success());
    let seen = job(&stage, "idle");
    assert_eq!(seen["root_pid"], child.id());
    assert_eq!(seen["tenants"], Value::Array(vec![]));
    assert_eq!(json(&stage, &["describe", &child.id().to_string()])["jobs"][0]["job"], "idle");
    child.kill().unwrap();
    child.wait().unwrap();
    until("the job is over", || {
        let output = stage.rota().args(["describe", "idle"]).output().unwrap();
        output.status.code() == Some(1) && text(&output.stderr).contains("nothing here is called `idle`")
    });
    stage.finish();
}

#[test]
fn nobody_is_given_more_than_the_configuration_allows() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("rotad.toml");
    let uid = rustix::process::geteuid().as_raw();
    let rules = format!("[[user]]\nuid = {uid}\nmemory_max = '50%'\nweight_max = 2\nlc = false\n");
    std::fs::write(&config, rules).unwrap();
    let stage = stage(&["--config", config.to_str().unwrap()]);
    for (words, reason) in [
        (["--memory", "40MiB"], "40.0 MiB of memory were asked for, and this user may have 32.0 MiB"),
        (["--weight", "3"], "a weight of 3 was asked for, and this user may have 2"),
        (["--class", "lc"], "the class lc was asked for, and this user may have best-effort jobs only"),
    ] {
        let output = run(&stage, &words, &["echo", "ran"]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(ROTA_FAILED), ""), "{words:?}");
        let said = text(&output.stderr);
        assert!(said.starts_with(&format!("rota: {reason}\nhint: ")), "{said}");
    }
    let worker = [WORKER, "--mib", "32", "--piece-mib", "4", "--steps", "1"];
    assert!(!run(&stage, &[], &worker).status.success(), "who asks for nothing has the same limit");
    stage.finish();
}

#[test]
fn a_program_that_is_turned_away_does_not_run_past_everybody() {
    let mut stage = stage(&[]);
    // The daemon goes after the program has started, and before it looks for a GPU.
    let script = format!("read go; exec {WORKER} --mib 4 --piece-mib 4 --steps 1");
    let mut command = stage.rota();
    command.args(["run", "--vgpu", "-q", "--", "sh", "-c", &script]);
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    until("the job is there", || json(&stage, &["status"])["jobs"] == 1);
    stage.kill_daemon();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{said}");
    assert!(said.contains("CUDA is not available to this program"), "{said}");
    assert!(said.contains("SYSTEM_NOT_READY"), "{said}");
}

/// A command as somebody else than root, whose daemon is elsewhere; as oneself where one is not root.
pub(crate) fn as_user(folder: &Path, program: &Path) -> Command {
    let mut command = match rustix::process::geteuid().is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
            command
        }
        false => Command::new(program),
    };
    with_parts(&mut command);
    command.env("XDG_RUNTIME_DIR", folder).env("XDG_STATE_HOME", folder.join("state")).current_dir("/");
    command
}

#[test]
fn a_daemon_is_started_where_none_is_and_ends_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let runtime = folder.path().join("run");
    let rota = || as_user(&runtime, &newest("rota"));
    let made = as_user(folder.path(), Path::new("/bin/mkdir")).args(["-m", "700"]).arg(&runtime).status();
    let reachable = rota().arg("--version").output().is_ok_and(|output| output.status.success());
    if !made.is_ok_and(|status| status.success()) || !reachable {
        eprintln!("the parts cannot be run as another user here: this is not tested");
        return;
    }
    // Two at once: one of them starts it.
    let start = || {
        let mut command = rota();
        command.args(["run", "--vgpu", "--", WORKER, "--mib", "4", "--piece-mib", "4", "--steps", "2"]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let outputs = [start(), start()].map(|child| child.wait_with_output().unwrap());
    for output in &outputs {
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(text(&output.stdout).ends_with("\"wrong\":0}\n"), "{said}");
        assert!(said.contains("(rota virtual GPU, "), "{said}");
    }
    assert!(outputs.iter().any(|output| text(&output.stderr).contains("starting one")), "{outputs:?}");
    let status: Value =
        serde_json::from_slice(&rota().args(["status", "--json"]).output().unwrap().stdout).unwrap();
    assert_eq!(status["idle_exit_ns"], 60_000_000_000_u64);
    let pid = status["pid"].as_i64().and_then(|pid| rustix::process::Pid::from_raw(pid as i32)).unwrap();
    let log = std::fs::read_to_string(runtime.join("state/rota/rotad.log")).unwrap();
    assert_eq!(log.matches("rotad: ready at ").count(), 1, "{log}");
    assert!(log.contains(" and not by root: programs of other users are not let in"), "{log}");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    until("it is gone", || rota().arg("ps").output().unwrap().status.code() == Some(1));
}

#[test]
fn a_daemon_that_is_about_to_end_is_no_obstacle() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let runtime = folder.path().join("run");
    std::fs::create_dir(folder.path().join("rota")).unwrap();
    std::fs::write(folder.path().join("rota/rotad.toml"), "idle_exit = '300ms'\n").unwrap();
    let rota = || {
        let mut command = as_user(&runtime, &newest("rota"));
        command.env("XDG_CONFIG_HOME", folder.path());
        command
    };
    let made = as_user(folder.path(), Path::new("/bin/mkdir")).args(["-m", "700"]).arg(&runtime).status();
    let reachable = rota().arg("--version").output().is_ok_and(|output| output.status.success());
    if !made.is_ok_and(|status| status.success()) || !reachable {
        eprintln!("the parts cannot be run as another user here: this is not tested");
        return;
    }
    for round in 0..6 {
        let output = rota().args(["run", "--vgpu", "--", "echo", "ran"]).output().unwrap();
        assert_eq!(text(&output.stdout), "ran\n", "round {round}: {}", text(&output.stderr));
        // A little before and after its end.
        std::thread::sleep(std::time::Duration::from_millis(285 + 10 * round));
    }
    until("it is gone", || rota().arg("ps").output().unwrap().status.code() == Some(1));
}

#[test]
fn a_daemon_that_was_named_is_not_started() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("rotad.sock");
    let mut command = as_user(folder.path(), &newest("rota"));
    if rustix::process::geteuid().is_root() {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let output =
        command.arg("--socket").arg(&socket).args(["run", "--vgpu", "--", "echo", "ran"]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(ROTA_FAILED), ""));
    assert!(text(&output.stderr).contains("no daemon answers: cannot reach"), "{}", text(&output.stderr));
    assert!(!socket.exists());
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let runtime = folder.path().join("run");
    let made = as_user(folder.path(), Path::new("/bin/mkdir")).args(["-m", "700"]).arg(&runtime).status();
    let mut rota = as_user(&runtime, &newest("rota"));
    rota.env("ROTA_DRIVER", "/nowhere/libcuda.so.1").args(["run", "--", "echo", "ran"]);
    let Ok(output) = rota.output() else { return };
    if !made.is_ok_and(|status| status.success()) || output.status.code() == Some(126) {
        eprintln!("the parts cannot be run as another user here: this is not tested");
        return;
    }
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(ROTA_FAILED), ""), "{said}");
    assert!(
        said.contains("no daemon is there, and none could be started: the daemon ended at its start"),
        "{said}"
    );
    assert!(said.contains("/nowhere/libcuda.so.1") && said.contains("hint: `rota doctor`"), "{said}");
}

#[test]
fn what_root_changes_is_limited_as_its_user_is() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root has jobs of others to change: this is not tested");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("rotad.toml");
    std::fs::write(&config, "[[group]]\ngid = 65534\nweight_max = 2\n").unwrap();
    let stage = stage(&["--config", config.to_str().unwrap(), "--everybody"]);
    std::fs::set_permissions(stage.folder(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut rota = as_user(folder.path(), &newest("rota"));
    rota.arg("--socket")
        .arg(stage.socket())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let Ok(mut child) = rota.args(["run", "--vgpu", "-q", "--name", "theirs", "--", "sleep", "1000"]).spawn()
    else {
        return;
    };
    until("the job is there, or cannot be begun", || {
        child.try_wait().unwrap().is_some()
            || stage.rota().args(["describe", "theirs"]).output().unwrap().status.success()
    });
    if child.try_wait().unwrap().is_some_and(|status| status.code() == Some(126)) {
        eprintln!("the parts cannot be run as another user here: this is not tested");
        return;
    }
    let set = |weight: &str| stage.rota().args(["set", "theirs", "--weight", weight]).output().unwrap();
    let output = set("3");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("a weight of 3 was asked for, and this user may have 2"), "{said}");
    assert!(set("2").status.success());
    child.kill().unwrap();
    child.wait().unwrap();
    stage.finish();
}
