//! What can be typed. No behaviour lives here beyond checking a value's form.

mod sim;

pub(crate) use sim::{CalibrateArgs, CompareArgs, ListArgs, Scenario, SimArgs, SimVerb, SweepArgs};

use clap::{Args as ArgsOf, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// The most bytes a job's name may have.
pub(crate) const JOB_NAME_BYTES_MAX: usize = 128;

const EXAMPLES: &str = "\
Examples:
  rotad &                            start the daemon
  rota run -- python train.py        run a program; start as many as you like
  rota run --name nightly -- ./sim   the same, under a name of its own
  rota ps                            see who has the GPU and who waits
  rota ps -o json                    the same, for scripts
  rota demo                          watch programs take turns, without a GPU
  rotad --vgpu DIR &                 start the daemon on a virtual GPU, without a real one
  rota run --vgpu -- ./worker        run a program there
  rota sim compare seed-4x12         see what turns are worth, without a GPU";

const RUN_EXAMPLES: &str = "\
Examples:
  rota run -- python train.py --epochs 3
  rota run --name nightly -- ./simulate input.dat
  rota run -q -- sh -c 'prepare && train'
  rota run --vgpu -- ./worker --steps 20";

const RUN_AFTER: &str = "\
The program replaces rota: terminal, signals and exit code are its own.

Exit codes:
  125  rota failed: no daemon, no shim, another kind of GPU than asked for
  126  the program cannot be executed
  127  the program was not found
  else the program's own

Environment, read by rota:
  ROTA_SHIM             the shim's file; else librota_shim.so beside rota or in ../lib/rota
  ROTA_LIBVGPU          with --vgpu, the virtual GPU's library; else libvgpu.so in the same places

Environment, set for the program:
  LD_PRELOAD            the shim, before what was there
  ROTA_SOCKET           the daemon's socket
  ROTA_JOB              the job's name
  CUDA_VISIBLE_DEVICES  the shared GPU, unless it is set already
  with --vgpu           its library in LD_PRELOAD and ROTA_DRIVER, its folder in ROTA_VGPU";

const DEMO_EXAMPLES: &str = "\
Examples:
  rota demo
  rota demo --programs 4 --seconds 20";

const PS_EXAMPLES: &str = "\
Examples:
  rota ps
  rota ps -o json | jq '.tenants[] | select(.state == \"away\")'";

const PS_AFTER: &str = "\
States:
  joined   connected, nothing on the GPU yet
  running  has its turn
  frozen   waits, its memory is on the GPU
  moving   waits, its memory is on its way out or in
  away     waits, its memory is in the host's";

/// Share a GPU between programs that don't know about each other.
#[derive(Debug, Parser)]
#[command(name = "rota", version, before_long_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// The daemon's socket.
    ///
    /// Without it: /run/rota/rotad.sock for root, else rota/rotad.sock in XDG_RUNTIME_DIR, else
    /// /tmp/rota-UID/rotad.sock.
    #[arg(long, global = true, value_name = "PATH", env = "ROTA_SOCKET", help_heading = "Daemon")]
    pub(crate) socket: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a program that shares the GPU.
    #[command(before_long_help = RUN_EXAMPLES, after_long_help = RUN_AFTER)]
    Run(RunArgs),
    /// Show the GPU and who shares it.
    #[command(before_long_help = PS_EXAMPLES, after_long_help = PS_AFTER)]
    Ps(PsArgs),
    /// Watch real programs take turns on a virtual GPU; needs no real one.
    #[command(before_long_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Simulate: run scenarios without a GPU, under rota and under what it is compared with.
    #[command(subcommand, before_long_help = sim::EXAMPLES, after_long_help = sim::AFTER)]
    Sim(SimVerb),
}

#[derive(Debug, ArgsOf)]
pub(crate) struct RunArgs {
    /// The job's name.
    ///
    /// Without it: the program's name and its process number. Inside a job, `rota run` stays in that job.
    #[arg(long, value_name = "JOB", env = "ROTA_JOB", value_parser = job_name)]
    pub(crate) name: Option<String>,

    /// Run it on a virtual GPU, which only a daemon started with `rotad --vgpu DIR` has.
    ///
    /// It is software, small and slow, and knows only the kernels of rota's own programs. Without this flag nothing runs
    /// there.
    #[arg(long)]
    pub(crate) vgpu: bool,

    /// Print no notices.
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct PsArgs {
    /// How to print it.
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct DemoArgs {
    /// How many programs.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=6))]
    pub(crate) programs: u32,

    /// How long each works, in seconds of the clock.
    #[arg(long, value_name = "SECONDS", default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
}

/// How to print data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs: stable keys, bytes and nanoseconds as integers.
    Json,
}

/// A name that fits on a line of `rota ps`.
fn job_name(name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err("a job's name cannot be empty".into());
    }
    if name.len() > JOB_NAME_BYTES_MAX {
        return Err(format!("a job's name has at most {JOB_NAME_BYTES_MAX} bytes, this one {}", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err("a job's name cannot contain control characters".into());
    }
    Ok(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn all_after_the_dashes_is_the_programs() {
        let args =
            Args::parse_from(["rota", "run", "-q", "--", "git", "-q", "--name", "x", "--", "--socket", "y"]);
        let Verb::Run(run) = args.verb else { panic!("not run") };
        assert!(run.quiet);
        assert_eq!(run.command, ["git", "-q", "--name", "x", "--", "--socket", "y"]);
    }

    #[test]
    fn the_socket_may_stand_before_or_after_the_verb() {
        for words in [["rota", "--socket", "/s", "ps"], ["rota", "ps", "--socket", "/s"]] {
            assert_eq!(Args::parse_from(words).socket, Some("/s".into()));
        }
    }

    #[test]
    fn names_that_would_spoil_a_line_are_refused() {
        assert_eq!(job_name("nightly 3"), Ok("nightly 3".into()));
        assert!(job_name("").is_err());
        assert!(job_name("a\nb").is_err());
        assert!(job_name(&"x".repeat(JOB_NAME_BYTES_MAX)).is_ok());
        assert!(job_name(&"x".repeat(JOB_NAME_BYTES_MAX + 1)).is_err());
    }
}
