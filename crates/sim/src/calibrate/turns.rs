//! Two programs that take turns by freeze and thaw, against slices.

use sched::Span;

use super::Line;
use super::bench::{Controller, SetUp, run};
use super::programs::{Looping, SATURATING, SLEEPY, SMALL};
use crate::scenario::Physics;

const TABLE: &str = "turns against slices";
const LENGTH: Span = Span::from_secs(20);

/// Kernels a second: alone, and of both together on stock slices, slices of 20 ms, turns of 50 and of 100 ms.
const MEASURED: [(&str, Looping, [f64; 5]); 3] = [
    ("saturating kernels", SATURATING, [1835.0, 1600.0, 1739.0, 1813.0, 1824.0]),
    ("small kernels, synchronising often", SMALL, [25_232.0, 14_505.0, 14_517.0, 24_716.0, 24_673.0]),
    ("asleep in between", SLEEPY, [1139.0, 1372.0, 1699.0, 1227.0, 1257.0]),
];

pub(super) fn lines(physics: &Physics) -> Vec<Line> {
    let stock = physics.slice_own;
    let turns = |millis| Controller::Turns(Span::from_millis(millis));
    let set_ups = [
        ("alone, kernels/s", 1, stock, Controller::None),
        ("stock slices, kernels/s", 2, stock, Controller::None),
        ("slices of 20 ms, kernels/s", 2, Span::from_millis(20), Controller::None),
        ("turns of 50 ms, kernels/s", 2, stock, turns(50)),
        ("turns of 100 ms, kernels/s", 2, stock, turns(100)),
    ];
    let mut lines = Vec::new();
    for (row, looping, measured) in MEASURED {
        for ((quantity, count, slice, controller), measured) in set_ups.into_iter().zip(measured) {
            let looping = vec![(looping, slice); count];
            let seen = run(physics, &SetUp { looping, requests: None, controller, length: LENGTH });
            lines.push(Line::new(TABLE, row, quantity, measured, seen.sum()));
        }
    }
    lines
}
