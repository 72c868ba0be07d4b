//! What the mover needs of a GPU, as a trait, so that everything else is tested without one.
//!
//! Copies are started, never waited for: each [`Lane`] does what was started on it in that order, and a [`Mark`] tells
//! when everything before it is done.

use blocks::{DeviceKey, Sums};
use cuda::CUresult;
use std::os::fd::OwnedFd;

/// The most blocks of a memory that is hashed: 4 GiB.
pub const HASH_BLOCKS_MAX: usize = 2048;

/// The most memories that are being hashed, or whose sums were not fetched.
pub const HASHES_MAX: usize = 16;

/// A direction of copying, or hashing. All lanes run at the same time; within one, things end in the order they were
/// started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// From the device to the host.
    Out,
    /// From the host to the device.
    In,
    /// On the device.
    Hash,
}

/// A point on a lane: passed when everything that was started on the lane before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// On which lane.
    pub lane: Lane,
    /// The how manieth mark of that lane, counted from 1.
    pub number: u64,
}

/// Device memory as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes that nobody uses.
    pub free_bytes: u64,
    /// All bytes.
    pub total_bytes: u64,
}

/// Why the device did not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A driver call failed.
    #[error("{call} failed: {code}")]
    Call {
        /// The driver function.
        call: &'static str,
        /// What it returned.
        code: CUresult,
    },
    /// A copy would leave its memory.
    #[error("a copy of {bytes} bytes at {offset} leaves its memory of {memory_bytes} bytes")]
    OutOfRange {
        /// Where it starts.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// The size of the memory.
        memory_bytes: u64,
    },
    /// Nobody has prepared for hashing, or that failed.
    #[error("hashing is not prepared on this device")]
    NoHashing,
    /// More than can be hashed.
    #[error("a memory of {blocks} blocks is not hashed; {HASH_BLOCKS_MAX} are the most")]
    TooLong {
        /// Its size.
        blocks: u64,
    },
    /// As many as can be are being hashed, or the sums of this one had to make way for those of others.
    #[error("no more than {HASHES_MAX} memories are hashed at a time")]
    TooMany,
    /// No such device.
    #[error("no GPU {wanted}; there are: {found}")]
    NoSuchDevice {
        /// Index or UUID that was asked for.
        wanted: String,
        /// The UUIDs there are.
        found: String,
    },
}

/// A GPU as the mover sees it.
pub trait Device {
    /// Memory of a tenant that is imported and mapped here. Must go back through [`Device::release`].
    type Memory;

    /// What copies of a memory are started with: they may be started later than whoever has the memory can be asked.
    type Target: Clone + std::fmt::Debug + Send;

    /// For copies of this memory.
    fn target(&self, memory: &Self::Memory) -> Self::Target;

    /// Makes the device usable on the calling thread; called once there before anything else.
    fn attach(&mut self) -> Result<(), DeviceError>;

    /// Imports a handle by its file and maps it here.
    fn import(&mut self, file: OwnedFd, bytes: u64) -> Result<Self::Memory, DeviceError>;

    /// Drops an import. No copy of it may be under way. After an error the memory may still be held.
    fn release(&mut self, memory: Self::Memory) -> Result<(), DeviceError>;

    /// What a bug lets go of twice.
    #[cfg(any(test, feature = "planted"))]
    fn twice(&self, memory: &Self::Memory) -> Self::Memory;

    /// Starts a copy to the host, on [`Lane::Out`].
    ///
    /// # Safety
    /// `to` must be valid for writes of `bytes` bytes, registered (or slower, where the device has refused that), and
    /// untouched by others until a mark set after this call has passed. `memory` must not be released before that either.
    unsafe fn copy_out(
        &mut self,
        memory: &Self::Target,
        offset: u64,
        to: *mut u8,
        bytes: u64,
    ) -> Result<(), DeviceError>;

    /// Starts a copy from the host, on [`Lane::In`].
    ///
    /// # Safety
    /// `from` must be valid for reads of `bytes` bytes, registered (or slower, where the device has refused that), and not
    /// written by others until a mark set after this call has passed. `memory` must not be released before that either.
    unsafe fn copy_in(
        &mut self,
        memory: &Self::Target,
        offset: u64,
        from: *const u8,
        bytes: u64,
    ) -> Result<(), DeviceError>;

    /// Starts setting bytes to zero, on [`Lane::In`]. `memory` must not be released before a mark set after this call has
    /// passed.
    fn zero(&mut self, memory: &Self::Target, offset: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Starts a copy of so many bytes from the beginning of one memory to that of another, on a lane of copies. Neither may be
    /// released before a mark set after this call has passed.
    fn copy_between(
        &mut self,
        lane: Lane,
        from: &Self::Target,
        to: &Self::Target,
        bytes: u64,
    ) -> Result<(), DeviceError>;

    /// Makes ready for hashing with this key, once, on the thread that made the device or was attached to it. If that
    /// fails, everything but hashing works all the same.
    fn prepare_hashing(&mut self, key: &DeviceKey) -> Result<(), DeviceError>;

    /// Starts hashing all blocks of a memory, on [`Lane::Hash`], and marks the end. Nobody may write to it, and it must not
    /// be released, before that mark has passed.
    fn hash(&mut self, memory: &Self::Memory) -> Result<Mark, DeviceError>;

    /// Starts hashing some blocks, each by its memory and its number there, on [`Lane::Hash`], and marks the end. None of the
    /// memories may be released before that. Where somebody writes to a block meanwhile, what comes out is the hash of nothing.
    fn hash_some(&mut self, blocks: &[(&Self::Memory, u64)]) -> Result<Mark, DeviceError>;

    /// What came out for each block, once the mark of [`Device::hash`] or [`Device::hash_some`] has passed. It is there until
    /// [`HASHES_MAX`] others were started.
    fn sums(&mut self, mark: Mark) -> Result<Vec<Sums>, DeviceError>;

    /// Sets a mark behind everything that was started on this lane so far.
    fn mark(&mut self, lane: Lane) -> Result<Mark, DeviceError>;

    /// Whether a mark has passed. An error means that what was started before the mark may never be done.
    fn passed(&mut self, mark: Mark) -> Result<bool, DeviceError>;

    /// Waits until nothing is under way on any lane. An error means that the device does nothing for this process any more, as
    /// after some that are met in the middle of a copy: only another process can go on then.
    fn drain(&mut self) -> Result<(), DeviceError>;

    /// What registers host memory with this device, from any thread.
    fn registrar(&self) -> Box<dyn Registrar>;

    /// How much memory there is, and how much is free.
    fn capacity(&mut self) -> Result<Capacity, DeviceError>;

    /// The device's id, as `GPU-…`.
    fn uuid(&self) -> &str;

    /// The device's name, for people.
    fn name(&self) -> &str;
}

/// Pins host memory for fast copies. Its calls may take milliseconds each, so a thread of its own makes them.
pub trait Registrar: Send {
    /// Pins this range.
    ///
    /// # Safety
    /// The range must be mapped, and stay so until it is unregistered.
    unsafe fn register(&mut self, start: *mut u8, bytes: u64) -> Result<(), DeviceError>;

    /// Undoes [`Registrar::register`] of the range that starts here.
    ///
    /// # Safety
    /// No copy from or to the range may be under way.
    unsafe fn unregister(&mut self, start: *mut u8) -> Result<(), DeviceError>;
}
