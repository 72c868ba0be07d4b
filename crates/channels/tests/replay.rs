//! Replays the traces in `tests/traces` and compares what the tracker made of them with `NAME.expected`.

use std::fmt::Write as _;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use rota_channels::{Call, Change, Tracker, channel_sets, trace};

#[test]
fn every_trace_gives_what_is_expected() {
    let mut failures = String::new();
    for path in traces() {
        let file = fs::File::open(&path).expect("the trace can be opened");
        let calls =
            trace::read(BufReader::new(file)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let found = summary(&calls);
        let expected = fs::read_to_string(path.with_extension("expected")).unwrap_or_default();
        if found != expected {
            let _ = write!(failures, "\n{}\nexpected:\n{expected}\nfound:\n{found}", path.display());
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// All traces; a test without any would prove nothing.
fn traces() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let entries = fs::read_dir(&folder).expect("tests/traces exists");
    let mut traces: Vec<PathBuf> = entries
        .map(|entry| entry.expect("tests/traces can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "trace"))
        .collect();
    traces.sort();
    assert!(!traces.is_empty(), "no trace in {}", folder.display());
    traces
}

fn summary(calls: &[Call]) -> String {
    let mut tracker = Tracker::new();
    let (mut born, mut scheduled, mut gone) = (0, 0, 0);
    let (mut peak_channels, mut peak) = (0, state("peak", &tracker));
    for call in calls {
        match tracker.observe(call) {
            Some(Change::Born { .. }) => born += 1,
            Some(Change::Scheduled(_)) => scheduled += 1,
            Some(Change::Gone { channels }) => gone += channels,
            Some(Change::Reachable { .. } | Change::Sliced { .. }) | None => {}
        }
        // The last of several equal peaks, because groups are scheduled only after their channels were born.
        if tracker.channels() >= peak_channels {
            peak_channels = tracker.channels();
            peak = state("peak", &tracker);
        }
    }
    let mut text = format!("channels born {born} gone {gone}\ngroups scheduled {scheduled}\n");
    let _ = writeln!(text, "objects overlooked {}", tracker.overlooked());
    text + &peak + &state("end", &tracker)
}

/// The tracker's groups at one moment.
fn state(when: &str, tracker: &Tracker) -> String {
    let mut text = String::new();
    let (sets, unreachable) = channel_sets(tracker.groups());
    let _ = writeln!(
        text,
        "{when}: channels {} groups {} sets {} unreachable {}",
        tracker.channels(),
        tracker.groups().count(),
        sets.len(),
        unreachable.len()
    );
    for group in tracker.groups() {
        let _ = writeln!(
            text,
            "{when}: engine {} ({}) channels {}{}{}",
            group.engine.engine_type(),
            group.engine,
            group.channels.len(),
            if group.scheduled { " scheduled" } else { "" },
            if group.lone { " lone" } else { "" },
        );
    }
    text
}
