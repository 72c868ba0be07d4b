//! The process around the machine: sockets, files, deaths and real time.
//!
//! One thread. It waits for whatever comes first (a request, a death, a file closed everywhere, the next instant at which
//! the machine changes), carries the machine to the present, hands in what came, and sends what the machine has to say.

mod clock;
mod files;
mod records;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use vgpu_messages::{Directory, Reply, Request, Spec};
use wire::{Connection, Listener, WireError};

use crate::host::ProcessMemory;
use crate::machine::{Machine, Outgoing, refuse};
use crate::session::ConnectionId;
use clock::Clock;
use files::Files;
use records::Records;

/// The longest that the machine is carried on before requests are looked at again.
const CARRY_MAX: Duration = Duration::from_micros(300);
/// The longest sleep: faults and loneliness are looked at in between.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Events taken from the system at once.
const EVENTS_MAX: usize = 64;

/// Why the device cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another one serves this directory.
    #[error("another vgpud serves {0}")]
    Taken(PathBuf),
    /// The socket does not work.
    #[error(transparent)]
    Socket(#[from] WireError),
    /// The system refuses something.
    #[error("{0}: {1}")]
    System(&'static str, rustix::io::Errno),
    /// A file in the directory does not work.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
}

/// What an event is about. In the event's data: the kind in the upper byte, a number below.
#[derive(Clone, Copy)]
enum Source {
    Listener,
    Connection(ConnectionId),
    Process(i32),
    File(u64),
}

const KIND: u32 = 56;

impl Source {
    fn data(self) -> epoll::EventData {
        let (kind, number) = match self {
            Self::Listener => (0, 0),
            Self::Connection(id) => (1, id.0),
            Self::Process(pid) => (2, pid as u64),
            Self::File(key) => (3, key),
        };
        epoll::EventData::new_u64(kind << KIND | number)
    }

    fn of(data: epoll::EventData) -> Self {
        let number = data.u64() & ((1 << KIND) - 1);
        match data.u64() >> KIND {
            0 => Self::Listener,
            1 => Self::Connection(ConnectionId(number)),
            2 => Self::Process(number as i32),
            _ => Self::File(number),
        }
    }
}

/// The device's process.
#[derive(Debug)]
pub struct Server {
    machine: Machine,
    clock: Clock,
    epoll: OwnedFd,
    listener: Listener,
    connections: BTreeMap<ConnectionId, Connection>,
    processes: BTreeMap<i32, OwnedFd>,
    files: Files,
    records: Records,
    last_connection: u64,
    deserted_since: Option<Instant>,
    _lock: OwnedFd,
}

impl Server {
    /// Takes the directory and listens.
    pub fn new(directory: &Directory, spec: Spec) -> Result<Self, ServerError> {
        let lock = records::lock(directory)?;
        let records = Records::open(directory, spec.faults.clone())?;
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| ServerError::System("epoll", e))?;
        let listener = Listener::bind(&directory.socket())?;
        let server = Self {
            clock: Clock::new(spec.time_scale),
            machine: Machine::new(spec, Box::new(ProcessMemory)),
            epoll,
            listener,
            connections: BTreeMap::new(),
            processes: BTreeMap::new(),
            files: Files::default(),
            records,
            last_connection: 0,
            deserted_since: Some(Instant::now()),
            _lock: lock,
        };
        server.watch(&server.listener, Source::Listener)?;
        Ok(server)
    }

    fn watch(&self, file: impl AsFd, source: Source) -> Result<(), ServerError> {
        epoll::add(&self.epoll, file, source.data(), epoll::EventFlags::IN)
            .map_err(|e| ServerError::System("epoll_ctl", e))
    }

    /// Serves until nobody was there for a while.
    pub fn run(mut self) -> Result<(), ServerError> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let wait = self.sleep();
            let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
            events.clear();
            // Through poll, which is exact to the nanosecond; waiting on the set itself rounds up to milliseconds.
            let mut set = [PollFd::new(&self.epoll, PollFlags::IN)];
            match rustix::event::poll(&mut set, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(ServerError::System("poll", error)),
            }
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&now)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(ServerError::System("epoll_wait", error)),
            }
            self.carry();
            if let Some(faults) = self.records.new_faults() {
                self.machine.set_faults(faults);
            }
            // What was closed before a request was sent is closed when the request is handled.
            let mut sources: Vec<Source> = events.iter().map(|event| Source::of(event.data)).collect();
            sources.sort_by_key(|source| matches!(source, Source::Connection(_)));
            for source in sources {
                self.happened(source)?;
            }
            self.send()?;
            self.records.misuse(&self.machine.take_misuse());
            if self.is_over() {
                return Ok(());
            }
        }
    }

    /// How long nothing will happen by itself.
    fn sleep(&self) -> Duration {
        match self.machine.next() {
            Some(next) => self.clock.until(next).min(SLEEP_MAX),
            None => SLEEP_MAX,
        }
    }

    fn carry(&mut self) {
        let begin = Instant::now();
        let target = self.clock.target();
        while !self.machine.advance(target) {
            if begin.elapsed() >= CARRY_MAX {
                self.clock.fell_behind(target, self.machine.now());
                return;
            }
        }
    }

    fn happened(&mut self, source: Source) -> Result<(), ServerError> {
        match source {
            Source::Listener => {
                let Ok(connection) = self.listener.accept() else { return Ok(()) };
                self.accept(connection)
            }
            Source::Connection(id) => {
                self.receive(id);
                Ok(())
            }
            Source::Process(pid) => {
                self.processes.remove(&pid);
                self.machine.died(pid);
                Ok(())
            }
            Source::File(key) => {
                if self.files.is_closed(key) {
                    self.machine.closed(crate::rm::FileKey(key));
                }
                Ok(())
            }
        }
    }

    fn accept(&mut self, connection: Connection) -> Result<(), ServerError> {
        let Ok(peer) = connection.peer() else { return Ok(()) };
        let pid = peer.pid.as_raw_nonzero().get();
        if !self.processes.contains_key(&pid) {
            // Without it the end of its connections tells that it is dead.
            match rustix::process::pidfd_open(peer.pid, rustix::process::PidfdFlags::empty()) {
                Ok(process) => {
                    self.watch(&process, Source::Process(pid))?;
                    self.processes.insert(pid, process);
                }
                Err(error) => tracing::warn!("pid {pid} cannot be watched: {error}"),
            }
        }
        self.last_connection += 1;
        let id = ConnectionId(self.last_connection);
        self.watch(&connection, Source::Connection(id))?;
        self.connections.insert(id, connection);
        self.machine.connect(id, pid);
        Ok(())
    }

    fn receive(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(&id) else { return };
        match connection.receive::<Request>() {
            Ok((request, attached)) => {
                let file = attached.first().and_then(|file| self.files.known(file));
                self.machine.handle(id, request, file);
            }
            Err(error) => {
                if !matches!(error, WireError::Closed) {
                    tracing::warn!("connection {}: {error}", id.0);
                }
                self.drop_connection(id);
            }
        }
    }

    fn drop_connection(&mut self, id: ConnectionId) {
        self.connections.remove(&id);
        self.machine.disconnect(id);
    }

    fn send(&mut self) -> Result<(), ServerError> {
        for outgoing in self.machine.take_outgoing() {
            let (id, sent) = match outgoing {
                Outgoing::Reply(id, reply, None) => (id, self.send_to(id, |to| send_reply(to, &reply))),
                Outgoing::Reply(id, reply, Some((key, kind))) => {
                    let (given, kept) =
                        files::make(kind).map_err(|e| ServerError::System("a new file", e))?;
                    self.files.add(key, &given, kept)?;
                    let ours = self.files.kept(key).expect("just added");
                    self.watch(ours, Source::File(key.0))?;
                    (id, self.send_to(id, |to| to.send(&reply, &[given.as_fd()])))
                }
                Outgoing::Callback(id, callback) => (id, self.send_to(id, |to| to.send(&callback, &[]))),
            };
            if !sent {
                self.drop_connection(id);
            }
        }
        Ok(())
    }

    fn send_to(&self, id: ConnectionId, send: impl FnOnce(&Connection) -> Result<(), WireError>) -> bool {
        self.connections.get(&id).is_none_or(|connection| send(connection).is_ok())
    }

    /// Whether nobody was there for as long as the description says.
    fn is_over(&mut self) -> bool {
        if !self.machine.is_deserted() {
            self.deserted_since = None;
            return false;
        }
        let since = *self.deserted_since.get_or_insert_with(Instant::now);
        let over = since.elapsed() >= Duration::from_nanos(self.machine.spec().linger.0);
        if over && !self.machine.is_clean() {
            tracing::error!("nobody is left, and something was not given back");
        }
        over
    }
}

/// A reply that is too long for one message becomes a refusal.
fn send_reply(to: &Connection, reply: &Reply) -> Result<(), WireError> {
    match to.send(reply, &[]) {
        Err(WireError::TooLong) => {
            let notice = "the virtual device's answer is too long for one message".to_owned();
            to.send(&Reply::Err(refuse(cuda::CUresult::OUT_OF_MEMORY, notice)), &[])
        }
        sent => sent,
    }
}
