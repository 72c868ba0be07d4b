//! `rota-keeper`: its start, and its end.

use anyhow::Context as _;
use clap::Parser;
use rota_keeper::{Keeper, Node, Part, SEGMENT_BYTES, Server};
use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;
use wire::Listener;
use wire::quantity::Bytes;

/// The least likely to be ended by the system for want of memory; only root may say so.
const NEVER_FOR_WANT_OF_MEMORY: &str = "-1000";

/// Holds the memory of programs that is not on their GPU, for a worker that may end at any time.
///
/// A first SIGTERM, SIGINT or SIGHUP ends it as soon as nothing is away and no worker is there, a second one at once.
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
    let filter = EnvFilter::try_from_env("ROTAD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .init();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("rota-keeper: {cause:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (wishes, signals) = UnixStream::pair().context("cannot make a pair of sockets")?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let signals = signals.try_clone().context("cannot copy a socket")?;
        signal_hook::low_level::pipe::register(signal, signals).context("cannot wait for signals")?;
    }
    raise_file_limit();
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", NEVER_FOR_WANT_OF_MEMORY) {
        tracing::debug!(%error, "the system may end the keeper when memory is short");
    }
    // First, so that a worker that finds the socket finds a keeper. And nobody else: the arena has everybody's bytes.
    let before = rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o177));
    let listener = Listener::bind(&arguments.socket);
    rustix::process::umask(before);
    let listener = listener.context("is another keeper there?")?;
    std::fs::set_permissions(&arguments.socket, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot close {} to others", arguments.socket.display()))?;
    let keeper = Keeper::start(&arguments.parts, SEGMENT_BYTES)?;
    let mut server = Server::new(keeper, listener);
    server.end_by(wishes.into());
    let away_bytes = server.run();
    let _ = std::fs::remove_file(&arguments.socket);
    if away_bytes > 0 {
        eprintln!("rota-keeper: ended as it was told, and {} that were away with it", Bytes(away_bytes));
    }
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
