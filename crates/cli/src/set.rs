//! `rota set`: changes the terms of a job while it runs.

use crate::args::{Output, SetArgs};
use crate::columns::{INDENT, hanging, terminal_width};
use crate::describe::{as_json, terms};
use crate::quantity::printable;
use crate::{daemon, print};
use anyhow::bail;
use clap::ArgMatches;
use std::path::Path;
use wire::{Command, Description, JobView};

/// Changes what was typed, and prints the terms that hold now.
pub(crate) fn set(args: &SetArgs, matches: &ArgMatches, socket: &Path) -> anyhow::Result<()> {
    let (change, _) = args.terms.changes(matches);
    if change.is_empty() {
        bail!(
            "nothing to change was named\nhint: rota set {} --weight 3; `rota set --help` shows what else",
            printable(&args.job)
        );
    }
    let description = daemon::described(socket, Command::Set { job: args.job.clone(), change })?;
    match args.output.form() {
        Output::Json => print(&as_json(&description)?),
        Output::Table => print(&line(&description)),
    }
}

/// The job and its terms.
fn line(description: &Description) -> String {
    let line = |job: &JobView| {
        let text = format!("{}: {}", printable(&job.job), terms(&job.terms));
        hanging(&text, INDENT, terminal_width()) + "\n"
    };
    description.jobs.iter().map(line).collect()
}
