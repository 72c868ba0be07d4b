//! Keeps a GPU busy with memory whose every byte it knows, and says after each step whether all are right.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use programs::worker::{self, Options};

/// Rewrites and checks device memory, step by step; prints a line of JSON a step.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// How much device memory to hold, in MiB.
    #[arg(long, default_value_t = 64)]
    mib: u64,
    /// How much of it lies in one allocation, in MiB.
    #[arg(long, default_value_t = 16)]
    piece_mib: u64,
    /// For how long to work.
    #[arg(long)]
    seconds: Option<f64>,
    /// For how many steps to work; 10 if nothing else ends it.
    #[arg(long)]
    steps: Option<u64>,
    /// What the bytes are made of.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes in the first step only, and reads in all others.
    #[arg(long, conflicts_with = "copies")]
    reads: bool,
    /// Writes only so much after the first step, in MiB: what it allocated last.
    #[arg(long, conflicts_with_all = ["copies", "reads"])]
    hot_mib: Option<u64>,
    /// After so many steps that is as much of what it allocated before it, and so on through all of its memory.
    #[arg(long, requires = "hot_mib")]
    hot_steps: Option<u64>,
    /// Copies, frees and allocates too.
    #[arg(long)]
    copies: bool,
    /// How long a kernel that touches no memory runs in each step.
    #[arg(long, default_value_t = 0)]
    kernel_ms: u64,
    /// In how many streams to allocate and free in their order, too.
    #[arg(long, default_value_t = 0)]
    streams: usize,
    /// Holds its memory by handles that it creates and maps itself.
    #[arg(long)]
    segments: bool,
    /// Waits for the GPU before it reads what that found. Otherwise the copy waits, and whoever moves its memory waits for the
    /// copy first.
    #[arg(long)]
    syncs: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let steps_max = arguments.steps.unwrap_or(if arguments.seconds.is_some() { u64::MAX } else { 10 });
    let work = worker::run(&Options {
        mib: arguments.mib,
        piece_mib: arguments.piece_mib,
        time_max: arguments.seconds.map_or(Ok(Duration::MAX), Duration::try_from_secs_f64)?,
        steps_max,
        seed: arguments.seed,
        reads: arguments.reads,
        hot_mib: arguments.hot_mib,
        hot_steps: arguments.hot_steps,
        copies: arguments.copies,
        kernel: Duration::from_millis(arguments.kernel_ms),
        streams: arguments.streams,
        segments: arguments.segments,
        syncs: arguments.syncs,
    })?;
    Ok(if work.wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
