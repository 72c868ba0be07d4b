//! What is true of a tenant.

use std::collections::{BTreeMap, VecDeque};

use sched::{Bytes, HandleId, RequestId, Scope, Slice, Span, Time};

use crate::gpu::GroupId;
use crate::record::What;
use crate::workload::{Coming, Program, Requests};

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// At the door.
    Outside,
    /// Let in: its context is being made.
    Starting,
    /// With a context, and getting its first memory.
    Loading,
    /// At work.
    Working,
    /// Left, but its memory is still there.
    Gone,
    /// Nothing of it is left.
    Buried,
}

/// Where a handle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    Device,
    Arena,
    /// On its way out, and nobody knows how far: it takes room in both.
    Unsettled,
    /// In the arena, while its tenant does not say whether there is memory for it on the device.
    Returning,
}

impl Spot {
    pub(super) fn takes_device(self) -> bool {
        matches!(self, Self::Device | Self::Unsettled)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Handle {
    pub(super) bytes: Bytes,
    pub(super) spot: Spot,
    /// The mover knows it.
    pub(super) adopted: bool,
    /// It is written to in every turn.
    pub(super) changes: bool,
    /// The arena has an unchanged copy, although it is on the device.
    pub(super) copy: bool,
    /// The core thinks so.
    pub(super) told: bool,
}

/// What is asked of the GPU.
pub(super) enum Activity {
    Program(Program),
    Service(Requests),
}

pub(super) struct Tenant {
    pub(super) job: usize,
    pub(super) gpu: usize,
    pub(super) life: Life,
    /// The core knows that it left.
    pub(super) left_told: bool,
    pub(super) group: Option<GroupId>,
    /// How its channels are held; nothing while they are free.
    pub(super) frozen: Option<Scope>,
    /// A thaw is under way.
    pub(super) thawing: bool,
    /// A freeze is under way.
    pub(super) freezing: bool,
    pub(super) slice: Slice,

    pub(super) handles: BTreeMap<HandleId, Handle>,
    pub(super) asked: BTreeMap<RequestId, (Bytes, Time)>,
    pub(super) asked_ever: u64,
    /// All that it has or asked for.
    pub(super) bytes: Bytes,
    /// Part of a move under way.
    pub(super) moving: Option<What>,

    pub(super) activity: Activity,
    /// It told the core that it has work.
    pub(super) wants: bool,
    /// It has done all it came for, and only waits for an answer.
    pub(super) over: bool,
    /// Since when its host computes, which it does not tell the core.
    pub(super) pauses_since: Option<Time>,
    /// Requests that came, in order, with when and what they need.
    pub(super) waiting: VecDeque<(Time, Span)>,
    /// The request that is being served.
    pub(super) serving: Option<Time>,
    /// The request that will come next, and when.
    pub(super) coming: Option<(Time, Coming)>,
    /// Requests that were announced, and that came. No more will be announced once `no_more` is set.
    pub(super) announced: u64,
    pub(super) arrived: u64,
    pub(super) no_more: bool,

    /// Its own running time since it was measured last, up to `runs_since`.
    pub(super) ran: Span,
    pub(super) runs_since: Option<Time>,
    pub(super) paused: Span,
    pub(super) done_when_measured: Span,
    pub(super) measures: u64,

    pub(super) what: Option<(What, Time)>,
    /// Since when it waits for a turn.
    pub(super) waits_since: Option<Time>,
    pub(super) had_turns: bool,
    pub(super) forecast: Option<Span>,
}

impl Tenant {
    pub(super) fn new(job: usize, gpu: usize, activity: Activity) -> Self {
        Self {
            job,
            gpu,
            life: Life::Outside,
            left_told: false,
            group: None,
            frozen: None,
            thawing: false,
            freezing: false,
            slice: Slice::Own,
            handles: BTreeMap::new(),
            asked: BTreeMap::new(),
            asked_ever: 0,
            bytes: Bytes::ZERO,
            moving: None,
            activity,
            wants: false,
            over: false,
            pauses_since: None,
            waiting: VecDeque::new(),
            serving: None,
            coming: None,
            announced: 0,
            arrived: 0,
            no_more: false,
            ran: Span::ZERO,
            runs_since: None,
            paused: Span::ZERO,
            done_when_measured: Span::ZERO,
            measures: 0,
            what: None,
            waits_since: None,
            had_turns: false,
            forecast: None,
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        !matches!(self.life, Life::Gone | Life::Buried)
    }

    /// Is every byte of it on the device?
    pub(super) fn is_whole(&self) -> bool {
        self.moving.is_none() && self.handles.values().all(|handle| handle.spot == Spot::Device)
    }

    /// Can its channels run something?
    pub(super) fn is_thawed(&self) -> bool {
        self.group.is_some() && self.frozen.is_none()
    }

    /// What of it is on the device, without its context.
    pub(super) fn on_device(&self) -> Bytes {
        self.handles.values().filter(|handle| handle.spot.takes_device()).map(|handle| handle.bytes).sum()
    }
}
