//! The model beside the measurements: does one set of parameters reproduce what was seen on a real GPU?
//!
//! Every figure here comes out of [`gpu::Device`](crate::gpu::Device) with [`Physics::default`], driven by
//! programs like those that were measured. What is put in besides the physics is what those programs do on their own:
//! how long their kernels take, how often they synchronise, when they sleep (see [`programs`]).

mod bench;
mod latency;
mod programs;
mod slices;
mod turns;

use crate::scenario::Physics;

/// One measured figure, and the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Which table.
    pub table: &'static str,
    /// Which of its rows.
    pub row: String,
    /// Which of its columns, with the unit.
    pub quantity: &'static str,
    /// As measured.
    pub measured: f64,
    /// As modelled.
    pub model: f64,
    /// Is the model off by at most 20%?
    pub within_20: bool,
}

impl Line {
    fn new(
        table: &'static str,
        row: impl Into<String>,
        quantity: &'static str,
        measured: f64,
        model: f64,
    ) -> Self {
        let within_20 = (model - measured).abs() <= 0.2 * measured.abs();
        Self { table, row: row.into(), quantity, measured, model, within_20 }
    }
}

/// All tables, MPS rows excepted: nothing here knows MPS.
pub fn table() -> Vec<Line> {
    let physics = Physics::default();
    let mut lines = slices::lines(&physics);
    lines.extend(turns::lines(&physics));
    lines.extend(latency::lines(&physics));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_set_of_parameters_reproduces_the_measurements() {
        let misses: Vec<_> = table()
            .into_iter()
            .filter(|line| !line.within_20)
            .map(|line| {
                format!(
                    "{}, {}, {}: {:.1} measured, {:.1} modelled",
                    line.table, line.row, line.quantity, line.measured, line.model
                )
            })
            .collect();
        assert!(misses.is_empty(), "{misses:#?}");
    }

    #[test]
    fn every_line_has_a_name_of_its_own() {
        let lines = table();
        let names: std::collections::BTreeSet<_> =
            lines.iter().map(|line| (line.table, &line.row, line.quantity)).collect();
        assert_eq!(names.len(), lines.len());
    }

    #[test]
    fn a_figure_that_is_off_shows() {
        assert!(Line::new("t", "r", "q", 100.0, 120.0).within_20);
        assert!(!Line::new("t", "r", "q", 100.0, 121.0).within_20);
        assert!(!Line::new("t", "r", "q", 100.0, 79.0).within_20);
        assert!(Line::new("t", "r", "q", 0.0, 0.0).within_20);
    }

    #[test]
    fn other_physics_miss() {
        let physics = Physics { switch: sched::Span::from_micros(60), ..Physics::default() };
        assert!(slices::lines(&physics).iter().any(|line| !line.within_20));
        assert!(latency::lines(&physics).iter().any(|line| !line.within_20));
    }
}
