//! What needs no daemon: `rota doctor`, completions and the manual.

use crate::fake_daemon::{complaint, rota, stdout};
use std::process::{Command, Stdio};

#[test]
fn the_doctor_fails_where_something_failed_and_says_what_to_do() {
    let output = rota()
        .env("ROTA_SHIM", "/nowhere/shim.so")
        .args(["doctor", "--socket", "/nowhere/rotad.sock"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(output.stderr.is_empty());
    let lines: Vec<&str> = text.lines().collect();
    let at = |name: &str| {
        lines.iter().position(|line| line.contains(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"))
    };
    assert!(
        lines[at("shim  ")]
            .starts_with("FAIL  shim         the shim was not found; tried /nowhere/shim.so: No such file"),
        "{text}"
    );
    assert!(lines[at("shim  ") + 1].trim_start().starts_with("hint: put librota_shim.so beside"), "{text}");
    assert!(lines[at("daemon  ")].contains("cannot reach /nowhere/rotad.sock"), "{text}");
    assert!(lines[at("daemon  ") + 1].contains("hint: start one with `rotad &`"), "{text}");
    assert!(text.contains("\nNot fit: "), "{text}");
}

#[test]
fn the_doctor_tells_scripts_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let shim = folder.path().join("librota_shim.so");
    let made =
        Command::new("cc").args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(&shim).status().unwrap();
    assert!(made.success());
    let mut command = rota();
    command.env("ROTA_SHIM", &shim).env("ROTA_DISABLE", "1");
    let output = command.args(["doctor", "--json", "--socket", "/nowhere/rotad.sock"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["schema_version"], &report["fit"]), (&1.into(), &false.into()));
    let checks = report["checks"].as_array().unwrap();
    let of = |name: &str| checks.iter().find(|check| check["name"] == name).unwrap();
    assert_eq!(of("shim")["verdict"], "pass");
    assert_eq!(of("daemon")["verdict"], "fail");
    assert_eq!(
        (&of("environment")["verdict"], &of("environment")["hint"]),
        (&"warn".into(), &"unset ROTA_DISABLE".into())
    );
    for name in ["driver", "freezing", "host memory", "memlock", "rights", "container"] {
        assert!(of(name)["found"].as_str().is_some_and(|found| !found.is_empty()), "{name}");
    }
}

#[test]
fn the_doctor_sees_a_shim_that_the_loader_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let shim = folder.path().join("librota_shim.so");
    std::fs::write(&shim, "no library").unwrap();
    let output = rota().env("ROTA_SHIM", &shim).args(["doctor", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["name"] == "shim").unwrap();
    assert_eq!(found["verdict"], "fail");
    let said = found["found"].as_str().unwrap();
    assert!(said.contains("is not loaded with glibc 2.") && said.contains("cannot be preloaded"), "{said}");
}

/// Has a shell read a script, where that shell is there.
fn load(shell: &str, arguments: &[&str], script: &str) {
    use std::io::Write as _;
    let started = Command::new(shell).args(arguments).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = started else {
        eprintln!("{shell} is not here: its completions are not loaded");
        return;
    };
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn completions_know_the_verbs_and_shells_can_load_them() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(rota().args(["completions", shell]));
        for word in ["describe", "memory"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
        match shell {
            "bash" => load("bash", &["--norc", "-e"], &script),
            "zsh" => load("zsh", &["-f", "-n"], &script),
            "fish" => load("fish", &["--no-config", "--no-execute"], &script),
            _ => {}
        }
    }
    assert!(complaint(rota().args(["completions", "tcsh"]), 2).contains("bash"));
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let page = stdout(rota().arg("man"));
    assert!(page.contains(".TH rota 1") && page.contains("rota\\-describe(1)"), "{page}");
    let home = tempfile::tempdir().unwrap();
    // As on a machine where nobody has pages of his own yet.
    let folder = home.path().join("man/man1");
    assert_eq!(stdout(rota().arg("man").arg(&folder)), "");
    for name in ["rota.1", "rota-run.1", "rota-config-show.1", "rota-sim-compare.1"] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        assert!(text.contains(".SH SYNOPSIS") && !text.contains(".SH EXTRA"), "{name}");
    }
    let text = std::fs::read_to_string(folder.join("rota-run.1")).unwrap();
    assert!(text.contains(".SH \"EXAMPLES\"\n.nf\n  rota run \\-\\- python train.py"), "{text}");
    assert!(text.contains(".SH \"EXIT CODES\"\n"), "{text}");
    let text = complaint(rota().args(["man", "/dev/null/man1"]), 1);
    assert!(text.starts_with("rota: cannot write pages to /dev/null/man1: "), "{text}");
}
