//! What a program does: a list of steps, of which the last ones come again and again.

use sched::{Bytes, Class, GpuId, HandleId, JobId, OpId, RequestId, Span, TenantId, Terms, Time};
use std::collections::{BTreeMap, VecDeque};

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Asks for memory and waits until it has it.
    Alloc(Bytes),
    /// Has the GPU work for so long, and waits until that is done.
    Work(Span),
    /// The same, but does not wait.
    Launch(Span),
    /// The host is busy with something else.
    Host(Span),
    /// Frees so many of its handles, the oldest first.
    Free(usize),
    /// Pins one of its handles, if that may be, or unpins it.
    Pin(bool),
    /// It is over.
    End,
}

/// What a program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Door,
    Nothing,
    Host,
    Memory(RequestId, Bytes, Time),
    Work,
    Gone,
}

/// What people do to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Pause,
    Resume,
    Kill,
    Terms(Terms),
    GivesWay(bool),
    /// Others outside of rota have so much of its GPU.
    Unmanaged(Bytes),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle {
    pub(crate) bytes: Bytes,
    pub(crate) away: bool,
    pub(crate) pinned: bool,
    /// The arena has the same.
    pub(crate) copied: bool,
}

/// A program and what is true of it.
pub(crate) struct Process {
    pub(crate) id: TenantId,
    pub(crate) job: JobId,
    pub(crate) gpu: GpuId,
    pub(crate) terms: Terms,
    pub(crate) steps: VecDeque<Step>,
    /// What it does again and again when all steps are done.
    pub(crate) cycle: Vec<Step>,
    pub(crate) fellows: Vec<TenantId>,
    pub(crate) waits: Waits,
    pub(crate) context: bool,
    pub(crate) paused: bool,
    pub(crate) thawed: bool,
    pub(crate) grip: Option<OpId>,
    pub(crate) handles: BTreeMap<HandleId, Handle>,
    pub(crate) next: u64,
    /// GPU work that is not done.
    pub(crate) work: Span,
    pub(crate) wants: bool,
    pub(crate) idle_since: Time,
    // What it went through.
    pub(crate) came: Time,
    pub(crate) left: Option<Time>,
    pub(crate) worked: Span,
    pub(crate) asked: Span,
    pub(crate) host: Span,
    pub(crate) was_paused: Span,
    pub(crate) paused_since: Option<Time>,
    /// Pauses in which others may have taken the GPU, and times it was given more work or memory to wait for after them.
    pub(crate) long_pauses: u64,
    pub(crate) pieces: u64,
    pub(crate) others_max: f64,
    /// It may wait so long, in seconds, and there is room for what it has and asks for.
    pub(crate) wait_max: f64,
    pub(crate) possible: bool,
    pub(crate) denied: u64,
    pub(crate) waits_since: Option<Time>,
    pub(crate) forecast: Option<Span>,
    pub(crate) disturbed: bool,
    pub(crate) repeats: bool,
    /// It pauses for less than a switch would cost.
    pub(crate) is_short: bool,
    /// When the last pause began, and when its memory began to come in last.
    pub(crate) pauses_since: Time,
    pub(crate) fetched_at: Time,
    /// The step before was to ask for memory.
    pub(crate) asked_last: bool,
    pub(crate) short_pauses: u64,
    pub(crate) lost_turns: u64,
    /// It only reads its memory.
    pub(crate) reads: bool,
    /// On the GPU since it was last measured, and with work.
    pub(crate) measured: (Span, Span),
}

impl Process {
    pub(crate) fn new(id: u64, terms: Terms, gpu: u16) -> Self {
        Self {
            id: TenantId(id),
            job: JobId(id),
            gpu: GpuId(gpu),
            terms,
            steps: VecDeque::new(),
            cycle: Vec::new(),
            fellows: Vec::new(),
            waits: Waits::Door,
            context: false,
            paused: false,
            thawed: false,
            grip: None,
            handles: BTreeMap::new(),
            next: 0,
            work: Span::ZERO,
            wants: false,
            idle_since: Time::ZERO,
            came: Time::ZERO,
            left: None,
            worked: Span::ZERO,
            asked: Span::ZERO,
            host: Span::ZERO,
            was_paused: Span::ZERO,
            paused_since: None,
            long_pauses: 0,
            pieces: 0,
            others_max: 0.0,
            wait_max: 0.0,
            possible: false,
            denied: 0,
            waits_since: None,
            forecast: None,
            disturbed: false,
            repeats: false,
            is_short: false,
            pauses_since: Time::ZERO,
            fetched_at: Time::ZERO,
            asked_last: false,
            short_pauses: 0,
            lost_turns: 0,
            reads: false,
            measured: (Span::ZERO, Span::ZERO),
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.waits != Waits::Gone
    }

    pub(crate) fn critical(&self) -> bool {
        self.terms.class == Class::LatencyCritical
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.handles.values().map(|handle| handle.bytes).sum()
    }

    pub(crate) fn away(&self) -> Bytes {
        self.handles.values().filter(|handle| handle.away).map(|handle| handle.bytes).sum()
    }

    pub(crate) fn pinned(&self) -> Bytes {
        if self.terms.reserve {
            return self.bytes();
        }
        self.handles.values().filter(|handle| handle.pinned).map(|handle| handle.bytes).sum()
    }

    /// Has it something to do with the GPU, and may?
    pub(crate) fn is_eligible(&self) -> bool {
        self.context && !self.paused && (self.wants || matches!(self.waits, Waits::Memory(..)))
    }

    /// Is all done that it does once?
    pub(crate) fn has_begun_to_repeat(&mut self) -> bool {
        self.steps.is_empty() && !std::mem::replace(&mut self.repeats, true)
    }

    pub(crate) fn next_step(&mut self) -> Step {
        if self.steps.is_empty() {
            self.steps.extend(self.cycle.iter().copied());
        }
        self.steps.pop_front().unwrap_or(Step::End)
    }
}
