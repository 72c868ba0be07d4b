//! `rota`: runs programs under the daemon, shows who is there, and simulates both.
//!
//! The command line decides nothing about turns: it asks the daemon and prints, or becomes the program that it was
//! told to run. `args` holds what can be typed, one file per verb what it does, and the rest what verbs share.
//!
//! stdout is data, stderr is for people. Exit codes: 0 done, 1 failed, 2 wrong usage; `run` has its own, in `run`.

mod args;
mod columns;
mod daemon;
mod demo;
mod ps;
mod quantity;
mod run;
mod sim;

use anyhow::Context as _;
use args::{Args, Verb};
use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Args { socket, verb } = Args::parse();
    let socket = socket.filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(wire::default_socket);
    match verb {
        Verb::Run(args) => {
            let failure = run::run(&args, &socket);
            complain(&failure.error);
            ExitCode::from(failure.exit_code)
        }
        Verb::Ps(args) => match ps::ps(&args, &socket) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(&error);
                ExitCode::FAILURE
            }
        },
        Verb::Demo(args) => match demo::demo(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(&error);
                ExitCode::FAILURE
            }
        },
        Verb::Sim(verb) => match sim::sim(&verb) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(&error);
                sim::exit_code(&error)
            }
        },
    }
}

/// Puts data on stdout.
fn print(text: &str) -> anyhow::Result<()> {
    use std::io::{ErrorKind, Write as _};
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads has seen enough, as `head` does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}

/// Says what failed and why, in one line, then the hint if the error has one.
fn complain(error: &anyhow::Error) {
    use std::io::Write as _;
    // `eprintln!` would panic where stderr is closed, and hide the exit code.
    let _ = writeln!(std::io::stderr(), "rota: {error:#}");
}
