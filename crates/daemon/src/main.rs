//! The daemon's command line and its start.

mod background;
mod freezing;
mod look;
mod notify;
mod socket_folder;

use anyhow::{Context as _, anyhow};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use cuda::{Driver, Library};
use mover::cuda_device::Which;
use mover::{Arena, CudaDevice, Device as _, Mover};
use nvml::Nvml;
use rota_daemon::arbiter::Arbiter;
use rota_daemon::config::{Config, Gpus, Settings};
use rota_daemon::daemon::{About, Freezes, Input, Rules, Setup, SharedGpu, serve};
use rota_daemon::events::Events;
use rota_daemon::fitness::{self, mps};
use rota_daemon::machine;
use rota_daemon::resource_manager::ResourceManager;
use rota_daemon::self_test;
use rota_daemon::virtual_machine::{Life, VirtualMachine};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use socket_folder::make_folder_of;
use std::io::IsTerminal as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use wire::quantity::{Bytes, Span};
use wire::{SelfTest, Setting};

/// Shares NVIDIA GPUs among the programs started by `rota run`: they take turns, frozen in the middle of a kernel,
/// their memory moved to the host when they do not fit together.
#[derive(Parser)]
#[command(name = "rotad", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// Read settings from this file [default: ~/.config/rota/rotad.toml, else /etc/rota/rotad.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Start it apart from the terminal, with a log file, and return when it is ready
    #[arg(long)]
    background: bool,
    /// It was started so
    #[arg(long, hide = true)]
    detached: bool,
    /// It was started because a program needed it: it ends when none has for a while, unless the configuration says otherwise
    #[arg(long, hide = true)]
    on_demand: bool,
    #[command(subcommand)]
    command: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
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
    /// Read the configuration, and print what would be in force
    CheckConfig {
        /// The file, instead of the usual ones
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// What the self-test runs as its tenant
    #[command(name = self_test::TENANT, hide = true)]
    SelfTestTenant,
}

/// How long a daemon stays that was started because a program needed it.
const ON_DEMAND_IDLE_EXIT: Span = Span(Duration::from_secs(60));

fn main() -> ExitCode {
    let matches = Arguments::command().get_matches();
    let mut arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    arguments.settings.from_environment = from_environment(&matches);
    let filter = EnvFilter::try_from_env("ROTAD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are for people at a terminal who want them.
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(colours)
        .init();
    if arguments.on_demand {
        arguments.settings.idle_exit_usual = Some(ON_DEMAND_IDLE_EXIT);
    }
    if arguments.detached {
        background::detach();
    }
    let done = match arguments.command {
        None if arguments.background => start(arguments.settings, arguments.config.as_deref()),
        None => run(arguments.settings, arguments.config.as_deref(), arguments.detached),
        Some(Verb::SelfTest { gpus, vgpu, json }) => test(&gpus, vgpu.as_deref(), json),
        Some(Verb::Look { vgpu }) => {
            let machine = vgpu.as_deref().map(VirtualMachine::enter).transpose();
            machine.map_err(Into::into).and_then(|machine| look::look(machine.is_some()))
        }
        Some(Verb::CheckConfig { config }) => check(config.as_deref()),
        Some(Verb::SelfTestTenant) => self_test::tenant(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("rotad: {cause:#}");
            ExitCode::FAILURE
        }
    }
}

/// The settings that were not typed.
fn from_environment(matches: &ArgMatches) -> Vec<(&'static str, &'static str)> {
    let mut known = vec![("socket", "ROTA_SOCKET"), ("vgpu", "ROTA_VGPU")];
    known.retain(|(key, _)| matches.value_source(key) == Some(ValueSource::EnvVariable));
    known
}

fn check(file: Option<&Path>) -> anyhow::Result<()> {
    let config = Config::load(Settings::default(), file)?;
    for setting in &config.settings {
        println!("{} = {}    # {}", setting.key, setting.value, setting.origin);
    }
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

fn run(flags: Settings, file: Option<&Path>, detached: bool) -> anyhow::Result<()> {
    let config = load(flags, file)?;
    // Before anything else: this may begin anew.
    let machine = config.vgpu.as_deref().map(VirtualMachine::enter).transpose()?;
    let events = Events::begin(config.events.as_deref()).with_context(|| {
        format!("cannot write events to {}", config.events.as_deref().unwrap_or(Path::new("-")).display())
    })?;
    let stop = Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?;
    raise_file_limit();
    make_folder_of(&config.socket, config.everybody)?;
    let mut devices = open_gpus(&config.gpus, machine.as_ref())?;
    let uuids = devices.iter().map(|device| Arbiter::of(device.uuid()));
    let arbiters = uuids.collect::<Result<Vec<_>, _>>()?;
    let usual = Usual::of(machine.as_ref());
    let nvml = find_nvml();
    let mut gpus = Vec::new();
    let mut total_bytes = 0;
    let mut slowest = None;
    for device in &mut devices {
        let (freezes, tested) = freezing::choose(device, &config, nvml.as_ref())?;
        let measured = tested.as_ref().and_then(|tested| tested.residue_bytes);
        if let Some(freezing::Tested { found, .. }) = tested {
            slowest = Some(slowest.map_or(found, |before: SelfTest| before.slower(found)));
        }
        let total = device.capacity()?.total_bytes;
        let capacity_bytes = config.capacity.map_or(total, |bytes| bytes.0);
        anyhow::ensure!(
            capacity_bytes <= total,
            "capacity is {}, but {} has only {}",
            Bytes(capacity_bytes),
            device.uuid(),
            Bytes(total)
        );
        total_bytes += total;
        gpus.push(SharedGpu {
            uuid: device.uuid().into(),
            name: device.name().into(),
            capacity_bytes,
            reserve_bytes: config.reserve.map_or(usual.reserve_bytes, |bytes| bytes.0),
            residue_bytes: config.residue.map_or(measured.unwrap_or(usual.residue_bytes), |bytes| bytes.0),
            spare_bytes: total - capacity_bytes,
            freezes,
        });
    }
    let all_freeze = gpus.iter().all(|gpu: &SharedGpu| gpu.freezes == Freezes::Channels);
    let arena_bytes = match config.arena {
        Some(bytes) => bytes.0,
        // Host memory is all that a virtual GPU takes as well.
        None if machine.is_some() => Arena::usual_bytes()?.min(2 * total_bytes),
        None => Arena::usual_bytes()?,
    };
    let arena = Arena::prepare(arena_bytes, devices[0].registrar())?;
    let turns = turns(&config.sharing);
    let rules = Rules {
        arena_bytes: arena.size_bytes(),
        settings: config.sharing,
        turn_jitter: config.turn_jitter,
        seed: u64::from(std::process::id()),
    };
    let sizes = [
        ("capacity", gpus.iter().map(|gpu| gpu.capacity_bytes).max().unwrap_or(0)),
        ("arena", rules.arena_bytes),
        ("reserve", gpus[0].reserve_bytes),
        ("residue", gpus[0].residue_bytes),
    ];
    let setup = Setup {
        gpus,
        vgpu: machine.as_ref().map(|machine| machine.folder().into()),
        rules,
        about: About {
            config: config.file.map(|file| file.display().to_string()),
            settings: in_force(config.settings, &sizes),
            // Where one GPU's programs cannot be frozen, nobody is to rely on it.
            self_test: slowest.filter(|_| all_freeze),
            idle_exit: config.idle_exit.map(|span| span.0),
            rules: config.rules,
        },
        manager: ResourceManager::SYSTEM,
    };
    let listener = wire::Listener::bind(&config.socket)
        .context("is another rotad running there? `rota ps` shows what it shares")?;
    if config.everybody {
        std::fs::set_permissions(&config.socket, std::fs::Permissions::from_mode(0o666))
            .with_context(|| format!("cannot let users reach {}", config.socket.display()))?;
    }
    let described = setup.gpus.iter().map(|gpu| {
        let capacity = Bytes(gpu.capacity_bytes);
        format!("{} ({}) as {capacity}", gpu.name, gpu.uuid)
    });
    let described = described.collect::<Vec<_>>().join(", ");
    eprintln!(
        "rotad: ready at {}: {}{described}, arena {}, {}",
        config.socket.display(),
        machine.as_ref().map_or(String::new(), |machine| format!("virtual, in {}: ", machine.folder())),
        Bytes(arena_bytes),
        turns
    );
    if let Some(lost) = without_root(config.everybody) {
        eprintln!("rotad: {lost}");
    }
    let life = machine.as_ref().map(VirtualMachine::life).transpose()?;
    if detached {
        background::leave_folder();
    }
    let movers = devices.into_iter().map(|device| Mover::new(device, arena.clone())).collect();
    drop(arena);
    let uuids: Vec<String> = setup.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
    notify::ready(&format!("shares {described}"));
    let served = serve(setup, movers, listener, events, |inputs| {
        if let Some(nvml) = nvml {
            machine::watch(nvml, &uuids, inputs.clone());
        }
        if let Some(life) = life {
            tell_of_loss(life, inputs.clone());
        }
        pass_on(stop, inputs);
    });
    // In this order, so that whoever finds nobody at the socket can take over.
    drop(arbiters);
    let _ = std::fs::remove_file(&config.socket);
    Ok(served?)
}

/// Sizes where nobody names others.
struct Usual {
    reserve_bytes: u64,
    residue_bytes: u64,
}

impl Usual {
    fn of(machine: Option<&VirtualMachine>) -> Self {
        match machine.map(VirtualMachine::context_bytes) {
            Some(context) => Self { reserve_bytes: 2 * context, residue_bytes: context },
            // 518 MiB were measured on an H200, and rounded up.
            None => Self { reserve_bytes: 600 << 20, residue_bytes: 544 << 20 },
        }
    }
}

/// The settings, with what defaults have come to on this machine.
fn in_force(mut settings: Vec<Setting>, sizes: &[(&str, u64)]) -> Vec<Setting> {
    for setting in &mut settings {
        if let Some((_, bytes)) = sizes.iter().find(|(key, _)| setting.key == *key) {
            setting.value = Bytes(*bytes).to_string();
        }
    }
    settings
}

/// How turns are given, for people.
fn turns(sharing: &sched::Settings) -> String {
    let policy = format!("{:?}", sharing.policy).to_lowercase();
    match (sharing.turn_min, sharing.turn_max) {
        (min, max) if min == max => format!("{policy} turns of {min}"),
        (min, max) => format!("{policy} turns of {min} to {max}"),
    }
}

/// A first SIGTERM or SIGINT asks to end when the programs have, a second one to end at once.
fn pass_on(mut signals: Signals, inputs: Sender<Input>) {
    std::thread::spawn(move || {
        for _ in signals.forever() {
            notify::stopping();
            if inputs.send(Input::Stop).is_err() {
                return;
            }
        }
    });
}

/// When the device of a virtual machine ends, the GPU is gone.
fn tell_of_loss(life: Life, inputs: Sender<Input>) {
    std::thread::spawn(move || {
        let reason = life.over();
        // The main loop may have ended before.
        let _ = inputs.send(Input::Lost(reason));
    });
}

fn open_gpus(gpus: &Gpus, machine: Option<&VirtualMachine>) -> anyhow::Result<Vec<CudaDevice>> {
    // Before the driver is touched: it would make this process a client of MPS.
    if machine.is_none() {
        mps::none_listens()?;
    }
    let library = Library::find(None).map_err(|cause| {
        anyhow!("rotad needs NVIDIA's driver: {cause}\nhint: without a GPU, `rotad --vgpu DIR` shares a virtual one")
    })?;
    let driver = Arc::new(Driver::load(library)?);
    let wanted = match gpus {
        Gpus::These(these) => these.clone(),
        Gpus::All => (0..CudaDevice::count(&driver)?).map(Which::Index).collect(),
    };
    anyhow::ensure!(!wanted.is_empty(), "the driver is here, but there is no GPU");
    let nvml = find_nvml();
    let mut devices: Vec<CudaDevice> = Vec::new();
    for which in &wanted {
        let one = Gpus::These(vec![which.clone()]);
        let setting = fitness::look(&driver, nvml.as_ref(), which);
        let setting = setting.with_context(|| format!("cannot use GPU {one}"))?;
        fitness::check(&setting, nvml.as_ref())?;
        let device =
            CudaDevice::open(driver.clone(), which).with_context(|| format!("cannot use GPU {one}"))?;
        if let Some(machine) = machine {
            machine.has(device.uuid())?;
        }
        let known = devices.iter().any(|other| other.uuid() == device.uuid());
        anyhow::ensure!(!known, "{} is named twice, by its index and by its UUID", device.uuid());
        devices.push(device);
    }
    Ok(devices)
}

fn test(gpus: &Gpus, folder: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let machine = folder.map(VirtualMachine::enter).transpose()?;
    let folder = std::env::temp_dir();
    let mut slowest = None;
    let nvml = find_nvml();
    for mut device in open_gpus(gpus, machine.as_ref())? {
        let found = freezing::test(&mut device, &folder.join("rotad"), nvml.as_ref())?.found;
        slowest = Some(slowest.map_or(found, |before: SelfTest| before.slower(found)));
    }
    if json {
        println!("{}", serde_json::to_string(&slowest).context("cannot write the result as JSON")?);
    }
    Ok(())
}

/// What a daemon cannot do that root does not run.
fn without_root(everybody: bool) -> Option<String> {
    let uid = rustix::process::geteuid();
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let files = files.map_or(String::new(), |files| format!("; at most {files} files can be open"));
    let others = match everybody {
        true => "programs of other users have to be told of this socket",
        false => "programs of other users are not let in, and use the GPU as if this were not there",
    };
    (!uid.is_root()).then(|| format!("run by user {} and not by root: {others}{files}", uid.as_raw()))
}

/// NVML, if it is there: without it contexts count as what they took at first, and other programs are not seen.
fn find_nvml() -> Option<Nvml> {
    let found = Nvml::find(None);
    if let Err(cause) = &found {
        tracing::warn!("memory of programs outside of rota will not be seen: {cause}");
    }
    found.ok()
}

/// Every tenant is some files here, and its handles are files on their way. The soft limit is a default, not a wish.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(cause) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("cannot raise the limit of open files: {cause}");
    }
}
