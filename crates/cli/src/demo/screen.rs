//! Where the demo is watched: a terminal whose lines are drawn over, plain lines, or nobody.

use super::bars::{self, Standing};
use crate::print;
use std::io::IsTerminal as _;
use std::time::Duration;

/// How wide lines are where nobody says.
const WIDTH_USUAL: usize = 100;

/// What is drawn over again and again.
pub(super) struct Picture<'a> {
    pub(super) title: &'a str,
    /// Since it began.
    pub(super) at: Duration,
    pub(super) standings: &'a [Standing],
}

/// Who watches.
pub(super) struct Screen(Kind);

enum Kind {
    /// A terminal: how many lines the last picture had, in lines of which width.
    Live {
        lines: usize,
        width: usize,
    },
    /// A file, a pipe, or a terminal that wants no colours: a line for each change.
    Lines {
        last: Vec<Standing>,
    },
    Nobody,
}

impl Screen {
    /// stdout, as it is.
    pub(super) fn stdout() -> Self {
        let set = |variable: &str| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
        let is_live = std::io::stdout().is_terminal() && !set("NO_COLOR") && !dumb;
        Self(match is_live {
            true => Kind::Live { lines: 0, width: 0 },
            false => Kind::Lines { last: Vec::new() },
        })
    }

    /// None at all.
    pub(super) fn nobody() -> Self {
        Self(Kind::Nobody)
    }

    /// How many letters fit on a line.
    pub(super) fn width() -> usize {
        size().map_or(WIDTH_USUAL, |(width, _)| width)
    }

    /// Text that stays.
    pub(super) fn say(&self, text: &str) -> anyhow::Result<()> {
        match self.0 {
            Kind::Nobody => Ok(()),
            _ => print(text),
        }
    }

    /// How it stands now, in the place of how it stood.
    pub(super) fn show(&mut self, picture: &Picture<'_>) -> anyhow::Result<()> {
        match &mut self.0 {
            Kind::Live { lines, width } => {
                let (now, height) = size().unwrap_or((WIDTH_USUAL, usize::MAX));
                let drawn = live(picture, now);
                // What was drawn in another width may have broken into more lines, and what is above the first line of the
                // terminal cannot be reached: then below.
                let over = *lines > 0 && *width == now && *lines < height;
                let up = if over { format!("\x1b[{lines}A") } else { String::new() };
                (*lines, *width) = (drawn.len(), now);
                print(&drawn.iter().fold(up, |text, line| text + line + "\x1b[K\n"))
            }
            Kind::Lines { last } => {
                let mut text = String::new();
                if last.is_empty() {
                    text += &format!("{}\n", picture.title);
                }
                for line in bars::changes(last, picture.standings, picture.at) {
                    text += &line;
                    text.push('\n');
                }
                picture.standings.clone_into(last);
                print(&text)
            }
            Kind::Nobody => Ok(()),
        }
    }

    /// The last picture stays, and the next one comes below.
    pub(super) fn keep(&mut self) -> anyhow::Result<()> {
        match &mut self.0 {
            Kind::Live { lines, .. } => *lines = 0,
            Kind::Lines { last } => last.clear(),
            Kind::Nobody => {}
        }
        self.say("\n")
    }
}

fn live(picture: &Picture<'_>, width: usize) -> Vec<String> {
    let title = format!("{}  {:.1} s", picture.title, picture.at.as_secs_f64());
    let mut lines = vec![title.chars().take(width).collect()];
    lines.extend(bars::draw(picture.standings, width));
    lines
}

/// How wide and how high the terminal is.
fn size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    // Zero: a terminal that does not know.
    let known = |letters: u16| Some(usize::from(letters)).filter(|letters| *letters > 0);
    Some((known(size.ws_col)?, known(size.ws_row)?))
}
