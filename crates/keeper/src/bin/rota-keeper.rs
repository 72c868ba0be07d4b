//! `rota-keeper`: what can be typed. What it does is in `process`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, clippy::print_stdout)
)]

use clap::Parser;
use rota_keeper::{Node, Part};
use std::path::PathBuf;
use std::process::ExitCode;
use wire::quantity::Bytes;

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
    rota_keeper::process::run(&arguments.socket, &arguments.parts)
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
