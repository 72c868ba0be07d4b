//! `rota sim`: runs scenarios and prints what came of them. Simulating itself is done by the library of that name.

mod optimum;
mod picture;

use crate::args::{
    CalibrateArgs, CompareArgs, ListArgs, Output, Scenario as Asked, SimArgs, SimVerb, SweepArgs,
};
use crate::columns::{GAP, Side, columns, fitting, hanging, terminal_width};
use crate::print;
use crate::quantity::printable;
use anyhow::Context as _;
use serde_json::json;
use sim::calibrate;
use sim::policy::{self, Run};
use sim::report::Row;
use sim::report::json::{Curve, Point, Runs, SCHEMA_VERSION, text};
use sim::report::table::{self, Table};
use sim::scenario::Scenario;
use sim::scenario::builtin::{self, FindError};
use sim::scenario::file::Given;
use std::process::ExitCode;

/// More tenants than this are not listed one by one.
const TENANTS_LISTED_MAX: usize = 24;
/// A scenario with a mistake is wrong usage.
const EXIT_USAGE: u8 = 2;

/// Does what was asked.
pub(crate) fn sim(verb: &SimVerb) -> anyhow::Result<()> {
    match verb {
        SimVerb::List(args) => list(args),
        SimVerb::Run(args) => run(args),
        SimVerb::Compare(args) => compare(args),
        SimVerb::Sweep(args) => sweep(args),
        SimVerb::Optimum(args) => optimum::optimum(args),
        SimVerb::Calibrate(args) => calibrate(args),
    }
}

/// How a failure is told to scripts.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<FindError>() { ExitCode::from(EXIT_USAGE) } else { ExitCode::FAILURE }
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for name in builtin::names() {
        all.push(builtin::find(name, &[])?);
    }
    match args.output.form() {
        Output::Table => {
            let header = ["SCENARIO", "ABOUT"].map(str::to_owned);
            let wide = all.iter().map(|scenario| scenario.name.len()).max().unwrap_or(0);
            let about = |about: &str| hanging(about, wide + GAP.len(), terminal_width());
            let rows = all.into_iter().map(|scenario| [scenario.name, about(&scenario.about)]);
            let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
            print(&columns(&[Side::Left, Side::Left], &rows))
        }
        Output::Json => {
            let scenarios: Vec<_> =
                all.iter().map(|one| json!({ "name": one.name, "about": one.about })).collect();
            print_json(text(&json!({ "schema_version": SCHEMA_VERSION, "scenarios": scenarios })))
        }
    }
}

fn run(args: &SimArgs) -> anyhow::Result<()> {
    let scenario = find(&args.scenario, None)?;
    let run = policy::run(args.policy, &scenario);
    if let Some(file) = &args.timeline {
        picture::write(file, &scenario, std::slice::from_ref(&run))?;
    }
    match args.output.form() {
        Output::Table => {
            let mut text = heading(&scenario);
            text += &told(&table::table(std::slice::from_ref(&run.row)));
            if run.record.tenants.len() <= TENANTS_LISTED_MAX {
                text.push('\n');
                text += &told(&table::tenants(&run.record));
            }
            print(&text)
        }
        Output::Json => print_json(text(&Runs::new(&scenario.name, scenario.seed, vec![run.row]))),
    }
}

fn compare(args: &CompareArgs) -> anyhow::Result<()> {
    let scenario = find(&args.scenario, None)?;
    let runs = policy::compare(&scenario);
    if let Some(file) = &args.timeline {
        picture::write(file, &scenario, &runs)?;
    }
    let rows: Vec<Row> = runs.into_iter().map(|Run { row, .. }| row).collect();
    match args.output.form() {
        Output::Table => print(&(heading(&scenario) + &told(&table::table(&rows)))),
        Output::Json => print_json(text(&Runs::new(&scenario.name, scenario.seed, rows))),
    }
}

fn sweep(args: &SweepArgs) -> anyhow::Result<()> {
    let key = &args.vary.key;
    // All are read before the first one runs: a mistake in the last is not found after minutes.
    let mut scenarios = Vec::new();
    for value in &args.vary.values {
        let given = Given { key: key.clone(), value: value.clone() };
        scenarios.push(find(&args.scenario, Some(given))?);
    }
    let rows: Vec<Row> = scenarios.iter().map(|scenario| policy::run(args.policy, scenario).row).collect();
    let Some(first) = scenarios.first() else { return Ok(()) };
    match args.output.form() {
        Output::Table => {
            let mut text = heading(first);
            text += &format!("{} over {}\n\n", args.policy, printable(key));
            text += &told(&table::curve(&args.vary.values, &rows));
            print(&text)
        }
        Output::Json => {
            let points = args.vary.values.iter().cloned().zip(rows).map(|(value, row)| Point { value, row });
            print_json(text(&Curve::new(&first.name, first.seed, key, points.collect())))
        }
    }
}

fn calibrate(args: &CalibrateArgs) -> anyhow::Result<()> {
    let lines = calibrate::table();
    match args.output.form() {
        Output::Table => {
            let header =
                ["TABLE", "ROW", "QUANTITY", "MEASURED", "MODEL", "OFF BY", "WITHIN 20%"].map(str::to_owned);
            let rows = lines.iter().map(|line| {
                let off = if line.measured == 0.0 { 0.0 } else { (line.model / line.measured - 1.0) * 100.0 };
                [
                    line.table.to_owned(),
                    line.row.clone(),
                    line.quantity.to_owned(),
                    format!("{:.1}", line.measured),
                    format!("{:.1}", line.model),
                    format!("{off:+.1}%"),
                    if line.within_20 { "yes" } else { "no" }.to_owned(),
                ]
            });
            let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
            use Side::{Left, Right};
            print(&fitting(&[Left, Left, Left, Right, Right, Right, Left], &rows, 3, terminal_width()))
        }
        Output::Json => {
            let rows: Vec<_> = lines
                .iter()
                .map(|line| {
                    json!({
                        "table": line.table,
                        "row": line.row,
                        "quantity": line.quantity,
                        "measured": line.measured,
                        "model": line.model,
                        "within_20_percent": line.within_20,
                    })
                })
                .collect();
            print_json(text(&json!({ "schema_version": SCHEMA_VERSION, "rows": rows })))
        }
    }
}

/// The scenario that was asked for, with everything that was put over it.
fn find(asked: &Asked, more: Option<Given>) -> Result<Scenario, FindError> {
    find_with(&asked.name, &asked.set, asked.seed, more)
}

fn find_with(
    name: &str,
    set: &[Given],
    seed: Option<u64>,
    more: Option<Given>,
) -> Result<Scenario, FindError> {
    // In this order: what is varied goes over everything else, also where that is the seed.
    let seed = seed.map(|seed| Given { key: "seed".into(), value: seed.to_string() });
    let given: Vec<Given> = set.iter().cloned().chain(seed).chain(more).collect();
    builtin::find(name, &given)
}

fn heading(scenario: &Scenario) -> String {
    let text = format!("{}: {}", printable(&scenario.name), printable(&scenario.about));
    hanging(&text, 0, terminal_width()) + "\n\n"
}

/// A table as text: names to the left, figures to the right.
fn told(table: &Table) -> String {
    let side = |name: &&str| {
        if ["POLICY", "TENANT", "VALUE", "FINISHED", "NOTE"].contains(name) {
            Side::Left
        } else {
            Side::Right
        }
    };
    let sides: Vec<Side> = table.header.iter().map(side).collect();
    let header: Vec<String> = table.header.iter().map(|name| (*name).to_owned()).collect();
    let rows = table.rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect());
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    fitting(&sides, &rows, 1, terminal_width())
}

fn print_json(text: serde_json::Result<String>) -> anyhow::Result<()> {
    print(&text.context("cannot write the figures as JSON")?)
}
