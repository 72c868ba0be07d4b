//! Misuses a GPU in a dozen ways and says which the driver catches.

use clap::{Parser, Subcommand};
use programs::misuse;

/// Misuses a GPU in a dozen ways, each in a process of its own, and says which the driver catches.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Commits one: what the program starts for itself.
    #[command(hide = true)]
    One { index: usize },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Some(Command::One { index }) => misuse::one(index),
        None => misuse::run().map(|_| ()),
    }
}
