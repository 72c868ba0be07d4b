//! What a worker asks for.

use super::BlockFact;
use crate::names::{HandleKey, HashSeed, Node, Process, TenantNumber};
use serde::{Deserialize, Serialize};

/// A handle that is to go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Which one.
    pub key: HandleKey,
    /// How large: whole blocks, at most [`super::HANDLE_BLOCKS_MAX`].
    pub bytes: u64,
}

/// A handle whose copy out is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Out {
    /// Which one.
    pub key: HandleKey,
    /// One for each of its blocks, or none at all: then all of its place was written. In a clean copy's place that had facts
    /// there must be some: what was not written there is told by them.
    pub facts: Vec<BlockFact>,
}

/// A handle whose copy in is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct In {
    /// Which one.
    pub key: HandleKey,
    /// Whether its copy in the arena stays until room is needed.
    pub keep_clean: bool,
}

/// What a worker that leaves wants of the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// To stay for the next worker.
    Stay,
    /// To end if nothing is away, and else to stay.
    IfNothingAway,
    /// To end, and all that is away with it.
    Forced,
}

/// What a worker asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first word. Answered by `Welcome` or `Refused`.
    Hello {
        /// [`super::VERSION`] of the sender.
        version: u32,
    },
    /// There is a tenant of this number. Answered by `Outcome`.
    Introduce {
        /// Its number.
        tenant: TenantNumber,
        /// What it is.
        process: Process,
    },
    /// Space for copies out, or for what comes from the cellar. The valid bytes are where they were. Answered by `Reserved`, one
    /// for each.
    Reserve {
        /// Memory of this node is preferred.
        near: Option<Node>,
        /// For what.
        wanted: Vec<Wanted>,
    },
    /// What was reserved for these will not be used, and nothing writes to their space any more. Answered by `Outcomes`.
    Cancel {
        /// Which ones.
        keys: Vec<HandleKey>,
    },
    /// These copies out are complete: the arena's bytes are the valid ones from now on. Answered by `Outcomes`. A tenant may
    /// be asked to unmap only after that answer.
    RecordOut {
        /// Which ones.
        handles: Vec<Out>,
    },
    /// These are on the device again. Answered by `Outcomes`. A tenant may run only after that answer.
    RecordIn {
        /// Which ones.
        handles: Vec<In>,
    },
    /// These were freed by their tenants, and nothing uses their space any more. Answered by `Outcomes`.
    Free {
        /// Which ones.
        keys: Vec<HandleKey>,
    },
    /// Makes at least this much room by dropping clean copies, the oldest first. Answered by `Freed`.
    DropClean {
        /// How much.
        bytes: u64,
        /// Not this one, for which the room is.
        keep: Option<HandleKey>,
    },
    /// A tenant is gone, and nothing uses its space any more. Answered by `Freed`.
    Died {
        /// Which one.
        tenant: TenantNumber,
    },
    /// No copy of an earlier worker is under way any more: the space that was reserved when it went is free again. Answered
    /// by `Freed`.
    Reclaim,
    /// How far is the arena? Answered by `Progress`.
    Progress,
    /// The memory. Answered by `Segments`, which brings a file for each.
    Segments {
        /// How many the worker has, in the order they became ready.
        known: u32,
    },
    /// Who is there? Answered by `Tenants`, in the order of numbers.
    Tenants {
        /// Only those behind this one.
        after: Option<TenantNumber>,
    },
    /// What of a tenant is in the arena? Answered by `Recorded`, in the order of numbers.
    Recorded {
        /// Whose.
        tenant: TenantNumber,
        /// Only those behind this one.
        after: Option<u64>,
    },
    /// The last word: no copy of this worker is under way. Its reservations are dropped. Answered by `Left`.
    Leave {
        /// What follows.
        end: End,
    },
    /// The seed of the hashes in facts, for workers to come. Set once. Answered by `Outcome`.
    KeepSeed {
        /// What it is.
        seed: HashSeed,
    },
    /// There is a cellar, for workers to come as well. Brings its file, and a sealed memfd that has its key. Set once.
    /// Answered by `Outcome`.
    KeepCellar,
    /// Is there a cellar? Answered by `Cellar`, which brings both files if so.
    Cellar,
    /// The cellar has these blocks of a handle that is away, and these are their tickets, for workers to come. What was said
    /// before of this block and those behind it does not count any more. Answered by `Outcome`.
    KeepTickets {
        /// Which handle.
        key: HandleKey,
        /// The block of the first one.
        first: u32,
        /// One for each block from there, in order; all together no more than [`super::TICKETS_BYTES_MAX`].
        tickets: Vec<Vec<u8>>,
    },
    /// The cellar has all blocks of these: from now on its bytes are the valid ones, and their arena space is free. Answered
    /// by `Outcomes`.
    Sink {
        /// Which ones.
        keys: Vec<HandleKey>,
    },
    /// The bytes of these were fetched from the cellar into the space that was reserved for that: they are away in the arena
    /// from now on, and their tickets are forgotten. Answered by `Outcomes`. Only after that their blocks may be discarded.
    Rise {
        /// Which ones.
        keys: Vec<HandleKey>,
    },
    /// The tickets of a handle in the cellar. Answered by `Tickets`.
    Tickets {
        /// Which handle.
        key: HandleKey,
        /// From this block on.
        first: u32,
    },
}
