//! `rota`: runs programs under the daemon and shows who is there.
//!
//! The command line decides nothing about turns: it asks the daemon and prints, or becomes the program that it was
//! told to run. `args` holds what can be typed, one file per verb what it does, and the rest what verbs share.
//!
//! stdout is data, stderr is for people. Exit codes: 0 done, 1 failed, 2 wrong usage; `run` has its own, in `run`.

mod args;
mod daemon;
mod ps;
mod quantity;
mod run;

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
    }
}

/// Says what failed and why, in one line, then the hint if the error has one.
fn complain(error: &anyhow::Error) {
    use std::io::Write as _;
    // `eprintln!` would panic where stderr is closed, and hide the exit code.
    let _ = writeln!(std::io::stderr(), "rota: {error:#}");
}
