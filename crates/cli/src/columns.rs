//! Text in columns, and how wide the terminal is that shows them.

use std::fmt::Write as _;

/// Between two columns.
pub(crate) const GAP: &str = "  ";

/// How far to the right what goes on below begins.
pub(crate) const INDENT: usize = 4;

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
/// their own, each with the first `in_front` columns in front. What is too long even so is cut.
pub(crate) fn fitting<R: AsRef<[String]>>(
    sides: &[Side],
    rows: &[R],
    in_front: usize,
    width: Option<usize>,
) -> String {
    let Some(width) = width else { return columns(sides, rows) };
    let wide = |column: usize| widest(rows, column);
    let with_gap = |column: usize| wide(column) + GAP.len();
    // In front is only what leaves half of the line for something else; the first in any case.
    let mut room = width / 2;
    let in_front = (0..in_front.min(sides.len()))
        .take_while(|&column| {
            let fits = with_gap(column) <= room;
            room = room.saturating_sub(with_gap(column));
            fits || column == 0
        })
        .count();
    let front: usize = (0..in_front).map(with_gap).sum();
    let mut blocks: Vec<Vec<usize>> = vec![(0..in_front).collect()];
    let mut used = front;
    for column in in_front..sides.len() {
        let last = blocks.last_mut().expect("there is one from the start");
        if used + wide(column) <= width || last.len() <= in_front {
            last.push(column);
            used += with_gap(column);
        } else {
            blocks.push((0..in_front).chain([column]).collect());
            used = front + with_gap(column);
        }
    }
    let longest = width.saturating_sub(front).max(NARROWEST);
    let block = |block: &Vec<usize>| {
        let cell = |row: &R, column: usize| row.as_ref().get(column).map(|cell| cut(cell, longest));
        let cells = |row: &R| block.iter().filter_map(|&column| cell(row, column)).collect();
        let sides: Vec<Side> = block.iter().map(|&column| sides[column]).collect();
        columns(&sides, &rows.iter().map(cells).collect::<Vec<Vec<String>>>())
    };
    blocks.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// At most so many letters of a text, the last of which says that there are more.
fn cut(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
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
    let width = width.unwrap_or(usize::MAX);
    let mut text = String::new();
    let mut used = 0;
    for (number, part) in parts.iter().enumerate() {
        let letters = part.chars().count();
        let before = match number {
            0 => 0,
            _ if used + GAP.len() + letters <= width => GAP.len(),
            _ => {
                text.push('\n');
                used = 0;
                INDENT
            }
        };
        let _ = write!(text, "{:before$}{part}", "");
        used += before + letters;
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
        assert_eq!(fitting(&sides, &rows, 1, None), columns(&sides, &rows));
        assert_eq!(fitting(&sides, &rows, 1, Some(16)), columns(&sides, &rows));
        assert_eq!(fitting(&sides, &rows, 1, Some(15)), "WHO  A      B\nme   1  22222\n\nWHO  C\nme   3\n");
        // Too narrow for anything: one at a time all the same.
        assert_eq!(fitting(&sides, &rows, 1, Some(1)).matches("WHO").count(), 3);
        assert_eq!(fitting::<[String; 0]>(&[], &[], 1, Some(1)), "");
    }

    #[test]
    fn two_columns_may_stand_in_front_of_each_part_if_they_leave_room() {
        use Side::{Left, Right};
        let sides = [Left, Left, Right, Right];
        let rows = [["N", "JOB", "A", "B"], ["1", "x", "11111", "22222"]].map(|row| row.map(str::to_owned));
        let both = "N  JOB      A\n1  x    11111\n\nN  JOB      B\n1  x    22222\n";
        assert_eq!(fitting(&sides, &rows, 2, Some(16)), both);
        // A name that takes more than half of the line stands there once.
        let long = "a name that takes more than half";
        let rows = [["N", "JOB", "A", "B"], ["1", long, "11111", "22222"]].map(|row| row.map(str::to_owned));
        let text = fitting(&sides, &rows, 2, Some(42));
        assert_eq!(text.matches(long).count(), 1, "{text}");
        // And one that takes more than all of it is cut, so that no line is too wide.
        for width in [24, 30, 33, 42] {
            let text = fitting(&sides, &rows, 2, Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        }
        assert!(fitting(&sides, &rows, 2, Some(24)).contains("a name that takes mo…"));
    }
}
