//! The main loop: what is heard becomes events for the pure core, its actions become work and messages.
//!
//! It owns the core ([`sched::Core`]) and the list of tenants, and never blocks on a tenant or on the GPU: connections
//! have threads of their own, and so has the executor.
//!
//! - `arrivals`: how tenants come, `departures`: how they go, `demands`: what they want meanwhile, `idleness`: when they
//!   want nothing. `jobs`: which tenants belong together.
//! - `actions`: what is done with what the core wants. `lengths`: turns that vary. `listing`: `rota ps`.

mod actions;
mod arrivals;
mod demands;
mod departures;
mod idleness;
mod jobs;
mod lengths;
mod listing;

use crate::conversation::Ears;
use crate::events::{Events, nanos};
use crate::executor::memory::Memory;
use crate::executor::{self, Done, Link, Switch, Work, switching};
use crate::grip::Grip;
use crate::resource_manager::ResourceManager;
use arrivals::Arriving;
use demands::Demands;
use departures::Dying;
use idleness::Idleness;
use jobs::Jobs;
use lengths::Lengths;
use mover::{Device, Mover};
use sched::{Bytes, Core, Event, GpuId, GpuSpec, HandleId, Owned, RequestId, TenantId, Time};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use wire::{Connection, FromDaemon, Listener, Listing};

/// The one GPU.
const GPU: GpuId = GpuId(0);

/// Someone who said hello.
#[derive(Debug)]
pub struct Newcomer {
    /// Its process.
    pub pid: u32,
    /// Whose process.
    pub uid: u32,
    /// Its job.
    pub job: String,
    /// The program's name.
    pub program: String,
    /// How to speak to it.
    pub connection: Arc<Connection>,
    /// Gets its number and the grip on it; dropped if it is refused.
    pub answer: Sender<(TenantId, Arc<Grip>)>,
}

/// What reaches the main loop.
#[derive(Debug)]
pub enum Input {
    /// A tenant wants in.
    Hello(Newcomer),
    /// Someone at the door went away.
    Deserted(Arc<Connection>),
    /// A tenant has this many channels now.
    Channels(TenantId, usize),
    /// A tenant that was idle has work.
    Wants(TenantId),
    /// A tenant asks for bytes.
    Grow(TenantId, RequestId, Bytes),
    /// A grant became a handle of so many bytes.
    Allocated(RequestId, Owned, Bytes, OwnedFd),
    /// A grant is not used.
    Returned(TenantId, RequestId),
    /// Handles were freed.
    Freed(TenantId, Vec<HandleId>),
    /// A tenant is gone, seen at this instant.
    Left(TenantId, Instant),
    /// A tenant that hung up is still alive.
    Lingers(TenantId),
    /// Its process is gone and its control files are closed.
    Closed(TenantId),
    /// Who is there?
    List(Sender<Listing>),
    /// The executor has finished something.
    Done(Done),
    /// End when the last tenant has left; said twice, at once.
    Stop,
    /// The GPU is gone, for this reason. End at once: nothing can be done for anybody.
    Lost(String),
}

/// The GPU is gone, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Lost(pub String);

/// The sizes that stay as they are while the daemon runs, and the settings it begins with.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The GPU's size as it is treated.
    pub capacity_bytes: u64,
    /// What the daemon's own context takes.
    pub reserve_bytes: u64,
    /// What each tenant's context takes while it exists.
    pub residue_bytes: u64,
    /// Host memory for what is away.
    pub arena_bytes: u64,
    /// The core's. Its deadlines are the daemon's own, see [`executor::deadlines`].
    pub settings: sched::Settings,
    /// By which share of its length a turn varies.
    pub turn_jitter: f64,
    /// Where the variation begins.
    pub seed: u64,
}

/// What the daemon is and how it shares.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The GPU's UUID.
    pub uuid: String,
    /// The GPU's name.
    pub name: String,
    /// The folder of its virtual machine, if it is one in software.
    pub vgpu: Option<String>,
    /// Sizes and settings.
    pub rules: Rules,
    /// How to freeze.
    pub manager: ResourceManager,
}

#[derive(Debug)]
struct Known {
    link: Link,
    program: String,
    /// It has channels.
    context: bool,
    idleness: Idleness,
    demands: Demands,
}

/// See the module.
#[derive(Debug)]
pub struct Daemon {
    setup: Setup,
    events: Events,
    core: Core,
    /// What the core is still to be told: an action may cause an event.
    untold: VecDeque<Event>,
    acting: bool,
    lengths: Lengths,
    jobs: Jobs,
    /// At the door.
    arriving: BTreeMap<TenantId, Arriving>,
    known: BTreeMap<TenantId, Known>,
    dying: BTreeMap<TenantId, Dying>,
    /// When to look for tenants without work.
    look_at: Option<Time>,
    work: Sender<Work>,
    switches: Sender<Switch>,
    next_tenant: u64,
    epoch: u64,
    stopping: bool,
    lost: Option<Lost>,
}

/// Shares the GPU among whoever comes to `listener`, until told to stop through the sender given to `ready`. After the loss of
/// the GPU its threads may still be in calls that never return: the process has to end.
pub fn serve<D: Device<Memory: Send> + Send + 'static>(
    setup: Setup,
    mover: Mover<D>,
    listener: Listener,
    events: Events,
    ready: impl FnOnce(Sender<Input>),
) -> Result<(), Lost> {
    let (inputs, heard) = mpsc::channel();
    let (replies, for_moves) = mpsc::channel();
    let (work, todo) = mpsc::channel();
    let (switches, to_switch) = mpsc::channel();
    let (report, done) = mpsc::channel();
    let memory = Memory::new(mover, for_moves, events.clone());
    let ears = Ears { inputs: inputs.clone(), replies };

    let (switched, notes) = (report.clone(), events.clone());
    let switching = spawn("switching", move || switching::run(&to_switch, &switched, &notes));
    let moving = spawn("memory", move || memory.run(&todo, &report));
    let done_inputs = inputs.clone();
    spawn("reports", move || {
        for done in done {
            if done_inputs.send(Input::Done(done)).is_err() {
                return;
            }
        }
    });
    spawn("acceptor", move || arrivals::accept(&listener, &ears));
    ready(inputs);
    if let Err(lost) = Daemon::new(setup, events, work.clone(), switches).run(&heard) {
        // Left without anybody who gives it work, the memory thread would give back what is gone, and fail.
        std::mem::forget(work);
        return Err(lost);
    }
    // Nobody is switched any more, and then nothing moves any more.
    let _ = switching.join();
    let _ = work.send(Work::Stop);
    let _ = moving.join();
    Ok(())
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .expect("the system has threads left at the start")
}

impl Daemon {
    fn new(mut setup: Setup, events: Events, work: Sender<Work>, switches: Sender<Switch>) -> Self {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let rules = &mut setup.rules;
        rules.settings.deadlines = executor::deadlines();
        let spec = GpuSpec {
            capacity: Bytes(rules.capacity_bytes),
            reserve: Bytes(rules.reserve_bytes),
            numa: 0,
            links: Vec::new(),
        };
        let arena = Bytes(rules.arena_bytes);
        let mut daemon = Self {
            core: Core::new(rules.settings.clone()),
            lengths: Lengths::new(rules.settings.clone(), rules.turn_jitter, rules.seed),
            setup,
            events,
            untold: VecDeque::new(),
            acting: false,
            jobs: Jobs::default(),
            arriving: BTreeMap::new(),
            known: BTreeMap::new(),
            dying: BTreeMap::new(),
            look_at: None,
            work,
            switches,
            next_tenant: 1,
            epoch: nanos(since_epoch.unwrap_or_default()),
            stopping: false,
            lost: None,
        };
        daemon.step(Event::Gpu { gpu: GPU, spec });
        daemon.step(Event::Arena(arena));
        daemon
    }

    fn run(mut self, heard: &Receiver<Input>) -> Result<(), Lost> {
        loop {
            let input = match [self.core.wake_at(), self.look_at].into_iter().flatten().min() {
                Some(at) => heard.recv_timeout(Duration::from_nanos(at.since(self.now()).0)),
                None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match input {
                Ok(Input::Stop) if self.stopping => return Ok(()),
                Ok(input) => self.take_in(input),
                Err(RecvTimeoutError::Timeout) => self.step(Event::Tick),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if let Some(lost) = self.lost.take() {
                return Err(lost);
            }
            if self.look_at.is_some_and(|at| at <= self.now()) {
                self.look();
            }
            if self.stopping && self.known.is_empty() && self.arriving.is_empty() {
                return Ok(());
            }
        }
    }

    fn lose(&mut self, reason: String) {
        tracing::error!("{reason}; {} programs lose it", self.known.len());
        self.events.note("lost", serde_json::json!({ "reason": reason }));
        self.lost = Some(Lost(reason));
    }

    fn now(&self) -> Time {
        Time(nanos(self.events.now()))
    }

    fn take_in(&mut self, input: Input) {
        match input {
            Input::Hello(newcomer) => self.hello(newcomer),
            Input::Deserted(connection) => self.desert(&connection),
            Input::Channels(tenant, channels) => self.has_channels(tenant, channels > 0),
            Input::Wants(tenant) => self.wants(tenant),
            Input::Grow(tenant, request, bytes) => self.ask(tenant, request, bytes),
            Input::Allocated(request, owned, bytes, file) => self.claim(request, owned, bytes, file),
            Input::Returned(tenant, request) => self.step(Event::Returned { tenant, request }),
            Input::Freed(tenant, handles) => self.free(tenant, handles),
            Input::Left(tenant, seen) => self.leave(tenant, seen),
            Input::Lingers(tenant) => {
                tracing::warn!(
                    "tenant {tenant} hung up and goes on without rota; what it holds stays counted"
                );
                self.step(Event::Lingers(tenant));
            }
            Input::Closed(tenant) => self.closed(tenant),
            Input::List(answer) => {
                let _ = answer.send(self.listing());
            }
            Input::Done(done) => self.done(done),
            Input::Lost(reason) => self.lose(reason),
            Input::Stop => {
                self.stopping = true;
                if !self.known.is_empty() {
                    tracing::warn!(
                        "stopping when {} programs have ended; ask again to stop at once",
                        self.known.len()
                    );
                }
            }
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Action(op, outcome) => self.step(Event::Done { op, outcome }),
            Done::Adopted(owned, movable) => self.step(Event::Adopted { owned, movable }),
            Done::Arena(bytes) => self.step(Event::Arena(bytes)),
            Done::Forgotten(tenant, handles) => self.forgotten(tenant, handles),
            Done::Answers(tenant) => self.step(Event::Answers(tenant)),
            Done::Reaped(tenant, seen) => self.reaped(tenant, seen),
        }
    }

    /// Tells the core what happened, and does what it wants. What happens meanwhile is told after that.
    fn step(&mut self, event: Event) {
        self.untold.push_back(event);
        while !self.acting
            && let Some(event) = self.untold.pop_front()
        {
            let now = self.now();
            let actions = self.core.step(now, event);
            self.acting = true;
            for action in actions {
                self.act(action);
            }
            self.acting = false;
        }
    }

    /// What a tenant said cannot be true: nothing it says is believed any more.
    fn put_out(&self, tenant: TenantId, reason: &str) {
        if let Some(known) = self.known.get(&tenant) {
            tracing::warn!("tenant {tenant} is put out: {reason}");
            known.link.outgoing.hang_up();
        }
    }

    fn say(&self, tenant: TenantId, message: FromDaemon) {
        if let Some(known) = self.known.get(&tenant) {
            // One that cannot be reached is about to be noticed by its own thread.
            let _ = known.link.outgoing.send(message);
        }
    }

    fn order(&self, work: Work) {
        self.work.send(work).expect("the executor outlives the main loop");
    }

    fn note(&self, event: &str, tenant: TenantId, fields: serde_json::Value) {
        if let Some(known) = self.known.get(&tenant) {
            self.events.note_of(&known.link.who, event, fields);
        }
    }
}
