//! A program as the daemon sees it: a conversation, an agent that serves the daemon, and a kernel that uses memory.
//!
//! The kernel checks in each of its steps that every byte is what it last wrote, then writes some anew. The agent
//! checks that it is asked for memory only while the tenant is frozen. What is wrong is kept and makes the test fail.

mod agent;
mod kernel;
mod memory;

use crate::engine::{self, Engine};
use crate::world::{Meter, RESIDUE_BYTES, World, await_some, await_welcome, hello_in};
use memory::{device_memory, write};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use wire::{
    BLOCK_BYTES, ChannelGroup, Connection, FileId, GrantId, HANDLES_MAX, HandleId, SharedPage, SizedHandle,
    TenantId, ToDaemon, Token,
};

/// How the agent answers the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manners {
    /// As it should.
    #[default]
    Good,
    /// It never answers an unmap.
    IgnoresUnmap,
    /// It answers an unmap only when [`Tenant::answer`] is called.
    UnmapsLate,
    /// It answers a create only when [`Tenant::answer`] is called.
    CreatesLate,
    /// It never answers a create.
    IgnoresCreate,
    /// The program frees the first handle of an unmap just before.
    FreesAtUnmap,
    /// The program frees the first handle of a create just before.
    FreesAtCreate,
    /// As it should; and it says of its memory that others may have it.
    Passes,
    /// The same, but it cannot take any.
    PassesOnly,
    /// As it should; and others can open all of its memory, by its client's number.
    Publishes,
    /// As it should; and it opens what others published by the number that the tests use.
    Opens,
}

/// What became of a request for bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Granted.
    Granted,
    /// Denied, with the reason.
    Denied(String),
}

/// What the daemon asks of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// To unmap.
    Unmap,
    /// To create.
    Create,
    /// To take.
    Take,
}

#[derive(Debug)]
struct Piece {
    bytes: u64,
    /// Gone while it is away.
    file: Option<File>,
    /// How often it was written.
    written: u64,
}

#[derive(Debug, Default)]
struct Progress {
    /// Turns in which the kernel has checked all of its memory.
    turns: u64,
    /// Steps of the kernel.
    steps: u64,
}

#[derive(Debug)]
struct Shared {
    tenant: TenantId,
    client: u32,
    /// Whether others may have its memory.
    passes: bool,
    connection: Connection,
    page: SharedPage,
    engine: Engine,
    /// Is there a context? Without one no kernel runs.
    context: Mutex<bool>,
    meter: Meter,
    pieces: Mutex<BTreeMap<HandleId, Piece>>,
    verdicts: Mutex<BTreeMap<GrantId, Verdict>>,
    orders: Mutex<Vec<Order>>,
    unmapped: Mutex<BTreeSet<HandleId>>,
    opened: Mutex<Vec<(u64, OwnedFd)>>,
    warm_ups: AtomicU64,
    wrong: Mutex<Vec<String>>,
    refused: Mutex<Option<String>>,
    progress: Mutex<Progress>,
    next_number: AtomicU64,
    may_answer: AtomicBool,
    ending: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module. Dropped, it hangs up, and makes the test fail if anything was wrong.
#[derive(Debug)]
pub(crate) struct Tenant {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Tenant {
    /// Joins with one channel, and allocates this many bytes in three handles of different sizes.
    pub(crate) fn with_memory(world: &World, bytes: u64) -> Self {
        let tenant = Self::join(world);
        tenant.allocate_in_three(bytes);
        tenant
    }

    /// Joins with one channel.
    pub(crate) fn join(world: &World) -> Self {
        Self::join_with(world, Manners::Good)
    }

    /// The same, with such manners.
    pub(crate) fn join_with(world: &World, manners: Manners) -> Self {
        Self::reach(&world.socket(), engine::new_client(), manners, world.meter.clone())
    }

    /// Joins with one channel, in this job.
    pub(crate) fn join_in(world: &World, job: &str) -> Self {
        let connection = Connection::connect(&world.socket()).expect("the daemon listens");
        Self::begin(connection, job, engine::new_client(), Manners::Good, world.meter.clone())
    }

    /// Joins whoever listens there.
    pub(crate) fn reach(socket: &Path, client: u32, manners: Manners, meter: Meter) -> Self {
        let connection = Connection::connect(socket).expect("the daemon listens");
        Self::begin(connection, "test", client, manners, meter)
    }

    fn begin(connection: Connection, job: &str, client: u32, manners: Manners, meter: Meter) -> Self {
        connection.send(&hello_in(job, "fake"), &[]).expect("the daemon hears");
        let (tenant, file) = await_welcome(&connection);
        let page = SharedPage::open(file).expect("a page");
        meter.take(RESIDUE_BYTES);
        let shared = Arc::new(Shared {
            tenant,
            client,
            passes: matches!(manners, Manners::Passes | Manners::PassesOnly),
            connection,
            page,
            engine: Engine::new(),
            context: Mutex::new(false),
            meter,
            pieces: Mutex::default(),
            verdicts: Mutex::default(),
            orders: Mutex::default(),
            unmapped: Mutex::default(),
            opened: Mutex::default(),
            warm_ups: AtomicU64::new(0),
            wrong: Mutex::default(),
            refused: Mutex::default(),
            progress: Mutex::default(),
            next_number: AtomicU64::new(1),
            may_answer: AtomicBool::new(false),
            ending: AtomicBool::new(false),
        });
        shared.report_channel();
        let (agent, kernel) = (shared.clone(), shared.clone());
        let threads =
            vec![std::thread::spawn(move || agent.serve(manners)), std::thread::spawn(move || kernel.run())];
        Self { shared, threads }
    }

    /// Allocates this many bytes in three handles of different sizes.
    pub(crate) fn allocate_in_three(&self, bytes: u64) {
        let middle = bytes / BLOCK_BYTES / 4 * BLOCK_BYTES;
        for bytes in [BLOCK_BYTES, middle, bytes - middle - BLOCK_BYTES] {
            self.allocate(bytes);
        }
    }

    /// Asks for bytes, and does not wait.
    pub(crate) fn grow(&self, bytes: u64) -> GrantId {
        let grant = GrantId(self.shared.next_number.fetch_add(1, SeqCst));
        self.shared.say(&ToDaemon::Grow { grant, bytes }, &[]);
        grant
    }

    /// Is there an answer that nobody has waited for yet?
    pub(crate) fn is_answered(&self, grant: GrantId) -> bool {
        lock(&self.shared.verdicts).contains_key(&grant)
    }

    /// Waits for the answer.
    pub(crate) fn verdict(&self, grant: GrantId) -> Verdict {
        await_some("a request for bytes is answered", || lock(&self.shared.verdicts).remove(&grant))
    }

    /// Allocates under a grant.
    pub(crate) fn use_grant(&self, grant: GrantId, bytes: u64) -> HandleId {
        let handle = HandleId(self.shared.next_number.fetch_add(1, SeqCst));
        self.shared.meter.take(bytes);
        let file = device_memory(bytes);
        write(&file, handle, 0, bytes);
        let message = ToDaemon::Allocated {
            grant,
            handle: SizedHandle { handle, bytes },
            passable: self.shared.passes,
        };
        // In the table before the daemon knows it, as it may be asked for at once.
        let mut pieces = lock(&self.shared.pieces);
        self.shared.say(&message, &[file.as_fd()]);
        pieces.insert(handle, Piece { bytes, file: Some(file), written: 0 });
        handle
    }

    /// Asks for bytes, waits, and allocates.
    pub(crate) fn allocate(&self, bytes: u64) -> HandleId {
        let grant = self.grow(bytes);
        assert_eq!(self.verdict(grant), Verdict::Granted);
        self.use_grant(grant, bytes)
    }

    /// Says something that is answered, with a new name for the request.
    pub(crate) fn request(
        &self,
        message: impl FnOnce(GrantId) -> ToDaemon,
        files: &[BorrowedFd<'_>],
    ) -> GrantId {
        let request = GrantId(self.shared.next_number.fetch_add(1, SeqCst));
        self.shared.say(&message(request), files);
        request
    }

    /// Has handles stay on the device, and waits until they do.
    pub(crate) fn pin(&self, handles: &[HandleId]) -> Verdict {
        self.verdict(self.request(|request| ToDaemon::Pin { request, handles: handles.to_vec() }, &[]))
    }

    /// Asks for bytes, waits, and makes memory of them that never moves.
    pub(crate) fn keep(&self, bytes: u64) -> HandleId {
        let grant = self.request(|grant| ToDaemon::Keep { grant, bytes }, &[]);
        assert_eq!(self.verdict(grant), Verdict::Granted);
        let handle = HandleId(self.shared.next_number.fetch_add(1, SeqCst));
        self.shared.meter.take(bytes);
        self.shared.say(&ToDaemon::Kept { grant, handle: SizedHandle { handle, bytes } }, &[]);
        handle
    }

    /// Gives back what it kept.
    pub(crate) fn let_go(&self, handle: HandleId, bytes: u64) {
        self.shared.meter.give(bytes);
        self.shared.say(&ToDaemon::Freed { handles: vec![handle] }, &[]);
    }

    /// Lets others open handles that are pinned.
    pub(crate) fn publish(&self, token: Token, handles: &[HandleId]) -> Verdict {
        let pieces = lock(&self.shared.pieces);
        let files: Vec<_> = handles
            .iter()
            .map(|handle| pieces[handle].file.as_ref().expect("it is there").try_clone().expect("files"))
            .collect();
        let handles: Vec<_> = handles
            .iter()
            .map(|handle| SizedHandle { handle: *handle, bytes: pieces[handle].bytes })
            .collect();
        drop(pieces);
        let parts = handles.len().div_ceil(HANDLES_MAX);
        let mut request = GrantId(0);
        for (number, (handles, files)) in
            (1..).zip(handles.chunks(HANDLES_MAX).zip(files.chunks(HANDLES_MAX)))
        {
            let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
            let (handles, complete) = (handles.to_vec(), number == parts);
            request = self.request(|request| ToDaemon::Publish { request, token, handles, complete }, &files);
        }
        self.verdict(request)
    }

    /// Opens what another one published: the sizes and files.
    pub(crate) fn open(&self, token: Token) -> Result<Vec<(u64, File)>, String> {
        match self.verdict(self.request(|request| ToDaemon::Open { request, token }, &[])) {
            Verdict::Granted => {
                let opened = std::mem::take(&mut *lock(&self.shared.opened));
                Ok(opened.into_iter().map(|(bytes, file)| (bytes, file.into())).collect())
            }
            Verdict::Denied(reason) => Err(reason),
        }
    }

    /// Closes it.
    pub(crate) fn close(&self, token: Token) {
        self.shared.say(&ToDaemon::Closed { token }, &[]);
    }

    /// The handles of which it has the memory now.
    pub(crate) fn resident(&self) -> Vec<HandleId> {
        let pieces = lock(&self.shared.pieces);
        pieces.iter().filter(|(_, piece)| piece.file.is_some()).map(|(handle, _)| *handle).collect()
    }

    /// The handles that the daemon ever had it unmap.
    pub(crate) fn unmapped(&self) -> BTreeSet<HandleId> {
        lock(&self.shared.unmapped).clone()
    }

    /// Frees a handle, wherever it is. A program may do so at any time: it is work for the CPU.
    pub(crate) fn free(&self, handle: HandleId) {
        self.shared.free(&mut lock(&self.shared.pieces), handle);
    }

    /// The handles it has.
    pub(crate) fn handles(&self) -> Vec<HandleId> {
        lock(&self.shared.pieces).keys().copied().collect()
    }

    /// Its number at the daemon.
    pub(crate) fn id(&self) -> TenantId {
        self.shared.tenant
    }

    /// Its client at the resource manager.
    pub(crate) fn client(&self) -> u32 {
        self.shared.client
    }

    /// Turns in which the kernel has checked all of its memory.
    pub(crate) fn turns(&self) -> u64 {
        lock(&self.shared.progress).turns
    }

    /// Steps that the kernel has done.
    pub(crate) fn steps(&self) -> u64 {
        lock(&self.shared.progress).steps
    }

    /// Lets an agent that is late answer, now and from now on.
    pub(crate) fn answer(&self) {
        self.shared.may_answer.store(true, SeqCst);
    }

    /// Gives up its context: there are no channels any more.
    pub(crate) fn drop_context(&self) {
        *lock(&self.shared.context) = false;
        let generation = self.shared.page.channel_generation();
        self.shared.say(&ToDaemon::Channels { generation, new_files: vec![], groups: vec![] }, &[]);
    }

    /// Makes another context.
    pub(crate) fn make_context(&self) {
        self.shared.report_channel();
    }

    /// Has the daemon asked for this?
    pub(crate) fn was_asked_to(&self, order: Order) -> bool {
        lock(&self.shared.orders).contains(&order)
    }

    /// How often the daemon wanted a warm-up.
    pub(crate) fn warm_ups(&self) -> u64 {
        self.shared.warm_ups.load(SeqCst)
    }

    /// Says something.
    pub(crate) fn say(&self, message: &ToDaemon) {
        self.shared.say(message, &[]);
    }

    /// Why the daemon has put it out, if it has.
    pub(crate) fn refused(&self) -> Option<String> {
        lock(&self.shared.refused).clone()
    }

    /// Its page.
    pub(crate) fn page(&self) -> &SharedPage {
        &self.shared.page
    }

    /// Its conversation, to say strange things.
    pub(crate) fn connection(&self) -> &Connection {
        &self.shared.connection
    }

    /// Its control file.
    pub(crate) fn control_file(&self) -> BorrowedFd<'_> {
        self.shared.engine.file()
    }

    /// What was wrong so far.
    pub(crate) fn wrong(&self) -> Vec<String> {
        lock(&self.shared.wrong).clone()
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.shared.ending.store(true, SeqCst);
        self.shared.connection.shut_down();
        let ended: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        if std::thread::panicking() {
            return;
        }
        assert!(ended.iter().all(Result::is_ok), "a thread of tenant {} panicked", self.id());
        assert_eq!(self.wrong(), Vec::<String>::new(), "tenant {} found something wrong", self.id());
    }
}

impl Shared {
    /// A daemon that is gone, or has put the tenant out, is for the test to notice.
    fn say(&self, message: &ToDaemon, files: &[BorrowedFd<'_>]) {
        let _ = self.connection.send(message, files);
    }

    fn note_wrong(&self, what: String) {
        lock(&self.wrong).push(what);
    }

    fn report_channel(&self) {
        let generation = self.page.raise_channel_generation();
        if self.page.frozen() {
            self.engine.begin_frozen();
        }
        *lock(&self.context) = true;
        let group = ChannelGroup {
            file: FileId(1),
            client: self.client,
            subdevice: 2,
            group: 3,
            engine: 1,
            channels: vec![4, 5],
        };
        let message = ToDaemon::Channels { generation, new_files: vec![FileId(1)], groups: vec![group] };
        self.say(&message, &[self.engine.file()]);
    }

    fn free(&self, pieces: &mut BTreeMap<HandleId, Piece>, handle: HandleId) {
        if let Some(piece) = pieces.remove(&handle) {
            if piece.file.is_some() {
                self.meter.give(piece.bytes);
            }
            self.say(&ToDaemon::Freed { handles: vec![handle] }, &[]);
        }
    }
}
