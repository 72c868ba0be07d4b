//! What the measured programs do on their own. None of these belong to the GPU.

use sched::{Ratio, Span};

/// A best-effort program: work on the GPU, then a moment in which it has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looping {
    /// GPU time until it waits for the GPU to end.
    pub burst: Span,
    /// How long it then has nothing there.
    pub pause: Span,
    /// And at times longer: the mean of an exponential.
    pub spread: Span,
    /// GPU time of one kernel, to count them.
    pub kernel: Span,
}

/// Four saturating kernels of 0.54 ms, then a synchronisation: 1840 kernels a second alone.
pub(super) const SATURATING: Looping = Looping {
    burst: Span::from_micros(2_160),
    pause: Span::from_micros(14),
    spread: PAUSE_SPREAD,
    kernel: Span::from_micros(540),
};

/// Small kernels on four streams: 25,232 a second alone. How long it computes between two synchronisations was not
/// measured: it is the one extra parameter, fitted to the row.
pub(super) const SMALL: Looping = Looping {
    burst: Span::from_micros(85),
    pause: Span::from_micros(14),
    spread: Span::ZERO,
    kernel: Span(34_030),
};

/// As the saturating one, but asleep in between: 1139 kernels a second alone, 62% busy.
pub(super) const SLEEPY: Looping = Looping {
    burst: Span::from_micros(2_160),
    pause: Span::from_micros(1_327),
    spread: PAUSE_SPREAD,
    kernel: Span::from_micros(540),
};

/// When a latency-critical program makes its next request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// It sleeps that long after each one.
    Sleeping(Span),
    /// At every multiple of that, by somebody else's clock.
    Every(Span),
}

/// A latency-critical program's requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requests {
    /// When.
    pub pace: Pace,
    /// GPU time of one, on a GPU that is awake.
    pub service: Span,
    /// How long its host takes to launch all of it, whatever the GPU does.
    pub launching: Span,
}

/// One kernel of 66 us, which is what was seen when everything was warm.
pub(super) const KERNEL: Span = Span::from_micros(66);

/// A sleeping program wakes this much late: the slack of the host's timer and the way back.
pub(super) const SLEEP_LATE: Span = Span::from_micros(67);
/// And at times later: the mean of an exponential.
pub(super) const SLEEP_LATE_SPREAD: Span = Span::from_micros(12);
/// When requests came within the other program's bursts was not measured, and it matters for slices: so many of them
/// followed their clock, and this share came at any time. Fitted to the rows with one and with four best-effort programs.
pub(super) const AT_ANY_TIME: Ratio = Ratio::from_percent(34);
/// Any time within this.
pub(super) const ANY_TIME: Span = Span::from_millis(10);
/// How much bursts vary.
pub(super) const BURST_JITTER: Ratio = Ratio(5_000);
/// A host that synchronises comes back later at times: the mean of an exponential.
pub(super) const PAUSE_SPREAD: Span = Span::from_micros(25);
