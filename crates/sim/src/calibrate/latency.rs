//! A latency-critical program beside best-effort ones: slices, freezing ahead, and requests of many kernels.

use sched::Span;

use super::Line;
use super::bench::{Controller, SetUp, run};
use super::programs::{KERNEL, Pace, Requests, SATURATING};
use crate::scenario::Physics;

const LENGTH: Span = Span::from_secs(40);
/// What the latency-critical program's slice was set to.
const CRITICAL: Span = Span::from_secs(5);
const SHORTEST: Span = Span::from_micros(1);

pub(super) fn lines(physics: &Physics) -> Vec<Line> {
    let mut lines = beside(physics);
    lines.extend(ahead(physics));
    lines.extend(many(physics));
    lines
}

/// A request every 5 ms.
fn beside(physics: &Physics) -> Vec<Line> {
    const TABLE: &str = "latency beside best-effort work";
    let stock = physics.slice_own;
    let short = Span::from_micros(200);
    let rows = [
        ("alone", 0, stock, stock, 87.0, 133.0),
        ("stock driver, one BE", 1, stock, stock, 1766.0, 2344.0),
        ("stock driver, four BE", 4, stock, stock, 4284.0, 7972.0),
        ("BE slice 200 us, one BE", 1, short, CRITICAL, 287.0, 480.0),
        ("BE slice 1 us, one BE", 1, SHORTEST, CRITICAL, 264.0, 293.0),
        ("BE slice 200 us, four BE", 4, short, CRITICAL, 1209.0, 2291.0),
    ];
    let mut lines = Vec::new();
    for (row, count, slice, critical, p50, p99) in rows {
        let pace = Pace::Sleeping(Span::from_millis(5));
        let requests = Requests { pace, service: KERNEL, launching: Span::ZERO };
        let seen = run(
            physics,
            &SetUp {
                looping: vec![(SATURATING, slice); count],
                requests: Some((requests, critical)),
                controller: Controller::None,
                length: LENGTH,
            },
        );
        lines.push(Line::new(TABLE, row, "p50 us", p50, seen.latency(0.5)));
        lines.push(Line::new(TABLE, row, "p99 us", p99, seen.latency(0.99)));
        if slice == SHORTEST {
            let solo = alone(physics);
            lines.push(Line::new(TABLE, row, "BE, of solo %", 92.0, 100.0 * seen.sum() / solo));
        }
    }
    lines
}

fn alone(physics: &Physics) -> f64 {
    let looping = vec![(SATURATING, SHORTEST)];
    run(physics, &SetUp { looping, requests: None, controller: Controller::None, length: LENGTH }).sum()
}

/// 100 requests a second, the best-effort program frozen ahead of each.
fn ahead(physics: &Physics) -> Vec<Line> {
    const TABLE: &str = "freezing ahead";
    let rows = [
        ("no freeze", None, [258.0, 284.0, 1770.0]),
        ("0.5 ms, no warm-up", Some((500, false)), [152.0, 172.0, 1722.0]),
        ("0.9 ms, no warm-up", Some((900, false)), [155.0, 176.0, 1644.0]),
        ("0.7 ms, warm-up", Some((700, true)), [69.0, 135.0, 1701.0]),
        ("0.9 ms, warm-up", Some((900, true)), [66.0, 73.0, 1671.0]),
        ("2.0 ms, warm-up", Some((2_000, true)), [69.0, 84.0, 1488.0]),
    ];
    let requests =
        Requests { pace: Pace::Every(Span::from_millis(10)), service: KERNEL, launching: Span::ZERO };
    let with = |count, controller| {
        let looping = vec![(SATURATING, SHORTEST); count];
        run(physics, &SetUp { looping, requests: Some((requests, CRITICAL)), controller, length: LENGTH })
    };
    let mut lines = Vec::new();
    for (row, freeze, [p50, p99, rate]) in rows {
        let controller = freeze
            .map_or(Controller::None, |(lead, warm_up)| Controller::Ahead(Span::from_micros(lead), warm_up));
        let seen = with(1, controller);
        lines.push(Line::new(TABLE, row, "p50 us", p50, seen.latency(0.5)));
        lines.push(Line::new(TABLE, row, "p99 us", p99, seen.latency(0.99)));
        lines.push(Line::new(TABLE, row, "BE, kernels/s", rate, seen.sum()));
    }
    let seen = with(0, Controller::None);
    lines.push(Line::new(TABLE, "alone", "p50 us", 91.0, seen.latency(0.5)));
    lines.push(Line::new(TABLE, "alone", "p99 us", 125.0, seen.latency(0.99)));
    lines
}

/// 50 requests a second of many kernels each.
fn many(physics: &Physics) -> Vec<Line> {
    const TABLE: &str = "requests of many kernels";
    type Figures = Option<(f64, f64)>;
    // GPU time and the host's time to launch are those of the hinted p50: everything is warm then.
    let rows: [(&str, u64, u64, [Figures; 5]); 4] = [
        (
            "50 back to back",
            236,
            0,
            [
                Some((269.0, 488.0)),
                Some((419.0, 448.0)),
                Some((622.0, 655.0)),
                Some((236.0, 286.0)),
                Some((1437.0, 2470.0)),
            ],
        ),
        (
            "50, 30 us apart",
            236,
            1_768,
            [
                Some((1792.0, 1900.0)),
                Some((1936.0, 2097.0)),
                Some((1767.0, 1802.0)),
                Some((1768.0, 1791.0)),
                None,
            ],
        ),
        (
            "200 back to back",
            842,
            0,
            [
                Some((936.0, 1323.0)),
                Some((1039.0, 1421.0)),
                Some((1248.0, 1267.0)),
                Some((842.0, 1086.0)),
                None,
            ],
        ),
        (
            "200, 30 us apart",
            842,
            6_904,
            [
                Some((6956.0, 7162.0)),
                Some((7104.0, 7439.0)),
                Some((6945.0, 7433.0)),
                Some((6904.0, 7181.0)),
                None,
            ],
        ),
    ];
    let stock = physics.slice_own;
    let ahead = Controller::Ahead(Span::from_micros(900), true);
    let set_ups = [
        ("alone", 0, SHORTEST, CRITICAL, Controller::None),
        ("no hint", 1, SHORTEST, CRITICAL, Controller::None),
        ("reactive", 1, SHORTEST, CRITICAL, Controller::Reactive),
        ("hinted", 1, SHORTEST, CRITICAL, ahead),
        ("stock driver", 1, stock, stock, Controller::None),
    ];
    let mut lines = Vec::new();
    for (request, service, launching, figures) in rows {
        let requests = Requests {
            pace: Pace::Every(Span::from_millis(20)),
            service: Span::from_micros(service),
            launching: Span::from_micros(launching),
        };
        for ((set_up, count, slice, critical, controller), figures) in set_ups.into_iter().zip(figures) {
            let Some((p50, p99)) = figures else { continue };
            let looping = vec![(SATURATING, slice); count];
            let requests = Some((requests, critical));
            let seen = run(physics, &SetUp { looping, requests, controller, length: LENGTH });
            let row = format!("{request}, {set_up}");
            lines.push(Line::new(TABLE, row.clone(), "p50 us", p50, seen.latency(0.5)));
            lines.push(Line::new(TABLE, row, "p99 us", p99, seen.latency(0.99)));
        }
    }
    lines
}
