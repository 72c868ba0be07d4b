//! Tenants for tests: handles are memfds with known contents, and somebody counts the bytes on the device.

use crate::exchange::{Gone, HANDLES_PER_REQUEST_MAX, Reply, Tenants};
use crate::fake_device::Imports;
use crate::fake_device::mapping::Mapping;
use crate::{BLOCK_BYTES, HandleKey, Owner, Reported, ReportedMemory};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};

/// One word in so many bytes has contents that are checked, where not every one has.
const STRIDE: u64 = 256;

/// What memory holds that nobody has filled yet.
const GARBAGE: u8 = 0xa5;

/// Memory of a tenant on the device.
struct Physical {
    mapping: Mapping,
    inode: u64,
    stride: u64,
}

impl Physical {
    fn new(bytes: u64, stride: u64) -> Physical {
        let mapping = Mapping::new("handle", bytes).expect("a small memfd");
        Physical::of(mapping, stride)
    }

    fn of(mapping: Mapping, stride: u64) -> Physical {
        let inode = rustix::fs::fstat(mapping.file()).expect("an open file").st_ino;
        Physical { mapping, inode, stride }
    }

    fn word(&self, index: u64) -> *mut u64 {
        #[allow(clippy::cast_ptr_alignment)] // A multiple of 8 from a page's start.
        self.mapping.address(index * self.stride, 8).cast::<u64>()
    }

    fn words(&self) -> u64 {
        self.mapping.bytes() / self.stride
    }

    fn fill(&self, seed: u64) {
        for index in 0..self.words() {
            self.write(index, expected(seed, index));
        }
    }

    /// Nothing that anybody wants to find there.
    fn spoil(&self) {
        let bytes = self.mapping.bytes();
        // SAFETY: all of the mapping, and only tests on this thread use it now.
        unsafe { self.mapping.address(0, bytes).write_bytes(GARBAGE, bytes as usize) };
    }

    fn write(&self, index: u64, word: u64) {
        // SAFETY: within the mapping, aligned, and only tests on this thread use it now.
        unsafe { self.word(index).write(word) };
    }

    /// Fills one block.
    fn fill_block(&self, block: u64, content: Content, seed: u64) {
        let words = BLOCK_BYTES / self.stride;
        for index in block * words..(block + 1) * words {
            self.write(index, content.word(seed, index));
        }
    }

    fn wrong_words(&self, seed: u64, contents: &BTreeMap<u64, Content>) -> u64 {
        let words = BLOCK_BYTES / self.stride;
        let wrong_in = |block: u64| {
            let content = contents.get(&block).copied().unwrap_or_default();
            // SAFETY: as above.
            let is_wrong = |index: &u64| unsafe { self.word(*index).read() != content.word(seed, *index) };
            (block * words..(block + 1) * words).filter(is_wrong).count() as u64
        };
        (0..self.mapping.bytes() / BLOCK_BYTES).map(wrong_in).sum()
    }

    fn file(&self) -> OwnedFd {
        self.mapping.file().try_clone_to_owned().expect("a descriptor is free")
    }
}

fn expected(seed: u64, index: u64) -> u64 {
    (seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// What a tenant has written to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Zeros.
    Zero,
    /// The words of this version; 0 is what it had first.
    Version(u64),
}

impl Default for Content {
    fn default() -> Content {
        Content::Version(0)
    }
}

impl Content {
    fn word(self, seed: u64, index: u64) -> u64 {
        match self {
            Content::Zero => 0,
            Content::Version(version) => expected(seed ^ version << 48, index),
        }
    }
}

/// Something that happens to a tenant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// It dies.
    Dies(Owner),
    /// It frees a handle.
    Frees(HandleKey),
}

/// What happens at a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Twist {
    /// This, before it is handled.
    Before(Event),
    /// This, after it is answered.
    After(Event),
    /// The tenant fails.
    Fails,
    /// The tenant says nothing.
    Silent,
}

/// What a tenant is asked for.
enum Asked {
    Unmap,
    Create,
    Take(Arc<OwnedFd>),
}

/// All tenants, and the device's bytes.
pub(super) struct World {
    replies: Sender<Reply>,
    imports: Imports,
    capacity: u64,
    stride: u64,
    pub(super) most_used: u64,
    sizes: BTreeMap<HandleKey, u64>,
    mapped: BTreeMap<HandleKey, Physical>,
    /// What was written to blocks since they were allocated.
    contents: BTreeMap<HandleKey, BTreeMap<u64, Content>>,
    /// What dead tenants had: not torn down yet.
    undead: Vec<Physical>,
    pub(super) dead: BTreeSet<Owner>,
    /// Requests about single handles so far.
    pub(super) requests: u64,
    /// Handles that were put into memory which another tenant had.
    pub(super) taken: u64,
    /// What happens at which request.
    pub(super) twist: Option<(u64, Twist)>,
    /// Replies that a silent tenant has not sent.
    pub(super) held_back: Vec<Reply>,
}

/// The tenants as the exchange sees them.
#[derive(Clone)]
pub(super) struct FakeTenants(Arc<Mutex<World>>);

impl FakeTenants {
    pub(super) fn new(replies: Sender<Reply>, imports: Imports, capacity: u64) -> FakeTenants {
        FakeTenants(Arc::new(Mutex::new(World {
            replies,
            imports,
            capacity,
            stride: STRIDE,
            most_used: 0,
            sizes: BTreeMap::new(),
            mapped: BTreeMap::new(),
            contents: BTreeMap::new(),
            undead: Vec::new(),
            dead: BTreeSet::new(),
            requests: 0,
            taken: 0,
            twist: None,
            held_back: Vec::new(),
        })))
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("no test thread has panicked")
    }
}

impl World {
    /// A new handle with contents that depend on its key; its file.
    pub(super) fn allocate(&mut self, key: HandleKey, bytes: u64) -> OwnedFd {
        let physical = Physical::new(bytes, self.stride);
        physical.fill(seed(key));
        let file = physical.file();
        self.sizes.insert(key, bytes);
        self.mapped.insert(key, physical);
        self.count();
        file
    }

    /// Words of a handle that are wrong; None if the tenant has no memory for it.
    pub(super) fn wrong_words(&self, key: HandleKey) -> Option<u64> {
        let contents = self.contents.get(&key).cloned().unwrap_or_default();
        self.mapped.get(&key).map(|physical| physical.wrong_words(seed(key), &contents))
    }

    /// A tenant that runs writes to a block of its own.
    pub(super) fn write(&mut self, key: HandleKey, block: u64, content: Content) {
        let physical = self.mapped.get(&key).expect("who runs has its memory");
        physical.fill_block(block, content, seed(key));
        self.contents.entry(key).or_default().insert(block, content);
    }

    /// Another worker is there.
    pub(super) fn meet(&mut self, replies: Sender<Reply>, imports: Imports) {
        self.replies = replies;
        self.imports = imports;
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// What a tenant tells another worker of its handles.
    pub(super) fn report(&self, owner: Owner) -> Vec<Reported> {
        let own = self.sizes.iter().filter(|(key, _)| key.owner == owner);
        let report = |(key, &bytes): (&HandleKey, &u64)| {
            let file = self.mapped.get(key).map(Physical::file);
            let memory = file.map_or(ReportedMemory::None, ReportedMemory::Shown);
            Reported { handle: key.handle, bytes, memory }
        };
        own.map(report).collect()
    }

    /// The handles that have not been freed, of tenants that live.
    pub(super) fn living(&self) -> Vec<(HandleKey, u64)> {
        self.sizes.iter().map(|(&key, &bytes)| (key, bytes)).collect()
    }

    /// Frees what dead tenants had.
    pub(super) fn tear_down(&mut self) {
        self.undead.clear();
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Dies(owner) => {
                self.dead.insert(owner);
                self.sizes.retain(|key, _| key.owner != owner);
                let (dead, mapped) =
                    std::mem::take(&mut self.mapped).into_iter().partition(|(key, _)| key.owner == owner);
                self.mapped = mapped;
                let dead: BTreeMap<HandleKey, Physical> = dead;
                self.undead.extend(dead.into_values());
                self.send(Reply::Gone { owner });
            }
            Event::Frees(key) => {
                if self.sizes.remove(&key).is_some() {
                    self.mapped.remove(&key);
                    self.send(Reply::Freed { owner: key.owner, handles: vec![key.handle] });
                }
            }
        }
    }

    /// A tenant holds no memory for a handle any more, and has not said so.
    pub(super) fn unmap_silently(&mut self, key: HandleKey) {
        self.mapped.remove(&key);
    }

    pub(super) fn send(&mut self, reply: Reply) {
        // A worker that has died does not listen.
        let _ = self.replies.send(reply);
    }

    /// From now on every byte of new memory has contents that are checked, and that cannot be packed.
    pub(super) fn fill_densely(&mut self) {
        self.stride = 8;
    }

    /// Whether nobody has anything on the device, the dead included.
    pub(super) fn is_empty(&self) -> bool {
        self.sizes.is_empty() && self.mapped.is_empty() && self.undead.is_empty()
    }

    /// The bytes on the device: what a tenant has mapped or the mover has imported.
    pub(super) fn used(&self) -> u64 {
        let mut physical = self.imports.lock().expect("no panic").clone();
        for held in self.mapped.values().chain(&self.undead) {
            physical.insert(held.inode, held.mapping.bytes());
        }
        physical.values().sum()
    }

    fn count(&mut self) {
        let used = self.used();
        self.most_used = self.most_used.max(used);
        assert!(used <= self.capacity, "{used} bytes on a device of {}", self.capacity);
    }

    fn request(&mut self, owner: Owner, asked: Vec<(u64, Asked)>) -> Result<(), Gone> {
        assert!(!asked.is_empty() && asked.len() <= HANDLES_PER_REQUEST_MAX);
        for (handle, asked) in asked {
            let key = HandleKey { owner, handle };
            self.requests += 1;
            let now = self.requests;
            let twist = self.twist.take_if(|(at, _)| *at == now).map(|(_, twist)| twist);
            if let Some(Twist::Before(event)) = twist {
                self.happen(event);
            }
            if self.dead.contains(&owner) {
                // Half of the time the send fails, else the message is lost.
                if self.requests.is_multiple_of(2) {
                    return Err(Gone);
                }
                continue;
            }
            // To unmap or to create means the same once and twice; what is there cannot be taken.
            let is_able = !matches!(asked, Asked::Take(_)) || !self.mapped.contains_key(&key);
            let known = self.sizes.contains_key(&key) && is_able;
            let reply = match asked {
                _ if !known || matches!(twist, Some(Twist::Fails)) => {
                    // A tenant says so of what it has freed.
                    let code = if self.sizes.contains_key(&key) { 2 } else { 0 };
                    Reply::Failed { owner, handles: vec![handle], code, call: "cuMemCreate".to_owned() }
                }
                Asked::Create if self.mapped.contains_key(&key) => {
                    let files = vec![self.mapped[&key].file()];
                    Reply::Created { owner, handles: vec![handle], files }
                }
                Asked::Create => {
                    let physical = Physical::new(self.sizes[&key], self.stride);
                    physical.spoil();
                    let files = vec![physical.file()];
                    self.mapped.insert(key, physical);
                    self.count();
                    Reply::Created { owner, handles: vec![handle], files }
                }
                Asked::Take(file) => {
                    let file = file.try_clone().expect("a descriptor is free");
                    let mapping = Mapping::of_file(file, self.sizes[&key]).expect("memory of this size");
                    self.mapped.insert(key, Physical::of(mapping, self.stride));
                    self.taken += 1;
                    // It may look at once, and must see nobody else's bytes.
                    assert_eq!(self.wrong_words(key), Some(0), "{key} was taken before it was filled");
                    self.count();
                    Reply::Taken { owner, handles: vec![handle] }
                }
                Asked::Unmap => {
                    self.mapped.remove(&key);
                    Reply::Unmapped { owner, handles: vec![handle] }
                }
            };
            if let Some(Twist::Silent) = twist {
                self.held_back.push(reply);
            } else {
                self.send(reply);
            }
            if let Some(Twist::After(event)) = twist {
                self.happen(event);
            }
        }
        Ok(())
    }
}

fn seed(key: HandleKey) -> u64 {
    (u64::from(key.owner.0) << 32) | key.handle
}

impl Tenants for FakeTenants {
    fn unmap(&mut self, owner: Owner, handles: &[u64]) -> Result<(), Gone> {
        self.world().request(owner, handles.iter().map(|&handle| (handle, Asked::Unmap)).collect())
    }

    fn create(&mut self, owner: Owner, handles: &[u64]) -> Result<(), Gone> {
        self.world().request(owner, handles.iter().map(|&handle| (handle, Asked::Create)).collect())
    }

    fn take(&mut self, owner: Owner, handles: &[(u64, Arc<OwnedFd>)]) -> Result<(), Gone> {
        let asked = handles.iter().map(|(handle, file)| (*handle, Asked::Take(Arc::clone(file))));
        self.world().request(owner, asked.collect())
    }
}
