//! Two programs, both at the same slice; and unequal slices, which give unequal shares.

use sched::Span;

use super::Line;
use super::bench::{Controller, Seen, SetUp, run};
use super::programs::SATURATING;
use crate::scenario::Physics;

const EQUAL: &str = "slices";
const UNEQUAL: &str = "unequal slices";
const LENGTH: Span = Span::from_secs(20);

/// Slice in microseconds, kernels a second of both.
const EQUAL_MEASURED: [(u64, f64); 7] =
    [(20_000, 1800.0), (2_048, 1646.0), (1_000, 1517.0), (500, 1270.0), (200, 855.0), (100, 471.0), (1, 0.0)];

/// Slices in microseconds, kernels of each for one of the last.
const UNEQUAL_MEASURED: [(&[u64], &[f64]); 3] =
    [(&[6_000, 2_000], &[2.0]), (&[8_000, 500], &[4.9]), (&[4_000, 3_000, 2_000, 1_000], &[3.0, 3.0, 1.5])];

pub(super) fn lines(physics: &Physics) -> Vec<Line> {
    let mut lines = Vec::new();
    for (slice, measured) in EQUAL_MEASURED {
        let seen = shared(physics, &[slice, slice]);
        if measured > 0.0 {
            lines.push(Line::new(EQUAL, format!("{slice} us"), "kernels/s", measured, seen.sum()));
        } else {
            // A livelock has no rate to be near to: the model has to say that it is one.
            let livelock = f64::from(u8::from(seen.livelock));
            lines.push(Line::new(EQUAL, format!("{slice} us"), "livelock (1 = yes)", 1.0, livelock));
        }
    }
    for (slices, measured) in UNEQUAL_MEASURED {
        let seen = shared(physics, slices);
        let all = slices.iter().map(u64::to_string).collect::<Vec<_>>().join(":");
        let last = *seen.rates.last().expect("at least two programs share");
        for ((rate, &measured), slice) in seen.rates.iter().zip(measured).zip(slices) {
            let row = format!("{all} us, that of {slice} us");
            lines.push(Line::new(UNEQUAL, row, "kernels, to those of the last", measured, rate / last));
        }
    }
    lines
}

fn shared(physics: &Physics, slices: &[u64]) -> Seen {
    let looping = slices.iter().map(|&slice| (SATURATING, Span::from_micros(slice))).collect();
    run(physics, &SetUp { looping, requests: None, controller: Controller::None, length: LENGTH })
}
