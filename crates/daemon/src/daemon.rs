//! The main loop: what is heard becomes events for the pure core, its actions become work and messages.
//!
//! It owns the core ([`sched::Core`]) and the list of tenants, and never blocks on a tenant or on the GPU: connections
//! have threads of their own, and so has the executor of each GPU.
//!
//! - `guests`: how many connections there are, and whose. `arrivals`: how tenants come, `departures`: how they go,
//!   `demands`: what they want meanwhile, `idleness`: when they want nothing; `hints`: what they say of requests to come;
//!   `pins`: what of theirs must stay; `oversize`: what of theirs lies in the host's memory; `publications`: what others may
//!   open; `awaited_names`: and will be able to, soon. `jobs`: which tenants belong together, and on which terms; `limits`: who
//!   may have which, and `programs`: with what; `placing`: on which GPUs.
//! - `sights`: what NVML says of the GPUs, and what follows; `memory_told`: what programs are told of memory.
//! - `deep`: paused jobs that give up their contexts too. `pace`: how gently memory moves.
//! - `actions`: what is done with what the core wants; `toll`: what that costs each tenant, `lc_mode`: and what somebody
//!   latency-critical costs the others. `lengths`: turns that vary.
//! - `rejoining`, `gathering`: how tenants of an earlier worker come back; `mustering`: those on several GPUs; `unshown`: what of
//!   theirs nobody can look at; `inheritance`: and jobs.
//! - `input`: what reaches it; `intake`: who deals with it. `setup`: what is fixed at its start. `commands`: what people ask
//!   for. `listing` and `views`: how things are, for them.

mod actions;
mod arrivals;
mod attention;
mod awaited_names;
pub mod commands;
pub mod deep;
mod demands;
mod departures;
mod gathering;
mod guests;
mod hints;
mod idleness;
mod inheritance;
mod input;
mod intake;
mod jobs;
mod lc_mode;
mod lengths;
mod limits;
mod listing;
mod memory_told;
mod mustering;
mod oversize;
mod pace;
mod pins;
mod placing;
mod programs;
mod promises;
pub mod publications;
pub mod rejoining;
mod setup;
mod sights;
mod toll;
mod unshown;
mod views;
mod warming;

use crate::conversation::{Ears, Files};
use crate::events::{Events, nanos};
use crate::executor::{self, Executor, Link, Work};
use crate::handover::{Handover, Tested};
use arrivals::Arriving;
use awaited_names::AwaitedNames;
use deep::Deep;
use demands::Demands;
use departures::Dying;
use gathering::Gathering;
use hints::Hinting;
use idleness::Idleness;
use jobs::Jobs;
use lc_mode::LcModes;
use lengths::Lengths;
use mover::{Arena, Device, Mover};
use mustering::Mustering;
use pins::Pins;
use promises::Promises;
use publications::Publications;
use rejoining::Returning;
use sched::{Bytes, Core, Event, GpuId, GpuSpec, TenantId, Time, UserId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use toll::{Toll, UnderWay};
use unshown::Unshown;
use warming::Warming;
use wire::{FromDaemon, Listener, be_prompt};

pub use input::{Input, Newcomer, Shown};
pub use setup::{About, Freezes, Rules, Setup, SharedGpu};

/// How long after its work failed the end of a virtual GPU is waited for.
const DEVICE_ENDS_WITHIN: Duration = Duration::from_millis(250);

/// What is gone, and why, so that nothing can go on here.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The GPU: programs lose what they have.
    #[error("{0}")]
    Gpu(String),
    /// The connection to the keeper: the next worker finds everything as it is.
    #[error("the connection to the keeper is lost: {0}")]
    Keeper(String),
    /// What this process has of a GPU: the next worker's works again.
    #[error("the GPU does nothing for this process any more: {0}")]
    Context(String),
}

impl Lost {
    /// Does the next worker find everything as it is?
    pub fn is_this_workers(&self) -> bool {
        matches!(self, Lost::Keeper(_) | Lost::Context(_))
    }
}

#[derive(Debug)]
struct Known {
    link: Link,
    gpu: GpuId,
    program: String,
    /// Its process, if the keeper knew it from an earlier worker.
    came_back: Option<keeper::Process>,
    /// It has channels.
    context: bool,
    idleness: Idleness,
    hinting: Hinting,
    toll: Toll,
    demands: Demands,
    pins: Pins,
    /// What its context takes, by the last looks.
    contexts: sights::Recent,
}

/// See the module.
#[derive(Debug)]
pub struct Daemon {
    setup: Setup,
    events: Events,
    core: Core,
    /// What the core is still to be told: an action may cause an event.
    untold: VecDeque<(Time, Event)>,
    acting: bool,
    lengths: Lengths,
    jobs: Jobs,
    under_way: UnderWay,
    lc_modes: LcModes,
    warming: Warming,
    /// At the door.
    arriving: BTreeMap<TenantId, Arriving>,
    known: BTreeMap<TenantId, Known>,
    /// Of an earlier worker, and being taken over.
    returning: BTreeMap<TenantId, Returning>,
    gathering: Gathering,
    mustering: Mustering,
    awaited_names: AwaitedNames,
    /// For all GPUs.
    arena: Arena,
    handover: Option<Handover>,
    /// What is known of freezing, for the next worker.
    tests: BTreeMap<String, Tested>,
    dying: BTreeMap<TenantId, Dying>,
    /// Whose contexts are put away.
    deep: Deep,
    /// What those who wait were told.
    promises: Promises,
    /// Who else is on the GPUs.
    strangers: sights::Strangers,
    /// When to look for tenants without work.
    look_at: Option<Time>,
    attention: attention::Attention,
    /// Does somebody wait until its handles are pinned?
    pins_wait: bool,
    /// May they be by now?
    pins_may_stay: bool,
    publications: Publications,
    unshown: Unshown,
    /// One for each GPU.
    executors: Vec<Executor>,
    next_tenant: u64,
    epoch: u64,
    stopping: bool,
    /// Since when nobody is there.
    deserted: Option<Instant>,
    /// Where the core places whoever asks just now, if anywhere, and why.
    placed: Option<(Vec<GpuId>, String)>,
    lost: Option<Lost>,
}

/// Shares the GPUs, each through its mover, among whoever comes to `listener`, until told to stop through the sender given to
/// `ready`. After the loss of the GPU its threads may still be in calls that never return: the process has to end.
pub fn serve<D: Device<Memory: Send> + Send + 'static>(
    setup: Setup,
    movers: Vec<Mover<D>>,
    listener: Listener,
    events: Events,
    handover: Option<Handover>,
    ready: impl FnOnce(Sender<Input>),
) -> Result<(), Lost> {
    assert_eq!(setup.gpus.len(), movers.len(), "each GPU has a mover");
    let arena = movers[0].arena().clone();
    let (inputs, heard) = mpsc::channel();
    let started = movers.into_iter().map(|mover| Executor::start(mover, setup.rehome, &inputs, &events));
    let (executors, threads): (Vec<_>, Vec<_>) = started.unzip();
    let looks_at_programs = !setup.about.rules.commands.is_empty();
    let ears = Ears { inputs: inputs.clone(), files: Files::of_this_process(), looks_at_programs };
    executor::spawn("acceptor", move || arrivals::accept(&listener, &ears));
    let mut daemon = Daemon::new(setup, events.clone(), executors.clone(), arena, handover);
    daemon.deep = Deep::reporting_to(inputs.clone());
    daemon.watch_roots(&inputs);
    ready(inputs);
    be_prompt();
    let ended = daemon.run(heard);
    events.write_aside(false);
    if ended.is_err() {
        // Left without anybody who gives them work, the memory threads would give back what is gone, and fail.
        std::mem::forget(executors);
        return ended;
    }
    for (executor, threads) in executors.into_iter().zip(threads) {
        executor.end(threads);
    }
    Ok(())
}

impl Daemon {
    fn new(
        mut setup: Setup,
        events: Events,
        executors: Vec<Executor>,
        arena: Arena,
        handover: Option<Handover>,
    ) -> Self {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let rules = &mut setup.rules;
        rules.settings.deadlines = executor::deadlines();
        rules.settings.context =
            setup.gpus.iter().map(|gpu| Bytes(gpu.residue_bytes)).max().unwrap_or_default();
        let arena_bytes = Bytes(rules.arena_bytes);
        let attention = attention::Attention::new(setup.stands_by);
        let mut daemon = Self {
            core: Core::new(rules.settings.clone()),
            lengths: Lengths::new(rules.settings.clone(), rules.turn_jitter, rules.seed),
            setup,
            events,
            untold: VecDeque::new(),
            acting: false,
            jobs: Jobs::default(),
            under_way: UnderWay::default(),
            lc_modes: LcModes::default(),
            warming: Warming::default(),
            arriving: BTreeMap::new(),
            known: BTreeMap::new(),
            returning: BTreeMap::new(),
            gathering: Gathering::of(&arena),
            mustering: Mustering::default(),
            awaited_names: AwaitedNames::of(!arena.found().is_empty()),
            next_tenant: arena.highest_tenant().map_or(0, |highest| u64::from(highest.0)) + 1,
            arena,
            handover,
            tests: BTreeMap::new(),
            dying: BTreeMap::new(),
            deep: Deep::default(),
            promises: Promises::default(),
            strangers: sights::Strangers::default(),
            look_at: None,
            attention,
            pins_wait: false,
            pins_may_stay: false,
            publications: Publications::default(),
            unshown: Unshown::default(),
            executors,
            epoch: nanos(since_epoch.unwrap_or_default()),
            stopping: false,
            deserted: Some(Instant::now()),
            placed: None,
            lost: None,
        };
        for (uid, weight) in daemon.setup.about.rules.weights.clone() {
            daemon.step(Event::User { user: UserId(uid), weight });
        }
        for (number, gpu) in (0..).zip(daemon.setup.gpus.clone()) {
            let spec = GpuSpec {
                capacity: Bytes(gpu.capacity_bytes),
                reserve: Bytes(gpu.reserve_bytes),
                numa: 0,
                links: Vec::new(),
            };
            daemon.step(Event::Gpu { gpu: GpuId(number), spec });
        }
        daemon.step(Event::Arena(arena_bytes));
        daemon.take_up_jobs();
        daemon
    }

    /// Takes what is heard with it: at its end nobody waits for an answer any more.
    fn run(mut self, heard: Receiver<Input>) -> Result<(), Lost> {
        loop {
            let wake = [self.core.wake_at(), self.look_at, self.give_up_at()].into_iter().flatten().min();
            let wake = wake.map(|at| Duration::from_nanos(at.since(self.now()).0));
            let wakes = [
                wake,
                self.ends_within(),
                self.gathering.wake_within(),
                self.mustering.wake_within(),
                self.names_wake_within(),
                self.deep_wakes_within(),
                self.unshown.wake_within(),
            ];
            let input = match wakes.into_iter().flatten().min() {
                Some(within) => self.hear(&heard, within),
                None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match input {
                Ok(Input::Stop) if self.stopping => {
                    self.dismiss("the daemon was stopped");
                    return Ok(());
                }
                Ok(input) => {
                    // What is due goes first: as long as there is something to hear, nothing else would say that it is time.
                    if self.is_due() {
                        self.step(Event::Tick);
                    }
                    if let Some(input) = self.hold_back(input) {
                        self.take_in(input);
                    }
                }
                Err(RecvTimeoutError::Timeout) if self.ends_within() == Some(Duration::ZERO) => {
                    tracing::info!("nobody was here for a while: the daemon ends");
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => self.step(Event::Tick),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if let Some(lost) = self.lost.take() {
                let lost = self.what_is_lost(lost, &heard);
                if lost.is_this_workers() {
                    return Err(self.leave_unanswered(heard, lost));
                }
                self.dismiss(&lost.to_string());
                return Err(lost);
            }
            if let Some(why) = self.arena.lost() {
                return Err(self.leave_unanswered(heard, Lost::Keeper(why)));
            }
            self.set_pace();
            self.look_for_the_expected();
            self.look_at_musters();
            self.thaw_held();
            self.deny_late_names();
            self.pin_unshown();
            self.leave_jobs();
            self.answer_pins();
            self.look_deep();
            if self.look_at.is_some_and(|at| at <= self.now()) {
                self.look();
            }
            if self.give_up_at().is_some_and(|at| at <= self.now()) {
                self.give_up();
            }
            let nobody_is_here = self.known.is_empty()
                && self.arriving.is_empty()
                && self.returning.is_empty()
                && !self.gathering.expects();
            if self.stopping && nobody_is_here {
                return Ok(());
            }
            let nobody = nobody_is_here && self.jobs.is_empty();
            self.deserted = nobody.then(|| self.deserted.unwrap_or_else(Instant::now));
        }
    }

    /// Work also fails where the GPU itself is gone, which is heard of a virtual one, before that or a little later: the next worker
    /// would begin anew on another.
    fn what_is_lost(&mut self, lost: Lost, heard: &Receiver<Input>) -> Lost {
        if self.setup.vgpu.is_none() || !matches!(lost, Lost::Context(_)) {
            return lost;
        }
        let until = Instant::now() + DEVICE_ENDS_WITHIN;
        let mut unanswered = Vec::new();
        while let Ok(input) = heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
            match input {
                Input::Lost(reason) => {
                    self.lose(reason);
                    break;
                }
                other => unanswered.push(other),
            }
        }
        // Whoever asked meanwhile is not to be told either that nobody answers.
        std::mem::forget(unanswered);
        self.lost.take().unwrap_or(lost)
    }

    /// Who waits for an answer gets it from the next worker, and is told nothing before this process ends: that the daemon stops,
    /// say, which conversations take from it that nobody hears them any more.
    fn leave_unanswered(self, heard: Receiver<Input>, lost: Lost) -> Lost {
        std::mem::forget((self, heard));
        lost
    }

    /// Is it time for something that the core wanted to do?
    fn is_due(&self) -> bool {
        self.core.wake_at().is_some_and(|at| at <= self.now())
    }

    /// How long it stays, if nobody comes.
    fn ends_within(&self) -> Option<Duration> {
        Some(self.setup.about.idle_exit?.saturating_sub(self.deserted?.elapsed()))
    }

    /// Tells those who cannot go on without this daemon that there is nothing to wait for.
    fn dismiss(&self, reason: &str) {
        let away = self.known.values().filter(|known| !known.link.grip.page().resident());
        for known in away {
            known.link.outgoing.last_word(&FromDaemon::Lost { reason: reason.into() });
        }
    }

    fn lose(&mut self, reason: String) {
        tracing::error!("{reason}; {} programs lose it", self.known.len());
        self.events.note("lost", serde_json::json!({ "reason": reason }));
        self.lost = Some(Lost::Gpu(reason));
    }

    fn now(&self) -> Time {
        Time(nanos(self.events.now()))
    }

    /// Tells the core what happened, and does what it wants. What happens meanwhile is told after that.
    fn step(&mut self, event: Event) {
        self.step_at(self.now(), event);
    }

    /// The same, of what happened a moment ago: a turn begins when its tenant is on, not when that is heard of.
    fn step_at(&mut self, at: Time, event: Event) {
        self.untold.push_back((at, event));
        while !self.acting
            && let Some((at, event)) = self.untold.pop_front()
        {
            let actions = self.core.step(at, event);
            self.acting = true;
            for action in actions {
                self.act(action);
            }
            self.acting = false;
            self.note_lc_modes(at);
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

    /// The GPUs by number.
    fn gpus(&self) -> impl Iterator<Item = (GpuId, &SharedGpu)> {
        (0..).map(GpuId).zip(&self.setup.gpus)
    }

    fn gpu(&self, gpu: GpuId) -> &SharedGpu {
        &self.setup.gpus[usize::from(gpu.0)]
    }

    fn executor(&self, gpu: GpuId) -> &Executor {
        &self.executors[usize::from(gpu.0)]
    }

    /// Gives work to whoever does it for a tenant's GPU. Nothing is left to do for one who is gone.
    fn order_for(&self, tenant: TenantId, work: Work) {
        if let Some(known) = self.known.get(&tenant) {
            self.executor(known.gpu).order(work);
        }
    }

    fn note(&self, event: &str, tenant: TenantId, fields: serde_json::Value) {
        if let Some(known) = self.known.get(&tenant) {
            self.events.note_of(&known.link.who, event, fields);
        }
    }
}
