//! `rota sim optimum`: what was moved, in a simulation or by a daemon, beside the least that could have been.

use super::{find_with, heading, print_json};
use crate::args::{OptimumArgs, Output};
use crate::print;
use crate::quantity::{printable, size};
use anyhow::Context as _;
use serde_json::json;
use sim::optimum::events::{self, Window};
use sim::optimum::{Judged, of_scenario};
use sim::report::json::{SCHEMA_VERSION, text};

pub(super) fn optimum(args: &OptimumArgs) -> anyhow::Result<()> {
    let (name, title, judged) = match (&args.events, &args.name) {
        (Some(file), _) => {
            let name = file.display().to_string();
            let lines = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
            let room = args.room.map_or(0, |room| room.0);
            let window = Window { from_ns: args.from_ns, to_ns: args.to_ns };
            let judged = events::judge(&lines, room, window).with_context(|| printable(&name))?;
            (name, String::new(), judged)
        }
        (None, scenario) => {
            let scenario = find_with(scenario.as_deref().unwrap_or_default(), &args.set, args.seed, None)?;
            let (_, judged) = of_scenario(&scenario).with_context(|| printable(&scenario.name))?;
            (scenario.name.clone(), heading(&scenario), judged)
        }
    };
    match args.output.form() {
        Output::Table => print(&(title + &told(&judged))),
        Output::Json => print_json(text(&json!({
            "schema_version": SCHEMA_VERSION,
            "name": name,
            "steps": judged.steps,
            "moved_bytes": judged.moved.0,
            "least_bytes": judged.least.bytes.0,
            "exact": judged.least.exact,
            "ratio": judged.ratio(),
        }))),
    }
}

fn told(judged: &Judged) -> String {
    let Judged { moved, least, steps } = judged;
    let bound = if least.exact { "" } else { " or more" };
    let ratio = match judged.ratio() {
        Some(ratio) => format!(", ratio {ratio:.3}{}", if least.exact { "" } else { " or less" }),
        None => String::new(),
    };
    let (moved, least) = (size(moved.0), size(least.bytes.0));
    format!("moved {moved}, offline optimum {least}{bound}{ratio}, over {steps} steps\n")
}
