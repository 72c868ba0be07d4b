//! Who ran, moved and waited, from the daemon's events: drawn in letters, and how long somebody waited between two turns.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// What the letters mean.
pub(super) const LEGEND: &str = "█ runs   ▒ moves   · waits";

/// The fewest and the most letters of a program's line.
const CELLS_MIN: usize = 10;
const CELLS_MAX: usize = 160;

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

impl Row {
    /// Its turns: from when to when.
    fn turns(&self) -> impl Iterator<Item = (u64, u64)> {
        self.spans.iter().filter(|span| span.2 == Doing::Running).map(|span| (span.0, span.1))
    }
}

impl Timeline {
    /// Of programs that ran from one time to another, without turns.
    pub(super) fn of_runs(runs: impl IntoIterator<Item = (String, Duration, Duration)>) -> Self {
        let row = |(job, from, to): (String, Duration, Duration)| {
            let [from, to] = [from, to].map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            Row { job, spans: vec![(from, to, Doing::Running)] }
        };
        Self { rows: runs.into_iter().map(row).collect(), ..Self::default() }
    }

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
        timeline.rows.iter_mut().for_each(|row| row.spans.sort_unstable());
        timeline.rows.sort_by(|a, b| a.job.cmp(&b.job));
        timeline
    }

    /// How many turns a program had.
    pub(super) fn turns_of(&self, job: &str) -> usize {
        self.rows.iter().filter(|row| row.job == job).map(|row| row.turns().count()).sum()
    }

    /// The longest time that a program waited between two turns of its own.
    pub(super) fn gap_max(&self) -> Duration {
        let gaps = |row: &Row| {
            let (ends, begins) = (row.turns().map(|turn| turn.1), row.turns().map(|turn| turn.0).skip(1));
            ends.zip(begins).map(|(end, begin)| begin.saturating_sub(end)).max()
        };
        Duration::from_nanos(self.rows.iter().filter_map(gaps).max().unwrap_or_default())
    }

    /// How long all turns were, together.
    pub(super) fn ran(&self) -> Duration {
        let turns = self.rows.iter().flat_map(Row::turns);
        Duration::from_nanos(turns.map(|(begin, end)| end.saturating_sub(begin)).sum())
    }

    /// How long all of it took.
    pub(super) fn length(&self) -> Duration {
        let (first, last) = self.bounds().unwrap_or_default();
        Duration::from_nanos(last - first)
    }

    fn bounds(&self) -> Option<(u64, u64)> {
        let spans = || self.rows.iter().flat_map(|row| &row.spans);
        Some((spans().map(|span| span.0).min()?, spans().map(|span| span.1).max()?))
    }

    /// In lines no wider than `width`, which would be full after a time of `whole`.
    pub(super) fn draw(&self, width: usize, whole: Duration) -> String {
        let Some((first, _)) = self.bounds() else { return "Nothing happened.\n".into() };
        let name_width = self.rows.iter().map(|row| row.job.chars().count()).max().unwrap_or_default();
        let cells = width.saturating_sub(name_width + 2).clamp(CELLS_MIN, CELLS_MAX);
        let cell_ns = u64::try_from(whole.as_nanos() / cells as u128).unwrap_or(u64::MAX).max(1);
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
        let drawn = timeline.draw(14, timeline.length());
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines[0], "a   ████▒···");
        assert_eq!(lines[1], "bb   ···▒█████");
    }

    #[test]
    fn without_events_there_is_nothing_to_draw() {
        assert_eq!(Timeline::of("").draw(80, Duration::ZERO), "Nothing happened.\n");
        assert_eq!((Timeline::of("").gap_max(), Timeline::of("").length()), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn a_gap_is_between_two_turns_of_the_same_program() {
        let turn = |tenant: u64, from: u64, to: u64| {
            format!(
                "{{\"event\":\"turn_begin\",\"t_ns\":{from},\"tenant\":{tenant}}}\n\
                 {{\"event\":\"turn_end\",\"t_ns\":{to},\"tenant\":{tenant}}}\n"
            )
        };
        let joined = |tenant: u64, job: &str| {
            format!("{{\"event\":\"joined\",\"t_ns\":0,\"tenant\":{tenant},\"job\":\"{job}\"}}\n")
        };
        let turns = [turn(1, 0, 10), turn(2, 10, 20), turn(1, 25, 30), turn(2, 90, 95), turn(1, 95, 99)];
        let timeline = Timeline::of(&(joined(1, "a") + &joined(2, "b") + &turns.concat()));
        assert_eq!(timeline.gap_max(), Duration::from_nanos(70), "of b, from 20 to 90");
        assert_eq!(timeline.ran(), Duration::from_nanos(34));
        assert_eq!(["a", "b", "c"].map(|job| timeline.turns_of(job)), [3, 2, 0]);
    }

    #[test]
    fn one_after_the_other_is_drawn_to_the_same_scale() {
        let seconds = Duration::from_secs;
        let runs = [("a", 0, 2), ("b", 2, 4)].map(|(job, from, to)| (job.into(), seconds(from), seconds(to)));
        let timeline = Timeline::of_runs(runs);
        assert_eq!(timeline.length(), seconds(4));
        assert_eq!(timeline.draw(13, seconds(5)), "a  ████\nb      ████\n");
        assert_eq!(timeline.gap_max(), Duration::ZERO);
    }
}
