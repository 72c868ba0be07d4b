//! What the core wants done: plain data.
//!
//! Those with an [`OpId`] end in exactly one [`Event::Done`](crate::Event::Done), well or not, also when a tenant dies
//! in the middle. One that is not over by its deadline is given up by the core, which then asks what is true
//! ([`Action::Inspect`]); a completion that comes later than that changes nothing.

use crate::{Bytes, GpuId, JobId, OpId, Owned, RequestId, Span, TenantId, TicketId, Time};

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Take a tenant's channels off the GPU, in the middle of a kernel.
    Freeze {
        /// Its name.
        op: OpId,
        /// Whom.
        tenant: TenantId,
        /// Which of its channels.
        scope: Scope,
    },
    /// Commit that all of a tenant's memory is on the device, and put its channels back.
    Thaw {
        /// Its name.
        op: OpId,
        /// Whom.
        tenant: TenantId,
        /// For how long at a time, beside others.
        slice: Slice,
    },
    /// Change the slice of a tenant that runs.
    Slice {
        /// Its name.
        op: OpId,
        /// Whose.
        tenant: TenantId,
        /// For how long at a time, beside others.
        slice: Slice,
    },
    /// Copy out, unmap, create and copy in. All concerned are frozen.
    Move {
        /// Its name.
        op: OpId,
        /// Where.
        gpu: GpuId,
        /// To the arena.
        out: Vec<Owned>,
        /// To the device.
        into: Vec<Owned>,
        /// Free on the device before the first of them goes.
        room: Bytes,
    },
    /// Have a tenant make memory of the host's for these, which are on the device, beside what they have. It may run.
    Prepare {
        /// Its name.
        op: OpId,
        /// Whose.
        tenant: TenantId,
        /// For which.
        handles: Vec<Owned>,
    },
    /// Have handles of a tenant change their homes, each by itself: first those for which memory was prepared go to the host's,
    /// then others come to the device, in their place or into room that is free. The tenant is frozen. What was prepared and is not
    /// used is dropped: with nothing to change, that is all there is to do, and the tenant may run.
    Rehome {
        /// Its name.
        op: OpId,
        /// Whose.
        tenant: TenantId,
        /// To the host's memory.
        down: Vec<Owned>,
        /// To the device: no more than has gone. If none is to go, there is room for all of them.
        up: Vec<Owned>,
    },
    /// Say where the handles of these tenants are.
    Inspect {
        /// Its name.
        op: OpId,
        /// Whose.
        tenants: Vec<TenantId>,
    },
    /// Launch a tiny kernel in a latency-critical tenant, so that its context is loaded.
    WarmUp {
        /// Whose.
        tenant: TenantId,
    },
    /// Copies in the arena of what is on the device too are to be dropped.
    Drop(Vec<Owned>),
    /// End a tenant: there is no other way out. [`Event::Left`](crate::Event::Left) follows.
    End {
        /// Whom.
        tenant: TenantId,
        /// Why this one.
        why: String,
    },
    /// A tenant's turn begins: it has been thawed. For people and for the books; nothing is to be done.
    TurnBegins {
        /// Whose.
        tenant: TenantId,
        /// At least until then, if it wants to and nobody comes first.
        until: Time,
    },
    /// A tenant's turn is over: it is being frozen, has nothing to do, or is gone.
    TurnEnds {
        /// Whose.
        tenant: TenantId,
        /// For how long it had the GPU.
        ran: Span,
    },
    /// A tenant may make its context.
    Admit {
        /// Who.
        tenant: TenantId,
    },
    /// A tenant at the door has to wait.
    Queue {
        /// Who.
        tenant: TenantId,
        /// Its place, 1 is next.
        place: u32,
        /// How long that may take, if anything is known.
        forecast: Option<Span>,
        /// For what.
        why: Short,
    },
    /// A tenant at the door can never come in.
    Refuse {
        /// Who.
        tenant: TenantId,
        /// Why not.
        why: Short,
    },
    /// A request is granted.
    Grant {
        /// Whose.
        tenant: TenantId,
        /// Which.
        request: RequestId,
    },
    /// A request is granted, but not all of it on the device.
    GrantHost {
        /// Whose.
        tenant: TenantId,
        /// Which.
        request: RequestId,
        /// How much of it has to be in the host's memory.
        host: Bytes,
    },
    /// A request is not granted: out of memory.
    Deny {
        /// Whose.
        tenant: TenantId,
        /// Which.
        request: RequestId,
        /// Why not.
        why: Short,
    },
    /// Grants that are not used shall come back.
    Reclaim {
        /// Whose.
        tenant: TenantId,
    },
    /// Where a job goes, or why nowhere.
    Place {
        /// The question's name.
        ticket: TicketId,
        /// For whom.
        job: JobId,
        /// Where to; empty if nowhere.
        gpus: Vec<GpuId>,
        /// Why there.
        why: String,
    },
    /// A hint was not honoured.
    HintMissed {
        /// Whose.
        tenant: TenantId,
        /// Why not.
        why: Missed,
    },
    /// An action was not over by its deadline.
    Overdue {
        /// Which.
        op: OpId,
    },
}

/// Which channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The compute groups: enough when only time is shared.
    Compute,
    /// All of them: needed before memory moves.
    All,
}

/// How long a tenant computes before the GPU looks for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slice {
    /// As the driver gives it. Nobody computes beside it.
    #[default]
    Own,
    /// Long: it shares the GPU with another that has gaps.
    Long,
    /// The shortest: whoever is latency-critical comes at once. Only one tenant of a GPU may have it.
    Shortest,
    /// That of a latency-critical tenant.
    Critical,
    /// Of a best-effort tenant whose guaranteed share is in danger.
    Guaranteed,
}

/// Why memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Short {
    /// Not a size that can be asked for, or a request that is there already, or too many of them.
    Malformed,
    /// Nobody knows this tenant, job or GPU.
    Unknown,
    /// More than the job may have.
    Limit {
        /// What it asked for, with what it has.
        wanted: Bytes,
        /// What it may have.
        limit: Bytes,
    },
    /// More than the GPU has, even if it were alone.
    Device {
        /// What it asked for, with what it has.
        wanted: Bytes,
        /// What there is for it.
        usable: Bytes,
    },
    /// More than there is of the host's memory for programs larger than their GPU.
    Host {
        /// What it asked for, with what it, its job or everybody has.
        wanted: Bytes,
        /// What there is for those.
        limit: Bytes,
    },
    /// More than device and arena have together, or than `overcommit_max` allows.
    Together {
        /// What all would have.
        wanted: Bytes,
        /// What there is for all.
        limit: Bytes,
    },
    /// A context more would leave somebody too little.
    Context,
    /// As many tenants as may come are there.
    Tenants,
    /// The arena is nearly full.
    Pressure,
    /// Everybody who has memory there waits for more, so nobody would ever free any.
    Standstill,
}

/// Why a hint was not honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Missed {
    /// It came too late to take anybody off in time.
    Late,
    /// It is about a request more than ten seconds ahead. Such hints would take the place of those that matter now: to be
    /// sent again when it is nearer.
    Early,
    /// Nothing followed the last ones.
    Distrusted,
    /// Best-effort work would get less than it is guaranteed.
    Guarantee,
    /// Nobody is taken off ahead of requests: what best-effort work gets done counts more.
    Unfavoured,
    /// The tenant is not latency-critical, or not wholly on the device.
    Unable,
    /// Whoever had to go could not be frozen in time.
    Unfrozen,
}
