//! The systemd unit, by systemd's own judgement.

use std::path::Path;
use std::process::Command;

/// What systemd says of a unit with this text, or nothing where it is not here to be asked.
fn verified(text: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("rotad.service");
    // It looks for the program, too: ours is elsewhere than an installed one.
    std::fs::write(&unit, text.replace("/usr/bin/rotad", env!("CARGO_BIN_EXE_rotad"))).unwrap();
    let asked = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output();
    let Ok(output) = asked else {
        eprintln!("systemd-analyze is not here: the unit is not verified");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() || !said.is_empty(), "it failed without a word");
    // Units of the machine itself are none of ours.
    Some(said.lines().filter(|line| line.contains("rotad")).collect::<Vec<_>>().join("\n"))
}

fn unit() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/rotad.service");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_unit_is_one_that_systemd_understands() {
    let text = unit();
    let Some(said) = verified(&text) else { return };
    assert_eq!(said, "");
    for (right, wrong, complaint) in [
        ("Type=notify", "Type=notfy", "Failed to parse service type"),
        ("KillMode=process", "KillMod=process", "Unknown key"),
        ("/usr/bin/rotad", "/nowhere/rotad", "not executable"),
    ] {
        let said = verified(&text.replace(right, wrong)).unwrap();
        assert!(said.contains(complaint), "{wrong}: {said}");
    }
}

/// What a setting of the unit is.
fn setting<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
}

#[test]
fn a_stop_that_takes_too_long_leaves_the_keeper_and_its_socket_to_the_next_rotad() {
    let text = unit();
    // Anything else kills the keeper as well, with what is away.
    assert_eq!(setting(&text, "KillMode"), Some("process"));
    // With `no` and `restart` its socket goes at a stop, and nobody finds it any more.
    assert_eq!(setting(&text, "RuntimeDirectoryPreserve"), Some("yes"));
}
