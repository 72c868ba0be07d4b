//! `rota-keeper`: its start, and its end. [`log`]: lines that nobody has to read; [`signals`]: what may be asked of it from
//! outside; [`place`]: where it is found.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, clippy::print_stdout)
)]

mod log;
mod place;
mod signals;

use anyhow::Context as _;
use clap::Parser;
use log::Log;
use place::Place;
use rota_keeper::{Keeper, Node, Part, SEGMENT_BYTES, Server};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;
use wire::quantity::Bytes;

/// The least likely to be ended by the system for want of memory; only root may say so.
const NEVER_FOR_WANT_OF_MEMORY: &str = "-1000";

/// Holds the memory of programs that is not on their GPU, for a worker that may end at any time.
///
/// SIGTERM and SIGINT end it as soon as nothing is away and no worker is there, and never before, however many come. Only its
/// worker can have it end with something away; SIGKILL loses that.
#[derive(Debug, Parser)]
#[command(name = "rota-keeper", version)]
struct Arguments {
    /// Where its worker finds it.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// A part of the arena: its size, and the NUMA node it is to be near to, as in 64GiB or 64GiB@1. May be given for
    /// several.
    #[arg(long = "part", value_name = "SIZE[@NODE]", required = true, value_parser = part)]
    parts: Vec<Part>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
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
    let result = run(&arguments);
    if let Err(cause) = &result {
        let _ = log.write_all(format!("rota-keeper: {cause:#}\n").as_bytes());
    }
    log.close();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let wishes = signals::hear().context("cannot wait for signals")?;
    raise_file_limit();
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", NEVER_FOR_WANT_OF_MEMORY) {
        tracing::warn!(%error, "the system may end the keeper when memory is short, and all that is away with it");
    }
    // First, so that a worker that finds the socket finds a keeper.
    let (place, listener) = Place::take(&arguments.socket)?;
    let keeper = match Keeper::start(&arguments.parts, SEGMENT_BYTES) {
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

/// `64GiB` or `64GiB@1`.
fn part(text: &str) -> Result<Part, String> {
    let (size, node) = match text.split_once('@') {
        Some((size, node)) => {
            (size, Some(node.parse().map(Node).map_err(|_| format!("no node is called {node}"))?))
        }
        None => (text, None),
    };
    let bytes: Bytes = size.parse().map_err(|error| format!("{error}"))?;
    Ok(Part { bytes: bytes.0, node })
}

/// Every segment is an open file. The soft limit is a default, not a wish.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(cause) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("cannot raise the limit of open files: {cause}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_size_and_perhaps_a_node() {
        assert_eq!(part("4MiB"), Ok(Part { bytes: 4 << 20, node: None }));
        assert_eq!(part("1GiB@3"), Ok(Part { bytes: 1 << 30, node: Some(Node(3)) }));
        for wrong in ["", "@1", "1GiB@", "1GiB@-1", "many"] {
            assert!(part(wrong).is_err(), "{wrong}");
        }
    }
}
