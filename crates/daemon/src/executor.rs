//! The executor: what freezes, moves and thaws.
//!
//! Two threads do what they are told, in order, and report each thing once as [`Done`]; they decide nothing. One
//! switches tenants off and on ([`switching`]), the other owns the mover ([`memory`]): so a freeze never waits for a
//! move, and a tenant runs while others' memory moves. A tenant's answers reach a move through a channel of their own,
//! so that a connection's thread never waits.
//!
//! What joins the two is the tenant's page: it says that all of the tenant's memory is there as long as that is so by
//! the mover's books, and without it nobody is thawed.

pub mod memory;
mod moves;
pub mod switching;

use crate::events::{Events, Who};
use crate::grip::Grip;
use crate::outgoing::Outgoing;
use sched::{Bytes, Deadlines, HandleId, OpId, Outcome, Owned, Scope, Slice, Span, TenantId};
use serde_json::json;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long one tenant's freeze or thaw may take at most: it waits for a report of channels, and undoes what failed.
const SWITCH_WITHIN: Duration = Duration::from_secs(5);

/// How many of those may stand in line before one.
const SWITCHES_AHEAD: u32 = 6;

/// How long something that went wrong is not tried again, so that a lasting fault does not spin.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// After this long the core gives something up: longer than anything here takes, because here it is given up first.
pub fn deadlines() -> Deadlines {
    Deadlines {
        grip: span(SWITCH_WITHIN * SWITCHES_AHEAD),
        movement: span(moves::ARENA_WITHIN + 3 * moves::STEP_WITHIN),
        retry: span(RETRY_AFTER),
    }
}

/// A tenant as the executor needs it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Link {
    /// Who it is.
    pub who: Who,
    /// How to freeze it.
    pub grip: Arc<Grip>,
    /// How to speak to it.
    pub outgoing: Outgoing,
}

/// What the thread that switches is told.
#[derive(Debug)]
pub struct Switch {
    /// The core's name for it. What the core did not ask for is not reported.
    pub op: Option<OpId>,
    /// Whom.
    pub link: Link,
    /// What to do.
    pub to: SwitchTo,
}

/// What is to become of a tenant's channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchTo {
    /// Off the GPU.
    Frozen(Scope),
    /// On it, for so long at a time.
    Thawed(Slice),
    /// As it is, for so long at a time.
    Sliced(Slice),
}

/// What the thread that owns the mover is told.
#[derive(Debug)]
pub enum Work {
    /// A tenant came.
    Join(TenantId, Link),
    /// A tenant made this handle; its file comes along.
    Adopt(Owned, Bytes, OwnedFd),
    /// A tenant freed these.
    Forget(TenantId, Vec<HandleId>),
    /// Copy out, unmap, create and copy in.
    Move {
        /// The core's name for it.
        op: OpId,
        /// To the arena.
        out: Vec<Owned>,
        /// To the device.
        into: Vec<Owned>,
        /// Free on the device before the first of them goes.
        room: Bytes,
    },
    /// Say where the handles of these are.
    Inspect(OpId, Vec<TenantId>),
    /// A tenant is gone, as seen at this instant.
    Reap(TenantId, Instant),
    /// No more work.
    Stop,
}

/// What is reported.
#[derive(Debug)]
pub enum Done {
    /// An action of the core's is over.
    Action(OpId, Outcome),
    /// A handle is known to the mover, or not.
    Adopted(Owned, bool),
    /// The arena has reached its final size.
    Arena(Bytes),
    /// Handles are gone, the mover's import too.
    Forgotten(TenantId, Vec<HandleId>),
    /// A tenant that left a move unanswered has said something about it.
    Answers(TenantId),
    /// What a dead tenant had is free.
    Reaped(TenantId, Instant),
}

/// Tells people that something went wrong with a tenant.
fn complain(events: &Events, who: &Who, what: &str) {
    tracing::error!("tenant {}: {what}", who.tenant);
    events.note_of(who, "error", json!({ "what": what }));
}

fn span(length: Duration) -> Span {
    Span(crate::events::nanos(length))
}
