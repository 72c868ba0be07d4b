//! Rules about programs: who may have what with which, by the file that a process runs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use crate::jobs::as_user;
use crate::parts::{WORKER, newest};
use crate::stage::{Setup, Stage, until};

/// Of a program that could not be started at all.
const NOT_STARTED: i32 = 126;

/// Some steps of a program with a little memory.
const WORK: [&str; 6] = ["--mib", "24", "--piece-mib", "4", "--steps", "2"];

fn stage(folder: &tempfile::TempDir, rules: &str, flags: &[&str]) -> Stage {
    let config = folder.path().join("rotad.toml");
    std::fs::write(&config, rules).unwrap();
    let rotad = [&["--config", config.to_str().unwrap()], flags].concat();
    Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 64, rotad: &rotad })
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn run(stage: &Stage, words: &[&str], program: &[&str]) -> Output {
    stage.rota().args(["run", "--vgpu", "-q"]).args(words).arg("--").args(program).output().unwrap()
}

/// It was turned away for this reason.
fn turned_away(output: &Output, reason: &str) {
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains(reason), "{said}");
}

#[test]
fn a_program_may_have_less_than_whoever_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    let stage = stage(&folder, "[[command]]\nname = 'work*'\nlc = false\nmemory_max = '40MiB'\n", &[]);
    let worker = [&[WORKER], &WORK[..]].concat();
    // Nobody knows before the program is there.
    let reason = format!("this user's {WORKER} may have");
    turned_away(&run(&stage, &["--class", "lc"], &worker), &format!("{reason} best-effort jobs only"));
    turned_away(&run(&stage, &["--memory", "48MiB"], &worker), &format!("{reason} 40.0 MiB"));
    let through_a_shell = ["sh", "-c", &format!("{WORKER} {}; exit $?", WORK.join(" "))];
    turned_away(&run(&stage, &["--class", "lc"], &through_a_shell), "best-effort jobs only");
    let output = run(&stage, &[], &worker);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let large = [WORKER, "--mib", "40", "--piece-mib", "4", "--steps", "2"];
    turned_away(&run(&stage, &[], &large), "OUT_OF_MEMORY");
    // The rule is about what a file is called, and this is another.
    let other = folder.path().join("other");
    std::fs::copy(WORKER, &other).unwrap();
    let output = run(&stage, &["--class", "lc"], &[&[other.to_str().unwrap()], &WORK[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    stage.finish();
}

#[test]
fn what_a_program_may_not_have_it_does_not_get_later() {
    let folder = tempfile::tempdir().unwrap();
    let rules = format!("[[command]]\npath = '{WORKER}'\nlc = false\npriority_max = 'low'\n");
    let stage = stage(&folder, &rules, &[]);
    let program = stage.worker(0, "p", &["--mib", "8", "--piece-mib", "4", "--steps", "100000"]);
    until("it works", || program.said().steps > 2);
    let described = stage.rota().args(["describe", "p", "--json"]).output().unwrap();
    let described: serde_json::Value = serde_json::from_slice(&described.stdout).unwrap();
    assert_eq!(described["jobs"][0]["terms"]["priority"], "low", "nobody asked for more");
    for (words, reason) in [
        (["--class", "lc"], "the class lc was asked for"),
        (["--priority", "normal"], "the priority normal was asked for"),
    ] {
        let output = stage.rota().args(["set", "p"]).args(words).output().unwrap();
        turned_away(&output, &format!("{reason}, and this user's {WORKER} may have"));
    }
    assert!(stage.rota().args(["set", "p", "--priority", "idle"]).output().unwrap().status.success());
    drop(program);
    stage.finish();
}

#[test]
fn a_file_that_anybody_could_have_put_there_is_granted_nothing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can be another user: this is not tested");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let serve = folder.path().join("serve");
    std::fs::copy(WORKER, &serve).unwrap();
    let open_to_all = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    [folder.path(), &serve].into_iter().for_each(open_to_all);
    let rules = format!("[[command]]\npath = '{}'\nlc = true\n", serve.display());
    let stage = stage(&folder, &rules, &["--everybody"]);
    // As device files are.
    [stage.folder(), &stage.path("vgpud.sock")].into_iter().for_each(open_to_all);
    let mut rota = as_user(folder.path(), &newest("rota"));
    rota.arg("--socket").arg(stage.socket());
    let Ok(output) =
        rota.args(["run", "--vgpu", "-q", "--class", "lc", "--"]).arg(&serve).args(WORK).output()
    else {
        return;
    };
    if output.status.code() == Some(NOT_STARTED) {
        eprintln!("the parts cannot be run as another user here: this is not tested");
        return;
    }
    turned_away(&output, &format!("this user's {} may have best-effort jobs only", serve.display()));
    stage.finish();
}
