//! What can go wrong with a cellar.

use crate::disk::FileError;
use crate::seal::SealError;
use crate::settings::{SettingsError, ZERO_BLOCKS_MAX};
use crate::{BLOCK_BYTES_MAX, BlockId};
use std::io;

/// Why there is no cellar.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The settings cannot work.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// There is no file.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no key.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The file does not say how long it is.
    #[error("cannot tell the length of the cellar's file: {0}")]
    Length(#[source] io::Error),
    /// The kernel gives no thread, or no memory for one.
    #[error("cannot start a thread for the cellar: {0}")]
    Thread(#[source] io::Error),
}

/// Why a block could not be put. Everything is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// No block has this size.
    #[error("{block} has {bytes} bytes: a cellar takes 1 to {BLOCK_BYTES_MAX}")]
    Size {
        /// Which one.
        block: BlockId,
        /// How large it is.
        bytes: usize,
    },
    /// The cellar's limit is reached.
    #[error(
        "the cellar is full: {block} needs {needed_bytes} bytes, {free_bytes} of {limit_bytes} are free; discard blocks, \
         or raise the limit"
    )]
    Full {
        /// Which one.
        block: BlockId,
        /// What it takes of the file.
        needed_bytes: u64,
        /// What is left.
        free_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The disk has no room, although the limit would allow for it.
    #[error(
        "the disk of the cellar is full: {block} needs {needed_bytes} bytes, {available_bytes} are available and \
         {leave_bytes} of them are left to others; make room on the disk"
    )]
    DiskFull {
        /// Which one.
        block: BlockId,
        /// What it takes of the file.
        needed_bytes: u64,
        /// What the file system says that it has.
        available_bytes: u64,
        /// What is not to be used of that.
        leave_bytes: u64,
    },
    /// There are too many blocks of zeros: they take nothing of the disk, but memory.
    #[error(
        "the cellar has {ZERO_BLOCKS_MAX} blocks of zeros, and takes no more: {block} is one; discard blocks"
    )]
    Zeros {
        /// Which one.
        block: BlockId,
    },
    /// The disk failed.
    #[error("cannot write {block} to the cellar's disk: {why}")]
    Disk {
        /// Which one.
        block: BlockId,
        /// The kernel's error.
        #[source]
        why: io::Error,
    },
    /// A new session has no key.
    #[error("cannot seal {block}: {why}")]
    Seal {
        /// Which one.
        block: BlockId,
        /// Why not.
        #[source]
        why: SealError,
    },
    /// There is no memory to work in.
    #[error("no memory to pack {block}: {why}")]
    NoMemory {
        /// Which one.
        block: BlockId,
        /// The library's error.
        #[source]
        why: io::Error,
    },
    /// A thread panicked over it.
    #[error("the cellar's thread panicked over {block}")]
    Panicked {
        /// Which one.
        block: BlockId,
    },
}

/// Why a block could not be fetched. Nothing was written where it should have gone; the block is still held.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// It is not there.
    #[error("{block} is not in this cellar: it was discarded, or its ticket is another cellar's")]
    Unknown {
        /// Which one.
        block: BlockId,
    },
    /// It does not fit.
    #[error("{block} has {bytes} bytes, and there is room for {room_bytes}: these must be the same")]
    Size {
        /// Which one.
        block: BlockId,
        /// How large it is.
        bytes: usize,
        /// Where it should go.
        room_bytes: usize,
    },
    /// What is on the disk is not what was written, or the ticket or key is not the one it was written with.
    #[error(
        "{block} is lost: what the disk has at offset {offset} of the cellar's file is not what was written there"
    )]
    Broken {
        /// Which one.
        block: BlockId,
        /// Where it begins in the file.
        offset: u64,
    },
    /// The disk failed.
    #[error("cannot read {block} from the cellar's disk at offset {offset}: {why}")]
    Disk {
        /// Which one.
        block: BlockId,
        /// Where it begins in the file.
        offset: u64,
        /// The kernel's error.
        #[source]
        why: io::Error,
    },
    /// The key of its session cannot be had.
    #[error("cannot open {block}: {why}")]
    Seal {
        /// Which one.
        block: BlockId,
        /// Why not.
        #[source]
        why: SealError,
    },
    /// There is no memory to work in.
    #[error("no memory to unpack {block}: {why}")]
    NoMemory {
        /// Which one.
        block: BlockId,
        /// The library's error.
        #[source]
        why: io::Error,
    },
    /// A thread panicked over it.
    #[error("the cellar's thread panicked over {block}")]
    Panicked {
        /// Which one.
        block: BlockId,
    },
}

impl PutError {
    /// Whether it is for want of room: then it can be tried again when there is some.
    pub fn is_full(&self) -> bool {
        matches!(self, PutError::Full { .. } | PutError::DiskFull { .. } | PutError::Zeros { .. })
    }
}
