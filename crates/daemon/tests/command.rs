//! `rotad` as people start it: what it says when it cannot.

use std::process::{Command, Output};

fn rotad(arguments: &[&str]) -> Output {
    rotad_with(arguments, &[])
}

fn rotad_with(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rotad"))
        .args(arguments)
        .env("CUDA_MPS_PIPE_DIRECTORY", "/nowhere/mps")
        .envs(environment.iter().copied())
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
    std::fs::write(file.path(), "gpus = '0'\ncapacty = '16GiB'\n").unwrap();
    let output = rotad(&["--config", file.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    assert!(said.contains(":2: capacty: there is no such key\nhint: did you mean capacity?"), "{said}");
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

#[test]
fn the_configuration_can_be_checked_without_starting() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "capacity = '16GiB'\n[[user]]\nuid = 7\nmemory_max = '50%'\n").unwrap();
    let output = rotad(&["check-config", "--config", file.path().to_str().unwrap()]);
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    let expected = format!("capacity = \"16GiB\"    # {}:1", file.path().display());
    assert!(said.lines().any(|line| line == expected), "{said}");
    assert!(said.lines().any(|line| line == "policy = \"fair\"    # default"), "{said}");
    assert!(said.lines().any(|line| line == "# vgpu: none    # default"), "{said}");
    assert!(said.ends_with("\n[[user]]\nmemory_max = \"50%\"\nuid = 7\n"), "{said}");

    // What it prints says the same.
    std::fs::write(file.path(), &said).unwrap();
    let again = rotad(&["check-config", "--config", file.path().to_str().unwrap()]);
    assert!(again.status.success(), "{}", complaint(&again));
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("    # ").next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(values(&String::from_utf8(again.stdout).unwrap()), values(&said));

    std::fs::write(file.path(), "[[user]]\nname = 'no-such-user-here'\n").unwrap();
    let output = rotad(&["check-config", "--config", file.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    assert!(
        said.ends_with(
            "[[user]] no-such-user-here: there is no such user\nhint: see `getent passwd no-such-user-here`\n"
        ),
        "{said}"
    );
}

#[test]
fn in_the_background_the_reason_of_a_failure_comes_from_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_rotad"))
        .args(["--background", "--socket"])
        .arg(folder.path().join("rotad.sock"))
        .env("ROTA_DRIVER", "/nowhere/libcuda.so.1")
        .env("XDG_CONFIG_HOME", "/nowhere")
        .env("XDG_STATE_HOME", folder.path())
        .env_remove("ROTA_SOCKET")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    let log = folder.path().join("rota/rotad.log");
    assert!(
        said.starts_with("rotad: the daemon ended at its start (exit status: 1); the end of its log, "),
        "{said}"
    );
    assert!(said.contains(log.to_str().unwrap()) && said.contains("/nowhere/libcuda.so.1"), "{said}");
    assert!(std::fs::read_to_string(log).unwrap().contains("NVIDIA"));
}

#[test]
fn in_the_background_names_mean_the_same_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rotad.toml"), "events = './events.jsonl'\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_rotad"))
        .args(["--background", "--socket", "./rotad.sock", "--config", "rotad.toml"])
        .current_dir(folder.path())
        .env("ROTA_DRIVER", "/nowhere/libcuda.so.1")
        .env("XDG_STATE_HOME", folder.path())
        .env_remove("ROTA_VGPU")
        .output()
        .unwrap();
    let said = complaint(&output);
    assert!(said.contains("/nowhere/libcuda.so.1"), "it read its configuration: {said}");
    assert!(folder.path().join("events.jsonl").exists());
}

#[test]
fn where_mps_listens_it_says_so_and_does_not_become_its_client() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("control"), "").unwrap();
    let socket = folder.path().join("rotad.sock");
    for arguments in [&["--socket", socket.to_str().unwrap()][..], &["self-test"]] {
        let output = rotad_with(arguments, &[("CUDA_MPS_PIPE_DIRECTORY", folder.path().to_str().unwrap())]);
        assert_eq!(output.status.code(), Some(1));
        let said = complaint(&output);
        assert!(
            said.contains("an MPS daemon listens in") && said.contains("\nhint: end it with `echo quit"),
            "{said}"
        );
        assert!(!said.contains("libcuda"), "the driver was touched: {said}");
    }
}

#[test]
fn a_log_is_not_written_where_others_could_have_put_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join(format!("rota-{}", rustix::process::geteuid().as_raw()));
    std::fs::create_dir(&log).unwrap();
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o777)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_rotad"))
        .args(["--background", "--socket"])
        .arg(folder.path().join("rotad.sock"))
        .env("ROTA_DRIVER", "/nowhere/libcuda.so.1")
        .env("TMPDIR", folder.path())
        .env("XDG_CONFIG_HOME", "/nowhere")
        .env_remove("XDG_STATE_HOME")
        .env_remove("HOME")
        .env_remove("ROTA_SOCKET")
        .env_remove("ROTA_VGPU")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    assert!(
        said.contains("is writable by others or belongs to someone else; name another for the daemon's log"),
        "{said}"
    );
    assert!(!log.join("rotad.log").exists());
}

#[test]
fn the_manual_is_of_all_that_can_be_set() {
    let page = String::from_utf8(rotad(&["man"]).stdout).unwrap();
    assert!(page.contains(".TH rotad 8 "), "{page}");
    let config = String::from_utf8(rotad(&["check-config"]).stdout).unwrap();
    for key in config.lines().filter_map(|line| line.trim_start_matches("# ").split([' ', ':']).next()) {
        let flag = format!("\\-\\-{}", key.replace('_', "\\-"));
        assert!(page.contains(&flag), "{flag} is not in\n{page}");
    }
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man8");
    assert!(rotad(&["man", pages.to_str().unwrap()]).status.success());
    let mut names: Vec<_> = std::fs::read_dir(&pages)
        .unwrap()
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["rotad-check-config.8", "rotad-man.8", "rotad-self-test.8", "rotad.8"]);
    assert!(complaint(&rotad(&["man", "/dev/null/man8"])).contains("cannot write pages to /dev/null/man8"));
}
