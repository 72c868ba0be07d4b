//! A daemon for one test, and what can be seen of it from outside.

use crate::checkpoints::Refusing;
use crate::documented;
use crate::engine;
use keeper::InProcess;
use mover::fake_device::{FakeDevice, Imports};
use mover::{Arena, Device, Mover, Pace};
use rota_daemon::checkpoints::Checkpoints;
use rota_daemon::daemon::{About, Freezes, Input, Lost, Rules, Setup, SharedGpu, serve};
use rota_daemon::events::Events;
use rota_daemon::executor::Done;
use rota_daemon::machine::{Process, Sight};
use rota_daemon::resource_manager::ResourceManager;
use sched::{Bytes, GpuId, Settings, Span};
use serde_json::Value;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::{
    Answer, BLOCK_BYTES, Command, Connection, FromDaemon, Listener, Listing, Tenant, TenantId, ToDaemon,
    VERSION,
};

/// How long a test looks for what must happen. Far more than it takes, for machines with much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How many of the last events a failing test shows.
const EVENTS_SHOWN: usize = 40;

const LOOK_MIN: Duration = Duration::from_millis(2);
const LOOK_MAX: Duration = Duration::from_millis(20);

/// The usual sizes: two tenants of [`LARGE_BYTES`] do not fit together, two of [`SMALL_BYTES`] do.
pub(crate) const CAPACITY_BYTES: u64 = 16 * BLOCK_BYTES;
pub(crate) const RESERVE_BYTES: u64 = BLOCK_BYTES;
pub(crate) const RESIDUE_BYTES: u64 = BLOCK_BYTES;
pub(crate) const ARENA_BYTES: u64 = 20 * BLOCK_BYTES;

/// More than half of the device.
pub(crate) const LARGE_BYTES: u64 = 8 * BLOCK_BYTES;
/// Less than half of it.
pub(crate) const SMALL_BYTES: u64 = 4 * BLOCK_BYTES;

/// The usual rules: short turns, all of one length.
pub(crate) fn rules() -> Rules {
    turns_of(Duration::from_millis(20))
}

/// The usual rules, with an arena for tenants that have more than usual.
pub(crate) fn roomy() -> Rules {
    Rules { arena_bytes: 2 * CAPACITY_BYTES, ..rules() }
}

/// The usual rules with turns of this length.
pub(crate) fn turns_of(length: Duration) -> Rules {
    let turn = Span(length.as_nanos().try_into().expect("a turn"));
    Rules {
        arena_bytes: ARENA_BYTES,
        settings: Settings { turn_min: turn, turn_max: turn, ..Settings::default() },
        turn_jitter: 0.0,
        seed: 1,
    }
}

/// The first word of a program that sees the daemon's GPU.
pub(crate) fn hello(program: &str) -> ToDaemon {
    hello_in("test", program)
}

/// The same of one in another job.
pub(crate) fn hello_in(job: &str, program: &str) -> ToDaemon {
    let gpus = vec![FakeDevice::new(0).uuid().to_owned()];
    ToDaemon::Hello { version: VERSION, job: job.into(), program: program.into(), gpus }
}

/// Looks until there is something to see.
pub(crate) fn await_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let looked = Instant::now();
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "never happened: {what}");
        // Whoever takes long to look leaves the processor to those that are looked at.
        std::thread::sleep((4 * looked.elapsed()).clamp(LOOK_MIN, LOOK_MAX));
    }
}

/// Looks until it is true.
pub(crate) fn await_that(what: &str, mut look: impl FnMut() -> bool) {
    await_some(what, || look().then_some(()));
}

/// Waits at the door until the daemon lets this one in. Returns its number and its page's file.
pub(crate) fn await_welcome(connection: &Connection) -> (TenantId, OwnedFd) {
    loop {
        match connection.receive::<FromDaemon>().expect("the daemon answers") {
            (FromDaemon::Waiting { .. }, _) => {}
            (FromDaemon::Welcome { tenant, .. }, mut files) => return (tenant, files.pop().expect("a page")),
            (other, _) => panic!("said hello, got {other:?}"),
        }
    }
}

/// Device memory by the tenants' own count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<(AtomicU64, AtomicU64)>);

impl Meter {
    /// A tenant takes memory.
    pub(crate) fn take(&self, bytes: u64) {
        let now = self.0.0.fetch_add(bytes, SeqCst) + bytes;
        self.0.1.fetch_max(now, SeqCst);
    }

    /// A tenant has given memory back.
    pub(crate) fn give(&self, bytes: u64) {
        self.0.0.fetch_sub(bytes, SeqCst);
    }

    /// The most there ever was.
    pub(crate) fn peak(&self) -> u64 {
        self.0.1.load(SeqCst)
    }
}

/// See the module. Dropped, the daemon is made to end.
pub(crate) struct World {
    folder: tempfile::TempDir,
    pub(crate) inputs: Sender<Input>,
    serving: Option<JoinHandle<Result<(), Lost>>>,
    /// What the driver was asked to put away.
    pub(crate) checkpoints: Arc<Refusing>,
    /// How fast its moves go.
    pub(crate) pace: Pace,
    imports: Imports,
    pub(crate) meter: Meter,
    // Dropped after the daemon has ended.
    _keeper: InProcess,
}

impl World {
    /// Starts a daemon.
    pub(crate) fn begin(rules: Rules) -> Self {
        Self::begin_with(rules, About::default())
    }

    /// Starts a daemon with something special about it.
    pub(crate) fn begin_with(rules: Rules, about: About) -> Self {
        Self::with_capacity(CAPACITY_BYTES, rules, about)
    }

    /// Starts a daemon for a GPU of this size.
    pub(crate) fn with_capacity(capacity_bytes: u64, rules: Rules, about: About) -> Self {
        Self::start(1, capacity_bytes, rules, about, &[])
    }

    /// Starts a daemon with a keeper that knows of these from an earlier worker.
    pub(crate) fn after(rules: Rules, survivors: &[(TenantId, keeper::Process)]) -> Self {
        Self::after_on(1, rules, survivors)
    }

    /// The same with several GPUs.
    pub(crate) fn after_on(gpus: u8, rules: Rules, survivors: &[(TenantId, keeper::Process)]) -> Self {
        Self::start(gpus, CAPACITY_BYTES, rules, About::default(), survivors)
    }

    fn start(
        gpus: u8,
        capacity_bytes: u64,
        rules: Rules,
        about: About,
        survivors: &[(TenantId, keeper::Process)],
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let device = FakeDevice::new(capacity_bytes);
        let imports = device.imports();
        let parts = [keeper::Part { bytes: rules.arena_bytes, node: None }];
        let keeper = InProcess::start(&folder.path().join("keeper"), &parts, keeper::SEGMENT_BYTES);
        let keeper = keeper.expect("a small arena");
        let connect = || keeper::Client::connect(keeper.socket(), keeper::Patience::default());
        if !survivors.is_empty() {
            let mut worker = connect().expect("the keeper is there");
            for &(tenant, process) in survivors {
                let number = keeper::TenantNumber(tenant.0);
                worker.introduce(number, process).expect("the keeper answers");
            }
        }
        let client = connect();
        let arena = Arena::open(client.expect("the keeper is there"), device.registrar()).expect("an arena");
        let checkpoints = Arc::new(Refusing::default());
        let asked: Arc<dyn Checkpoints> = checkpoints.clone();
        let mut devices: Vec<_> = (1..gpus).map(|number| device.beside(number, capacity_bytes)).collect();
        devices.insert(0, device);
        let shared = |device: &FakeDevice| SharedGpu {
            uuid: device.uuid().into(),
            name: device.name().into(),
            capacity_bytes,
            reserve_bytes: RESERVE_BYTES,
            residue_bytes: RESIDUE_BYTES,
            spare_bytes: 0,
            freezes: Freezes::default(),
        };
        let setup = Setup {
            rehome: None,
            stands_by: true,
            gpus: devices.iter().map(shared).collect(),
            // So that its end is waited for.
            vgpu: Some("no folder".into()),
            rules,
            about,
            manager: ResourceManager { ioctl: engine::ioctl, owns: |_| true },
            checkpoints: Some(asked),
        };
        let mut movers: Vec<_> =
            devices.into_iter().map(|device| Mover::new(device, arena.clone())).collect();
        movers.iter_mut().for_each(|mover| mover.pass_from(BLOCK_BYTES));
        let pace = movers[0].pace();
        let listener = Listener::bind(&folder.path().join("socket")).expect("a socket");
        let events = Events::begin(Some(&folder.path().join("events"))).expect("a file");
        let (sender, inputs) = mpsc::channel();
        let ready = move |inputs| sender.send(inputs).expect("the test waits for it");
        let serving = std::thread::spawn(move || serve(setup, movers, listener, events, None, ready));
        let inputs = inputs.recv().expect("the daemon starts");
        Self {
            folder,
            inputs,
            serving: Some(serving),
            imports,
            checkpoints,
            pace,
            meter: Meter::default(),
            _keeper: keeper,
        }
    }

    /// Where the daemon listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// NVML sees these on the first GPU, and no tenant.
    pub(crate) fn sees(&self, processes: Vec<Process>) {
        let sight = Sight { gpu: GpuId(0), processes, used: None, books: Arc::default() };
        self.inputs.send(Input::Sight(sight)).expect("the daemon is there");
    }

    /// NVML looks at the first GPU: nobody is seen there, and so much of it is in use.
    pub(crate) fn looks(&self, used_bytes: u64) {
        let (answer, books) = mpsc::channel();
        self.inputs.send(Input::Look(answer)).expect("the daemon is there");
        let books = Arc::new(books.recv().expect("it answers"));
        let sight = Sight { gpu: GpuId(0), processes: vec![], used: Some(Bytes(used_bytes)), books };
        self.inputs.send(Input::Sight(sight)).expect("the daemon is there");
    }

    /// Asks the daemon to stop.
    pub(crate) fn stop(&self) {
        let _ = self.inputs.send(Input::Stop);
    }

    /// The first GPU does nothing for the daemon any more.
    pub(crate) fn breaks(&self) {
        let broken = Done::Broken("as was asked for".into());
        self.inputs.send(Input::Done(broken)).expect("the daemon is there");
    }

    /// How the daemon ended.
    pub(crate) fn end(mut self) -> Result<(), Lost> {
        await_that("the daemon ends", || self.ended());
        let serving = self.serving.take().expect("it ends once");
        serving.join().expect("the daemon does not panic")
    }

    /// Has the daemon ended?
    pub(crate) fn ended(&self) -> bool {
        self.serving.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// What `rota ps` would show.
    pub(crate) fn listing(&self) -> Listing {
        let connection = Connection::connect(&self.socket()).expect("the daemon listens");
        connection.send(&ToDaemon::List { version: VERSION }, &[]).expect("the daemon hears");
        match connection.receive::<FromDaemon>().expect("the daemon answers").0 {
            FromDaemon::Listing(listing) => listing,
            other => panic!("asked for a listing, got {other:?}"),
        }
    }

    /// Has the daemon do something.
    pub(crate) fn command(&self, command: Command) -> Answer {
        let connection = Connection::connect(&self.socket()).expect("the daemon listens");
        connection.send(&ToDaemon::Command { version: VERSION, command }, &[]).expect("the daemon hears");
        match connection.receive::<FromDaemon>().expect("the daemon answers").0 {
            FromDaemon::Answer(answer) => *answer,
            other => panic!("asked for something, got {other:?}"),
        }
    }

    /// A tenant, as `rota ps` would show it.
    pub(crate) fn listed(&self, tenant: TenantId) -> Option<Tenant> {
        self.listing().tenants.into_iter().find(|listed| listed.tenant == tenant)
    }

    /// The timeline so far.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("events")).expect("there are events");
        // The last one may be about to be written.
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        whole.lines().map(|line| serde_json::from_str(line).expect("an event is JSON")).collect()
    }

    /// The events of this name so far.
    pub(crate) fn events_named(&self, name: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["event"] == name).collect()
    }

    /// Bytes that the mover of the first GPU has imported.
    pub(crate) fn imported_bytes(&self) -> u64 {
        self.imports.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
        self.stop();
        if std::thread::panicking() {
            // What led there.
            let events = self.events();
            for event in &events[events.len().saturating_sub(EVENTS_SHOWN)..] {
                eprintln!("{event}");
            }
            return;
        }
        await_that("the daemon ends when it is told to twice", || self.ended());
        if let Some(serving) = self.serving.take() {
            assert!(serving.join().is_ok(), "the daemon panicked");
        }
        documented::check(&self.events());
    }
}
