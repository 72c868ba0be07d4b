//! `rota doctor`: is this machine fit for it? One line for each check, PASS, WARN or FAIL, with what to do.

mod checks;
mod gpu;
mod host;

use crate::args::{DoctorArgs, Output};
use crate::columns::{hanging, terminal_width};
use crate::daemon::Place;
use crate::describe::as_json;
use crate::print;
use crate::quantity::printable;
use serde::Serialize;
use std::fmt;

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Pass,
    Warn,
    Fail,
    /// It could not be made, or says nothing here.
    Skip,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "PASS",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
            Self::Skip => "SKIP",
        })
    }
}

/// One check.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    name: &'static str,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// All of them.
#[derive(Serialize)]
struct Report {
    schema_version: u32,
    fit: bool,
    checks: Vec<Check>,
}

/// Makes every check and prints them. True if none failed.
pub(crate) fn doctor(args: &DoctorArgs, place: &Place) -> anyhow::Result<bool> {
    let checks = checks::all(place);
    let fit = checks.iter().all(|check| check.verdict != Verdict::Fail);
    let report = Report { schema_version: wire::SCHEMA_VERSION, fit, checks };
    match args.output.form() {
        Output::Json => print(&as_json(&report)?)?,
        Output::Table => print(&text(&report))?,
    }
    Ok(fit)
}

fn text(report: &Report) -> String {
    let wide = report.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    // A verdict has four letters, and there are two spaces behind it and behind the name.
    let (indent, terminal) = (wide + 8, terminal_width());
    let mut text = String::new();
    for Check { name, verdict, found, hint } in &report.checks {
        text += &format!("{verdict}  {name:<wide$}  {}\n", hanging(&printable(found), indent, terminal));
        if let Some(hint) = hint {
            let hint = format!("hint: {}", printable(hint));
            text += &format!("{:indent$}{}\n", "", hanging(&hint, indent, terminal));
        }
    }
    let count = |verdict| report.checks.iter().filter(|check| check.verdict == verdict).count();
    let (failed, warned) = (count(Verdict::Fail), count(Verdict::Warn));
    text + &match (failed, warned) {
        (0, 0) => "\nAll is well.\n".into(),
        (0, _) => format!("\nFit, with {warned} to look at.\n"),
        _ => format!("\nNot fit: {failed} failed, {warned} to look at.\n"),
    }
}
