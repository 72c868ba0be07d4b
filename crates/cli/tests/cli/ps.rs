//! `rota ps` as people and scripts see it.

use crate::fake_daemon::{FakeDaemon, complaint, listing, rota, stdout, two_tenants};
use crate::run::empty_library;
use std::process::Stdio;
use wire::FromDaemon;

#[test]
fn the_table_is_aligned_and_free_of_control_characters() {
    let daemon = FakeDaemon::start(listing(two_tenants()));
    let expected = "\
GPU-5e1f0b2a-0000-4000-8000-000000000001  NVIDIA H200  12.5 GiB of 16.0 GiB in use  arena 24.0 GiB of 32.0 GiB

 PID  JOB         PROGRAM  STATE    RESIDENT      AWAY  TURNS     WAITING  NEXT
4242  train-4242  python3  running  12.0 GiB     0 MiB     17           -  -
 512  nightly     sim?[2J  away        0 MiB  24.0 GiB      9  1 min 23 s  1 of 2, about 45 s
";
    assert_eq!(stdout(daemon.rota().arg("ps")), expected);
}

#[test]
fn of_several_gpus_each_has_a_number_and_tenants_say_which_is_theirs() {
    let FromDaemon::Listing(mut both) = listing(two_tenants()) else { panic!("a listing is a listing") };
    let other = wire::Gpu { uuid: "GPU-0".into(), arena_clean_bytes: 3 << 30, ..both.gpus[0].clone() };
    both.gpus.push(other);
    both.tenants[0].gpu = both.gpus[0].uuid.clone();
    let daemon = FakeDaemon::start(FromDaemon::Listing(both));
    let expected = "\
0  GPU-5e1f0b2a-0000-4000-8000-000000000001  NVIDIA H200  12.5 GiB of 16.0 GiB in use  arena 24.0 GiB of 32.0 GiB
1  GPU-0  NVIDIA H200  12.5 GiB of 16.0 GiB in use  arena 24.0 GiB of 32.0 GiB  and clean copies 3.0 GiB

 PID  GPU  JOB         PROGRAM  STATE    RESIDENT      AWAY  TURNS     WAITING  NEXT
4242    0  train-4242  python3  running  12.0 GiB     0 MiB     17           -  -
 512    1  nightly     sim?[2J  away        0 MiB  24.0 GiB      9  1 min 23 s  1 of 2, about 45 s
";
    assert_eq!(stdout(daemon.rota().arg("ps")), expected);
}

#[test]
fn who_uses_a_gpu_past_rota_is_named() {
    let FromDaemon::Listing(mut both) = listing(vec![]) else { panic!("a listing is a listing") };
    let one = wire::Unmanaged {
        pid: 77,
        gpu: both.gpus[0].uuid.clone(),
        bytes: 3 << 30,
        program: "py\u{1b}thon".into(),
        job: Some("nightly".into()),
    };
    let other = wire::Unmanaged { pid: 78, bytes: 1 << 30, program: String::new(), job: None, ..one.clone() };
    both.unmanaged = vec![one, other];
    let daemon = FakeDaemon::start(FromDaemon::Listing(both));
    let text = stdout(daemon.rota().arg("ps"));
    let expected = "\
unmanaged: process 77 (py?thon) of job nightly, which lost the shim, holds 3.0 GiB
unmanaged: process 78 (?) holds 1.0 GiB

";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn nobody_there_is_said_in_words() {
    let daemon = FakeDaemon::start(listing(vec![]));
    let text = stdout(daemon.rota().args(["ps", "-o", "table"]));
    assert!(text.starts_with("GPU-5e1f0b2a"), "{text}");
    assert!(text.ends_with("\nNo program is here now. Start one with: rota run -- COMMAND\n"), "{text}");
}

#[test]
fn json_has_stable_keys_and_whole_numbers() {
    let daemon = FakeDaemon::start(listing(two_tenants()));
    let expected = r#"{
  "schema_version": 1,
  "gpus": [
    {
      "uuid": "GPU-5e1f0b2a-0000-4000-8000-000000000001",
      "name": "NVIDIA H200",
      "capacity_bytes": 17179869184,
      "used_bytes": 13421772800,
      "arena_bytes": 34359738368,
      "arena_used_bytes": 25769803776,
      "arena_clean_bytes": 0,
      "vgpu": null,
      "lc_mode_for_ns": null
    }
  ],
  "tenants": [
    {
      "tenant": 1,
      "pid": 4242,
      "gpu": "GPU-0",
      "job": "train-4242",
      "program": "python3",
      "state": "running",
      "resident_bytes": 12884901888,
      "away_bytes": 0,
      "turns": 17,
      "waiting_ns": 0,
      "place": null,
      "places": null,
      "forecast_ns": null,
      "host_bytes": 0,
      "hints": null,
      "statistics": null,
      "reserved": false,
      "not_back": null,
      "not_deep": null
    },
    {
      "tenant": 2,
      "pid": 512,
      "gpu": "GPU-0",
      "job": "nightly",
      "program": "sim\u001b[2J",
      "state": "away",
      "resident_bytes": 0,
      "away_bytes": 25769803776,
      "turns": 9,
      "waiting_ns": 83500000000,
      "place": 1,
      "places": 2,
      "forecast_ns": 43210000000,
      "host_bytes": 0,
      "hints": null,
      "statistics": null,
      "reserved": false,
      "not_back": null,
      "not_deep": null
    }
  ],
  "unmanaged": []
}
"#;
    assert_eq!(stdout(daemon.rota().args(["ps", "-o", "json"])), expected);
    assert_eq!(stdout(daemon.rota().args(["ps", "--json"])), expected);
}

#[test]
fn memory_in_the_hosts_for_good_has_a_column_where_there_is_any() {
    let mut tenants = two_tenants();
    let head = |tenants| {
        let daemon = FakeDaemon::start(listing(tenants));
        let text = stdout(daemon.rota().arg("ps"));
        text.lines()
            .filter(|line| line.contains("AWAY") || line.contains("4242"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert!(!head(tenants.clone()).contains("HOST"));
    tenants[0].host_bytes = 8 << 30;
    let lines = head(tenants);
    let words = |line: usize| lines.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(words(0)[4..8], ["RESIDENT", "AWAY", "HOST", "TURNS"]);
    assert!(lines.contains("8.0 GiB"), "{lines}");
}

#[test]
fn who_cannot_come_back_has_the_reason_in_place_of_its_turn() {
    let mut tenants = two_tenants();
    tenants[0].not_back = Some(wire::NotBack::NoRoom);
    tenants[1].not_back = Some(wire::NotBack::Failed);
    let daemon = FakeDaemon::start(listing(tenants));
    let text = stdout(daemon.rota().arg("ps"));
    let ends = |with: &str| text.lines().filter(|line| line.ends_with(with)).count();
    assert_eq!((ends("no room to come back"), ends("cannot come back, tried again")), (1, 1), "{text}");
}

#[test]
fn who_is_paused_but_not_deep_has_the_reason_in_place_of_its_turn() {
    let mut tenants = two_tenants();
    for (tenant, why) in tenants.iter_mut().zip([wire::NotDeep::Work, wire::NotDeep::Yet]) {
        tenant.state = wire::TenantState::Paused;
        tenant.not_deep = Some(why);
    }
    // That it cannot come back is said first.
    let mut third = tenants[0].clone();
    third.not_back = Some(wire::NotBack::Failed);
    tenants.push(third);
    let daemon = FakeDaemon::start(listing(tenants));
    let text = stdout(daemon.rota().arg("ps"));
    let ends =
        |with: &str| text.lines().filter(|line| line.contains(" paused ") && line.ends_with(with)).count();
    assert_eq!(ends("  not deep: work nobody waited for"), 1, "{text}");
    assert_eq!((ends("  not deep yet"), ends("  cannot come back, tried again")), (1, 1), "{text}");
    let json = stdout(daemon.rota().args(["ps", "--json"]));
    assert!(json.contains(r#""not_deep": "work""#), "{json}");
}

#[test]
fn a_flag_comes_before_the_environment() {
    let daemon = FakeDaemon::start(listing(vec![]));
    let mut command = rota();
    command.env("ROTA_SOCKET", "/nowhere/rotad.sock").args(["ps", "--socket"]).arg(&daemon.socket);
    assert!(stdout(&mut command).contains("NVIDIA H200"));
}

#[test]
fn without_a_daemon_the_error_says_how_to_start_one() {
    let text = complaint(rota().args(["ps", "--socket", "/nowhere/rotad.sock"]), 1);
    assert_eq!(
        text,
        "rota: no daemon answers: cannot reach /nowhere/rotad.sock: No such file or directory (os error 2)\n\
         hint: start one with `rotad &` (without a GPU: `rotad --vgpu DIR &`), or name its socket with --socket or ROTA_SOCKET\n"
    );
}

#[test]
fn a_daemon_that_refuses_is_quoted() {
    let daemon = FakeDaemon::start(FromDaemon::Refused { reason: "it speaks version 2".into() });
    let text = complaint(daemon.rota().arg("ps"), 1);
    assert!(text.ends_with("refused: it speaks version 2\n"), "{text}");
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let daemon = FakeDaemon::start(listing(two_tenants()));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = daemon.rota().arg("ps").stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert!(output.status.success(), "{:?}", output.status);
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    assert!(complaint(rota().args(["ps", "-o", "xml"]), 2).contains("table, json"));
    complaint(rota().arg("pss"), 2);
}

#[test]
fn help_begins_with_examples_and_names_the_environment() {
    let long = stdout(rota().args(["run", "--help"]));
    assert!(long.starts_with("Examples:\n  rota run -- python train.py"), "{long}");
    assert!(long.contains("[env: ROTA_SOCKET=]") && long.contains("Exit codes:"), "{long}");
    let short = stdout(rota().args(["run", "-h"]));
    assert!(!short.contains("Examples:") && short.lines().count() < 34, "{short}");
    assert!(stdout(rota().arg("--version")).starts_with("rota 0."));
}

#[test]
fn a_worker_that_dies_with_the_question_has_the_next_one_asked() {
    let daemon = FakeDaemon::dying(listing(two_tenants()), 2);
    let text = stdout(daemon.rota().arg("ps"));
    assert!(text.contains("nightly"), "{text}");
    // One that dies of the question is not asked for ever.
    for (words, code) in [(&["ps"][..], 1), (&["run", "--", "true"], 125)] {
        let daemon = FakeDaemon::dying(listing(two_tenants()), 3);
        let shim = empty_library(&daemon, "librota_shim.so");
        let said = complaint(daemon.rota().env("ROTA_SHIM", shim).args(words), code);
        assert!(said.contains("the other side closed the connection"), "{words:?}: {said}");
    }
}
