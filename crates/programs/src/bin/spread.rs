//! Keeps all GPUs that it sees busy, with memory that they show each other; see `programs::spread`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use programs::spread::{self, Options};

/// Rewrites and checks memory on every GPU, step by step; prints a line of JSON a step.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// How much device memory to hold on each GPU, in MiB.
    #[arg(long, default_value_t = 64)]
    mib: u64,
    /// How much of it lies in one allocation, in MiB.
    #[arg(long, default_value_t = 16)]
    piece_mib: u64,
    /// For how many steps to work.
    #[arg(long, default_value_t = 10)]
    steps: u64,
    /// How long a kernel that touches no memory runs in each step.
    #[arg(long, default_value_t = 0)]
    kernel_ms: u64,
    /// A thread for each GPU.
    #[arg(long)]
    threads: bool,
    /// Forks a child that does nothing.
    #[arg(long)]
    fork: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let Arguments { mib, piece_mib, steps, kernel_ms, threads, fork } = Arguments::parse();
    let kernel = Duration::from_millis(kernel_ms);
    let work = spread::run(&Options { mib, piece_mib, steps, kernel, threads, fork })?;
    Ok(if work.wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
