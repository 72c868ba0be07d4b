//! A picture of who ran, waited and moved: one lane per tenant, as SVG.
//!
//! A tenant with few stretches has them drawn one by one. The time of one with many is cut into columns, and a column in
//! which it did several things is filled from below by their shares: turns too short to be seen still show how much of
//! the time they were.
//! Every meaning has a pattern as well as a colour. The number of columns follows the number of lanes, so that a
//! picture stays below [`BYTES_MAX`].

mod lane;
mod style;

use crate::record::{Fate, Record};
use lane::Lane;
use sched::Span;
use std::fmt::Write as _;

/// No picture is larger.
pub const BYTES_MAX: usize = 300_000;
/// Lanes in a picture; the rest is counted in words.
const LANES_MAX: usize = 96;
/// Columns of all lanes together.
const COLUMNS_MAX: usize = 4_000;
/// Letters of a lane's name.
const NAME_CHARS_MAX: usize = 18;

const WIDTH: usize = 1180;
const LEFT: usize = 168;
const RIGHT: usize = 28;
const LANE_HEIGHT: usize = 22;
const LANE_STEP: usize = 30;
const HEAD: usize = 92;
const PANEL_HEAD: usize = 34;
const PANEL_FOOT: usize = 40;
const FOOT: usize = 12;

/// One run in the picture.
pub struct Panel<'r> {
    /// What decided, and how it went.
    pub title: String,
    /// What came of it.
    pub record: &'r Record,
}

/// The picture of some runs of one scenario, below each other, on the same scale.
///
/// Runs longer than `until` are cut there.
pub fn svg(title: &str, about: &str, panels: &[Panel<'_>], until: Span) -> String {
    let lanes_of = |panel: &Panel<'_>| panel.record.tenants.len();
    let lanes_max = (LANES_MAX / panels.len().max(1)).max(1);
    let lanes: usize = panels.iter().map(|panel| lanes_of(panel).min(lanes_max)).sum();
    let columns = (COLUMNS_MAX / lanes.max(1)).min(WIDTH - LEFT - RIGHT);
    let heights = panels.iter().map(|panel| panel_height(lanes_of(panel), lanes_max));
    let height = HEAD + heights.sum::<usize>() + FOOT;

    let mut out = String::new();
    let _ = writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-label="{}">"#,
        escaped(title)
    );
    let _ = writeln!(out, "<title>{}</title>", escaped(title));
    out += style::DEFINITIONS;
    let _ = writeln!(out, r#"<rect class="paper" width="{WIDTH}" height="{height}"/>"#);
    let _ = writeln!(out, r#"<text class="title" x="20" y="32">{}</text>"#, escaped(title));
    let _ = writeln!(out, r#"<text class="about" x="20" y="53">{}</text>"#, escaped(about));
    style::legend(&mut out, 20, 66);

    let mut top = HEAD;
    for panel in panels {
        draw_panel(&mut out, panel, top, until, columns, lanes_max);
        top += panel_height(lanes_of(panel), lanes_max);
    }
    out += "</svg>\n";
    out
}

fn panel_height(lanes: usize, lanes_max: usize) -> usize {
    let more = if lanes > lanes_max { LANE_STEP } else { 0 };
    PANEL_HEAD + lanes.min(lanes_max) * LANE_STEP + more + PANEL_FOOT
}

fn draw_panel(
    out: &mut String,
    panel: &Panel<'_>,
    top: usize,
    until: Span,
    columns: usize,
    lanes_max: usize,
) {
    let Panel { title, record } = panel;
    let shown = record.tenants.len().min(lanes_max);
    let lanes_top = top + PANEL_HEAD;
    let mut bottom = lanes_top + shown * LANE_STEP;
    let _ = writeln!(out, r#"<text class="panel" x="20" y="{}">{}</text>"#, top + 22, escaped(title));
    axis(out, lanes_top, bottom, until);
    let several = record.stretches.iter().any(|stretch| stretch.gpu > 0);
    for (index, fate) in record.tenants[..shown].iter().enumerate() {
        let y = lanes_top + index * LANE_STEP + (LANE_STEP - LANE_HEIGHT) / 2;
        draw_lane(out, record, fate, several, y, until, columns);
    }
    if record.tenants.len() > shown {
        bottom += LANE_STEP;
        let _ = writeln!(
            out,
            r#"<text class="name" x="{}" y="{}">and {} more</text>"#,
            LEFT - 10,
            bottom - 10,
            record.tenants.len() - shown
        );
    }
    if record.makespan > until {
        let _ = writeln!(
            out,
            r#"<text class="goes-on" x="{}" y="{}">goes on until {}</text>"#,
            WIDTH - RIGHT,
            top + 22,
            record.makespan
        );
    }
}

fn draw_lane(
    out: &mut String,
    record: &Record,
    fate: &Fate,
    several: bool,
    y: usize,
    until: Span,
    columns: usize,
) {
    let lane = Lane::of(record, fate.tenant, until, columns);
    let name = match lane.gpu() {
        Some(gpu) if several => format!("{} @{gpu}", shortened(&fate.name, NAME_CHARS_MAX - 4)),
        _ => shortened(&fate.name, NAME_CHARS_MAX),
    };
    let _ = writeln!(
        out,
        r#"<g><title>{}</title><text class="name" x="{}" y="{}">{}</text><rect class="lane" x="{LEFT}" y="{y}" width="{}" height="{LANE_HEIGHT}"/>"#,
        escaped(&format!("{}: {}", fate.name, lane.told())),
        LEFT - 10,
        y + 16,
        escaped(&name),
        WIDTH - LEFT - RIGHT
    );
    let width = (WIDTH - LEFT - RIGHT) as f64 / columns as f64;
    for (what, boxes) in lane.boxes() {
        let mut path = String::new();
        for part in boxes {
            let x = LEFT as f64 + part.from * width;
            let across = (part.to - part.from) * width;
            let down = f64::from(part.high - part.low) / f64::from(lane::LEVELS) * LANE_HEIGHT as f64;
            let up = f64::from(lane::LEVELS - part.high) / f64::from(lane::LEVELS) * LANE_HEIGHT as f64;
            let _ = write!(
                path,
                "M{} {}h{}v{}h-{}z",
                short(x),
                short(y as f64 + up),
                short(across),
                short(down),
                short(across)
            );
        }
        let _ = writeln!(out, r#"<path class="{}" d="{path}"/>"#, style::class(*what));
    }
    if let Some(ended) = fate.ended.filter(|ended| ended.0 <= until.0) {
        let x = LEFT as f64 + ended.0 as f64 / until.0.max(1) as f64 * (WIDTH - LEFT - RIGHT) as f64;
        let _ = writeln!(out, r#"<path class="end" d="M{} {}v{}"/>"#, short(x), y - 3, LANE_HEIGHT + 6);
    }
    out.push_str("</g>\n");
}

/// Vertical lines at round times, with their values below.
fn axis(out: &mut String, top: usize, bottom: usize, until: Span) {
    let (step, unit, name) = ticks(until);
    let mut at = 0;
    while at <= until.0 {
        let x = LEFT as f64 + at as f64 / until.0.max(1) as f64 * (WIDTH - LEFT - RIGHT) as f64;
        let _ = writeln!(
            out,
            r#"<path class="tick" d="M{x} {top}V{bottom}"/><text class="time" x="{x}" y="{}">{} {name}</text>"#,
            bottom + 17,
            at / unit,
            x = short(x)
        );
        at += step;
    }
}

/// About ten steps of a round length, and their unit with its name.
fn ticks(until: Span) -> (u64, u64, &'static str) {
    let (unit, name) = match until.0 {
        0..10_000 => (1, "ns"),
        10_000..10_000_000 => (1_000, "us"),
        10_000_000..10_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let least = (until.0 / 12).max(1);
    let mut decade = unit;
    loop {
        for factor in [1, 2, 5] {
            if decade * factor >= least {
                return (decade * factor, unit, name);
            }
        }
        decade *= 10;
    }
}

/// A number with one digit after the point, or none.
fn short(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

fn shortened(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.into();
    }
    name.chars().take(most - 1).chain(['…']).collect()
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
