//! A device in plain memory, for tests: handles are memfds, and copies really copy bytes.
//!
//! It is strict and slow on purpose. A copy happens only after [`FakeDevice::polls_per_copy`] looks at a mark of its
//! lane, as late as possible, so that memory that is let go too early shows up: either as wrong bytes, or in
//! [`FakeDevice::violations`]. Nothing depends on time. Failures happen on request ([`FakeDevice::fail`]).

pub(crate) mod mapping;
mod operation;
mod registrar;
mod work;

use crate::device::{Capacity, Device, DeviceError, HASH_BLOCKS_MAX, HASHES_MAX, Lane, Mark, Registrar};
use blocks::{BLOCK_BYTES, DeviceKey, Sums};
use cuda::CUresult;
use mapping::Mapping;
pub use operation::Operation;
use registrar::{FakeRegistrar, is_registered};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use work::Work;

/// Imports by the inode of their file, with their size. The inode stands for the physical memory.
pub type Imports = Arc<Mutex<BTreeMap<u64, u64>>>;

/// What was done that must never be done, in words.
pub type Violations = Arc<Mutex<Vec<String>>>;

/// What the device shares with its registrars.
#[derive(Debug, Default)]
struct Shared {
    /// Registered host ranges: start and size.
    registered: BTreeMap<usize, u64>,
    /// Which call of an operation fails, counted down.
    faults: BTreeMap<Operation, u64>,
    /// It has refused to register some: from then on it copies without, as drivers do.
    refused: bool,
    /// Every call fails from now on.
    broken: bool,
}

impl Shared {
    fn may_fail(&mut self, operation: Operation) -> Result<(), DeviceError> {
        if self.broken {
            return Err(DeviceError::Call { call: "a broken device", code: CUresult::ILLEGAL_ADDRESS });
        }
        let Some(left) = self.faults.get_mut(&operation) else { return Ok(()) };
        *left -= 1;
        if *left > 0 {
            return Ok(());
        }
        self.faults.remove(&operation);
        Err(DeviceError::Call { call: "a call that was made to fail", code: CUresult::UNKNOWN })
    }
}

/// Imported memory.
#[derive(Clone, Debug)]
pub struct FakeMemory {
    mapping: Arc<Mapping>,
    inode: u64,
}

#[derive(Debug, Default)]
struct Track {
    work: VecDeque<Work>,
    polls: u32,
    marks_set: u64,
    marks_passed: u64,
}

/// The device. See the module.
pub struct FakeDevice {
    uuid: String,
    total_bytes: u64,
    shared: Arc<Mutex<Shared>>,
    imports: Imports,
    out: Track,
    into: Track,
    hash: Track,
    key: Option<DeviceKey>,
    /// What came out, by mark.
    sums: BTreeMap<u64, Vec<Sums>>,
    forge: Option<Forge>,
    violations: Violations,
    polls: u64,
    at_poll: Option<(u64, Box<dyn FnOnce() + Send>)>,
    each_call: Option<Call>,
    stalls_in: Arc<AtomicBool>,
    /// The most bytes of copies that a lane out and a lane in had at a time.
    pub most_under_way: [u64; 2],
    /// How many looks at a lane's marks each copy of that lane takes; 1 at first.
    pub polls_per_copy: u32,
}

/// What happens at every call.
pub type Call = Box<dyn Fn() + Send>;

/// What makes other sums of those that a memory has.
pub type Forge = Box<dyn FnMut(Vec<Sums>) -> Vec<Sums> + Send>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeDevice {
    /// A device with this much memory.
    pub fn new(total_bytes: u64) -> FakeDevice {
        FakeDevice {
            uuid: uuid(0),
            total_bytes,
            shared: Arc::default(),
            imports: Arc::default(),
            out: Track::default(),
            into: Track::default(),
            hash: Track::default(),
            key: None,
            sums: BTreeMap::new(),
            forge: None,
            violations: Arc::default(),
            polls: 0,
            at_poll: None,
            each_call: None,
            stalls_in: Arc::default(),
            most_under_way: [0; 2],
            polls_per_copy: 1,
        }
    }

    /// Another device beside this one, with a number that is its own. Host memory that is registered is so for both, and
    /// mistakes that are asked for happen on either.
    pub fn beside(&self, number: u8, total_bytes: u64) -> FakeDevice {
        let shared = Arc::clone(&self.shared);
        FakeDevice { uuid: uuid(number), shared, ..FakeDevice::new(total_bytes) }
    }

    /// Makes the n-th call (from 1) of an operation from now on fail, once.
    pub fn fail(&mut self, operation: Operation, nth: u64) {
        assert!(nth > 0, "calls are counted from 1");
        lock(&self.shared).faults.insert(operation, nth);
    }

    /// Calls something at the n-th look (from 1) at a mark from now on: a moment in the middle of copies.
    pub fn at_poll(&mut self, nth: u64, what: impl FnOnce() + Send + 'static) {
        self.at_poll = Some((self.polls + nth, Box::new(what)));
    }

    /// Calls something before every call of [`Device`] that starts, ends or looks at something, and behind every look.
    pub fn each_call(&mut self, what: impl Fn() + Send + 'static) {
        self.each_call = Some(Box::new(what));
    }

    fn called(&self) {
        if let Some(what) = &self.each_call {
            what();
        }
    }

    /// Has hashes come out wrong from now on, as this says.
    pub fn forge_sums(&mut self, forge: impl FnMut(Vec<Sums>) -> Vec<Sums> + Send + 'static) {
        self.forge = Some(Box::new(forge));
    }

    /// Nothing that is started on the lane in happens from now on, until this is false.
    pub fn stall_lane_in(&self) -> Arc<AtomicBool> {
        self.stalls_in.store(true, SeqCst);
        Arc::clone(&self.stalls_in)
    }

    /// How many calls are to fail and have not yet.
    pub fn faults_left(&self) -> u64 {
        lock(&self.shared).faults.len() as u64
    }

    /// Nothing that was asked for and has not happened yet will.
    pub fn heal(&mut self) {
        lock(&self.shared).faults.clear();
        self.at_poll = None;
    }

    /// Whether what [`FakeDevice::fail`] and [`FakeDevice::at_poll`] asked for has happened.
    pub fn all_happened(&self) -> bool {
        lock(&self.shared).faults.is_empty() && self.at_poll.is_none()
    }

    /// Breaks the device: copies under way never happen, and every call fails from now on.
    pub fn break_down(&mut self) {
        lock(&self.shared).broken = true;
        self.out.work.clear();
        self.into.work.clear();
        self.hash.work.clear();
    }

    /// What was done that must never be done. It can be read while somebody else owns the device.
    pub fn violations(&self) -> Violations {
        Arc::clone(&self.violations)
    }

    /// What is imported now.
    pub fn imports(&self) -> Imports {
        Arc::clone(&self.imports)
    }

    /// How much host memory is registered now.
    pub fn registered_bytes(&self) -> u64 {
        lock(&self.shared).registered.values().sum()
    }

    fn track(&mut self, lane: Lane) -> &mut Track {
        match lane {
            Lane::Out => &mut self.out,
            Lane::In => &mut self.into,
            Lane::Hash => &mut self.hash,
        }
    }

    fn start_copy(
        &mut self,
        lane: Lane,
        memory: &FakeMemory,
        offset: u64,
        host: usize,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        let memory_bytes = memory.mapping.bytes();
        if offset.checked_add(bytes).is_none_or(|end| end > memory_bytes) {
            return Err(DeviceError::OutOfRange { offset, bytes, memory_bytes });
        }
        if !is_registered(&self.shared, host, bytes) {
            let call = "a copy of host memory that is not registered as one range";
            return Err(DeviceError::Call { call, code: CUresult::INVALID_VALUE });
        }
        // Of copies in, several may read the same.
        let others = if lane == Lane::Out { self.into.work.iter() } else { Default::default() };
        let meets = |(start, length): (usize, u64)| {
            (host as u64) < start as u64 + length && (start as u64) < host as u64 + bytes
        };
        if self.out.work.iter().chain(others).filter_map(Work::host).any(meets) {
            lock(&self.violations).push(format!("{lane:?}: a copy of host memory that another one uses"));
        }
        let (memory, inode) = (Arc::clone(&memory.mapping), memory.inode);
        self.track(lane).work.push_back(Work::Copy { memory, inode, offset, host, bytes });
        let under_way: u64 =
            self.track(lane).work.iter().filter_map(Work::host).map(|(_, bytes)| bytes).sum();
        let most = &mut self.most_under_way[lane as usize];
        *most = under_way.max(*most);
        Ok(())
    }

    fn start_hash(&mut self, places: &[(&FakeMemory, u64)]) -> Mark {
        let number = self.hash.marks_set + 1;
        let blocks = places.iter().map(|&(memory, block)| (Arc::clone(&memory.mapping), memory.inode, block));
        self.hash.work.push_back(Work::Hash { blocks: blocks.collect(), mark: number });
        self.hash.marks_set = number;
        self.hash.work.push_back(Work::Mark(number));
        Mark { lane: Lane::Hash, number }
    }

    /// Does what is next on a lane, and passes the marks behind it.
    fn advance(&mut self, lane: Lane) {
        if let Some(work) = self.track(lane).work.pop_front_if(|work| !matches!(work, Work::Mark(_))) {
            self.do_work(lane, work);
        }
        let track = self.track(lane);
        while let Some(&Work::Mark(number)) = track.work.front() {
            track.marks_passed = number;
            track.work.pop_front();
        }
    }
}

fn uuid(number: u8) -> String {
    format!("GPU-{number:08x}-0000-0000-0000-000000000000")
}

impl Device for FakeDevice {
    type Memory = FakeMemory;
    type Target = FakeMemory;

    fn target(&self, memory: &FakeMemory) -> FakeMemory {
        memory.clone()
    }

    fn attach(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn import(&mut self, file: OwnedFd, bytes: u64) -> Result<FakeMemory, DeviceError> {
        self.called();
        lock(&self.shared).may_fail(Operation::Import)?;
        let failed = |call| DeviceError::Call { call, code: CUresult::INVALID_VALUE };
        let stat = rustix::fs::fstat(&file).map_err(|_| failed("fstat"))?;
        if stat.st_size as u64 != bytes {
            return Err(failed("import with the wrong size"));
        }
        let mapping = Mapping::of_file(file, bytes).map_err(|_| failed("mmap"))?;
        if lock(&self.imports).insert(stat.st_ino, bytes).is_some() {
            lock(&self.violations).push("memory was imported twice".to_owned());
        }
        Ok(FakeMemory { mapping: Arc::new(mapping), inode: stat.st_ino })
    }

    fn release(&mut self, memory: FakeMemory) -> Result<(), DeviceError> {
        self.called();
        lock(&self.shared).may_fail(Operation::Release)?;
        lock(&self.imports).remove(&memory.inode);
        let is_of = |work: &Work| work.inodes().contains(&memory.inode);
        if self.out.work.iter().chain(&self.into.work).chain(&self.hash.work).any(is_of) {
            lock(&self.violations).push("memory was released during a copy".to_owned());
        }
        Ok(())
    }

    #[cfg(any(test, feature = "planted"))]
    fn twice(&self, memory: &FakeMemory) -> FakeMemory {
        memory.clone()
    }

    unsafe fn copy_out(
        &mut self,
        memory: &FakeMemory,
        offset: u64,
        to: *mut u8,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        self.called();
        lock(&self.shared).may_fail(Operation::CopyOut)?;
        self.start_copy(Lane::Out, memory, offset, to as usize, bytes)
    }

    unsafe fn copy_in(
        &mut self,
        memory: &FakeMemory,
        offset: u64,
        from: *const u8,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        self.called();
        lock(&self.shared).may_fail(Operation::CopyIn)?;
        self.start_copy(Lane::In, memory, offset, from as usize, bytes)
    }

    fn zero(&mut self, memory: &FakeMemory, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.called();
        lock(&self.shared).may_fail(Operation::Zero)?;
        let memory_bytes = memory.mapping.bytes();
        if offset.checked_add(bytes).is_none_or(|end| end > memory_bytes) {
            return Err(DeviceError::OutOfRange { offset, bytes, memory_bytes });
        }
        let (memory, inode) = (Arc::clone(&memory.mapping), memory.inode);
        self.into.work.push_back(Work::Zero { memory, inode, offset, bytes });
        Ok(())
    }

    fn copy_between(
        &mut self,
        lane: Lane,
        from: &FakeMemory,
        to: &FakeMemory,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        self.called();
        lock(&self.shared).may_fail(Operation::CopyBetween)?;
        let memory_bytes = from.mapping.bytes().min(to.mapping.bytes());
        if bytes > memory_bytes {
            return Err(DeviceError::OutOfRange { offset: 0, bytes, memory_bytes });
        }
        let between = [from, to].map(|memory| (Arc::clone(&memory.mapping), memory.inode));
        self.track(lane).work.push_back(Work::Between { between, bytes });
        Ok(())
    }

    fn prepare_hashing(&mut self, key: &DeviceKey) -> Result<(), DeviceError> {
        lock(&self.shared).may_fail(Operation::PrepareHashing)?;
        self.key = Some(key.clone());
        Ok(())
    }

    fn hash(&mut self, memory: &FakeMemory) -> Result<Mark, DeviceError> {
        self.called();
        lock(&self.shared).may_fail(Operation::Hash)?;
        if self.key.is_none() {
            return Err(DeviceError::NoHashing);
        }
        let blocks = memory.mapping.bytes() / BLOCK_BYTES as u64;
        if blocks > HASH_BLOCKS_MAX as u64 {
            return Err(DeviceError::TooLong { blocks });
        }
        if self.hash.marks_set - self.hash.marks_passed >= HASHES_MAX as u64 {
            return Err(DeviceError::TooMany);
        }
        let places: Vec<_> = (0..blocks).map(|block| (memory, block)).collect();
        Ok(self.start_hash(&places))
    }

    fn hash_some(&mut self, blocks: &[(&FakeMemory, u64)]) -> Result<Mark, DeviceError> {
        self.called();
        lock(&self.shared).may_fail(Operation::Hash)?;
        if self.key.is_none() {
            return Err(DeviceError::NoHashing);
        }
        if blocks.len() > HASH_BLOCKS_MAX {
            return Err(DeviceError::TooLong { blocks: blocks.len() as u64 });
        }
        for (memory, block) in blocks {
            let (offset, memory_bytes) = (block * BLOCK_BYTES as u64, memory.mapping.bytes());
            if offset >= memory_bytes {
                return Err(DeviceError::OutOfRange { offset, bytes: BLOCK_BYTES as u64, memory_bytes });
            }
        }
        if self.hash.marks_set - self.hash.marks_passed >= HASHES_MAX as u64 {
            return Err(DeviceError::TooMany);
        }
        Ok(self.start_hash(blocks))
    }

    fn sums(&mut self, mark: Mark) -> Result<Vec<Sums>, DeviceError> {
        self.called();
        lock(&self.shared).may_fail(Operation::Sums)?;
        self.sums.remove(&mark.number).ok_or(DeviceError::TooMany)
    }

    fn mark(&mut self, lane: Lane) -> Result<Mark, DeviceError> {
        self.called();
        lock(&self.shared).may_fail(Operation::Mark)?;
        let track = self.track(lane);
        track.marks_set += 1;
        track.work.push_back(Work::Mark(track.marks_set));
        Ok(Mark { lane, number: track.marks_set })
    }

    fn passed(&mut self, mark: Mark) -> Result<bool, DeviceError> {
        self.called();
        lock(&self.shared).may_fail(Operation::Passed)?;
        self.polls += 1;
        if let Some((_, what)) = self.at_poll.take_if(|(at, _)| *at <= self.polls) {
            what();
        }
        let polls_per_copy = self.polls_per_copy;
        let track = self.track(mark.lane);
        track.polls += 1;
        let is_due = track.polls >= polls_per_copy;
        if is_due && !(mark.lane == Lane::In && self.stalls_in.load(SeqCst)) {
            self.track(mark.lane).polls = 0;
            self.advance(mark.lane);
        }
        self.called();
        Ok(self.track(mark.lane).marks_passed >= mark.number)
    }

    fn drain(&mut self) -> Result<(), DeviceError> {
        if lock(&self.shared).broken {
            return Err(DeviceError::Call { call: "a broken device", code: CUresult::ILLEGAL_ADDRESS });
        }
        for lane in [Lane::Out, Lane::In, Lane::Hash] {
            while !self.track(lane).work.is_empty() {
                self.advance(lane);
            }
        }
        Ok(())
    }

    fn registrar(&self) -> Box<dyn Registrar> {
        Box::new(FakeRegistrar(Arc::clone(&self.shared)))
    }

    fn capacity(&mut self) -> Result<Capacity, DeviceError> {
        let used_bytes: u64 = lock(&self.imports).values().sum();
        let free_bytes = self.total_bytes.saturating_sub(used_bytes);
        Ok(Capacity { free_bytes, total_bytes: self.total_bytes })
    }

    fn uuid(&self) -> &str {
        &self.uuid
    }

    fn name(&self) -> &str {
        "fake device"
    }
}
