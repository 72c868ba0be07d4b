//! The daemon's command line and its start.

use anyhow::{Context as _, anyhow};
use clap::{Parser, Subcommand};
use cuda::{Driver, Library};
use mover::cuda_device::Which;
use mover::{Arena, CudaDevice, Device as _, Mover};
use rota_daemon::arbiter::Arbiter;
use rota_daemon::config::{Config, Settings};
use rota_daemon::daemon::{Input, Rules, Setup, serve};
use rota_daemon::events::Events;
use rota_daemon::quantity::Bytes;
use rota_daemon::resource_manager::ResourceManager;
use rota_daemon::self_test;
use rota_daemon::virtual_machine::{Life, VirtualMachine};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::IsTerminal as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tracing_subscriber::EnvFilter;

/// Shares one NVIDIA GPU among the programs started by `rota run`: they take turns, frozen in the middle of a kernel,
/// their memory moved to the host when they do not fit together.
#[derive(Parser)]
#[command(name = "rotad", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// Read settings from this file [default: ~/.config/rota/rotad.toml, else /etc/rota/rotad.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Test whether freezing works on this driver, and say how long it takes
    SelfTest {
        /// Which GPU, by its index
        #[arg(long, value_name = "INDEX", default_value_t = 0)]
        gpu: u32,
        /// On a virtual machine in this folder
        #[arg(long, value_name = "DIR", env = "ROTA_VGPU")]
        vgpu: Option<PathBuf>,
    },
    /// What the self-test runs as its tenant
    #[command(name = self_test::TENANT, hide = true)]
    SelfTestTenant,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
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
    let done = match arguments.command {
        None => run(arguments.settings, arguments.config.as_deref()),
        Some(Verb::SelfTest { gpu, vgpu }) => test(gpu, vgpu.as_deref()),
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

fn run(flags: Settings, file: Option<&Path>) -> anyhow::Result<()> {
    let config = Config::load(flags, file)?;
    // Before anything else: this may begin anew.
    let machine = config.vgpu.as_deref().map(VirtualMachine::enter).transpose()?;
    let events = Events::begin(config.events.as_deref()).with_context(|| {
        format!("cannot write events to {}", config.events.as_deref().unwrap_or(Path::new("-")).display())
    })?;
    let stop = Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?;
    raise_file_limit();
    make_folder_of(&config.socket)?;
    let mut device = open_gpu(config.gpu, machine.as_ref())?;
    let _arbiter = Arbiter::of(device.uuid())?;
    report_self_test(&device, &config.socket)?;

    let total = device.capacity()?.total_bytes;
    let capacity_bytes = config.capacity.map_or(total, |bytes| bytes.0);
    anyhow::ensure!(
        capacity_bytes <= total,
        "capacity is {}, but the GPU has only {}",
        Bytes(capacity_bytes),
        Bytes(total)
    );
    let arena_bytes = match config.arena {
        Some(bytes) => bytes.0,
        // Host memory is all that a virtual GPU takes as well.
        None if machine.is_some() => Arena::usual_bytes()?.min(2 * total),
        None => Arena::usual_bytes()?,
    };
    let arena = Arena::prepare(arena_bytes, device.registrar())?;
    let turns = turns(&config.sharing);
    let usual = Usual::of(machine.as_ref());
    let rules = Rules {
        capacity_bytes,
        reserve_bytes: config.reserve.map_or(usual.reserve_bytes, |bytes| bytes.0),
        residue_bytes: config.residue.map_or(usual.residue_bytes, |bytes| bytes.0),
        arena_bytes: arena.size_bytes(),
        settings: config.sharing,
        turn_jitter: config.turn_jitter,
        seed: u64::from(std::process::id()),
    };
    let setup = Setup {
        uuid: device.uuid().into(),
        name: device.name().into(),
        vgpu: machine.as_ref().map(|machine| machine.folder().into()),
        rules,
        manager: ResourceManager::SYSTEM,
    };
    let listener = wire::Listener::bind(&config.socket)
        .context("is another rotad running there? `rota ps` shows what it shares")?;
    eprintln!(
        "rotad: ready at {}: {}{} ({}) as {}, arena {}, {}",
        config.socket.display(),
        machine.as_ref().map_or(String::new(), |machine| format!("virtual, in {}: ", machine.folder())),
        setup.name,
        setup.uuid,
        Bytes(capacity_bytes),
        Bytes(arena_bytes),
        turns
    );
    let life = machine.as_ref().map(VirtualMachine::life).transpose()?;
    let served = serve(setup, Mover::new(device, arena), listener, events, |inputs| {
        if let Some(life) = life {
            tell_of_loss(life, inputs.clone());
        }
        pass_on(stop, inputs);
    });
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

fn open_gpu(index: u32, machine: Option<&VirtualMachine>) -> anyhow::Result<CudaDevice> {
    let library = Library::find(None).map_err(|cause| {
        anyhow!("rotad needs NVIDIA's driver: {cause}\nhint: without a GPU, `rotad --vgpu DIR` shares a virtual one")
    })?;
    let driver = Driver::load(library)?;
    let device = CudaDevice::open(Arc::new(driver), &Which::Index(i32::try_from(index)?))
        .with_context(|| format!("cannot use GPU {index}"))?;
    if let Some(machine) = machine {
        machine.has(device.uuid())?;
    }
    Ok(device)
}

fn test(gpu: u32, folder: Option<&Path>) -> anyhow::Result<()> {
    let machine = folder.map(VirtualMachine::enter).transpose()?;
    let device = open_gpu(gpu, machine.as_ref())?;
    let folder = std::env::temp_dir();
    report_self_test(&device, &folder.join("rotad"))
}

fn report_self_test(device: &CudaDevice, socket: &Path) -> anyhow::Result<()> {
    let shim = wire::find_shim()?;
    let socket = socket.with_extension(format!("self-test-{}", std::process::id()));
    let report = self_test::run(&shim, device.uuid(), &socket);
    let _ = std::fs::remove_file(&socket);
    let report = report.with_context(|| format!("freezing cannot be relied on with {}", device.name()))?;
    eprintln!(
        "rotad: self-test: a running kernel was frozen and thawed {} times, freeze at most {:.2} ms, thaw at most {:.2} ms",
        report.rounds,
        report.freeze_max.as_secs_f64() * 1e3,
        report.thaw_max.as_secs_f64() * 1e3
    );
    Ok(())
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

/// The socket's folder: made if it is missing, and only used if nobody else could put another socket there.
fn make_folder_of(socket: &Path) -> anyhow::Result<()> {
    let Some(folder) = socket.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    if !folder.is_dir() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let found = std::fs::metadata(folder).with_context(|| format!("cannot look at {}", folder.display()))?;
    let sticky_or_own = found.mode() & 0o1000 != 0 || found.mode() & 0o022 == 0;
    let owner = rustix::process::geteuid().as_raw();
    anyhow::ensure!(
        sticky_or_own && [owner, 0].contains(&found.uid()),
        "the folder {} is writable by others or belongs to someone else; name another with --socket",
        folder.display()
    );
    Ok(())
}
