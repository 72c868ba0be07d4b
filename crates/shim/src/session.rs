//! This process as a tenant: its connection to the daemon, its page, its allocations.
//!
//! There is at most one session in the life of a process. It is never freed: threads of the program may be anywhere in
//! it. When the daemon goes, the session has *ended*: the table of allocations stays, because the program still frees
//! what it has, and everything new goes to the real driver.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

use cuda::Driver;
use cuda::types::{CUdevice, CUuuid};
use rustix::event::EventfdFlags;
use wire::{Connection, HandleId, SharedPage, ToDaemon};

use crate::demand;
use crate::gate::Gate;
use crate::grants::{Answer, Grants};
use crate::guard::lock;
use crate::memory::Table;
use crate::outbox::Outbox;

static CURRENT: AtomicPtr<Session> = AtomicPtr::new(ptr::null_mut());

/// The session of this process, also after it has ended.
pub(crate) fn current() -> Option<&'static Session> {
    // SAFETY: only `publish` stores something else than null, and what it stores is never freed.
    unsafe { CURRENT.load(SeqCst).as_ref() }
}

/// Makes this the session of the process.
pub(crate) fn publish(session: Session) -> &'static Session {
    let session: &'static Session = Box::leak(Box::new(session));
    CURRENT.store((&raw const *session).cast_mut(), SeqCst);
    demand::begin(&session.page);
    session
}

/// In a forked child: there is no session. The parent's files are closed here so that the daemon does not take the
/// child for its tenant.
pub(crate) fn forget() {
    let session = CURRENT.swap(ptr::null_mut(), SeqCst);
    // SAFETY: as in `current`.
    if let Some(session) = unsafe { session.as_ref() } {
        for file in session.files {
            // SAFETY: the session is never dropped, so rota closes these numbers nowhere else. A program that closes files
            // that are not its own may have given them another meaning; but that breaks CUDA itself, whose files are
            // among them.
            unsafe { libc::close(file) };
        }
    }
}

/// What a tenant has.
#[derive(Debug)]
pub(crate) struct Session {
    /// The real driver.
    pub(crate) driver: &'static Driver,
    /// To the daemon. Only the agent sends and receives.
    pub(crate) connection: Connection,
    /// Shared with the daemon.
    pub(crate) page: SharedPage,
    /// UUID of the shared GPU.
    gpu: String,
    /// Its size by the daemon's word.
    pub(crate) capacity_bytes: u64,
    /// Requests for bytes.
    grants: Grants,
    /// What the agent is to send.
    pub(crate) outbox: Outbox,
    table: Mutex<Table>,
    /// Where calls wait while memory is away.
    pub(crate) gate: Gate,
    next_handle: AtomicU64,
    /// Wakes the agent.
    bell: OwnedFd,
    /// The channel groups are others than the agent reported last.
    pub(crate) groups_changed: AtomicBool,
    ended: AtomicBool,
    /// Every file of the session, by number.
    files: [RawFd; 3],
}

impl Session {
    pub(crate) fn new(
        driver: &'static Driver,
        connection: Connection,
        page: SharedPage,
        gpu: String,
        capacity_bytes: u64,
    ) -> Result<Self, rustix::io::Errno> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let files = [connection.as_fd(), page.file(), bell.as_fd()].map(|file| file.as_raw_fd());
        Ok(Self {
            driver,
            connection,
            page,
            gpu,
            capacity_bytes,
            grants: Grants::default(),
            outbox: Outbox::default(),
            table: Mutex::default(),
            gate: Gate::default(),
            next_handle: AtomicU64::new(1),
            bell,
            groups_changed: AtomicBool::new(true),
            ended: AtomicBool::new(false),
            files,
        })
    }

    /// Whether a device is the GPU that the daemon shares.
    pub(crate) fn shares(&self, device: CUdevice) -> bool {
        let mut uuid = CUuuid::default();
        // SAFETY: the driver writes one UUID.
        let result = unsafe { (self.driver.cuDeviceGetUuid_v2)(&mut uuid, device) };
        result.ok().is_ok() && uuid.to_string() == self.gpu
    }

    /// The allocations. See [`Table`] for what may be done meanwhile.
    pub(crate) fn table(&self) -> HeldTable<'_> {
        HeldTable { table: lock(&self.table), page: &self.page }
    }

    /// A name for a new allocation.
    pub(crate) fn new_handle(&self) -> HandleId {
        HandleId(self.next_handle.fetch_add(1, SeqCst))
    }

    /// Asks for bytes and waits for the answer. The calling thread must hold no lock.
    pub(crate) fn ask(&self, bytes: u64) -> (wire::GrantId, Answer) {
        let grant = self.grants.open();
        self.say(ToDaemon::Grow { grant, bytes });
        self.wake_agent();
        (grant, self.grants.wait(grant))
    }

    /// The daemon answered a request for bytes.
    pub(crate) fn settle(&self, grant: wire::GrantId, answer: Answer) {
        self.grants.settle(grant, answer);
    }

    /// Has the agent send a message, once it is woken. After the end nobody is there to be told.
    pub(crate) fn say(&self, message: ToDaemon) {
        if !self.has_ended() {
            self.outbox.put(message, Vec::new());
        }
    }

    /// Has the agent say that a handle is freed.
    pub(crate) fn say_freed(&self, handle: HandleId) {
        if !self.has_ended() {
            self.outbox.put_freed(handle);
        }
    }

    /// Makes the agent look around. Never blocks.
    pub(crate) fn wake_agent(&self) {
        // It fails only when the counter is full, and then the agent is about to wake anyway.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// What [`Session::wake_agent`] makes readable.
    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Lets calls go on if memory lies under every address. What is in it does not matter until the program is thawed, and
    /// by then it is right.
    pub(crate) fn open_gate_if_whole(&self, table: &Table) {
        if !table.needs_gate() {
            self.gate.open();
        }
    }

    /// The daemon is gone. Threads that wait for it go on without.
    pub(crate) fn end(&self) {
        self.ended.store(true, SeqCst);
        self.grants.end();
        self.gate.open();
    }

    /// Whether the daemon is gone.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }
}

/// The table while it is held. Let go, the page says what the program has.
pub(crate) struct HeldTable<'a> {
    table: MutexGuard<'a, Table>,
    page: &'a SharedPage,
}

impl Deref for HeldTable<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

impl DerefMut for HeldTable<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.table
    }
}

impl Drop for HeldTable<'_> {
    fn drop(&mut self) {
        self.page.set_used_bytes(self.table.used_bytes());
    }
}
