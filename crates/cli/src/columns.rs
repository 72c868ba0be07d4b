//! Text in columns, and how wide the terminal is that shows them.

use std::fmt::Write as _;

/// Between two columns.
pub(crate) const GAP: &str = "  ";

/// Text is not broken into lines shorter than this.
const NARROWEST: usize = 20;

/// The side that a column's text stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// How many letters fit on a line of stdout, where that is a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    // Zero: a terminal that does not know.
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// As [`columns`], but where the lines would be wider than `width`, the columns that do not fit come below in a table of
/// their own, each with the first column in front.
pub(crate) fn fitting<R: AsRef<[String]>>(sides: &[Side], rows: &[R], width: Option<usize>) -> String {
    let Some(width) = width else { return columns(sides, rows) };
    let wide = |column: usize| widest(rows, column);
    let first = usize::from(!sides.is_empty());
    let mut blocks: Vec<Vec<usize>> = vec![(0..first).collect()];
    let mut used = wide(0);
    for column in first..sides.len() {
        let needs = GAP.len() + wide(column);
        let last = blocks.last_mut().expect("there is one from the start");
        if used + needs <= width || last.len() <= 1 {
            last.push(column);
            used += needs;
        } else {
            blocks.push(vec![0, column]);
            used = wide(0) + needs;
        }
    }
    let block = |block: &Vec<usize>| {
        let cells = |row: &R| block.iter().filter_map(|&column| row.as_ref().get(column).cloned()).collect();
        let sides: Vec<Side> = block.iter().map(|&column| sides[column]).collect();
        columns(&sides, &rows.iter().map(cells).collect::<Vec<Vec<String>>>())
    };
    blocks.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// Lines of cells, as wide as the widest of each column, with no spaces at the end.
pub(crate) fn columns<R: AsRef<[String]>>(sides: &[Side], rows: &[R]) -> String {
    let widths: Vec<usize> = (0..sides.len()).map(|column| widest(rows, column)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, width), side) in row.as_ref().iter().zip(&widths).zip(sides) {
            let _ = match side {
                Side::Left => write!(line, "{cell:<width$}{GAP}"),
                Side::Right => write!(line, "{cell:>width$}{GAP}"),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Parts of one line; where that would be wider than `width`, it goes on below, a little to the right.
pub(crate) fn in_lines(parts: &[String], width: Option<usize>) -> String {
    const INDENT: &str = "    ";
    let width = width.unwrap_or(usize::MAX);
    let mut text = String::new();
    let mut used = 0;
    for (number, part) in parts.iter().enumerate() {
        let letters = part.chars().count();
        let before = match number {
            0 => "",
            _ if used + GAP.len() + letters <= width => GAP,
            _ => {
                text.push('\n');
                used = 0;
                INDENT
            }
        };
        text += before;
        text += part;
        used += before.len() + letters;
    }
    text + "\n"
}

/// Words of a text in lines of at most `width` letters, the first of which begins after `indent` and the others below it.
pub(crate) fn hanging(text: &str, indent: usize, width: Option<usize>) -> String {
    let Some(room) = width.map(|width| width.saturating_sub(indent).max(NARROWEST)) else {
        return text.to_owned();
    };
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one from the start");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join(&format!("\n{:indent$}", ""))
}

/// Letters in the longest cell of a column.
fn widest<R: AsRef<[String]>>(rows: &[R], column: usize) -> usize {
    let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
    cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["A", "SIZE"], ["länger", "1"]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&[Side::Left, Side::Right], &rows), "A       SIZE\nlänger     1\n");
        assert_eq!(columns::<[String; 0]>(&[], &[]), "");
    }

    #[test]
    fn parts_and_words_go_on_below() {
        let parts = ["GPU-1", "H200", "arena"].map(str::to_owned);
        assert_eq!(in_lines(&parts, None), "GPU-1  H200  arena\n");
        assert_eq!(in_lines(&parts, Some(18)), "GPU-1  H200  arena\n");
        assert_eq!(in_lines(&parts, Some(17)), "GPU-1  H200\n    arena\n");
        assert_eq!(in_lines(&parts, Some(1)), "GPU-1\n    H200\n    arena\n");
        assert_eq!(hanging("one two three four five", 2, None), "one two three four five");
        assert_eq!(hanging("one two three four five", 2, Some(22)), "one two three four\n  five");
        assert_eq!(hanging("", 2, Some(22)), "");
    }

    #[test]
    fn what_does_not_fit_comes_below() {
        use Side::{Left, Right};
        let rows = [["WHO", "A", "B", "C"], ["me", "1", "22222", "3"]].map(|row| row.map(str::to_owned));
        let sides = [Left, Right, Right, Right];
        assert_eq!(fitting(&sides, &rows, None), columns(&sides, &rows));
        assert_eq!(fitting(&sides, &rows, Some(16)), columns(&sides, &rows));
        assert_eq!(fitting(&sides, &rows, Some(15)), "WHO  A      B\nme   1  22222\n\nWHO  C\nme   3\n");
        // Too narrow for anything: one at a time all the same.
        assert_eq!(fitting(&sides, &rows, Some(1)).matches("WHO").count(), 3);
        assert_eq!(fitting::<[String; 0]>(&[], &[], Some(1)), "");
    }
}
