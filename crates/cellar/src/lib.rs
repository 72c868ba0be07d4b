//! The cellar: a second place for what is away, when the arena is full. Blocks go to a file on a local disk, packed
//! where that pays, sealed with a key that is only in memory.
//!
//! - [`Cellar`]: put, get and discard blocks, at once or by jobs that are polled.
//! - [`Ticket`]: all that is needed besides file and key to get one block back. Whoever keeps file, key and tickets
//!   can take a cellar over from a process that died: [`Cellar::from_parts`], by the rules of [`takeover`].
//! - [`seal`]: the key, and that no nonce is ever used twice.
//! - [`pack`]: packs blocks where that pays: [`pack::choice`] decides from measured figures alone.
//! - [`pace`]: how fast the disk and the processors are.
//! - [`disk`]: what is needed of a disk; the real one is an unlinked file.
//!
//! The file has no name and no meaning without the key, so nothing of it outlives the processes that hold both. It
//! is no storage: what is put has left for the disk, or failed, but a machine that goes down takes the contents with it.
//!
//! Nothing here decides which blocks are cold, and nothing here knows GPUs.

mod books;
mod buffer;
pub mod cellar;
pub mod disk;
pub mod pace;
pub mod pack;
pub mod seal;
mod settings;
mod space;
mod statistics;
pub mod takeover;
mod ticket;

pub use cellar::{
    Busy, Cellar, Destination, Done, GetError, JobId, NotParted, OpenError, Parts, PutError, Refused, Source,
    TakenOver,
};
pub use seal::Key;
pub use settings::{
    Accept, JOBS_MAX, LIMIT_BYTES_MAX, Settings, SettingsError, WORKERS_MAX, ZERO_BLOCKS_MAX,
};
pub use space::Extent;
pub use statistics::Statistics;
pub use takeover::{Orphan, SetAside, StillAlive};
pub use ticket::{TICKET_BYTES_MAX, Ticket, TicketError};

use serde::{Deserialize, Serialize};
use std::fmt;

/// The largest block there is: what the mover copies in.
pub const BLOCK_BYTES_MAX: usize = 2 << 20;

/// Space in the file is handed out in this unit. A block of 2 MiB has 32 of them at most, so that a block fits
/// whenever there is enough space, however scattered it is.
pub const GRANULE_BYTES: u64 = 64 << 10;

/// A block, by the words of whoever owns it. The cellar only compares and prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockId {
    /// The tenant's number.
    pub tenant: u32,
    /// The handle, by the name that the tenant gave it.
    pub handle: u64,
    /// Which block of the handle.
    pub index: u32,
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} of handle {} of tenant {}", self.index, self.handle, self.tenant)
    }
}
