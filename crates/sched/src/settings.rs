//! What can be set, with the defaults that the measurements suggest.

use crate::{Bytes, Ratio, Span};

/// How the next one is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKind {
    /// Weighted shares of GPU time, user first, then job.
    #[default]
    Fair,
    /// By five levels; who waits long rises.
    Priority,
    /// Whoever has the least time left to its SLO.
    Deadline,
    /// One after the other, each to its end.
    Serial,
}

/// What counts more where a latency-critical tenant and best-effort ones meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Favour {
    /// The latency of requests: best-effort work goes off the GPU ahead of those that are hinted.
    #[default]
    Latency,
    /// Nobody goes off ahead: a request waits for a switch of compute groups.
    Balanced,
    /// What best-effort work gets done: a request waits for a short slice of it, and it switches seldom.
    Throughput,
}

/// All settings of the core.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// How the next one is chosen.
    pub policy: PolicyKind,
    /// The shortest turn, for those that are on the device together.
    pub turn_min: Span,
    /// The longest turn.
    pub turn_max: Span,
    /// How much of wall time may go into moving.
    pub moving_share: Ratio,
    /// How long one may wait between two turns, if moving leaves the choice.
    pub gap_max: Span,
    /// Is memory of the next one brought in while somebody has its turn?
    pub prefetch: bool,
    /// After this long a waiting tenant counts as one priority higher.
    pub ageing: Span,
    /// Device memory that is never given out.
    pub headroom: Bytes,
    /// What a context takes of the device, before any was seen.
    pub context: Bytes,
    /// By how much a context may grow before it is seen: the limits of jobs leave so much for each.
    pub context_growth: Bytes,
    /// All tenants of a GPU together may have this share of its memory. 1,000,000 is all of it, more is overcommitment.
    pub overcommit_max: Ratio,
    /// No handle is larger than this. The arena keeps room for two of the largest, without which nothing could move.
    pub handle_max: Bytes,
    /// The host's memory that tenants larger than their GPU may have, all together.
    pub host_max: Bytes,
    /// Tenants on one GPU.
    pub tenants_max: u32,
    /// Busy for less than this share of its own turns, a tenant lets another one run beside it.
    pub filler_below: Ratio,
    /// How long after the last request a GPU stays in latency-critical mode.
    pub lc_linger: Span,
    /// How long a best-effort tenant runs in latency-critical mode before the next one: longer where somebody has to move for
    /// that, as far as moving and the longest gap say.
    pub lc_turn: Span,
    /// How long before a hinted request the best-effort tenant goes, at most: less where less was enough of late.
    pub hint_lead: Span,
    /// Does best-effort work come back while a request is still served, where that takes until its end?
    pub thaw_ahead: bool,
    /// What best-effort tenants get of the time, whatever is hinted. Where both cannot be, latency gives way.
    pub be_guarantee: Ratio,
    /// What counts more, latency or what best-effort work gets done.
    pub favour: Favour,
    /// Costs before any was measured.
    pub costs: Costs,
    /// Deadlines.
    pub deadlines: Deadlines,
}

/// What things cost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Costs {
    /// To take a tenant off the GPU.
    pub freeze: Span,
    /// To put it back.
    pub thaw: Span,
    /// Bytes a second from the device to the arena while others come in.
    pub out_per_second: u64,
    /// Bytes a second from the arena to the device while others go out.
    pub in_per_second: u64,
    /// Handles, mappings and messages of one move.
    pub per_move: Span,
}

/// When an action is given up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Deadlines {
    /// A freeze or a thaw.
    pub grip: Span,
    /// A move: this much, and four times what it should take.
    pub movement: Span,
    /// How long something that went wrong is not tried again.
    pub retry: Span,
}

impl Settings {
    /// The same, with no deadline of nothing: what is given up at once and tried again at once would never end.
    pub(crate) fn checked(mut self) -> Self {
        let Deadlines { grip, movement, retry } = &mut self.deadlines;
        for deadline in [grip, movement, retry] {
            *deadline = (*deadline).max(Span::from_micros(1));
        }
        self
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: PolicyKind::default(),
            turn_min: Span::from_millis(100),
            turn_max: Span::from_secs(60),
            moving_share: Ratio::from_percent(5),
            gap_max: Span::from_secs(60),
            prefetch: true,
            ageing: Span::from_secs(30),
            headroom: Bytes::ZERO,
            context: Bytes::from_mib(518),
            context_growth: Bytes::ZERO,
            overcommit_max: Ratio::from_percent(1600),
            handle_max: Bytes(u64::MAX),
            host_max: Bytes::ZERO,
            tenants_max: 128,
            filler_below: Ratio::from_percent(80),
            lc_linger: Span::from_secs(1),
            lc_turn: Span::from_millis(200),
            hint_lead: Span::from_micros(1_800),
            thaw_ahead: false,
            be_guarantee: Ratio::from_percent(10),
            favour: Favour::default(),
            costs: Costs::default(),
            deadlines: Deadlines::default(),
        }
    }
}

/// As measured on an H200.
impl Default for Costs {
    fn default() -> Self {
        Self {
            freeze: Span::from_micros(1_500),
            thaw: Span::from_micros(550),
            out_per_second: 46_000_000_000,
            in_per_second: 43_000_000_000,
            per_move: Span::from_millis(10),
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { grip: Span::from_secs(5), movement: Span::from_secs(10), retry: Span::from_secs(1) }
    }
}
