//! The figures for people: cells with units, for whoever prints them in columns.

use super::Row;
use crate::record::{Fate, Record};
use sched::{Bytes, Span, Time};

/// A table. What no row has is no column of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What stands above each column.
    pub header: Vec<&'static str>,
    /// As many cells as columns in each.
    pub rows: Vec<Vec<String>>,
}

/// What a cell says that has nothing to say.
const NOTHING: &str = "-";

/// The figures of runs.
pub fn table(rows: &[Row]) -> Table {
    columns(vec![("POLICY", rows.iter().map(|row| row.policy.clone()).collect())], rows)
}

/// The figures of runs that differ in one value, which comes first.
pub fn curve(values: &[String], rows: &[Row]) -> Table {
    columns(vec![("VALUE", values.to_vec())], rows)
}

/// The tenants of one run.
pub fn tenants(record: &Record) -> Table {
    let row = |fate: &Fate| {
        vec![
            fate.name.clone(),
            fate.arrived.since(Time::ZERO).to_string(),
            fate.ended.map_or_else(|| NOTHING.into(), |ended| ended.since(Time::ZERO).to_string()),
            fate.work.to_string(),
            fate.gap_max.to_string(),
            fate.wait_max.to_string(),
        ]
    };
    Table {
        header: vec!["TENANT", "ARRIVED", "ENDED", "WORK", "GAP MAX", "WAIT MAX"],
        rows: record.tenants.iter().map(row).collect(),
    }
}

fn columns(first: Vec<(&'static str, Vec<String>)>, rows: &[Row]) -> Table {
    type Cell = fn(&Row) -> Option<String>;
    const CELLS: [(&str, Cell); 12] = [
        ("MAKESPAN", |row| Some(span(row.makespan_ns))),
        ("MOVED", |row| Some(Bytes(row.moved_bytes).to_string())),
        ("MOVING", |row| Some(percent(row.moving_ratio))),
        ("GAP MAX", |row| row.turn_gap_ns_max.map(span)),
        ("WAIT MAX", |row| row.wait_ns_max.map(span)),
        ("LC P50", |row| row.lc_latency_ns_p50.map(span)),
        ("LC P99", |row| row.lc_latency_ns_p99.map(span)),
        ("BE", |row| row.be_throughput_ratio.map(percent)),
        ("JAIN", |row| row.jain.map(|jain| format!("{jain:.3}"))),
        ("FORECAST", |row| row.forecast_error_ratio_p50.map(off_by)),
        ("FINISHED", |row| Some(if row.finished { "yes" } else { "no" }.into())),
        ("NOTE", note),
    ];
    let mut columns = first;
    for (name, cell) in CELLS {
        let cells: Vec<Option<String>> = rows.iter().map(cell).collect();
        if cells.iter().any(Option::is_some) {
            columns
                .push((name, cells.into_iter().map(|cell| cell.unwrap_or_else(|| NOTHING.into())).collect()));
        }
    }
    Table {
        header: columns.iter().map(|(name, _)| *name).collect(),
        rows: (0..rows.len())
            .map(|row| columns.iter().map(|(_, cells)| cells[row].clone()).collect())
            .collect(),
    }
}

fn note(row: &Row) -> Option<String> {
    let livelock = row.livelock.then_some("livelock: slices too short to get on");
    let parts: Vec<&str> = livelock.into_iter().chain(row.note.as_deref()).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn span(nanos: u64) -> String {
    Span(nanos).to_string()
}

/// By how much a forecast was off. Beyond ten times it was no forecast, and how far beyond says nothing.
fn off_by(error: f64) -> String {
    if error < 10.0 { format!("±{:.0}%", error * 100.0) } else { ">1000%".into() }
}

fn percent(ratio: f64) -> String {
    format!("{:.1}%", ratio * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::builtin;

    #[test]
    fn forecasts_that_were_none_fill_no_line() {
        assert_eq!((off_by(0.014).as_str(), off_by(9.99).as_str()), ("±1%", "±999%"));
        assert_eq!(off_by(3.8e7), ">1000%");
    }

    #[test]
    fn what_no_run_has_is_no_column() {
        let scenario = builtin::find("seed-4x12", &[]).unwrap();
        let row = Row::of("rota", &scenario, &Record { makespan: Span::from_secs(636), ..Record::default() });
        let mut critical = Row { lc_latency_ns_p99: Some(87_000), ..row.clone() };
        let plain = table(std::slice::from_ref(&row));
        assert!(!plain.header.contains(&"LC P99") && !plain.header.contains(&"NOTE"));
        assert_eq!(plain.rows[0][..2], ["rota", "636.00 s"]);

        critical.note = Some("said".into());
        critical.livelock = true;
        let both = table(&[row, critical]);
        let at = both.header.iter().position(|name| *name == "LC P99").unwrap();
        assert_eq!([&both.rows[0][at], &both.rows[1][at]], ["-", "87.0 us"]);
        assert_eq!(both.rows[1].last().unwrap(), "livelock: slices too short to get on; said");
        assert!(both.rows.iter().all(|cells| cells.len() == both.header.len()));
    }
}
