//! What the core is told: plain data.

use crate::{
    Bytes, GpuId, HandleId, JobId, OpId, Owned, Ratio, RequestId, Settings, Sighting, Span, TenantId,
    TicketId, Time, UserId,
};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A GPU is there.
    Gpu {
        /// Its name.
        gpu: GpuId,
        /// What it is like.
        spec: GpuSpec,
    },
    /// The settings from now on.
    Settings(Box<Settings>),
    /// Device memory that is in use outside of rota on a GPU, as seen now.
    Unmanaged {
        /// Where.
        gpu: GpuId,
        /// How much.
        bytes: Bytes,
    },
    /// Do programs outside of rota compute on a GPU, or might they?
    Strangers {
        /// Where.
        gpu: GpuId,
        /// Are there any?
        present: bool,
    },
    /// The arena has this size now.
    Arena(Bytes),
    /// A user's weight among users. Those never named have weight 1.
    User {
        /// Who.
        user: UserId,
        /// Share among users.
        weight: u32,
    },
    /// A job begins, or its terms change while it runs.
    Job {
        /// Which.
        job: JobId,
        /// Its terms from now on.
        terms: Terms,
    },
    /// A job ended: its tenants have left, or never came.
    JobOver(JobId),
    /// A job shall not run until it is resumed.
    Pause(JobId),
    /// A paused job may run again.
    Resume(JobId),
    /// Whenever a job is paused, all of its memory is to go out, also if nobody needs the room; or not any more.
    Deep {
        /// Which.
        job: JobId,
        /// Whether.
        deep: bool,
    },
    /// Where should a job go? Answered by [`Action::Place`](crate::Action::Place).
    Place {
        /// The question's name.
        ticket: TicketId,
        /// For whom.
        job: JobId,
        /// On how many GPUs.
        count: u16,
        /// Only on these; on any if empty.
        among: Vec<GpuId>,
        /// Device memory it will use on each, if somebody knows.
        bytes: Bytes,
        /// What its context will take on each, if somebody knows; else it is taken to be as large as those that are there.
        residue: Option<Bytes>,
    },
    /// A tenant is at the door, and will make a context once it is admitted.
    Arrived {
        /// Who.
        tenant: TenantId,
        /// Of which job.
        job: JobId,
        /// Where.
        gpu: GpuId,
        /// Device memory that its context will take.
        residue: Bytes,
    },
    /// A tenant of an earlier worker is there, with its context and its memory: it is let in whatever that takes. Until its
    /// channels are told of ([`Event::Context`]) nothing of it moves.
    Rejoined {
        /// Who, under the number that it had.
        tenant: TenantId,
        /// Of which job.
        job: JobId,
        /// Where.
        gpu: GpuId,
        /// Device memory that its context takes.
        residue: Bytes,
        /// Everything it has.
        handles: Vec<Survivor>,
    },
    /// A tenant made its first channels, or gave up its last. It begins thawed if all its memory is on the device,
    /// otherwise frozen.
    Context {
        /// Who.
        tenant: TenantId,
        /// Are there channels now?
        present: bool,
    },
    /// Two tenants share memory: they serve the same request, so the class of one is the class of the other.
    Shares(TenantId, TenantId),
    /// A tenant asks for bytes.
    Ask {
        /// Who.
        tenant: TenantId,
        /// Its name for the request.
        request: RequestId,
        /// How many.
        bytes: Bytes,
    },
    /// A tenant asks for bytes of the host's memory, whatever the device has left.
    AskHost {
        /// Who.
        tenant: TenantId,
        /// Its name for the request.
        request: RequestId,
        /// How many.
        bytes: Bytes,
    },
    /// A tenant used a grant in the host's memory, or part of one, for a handle. It never goes to the arena.
    ClaimedHost {
        /// Whose, and which.
        owned: Owned,
        /// Which grant it used.
        request: RequestId,
        /// How much of it.
        bytes: Bytes,
    },
    /// Somebody has looked at which memory of a tenant changes, on the device and in the host's.
    Looked {
        /// Whose.
        tenant: TenantId,
        /// What was seen.
        seen: Vec<Sighting>,
    },
    /// A tenant that did not answer when a handle was to change its home has answered: it has this one now.
    HomeIs {
        /// Which.
        owned: Owned,
        /// Is it the host's memory?
        on_host: bool,
    },
    /// A tenant of an earlier worker has these handles in the host's memory, and how large they are.
    HostedBefore {
        /// Whose.
        tenant: TenantId,
        /// Which, each with its size.
        handles: Vec<(HandleId, Bytes)>,
    },
    /// A tenant used a grant, or part of one, for a handle, which cannot move before it is adopted.
    Claimed {
        /// Whose, and which.
        owned: Owned,
        /// Which grant it used.
        request: RequestId,
        /// How much of it.
        bytes: Bytes,
    },
    /// The mover knows a handle that was claimed, or cannot.
    Adopted {
        /// Which.
        owned: Owned,
        /// Can the mover move it?
        movable: bool,
    },
    /// A handle is in use by something that knows no freeze (RDMA, IPC), or no longer.
    Pinned {
        /// Which.
        owned: Owned,
        /// Must it stay?
        pinned: bool,
    },
    /// The arena has an unchanged copy of a handle that is on the device, or no longer.
    Copied {
        /// Which.
        owned: Owned,
        /// Is the copy good?
        clean: bool,
    },
    /// A grant, or the rest of one, will not be used.
    Returned {
        /// Who.
        tenant: TenantId,
        /// Which grant.
        request: RequestId,
    },
    /// Handles are gone, the mover's import of them too.
    Freed {
        /// Whose.
        tenant: TenantId,
        /// Which.
        handles: Vec<HandleId>,
    },
    /// A tenant has work for the GPU.
    Wants {
        /// Who.
        tenant: TenantId,
        /// So long ago it came to have it: what is heard of late counts from then.
        ago: Span,
    },
    /// A tenant has no work for the GPU.
    Idle(TenantId),
    /// The share of its own turns in which a tenant had work on the GPU.
    Measured {
        /// Who.
        tenant: TenantId,
        /// Busy of all the time it could have been.
        busy: Ratio,
    },
    /// A latency-critical tenant will have work in about this time.
    Hint {
        /// Who.
        tenant: TenantId,
        /// From now.
        within: Span,
    },
    /// A tenant's context was loaded ahead of a request, as [`crate::Action::WarmUp`] wants: that was launched at this instant.
    Warmed {
        /// Who.
        tenant: TenantId,
        /// When, which is past.
        at: Time,
    },
    /// A tenant gives way to others as soon as it has no work, or as others do again: not only once being idle has cost as
    /// much as a switch.
    GivesWay {
        /// Who.
        tenant: TenantId,
        /// Does it?
        gives_way: bool,
    },
    /// A tenant that did not answer does so again. What it has where is found out anew.
    Answers(TenantId),
    /// A tenant is gone. What it had on the device stays there until [`Event::Buried`].
    Left(TenantId),
    /// Someone who left is alive, nobody knows for how long.
    Lingers(TenantId),
    /// The driver has given back what someone who left had.
    Buried(TenantId),
    /// An action is over.
    Done {
        /// Which.
        op: OpId,
        /// How it went.
        outcome: Outcome,
    },
    /// Time passed: [`Core::wake_at`](crate::Core::wake_at) is due.
    Tick,
    /// What a tenant's context takes of the device, as seen now. It is there already, so it is never denied: what follows is
    /// that less is granted. Of one who was not let in yet it means nothing.
    Residue {
        /// Who.
        tenant: TenantId,
        /// How much.
        bytes: Bytes,
    },
}

impl Event {
    /// A tenant has work for the GPU from now on.
    pub fn wants(tenant: TenantId) -> Self {
        Self::Wants { tenant, ago: Span::ZERO }
    }
}

/// A handle that outlived a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Survivor {
    /// Which.
    pub handle: HandleId,
    /// How large.
    pub bytes: Bytes,
    /// Where it was found.
    pub place: SurvivorPlace,
}

/// Where a handle was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SurvivorPlace {
    /// On the device.
    Device {
        /// Can the mover move it?
        movable: bool,
    },
    /// In the arena.
    Arena,
    /// In the arena; its tenant has memory for it that it is to let go of, and then [`Event::Answers`].
    Unsettled,
}

/// How an action went.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// As asked, for what has no outcome of its own.
    Done {
        /// How long it took.
        took: Span,
    },
    /// Not at all: everything is as before.
    Failed,
    /// A move ended, wholly or in part. What is not named is where it was.
    Moved {
        /// Now in the arena.
        out: Vec<Owned>,
        /// Now on the device.
        into: Vec<Owned>,
        /// Neither here nor there: its tenant does not answer, see [`Event::Answers`].
        unsettled: Vec<Owned>,
        /// How long it took.
        took: Span,
    },
    /// Handles changed places, or some of them. What is not named is where it was.
    Rehomed {
        /// Now in the host's memory.
        down: Vec<Owned>,
        /// Now on the device.
        up: Vec<Owned>,
        /// In the one or the other: [`Event::HomeIs`] tells when their tenant answers.
        unsettled: Vec<Owned>,
        /// How long it took.
        took: Span,
    },
    /// What [`Action::Inspect`](crate::Action::Inspect) found.
    Found {
        /// In the arena.
        away: Vec<Owned>,
        /// Still neither here nor there.
        unsettled: Vec<Owned>,
    },
}

/// A GPU as the core needs it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GpuSpec {
    /// Device memory that may be used.
    pub capacity: Bytes,
    /// What the mover's own context takes of it.
    pub reserve: Bytes,
    /// The host memory it is near to.
    pub numa: u16,
    /// GPUs that it reaches without the bus.
    pub links: Vec<GpuId>,
}

/// Latency-critical or best-effort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Has the GPU at once.
    LatencyCritical,
    /// Has the rest.
    #[default]
    BestEffort,
}

/// How much it matters, the most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Before all others.
    Realtime,
    /// Before most.
    High,
    /// As most.
    #[default]
    Normal,
    /// After most.
    Low,
    /// When nobody else wants.
    Idle,
}

/// What to do with a request that cannot be granted now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WhenFull {
    /// Out of memory, as programs know it.
    #[default]
    Fail,
    /// Wait until somebody gives up memory.
    Wait,
}

/// What belongs to a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// Whose job.
    pub user: UserId,
    /// Share among the user's jobs, 1 or more.
    pub weight: u32,
    /// One of two.
    pub class: Class,
    /// One of five.
    pub priority: Priority,
    /// How soon a request is to be served.
    pub slo: Option<Span>,
    /// Device memory on each GPU, contexts included.
    pub memory_max: Option<Bytes>,
    /// The host's memory for what its GPUs cannot have, on all of them together; nothing if it is out of memory then.
    pub host_max: Bytes,
    /// Share of a GPU's time.
    pub compute_max: Option<Ratio>,
    /// What to do when memory is short.
    pub when_full: WhenFull,
    /// Do its tenants only get on together?
    pub gang: bool,
    /// Does its memory stay on the device, whoever's turn it is?
    pub reserve: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            user: UserId(0),
            weight: 1,
            class: Class::default(),
            priority: Priority::default(),
            slo: None,
            memory_max: None,
            host_max: Bytes::ZERO,
            compute_max: None,
            when_full: WhenFull::default(),
            gang: false,
            reserve: false,
        }
    }
}
