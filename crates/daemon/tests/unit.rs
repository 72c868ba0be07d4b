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

#[test]
fn the_unit_is_one_that_systemd_understands() {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/rotad.service"));
    let text = text.unwrap();
    let Some(said) = verified(&text) else { return };
    assert_eq!(said, "");
    for (right, wrong, complaint) in [
        ("Type=notify", "Type=notfy", "Failed to parse service type"),
        ("KillMode=mixed", "KillMod=mixed", "Unknown key"),
        ("/usr/bin/rotad", "/nowhere/rotad", "not executable"),
    ] {
        let said = verified(&text.replace(right, wrong)).unwrap();
        assert!(said.contains(complaint), "{wrong}: {said}");
    }
}
