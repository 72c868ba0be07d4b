//! Hashes blocks on a GPU and on the host; see `programs::hasher`.

use std::process::ExitCode;

use blocks::launch::SHORT_BLOCKS;
use clap::Parser;
use programs::hasher::{self, Options};

/// Hashes blocks of 2 MiB on a GPU: compares with the host, looks for flipped bits, measures; prints lines of JSON.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// How much memory to hash, in MiB.
    #[arg(long, default_value_t = 64)]
    mib: usize,
    /// How many blocks of each kind to compare with the host.
    #[arg(long, default_value_t = 8)]
    check_blocks: usize,
    /// The most blocks of a short launch.
    #[arg(long, default_value_t = SHORT_BLOCKS)]
    short_blocks: usize,
    /// How often each speed is measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// What the bytes are made of.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> anyhow::Result<ExitCode> {
    let Arguments { mib, check_blocks, short_blocks, rounds, seed } = Arguments::parse();
    let wrong = hasher::run(&Options { mib, check_blocks, short_blocks, rounds, seed })?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
