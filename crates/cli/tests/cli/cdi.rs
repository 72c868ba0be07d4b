//! The file for container engines, by the rules of the Container Device Interface (its specification and its schema, as
//! far as this file uses them): names and types of all fields, which must be there, and no other ones.

use crate::fake_daemon::{FakeDaemon, UUID, complaint, rota, stdout};
use crate::run::empty_library;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use wire::{Answer, Gpu, Status};

/// Versions of the form that may be named.
const VERSIONS: [&str; 8] = ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"];

type Rules = Result<(), String>;

fn object<'a>(
    what: &str,
    value: &'a Value,
    required: &[&str],
    allowed: &[&str],
) -> Result<&'a Map<String, Value>, String> {
    let fields = value.as_object().ok_or(format!("{what} is no object"))?;
    if let Some(missing) = required.iter().find(|name| !fields.contains_key(**name)) {
        return Err(format!("{what} has no {missing}"));
    }
    match fields.keys().find(|name| !required.contains(&name.as_str()) && !allowed.contains(&name.as_str())) {
        Some(unknown) => Err(format!("{what} has {unknown}, which nobody knows")),
        None => Ok(fields),
    }
}

fn list<'a>(what: &str, value: Option<&'a Value>) -> Result<&'a [Value], String> {
    match value {
        None => Ok(&[]),
        Some(value) => value.as_array().map(Vec::as_slice).ok_or(format!("{what} is no list")),
    }
}

fn text<'a>(what: &str, value: &'a Value) -> Result<&'a str, String> {
    value.as_str().filter(|text| !text.is_empty()).ok_or(format!("{what} is no text"))
}

/// Letters and digits, and these between them.
fn is_name(name: &str, between: &str, digit_first: bool) -> bool {
    let ends = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    let first = name.chars().next();
    ends(first)
        && ends(name.chars().last())
        && (digit_first || first.is_some_and(|letter| letter.is_ascii_alphabetic()))
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || between.contains(letter))
}

fn file(value: &Value) -> Rules {
    let fields =
        object("the file", value, &["cdiVersion", "kind", "devices"], &["containerEdits", "annotations"])?;
    let version = text("cdiVersion", &fields["cdiVersion"])?;
    if !VERSIONS.contains(&version) {
        return Err(format!("there is no version {version}"));
    }
    let kind = text("kind", &fields["kind"])?;
    let (vendor, class) = kind.split_once('/').ok_or(format!("kind {kind} has no class"))?;
    if !is_name(vendor, "_-.", false) || !is_name(class, "_-", false) {
        return Err(format!("kind {kind} is no vendor and class"));
    }
    let mut names = BTreeSet::new();
    let devices = list("devices", Some(&fields["devices"]))?;
    if devices.is_empty() {
        return Err("there are no devices".into());
    }
    for device in devices {
        let fields = object("a device", device, &["name", "containerEdits"], &["annotations"])?;
        let name = text("name", &fields["name"])?;
        if !is_name(name, "_-.:", version != "0.3.0" && version != "0.4.0") {
            return Err(format!("{name} is no name of a device"));
        }
        if !names.insert(name) {
            return Err(format!("two devices are called {name}"));
        }
        if !edits(&fields["containerEdits"])? {
            return Err(format!("device {name} changes nothing"));
        }
    }
    fields.get("containerEdits").map_or(Ok(false), edits).map(drop)
}

/// Says whether they change anything.
fn edits(value: &Value) -> Result<bool, String> {
    let fields = object("containerEdits", value, &[], &["env", "mounts", "deviceNodes", "hooks"])?;
    for variable in list("env", fields.get("env"))? {
        let (name, _) = text("a variable", variable)?.split_once('=').ok_or("a variable has no value")?;
        if name.is_empty() {
            return Err("a variable has no name".into());
        }
    }
    for mount in list("mounts", fields.get("mounts"))? {
        let fields = object("a mount", mount, &["hostPath", "containerPath"], &["options", "type"])?;
        for path in ["hostPath", "containerPath"] {
            if !text(path, &fields[path])?.starts_with('/') {
                return Err(format!("{path} is no full path"));
            }
        }
        for option in list("options", fields.get("options"))? {
            text("an option", option)?;
        }
    }
    Ok(fields.values().any(|value| value.as_array().is_some_and(|list| !list.is_empty())))
}

fn status() -> Status {
    let gpu = Gpu {
        uuid: UUID.into(),
        name: "NVIDIA H200".into(),
        capacity_bytes: 1 << 34,
        used_bytes: 0,
        arena_bytes: 1 << 35,
        arena_used_bytes: 0,
        arena_clean_bytes: 0,
        vgpu: None,
        lc_mode_for_ns: None,
    };
    Status {
        schema_version: wire::SCHEMA_VERSION,
        version: "0.1.0".into(),
        pid: 1,
        uid: 0,
        uptime_ns: 1,
        config: None,
        policy: "fair".into(),
        turn_min_ns: 1,
        turn_max_ns: 1,
        idle_exit_ns: None,
        self_test: None,
        gpus: vec![gpu],
        jobs: 0,
        tenants: 0,
        running: 0,
        waiting: 0,
        worker_pid: 4001,
        worker_restarts: 2,
        keeper_pid: Some(4002),
    }
}

fn generated() -> (Value, FakeDaemon) {
    let daemon = FakeDaemon::answering(Answer::Status(status()));
    let shim = empty_library(&daemon, "librota_shim.so");
    let mut command = daemon.rota();
    let printed = stdout(command.env("ROTA_SHIM", shim).args(["cdi", "generate"]));
    (serde_json::from_str(&printed).unwrap(), daemon)
}

#[test]
fn the_file_keeps_the_rules_and_brings_shim_and_socket_in() {
    let (generated, daemon) = generated();
    assert_eq!(file(&generated), Ok(()), "{generated:#}");
    let names: Vec<&Value> =
        generated["devices"].as_array().unwrap().iter().map(|device| &device["name"]).collect();
    assert_eq!(names, [&json!("all"), &json!("0"), &json!(UUID)]);
    assert_eq!(generated["devices"][0]["containerEdits"]["env"], json!(["ROTA_REQUIRED=1"]));
    let one = json!(["ROTA_REQUIRED=1", format!("CUDA_VISIBLE_DEVICES={UUID}")]);
    assert_eq!(generated["devices"][1]["containerEdits"]["env"], one);
    let edits = &generated["containerEdits"];
    assert_eq!(
        edits["env"],
        json!(["LD_PRELOAD=/opt/rota/lib/librota_shim.so", "ROTA_SOCKET=/run/rota/rotad.sock"])
    );
    let folder = daemon.folder.path().canonicalize().unwrap();
    let options = json!(["ro", "nosuid", "nodev", "bind"]);
    assert_eq!(
        edits["mounts"],
        json!([
            {
                "hostPath": folder.join("librota_shim.so"),
                "containerPath": "/opt/rota/lib/librota_shim.so",
                "options": options
            },
            { "hostPath": folder, "containerPath": "/run/rota", "options": options }
        ])
    );
}

#[test]
fn what_stands_before_nvml_comes_too_where_it_is_there() {
    let daemon = FakeDaemon::answering(Answer::Status(status()));
    let shim = empty_library(&daemon, "librota_shim.so");
    empty_library(&daemon, "librota_nvml.so");
    let printed = stdout(daemon.rota().env("ROTA_SHIM", shim).args(["cdi", "generate"]));
    let generated: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(file(&generated), Ok(()));
    let edits = &generated["containerEdits"];
    assert_eq!(edits["env"][0], "LD_PRELOAD=/opt/rota/lib/librota_shim.so:/opt/rota/lib/librota_nvml.so");
    assert_eq!(edits["mounts"][1]["containerPath"], "/opt/rota/lib/librota_nvml.so");
}

#[test]
fn a_file_that_breaks_a_rule_is_found() {
    let (good, _daemon) = generated();
    let broken = |at: &str, value: Value| {
        let mut file = good.clone();
        match at.rsplit_once('/') {
            Some((parent, name)) => match file.pointer_mut(parent).unwrap() {
                Value::Object(fields) => drop(fields.insert(name.into(), value)),
                Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
                other => panic!("{other} has no parts"),
            },
            None => panic!("{at} is no place"),
        }
        file
    };
    for (at, value, complaint) in [
        ("/cdiVersion", json!("0.5"), "there is no version"),
        ("/cdiVersion", json!("0.4.0"), "0 is no name of a device"),
        ("/kind", json!("gpu"), "has no class"),
        ("/kind", json!("rota.dev/g p"), "is no vendor and class"),
        ("/devices", json!([]), "there are no devices"),
        ("/devices/0/name", json!("a/b"), "is no name of a device"),
        ("/devices/1/name", json!("all"), "two devices are called all"),
        ("/devices/0/containerEdits", json!({}), "changes nothing"),
        ("/devices/0/containerEdits/envs", json!([]), "which nobody knows"),
        ("/containerEdits/env/0", json!("LD_PRELOAD"), "has no value"),
        ("/containerEdits/mounts/0/hostPath", json!("lib.so"), "no full path"),
        ("/containerEdits/mounts/0/options", json!("ro"), "is no list"),
        ("/mounts", json!([]), "which nobody knows"),
    ] {
        let found = file(&broken(at, value)).expect_err(at);
        assert!(found.contains(complaint), "{at}: {found}");
    }
}

#[test]
fn without_a_daemon_there_are_all_gpus_and_a_word_about_it() {
    let daemon = FakeDaemon::answering(Answer::Status(status()));
    let shim = empty_library(&daemon, "librota_shim.so");
    let out = daemon.folder.path().join("rota.json");
    let mut command = rota();
    command
        .env("ROTA_SHIM", &shim)
        .args(["cdi", "generate", "--socket", "/nowhere/rotad.sock", "-o"])
        .arg(&out);
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no daemon is there"));
    let written: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(file(&written), Ok(()));
    assert_eq!(written["devices"].as_array().unwrap().len(), 1);
    let mut command = rota();
    command.env("ROTA_SHIM", &shim).args([
        "cdi",
        "generate",
        "--socket",
        "/nowhere/s",
        "-o",
        "/nowhere/rota.json",
    ]);
    assert!(complaint(&mut command, 1).contains("cannot write /nowhere/rota.json"));
}
