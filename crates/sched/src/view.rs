//! How things are, for people: plain data.

use crate::{Bytes, HintCounts, Span, TenantId};

/// Where a tenant stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// At the door.
    Queued,
    /// Let in, with no context yet.
    Joined,
    /// It may compute.
    Running,
    /// Off the GPU with all its memory on the device.
    Frozen,
    /// Its memory goes out or comes in.
    Moving,
    /// Off the GPU, some of its memory in the arena.
    Away,
    /// Its job is paused.
    Paused,
}

/// A tenant, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Where it stands.
    pub state: State,
    /// On the device, without its context.
    pub resident: Bytes,
    /// In the arena.
    pub away: Bytes,
    /// Turns it had.
    pub turns: u64,
    /// How long it has been waiting for a turn, for the door or for memory; nothing if it is not.
    pub waiting: Span,
    /// What became of its hints.
    pub hints: HintCounts,
    /// What its context takes of the device.
    pub residue: Bytes,
    /// What it was granted and has not used yet.
    pub granted: Bytes,
    /// What of its memory has to stay on the device.
    pub pinned: Bytes,
    /// In the host's memory, mapped at addresses of the device, or granted there.
    pub host: Bytes,
    /// What of its memory has changed its home so far, both ways together.
    pub rehomed: Bytes,
    /// All of its memory has to stay on the device: its job is reserved.
    pub reserved: bool,
}

/// What somebody who waits may expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Its place among those who wait for turns, or among those at the door; the first is 1. None if nobody knows.
    pub place: Option<u32>,
    /// How many wait there.
    pub of: u32,
    /// About how long until it is next, if that can be said.
    pub forecast: Option<Span>,
}

/// A GPU, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuView {
    /// Device memory that may be used.
    pub capacity: Bytes,
    /// What tenants hold of it, contexts and grants included.
    pub used: Bytes,
    /// What others hold of it.
    pub unmanaged: Bytes,
    /// Whose turn it is.
    pub running: Option<TenantId>,
    /// What stays on it whoever's turn it is: pinned or reserved.
    pub stays: Bytes,
    /// May programs outside of rota compute on it?
    pub strangers: bool,
    /// Is somebody latency-critical active?
    pub critical: bool,
}
