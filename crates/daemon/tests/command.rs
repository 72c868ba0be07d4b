//! `rotad` as people start it: what it says when it cannot.

use std::process::{Command, Output};

fn rotad(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rotad"))
        .args(arguments)
        // Whatever this machine has, these tests are of one without a driver.
        .env("ROTA_DRIVER", "/nowhere/libcuda.so.1")
        .env("XDG_CONFIG_HOME", "/nowhere")
        .env_remove("ROTA_SOCKET")
        .env_remove("ROTA_VGPU")
        .output()
        .expect("rotad can be started")
}

fn complaint(output: &Output) -> String {
    assert!(output.stdout.is_empty(), "stdout is data");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn without_a_driver_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("rotad.sock");
    for arguments in [&["--socket", socket.to_str().unwrap()][..], &["self-test"]] {
        let output = rotad(arguments);
        assert_eq!(output.status.code(), Some(1));
        let said = complaint(&output);
        assert!(said.contains("NVIDIA") && said.contains("/nowhere/libcuda.so.1"), "{said}");
        assert!(!said.contains('\u{1b}'), "no colours where nobody sees them: {said}");
    }
    assert!(!socket.exists(), "it never listened");
}

#[test]
fn a_quantity_without_a_unit_is_a_mistake_in_usage() {
    let output = rotad(&["--turn", "5"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("no unit"));
}

#[test]
fn a_wrong_configuration_is_named_with_its_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "gpu = 0\ncapacty = '16GiB'\n").unwrap();
    let output = rotad(&["--config", file.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    assert!(said.contains("line 2") && said.contains("capacty"), "{said}");
}

#[test]
fn a_socket_in_a_folder_of_everybodys_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let output = rotad(&["--socket", folder.path().join("rotad.sock").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("writable by others"));
}

#[test]
fn settings_of_the_core_are_checked_as_all_others_are() {
    let output = rotad(&["--policy", "random"]);
    assert_eq!(output.status.code(), Some(2));
    let said = complaint(&output);
    assert!(said.contains("fair") && said.contains("serial"), "{said}");
    let output = rotad(&["--moving-share", "0.05"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("no unit"));
    let output = rotad(&["--turn-min", "2s", "--turn-max", "1s"]);
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    assert!(said.contains("turn_min is 2s") && said.contains("turn_max"), "{said}");
}
