//! This process as a tenant: its connection to the daemon, its page, its allocations.
//!
//! There is at most one session for each shared GPU in the life of a process; most programs use one GPU, and have one. To
//! the daemon each is a tenant of its own. It is never freed: threads of the program may be anywhere in it. When the daemon
//! goes, the session has *ended*: the table of allocations stays, because the program still frees what it has, and
//! everything new goes to the real driver. When another daemon comes, it begins again.

mod pins;
mod replaced;

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

use cuda::types::{CUcontext, CUdevice, CUuuid};
use cuda::{CUresult, Driver};
use rustix::event::EventfdFlags;
use wire::{Connection, GrantId, HANDLES_MAX, HandleId, SharedPage, SizedHandle, TenantId, ToDaemon, Token};

use crate::agent::warm_up::Warmer;
use crate::gate::Gate;
use crate::grants::{Answer, Grants};
use crate::guard::lock;
use crate::ipc::Names;
use crate::join::{JoinError, Welcome};
use crate::memory::kept::watched::Watched;
use crate::memory::table::{Survivors, Told, is_number};
use crate::memory::{Kept, Table, physical};
use crate::outbox::Outbox;
use crate::{demand, forward, gpus, groups, sdk};
pub(crate) use pins::NotPinned;

/// The most sessions of a process: no machine has more GPUs.
pub(crate) const SESSIONS_MAX: usize = 16;

/// In the order they came; those that are there come first.
static SESSIONS: [AtomicPtr<Session>; SESSIONS_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; SESSIONS_MAX];

/// Every session of this process, also those that have ended.
pub(crate) fn all() -> impl Iterator<Item = &'static Session> + Clone {
    // SAFETY: only `publish` stores something else than null, and what it stores is never freed.
    SESSIONS.iter().map_while(|place| unsafe { place.load(SeqCst).as_ref() })
}

/// The first session of this process.
pub(crate) fn first() -> Option<&'static Session> {
    all().next()
}

/// The session that has an address among its own; with only one, that.
pub(crate) fn around(address: u64) -> Option<&'static Session> {
    let mut others = all();
    let first = others.next()?;
    match others.next() {
        None => Some(first),
        Some(_) => all().find(|session| session.table().knows_address(address)),
    }
}

/// The session whose memory, created by the program, has this number.
pub(crate) fn with_number(number: u64) -> Option<&'static Session> {
    let mine = |session: &&Session| session.table().created().get(number).is_some();
    if is_number(number) { all().find(mine) } else { None }
}

/// The session of the calling thread's context, which is begun now if its GPU is shared and there was none; None if the
/// real driver is to serve it. It may wait at the door, so the calling thread must hold no lock.
pub(crate) fn here() -> Result<Option<&'static Session>, CUresult> {
    if gpus::is_sole() {
        return Ok(first());
    }
    let Some(driver) = forward::driver() else { return Ok(None) };
    let mut device = CUdevice(0);
    // SAFETY: the driver writes one number.
    match unsafe { (driver.cuCtxGetDevice)(&mut device) } {
        CUresult::SUCCESS => gpus::session(device),
        // Without a context the driver says what is wrong.
        _ => Ok(None),
    }
}

/// The same for another context.
pub(crate) fn of(context: CUcontext) -> Result<Option<&'static Session>, CUresult> {
    if gpus::is_sole() {
        return Ok(first());
    }
    if let Some(known) = all().find(|session| session.table().knows(context)) {
        return Ok(Some(known));
    }
    let Some(driver) = forward::driver() else { return Ok(None) };
    physical::within(driver, context, here)
}

/// Makes this a session of the process. None if there are too many.
pub(crate) fn publish(session: Session) -> Option<&'static Session> {
    let session: &'static Session = Box::leak(Box::new(session));
    let new = (&raw const *session).cast_mut();
    let taken = |place: &AtomicPtr<Session>| place.compare_exchange(ptr::null_mut(), new, SeqCst, SeqCst);
    SESSIONS.iter().position(|place| taken(place).is_ok())?;
    demand::begin();
    sdk::begin();
    Some(session)
}

/// In a forked child: there is no session. The parent's files are closed here so that the daemon does not take the
/// child for its tenant.
pub(crate) fn forget() {
    for place in &SESSIONS {
        let session = place.swap(ptr::null_mut(), SeqCst);
        // SAFETY: as in `all`.
        let Some(session) = (unsafe { session.as_ref() }) else { continue };
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
    /// The shared GPU.
    pub(crate) device: CUdevice,
    /// Its UUID.
    pub(crate) uuid: CUuuid,
    /// Its size by the daemon's word.
    pub(crate) capacity_bytes: u64,
    /// The daemon's name for it.
    tenant: AtomicU32,
    /// Requests for bytes.
    grants: Grants,
    /// What the agent is to send.
    pub(crate) outbox: Outbox,
    table: Mutex<Table>,
    names: Mutex<Names>,
    kept: Mutex<Kept>,
    watched: Mutex<Watched>,
    /// Memory of others that is on its way here, by the request for it.
    arriving: Mutex<HashMap<GrantId, Vec<(u64, OwnedFd)>>>,
    /// How often each handle is pinned. Those that are freed stay here: their numbers are never used again.
    pins: Mutex<HashMap<HandleId, u32>>,
    /// Those that are not pinned any more, and the agent has not looked at yet.
    unpinned: Mutex<Vec<HandleId>>,
    /// Where calls wait while memory is away.
    pub(crate) gate: Gate,
    /// Loads the program's context before a request needs it.
    pub(crate) warmer: Warmer,
    next_handle: AtomicU64,
    /// Wakes the agent.
    bell: OwnedFd,
    /// The channel groups are others than the agent reported last.
    pub(crate) groups_changed: AtomicBool,
    /// Time slices that the program has given itself.
    pub(crate) slices: groups::Slices,
    ended: AtomicBool,
    /// No daemon will ever take it in again.
    is_alone: AtomicBool,
    /// Every file of the session, by number.
    files: [RawFd; 3],
}

impl Session {
    pub(crate) fn new(
        driver: &'static Driver,
        welcome: Welcome,
        gpu: (CUdevice, CUuuid),
    ) -> Result<Self, rustix::io::Errno> {
        let Welcome { connection, page, tenant, capacity_bytes, .. } = welcome;
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let files = [connection.as_fd(), page.file(), bell.as_fd()].map(|file| file.as_raw_fd());
        Ok(Self {
            driver,
            connection,
            page,
            device: gpu.0,
            uuid: gpu.1,
            capacity_bytes,
            tenant: AtomicU32::new(tenant.0),
            grants: Grants::default(),
            outbox: Outbox::default(),
            table: Mutex::default(),
            names: Mutex::default(),
            kept: Mutex::default(),
            watched: Mutex::default(),
            arriving: Mutex::default(),
            pins: Mutex::default(),
            unpinned: Mutex::default(),
            gate: Gate::default(),
            warmer: Warmer::default(),
            next_handle: AtomicU64::new(1),
            bell,
            groups_changed: AtomicBool::new(true),
            slices: groups::Slices::default(),
            ended: AtomicBool::new(false),
            is_alone: AtomicBool::new(false),
            files,
        })
    }

    /// Whether a device is the GPU of this session.
    pub(crate) fn shares(&self, device: CUdevice) -> bool {
        self.device == device
    }

    /// The allocations. See [`Table`] for what may be done meanwhile.
    pub(crate) fn table(&self) -> HeldTable<'_> {
        HeldTable { table: lock(&self.table), page: &self.page }
    }

    /// What is shared with other processes.
    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    /// Memory that the driver made, and that counts.
    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }

    /// Memory that the driver takes by itself.
    pub(crate) fn watched(&self) -> MutexGuard<'_, Watched> {
        lock(&self.watched)
    }

    /// A name for a new allocation.
    pub(crate) fn new_handle(&self) -> HandleId {
        HandleId(self.next_handle.fetch_add(1, SeqCst))
    }

    /// Asks for bytes and waits for the answer. The calling thread must hold no lock.
    pub(crate) fn ask(&self, bytes: u64) -> (GrantId, Answer) {
        self.ask_whoever_is_there(|grant| ToDaemon::Grow { grant, bytes })
    }

    /// The same for bytes that will never move.
    pub(crate) fn ask_to_keep(&self, bytes: u64) -> (GrantId, Answer) {
        self.ask_whoever_is_there(|grant| ToDaemon::Keep { grant, bytes })
    }

    /// The same for bytes of the host's memory.
    pub(crate) fn ask_for_host(&self, bytes: u64) -> (GrantId, Answer) {
        self.ask_whoever_is_there(|grant| ToDaemon::GrowHost { grant, bytes })
    }

    /// Asks for other terms, and waits for the answer. The calling thread must hold no lock.
    pub(crate) fn ask_for_terms(&self, question: impl Fn(GrantId) -> ToDaemon) -> Answer {
        self.ask_whoever_is_there(question).1
    }

    /// Asks the daemon, and the next one if it goes before it has answered.
    fn ask_whoever_is_there(&self, question: impl Fn(GrantId) -> ToDaemon) -> (GrantId, Answer) {
        loop {
            let grant = self.grants.open();
            self.say(question(grant));
            self.wake_agent();
            let answer = demand::vacate::aside(|| self.grants.wait(grant));
            if answer != Answer::Ended || self.has_ended() {
                return (grant, answer);
            }
        }
    }

    /// A new request that will be answered.
    pub(crate) fn request(&self) -> GrantId {
        self.grants.open()
    }

    /// Waits for the answer. The calling thread must hold no lock.
    pub(crate) fn answer(&self, request: GrantId) -> Answer {
        demand::vacate::aside(|| self.grants.wait(request))
    }

    /// Asks for memory that another process published: sizes and files, in the order of addresses, and the request by which the
    /// daemon counts it. The calling thread must hold no lock.
    pub(crate) fn open(&self, token: Token) -> Result<(GrantId, Vec<(u64, OwnedFd)>), CUresult> {
        loop {
            let request = self.request();
            lock(&self.arriving).insert(request, Vec::new());
            self.say(ToDaemon::Open { request, token });
            self.wake_agent();
            let answer = self.answer(request);
            let arrived = lock(&self.arriving).remove(&request).unwrap_or_default();
            match answer {
                Answer::Granted | Answer::GrantedHost(_) => return Ok((request, arrived)),
                // There is another daemon.
                Answer::Ended if !self.has_ended() => {}
                // As the driver says of a name that means nothing, or nothing any more.
                Answer::Denied(_) | Answer::Ended => return Err(CUresult::INVALID_HANDLE),
            }
        }
    }

    /// Some of that is there, or all. Nobody waits for it who did not ask.
    pub(crate) fn take_opened(
        &self,
        request: GrantId,
        memory: impl Iterator<Item = (u64, OwnedFd)>,
        complete: bool,
    ) {
        if let Some(arriving) = lock(&self.arriving).get_mut(&request) {
            arriving.extend(memory);
        }
        if complete {
            self.settle(request, Answer::Granted);
        }
    }

    /// The daemon answered a request for bytes. False if nobody waits for that.
    pub(crate) fn settle(&self, grant: GrantId, answer: Answer) -> bool {
        self.grants.settle(grant, answer)
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

    /// What a new daemon is to know.
    pub(crate) fn survivors(&self) -> Survivors {
        let table = self.table();
        let pins = lock(&self.pins);
        table.survivors(|handle| pins.contains_key(&handle))
    }

    /// The daemon's name for this tenant.
    pub(crate) fn tenant(&self) -> TenantId {
        TenantId(self.tenant.load(SeqCst))
    }

    /// Another daemon has taken this program in, and was told of these handles: from now on its page and its connection are
    /// those of the session. Only the agent may call this, while no daemon is there.
    pub(crate) fn begin_again(&self, welcome: Welcome, mut told: Told) -> Result<(), JoinError> {
        // Before the table is taken: whoever publishes holds the names first. And to the end: what is opened or closed from now
        // on is told to the new daemon.
        let mut names = self.names();
        let opened = names.begin_again();
        let kept = self.kept();
        // Its groups may have another slice still, which the new daemon would take for their own.
        let slice = self.page.slice_us();
        self.page.renew(welcome.page)?;
        if let Some(us) = slice {
            self.page.set_slice_us(us);
        }
        self.connection.renew(welcome.connection)?;
        self.tenant.store(welcome.tenant.0, SeqCst);
        let mut table = self.table();
        let pins = lock(&self.pins);
        let is_pinned = |handle| pins.contains_key(&handle);
        let no_more_kept = replaced::kept_no_more(&kept, &table, &mut told);
        let untold = table.begin_again(told, is_pinned, || self.grants.number());
        self.outbox.clear();
        // First of all: what the daemon takes for the program's, and is not, must not move.
        let freed = untold.freed.into_iter().chain(no_more_kept);
        freed.for_each(|handle| self.outbox.put_freed(handle));
        let hosted: Vec<SizedHandle> = table.hosted().collect();
        for handles in hosted.chunks(HANDLES_MAX) {
            self.outbox.put(ToDaemon::HostedBefore { handles: handles.to_vec() }, Vec::new());
        }
        for (grant, bytes) in untold.asked {
            self.outbox.put(ToDaemon::Grow { grant, bytes }, Vec::new());
        }
        self.pin_again(&pins, &untold.pinned);
        for token in opened {
            // So that it counts as open. What comes with the answer is there already.
            self.outbox.put(ToDaemon::Open { request: self.grants.number(), token }, Vec::new());
        }
        self.groups_changed.store(true, SeqCst);
        // With table and pins held: what is freed from now on is told, and what is to stay is asked of the new daemon. And in
        // this order: whoever asks that one is heard.
        self.ended.store(false, SeqCst);
        self.grants.begin_again();
        drop((pins, table, kept, names));
        // Before anything is sent: nothing can move that the daemon has not heard of.
        groups::begin_again(self);
        demand::begin_again();
        sdk::begin();
        Ok(())
    }

    /// Nobody tries to join another daemon any more.
    pub(crate) fn stay_alone(&self) {
        self.is_alone.store(true, SeqCst);
    }

    /// Whether that is so.
    pub(crate) fn stays_alone(&self) -> bool {
        self.is_alone.load(SeqCst)
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
        self.page.set_unseen_bytes(self.table.unseen_bytes());
    }
}
