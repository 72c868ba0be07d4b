//! What contexts are made of, as somebody who watches the program's `ioctl` sees it.

use std::fs::File;
use std::io::BufReader;

use channels::{Engine, Tracker};

use crate::bench::{Bench, library, newest};

/// The shim writes down every RM call that it sees.
fn watched(part: &str) -> (Bench, Vec<channels::Call>) {
    let bench = Bench::new("memory = \"256MiB\"\n");
    let trace = bench.path().join("trace");
    let preload = format!("{}:{}", newest("librota_shim.so").display(), library().display());
    let bench = bench
        .with("LD_PRELOAD", &preload)
        .with("ROTA_DRIVER", &library().display().to_string())
        .with("ROTA_IOCTL_TRACE", &trace.display().to_string());
    bench.play(part);
    let calls = channels::trace::read(BufReader::new(File::open(trace).unwrap())).unwrap();
    (bench, calls)
}

#[test]
fn the_tracker_knows_a_context_by_its_calls() {
    let (_bench, calls) = watched("copy");
    let mut tracker = Tracker::new();
    for call in &calls {
        tracker.observe(call);
    }
    let mut groups: Vec<_> = (tracker.groups())
        .map(|group| {
            assert!(group.scheduled && group.subdevice.is_some(), "{group:?}");
            (group.engine == Engine::Compute, group.channels.len())
        })
        .collect();
    groups.sort_unstable();
    // As on the real driver: eight compute channels in one group, four in each copy group.
    assert_eq!(groups, [(false, 4), (false, 4), (true, 8)]);
    assert_eq!(tracker.overlooked(), 0);
}
