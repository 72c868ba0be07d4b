//! `rota sim` from outside: the real executable on the scenarios that come with it, and on ones with mistakes.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Four programs of 159 s, one after the other.
const SERIAL_NS: f64 = 636e9;
const SECOND_NS: f64 = 1e9;

fn rota(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rota")).arg("sim").args(words).output().unwrap()
}

/// stdout of a command that succeeds.
fn stdout(words: &[&str]) -> String {
    let output = rota(words);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// stderr of a command that is refused as wrong usage and prints no data.
fn complaint(words: &[&str]) -> String {
    let output = rota(words);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {stderr}");
    assert!(output.stdout.is_empty());
    stderr
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[words, &["-o", "json"]].concat())).unwrap()
}

/// The row of a policy.
fn row<'j>(report: &'j Value, policy: &str) -> &'j Value {
    let rows = report["rows"].as_array().unwrap();
    rows.iter().find(|row| row["policy"] == policy).unwrap_or_else(|| panic!("no {policy} in {report:#}"))
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row:#}"))
}

/// The row of one run of rota.
fn run(scenario: &str) -> Value {
    row(&json(&["run", scenario]), "rota").clone()
}

fn assert_at_most(row: &Value, key: &str, most: f64) {
    let is = number(row, key);
    assert!(is <= most, "{key} is {is}, more than {most}, in {row:#}");
}

fn assert_at_least(row: &Value, key: &str, least: f64) {
    let is = number(row, key);
    assert!(is >= least, "{key} is {is}, less than {least}, in {row:#}");
}

#[test]
fn the_list_names_every_scenario_with_a_line_about_it() {
    let text = stdout(&["list"]);
    let names: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    for name in ["seed-4x12", "h200-4x12", "h200-4x12-long", "lc-four-be", "bursty", "gangs", "eight-gpus"] {
        assert!(names.contains(&name), "{text}");
    }
    let listed = json(&["list"]);
    assert_eq!(listed["schema_version"], 1);
    assert_eq!(listed["scenarios"].as_array().unwrap().len(), names.len());
}

#[test]
fn json_has_the_keys_that_scripts_rely_on() {
    let report = json(&["run", "weights-3-1"]);
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["scenario"], "weights-3-1");
    let row = report["rows"][0].as_object().unwrap();
    for key in [
        "policy",
        "makespan_ns",
        "moved_bytes",
        "moving_ratio",
        "turn_gap_ns_max",
        "wait_ns_max",
        "lc_latency_ns_p50",
        "lc_latency_ns_p99",
        "be_throughput_ratio",
        "jain",
        "finished",
    ] {
        assert!(row.contains_key(key), "{key} is not in {row:?}");
    }
    assert_eq!(row["policy"], "rota");
    assert!(row["makespan_ns"].is_u64() && row["moved_bytes"].is_u64());
    assert!(row["lc_latency_ns_p99"].is_null(), "nobody is latency-critical");
    assert_eq!(row["finished"], true);
}

#[test]
fn unified_memory_thrashes_where_rota_takes_turns() {
    let report = json(&["compare", "seed-4x12"]);
    let policies: Vec<_> =
        report["rows"].as_array().unwrap().iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["unified", "unified-60s", "unified-120s", "stock", "serial", "rota"]);

    let unified = row(&report, "unified");
    assert_at_least(unified, "makespan_ns", 5000.0 * SECOND_NS);
    assert_at_most(unified, "makespan_ns", 100_000.0 * SECOND_NS);
    assert_eq!(unified["finished"], number(unified, "makespan_ns") < 100_000.0 * SECOND_NS);
    assert_eq!(row(&report, "stock")["finished"], false, "four of them do not fit");

    let serial = row(&report, "serial");
    assert!((number(serial, "makespan_ns") / SERIAL_NS - 1.0).abs() < 0.01, "{serial:#}");

    let rota = row(&report, "rota");
    assert_eq!(rota["finished"], true);
    assert_at_most(rota, "makespan_ns", 1.05 * number(serial, "makespan_ns"));
    assert_at_most(rota, "turn_gap_ns_max", 89.0 * SECOND_NS);
}

#[test]
fn the_buses_of_today_make_moving_cheap() {
    for (scenario, times, gap) in [("h200-4x12", 1.05, 22.0), ("h200-4x12-long", 1.03, 35.0)] {
        let row = run(scenario);
        assert_eq!(row["finished"], true);
        assert_at_most(&row, "makespan_ns", times * SERIAL_NS);
        assert_at_most(&row, "turn_gap_ns_max", gap * SECOND_NS);
    }
}

#[test]
fn what_is_fetched_ahead_of_turns_is_not_waited_for() {
    for seed in ["1", "2", "3"] {
        let run = |prefetch: &str| {
            let set = format!("prefetch={prefetch}");
            row(&json(&["run", "spare-4x12", "--seed", seed, "--set", &set]), "rota").clone()
        };
        let (ahead, without) = (run("on"), run("off"));
        let lost = |row: &Value| number(row, "makespan_ns") - SERIAL_NS;
        assert!(lost(&ahead) <= 0.85 * lost(&without), "seed {seed}: {ahead:#} and without {without:#}");
        assert_at_most(&ahead, "moved_bytes", 1.1 * number(&without, "moved_bytes"));
        assert_at_most(&ahead, "turn_gap_ns_max", 22.0 * SECOND_NS);
    }
}

#[test]
fn a_service_hardly_notices_four_busy_programs() {
    let alone = number(&run("lc-alone"), "lc_latency_ns_p99");
    let hinted = run("lc-four-be");
    assert_at_most(&hinted, "lc_latency_ns_p99", 1.05 * alone);
    assert_at_least(&hinted, "be_throughput_ratio", 0.90);
    let unhinted = run("lc-four-be-unhinted");
    assert_at_most(&unhinted, "lc_latency_ns_p99", alone + 200e3);
    assert_at_least(&unhinted, "be_throughput_ratio", 0.95);
}

/// The bounds are no luck of one seed.
#[test]
fn other_seeds_give_no_other_picture() {
    for seed in ["2", "3", "4", "5"] {
        let run = |scenario: &str| row(&json(&["run", scenario, "--seed", seed]), "rota").clone();
        for (scenario, times, gap) in
            [("seed-4x12", 1.05, 89.0), ("h200-4x12", 1.05, 22.0), ("h200-4x12-long", 1.03, 35.0)]
        {
            let row = run(scenario);
            assert_at_most(&row, "makespan_ns", times * SERIAL_NS);
            assert_at_most(&row, "turn_gap_ns_max", gap * SECOND_NS);
        }
        let alone = number(&run("lc-alone"), "lc_latency_ns_p99");
        let hinted = run("lc-four-be");
        assert_at_most(&hinted, "lc_latency_ns_p99", 1.05 * alone);
        assert_at_least(&hinted, "be_throughput_ratio", 0.90);
        let unhinted = run("lc-four-be-unhinted");
        assert_at_most(&unhinted, "lc_latency_ns_p99", alone + 200e3);
        assert_at_least(&unhinted, "be_throughput_ratio", 0.95);
    }
}

/// Programs that work all the time, or in a rhythm, whatever goes wrong around them.
const STEADY: [&str; 16] = [
    "seed-4x12",
    "h200-4x12",
    "h200-4x12-long",
    "spare-4x12",
    "six-fit-three",
    "lc-four-be",
    "lc-four-be-unhinted",
    "fair-two-users",
    "weights-3-1",
    "small-co-residents",
    "training-steps",
    "growing",
    "deaths",
    "faults",
    "gangs",
    "eight-gpus",
];

/// Programs that work by chance.
const BURSTY: [&str; 3] = ["bursty", "idle-gives-way", "poisson-lc"];

/// Somebody alone, who never waits.
const ALONE: [&str; 1] = ["lc-alone"];

/// How far forecasts may be off.
fn assert_forecast(scenario: &str, words: &[&str], most: f64) {
    let row = row(&json(&[&["run", scenario], words].concat()), "rota").clone();
    let error = number(&row, "forecast_error_ratio_p50");
    assert!(error <= most, "{scenario} {words:?}: half of the forecasts are off by more than {error}");
}

#[test]
fn waits_are_forecast_in_every_scenario() {
    let listed = json(&["list"]);
    let mut names: Vec<_> =
        listed["scenarios"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    let mut judged = [&STEADY[..], &BURSTY, &ALONE].concat();
    names.sort_unstable();
    judged.sort_unstable();
    assert_eq!(names, judged, "a new scenario is steady, bursty, or of somebody alone");
    for seed in ["1", "2", "3"] {
        STEADY.into_iter().for_each(|scenario| assert_forecast(scenario, &["--seed", seed], 0.2));
        BURSTY.into_iter().for_each(|scenario| assert_forecast(scenario, &["--seed", seed], 0.5));
    }
    assert!(run(ALONE[0])["forecast_error_ratio_p50"].is_null());
}

/// The scenarios are nothing special: others of their kind are forecast as well.
#[test]
fn waits_are_forecast_in_other_sizes() {
    for (scenario, most, sets) in [
        ("seed-4x12", 0.2, &["job.copies=7", "job.memory=5GiB", "gpu.capacity=24GiB"][..]),
        ("small-co-residents", 0.2, &["job.copies=12", "gpu.capacity=16GiB"]),
        ("growing", 0.2, &["job.copies=3", "gpu.capacity=24GiB"]),
        ("gangs", 0.2, &["job.memory=4GiB", "job.memory=12GiB", "gpu.capacity=24GiB", "job.weight=2"]),
        ("eight-gpus", 0.2, &["job.copies=3", "gpu.capacity=24GiB", "gpu.count=3"]),
        ("lc-four-be", 0.2, &["lc_turn=100ms", "job.memory=4GiB"]),
        ("bursty", 0.5, &["job.copies=6", "job.memory=9GiB", "gpu.capacity=12GiB"]),
        ("poisson-lc", 0.5, &["job.memory=4GiB", "hint_lead=2ms"]),
    ] {
        sets.iter().for_each(|set| assert_forecast(scenario, &["--set", set], most));
    }
}

#[test]
fn shares_are_as_weights_say() {
    for scenario in ["weights-3-1", "fair-two-users", "small-co-residents"] {
        assert_at_least(&run(scenario), "jain", 0.99);
    }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let with = |seed| json(&["run", "bursty", "--seed", seed]);
    assert_eq!(with("7"), with("7"));
    assert_ne!(with("7")["rows"], with("8")["rows"]);
}

#[test]
fn every_scenario_comes_to_an_end() {
    for scenario in json(&["list"])["scenarios"].as_array().unwrap() {
        let name = scenario["name"].as_str().unwrap();
        assert_eq!(run(name)["finished"], true, "{name}");
    }
}

#[test]
fn a_sweep_has_a_row_for_each_value() {
    let words = ["sweep", "seed-4x12", "--policy", "unified-60s", "--vary", "gpu.capacity=16GiB,64GiB"];
    let curve = json(&words);
    assert_eq!(curve["key"], "gpu.capacity");
    let values: Vec<_> = curve["rows"].as_array().unwrap().iter().map(|row| row["value"].clone()).collect();
    assert_eq!(values, ["16GiB", "64GiB"]);
    assert_at_least(&curve["rows"][0], "moved_bytes", 1.0);
    assert_at_most(&curve["rows"][1], "moved_bytes", 0.0);
    assert!(stdout(&words).contains("VALUE"));
    assert!(
        complaint(&["sweep", "seed-4x12", "--vary", "turn_mim=1s,2s"]).contains("did you mean `turn_min`?")
    );
}

#[test]
fn a_seed_that_is_varied_goes_over_one_that_is_named() {
    let curve = json(&["sweep", "bursty", "--vary", "seed=7,8", "--seed", "9"]);
    for (at, seed) in [(0, "7"), (1, "8")] {
        let one = json(&["run", "bursty", "--seed", seed]);
        assert_eq!(curve["rows"][at]["makespan_ns"], one["rows"][0]["makespan_ns"], "seed {seed}");
    }
    assert!(complaint(&["run", "bursty", "--seed", "-1"]).contains("whole number from 0 to"));
}

#[test]
fn a_picture_is_written_where_it_was_asked_for() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("new/seed.svg");
    let output = rota(&["compare", "seed-4x12", "--timeline", file.to_str().unwrap()]);
    assert!(output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("seed.svg"), "people are told where it is");
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    for word in ["rota: all done in", "unified: not done after", "tenant-4", "memory moves out", "600 s"] {
        assert!(svg.contains(word), "{word}");
    }
    assert!(svg.len() < 300_000);
}

#[test]
fn the_model_stands_beside_the_measurements() {
    let lines = json(&["calibrate"]);
    let lines = lines["rows"].as_array().unwrap();
    assert!(lines.len() > 20);
    for line in lines {
        assert_eq!(line["within_20_percent"], true, "{line:#}");
    }
}

/// A scenario file of two programs with one line that somebody got wrong.
fn wrong(folder: &Path, line: &str) -> PathBuf {
    let text = format!(
        "about = \"two\"\n\n[gpu]\ncapacity = \"16GiB\"\n\n[[job]]\nname = \"a\"\ncopies = 2\n\
         memory = \"10GiB\"\nwork = {{ kind = \"steady\", total = \"10s\" }}\n{line}\n"
    );
    let file = folder.join("mine.toml");
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn a_mistake_is_told_with_file_line_reason_and_hint() {
    let folder = TempDir::new().unwrap();
    for (line, reason, hint) in [
        ("wieght = 3", "unknown key `wieght` in [[job]]", "did you mean `weight`?"),
        ("memory_max = \"8GiB\"", "more than its `memory_max` of 8.00 GiB", "make one of them fit"),
        ("tenants = 0", "`tenants` is 0", "from 1 to"),
        ("gpus = [1]", "there is no GPU 1", "counts from 0 to 0"),
        ("slo = \"10\"", "`10` has no unit", "100ms"),
    ] {
        let file = wrong(folder.path(), line);
        let said = complaint(&["run", file.to_str().unwrap()]);
        let number = if line.starts_with("memory_max") { 9 } else { 11 };
        assert!(said.starts_with(&format!("rota: {}:{number}: ", file.display())), "{said}");
        assert!(said.contains(reason) && said.contains("\nhint: ") && said.contains(hint), "{said}");
    }
    let said = complaint(&["run", "seed-4x12", "--set", "job.memory=20GiB"]);
    assert!(
        said.contains("seed-4x12.toml with job.memory=20GiB: a tenant of `tenant` has 20.00 GiB"),
        "{said}"
    );
}

#[test]
fn names_that_nobody_has_are_guessed() {
    assert!(complaint(&["run", "sede-4x12"]).contains("hint: did you mean `seed-4x12`?"));
    assert!(complaint(&["run", "no/such.toml"]).contains("cannot read no/such.toml"));
    assert!(complaint(&["run", "seed-4x12", "--policy", "unifid"]).contains("did you mean `unified`?"));
    assert!(complaint(&["run", "seed-4x12", "--set", "turn_min"]).contains("KEY=VALUE"));
}

#[test]
fn the_scenario_that_the_documents_show_runs() {
    let page = include_str!("../../../docs/simulator.md");
    let block = page.split("```toml\n").find(|block| block.contains("[[job]]")).expect("there is one");
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, block.split("```").next().unwrap()).unwrap();
    assert_eq!(run(file.to_str().unwrap())["finished"], true);
}

#[test]
fn a_scenario_of_ones_own_runs() {
    let folder = TempDir::new().unwrap();
    let file = wrong(folder.path(), "");
    let report = json(&["run", file.to_str().unwrap(), "--policy", "serial"]);
    assert_eq!(report["scenario"], "mine");
    assert_eq!(report["rows"][0]["makespan_ns"], 20_000_000_000_u64);
}

#[test]
fn what_was_moved_is_put_beside_the_least() {
    let said = stdout(&["optimum", "six-fit-three"]);
    assert!(said.contains("GiB, offline optimum ") && said.contains(", ratio 1.0"), "{said}");
    let report = json(&["optimum", "six-fit-three", "--seed", "2"]);
    assert_eq!((&report["name"], &report["exact"]), (&"six-fit-three".into(), &true.into()));
    assert_at_most(&report, "ratio", 1.1);
    assert!(number(&report, "moved_bytes") >= number(&report, "least_bytes"));
    // Nothing moves where all of it fits.
    let report = json(&["optimum", "six-fit-three", "--set", "gpu.capacity=64GiB"]);
    assert_eq!((&report["moved_bytes"], &report["ratio"]), (&0.into(), &Value::Null));
}

#[test]
fn a_timeline_is_judged_within_its_room_and_time() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("events.jsonl");
    let lines = [
        r#"{"t_ns":1,"event":"joined","tenant":1,"gpu":0}"#,
        r#"{"t_ns":2,"event":"turn_begin","tenant":1}"#,
        r#"{"t_ns":3,"event":"move_end","bytes_out":1048576,"bytes_in":0,"failed":0}"#,
        r#"{"t_ns":4,"event":"away","tenant":1,"away_bytes":1048576,"resident_bytes":0}"#,
        r#"{"t_ns":5,"event":"move_end","bytes_out":0,"bytes_in":1048576,"failed":0}"#,
        r#"{"t_ns":6,"event":"turn_begin","tenant":1}"#,
    ];
    std::fs::write(&file, lines.join("\n")).unwrap();
    let events = file.to_str().unwrap();
    let said = stdout(&["optimum", "--events", events, "--room", "1MiB", "--from-ns", "5"]);
    assert_eq!(said, "moved 1.0 MiB, offline optimum 1.0 MiB or more, ratio 1.000 or less, over 1 steps\n");
    assert!(complaint(&["optimum", "--events", events]).contains("--room"));
    assert!(complaint(&["optimum"]).contains("<SCENARIO|--events <FILE>>"));
    let output = rota(&["optimum", "--events", events, "--room", "1MiB", "--from-ns", "7"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("nobody had a turn"), "{said}");
}
