//! The executor: what freezes, moves and thaws.
//!
//! For each GPU two threads do what they are told, in order, and report each thing once as [`Done`]; they decide nothing. One
//! switches tenants off and on ([`switching`]), the other owns the mover ([`memory`]): so a freeze never waits for a
//! move, and a tenant runs while others' memory moves. A tenant's answers reach a move through a channel of their own,
//! so that a connection's thread never waits.
//!
//! What joins the two is the tenant's page: it says that all of the tenant's memory is there as long as that is so by
//! the mover's books, and without it nobody is thawed.

mod ahead;
mod homes;
pub mod memory;
mod moves;
pub mod switching;
mod takeover;

use crate::conversation::Belonging;
use crate::daemon::rejoining::TakenOver;
use crate::daemon::{Input, Shown};
use crate::events::{Events, Who};
use crate::grip::Grip;
use crate::outgoing::Outgoing;
use memory::Memory;
use mover::{Device, Mover, Pace, Reply, Reported};
use sched::{Bytes, Deadlines, HandleId, OpId, Outcome, Owned, Scope, Sighting, Slice, Span, TenantId, Time};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::FromDaemon;

/// How long one tenant's freeze or thaw may take at most: it waits for a report of channels, and undoes what failed.
const SWITCH_WITHIN: Duration = Duration::from_secs(5);

/// How many of those may stand in line before one.
const SWITCHES_AHEAD: u32 = 6;

/// How long something that went wrong is not tried again, so that a lasting fault does not spin.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// After this long the core gives something up: longer than anything here takes, because here it is given up first.
pub fn deadlines() -> Deadlines {
    Deadlines {
        grip: span(SWITCH_WITHIN * SWITCHES_AHEAD),
        movement: span(moves::ARENA_WITHIN + 3 * moves::STEP_WITHIN + moves::CELLAR_WITHIN),
        retry: span(RETRY_AFTER),
    }
}

/// A tenant as the executor needs it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Link {
    /// Who it is.
    pub who: Who,
    /// Its process, by the kernel's word.
    pub process: keeper::Process,
    /// Whose memory it may have.
    pub domain: Option<Belonging>,
    /// How to freeze it.
    pub grip: Arc<Grip>,
    /// How to speak to it.
    pub outgoing: Outgoing,
}

/// What the thread that switches is told.
#[derive(Debug)]
pub struct Switch {
    /// The core's name for it. What the core did not ask for is not reported.
    pub op: Option<OpId>,
    /// Whom.
    pub link: Link,
    /// What to do.
    pub to: SwitchTo,
    /// What it is for, for people.
    pub aim: Option<Aim>,
    /// Whose request is expected, and who is to warm up when it is done.
    pub warms: Option<Link>,
    /// Something follows before this instant, once it is done.
    pub then_by: Option<Instant>,
}

/// What the thread that switches hears.
#[derive(Debug)]
pub enum Order {
    /// Do this.
    Switch(Box<Switch>),
    /// Something follows before this instant.
    StandBy(Instant),
}

impl Link {
    /// The GPU is free for its request, or nobody has one: its context is to be loaded. In the page first, for one that is awake.
    pub fn order_warm_up(&self) {
        self.grip.page().order_warm_up();
        self.ring_for_warm_up();
    }

    /// The same is about to be said, to one that stays awake for it. Whether it does: then it is to be rung for, so that it begins to.
    pub fn expect_warm_up(&self) -> bool {
        let awaits = self.grip.page().awaits_warm_ups();
        if awaits {
            self.grip.page().expect_warm_up();
        }
        awaits
    }

    /// Has it look at what its page wants.
    pub fn ring_for_warm_up(&self) {
        // One that cannot be reached is about to be noticed by its own thread.
        let _ = self.outgoing.send_at_once(FromDaemon::WarmUp);
    }
}

/// What a freeze for a hint is to be in time for, on the daemon's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    /// When it was to be ordered.
    pub due: Time,
    /// When it was.
    pub ordered: Time,
    /// When the request is expected.
    pub expect: Time,
}

impl Aim {
    /// For the timeline.
    pub fn fields(&self) -> Value {
        json!({ "due_ns": self.due.0, "ordered_ns": self.ordered.0, "expect_ns": self.expect.0 })
    }
}

/// What is to become of a tenant's channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchTo {
    /// Off the GPU.
    Frozen(Scope),
    /// Off the GPU with what it copies too, if that can be done at once. What it computes is off already.
    FrozenIfReady,
    /// On it, for so long at a time.
    Thawed(Slice),
    /// As it is, for so long at a time.
    Sliced(Slice),
}

/// What the thread that owns the mover is told.
#[derive(Debug)]
pub enum Work {
    /// A tenant came.
    Join(TenantId, Link, keeper::Process),
    /// A tenant of an earlier worker came back.
    TakeOver {
        /// Who.
        tenant: TenantId,
        /// How to freeze it and to speak to it.
        link: Link,
        /// What it is.
        process: keeper::Process,
        /// The keeper does not know it: all that it has is on the device.
        is_new: bool,
        /// All that it has.
        handles: Vec<Reported>,
        /// What of it nobody else has, by its word.
        passable: Vec<u64>,
    },
    /// A tenant of an earlier worker never comes back: what the arena has of it is free.
    Forsake(TenantId),
    /// A tenant of an earlier worker came back, went without a word, and lives: what the arena has of it stays.
    LetGo(TenantId, keeper::Process, Sender<bool>),
    /// A tenant made this handle; its file comes along.
    Adopt(Owned, Bytes, Shown),
    /// Others may have these from now on.
    NeverPass(TenantId, Vec<HandleId>),
    /// A tenant freed these.
    Forget(TenantId, Vec<HandleId>),
    /// Copy out, unmap, create and copy in.
    Move {
        /// The core's name for it.
        op: OpId,
        /// To the arena.
        out: Vec<Owned>,
        /// To the device.
        into: Vec<Owned>,
        /// Free on the device before the first of them goes.
        room: Bytes,
    },
    /// A handle of a tenant lies in the host's memory; its file comes along.
    AdoptHosted(Owned, Bytes, OwnedFd),
    /// Nobody is to have memory of a tenant in the host's any more but itself; whoever asked for that waits to hear whether it is so.
    ForgetHosted(TenantId, Sender<bool>),
    /// Have a tenant make memory of the host's for these.
    Prepare(OpId, TenantId, Vec<Owned>),
    /// Have handles of a tenant change their homes: first these to the host's memory, then those to the device.
    Rehome(OpId, TenantId, Vec<Owned>, Vec<Owned>),
    /// Say where the handles of these are.
    Inspect(OpId, Vec<TenantId>),
    /// A tenant is gone, as seen at this instant.
    Reap(TenantId, Instant),
    /// No more work.
    Stop,
}

/// What is reported.
#[derive(Debug)]
pub enum Done {
    /// An action of the core's is over, since this instant.
    Action(OpId, Outcome, Instant),
    /// A handle is known to the mover, or not.
    Adopted(Owned, bool),
    /// The arena has reached its final size.
    Arena(Bytes),
    /// The device does nothing for this process any more, and why.
    Broken(String),
    /// Handles are gone, the mover's import too.
    Forgotten(TenantId, Vec<HandleId>),
    /// A tenant that left a move unanswered has said something about it.
    Answers(TenantId),
    /// What was seen of a tenant's memory.
    Looked(TenantId, Vec<Sighting>),
    /// A handle that was to change its home has this one: in the host's memory, or not.
    HomeIs(Owned, bool),
    /// What a dead tenant had is free.
    Reaped(TenantId, Instant),
    /// What is left of a tenant that came back.
    TakenOver(TenantId, TakenOver),
    /// Nothing is held of a tenant that is expected again; whoever asked for that waits to hear it.
    LetGo(TenantId, keeper::Process, Sender<bool>),
}

impl Done {
    /// An action is over, just now.
    fn now(op: OpId, outcome: Outcome) -> Self {
        Self::Action(op, outcome, Instant::now())
    }
}

/// How to give work to the threads of one GPU. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Executor {
    work: Sender<Work>,
    switches: Sender<Order>,
    /// Where tenants' answers to moves go.
    pub replies: Sender<Reply>,
    /// How fast moves go.
    pub pace: Pace,
}

/// The threads of one GPU.
#[derive(Debug)]
pub struct Threads {
    switching: JoinHandle<()>,
    memory: JoinHandle<()>,
}

impl Executor {
    /// Starts the threads of a GPU. Memory of programs that are larger than it is looked at so often, if ever.
    pub fn start<D: Device<Memory: Send> + Send + 'static>(
        mover: Mover<D>,
        looks_every: Option<Duration>,
        report: &Sender<Input>,
        events: &Events,
    ) -> (Self, Threads) {
        let (replies, for_moves) = mpsc::channel();
        let (work, todo) = mpsc::channel();
        let (switches, to_switch) = mpsc::channel();
        let pace = mover.pace();
        let memory = Memory::new(mover, for_moves, events.clone(), looks_every);
        let (switched, moved, notes) = (report.clone(), report.clone(), events.clone());
        let threads = Threads {
            switching: spawn("switching", move || switching::run(&to_switch, &switched, &notes)),
            memory: spawn("memory", move || memory.run(&todo, &moved)),
        };
        (Self { work, switches, replies, pace }, threads)
    }

    /// Has the thread that owns the mover do something.
    pub fn order(&self, work: Work) {
        self.work.send(work).expect("the executor outlives the main loop");
    }

    /// Has a tenant switched off or on.
    pub fn switch(&self, switch: Switch) {
        self.switches.send(Order::Switch(Box::new(switch))).expect("the executor outlives the main loop");
    }

    /// Has the thread that switches stay awake until then: something follows.
    pub fn stand_by(&self, until: Instant) {
        self.switches.send(Order::StandBy(until)).expect("the executor outlives the main loop");
    }

    /// Ends, after all that was given to do. Every other clone must be gone.
    pub fn end(self, threads: Threads) {
        let Self { work, switches, .. } = self;
        // Nobody is switched any more, and then nothing moves any more.
        drop(switches);
        let _ = threads.switching.join();
        let _ = work.send(Work::Stop);
        let _ = threads.memory.join();
    }
}

/// Starts a thread at the start of the daemon.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .expect("the system has threads left at the start")
}

/// Tells people that something went wrong with a tenant.
pub(crate) fn complain(events: &Events, who: &Who, what: &str) {
    tracing::error!("tenant {}: {what}", who.tenant);
    events.note_of(who, "error", json!({ "what": what }));
}

fn span(length: Duration) -> Span {
    Span(crate::events::nanos(length))
}
