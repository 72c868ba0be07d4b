//! The main loop: what is heard becomes events for the pure core, its actions become work and messages.
//!
//! It owns the core ([`Turns`]) and the list of tenants, and never blocks on a tenant or on the GPU: connections have
//! threads of their own, and so has the executor.

mod arrivals;

use crate::conversation::Ears;
use crate::events::{Events, Who, nanos};
use crate::executor::{Done, Executor, Work};
use crate::grip::Grip;
use crate::outgoing::Outgoing;
use crate::resource_manager::ResourceManager;
use crate::turns::{Action, Event, Now, Rules, Turns};
use mover::{Device, Mover};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use wire::{
    Connection, FromDaemon, Gpu, GrantId, HandleId, Listener, Listing, SCHEMA_VERSION, SizedHandle, Tenant,
    TenantId,
};

/// Someone who said hello.
#[derive(Debug)]
pub struct Newcomer {
    /// Its process.
    pub pid: u32,
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
    /// A tenant asks for bytes.
    Grow(TenantId, GrantId, u64),
    /// A grant became a handle.
    Allocated(TenantId, GrantId, SizedHandle, OwnedFd),
    /// A grant is not used.
    Returned(TenantId, GrantId),
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
}

/// What the daemon is and how it shares.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The GPU's UUID.
    pub uuid: String,
    /// The GPU's name.
    pub name: String,
    /// Sizes and turns.
    pub rules: Rules,
    /// How to freeze.
    pub manager: ResourceManager,
}

#[derive(Debug)]
struct Known {
    who: Who,
    program: String,
    outgoing: Outgoing,
}

/// Deaths of which a part is still to be cleaned up.
#[derive(Debug, Default)]
struct Dying {
    closed: bool,
    reaped: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub struct Daemon {
    setup: Setup,
    events: Events,
    turns: Turns,
    /// At the door, until there is room.
    arriving: BTreeMap<TenantId, Newcomer>,
    known: BTreeMap<TenantId, Known>,
    dying: BTreeMap<TenantId, Dying>,
    /// Whose turn ends with the shift under way, and how long it was.
    ending: Vec<(TenantId, Duration)>,
    work: Sender<Work>,
    next_tenant: u32,
    epoch: u64,
    stopping: bool,
}

/// Shares the GPU among whoever comes to `listener`, until told to stop through the sender given to `ready`.
pub fn serve<D: Device<Memory: Send> + Send + 'static>(
    setup: Setup,
    mover: Mover<D>,
    listener: Listener,
    events: Events,
    ready: impl FnOnce(Sender<Input>),
) {
    let (inputs, heard) = mpsc::channel();
    let (replies, for_executor) = mpsc::channel();
    let (work, todo) = mpsc::channel();
    let (report, done) = mpsc::channel();
    let executor = Executor::new(mover, for_executor, events.clone());
    let ears = Ears { inputs: inputs.clone(), replies };

    let working = spawn("executor", move || executor.run(&todo, &report));
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
    Daemon::new(setup, events, work.clone()).run(&heard);
    let _ = work.send(Work::Stop);
    let _ = working.join();
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .expect("the system has threads left at the start")
}

impl Daemon {
    fn new(setup: Setup, events: Events, work: Sender<Work>) -> Self {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            turns: Turns::new(setup.rules),
            setup,
            events,
            arriving: BTreeMap::new(),
            known: BTreeMap::new(),
            dying: BTreeMap::new(),
            ending: Vec::new(),
            work,
            next_tenant: 1,
            epoch: nanos(since_epoch.unwrap_or_default()),
            stopping: false,
        }
    }

    fn run(&mut self, heard: &Receiver<Input>) {
        loop {
            let now = self.events.now();
            let input = match self.turns.wake_at() {
                Some(at) => heard.recv_timeout(at.saturating_sub(now)),
                None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match input {
                Ok(Input::Stop) if self.stopping => return,
                Ok(input) => self.take_in(input),
                Err(RecvTimeoutError::Timeout) => self.step(Event::Tick),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.stopping && self.known.is_empty() && self.arriving.is_empty() {
                return;
            }
        }
    }

    fn take_in(&mut self, input: Input) {
        match input {
            Input::Hello(newcomer) => self.hello(newcomer),
            Input::Deserted(connection) => self.desert(&connection),
            Input::Channels(tenant, channels) => {
                self.note("channels", tenant, json!({ "channels": channels }));
                self.step(Event::Context { tenant, present: channels > 0 });
            }
            Input::Grow(tenant, grant, bytes) => self.step(Event::Grow { tenant, grant, bytes }),
            Input::Allocated(tenant, grant, handle, file) => match self.turns.claim(tenant, grant, handle) {
                Ok(()) => self.order(Work::Adopt(tenant, handle, file)),
                Err(reason) => self.put_out(tenant, reason),
            },
            Input::Returned(tenant, grant) => self.step(Event::Returned { tenant, grant }),
            Input::Freed(tenant, handles) => self.order(Work::Forget(tenant, handles)),
            Input::Left(tenant, seen) => {
                self.note("left", tenant, json!({}));
                self.known.remove(&tenant);
                self.dying.entry(tenant).or_default();
                self.order(Work::Reap(tenant, seen));
                self.step(Event::Left(tenant));
            }
            Input::Lingers(tenant) => {
                tracing::warn!(
                    "tenant {tenant} hung up and goes on without rota; what it holds stays counted"
                );
                self.step(Event::Lingers(tenant));
            }
            Input::Closed(tenant) => {
                self.dying.entry(tenant).or_default().closed = true;
                self.bury(tenant);
            }
            Input::List(answer) => {
                let _ = answer.send(self.listing());
            }
            Input::Done(done) => self.done(done),
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
            Done::Adopted { tenant, handle, movable } => {
                self.step(Event::Adopted { tenant, handle, movable });
            }
            Done::Arena(bytes) => self.step(Event::Arena(bytes)),
            Done::Forgotten(handles) => self.step(Event::Freed(handles)),
            Done::Shifted(shifted) => self.step(Event::Shifted(shifted)),
            Done::Reaped(tenant, seen) => {
                self.dying.entry(tenant).or_default().reaped = Some(seen);
                self.bury(tenant);
            }
        }
    }

    /// A death is over when the executor has dropped the imports and the files are closed.
    fn bury(&mut self, tenant: TenantId) {
        if let Some(Dying { closed: true, reaped: Some(seen) }) = self.dying.get(&tenant) {
            self.events.note("reaped", json!({ "tenant": tenant.0, "took_ns": nanos(seen.elapsed()) }));
            self.dying.remove(&tenant);
            self.step(Event::Buried(tenant));
        }
    }

    fn step(&mut self, event: Event) {
        let now = self.events.now();
        let mut begun = None;
        if let Event::Shifted(shifted) = &event {
            for (tenant, ran) in std::mem::take(&mut self.ending) {
                if shifted.froze.contains(&tenant) {
                    self.note("turn_end", tenant, json!({ "ran_ns": nanos(ran) }));
                }
            }
            begun = shifted.thawed;
        }
        let actions = self.turns.step(now, event);
        if let Some(tenant) = begun
            && let Some(described) = self.turns.describe(tenant, now)
        {
            self.note("turn_begin", tenant, json!({ "turn": described.turns }));
        }
        for action in actions {
            self.act(action, now);
        }
    }

    fn act(&mut self, action: Action, now: Now) {
        match action {
            Action::Welcome(tenant) => self.welcome(tenant),
            Action::Grant { tenant, grant } => self.say(tenant, FromDaemon::Granted { grant }),
            Action::Deny { tenant, grant, reason } => {
                self.note("denied", tenant, json!({ "why": reason }));
                self.say(tenant, FromDaemon::Denied { grant, reason });
            }
            Action::Shift(shift) => {
                let ran = |&tenant: &TenantId| Some((tenant, self.turns.running_for(tenant, now)?));
                self.ending = shift.freeze.iter().filter_map(ran).collect();
                self.order(Work::Shift(shift));
            }
        }
    }

    /// What a tenant said cannot be true: nothing it says is believed any more.
    fn put_out(&self, tenant: TenantId, reason: &str) {
        if let Some(known) = self.known.get(&tenant) {
            tracing::warn!("tenant {tenant} is put out: {reason}");
            known.outgoing.hang_up();
        }
    }

    fn say(&self, tenant: TenantId, message: FromDaemon) {
        if let Some(known) = self.known.get(&tenant) {
            // One that cannot be reached is about to be noticed by its own thread.
            let _ = known.outgoing.send(message);
        }
    }

    fn order(&self, work: Work) {
        self.work.send(work).expect("the executor outlives the main loop");
    }

    fn note(&self, event: &str, tenant: TenantId, fields: serde_json::Value) {
        if let Some(known) = self.known.get(&tenant) {
            self.events.note_of(&known.who, event, fields);
        }
    }

    fn listing(&self) -> Listing {
        let now = self.events.now();
        let tenants: Vec<Tenant> = self
            .known
            .iter()
            .filter_map(|(&tenant, known)| {
                let described = self.turns.describe(tenant, now)?;
                Some(Tenant {
                    tenant,
                    pid: known.who.pid,
                    job: known.who.job.clone(),
                    program: known.program.clone(),
                    state: described.state,
                    resident_bytes: described.resident_bytes,
                    away_bytes: described.away_bytes,
                    turns: described.turns,
                    waiting_ns: nanos(described.waiting),
                })
            })
            .collect();
        let gpu = Gpu {
            uuid: self.setup.uuid.clone(),
            name: self.setup.name.clone(),
            capacity_bytes: self.setup.rules.capacity_bytes,
            used_bytes: self.turns.used_bytes(),
            arena_bytes: self.turns.arena_bytes(),
            arena_used_bytes: tenants.iter().map(|tenant| tenant.away_bytes).sum(),
        };
        Listing { schema_version: SCHEMA_VERSION, gpus: vec![gpu], tenants }
    }
}
