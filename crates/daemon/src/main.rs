//! `rotad`: its start. `arguments` holds what can be typed; `supervisor` is what then looks after a keeper and a `worker`.

mod arguments;
mod background;
mod freezing;
mod gpus;
mod log;
mod look;
mod manual;
mod notify;
mod rights;
mod second_tier;
mod socket_folder;
mod supervisor;
mod worker;

use anyhow::Context as _;
use arguments::{Arguments, Verb};
use clap::{CommandFactory as _, FromArgMatches as _};
use keeper::segment::Pages;
use rota_daemon::checkpoints::helper;
use rota_daemon::config::{Config, Gpus, Settings};
use rota_daemon::self_test;
use rota_daemon::virtual_machine::VirtualMachine;
use socket_folder::make_folder_of;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use supervisor::outfit;
use wire::SelfTest;
use wire::quantity::Span;

/// How long a daemon stays that was started because a program needed it.
const ON_DEMAND_IDLE_EXIT: Span = Span(Duration::from_secs(60));

fn main() -> ExitCode {
    let matches = Arguments::command().get_matches();
    let mut arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    arguments.settings.from_environment = arguments::from_environment(&matches);
    if let Some(Verb::Keeper { socket, parts, pages_when_used, parent }) = &arguments.command {
        let pages = if *pages_when_used { Pages::WhenUsed } else { Pages::AtOnce };
        return supervisor::keeper::keep(socket, parts, pages, *parent);
    }
    log::start();
    if arguments.on_demand {
        arguments.settings.idle_exit_usual = Some(ON_DEMAND_IDLE_EXIT);
    }
    if arguments.detached {
        background::detach();
    }
    let done = match arguments.command {
        None if !arguments.background => {
            match run(arguments.settings, arguments.config.as_deref(), arguments.detached) {
                Ok(code) => return code,
                Err(cause) => Err(cause),
            }
        }
        None => start(arguments.settings, arguments.config.as_deref()),
        Some(Verb::SelfTest { gpus, vgpu, json }) => test(&gpus, vgpu.as_deref(), json),
        Some(Verb::Look { vgpu }) => {
            let machine = vgpu.as_deref().map(VirtualMachine::enter).transpose();
            machine.map_err(Into::into).and_then(|machine| look::look(machine.is_some()))
        }
        Some(Verb::Man { folder }) => manual::man(folder.as_deref()),
        Some(Verb::CheckConfig { config }) => check(arguments.settings, config.as_deref()),
        Some(Verb::SelfTestTenant { parent }) => self_test::tenant(parent),
        Some(Verb::CheckpointStep { parent, pid, start, asked }) => {
            helper::answer(parent, keeper::Process { pid, start_ticks: start }, asked)
        }
        Some(Verb::Keeper { .. }) => unreachable!("it is one above"),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            log::say(format_args!("{cause:#}"));
            ExitCode::FAILURE
        }
    }
}

fn check(flags: Settings, file: Option<&Path>) -> anyhow::Result<()> {
    print!("{}", Config::load(flags, file)?.as_toml()?);
    Ok(())
}

/// The configuration, with the socket's full path: it is removed at the end, from wherever the daemon is then.
fn load(flags: Settings, file: Option<&Path>) -> anyhow::Result<Config> {
    let mut config = Config::load(flags, file)?;
    config.socket = std::path::absolute(&config.socket)
        .with_context(|| format!("cannot tell the full path of {}", config.socket.display()))?;
    Ok(config)
}

fn start(flags: Settings, file: Option<&Path>) -> anyhow::Result<()> {
    // What is wrong with the configuration is better said here than in a log.
    let config = load(flags, file)?;
    make_folder_of(&config.socket, config.everybody)?;
    background::start(&config.socket)
}

/// As the process that people start, or as the worker that it starts.
fn run(flags: Settings, file: Option<&Path>, detached: bool) -> anyhow::Result<ExitCode> {
    let config = load(flags, file)?;
    match outfit::is_worker() {
        true => worker::work(config, detached),
        false => supervisor::supervise(&config, detached),
    }
}

fn test(gpus: &Gpus, folder: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let machine = folder.map(VirtualMachine::enter).transpose()?;
    let folder = std::env::temp_dir();
    let mut slowest = None;
    let nvml = gpus::find_nvml();
    for mut device in gpus::open(gpus, machine.as_ref())? {
        let tested = freezing::test(&mut device, &folder.join("rotad"), nvml.as_ref())?;
        let Some(found) = tested.found else { continue };
        slowest = Some(slowest.map_or(found, |before: SelfTest| before.slower(found)));
    }
    if json {
        println!("{}", serde_json::to_string(&slowest).context("cannot write the result as JSON")?);
    }
    Ok(())
}
