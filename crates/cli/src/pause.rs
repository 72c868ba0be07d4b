//! `rota pause` and `rota resume`: a job is kept off the GPU, and let on it again.

use crate::args::{JobArgs, Output, PauseArgs};
use crate::describe::as_json;
use crate::quantity::printable;
use crate::{daemon, print};
use std::path::Path;
use wire::Command;

/// Keeps a job off the GPU.
pub(crate) fn pause(args: &PauseArgs, socket: &Path) -> anyhow::Result<()> {
    let job = args.job.job.clone();
    let command = if args.deep { Command::PauseDeep { job } } else { Command::Pause { job } };
    change(&args.job, socket, command)
}

/// Lets it on again.
pub(crate) fn resume(args: &JobArgs, socket: &Path) -> anyhow::Result<()> {
    change(args, socket, Command::Resume { job: args.job.clone() })
}

fn change(args: &JobArgs, socket: &Path, command: Command) -> anyhow::Result<()> {
    let description = daemon::described(socket, command)?;
    if args.output.form() == Output::Json {
        return print(&as_json(&description)?);
    }
    let told = description.jobs.iter().map(|job| {
        let name = printable(&job.job);
        match job.paused {
            true => format!("{name} is paused; `rota resume {name}` lets it go on\n"),
            false => format!("{name} may run\n"),
        }
    });
    print(&told.collect::<String>())
}
