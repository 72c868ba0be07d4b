//! `rota-keeper`: what can be typed. What it does is in `process`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, clippy::print_stdout)
)]

use clap::Parser;
use rota_keeper::Part;
use rota_keeper::segment::Pages;
use std::path::PathBuf;
use std::process::ExitCode;

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
    #[arg(long = "part", value_name = "SIZE[@NODE]", required = true)]
    parts: Vec<Part>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    rota_keeper::process::run(&arguments.socket, &arguments.parts, Pages::AtOnce)
}
