//! Who ran, moved and waited, drawn in letters from the daemon's events.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What one program did between two instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    /// It was there and had no turn.
    Waiting,
    /// Its memory was on its way.
    Moving,
    /// It had its turn.
    Running,
}

impl Doing {
    fn letter(self) -> char {
        match self {
            Self::Waiting => '·',
            Self::Moving => '▒',
            Self::Running => '█',
        }
    }
}

/// What happened, by program.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Timeline {
    rows: Vec<Row>,
    pub(super) turns: usize,
    pub(super) moves: usize,
    pub(super) moved_bytes: u64,
}

#[derive(Debug, Default, PartialEq)]
struct Row {
    job: String,
    spans: Vec<(u64, u64, Doing)>,
}

impl Timeline {
    /// From the daemon's file of events, one JSON object a line. What is not understood is passed over.
    pub(super) fn of(events: &str) -> Self {
        let mut timeline = Self::default();
        let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
        let mut since: BTreeMap<(u64, Doing), u64> = BTreeMap::new();
        let mut last = 0;
        for event in events.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()) {
            let number = |key: &str| event.get(key).and_then(serde_json::Value::as_u64);
            let Some(at) = number("t_ns") else { continue };
            last = last.max(at);
            let tenant = number("tenant");
            let mut close = |rows: &mut BTreeMap<u64, Row>, tenant: u64, doing: Doing| {
                if let (Some(from), Some(row)) = (since.remove(&(tenant, doing)), rows.get_mut(&tenant)) {
                    row.spans.push((from, at, doing));
                }
            };
            match (event["event"].as_str().unwrap_or_default(), tenant) {
                ("joined", Some(tenant)) => {
                    let job = event["job"].as_str().unwrap_or_default().to_owned();
                    rows.insert(tenant, Row { job, spans: Vec::new() });
                    since.insert((tenant, Doing::Waiting), at);
                }
                ("turn_begin", Some(tenant)) => {
                    timeline.turns += 1;
                    since.insert((tenant, Doing::Running), at);
                }
                ("turn_end", Some(tenant)) => close(&mut rows, tenant, Doing::Running),
                ("moving_out" | "moving_in", Some(tenant)) => {
                    since.entry((tenant, Doing::Moving)).or_insert(at);
                }
                ("move_end", _) => {
                    timeline.moves += 1;
                    timeline.moved_bytes +=
                        number("bytes_out").unwrap_or_default() + number("bytes_in").unwrap_or_default();
                    for tenant in rows.keys().copied().collect::<Vec<_>>() {
                        close(&mut rows, tenant, Doing::Moving);
                    }
                }
                ("left", Some(tenant)) => {
                    for doing in [Doing::Running, Doing::Moving, Doing::Waiting] {
                        close(&mut rows, tenant, doing);
                    }
                }
                _ => {}
            }
        }
        for ((tenant, doing), from) in since {
            if let Some(row) = rows.get_mut(&tenant) {
                row.spans.push((from, last, doing));
            }
        }
        timeline.rows = rows.into_values().collect();
        timeline.rows.sort_by(|a, b| a.job.cmp(&b.job));
        timeline
    }

    /// In lines no wider than this.
    pub(super) fn draw(&self, width: usize) -> String {
        let spans = || self.rows.iter().flat_map(|row| &row.spans);
        let (Some(first), Some(last)) = (spans().map(|span| span.0).min(), spans().map(|span| span.1).max())
        else {
            return "Nothing happened.\n".into();
        };
        let name_width = self.rows.iter().map(|row| row.job.chars().count()).max().unwrap_or_default();
        let cells = width.saturating_sub(name_width + 2).clamp(10, 160);
        let cell_ns = ((last - first) / cells as u64).max(1);
        let mut text = String::new();
        for row in &self.rows {
            let _ = write!(text, "{:<name_width$}  ", row.job);
            let cell = |number: usize| {
                let from = first + number as u64 * cell_ns;
                let at = from + cell_ns / 2;
                // A move is short, and the reason for all this: it shows wherever it touches.
                let moves = |span: &&(u64, u64, Doing)| {
                    span.2 == Doing::Moving && span.0 < from + cell_ns && from < span.1
                };
                let here = |span: &&(u64, u64, Doing)| span.0 <= at && at < span.1;
                let moving = row.spans.iter().find(moves);
                let doing = moving.into_iter().chain(row.spans.iter().filter(here)).map(|span| span.2);
                doing.max_by_key(|doing| (*doing == Doing::Moving, *doing)).map_or(' ', Doing::letter)
            };
            let line: String = (0..cells).map(cell).collect();
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let seconds = (last - first) as f64 / 1e9;
        let _ = writeln!(text, "\n█ runs   ▒ moves   · waits   ({seconds:.1} s)");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = r#"
{"event":"joined","t_ns":0,"tenant":1,"job":"a"}
{"event":"turn_begin","t_ns":0,"tenant":1}
{"event":"joined","t_ns":100,"tenant":2,"job":"bb"}
not json
{"event":"turn_end","t_ns":400,"tenant":1}
{"event":"moving_out","t_ns":400,"tenant":1}
{"event":"moving_in","t_ns":410,"tenant":2}
{"event":"move_end","t_ns":500,"bytes_out":1,"bytes_in":2}
{"event":"turn_begin","t_ns":500,"tenant":2}
{"event":"left","t_ns":800,"tenant":1}
{"event":"left","t_ns":1000,"tenant":2}
"#;

    #[test]
    fn everybody_has_a_line_of_what_it_did() {
        let timeline = Timeline::of(EVENTS);
        assert_eq!((timeline.turns, timeline.moves, timeline.moved_bytes), (2, 1, 3));
        let drawn = timeline.draw(14);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines[0], "a   ████▒···");
        assert_eq!(lines[1], "bb   ···▒█████");
    }

    #[test]
    fn without_events_there_is_nothing_to_draw() {
        assert_eq!(Timeline::of("").draw(80), "Nothing happened.\n");
    }
}
