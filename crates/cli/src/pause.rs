//! `rota pause` and `rota resume`: a job is kept off the GPU, and let on it again.

use crate::args::{JobArgs, Output, PauseArgs};
use crate::columns::{hanging, terminal_width};
use crate::describe::as_json;
use crate::quantity::printable;
use crate::{daemon, print};
use std::io::Write as _;
use std::path::Path;
use wire::{Command, Description};

/// Keeps a job off the GPU.
pub(crate) fn pause(args: &PauseArgs, socket: &Path) -> anyhow::Result<()> {
    let job = args.job.job.clone();
    if !args.deep {
        return tell(&args.job, &daemon::described(socket, Command::Pause { job })?, "is paused");
    }
    let paused = daemon::described(socket, Command::PauseDeep { job: job.clone() })?;
    if args.no_wait {
        return tell(&args.job, &paused, "is paused, and gives up its contexts where it can");
    }
    let name = printable(&job);
    // Where nobody reads it, it is waited for all the same.
    let _ = writeln!(std::io::stderr(), "rota: {name} is paused; waiting until nothing of it is on the GPU");
    let out = daemon::described(socket, Command::AwaitDeep { job })?;
    tell(&args.job, &out, "is paused, and nothing of it is on the GPU")
}

/// Lets it on again.
pub(crate) fn resume(args: &JobArgs, socket: &Path) -> anyhow::Result<()> {
    tell(args, &daemon::described(socket, Command::Resume { job: args.job.clone() })?, "is paused")
}

/// Prints what holds now; of a job that is paused, this.
fn tell(args: &JobArgs, description: &Description, paused: &str) -> anyhow::Result<()> {
    if args.output.form() == Output::Json {
        return print(&as_json(description)?);
    }
    let told = description.jobs.iter().map(|job| {
        let name = printable(&job.job);
        let text = match job.paused {
            true => format!("{name} {paused}; `rota resume {name}` lets it go on"),
            false => format!("{name} may run"),
        };
        hanging(&text, 0, terminal_width()) + "\n"
    });
    print(&told.collect::<String>())
}
