//! `rotad`: its start, and its end. `arguments` holds what can be typed.

mod arguments;
mod background;
mod freezing;
mod gpus;
mod log;
mod look;
mod notify;
mod rights;
mod second_tier;
mod socket_folder;

use anyhow::Context as _;
use arguments::{Arguments, Verb};
use clap::{CommandFactory as _, FromArgMatches as _};
use mover::{Arena, CudaDevice, Device as _, Mover};
use rota_daemon::arbiter::Arbiter;
use rota_daemon::config::{CleanCopies, Config, Gpus, Settings};
use rota_daemon::daemon::{About, Freezes, Input, Rules, Setup, SharedGpu, serve};
use rota_daemon::events::Events;
use rota_daemon::machine;
use rota_daemon::resource_manager::ResourceManager;
use rota_daemon::self_test;
use rota_daemon::virtual_machine::{Life, VirtualMachine};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use socket_folder::make_folder_of;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::Sender;
use std::time::Duration;
use wire::quantity::{Bytes, Span};
use wire::{SelfTest, Setting};

/// How long a daemon stays that was started because a program needed it.
const ON_DEMAND_IDLE_EXIT: Span = Span(Duration::from_secs(60));

fn main() -> ExitCode {
    let matches = Arguments::command().get_matches();
    let mut arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    arguments.settings.from_environment = arguments::from_environment(&matches);
    log::start();
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
        Some(Verb::CheckConfig { config }) => check(arguments.settings, config.as_deref()),
        Some(Verb::SelfTestTenant) => self_test::tenant(),
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
    let config = Config::load(flags, file)?;
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
    rights::raise_file_limit();
    make_folder_of(&config.socket, config.everybody)?;
    let mut devices = gpus::open(&config.gpus, machine.as_ref())?;
    let uuids = devices.iter().map(|device| Arbiter::of(device.uuid()));
    let arbiters = uuids.collect::<Result<Vec<_>, _>>()?;
    let usual = Usual::of(machine.as_ref());
    let nvml = gpus::find_nvml();
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
        None if machine.is_some() => keeper::usual_arena_bytes()?.min(2 * total_bytes),
        None => keeper::usual_arena_bytes()?,
    };
    let mut place = config.socket.clone().into_os_string();
    place.push(".keeper");
    let parts = [keeper::Part { bytes: arena_bytes, node: None }];
    // Dropped after the movers, whose memory it holds.
    let keeper = keeper::InProcess::start(Path::new(&place), &parts, keeper::SEGMENT_BYTES)?;
    let client = keeper::Client::connect(keeper.socket(), keeper::Patience::default())?;
    let arena = Arena::open(client, devices[0].registrar())?;
    second_tier::open(&arena, &config)?;
    let turns = turns(&config.sharing);
    let rules = Rules {
        arena_bytes: arena.size_bytes() + arena.cellar_room_bytes(),
        settings: config.sharing,
        turn_jitter: config.turn_jitter,
        seed: u64::from(std::process::id()),
    };
    let sizes = [
        ("capacity", gpus.iter().map(|gpu| gpu.capacity_bytes).max().unwrap_or(0)),
        ("arena", arena.size_bytes()),
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
    log::say(format_args!(
        "ready at {}: {}{described}, arena {}, {}",
        config.socket.display(),
        machine.as_ref().map_or(String::new(), |machine| format!("virtual, in {}: ", machine.folder())),
        Bytes(arena_bytes),
        turns
    ));
    if let Some(lost) = rights::without_root(config.everybody) {
        log::say(format_args!("{lost}"));
    }
    let life = machine.as_ref().map(VirtualMachine::life).transpose()?;
    if detached {
        background::leave_folder();
    }
    let movers = devices.into_iter().map(|device| mover(device, &arena, config.clean_copies)).collect();
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

/// The mover of a GPU. Where copies cannot be kept, everything else works.
fn mover(device: CudaDevice, arena: &Arena, copies: CleanCopies) -> Mover<CudaDevice> {
    let uuid = device.uuid().to_owned();
    let mut mover = Mover::new(device, arena.clone());
    // Another GPU may have been opened last.
    let kept =
        mover.device_mut().attach().map_err(Into::into).and_then(|()| mover.keep_copies(copies.into()));
    if let Err(cause) = kept {
        tracing::warn!("clean copies are off on {uuid}: {cause}");
    }
    mover
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
    let set = |span: sched::Span| Span(Duration::from_nanos(span.0));
    match (sharing.turn_min, sharing.turn_max) {
        (min, max) if min == max => format!("{policy} turns of {}", set(min)),
        (min, max) => format!("{policy} turns of {} to {}", set(min), set(max)),
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

fn test(gpus: &Gpus, folder: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let machine = folder.map(VirtualMachine::enter).transpose()?;
    let folder = std::env::temp_dir();
    let mut slowest = None;
    let nvml = gpus::find_nvml();
    for mut device in gpus::open(gpus, machine.as_ref())? {
        let found = freezing::test(&mut device, &folder.join("rotad"), nvml.as_ref())?.found;
        slowest = Some(slowest.map_or(found, |before: SelfTest| before.slower(found)));
    }
    if json {
        println!("{}", serde_json::to_string(&slowest).context("cannot write the result as JSON")?);
    }
    Ok(())
}
