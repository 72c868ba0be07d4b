//! Asks a CUDA driver some hundred questions and compares its answers with those of a real one.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use programs::{conformance, random};

/// Checks that a CUDA driver (libcuda.so.1) answers as a real one does: one line a check, PASS or FAIL.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Only checks whose family/name contains this.
    #[arg(default_value = "")]
    filter: String,
    /// How many of the checks that have a process for themselves run at a time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
}

#[derive(Subcommand)]
enum Command {
    /// Makes random calls and prints a hash of all answers and bytes every 1000 calls.
    Random {
        /// What decides the calls.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many calls.
        #[arg(long, default_value_t = 100_000)]
        calls: u64,
        /// Prints every call from this one on, with its answer.
        #[arg(long)]
        verbose_from: Option<u64>,
    },
    /// Runs some checks of a family, told line by line: what the program starts for itself.
    #[command(hide = true)]
    Part { family: String, first: usize, last: usize },
    /// Takes memory over from an open file: what the program starts for itself.
    #[command(hide = true)]
    Import { file: i32 },
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Random { seed, calls, verbose_from }) => random::run(seed, calls, verbose_from)?,
        Some(Command::Part { family, first, last }) => conformance::child::run(&family, first, last)?,
        Some(Command::Import { file }) => conformance::child::import(file)?,
        None => {
            let score = conformance::parent::run(&arguments.filter, arguments.jobs)?;
            println!(
                "{} checks: {} passed, {} failed",
                score.passed + score.failed,
                score.passed,
                score.failed
            );
            if score.failed > 0 {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
