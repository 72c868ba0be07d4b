//! A scenario as data: GPUs, jobs, faults and settings. How it is read from TOML: `scenario/file.rs`.

pub mod builtin;
mod document;
mod fields;
pub mod file;
pub mod nearest;
pub mod quantity;

pub use document::{Place, Problem};

use sched::{Bytes, Ratio, Settings, Span, Terms};

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name: that of the file.
    pub name: String,
    /// One line for people.
    pub about: String,
    /// Where randomness begins.
    pub seed: u64,
    /// The simulation ends here at the latest.
    pub limit: Span,
    /// The GPUs, in order.
    pub gpus: Vec<Gpu>,
    /// Host memory for what is away.
    pub arena: Bytes,
    /// Of the core.
    pub settings: Settings,
    /// What runs.
    pub jobs: Vec<Job>,
    /// What goes wrong.
    pub faults: Faults,
    /// Fault-driven baseline: quanta to report, the first of them as the row `unified`.
    pub unified_quanta: Vec<Span>,
}

/// A GPU, with what things cost on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Device memory.
    pub capacity: Bytes,
    /// Device memory of the mover's context.
    pub reserve: Bytes,
    /// Device memory of a tenant's context.
    pub residue: Bytes,
    /// Bytes a second from device to host, alone.
    pub out_per_second: u64,
    /// Bytes a second from host to device, alone.
    pub in_per_second: u64,
    /// Bytes a second each way while both go.
    pub both_per_second: u64,
    /// See [`Physics`].
    pub physics: Physics,
}

/// How a GPU behaves. The defaults are an H200's; `rota sim calibrate` puts them beside the measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Physics {
    /// From one compute group to another, both in the middle of a kernel.
    pub switch: Span,
    /// The share of a switch that saves the one that is stopped in the middle of a kernel.
    pub switch_save: Ratio,
    /// The share of a switch that loads the context of the next one. What is left of a switch restores its kernel, and
    /// that happens within its slice: a slice that is not longer makes no progress.
    pub switch_load: Ratio,
    /// To take a tenant's compute channels off.
    pub freeze_compute: Span,
    /// To take all of a tenant's channels off.
    pub freeze_all: Span,
    /// To put a tenant's channels back.
    pub thaw: Span,
    /// The share of a freeze or thaw after which the channels are really off or back.
    pub grip_effect: Ratio,
    /// Freezes, thaws and requests take this much longer at times: the mean of an exponential, as a share.
    pub jitter: Ratio,
    /// A GPU that had nothing to do for this long dozes.
    pub doze: Span,
    /// What the next work on a dozing GPU takes longer, at least.
    pub wake: Span,
    /// And at times: the mean of an exponential.
    pub wake_spread: Span,
    /// And for each unit of that work: the mean of an exponential, as a share.
    pub wake_slow: Ratio,
    /// The tiny kernel that loads a context ahead of a request.
    pub warm_up: Span,
    /// Handles, mappings and messages of one move.
    pub per_move: Span,
    /// The driver's own slice.
    pub slice_own: Span,
    /// See [`sched::Slice::Long`].
    pub slice_long: Span,
    /// See [`sched::Slice::Shortest`].
    pub slice_shortest: Span,
    /// See [`sched::Slice::Critical`].
    pub slice_critical: Span,
    /// See [`sched::Slice::Guaranteed`].
    pub slice_guaranteed: Span,
    /// One page fault of unified memory, of 4 KiB.
    pub fault: Span,
}

/// Copies of a program with the same terms.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// For people.
    pub name: String,
    /// The core's terms.
    pub terms: Terms,
    /// Processes of the job, each a tenant.
    pub tenants: u32,
    /// The GPU of each of its tenants; placed by the core if empty.
    pub gpus: Vec<u16>,
    /// When it comes.
    pub arrives: Span,
    /// When it is killed, whatever it does.
    pub dies: Option<Span>,
    /// What each tenant holds.
    pub memory: Memory,
    /// What each tenant does.
    pub work: Work,
}

impl Job {
    /// What people call one of its tenants, counted from 0.
    pub fn tenant_name(&self, number: u32) -> String {
        match self.tenants {
            1 => self.name.clone(),
            _ => format!("{}/{}", self.name, number + 1),
        }
    }
}

/// The memory of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// At the start.
    pub bytes: Bytes,
    /// In handles of this size.
    pub handle: Bytes,
    /// The share of it that changes in a turn.
    pub dirty: Ratio,
    /// More of it: so many bytes each time, every so often, up to so much in all.
    pub growth: Option<(Bytes, Span, Bytes)>,
    /// From one handle of the first memory to the next the host is busy for so long, and has no work for the GPU before all
    /// of it is there. None: it has some from the beginning, and asks at once.
    pub pause: Option<Span>,
}

/// What a tenant does with the GPU. Lengths are GPU time when it is alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Busy until it is done.
    Steady {
        /// In all.
        total: Span,
    },
    /// Steps of GPU work, and host work between them.
    Steps {
        /// GPU time of a step.
        busy: Span,
        /// Host time between two steps.
        pause: Span,
        /// How many; with 0 as long as the scenario lasts.
        count: u64,
    },
    /// Steps as above for a while, then nothing for a while; both vary at random (exponentially) around their means.
    Bursts {
        /// Mean GPU time of a burst.
        on: Span,
        /// Mean time between bursts.
        off: Span,
        /// How many; with 0 as long as the scenario lasts.
        count: u64,
    },
    /// Requests, as a latency-critical service has them.
    Requests {
        /// Mean requests a second.
        per_second: f64,
        /// Poisson, or evenly spaced.
        poisson: bool,
        /// GPU time of one.
        service: Span,
        /// How many; with 0 as long as the scenario lasts.
        count: u64,
        /// How they are hinted, if they are.
        hints: Option<Hints>,
    },
}

/// How requests are hinted.
#[derive(Clone, Debug, PartialEq)]
pub struct Hints {
    /// How long before its request a hint comes.
    pub ahead: Span,
    /// A hint names the instant wrongly by up to this, either way.
    pub error: Span,
    /// The share of requests with no hint.
    pub missing: Ratio,
    /// Hints followed by nothing, for each request.
    pub false_per_request: Ratio,
}

/// What goes wrong, at random.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// The share of completions that come late.
    pub late: Ratio,
    /// How late.
    pub late_by: Span,
    /// The share of actions that fail.
    pub failed: Ratio,
    /// The share of completions that never come.
    pub lost: Ratio,
}

impl Default for Physics {
    fn default() -> Self {
        Self {
            switch: Span::from_micros(233),
            switch_save: Ratio(544_000),
            switch_load: Ratio(368_000),
            freeze_compute: Span::from_micros(600),
            freeze_all: Span::from_micros(1_500),
            thaw: Span::from_micros(330),
            grip_effect: Ratio::from_percent(60),
            jitter: Ratio::from_percent(4),
            doze: Span::from_millis(2),
            wake: Span::from_micros(9),
            wake_spread: Span::from_micros(11),
            wake_slow: Ratio::from_percent(13),
            warm_up: Span::from_micros(5),
            per_move: Span::from_millis(10),
            slice_own: Span::from_micros(2_048),
            slice_long: Span::from_millis(20),
            slice_shortest: Span::from_micros(1),
            slice_critical: Span::from_millis(10),
            slice_guaranteed: Span::from_micros(1_200),
            fault: Span::from_micros(15),
        }
    }
}
