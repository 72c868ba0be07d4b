//! The worker: all of CUDA, and everything that rotad does for programs. It may be killed at any instant: the supervisor
//! starts the next one, which takes over from the keeper and from the programs themselves.

use crate::supervisor::outfit::{self, Inherited};
use crate::{background, freezing, gpus, log, notify, rights, second_tier, supervisor};
use anyhow::Context as _;
use keeper::{Node, Patience};
use mover::{Arena, CudaDevice, Device as _, Mover};
use rota_daemon::arbiter::Arbiter;
use rota_daemon::checkpoints::helper::ByHelper;
use rota_daemon::config::{CleanCopies, Config, PassMemory, Standby};
use rota_daemon::conversation::is_guarded;
use rota_daemon::daemon::{About, Freezes, Input, Lost, Rules, Setup, SharedGpu, serve};
use rota_daemon::events::Events;
use rota_daemon::machine;
use rota_daemon::resource_manager::ResourceManager;
use rota_daemon::virtual_machine::{Life, VirtualMachine};
use rustix::process::Signal;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::time::Duration;
use wire::quantity::{Bytes, Span};
use wire::{SelfTest, Setting};

/// How long an earlier worker may take to let go of the GPUs.
const GPU_FREE_WITHIN: Duration = Duration::from_secs(60);

/// Shares the GPUs until it is told to stop, or nobody has been there for long enough.
pub(crate) fn work(config: Config, detached: bool) -> anyhow::Result<ExitCode> {
    // Before anything else: this may begin anew.
    let machine = config.vgpu.as_deref().map(VirtualMachine::enter).transpose()?;
    let Inherited {
        listener,
        mut handover,
        begun_ns,
        restarts,
        asked_to_end,
        keeper_pid,
        is_keeper_found,
        supervisor_pid,
    } = Inherited::take()?;
    let _ = rustix::thread::set_name(c"rotad-worker");
    die_of_panics();
    let events = Events::begin(config.events.as_deref()).with_context(|| {
        format!("cannot write events to {}", config.events.as_deref().unwrap_or(Path::new("-")).display())
    })?;
    let events = events.since(begun_ns);
    events.note("worker", json!({ "pid": std::process::id(), "restarts": restarts }));
    let stop = hear_supervisor().context("cannot wait for signals")?;
    rights::raise_file_limit();
    // Who takes programs over must be the only one, and the keeper has one worker at a time.
    let client = keeper::Client::connect(&supervisor::keeper::socket(&config.socket), Patience::default())
        .context("cannot reach the keeper of what is away")?;
    let mut devices = gpus::open(&config.gpus, machine.as_ref())?;
    // Who has just reached the keeper of an earlier worker may find that one on its way out.
    let patience = if is_keeper_found || restarts > 0 { GPU_FREE_WITHIN } else { Duration::ZERO };
    let uuids = devices.iter().map(|device| Arbiter::of_within(device.uuid(), patience));
    let arbiters = uuids.collect::<Result<Vec<_>, _>>()?;
    let usual = Usual::of(machine.as_ref());
    let reserve_bytes = config.reserve.map_or(usual.reserve_bytes, |bytes| bytes.0);
    let nvml = gpus::find_nvml();
    let mut gpus = Vec::new();
    let mut left = handover.read();
    let mut slowest = None;
    for device in &mut devices {
        // Programs of the last worker may be at work: it has tested what there is to test.
        let tested = match left.tests.get(device.uuid()) {
            Some(tested) => *tested,
            None => freezing::choose(device, &config, nvml.as_ref())?,
        };
        left.tests.insert(device.uuid().into(), tested);
        let freezes = if tested.found.is_some() { Freezes::Channels } else { Freezes::Launches };
        let measured = tested.residue_bytes;
        if let Some(found) = tested.found {
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
        gpus.push(SharedGpu {
            uuid: device.uuid().into(),
            name: device.name().into(),
            capacity_bytes,
            reserve_bytes,
            residue_bytes: config.residue.map_or(measured.unwrap_or(usual.residue_bytes), |bytes| bytes.0),
            spare_bytes: total - capacity_bytes,
            freezes,
        });
    }
    let all_freeze = gpus.iter().all(|gpu: &SharedGpu| gpu.freezes == Freezes::Channels);
    handover.write(&left);
    let arena = Arena::open(client, devices[0].registrar())?;
    arena.end_with_process();
    let arena_bytes = arena.size_bytes();
    if machine.is_none() {
        gpus.iter_mut().for_each(|gpu| gpu.reserve_bytes += tables_bytes(arena_bytes));
    }
    if let Some(wanted) = config.arena.filter(|wanted| wanted.0 != arena_bytes) {
        log::say(format_args!(
            "arena = {wanted} is not in force: the keeper of an earlier daemon has {}, and keeps it until it ends, which it \
             does when this daemon does, or when nothing is away and there is no worker",
            Bytes(arena_bytes)
        ));
    }
    // Before the core hears how much may be away: some of that may be there.
    second_tier::open(&arena, &config)?;
    // What the last worker had under way: the keeper waits for the end of its process.
    if let Err(cause) = arena.reclaim() {
        tracing::warn!("space that the last worker had reserved is not used: {cause}");
    }
    let turns = turns(&config.sharing);
    let mut sharing = config.sharing;
    if config.oversize_max.is_none() {
        sharing.host_max = sched::Bytes(usual_oversize_bytes(config.vgpu.as_deref())?);
    }
    let rules = Rules {
        arena_bytes: arena.size_bytes() + arena.cellar_room_bytes(),
        settings: sharing,
        turn_jitter: config.turn_jitter,
        seed: u64::from(std::process::id()),
    };
    let sizes = [
        ("capacity", gpus.iter().map(|gpu| gpu.capacity_bytes).max().unwrap_or(0)),
        ("arena", arena_bytes),
        ("oversize_max", rules.settings.host_max.0),
        ("reserve", reserve_bytes),
        ("residue", gpus[0].residue_bytes),
    ];
    let setup = Setup {
        gpus,
        vgpu: machine.as_ref().map(|machine| machine.folder().into()),
        rules,
        rehome: config.rehome.every(),
        stands_by: config.standby == Standby::Auto,
        about: About {
            config: config.file.map(|file| file.display().to_string()),
            settings: in_force(config.settings, &sizes),
            // Where one GPU's programs cannot be frozen, nobody is to rely on it.
            self_test: slowest.filter(|_| all_freeze),
            idle_exit: config.idle_exit.map(|span| span.0),
            supervisor_pid: Some(supervisor_pid),
            keeper_pid: Some(keeper_pid),
            restarts,
            rules: config.rules,
        },
        manager: ResourceManager::SYSTEM,
        checkpoints: Some(Arc::new(ByHelper::default())),
    };
    if !listener.is_open() {
        listener.open(&config.socket).context(supervisor::IS_ANOTHER_THERE)?;
        if config.everybody {
            std::fs::set_permissions(&config.socket, std::fs::Permissions::from_mode(0o666))
                .with_context(|| format!("cannot let users reach {}", config.socket.display()))?;
        }
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
    // Counted from 1: nobody has served is 0.
    handover.set_served(u64::from(restarts) + 1);
    let files_max = match config.pass_memory {
        PassMemory::User => rights::files_max() / 4 / devices.len().max(1),
        PassMemory::Never => 0,
    };
    let movers =
        devices.into_iter().map(|device| mover(device, &arena, config.clean_copies, files_max)).collect();
    drop(arena);
    let uuids: Vec<String> = setup.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
    notify::ready(&format!("shares {described}"));
    let served = serve(setup, movers, listener, events, Some(handover), |inputs| {
        if let Some(nvml) = nvml {
            machine::watch(nvml, &uuids, inputs.clone());
        }
        if let Some(life) = life {
            tell_of_loss(life, inputs.clone());
        }
        for _ in 0..asked_to_end {
            let _ = inputs.send(Input::Stop);
        }
        pass_on(stop, inputs);
    });
    if served.as_ref().is_err_and(Lost::is_this_workers) {
        die();
    }
    // In this order, so that whoever finds nobody at the socket can take over.
    drop(arbiters);
    let _ = std::fs::remove_file(&config.socket);
    match served {
        Ok(()) => end(),
        Err(lost) => {
            log::say(format_args!("{lost}"));
            Ok(ExitCode::from(supervisor::GPU_GONE))
        }
    }
}

/// A thread that is missing would be missed by programs, which wait for what it does; a worker that is, is replaced. What only
/// ends a conversation is no reason.
fn die_of_panics() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        if !is_guarded() {
            die();
        }
    }));
}

/// Ends this process as if somebody had killed it: the supervisor starts the next one. An orderly end would wait for the
/// driver, which other threads may be in.
fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    std::process::abort()
}

/// Ends this process well, and at once: what it has of the driver, the kernel has back sooner than the driver would give it back.
fn end() -> ! {
    // SAFETY: nobody waits for what would be done at an exit: all that is to be told and kept has been, and no copy is under way.
    unsafe { libc::_exit(libc::EXIT_SUCCESS) }
}

/// The mover of a GPU. Where copies cannot be kept, everything else works.
fn mover(device: CudaDevice, arena: &Arena, copies: CleanCopies, files_max: usize) -> Mover<CudaDevice> {
    let uuid = device.uuid().to_owned();
    let node = device.host_node().map(Node);
    let mut mover = Mover::new(device, arena.near(node));
    mover.keep_files(files_max);
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

/// What the driver's tables of so much pinned memory take on each GPU, and NVML counts for nobody: 8 bytes for a page of 4 KiB.
fn tables_bytes(pinned_bytes: u64) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    (8 * pinned_bytes.div_ceil(PAGE_BYTES)).next_multiple_of(wire::BLOCK_BYTES)
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

/// What programs larger than their GPU may have of the host's memory, where nobody says anything: a quarter of what is free,
/// as the arena has half of it.
fn usual_oversize_bytes(vgpu: Option<&Path>) -> anyhow::Result<u64> {
    let usual = keeper::usual_arena_bytes()? / 2;
    match vgpu {
        // Host memory is all that a virtual GPU takes as well.
        Some(folder) => Ok(usual.min(2 * VirtualMachine::memory_bytes(folder)?)),
        None => Ok(usual),
    }
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

/// What the supervisor has to say. What others send is for the supervisor to hear, which may have got it as well.
fn hear_supervisor() -> std::io::Result<Signals> {
    let unheeded = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&unheeded))?;
    }
    Signals::new([outfit::STOP.as_raw()])
}

/// The first one asks to end when the programs have, a second one to end at once.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_pinned_memory_are_as_large_as_they_were_seen_to_be() {
        const MIB: u64 = 1 << 20;
        // By NVML on an H200: 48 GiB took 96 MiB.
        assert_eq!(tables_bytes(48 << 30), 96 * MIB);
        assert_eq!((tables_bytes(0), tables_bytes(1)), (0, 2 * MIB));
    }
}
