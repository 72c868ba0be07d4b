//! How the programs of an act stand, drawn as bars, or told in lines of what changed. Data in, text out.

use std::fmt::Write as _;
use std::time::Duration;
use wire::TenantState;

/// The most letters of a bar.
const BAR_MAX: usize = 60;
/// The fewest: columns go before a bar gets shorter.
const BAR_MIN: usize = 8;
const GAP: &str = "  ";
/// Beside names and bars, with their widths. In narrow terminals the last ones go first.
const COLUMNS: [(&str, usize); 5] = [("DONE", 4), ("STATE", 8), ("ON GPU", 7), ("AWAY", 7), ("TURNS", 5)];

/// What a program is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It was not started yet.
    Later,
    /// It is there, and has nothing on the GPU yet.
    Starting,
    Running,
    /// Its memory is on its way out or in.
    Moving,
    /// It has no turn, and its memory is on the GPU.
    Waiting,
    /// It has no turn, and its memory is in the host's, all or some.
    Away,
    Done,
}

impl Doing {
    /// What the daemon calls it.
    pub(super) fn of(state: TenantState) -> Self {
        match state {
            TenantState::Running => Self::Running,
            TenantState::Moving => Self::Moving,
            TenantState::Away => Self::Away,
            TenantState::Joined | TenantState::Queued => Self::Starting,
            TenantState::Frozen | TenantState::Paused => Self::Waiting,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Later => "later",
            Self::Starting => "starting",
            Self::Running => "runs",
            Self::Moving => "moves",
            Self::Waiting => "waits",
            Self::Away => "away",
            Self::Done => "done",
        }
    }

    /// A colour beside the word, never instead of it.
    fn colour(self) -> &'static str {
        match self {
            Self::Running => "\x1b[32m",
            Self::Moving => "\x1b[33m",
            Self::Away => "\x1b[34m",
            Self::Later | Self::Starting | Self::Waiting => "\x1b[2m",
            Self::Done => "",
        }
    }
}

/// How one program stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) name: String,
    pub(super) doing: Doing,
    pub(super) steps: u64,
    pub(super) steps_all: u64,
    pub(super) wrong: u64,
    /// What of its memory is on the GPU, and what in the host's; nothing where nobody knows.
    pub(super) memory: Option<(u64, u64)>,
    /// How many turns it had; natively there are none.
    pub(super) turns: Option<u64>,
}

impl Standing {
    fn percent(&self) -> u64 {
        (self.steps * 100).checked_div(self.steps_all).unwrap_or(0).min(100)
    }

    fn cell(&self, column: usize) -> String {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        match column {
            0 => format!("{}%", self.percent()),
            1 => self.doing.word().into(),
            2 => or_dash(self.memory.map(|(resident, _)| mib(resident))),
            3 => or_dash(self.memory.map(|(_, away)| mib(away))),
            _ => or_dash(self.turns.map(|turns| turns.to_string())),
        }
    }
}

/// A line for each program, no wider than this, under a line of names.
pub(super) fn draw(standings: &[Standing], width: usize) -> Vec<String> {
    let name_width = standings.iter().map(|standing| standing.name.chars().count()).max().unwrap_or(0);
    let before = name_width + GAP.len();
    let mut columns = COLUMNS.len();
    let beside =
        |columns: usize| -> usize { COLUMNS[..columns].iter().map(|(_, width)| GAP.len() + width).sum() };
    while columns > 0 && before + BAR_MIN + beside(columns) > width {
        columns -= 1;
    }
    let bar_width = width.saturating_sub(before + beside(columns)).clamp(1, BAR_MAX);
    let mut head = " ".repeat(before + bar_width);
    for (number, (name, width)) in COLUMNS[..columns].iter().enumerate() {
        push_cell(&mut head, number, name, *width);
    }
    let mut lines = vec![head.trim_end().to_owned()];
    for standing in standings {
        let full = (standing.percent() as usize * bar_width) / 100;
        let mut line = format!("{:<name_width$}{GAP}", standing.name);
        let (colour, end) = match standing.doing.colour() {
            "" => ("", ""),
            colour => (colour, "\x1b[0m"),
        };
        let _ = write!(line, "{colour}{}{}{end}", "█".repeat(full), "░".repeat(bar_width - full));
        for (number, (_, width)) in COLUMNS[..columns].iter().enumerate() {
            let cell = standing.cell(number);
            if number == STATE {
                line += colour;
                push_cell(&mut line, number, &cell, *width);
                line += end;
            } else {
                push_cell(&mut line, number, &cell, *width);
            }
        }
        lines.push(line);
    }
    lines
}

/// Memory moves in blocks of 2 MiB, so there are no fractions.
fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Which column is of words, not of numbers.
const STATE: usize = 1;

fn push_cell(line: &mut String, number: usize, cell: &str, width: usize) {
    let _ = match number {
        STATE => write!(line, "{GAP}{cell:<width$}"),
        _ => write!(line, "{GAP}{cell:>width$}"),
    };
}

/// What is worth a line of what is so now and was not before: a turn, memory that is away, an end.
pub(super) fn changes(before: &[Standing], now: &[Standing], at: Duration) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, standing) in now.iter().enumerate() {
        let was = before.get(number);
        let same = was.is_some_and(|was| (was.doing, was.turns) == (standing.doing, standing.turns));
        let (resident, away) = standing.memory.unwrap_or_default();
        let what = match standing.doing {
            _ if same => continue,
            // It is about to have its first.
            Doing::Running if standing.turns == Some(0) => continue,
            Doing::Running => match standing.turns {
                Some(turns) => format!("runs   turn {turns}, {} on the GPU", mib(resident)),
                None => format!("runs   {} on the GPU", mib(resident)),
            },
            Doing::Away => format!("away   {} on the GPU, {} in host memory", mib(resident), mib(away)),
            Doing::Done => format!("done   {} steps, {} wrong", standing.steps, standing.wrong),
            _ => continue,
        };
        let (name, percent) = (&standing.name, standing.percent());
        lines.push(format!("{:>6.1} s  {name}  {percent:>3}%  {what}", at.as_secs_f64()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(name: &str, doing: Doing, steps: u64) -> Standing {
        let memory = Some((16 << 20, 104 << 20));
        Standing { name: name.into(), doing, steps, steps_all: 10, wrong: 0, memory, turns: Some(3) }
    }

    /// Without colours, as they take no room.
    fn plain(line: &str) -> String {
        let mut parts = line.split('\x1b');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + part.split_once('m').expect("only colours").1)
    }

    #[test]
    fn a_bar_is_as_long_as_what_is_done() {
        let lines = draw(&[standing("ada", Doing::Away, 5), standing("bo", Doing::Running, 10)], 62);
        assert_eq!(lines[0], format!("{:21}  DONE  STATE      ON GPU     AWAY  TURNS", ""));
        assert_eq!(plain(&lines[1]), "ada  ████████░░░░░░░░   50%  away       16 MiB  104 MiB      3");
        assert!(plain(&lines[2]).starts_with("bo   ████████████████  100%  runs "), "{}", lines[2]);
        assert!(lines[2].contains("\x1b[32m█"), "who runs is green");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [20, 40, 60, 120, 500] {
            for line in draw(&[standing("ada", Doing::Moving, 3)], width) {
                assert!(plain(&line).chars().count() <= width, "{width}: {line}");
            }
        }
        let narrow = draw(&[standing("ada", Doing::Moving, 3)], 50);
        assert!(!narrow[0].contains("TURNS") && narrow[0].contains("AWAY"), "{}", narrow[0]);
    }

    #[test]
    fn only_changes_are_told() {
        let before = [standing("ada", Doing::Running, 1), standing("bo", Doing::Away, 1)];
        let now = [standing("ada", Doing::Away, 2), standing("bo", Doing::Away, 1)];
        let told = changes(&before, &now, Duration::from_millis(1250));
        assert_eq!(told, ["   1.2 s  ada   20%  away   16 MiB on the GPU, 104 MiB in host memory"]);
        assert!(changes(&now, &now, Duration::ZERO).is_empty());
        let mut next = now.clone();
        next[1].doing = Doing::Done;
        assert_eq!(changes(&now, &next, Duration::ZERO), ["   0.0 s  bo   10%  done   1 steps, 0 wrong"]);
        assert_eq!(changes(&[], &before, Duration::ZERO).len(), 2);
    }
}
