//! What the core is told and what it answers: plain data.

use std::collections::BTreeSet;
use std::time::Duration;
use wire::{GrantId, HandleId, TenantId, TenantState};

/// A handle of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owned {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub handle: HandleId,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A tenant is at the door, and will make a context once it is welcomed.
    Joined(TenantId),
    /// A tenant made its first channels, or gave up its last.
    Context {
        /// Who.
        tenant: TenantId,
        /// Are there channels now?
        present: bool,
    },
    /// A tenant asks for bytes.
    Grow {
        /// Who.
        tenant: TenantId,
        /// Its name for the request.
        grant: GrantId,
        /// How many.
        bytes: u64,
    },
    /// The mover knows a handle that was claimed, or cannot.
    Adopted {
        /// Who.
        tenant: TenantId,
        /// Which.
        handle: HandleId,
        /// Can the mover move it?
        movable: bool,
    },
    /// The arena has reached its final size.
    Arena(u64),
    /// A grant will not be used.
    Returned {
        /// Who.
        tenant: TenantId,
        /// Which grant.
        grant: GrantId,
    },
    /// Handles are gone, the mover's import of them too.
    Freed(Vec<Owned>),
    /// A shift is over, well or not.
    Shifted(Shifted),
    /// A tenant died or hung up. What it held is not free yet.
    Left(TenantId),
    /// A tenant that left is still alive, and keeps what it holds.
    Lingers(TenantId),
    /// What a tenant that left had held is free now.
    Buried(TenantId),
    /// Time passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Let a tenant in: there is room for its context.
    Welcome(TenantId),
    /// Tell the tenant that it may allocate.
    Grant {
        /// Whom.
        tenant: TenantId,
        /// Which request.
        grant: GrantId,
    },
    /// Tell the tenant that it may not.
    Deny {
        /// Whom.
        tenant: TenantId,
        /// Which request.
        grant: GrantId,
        /// Why.
        reason: String,
    },
    /// Take some off the GPU, move memory, put one on. Ends in exactly one [`Event::Shifted`].
    Shift(Shift),
}

/// A change of who is on the GPU. The steps happen in this order; a step that fails ends it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shift {
    /// Freeze these.
    pub freeze: Vec<TenantId>,
    /// Move these out.
    pub out: Vec<Owned>,
    /// Move these in.
    pub into: Vec<Owned>,
    /// Device bytes that are free for what comes in, before anything has gone out.
    pub room_bytes: u64,
    /// Thaw this one, if all of its memory is there by then.
    pub thaw: Option<TenantId>,
}

/// What became of a [`Shift`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shifted {
    /// These are frozen now.
    pub froze: Vec<TenantId>,
    /// All that is in the arena now, of every tenant, as the mover knows it. What it is not sure of is not among them: it
    /// may take up the device.
    pub away: BTreeSet<Owned>,
    /// These were to go out, and could not.
    pub stuck: Vec<Owned>,
    /// Nothing was done, because the one whose turn it was is not able to have it.
    pub skipped: bool,
    /// This one has its turn.
    pub thawed: Option<TenantId>,
}

/// The sizes and the rule that stay as they are while the daemon runs.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The GPU's size as it is treated.
    pub capacity_bytes: u64,
    /// What the daemon's own context takes.
    pub reserve_bytes: u64,
    /// What each tenant's context takes while it exists.
    pub residue_bytes: u64,
    /// Host memory for what is away.
    pub arena_bytes: u64,
    /// How long a turn is.
    pub turn: Duration,
    /// By which share of its length a turn varies.
    pub turn_jitter: f64,
    /// Where the variation begins.
    pub seed: u64,
}

/// A tenant as `rota ps` shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Described {
    /// What it is doing.
    pub state: TenantState,
    /// Bytes on the device.
    pub resident_bytes: u64,
    /// Bytes in the arena.
    pub away_bytes: u64,
    /// Turns it has had.
    pub turns: u64,
    /// How long it has waited for the next one.
    pub waiting: Duration,
}
