//! The virtual machine: all GPUs, all processes, one clock.
//!
//! A pure model: requests, deaths and time come in ([`Machine::handle`], [`Machine::advance`] …), replies and callbacks go out
//! ([`Machine::take_outgoing`]). It makes no system call but through its [`HostMemory`], so it is tested without processes.
//! Each family of requests is an `impl Machine` in the file of its subject.

mod outcome;
mod time;
mod waits;

pub use outcome::{FileKind, Handled, Outcome, Outgoing, Then, refuse};

use std::collections::BTreeMap;

use cuda::CUresult;
use vgpu_messages::quantity::Nanos;
use vgpu_messages::spec::Faults;
use vgpu_messages::*;

use crate::context::Context;
use crate::engine::bus::Bus;
use crate::engine::compute::Compute;
use crate::event::Event;
use crate::faults::FaultState;
use crate::figures::Meter;
use crate::graph::{Captures, Graph, GraphExec};
use crate::host::HostMemory;
use crate::item::{ItemId, Items};
use crate::memory::share::Tokens;
use crate::module::{Function, Module};
use crate::physical::{BlockId, Physical};
use crate::pool::Pool;
use crate::rm::{FileKey, Rm};
use crate::session::{Connection, ConnectionId, Session};
use crate::space::touch::Store;
use crate::stream::Stream;
use time::Timer;
use waits::Wait;

/// One GPU.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) compute: Compute,
    pub(crate) bus: Bus,
    pub(crate) meter: Meter,
}

/// The machine.
#[derive(Debug)]
pub struct Machine {
    pub(crate) spec: Spec,
    pub(crate) devices: Vec<DeviceDescription>,
    pub(crate) now: Nanos,
    pub(crate) store: Store,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) rm: Rm,
    pub(crate) items: Items,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) contexts: BTreeMap<ContextId, Context>,
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    pub(crate) events: BTreeMap<EventId, Event>,
    pub(crate) modules: BTreeMap<ModuleId, Module>,
    pub(crate) functions: BTreeMap<FunctionId, Function>,
    pub(crate) pools: BTreeMap<PoolId, Pool>,
    pub(crate) graphs: BTreeMap<GraphId, Graph>,
    pub(crate) execs: BTreeMap<GraphExecId, GraphExec>,
    pub(crate) captures: Captures,
    pub(crate) exports: BTreeMap<FileKey, BlockId>,
    pub(crate) tokens: Tokens,
    pub(crate) callbacks: BTreeMap<CallbackId, ItemId>,
    /// Jobs without an engine whose compute group is frozen.
    pub(crate) held: Vec<(ItemId, ContextId, crate::item::Job)>,
    /// Waits for values, looked at again and again.
    pub(crate) polled: Vec<(ItemId, ContextId, crate::item::Job)>,
    pub(crate) faults: FaultState,
    timers: Vec<Timer>,
    waits: Vec<Wait>,
    outgoing: Vec<Outgoing>,
    last_id: u64,
}

impl Machine {
    /// A machine as described, with programs' memory reached through `host`.
    pub fn new(spec: Spec, host: Box<dyn HostMemory>) -> Self {
        let gpu = || Gpu {
            compute: Compute::new(&spec.costs, spec.bus_in.min(spec.bus_out)),
            bus: Bus::new(&spec),
            meter: Meter::new(spec.power_milliwatts),
        };
        Self {
            devices: spec.devices(),
            now: Nanos::ZERO,
            store: Store {
                physical: Physical::new(spec.gpus, spec.memory.0),
                spaces: BTreeMap::new(),
                host,
                over_bus: 0,
                misuse: Vec::new(),
            },
            gpus: (0..spec.gpus).map(|_| gpu()).collect(),
            rm: Rm::default(),
            items: Items::default(),
            sessions: BTreeMap::new(),
            connections: BTreeMap::new(),
            contexts: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            pools: BTreeMap::new(),
            graphs: BTreeMap::new(),
            execs: BTreeMap::new(),
            captures: Captures::default(),
            exports: BTreeMap::new(),
            tokens: Tokens::default(),
            callbacks: BTreeMap::new(),
            held: Vec::new(),
            polled: Vec::new(),
            faults: FaultState::new(spec.faults.clone()),
            timers: Vec::new(),
            waits: Vec::new(),
            outgoing: Vec::new(),
            last_id: 0,
            spec,
        }
    }

    /// The device's clock.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Its description.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// A number that was never given out.
    pub(crate) fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Takes one request in. Its reply appears among [`Machine::take_outgoing`], now or later.
    pub fn handle(&mut self, connection: ConnectionId, request: Request, file: Option<FileKey>) {
        let handled = self.dispatch(connection, request, file);
        self.conclude(connection, handled);
        self.pump();
    }

    fn dispatch(&mut self, connection: ConnectionId, request: Request, file: Option<FileKey>) -> Handled {
        if let Request::Hello { version, session } = request {
            return self.hello(connection, version, session);
        }
        let session = self.connections.get(&connection).and_then(|it| it.session);
        // What a process asked for last may be read after its death.
        let alive = |id: &SessionId| self.sessions.get(id).is_some_and(|session| !session.dead);
        let session = session.filter(alive).ok_or(CUresult::NOT_INITIALIZED)?;
        let Some((request, file)) = self.park(connection, session, request, file) else {
            return Ok(Outcome::Silent);
        };
        match request {
            Request::Hello { .. } => unreachable!("handled above"),
            Request::OpenControl => self.open_control(session),
            Request::Ioctl { request, argument, parameters } => {
                self.ioctl(session, file, request, argument, parameters)
            }
            Request::Context(request) => self.context_request(connection, session, request),
            Request::Memory(request) => self.memory_request(connection, session, request, file),
            Request::Host(request) => self.host_request(connection, session, request),
            Request::Pool(request) => self.pool_request(connection, session, request),
            Request::Stream(request) => self.stream_request(connection, session, request),
            Request::Event(request) => self.event_request(connection, session, request),
            Request::Work(request) => self.work_request(connection, session, request),
            Request::Graph(request) => self.graph_request(connection, session, request),
            Request::Module(request) => self.module_request(connection, session, request),
            Request::ExchangeCaptureMode(mode) => {
                let its = &mut self.connections.get_mut(&connection).expect("it asks").capture_mode;
                Ok(Outcome::Answer(Answer::CaptureMode(std::mem::replace(its, mode))))
            }
            Request::ServeCallbacks => self.serve_callbacks(connection, session),
            Request::CallbackDone(callback) => self.callback_done(session, callback),
            Request::Figures(device) => self.figures(device),
            Request::Checkpoint { pid, step } => self.checkpoint(pid, step),
        }
    }

    /// What is to be sent.
    pub fn take_outgoing(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outgoing)
    }

    pub(crate) fn push_outgoing(&mut self, outgoing: Outgoing) {
        self.outgoing.push(outgoing);
    }

    /// Misuse since the last time.
    pub fn take_misuse(&mut self) -> Vec<crate::misuse::Misuse> {
        std::mem::take(&mut self.store.misuse)
    }

    /// Other faults from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = FaultState::new(faults);
        self.lose_devices();
    }

    /// Whether anybody is there, or anything of anybody is left.
    pub fn is_deserted(&self) -> bool {
        self.sessions.is_empty() && self.connections.is_empty()
    }

    /// Whether everything was given back: what must hold when nobody is there.
    pub fn is_clean(&self) -> bool {
        self.devices.iter().all(|gpu| self.store.physical.used(gpu.device).0 == 0)
            && self.store.physical.count() == 0
            && self.items.count() == 0
            && self.contexts.is_empty()
            && self.streams.is_empty()
            && self.events.is_empty()
            && self.modules.is_empty()
            && self.pools.is_empty()
            && self.graphs.is_empty()
            && self.execs.is_empty()
            && self.exports.is_empty()
            && self.rm.clients() == 0
            && self.held.is_empty()
            && self.polled.is_empty()
    }
}
