//! One of two processes whose kernels wait for each other; see `programs::meeting`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use programs::meeting::{self, Met, Options};

/// How it ends if the other one did not come in time.
const LATE_EXIT: u8 = 3;

/// Meets another process by a shared file, round by round; prints a line of JSON a round.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The file that both share.
    file: PathBuf,
    /// It is the second of the two.
    #[arg(long)]
    second: bool,
    /// How often they meet.
    #[arg(long, default_value_t = 40)]
    rounds: u64,
    /// How long each waits for the other.
    #[arg(long, default_value_t = 5000)]
    patience_ms: u64,
}

fn main() -> anyhow::Result<ExitCode> {
    let Arguments { file, second, rounds, patience_ms } = Arguments::parse();
    let patience_ns = patience_ms.saturating_mul(1_000_000);
    Ok(match meeting::run(&file, &Options { second, rounds, patience_ns })? {
        Met::Always => ExitCode::SUCCESS,
        Met::Late => ExitCode::from(LATE_EXIT),
    })
}
