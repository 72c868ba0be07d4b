//! A process that is a keeper: its start, and its end. `log`: lines that nobody has to read; `signals`: what may be asked of it
//! from outside; `place`: where it is found.

mod log;
mod place;
mod signals;

use crate::segment::Pages;
use crate::{Keeper, Part, SEGMENT_BYTES, Server};
use anyhow::Context as _;
use log::Log;
use place::Place;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;
use wire::quantity::Bytes;

/// The least likely to be ended by the system for want of memory; only root may say so.
const NEVER_FOR_WANT_OF_MEMORY: &str = "-1000";

/// Is a keeper at this socket, with an arena of these parts and pages behind it as is said, until it is to end. To be called once,
/// before anything else in the process has a log or hears signals.
pub fn run(socket: &Path, parts: &[Part], pages: Pages) -> ExitCode {
    let mut log = match Log::start() {
        Ok(log) => log,
        Err(cause) => {
            let _ = writeln!(std::io::stderr(), "rota-keeper: cannot start a log: {cause}");
            return ExitCode::FAILURE;
        }
    };
    let filter = EnvFilter::try_from_env("ROTAD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = log.clone();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || lines.clone())
        // It would tell of them by a macro that panics when stderr cannot be written.
        .log_internal_errors(false)
        .with_target(false)
        .with_ansi(false)
        .init();
    let result = keep(socket, parts, pages);
    if let Err(cause) = &result {
        let _ = log.write_all(format!("rota-keeper: {cause:#}\n").as_bytes());
    }
    log.close();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn keep(socket: &Path, parts: &[Part], pages: Pages) -> anyhow::Result<()> {
    let wishes = signals::hear().context("cannot wait for signals")?;
    raise_file_limit();
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", NEVER_FOR_WANT_OF_MEMORY) {
        tracing::warn!(%error, "the system may end the keeper when memory is short, and all that is away with it");
    }
    // First, so that a worker that finds the socket finds a keeper.
    let (place, listener) = Place::take(socket)?;
    let keeper = match Keeper::start_with(parts, SEGMENT_BYTES, pages) {
        Ok(keeper) => keeper,
        Err(error) => {
            place.hide();
            return Err(error.into());
        }
    };
    let mut server = Server::new(keeper, listener);
    server.end_by(wishes);
    let away_bytes = server.run();
    place.hide();
    if away_bytes > 0 {
        tracing::warn!("ended as its worker told it, and {} that were away with it", Bytes(away_bytes));
    }
    // Its memory is given back before its place.
    drop(server);
    drop(place);
    Ok(())
}

/// Every segment is an open file. The soft limit is a default, not a wish.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(cause) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("cannot raise the limit of open files: {cause}");
    }
}
