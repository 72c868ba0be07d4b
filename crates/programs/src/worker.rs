//! A program that keeps a GPU busy and knows what every byte has to be: what demonstrations and whole-system tests run.
//!
//! Its memory lies in pieces. In each step it checks all of it by a checksum kernel against the same sum computed on the
//! host, rewrites all of it by a kernel, and checks it again. One that only reads does so in its first step. With copies it
//! also moves pieces about, through the host and inside the device, and frees and allocates them anew, and still knows what
//! each has to hold. With streams it also has memory come and go in their order. With segments its pieces are memory that it
//! creates and maps itself.

mod ordered;
pub(crate) mod pieces;
mod segment;

use std::io::Write;
use std::time::{Duration, Instant};

use cuda::CUresult;
use cuda::types::CUstream;

use crate::api::ApiError;
use crate::bench::Bench;
use crate::kernels::{SPIN, mix};
use ordered::Ordered;
use pieces::Pieces;

/// What the worker is to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much device memory to hold, in MiB.
    pub mib: u64,
    /// How much of it lies in one allocation, in MiB.
    pub piece_mib: u64,
    /// When to end, whichever comes first.
    pub time_max: Duration,
    /// When to end, whichever comes first.
    pub steps_max: u64,
    /// What the bytes are made of.
    pub seed: u64,
    /// Whether to write in the first step only.
    pub reads: bool,
    /// How much to write after the first step, in MiB, of what was allocated last; all of it if nothing is said.
    pub hot_mib: Option<u64>,
    /// After how many steps that is as much of what was allocated before it, and so on through all of it.
    pub hot_steps: Option<u64>,
    /// Whether to copy, free and allocate too.
    pub copies: bool,
    /// How long a kernel that does nothing runs in each step.
    pub kernel: Duration,
    /// In how many streams to allocate and free in their order.
    pub streams: usize,
    /// Whether pieces lie in memory that it creates and maps itself; with copies also at other addresses in between.
    pub segments: bool,
    /// Whether to wait for the GPU before its sums are read, so that no copy waits.
    pub syncs: bool,
}

/// Why a worker ends early.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// There is no driver.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A call failed.
    #[error("{call} failed in step {step}: {code}")]
    Call {
        /// The driver's function, or what it was for.
        call: &'static str,
        /// The step it was in.
        step: u64,
        /// What it said.
        code: CUresult,
    },
    /// The first calls failed.
    #[error("the GPU cannot be used: {0}")]
    Beginning(String),
    /// Nobody reads what the worker prints.
    #[error("progress cannot be written: {0}")]
    Output(#[from] std::io::Error),
}

/// What a worker did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Work {
    /// Steps done.
    pub steps: u64,
    /// Pieces, counted in each step, whose bytes were not what they have to be.
    pub wrong: u64,
}

/// Works until it is time to end; prints a line of JSON after each step.
pub fn run(options: &Options) -> Result<Work, WorkerError> {
    let bench = Bench::with_context()?;
    let trouble = bench.take_record();
    if !trouble.is_empty() {
        return Err(WorkerError::Beginning(trouble));
    }
    let mut pieces = Pieces::allocate(&bench, options)?;
    let mut ordered = Ordered::new(&bench, options.streams)?;
    let (began, mut work) = (Instant::now(), Work::default());
    while work.steps < options.steps_max && began.elapsed() < options.time_max {
        let step = work.steps + 1;
        if work.steps > 0 {
            // What was right at the end of the last step is still right.
            work.wrong += pieces.wrong(step)?;
        }
        if work.steps == 0 || !options.reads {
            let hot_mib = options.hot_mib.filter(|_| work.steps > 0);
            let moved = options.hot_steps.map_or(0, |steps| step / steps.max(1));
            pieces.rewrite(step, hot_mib.unwrap_or(u64::MAX), moved)?;
        }
        if !options.kernel.is_zero() {
            let nanoseconds = u64::try_from(options.kernel.as_nanos()).unwrap_or(u64::MAX);
            let code = bench.launch_function(
                bench.function(SPIN),
                (1, 32),
                CUstream::NULL,
                &[u64::MAX, nanoseconds],
            );
            ok("spin", step, code)?;
        }
        if options.copies {
            pieces.move_about(step, mix(options.seed ^ step))?;
        }
        work.wrong += ordered.step(step, mix(options.seed ^ step))?;
        work = Work { steps: step, wrong: work.wrong + pieces.wrong(step)? };
        tell(&serde_json::json!({ "steps": work.steps, "wrong": work.wrong }))?;
    }
    ordered.free(work.steps)?;
    pieces.free(work.steps)?;
    tell(&serde_json::json!({ "ended": true, "steps": work.steps, "wrong": work.wrong }))?;
    Ok(work)
}

pub(crate) fn ok(call: &'static str, step: u64, code: CUresult) -> Result<(), WorkerError> {
    if code == CUresult::SUCCESS { Ok(()) } else { Err(WorkerError::Call { call, step, code }) }
}

pub(crate) fn tell(line: &serde_json::Value) -> Result<(), std::io::Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
