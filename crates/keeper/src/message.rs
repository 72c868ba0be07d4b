//! What worker and keeper say to each other: one request, one answer, on a packet socket ([`wire::Connection`]).
//!
//! The bytes are fixed by `tests/golden.rs`; a change of them raises [`VERSION`]. What is too long or malformed ends the
//! connection and changes nothing.
//!
//! A worker may die after the keeper has acted and before it has read the answer. So the same request twice means the
//! same as once: the second is answered [`Outcome::AlreadySo`], or by the same extents. Whoever comes later asks what is
//! recorded, and goes on from there.

mod answer;
mod request;

pub use answer::{
    Answer, Lack, Outcome, Place, Progress, Recorded, Refusal, Reservation, SegmentView, Welcome,
};
pub use request::{End, In, Out, Request, Wanted};

use serde::{Deserialize, Serialize};

/// Version of the messages. Both sides must agree.
pub const VERSION: u32 = 4;

/// The most handles in one request.
pub const BATCH_MAX: usize = 64;

/// The most blocks a handle may have: 256 MiB, as on the wire between tenants and worker.
pub const HANDLE_BLOCKS_MAX: u64 = wire::HANDLE_BYTES_MAX / wire::BLOCK_BYTES;

/// The most blocks in one [`Request::Reserve`]: each may become an extent of its own in the answer.
pub const RESERVED_BLOCKS_MAX: u64 = 4096;

/// The most facts in one [`Request::RecordOut`].
pub const FACTS_MAX: usize = 3072;

/// The most bytes of tickets in one message, with room for the rest of it.
pub const TICKETS_BYTES_MAX: usize = 48 * 1024;

/// The longest that a ticket may be.
pub const TICKET_BYTES_MAX: usize = 1024;

/// The most segments in one answer: each brings its file.
pub const SEGMENTS_PER_ANSWER_MAX: usize = wire::FILES_MAX;

/// The most tenants in one answer.
pub const TENANTS_PER_ANSWER_MAX: usize = 1024;

/// The most bytes of an [`Answer::Recorded`], with room for the rest of it.
pub const PAGE_BYTES_MAX: usize = 48 * 1024;

/// A run of bytes in the arena: whole blocks, within one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Extent {
    /// Where it starts. Segment *n* starts at *n* times the size of a segment.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// What the worker knows of a block, and wants back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockFact {
    /// A hash of its bytes. To the keeper it says only whether they are the same as before.
    pub hash: [u8; 16],
    /// All of it is zero, so that its place in the arena need not have been written, and counts for nothing: it may have
    /// another tenant's bytes. So it is never copied in; the device's block is set to zero instead. And when the block
    /// goes out again and is not zero any more, it has to be copied, whatever lies in its place.
    pub zero: bool,
}
