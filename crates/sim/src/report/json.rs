//! The figures for programs: stable keys, bytes and nanoseconds as whole numbers.

use super::Row;
use serde::Serialize;

/// Raised when a key changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// Data as people and programs can read it.
pub fn text(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(|text| text + "\n")
}

/// Runs of one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Runs {
    schema_version: u32,
    scenario: String,
    seed: u64,
    rows: Vec<Row>,
}

impl Runs {
    /// Of one scenario, with one seed.
    pub fn new(scenario: &str, seed: u64, rows: Vec<Row>) -> Self {
        Self { schema_version: SCHEMA_VERSION, scenario: scenario.into(), seed, rows }
    }
}

/// A curve: runs of one scenario that differ in one value.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    schema_version: u32,
    scenario: String,
    seed: u64,
    /// What was varied.
    key: String,
    rows: Vec<Point>,
}

/// One run of a curve.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Of what was varied, as it was written.
    pub value: String,
    /// What came of it.
    #[serde(flatten)]
    pub row: Row,
}

impl Curve {
    /// Of one scenario, over the values of one key.
    pub fn new(scenario: &str, seed: u64, key: &str, rows: Vec<Point>) -> Self {
        Self { schema_version: SCHEMA_VERSION, scenario: scenario.into(), seed, key: key.into(), rows }
    }
}
