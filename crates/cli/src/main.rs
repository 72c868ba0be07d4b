//! `rota`: runs programs under the daemon, shows who is there, changes on which terms, and simulates all of it.
//!
//! The command line decides nothing about turns: it asks the daemon and prints, or becomes the program that it was
//! told to run. `args` holds what can be typed, one file per verb what it does, and the rest what verbs share.
//!
//! stdout is data, stderr is for people. Exit codes: 0 done, 1 failed, 2 wrong usage; `run` has its own, in `run`.

mod args;
mod cdi;
mod columns;
mod completions;
mod config;
mod daemon;
mod demo;
mod describe;
mod doctor;
mod elf;
mod manual;
mod pause;
mod ps;
mod quantity;
mod run;
mod set;
mod sim;
mod status;

use anyhow::Context as _;
use args::{Args, CdiVerb, ConfigVerb, Verb};
use clap::FromArgMatches as _;
use daemon::Place;
use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = match args::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return args::complain(error),
    };
    let Args { socket, verb } = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let of_verb = matches.subcommand().map(|(_, matches)| matches).expect("a verb is required");
    let named = socket.filter(|path| !path.as_os_str().is_empty());
    let chosen = named.is_some();
    let place = Place { socket: named.unwrap_or_else(wire::find_socket), chosen };
    let socket = &place.socket;
    let done = match verb {
        Verb::Run(args) => {
            let failure = run::run(&args, of_verb, &place);
            complain(&failure.error);
            return ExitCode::from(failure.exit_code);
        }
        Verb::Sim(verb) => match sim::sim(&verb) {
            Ok(()) => Ok(()),
            Err(error) => {
                complain(&error);
                return sim::exit_code(&error);
            }
        },
        Verb::Doctor(args) => match doctor::doctor(&args, &place) {
            Ok(true) => Ok(()),
            // What failed has been printed.
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => Err(error),
        },
        Verb::Ps(args) => ps::ps(&args, socket),
        Verb::Describe(args) => describe::describe(&args, socket),
        Verb::Status(args) => status::status(&args, socket),
        Verb::Set(args) => set::set(&args, of_verb, socket),
        Verb::Pause(args) => pause::pause(&args, socket),
        Verb::Resume(args) => pause::resume(&args, socket),
        Verb::Config(ConfigVerb::Show(args)) => config::show(&args, socket),
        Verb::Cdi(CdiVerb::Generate(args)) => cdi::generate(&args, &place),
        Verb::Completions(args) => completions::completions(&args),
        Verb::Man(args) => manual::man(&args),
        Verb::Demo(args) => demo::demo(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
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
