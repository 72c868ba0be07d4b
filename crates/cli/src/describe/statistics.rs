//! What a tenant went through, in lines for people.

use crate::quantity::{printable, short_span, so_often, span};
use std::time::Duration;
use wire::{RequestTimes, Statistics, Times};

/// Names and values. What says nothing has no line.
pub(super) fn lines(statistics: &Statistics) -> Vec<(&'static str, String)> {
    let Statistics { requests, granted, freezes, frozen_ns, switching_ns, moving_ns, phase } = statistics;
    let mut lines = Vec::new();
    if let Some(name) = phase {
        lines.push(("phase", format!("gives way: {}", printable(name))));
    }
    if let Some(requests) = requests {
        lines.push(("requests", served(requests)));
    }
    if let Some(times) = granted {
        lines.push((
            "had GPU",
            format!("after {}; {}, from hint or first work", quantiles(times), so_often(times.count)),
        ));
    }
    if *freezes > 0 {
        lines.push(("frozen", format!("{}, {} with work to do", so_often(*freezes), long(*frozen_ns))));
    }
    if switching_ns + moving_ns > 0 {
        let moved = if *moving_ns > 0 { format!(", {} moving", long(*moving_ns)) } else { String::new() };
        lines.push(("lost", format!("{} freezing and thawing{moved}", long(*switching_ns))));
    }
    lines
}

fn served(requests: &RequestTimes) -> String {
    let RequestTimes { by_program, times, slo_missed } = requests;
    let by = if *by_program { "by the program's word" } else { "as seen from outside" };
    let missed = match slo_missed {
        0 => String::new(),
        missed => format!("; {missed} missed the SLO"),
    };
    format!("{} {by}: {}{missed}", times.count, quantiles(times))
}

fn quantiles(times: &Times) -> String {
    let Times { p50_ns, p99_ns, p999_ns, max_ns, .. } = times;
    let [p50, p99, p999, max] =
        [p50_ns, p99_ns, p999_ns, max_ns].map(|&ns| short_span(Duration::from_nanos(ns)));
    format!("p50 {p50}, p99 {p99}, p99.9 {p999}, longest {max}")
}

fn long(ns: u64) -> String {
    span(Duration::from_nanos(ns))
}
