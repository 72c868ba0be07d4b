//! What can be typed after `rotad`, beside its settings.

use clap::parser::ValueSource;
use clap::{ArgMatches, Parser, Subcommand};
use rota_daemon::checkpoints::helper::{self, Asked};
use rota_daemon::config::{Gpus, Settings};
use rota_daemon::self_test;
use std::path::PathBuf;

/// Shares NVIDIA GPUs among the programs started by `rota run`: they take turns, frozen in the middle of a kernel,
/// their memory moved to the host when they do not fit together.
#[derive(Parser)]
#[command(name = "rotad", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Read settings from this file [default: ~/.config/rota/rotad.toml, else /etc/rota/rotad.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Start it apart from the terminal, with a log file, and return when it is ready
    #[arg(long)]
    pub(crate) background: bool,
    /// It was started so
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
    /// It was started because a program needed it: it ends when none has for a while, unless the configuration says otherwise
    #[arg(long, hide = true)]
    pub(crate) on_demand: bool,
    #[command(subcommand)]
    pub(crate) command: Option<Verb>,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Test whether freezing works on this driver, and say how long it takes
    SelfTest {
        /// Which GPUs: `all`, or indices and UUIDs
        #[arg(long, value_name = "GPUS", default_value_t = Gpus::All)]
        gpus: Gpus,
        /// On a virtual machine in this folder
        #[arg(long, value_name = "DIR", env = "ROTA_VGPU")]
        vgpu: Option<PathBuf>,
        /// Print what was found as JSON, too
        #[arg(long)]
        json: bool,
    },
    /// Print how the GPUs here are set up, as JSON
    #[command(hide = true)]
    Look {
        /// On a virtual machine in this folder
        #[arg(long, value_name = "DIR", env = "ROTA_VGPU")]
        vgpu: Option<PathBuf>,
    },
    /// Read the configuration, and print what would be in force, as a file that says the same
    CheckConfig {
        /// The file, instead of the usual ones
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print the manual, or write one page for each command
    Man {
        /// Write the pages there, as rotad.8 and so on
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
    /// What holds memory that is away, started by rotad itself
    #[command(hide = true)]
    Keeper {
        /// Where its worker finds it
        #[arg(long, value_name = "PATH")]
        socket: PathBuf,
        /// What it can hold, and near to which nodes
        #[arg(long = "part", value_name = "BYTES[@NODE]", required = true)]
        parts: Vec<keeper::Part>,
        /// Take memory as it is used, and not all of it before
        #[arg(long)]
        pages_when_used: bool,
        /// The process to end with, once nothing is away
        #[arg(long, value_name = "PID")]
        parent: u32,
    },
    /// What the self-test runs as its tenant
    #[command(name = self_test::TENANT, hide = true)]
    SelfTestTenant {
        /// The process to end with
        #[arg(long, value_name = "PID")]
        parent: u32,
    },
    /// What asks the driver to put a program away, started by rotad itself
    #[command(name = helper::VERB, hide = true)]
    CheckpointStep {
        /// The process to end with
        #[arg(long, value_name = "PID")]
        parent: u32,
        /// The program
        #[arg(long, value_name = "PID")]
        pid: u32,
        /// When that started
        #[arg(long, value_name = "TICKS")]
        start: u64,
        /// What to ask
        asked: Asked,
    },
}

/// The settings that were not typed.
pub(crate) fn from_environment(matches: &ArgMatches) -> Vec<(&'static str, &'static str)> {
    let mut known = vec![("socket", "ROTA_SOCKET"), ("vgpu", "ROTA_VGPU")];
    known.retain(|(key, _)| matches.value_source(key) == Some(ValueSource::EnvVariable));
    known
}
