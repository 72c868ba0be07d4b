//! What a file may say, and what is said of one that is wrong.

use super::*;
use sched::{Class, PolicyKind, UserId};

const GOOD: &str = r#"
about = "One of each"
limit = "60s"
seed = 7
arena = "64GiB"
unified_quanta = ["10s"]

[gpu]
capacity = "16GiB"
both = "12GB/s"
physics = { switch = "100us" }

[settings]
policy = "priority"
turn_min = "50ms"
costs = { freeze = "1ms" }

[faults]
late = "5%"

[[job]]
name = "train"
copies = 2
memory = { bytes = "8GiB", handle = "1GiB", dirty = "30%", pause = "20ms" }
work = { kind = "steps", busy = "20ms", pause = "5ms", count = 10 }

[[job]]
name = "serve"
user = 2
class = "latency-critical"
memory = "1GiB"
work = { kind = "requests", per_second = 100, service = "87us", hints = { ahead = "2ms" } }
"#;

fn scenario_of(text: &str) -> Scenario {
    parse("test", "test.toml", text, &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// What is said about `GOOD` with one change.
fn said(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse("test", "test.toml", &GOOD.replacen(from, to, 1), &[]).expect_err("it is wrong").to_string()
}

fn line_of(word: &str) -> usize {
    GOOD[..GOOD.find(word).unwrap()].lines().count()
        + usize::from(GOOD[..GOOD.find(word).unwrap()].ends_with('\n'))
}

#[test]
fn all_of_it_arrives() {
    let scenario = scenario_of(GOOD);
    assert_eq!((scenario.name.as_str(), scenario.seed), ("test", 7));
    assert_eq!(scenario.limit, Span::from_secs(60));
    assert_eq!(scenario.unified_quanta, [Span::from_secs(10)]);
    assert_eq!(scenario.gpus[0].both_per_second, 12_000_000_000);
    assert_eq!(scenario.gpus[0].physics.switch, Span::from_micros(100));
    assert_eq!(scenario.settings.policy, PolicyKind::Priority);
    assert_eq!(scenario.settings.turn_min, Span::from_millis(50));
    assert_eq!(scenario.settings.costs.freeze, Span::from_millis(1));
    assert_eq!(scenario.faults.late, Ratio::from_percent(5));
    let names: Vec<_> = scenario.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["train-1", "train-2", "serve"]);
    assert_eq!(scenario.jobs[0].memory.dirty, Ratio::from_percent(30));
    assert_eq!(scenario.jobs[0].memory.pause, Some(Span::from_millis(20)));
    assert_eq!(scenario.jobs[2].terms.class, Class::LatencyCritical);
    assert_eq!(scenario.jobs[2].terms.user, UserId(2));
    assert!(matches!(scenario.jobs[2].work, Work::Requests { count: 0, hints: Some(_), .. }));
}

#[test]
fn an_arena_holds_everybody_if_nothing_is_said() {
    let scenario = scenario_of(&GOOD.replace("arena = \"64GiB\"\n", ""));
    assert_eq!(scenario.arena, Bytes::from_gib(17));
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest() {
    let said = said("turn_min", "turn_mn");
    assert_eq!(
        said,
        format!(
            "test.toml:{}: unknown key `turn_mn` in [settings]\nhint: did you mean `turn_min`?",
            line_of("turn_min")
        )
    );
}

#[test]
fn impossible_sizes_are_refused_where_they_stand() {
    for (from, to, line, reason) in [
        ("\"8GiB\"", "\"20GiB\"", "memory = {", "has 20.00 GiB, and its GPU has room for"),
        ("12GB/s", "0GB/s", "both =", "`both` is zero"),
        ("\"16GiB\"", "\"1GiB\"", "capacity", "no room beside"),
        ("copies = 2", "copies = 0", "copies", "`copies` is 0"),
        ("count = 10", "count = 0", "kind = \"steps\"", "`count` is 0"),
        ("copies = 2", "gpus = [1]", "copies", "there is no GPU 1"),
        ("copies = 2", "gpus = [0, 0]", "copies", "names 2 for 1 tenants"),
        ("copies = 2", "arrives = \"99s\"", "copies", "after the end"),
        ("copies = 2", "dies = \"0s\"", "copies", "dies before it arrives"),
        ("copies = 2", "memory_max = \"1GiB\"", "memory = {", "more than its `memory_max`"),
        ("copies = 2", "growth = 1", "copies", "unknown key `growth`"),
        ("\"30%\"", "\"130%\"", "memory = {", "more than all of it"),
        ("\"1GiB\", dirty", "\"1B\", dirty", "memory = {", "are too many"),
        ("\"50ms\"", "\"5min\"", "turn_min", "longer than `turn_max`"),
        ("turn_min = \"50ms\"", "turn_max = \"0s\"", "turn_min", "`turn_max` is zero"),
        ("costs = { freeze = \"1ms\" }", "deadlines = { grip = \"0s\" }", "costs", "`grip` is zero"),
        (
            "copies = 2",
            "copies = 99999\ntenants = 2",
            "[[job]]\nname = \"train\"",
            "there are 199998 tenants",
        ),
        ("\"5%\"", "\"5\"", "late =", "has no unit"),
        ("\"steps\"", "\"step\"", "kind = \"steps\"", "unknown value \"step\""),
        ("per_second = 100", "per_second = 90000", "kind = \"requests\"", "more than a whole GPU"),
        ("\"60s\"", "\"0s\"", "limit", "nothing would be simulated"),
        ("[\"10s\"]", "[]", "unified_quanta", "has 0 of them"),
        ("name = \"serve\"", "name = \"train-1\"", "[[job]]\nname = \"serve\"", "two jobs have the name"),
        ("about = ", "abot = ", "", "has no `about`"),
        ("[gpu]", "[gpu", "[gpu]", ""),
    ] {
        let said = said(from, to);
        let line = if line.is_empty() { 1 } else { line_of(line) };
        assert!(said.starts_with(&format!("test.toml:{line}: ")), "{to}: {said}, expected line {line}");
        assert!(said.contains(reason), "{to}: {said}");
    }
}

#[test]
fn what_never_ends_needs_a_limit() {
    let text = GOOD.replace("limit = \"60s\"\n", "");
    let error = parse("test", "test.toml", &text, &[]).unwrap_err().to_string();
    assert!(error.contains("`serve` never ends"), "{error}");
}

#[test]
fn a_value_from_outside_goes_over_that_of_the_file() {
    let given = |key: &str, value: &str| [Given { key: key.into(), value: value.into() }];
    let read = |given: &[Given]| parse("test", "test.toml", GOOD, given);
    assert_eq!(read(&given("turn_min", "20ms")).unwrap().settings.turn_min, Span::from_millis(20));
    assert_eq!(read(&given("gpu.capacity", "32GiB")).unwrap().gpus[0].capacity, Bytes::from_gib(32));
    assert_eq!(read(&given("seed", "3")).unwrap().seed, 3);
    assert!(read(&given("job.copies", "3")).is_ok_and(|scenario| scenario.jobs.len() == 6));
    let error = read(&given("turn_mim", "20ms")).unwrap_err().to_string();
    assert_eq!(error, "test.toml with turn_mim=20ms: unknown key `turn_mim`\nhint: did you mean `turn_min`?");
    for key in KEYS {
        assert!(GOOD.contains(key), "{key} is not known at the top");
    }
    let error = read(&given("job.memory", "99GiB")).unwrap_err().to_string();
    assert!(error.starts_with("test.toml with job.memory=99GiB: a tenant of `train`"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = read(Path::new("/nowhere/x.toml"), &[]).unwrap_err().to_string();
    assert!(error.starts_with("cannot read /nowhere/x.toml: "), "{error}");
    assert!(error.contains("\nhint: see those that come with rota"), "{error}");
    let error = read(Path::new("/"), &[]).unwrap_err().to_string();
    assert!(error.contains("\nhint: name a TOML file in it"), "{error}");
}

#[test]
fn a_file_that_is_no_text_has_a_line_too() {
    let path = std::env::temp_dir().join(format!("rota-sim-no-text-{}.toml", std::process::id()));
    std::fs::write(&path, b"about = \"x\"\n# \xff\n").unwrap();
    let error = read(&path, &[]).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(error.contains(".toml:2: this is no text in UTF-8\nhint: "), "{error}");
}

#[test]
fn a_hint_that_is_followed_is_right() {
    let error = said("\"8GiB\"", "\"20GiB\"");
    let most = error.split('"').nth(1).expect("a quantity between quotes");
    scenario_of(&GOOD.replacen("8GiB", most, 1));
    assert_eq!(most, "15266MiB");
}

#[test]
fn keys_that_are_known_are_named_once() {
    let error = said("both = ", "xyzzy = ");
    assert!(
        error.ends_with("known keys are capacity, reserve, residue, out, in, both, physics, count"),
        "{error}"
    );
}

#[test]
fn a_seed_may_be_zero() {
    assert_eq!(scenario_of(&GOOD.replace("seed = 7", "seed = 0")).seed, 0);
    assert!(said("seed = 7", "seed = -1").contains("hint: write a number from 0 to 4294967295"));
}
