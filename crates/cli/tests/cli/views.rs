//! `rota describe`, `status` and `config show`, as people and scripts see them.

use crate::fake_daemon::{FakeDaemon, TERMS, UUID, complaint, rota, stdout};
use wire::{
    Answer, Class, Description, Gpu, GpuView, Hints, JobView, LcMode, Priority, RequestTimes, SelfTest,
    Setting, Statistics, Status, TenantId, TenantState, TenantView, Terms, Times,
};

const GIB: u64 = 1 << 30;

/// A job whose program waits.
pub(crate) fn job() -> JobView {
    JobView {
        job: "nightly".into(),
        uid: 0,
        terms: TERMS,
        paused: false,
        placed: Some("GPU 0: the only one".into()),
        root_pid: Some(512),
        age_ns: 754_000_000_000,
        used_bytes: GIB / 2,
        ran_ns: 95_000_000_000,
        tenants: vec![TenantView {
            tenant: TenantId(2),
            pid: 512,
            program: "sim\u{1b}[2J".into(),
            gpu: UUID.into(),
            state: TenantState::Away,
            reason: "waits for its turn; job train (process 4242) has it now".into(),
            resident_bytes: 0,
            away_bytes: 24 * GIB,
            context_bytes: GIB / 2,
            turns: 9,
            ran_ns: 95_000_000_000,
            waiting_ns: 3_500_000_000,
            forecast_ns: Some(2_000_000_000),
            pinned_bytes: GIB / 4,
            place: Some(2),
            places: Some(3),
            host_bytes: 0,
            hints: None,
            statistics: None,
            rehomed_bytes: 0,
        }],
    }
}

#[test]
fn what_became_of_the_hints_of_a_latency_critical_program_is_shown() {
    let mut service = job();
    service.terms = Terms { class: Class::LatencyCritical, ..TERMS };
    service.tenants[0].hints = Some(Hints {
        sdk: 1,
        shim: 2,
        forecast: 3,
        good: 4,
        early: 5,
        late: 6,
        false_: 7,
        missed: 8,
        dropped: 9,
        warm_ups: 10,
        warm_ups_failed: 11,
        warm_ups_awaited: 13,
        rhythm_ns: Some(12_000_000),
    });
    let description = Description { schema_version: 1, gpu: None, jobs: vec![service] };
    let daemon = described(description.clone());
    let text = stdout(daemon.rota().args(["describe", "nightly"]));
    let expected = "
    hints       1 by the program, 2 by the shim, 3 by forecast (one every 12 ms), 9 not sent
                4 good, 5 early, 6 late, 7 false, 8 missed; 10 warm-ups, 11 failed
";
    assert!(text.contains(expected), "{text}");
    let daemon = described(description);
    let json = stdout(daemon.rota().args(["describe", "nightly", "-o", "json"]));
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    let hints = &found["jobs"][0]["tenants"][0]["hints"];
    let keys = ["good", "early", "late", "false", "missed", "dropped"].map(|key| hints[key].as_u64());
    assert_eq!(keys, [4, 5, 6, 7, 8, 9].map(Some));
}

#[test]
fn what_a_program_went_through_is_shown() {
    let times = |count, unit: u64| Times {
        count,
        p50_ns: 70 * unit,
        p99_ns: 92 * unit,
        p999_ns: 130 * unit,
        max_ns: 1_250 * unit,
    };
    let mut service = job();
    service.tenants[0].statistics = Some(Statistics {
        requests: Some(RequestTimes { by_program: true, times: times(1000, 1_000), slo_missed: 3 }),
        granted: Some(times(812, 10_000)),
        freezes: 912,
        frozen_ns: 3_200_000_000,
        switching_ns: 800_000_000,
        moving_ns: 61_000_000_000,
        phase: Some("check\u{1b}point".into()),
    });
    let description = Description { schema_version: 1, gpu: None, jobs: vec![service.clone()] };
    let daemon = described(description.clone());
    let text = stdout(daemon.rota().args(["describe", "nightly"]));
    let expected = "
    phase       gives way: check?point
    requests    1000 by the program's word: p50 70 us, p99 92 us, p99.9 130 us, longest 1.2 ms; 3 missed the SLO
    had GPU     after p50 700 us, p99 920 us, p99.9 1.3 ms, longest 12.5 ms; 812 times, from hint or first work
    frozen      912 times, 3 s with work to do
    lost        800 ms freezing and thawing, 1 min 1 s moving
";
    assert!(text.contains(expected), "{text}");
    let daemon = described(description);
    let json = stdout(daemon.rota().args(["describe", "nightly", "-o", "json"]));
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    let statistics = &found["jobs"][0]["tenants"][0]["statistics"];
    assert_eq!(statistics["requests"]["times"]["p99_ns"], 92_000);
    assert_eq!((&statistics["requests"]["slo_missed"], &statistics["freezes"]), (&3.into(), &912.into()));

    service.tenants[0].statistics = Some(Statistics {
        requests: Some(RequestTimes { by_program: false, times: times(5, 1_000), slo_missed: 0 }),
        ..Statistics::default()
    });
    let daemon = described(Description { schema_version: 1, gpu: None, jobs: vec![service] });
    let text = stdout(daemon.rota().args(["describe", "nightly"]));
    assert!(text.contains("requests    5 as seen from outside: p50 70 us"), "{text}");
    assert!(!text.contains("frozen ") && !text.contains("lost ") && !text.contains("phase "), "{text}");
}

fn described(description: Description) -> FakeDaemon {
    FakeDaemon::answering(Answer::Described(description))
}

#[test]
fn a_job_is_described_in_full() {
    let daemon = described(Description { schema_version: 1, gpu: None, jobs: vec![job()] });
    let expected = "\
Job nightly
  state       away
  user        root (0)
  begun       12 min 34 s ago, by process 512
  placed      GPU 0: the only one
  class       be, best-effort
  weight      1
  priority    normal
  memory      512.0 MiB, no limit; out of memory where it is short
  cores       no limit
  GPU time    1 min 35 s so far

  Process 512, sim?[2J: away
    why         waits for its turn; job train (process 4242) has it now
    memory      0 MiB on the GPU, 24.0 GiB away, 512.0 MiB for its context
    pinned      256.0 MiB of it cannot move
    turns       9, 1 min 35 s in all
    waiting     for 3 s
    next        2 of 3, about 2 s
";
    assert_eq!(stdout(daemon.rota().args(["describe", "nightly"])), expected);
    assert_eq!(daemon.asked(), [wire::Command::Describe { what: "nightly".into() }]);
}

#[test]
fn limits_and_pauses_show() {
    let terms = Terms {
        weight: 3,
        class: Class::LatencyCritical,
        priority: Priority::High,
        memory_max_bytes: Some(8 * GIB),
        cores_max_millionths: Some(300_000),
        slo_ns: Some(10_000_000),
        wait: true,
        gang: true,
        oversize_bytes: 4 * GIB,
        reserve: true,
    };
    let job = JobView { terms, paused: true, root_pid: None, tenants: vec![], ..job() };
    let daemon = described(Description { schema_version: 1, gpu: None, jobs: vec![job] });
    let expected = "\
Job nightly
  state       paused
  user        root (0)
  begun       12 min 34 s ago
  placed      GPU 0: the only one
  class       lc, latency-critical
  weight      3
  priority    high
  memory      512.0 MiB of at most 8.0 GiB, and 4.0 GiB beyond the GPU in host memory; stays on the GPU; waits where memory is short
  cores       at most 30% of the GPU's time
  served      within 10 ms
  gang        its processes run at the same time or not at all
  GPU time    not counted: it takes no turns
";
    assert_eq!(stdout(daemon.rota().args(["describe", "nightly"])), expected);
}

#[test]
fn a_process_on_several_gpus_is_described_on_each() {
    let other = "GPU-5e1f0b2a-0000-4000-8000-000000000002";
    let mut job = job();
    let second = TenantView { gpu: other.into(), state: TenantState::Frozen, ..job.tenants[0].clone() };
    job.tenants.push(second);
    job.terms.memory_max_bytes = Some(32 * GIB);
    let daemon = described(Description { schema_version: 1, gpu: None, jobs: vec![job] });
    let text = stdout(daemon.rota().args(["describe", "nightly"]));
    for line in [
        "  state       on 2 GPUs: away, frozen\n",
        "  memory      512.0 MiB, at most 32.0 GiB on each GPU; out of memory where it is short\n",
        &format!("    GPU         {UUID}\n"),
        &format!("    GPU         {other}\n"),
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn a_gpu_is_described_with_its_jobs() {
    let gpu = GpuView {
        index: 0,
        uuid: UUID.into(),
        name: "NVIDIA H200".into(),
        capacity_bytes: 16 * GIB,
        used_bytes: 12 * GIB,
        reserve_bytes: 600 << 20,
        unmanaged_bytes: GIB,
        arena_bytes: 32 * GIB,
        arena_used_bytes: 24 * GIB,
        arena_clean_bytes: 5 * GIB,
        vgpu: None,
        turn_of_pid: Some(4242),
        favour: "latency".into(),
        be_guarantee_millionths: 100_000,
        stays_bytes: 3 << 30,
        lc_mode: LcMode {
            on_for_ns: Some(12_000_000_000),
            begun: 3,
            lasted_ns: 60_000_000_000,
            held_back_ns: 2_100_000_000,
            freezes: 40,
            switching_ns: 35_000_000,
        },
    };
    let daemon = described(Description { schema_version: 1, gpu: Some(gpu), jobs: vec![job()] });
    let text = stdout(daemon.rota().args(["describe", "gpu0"]));
    let expected = "\
GPU 0: NVIDIA H200
  UUID        GPU-5e1f0b2a-0000-4000-8000-000000000001
  memory      12.0 GiB of 16.0 GiB in use, 600.0 MiB kept for the daemon, 1.0 GiB in use outside of rota
  stays       3.0 GiB is reserved or cannot move, and is for nobody else
  beside lc   favours latency; best-effort programs get at least 10% of the time
  lc mode     on for 12 s; began 3 times, 1 min 0 s in all
              kept best-effort programs off the GPU for 2 s; froze one 40 times, 35 ms freezing and thawing
  arena       24.0 GiB of 32.0 GiB taken, 5.0 GiB more by clean copies, which make room
  turn        process 4242

Job nightly
";
    assert!(text.starts_with(expected), "{text}");
    let text = stdout(daemon.rota().args(["describe", "gpu0", "-o", "json"]));
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({
        "on_for_ns": 12_000_000_000_u64, "begun": 3, "lasted_ns": 60_000_000_000_u64,
        "held_back_ns": 2_100_000_000_u64, "freezes": 40, "switching_ns": 35_000_000,
    });
    assert_eq!(found["gpu"]["lc_mode"], expected);
}

#[test]
fn a_description_in_json_has_stable_keys() {
    let daemon = described(Description { schema_version: 1, gpu: None, jobs: vec![job()] });
    let text = stdout(daemon.rota().args(["describe", "nightly", "-o", "json"]));
    for line in [
        "  \"schema_version\": 1,",
        "      \"job\": \"nightly\",",
        "        \"class\": \"be\",",
        "        \"priority\": \"normal\",",
        "        \"memory_max_bytes\": null,",
        "      \"ran_ns\": 95000000000,",
        "          \"state\": \"away\",",
        "          \"forecast_ns\": 2000000000,",
        "          \"pinned_bytes\": 268435456,",
        "          \"place\": 2,",
        "          \"places\": 3,",
        "          \"host_bytes\": 0,",
        "          \"hints\": null,",
        "          \"statistics\": null,",
        "          \"rehomed_bytes\": 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

pub(crate) fn status() -> Status {
    Status {
        schema_version: 1,
        version: "0.1.0".into(),
        pid: 4000,
        uid: 0,
        uptime_ns: 3_725_000_000_000,
        config: Some("/etc/rota/rotad.toml".into()),
        policy: "fair".into(),
        turn_min_ns: 100_000_000,
        turn_max_ns: 60_000_000_000,
        idle_exit_ns: Some(60_000_000_000),
        self_test: Some(SelfTest { rounds: 20, freeze_max_ns: 1_100_000, thaw_max_ns: 600_000 }),
        gpus: vec![Gpu {
            uuid: UUID.into(),
            name: "NVIDIA H200".into(),
            capacity_bytes: 16 * GIB,
            used_bytes: 12 * GIB,
            arena_bytes: 32 * GIB,
            arena_used_bytes: 0,
            arena_clean_bytes: 12 * GIB,
            vgpu: None,
            lc_mode_for_ns: Some(3_000_000_000),
        }],
        jobs: 1,
        tenants: 2,
        running: 1,
        waiting: 1,
        worker_pid: 4001,
        worker_restarts: 2,
        keeper_pid: Some(4002),
    }
}

#[test]
fn the_status_is_a_few_lines_and_a_table() {
    let daemon = FakeDaemon::answering(Answer::Status(status()));
    let expected = format!(
        "\
rotad 0.1.0, process 4000 of root (0), up for 1 h 2 min
  worker     process 4001, started anew 2 times; process 4002 keeps what is away
  socket     {}
  config     /etc/rota/rotad.toml
  sharing    fair turns of 100ms to 60s
  self-test  a running kernel was frozen and thawed 20 times, in at most 1.10 and 0.60 ms
  ends       when nobody was there for 60s
  now        1 job, 2 tenants: 1 running, 1 waiting; GPU 0 in lc mode for 3 s

GPU  NAME                       IN USE              ARENA  CLEAN COPIES  UUID
  0  NVIDIA H200  12.0 GiB of 16.0 GiB  0 MiB of 32.0 GiB      12.0 GiB  GPU-5e1f0b2a-0000-4000-8000-000000000001
",
        daemon.socket.display()
    );
    assert_eq!(stdout(daemon.rota().arg("status")), expected);
    let json = stdout(daemon.rota().args(["status", "--json"]));
    assert!(json.contains("\"freeze_max_ns\": 1100000") && json.contains("\"jobs\": 1"), "{json}");
}

#[test]
fn settings_are_shown_with_where_they_come_from() {
    let setting = |key: &str, value: &str, origin: &str| Setting {
        key: key.into(),
        value: value.into(),
        origin: origin.into(),
    };
    let daemon = FakeDaemon::answering(Answer::Settings(vec![
        setting("capacity", "16.0 GiB", "/etc/rota/rotad.toml:3"),
        setting("policy", "fair", "default"),
    ]));
    assert_eq!(stdout(daemon.rota().args(["config", "show"])), "capacity  16.0 GiB\npolicy    fair\n");
    assert_eq!(
        stdout(daemon.rota().args(["config", "show", "--origin"])),
        "capacity  16.0 GiB  /etc/rota/rotad.toml:3\npolicy    fair      default\n"
    );
    let json = stdout(daemon.rota().args(["config", "show", "--json"]));
    assert!(json.contains("\"origin\": \"/etc/rota/rotad.toml:3\""), "{json}");
}

#[test]
fn without_a_daemon_every_verb_says_so() {
    for words in [
        &["describe", "x"][..],
        &["status"],
        &["set", "x", "--weight", "1"],
        &["pause", "x"],
        &["resume", "x"],
    ] {
        let text = complaint(rota().args(words).args(["--socket", "/nowhere/rotad.sock"]), 1);
        assert!(
            text.starts_with("rota: no daemon answers: cannot reach /nowhere/rotad.sock: No such file"),
            "{words:?}: {text}"
        );
        assert!(text.contains("\nhint: start one with `rotad &`"), "{words:?}: {text}");
    }
    let text = complaint(rota().args(["config", "show", "--socket", "/nowhere/rotad.sock"]), 1);
    assert!(text.starts_with("rota: no daemon answers: cannot reach /nowhere/rotad.sock"), "{text}");
    assert!(text.ends_with(", or see what one would have with `rotad check-config`\n"), "{text}");
}
