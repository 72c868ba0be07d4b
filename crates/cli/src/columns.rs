//! Text in columns.

use std::fmt::Write as _;

/// The side that a column's text stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Lines of cells, as wide as the widest of each column, with no spaces at the end.
pub(crate) fn columns<R: AsRef<[String]>>(sides: &[Side], rows: &[R]) -> String {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.as_ref().get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..sides.len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, width), side) in row.as_ref().iter().zip(&widths).zip(sides) {
            let _ = match side {
                Side::Left => write!(line, "{cell:<width$}  "),
                Side::Right => write!(line, "{cell:>width$}  "),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
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
}
