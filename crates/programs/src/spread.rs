//! A program on all GPUs that it sees: on each it keeps memory whose every byte it knows, as [`crate::worker`] does, and in
//! each step the GPUs also copy to each other, and read each other's memory by kernels.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use cuda::types::{CUdeviceptr, CUstream};

use crate::bench::Bench;
use crate::kernels::{ADD, SPIN, mix};
use crate::worker::pieces::Pieces;
use crate::worker::{self, Work, WorkerError, ok, tell};

/// Words of the memory that GPUs show each other.
const SHOWN_WORDS: usize = 4096;

/// What it is to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much memory to hold on each GPU, and in which pieces.
    pub mib: u64,
    /// See there.
    pub piece_mib: u64,
    /// For how many steps.
    pub steps: u64,
    /// How long a kernel that touches no memory runs in each step, on each GPU.
    pub kernel: Duration,
    /// A thread for each GPU, which does not look at the others' memory.
    pub threads: bool,
    /// After the first step, a child is forked that does nothing until it is killed.
    pub fork: bool,
}

impl Options {
    fn of(&self, gpu: usize) -> worker::Options {
        worker::Options {
            mib: self.mib,
            piece_mib: self.piece_mib,
            time_max: Duration::MAX,
            steps_max: self.steps,
            seed: mix(gpu as u64 + 1),
            reads: false,
            copies: false,
            kernel: self.kernel,
            streams: 0,
            hot_mib: None,
            hot_steps: None,
            segments: false,
            syncs: false,
        }
    }

    fn spin(&self, bench: &Bench, step: u64) -> Result<(), WorkerError> {
        let nanoseconds = u64::try_from(self.kernel.as_nanos()).unwrap_or(u64::MAX);
        let spin = bench.function(SPIN);
        ok("spin", step, bench.launch_function(spin, (1, 32), CUstream::NULL, &[u64::MAX, nanoseconds]))
    }
}

/// Works on all GPUs; prints a line of JSON after each step.
pub fn run(options: &Options) -> Result<Work, WorkerError> {
    let first = bench_on(0)?;
    let count = first.devices() as usize;
    if options.threads { in_threads(options, count) } else { in_one(options, first, count) }
}

fn bench_on(place: usize) -> Result<Bench, WorkerError> {
    let bench = Bench::with_context_on(place as i32)?;
    match bench.take_record() {
        trouble if trouble.is_empty() => Ok(bench),
        trouble => Err(WorkerError::Beginning(trouble)),
    }
}

/// What a GPU shows the others, and where it puts what it finds.
struct Shown {
    words: CUdeviceptr,
    copied: CUdeviceptr,
    sums: CUdeviceptr,
}

fn in_one(options: &Options, first: Bench, count: usize) -> Result<Work, WorkerError> {
    let mut benches = vec![first];
    for place in 1..count {
        benches.push(bench_on(place)?);
    }
    let mut shown = Vec::new();
    for bench in &benches {
        ok("cuCtxSetCurrent", 0, bench.enter())?;
        let bytes = SHOWN_WORDS * 8;
        shown.push(Shown { words: bench.alloc(bytes), copied: bench.alloc(bytes), sums: bench.alloc(bytes) });
        for peer in benches.iter().filter(|peer| peer.device != bench.device) {
            ok("cuCtxEnablePeerAccess", 0, bench.cu.cuCtxEnablePeerAccess(peer.context, 0))?;
        }
    }
    let mut pieces = Vec::new();
    for (gpu, bench) in benches.iter().enumerate() {
        ok("cuCtxSetCurrent", 0, bench.enter())?;
        pieces.push(Pieces::allocate(bench, &options.of(gpu))?);
    }
    let mut work = Work::default();
    for step in 1..=options.steps {
        for (bench, pieces) in benches.iter().zip(&mut pieces) {
            ok("cuCtxSetCurrent", step, bench.enter())?;
            work.wrong += if step > 1 { pieces.wrong(step)? } else { 0 };
            pieces.rewrite(step, u64::MAX, 0)?;
            options.spin(bench, step)?;
        }
        work.wrong += look_at_each_other(&benches, &shown, step)?;
        for (bench, pieces) in benches.iter().zip(&mut pieces) {
            ok("cuCtxSetCurrent", step, bench.enter())?;
            work.wrong += pieces.wrong(step)?;
        }
        work.steps = step;
        tell(&serde_json::json!({ "steps": work.steps, "wrong": work.wrong }))?;
        if options.fork && step == 1 {
            fork();
        }
    }
    tell(&serde_json::json!({ "ended": true, "steps": work.steps, "wrong": work.wrong }))?;
    Ok(work)
}

/// Every GPU copies the next one's words, and adds them to its own by a kernel that reads them where they are. Says how many
/// GPUs found something else than is there.
fn look_at_each_other(benches: &[Bench], shown: &[Shown], step: u64) -> Result<u64, WorkerError> {
    let words = |gpu: usize| -> Vec<u64> {
        (0..SHOWN_WORDS as u64).map(|word| mix(word ^ step << 32 ^ (gpu as u64) << 48)).collect()
    };
    for (gpu, (bench, shown)) in benches.iter().zip(shown).enumerate() {
        ok("cuCtxSetCurrent", step, bench.enter())?;
        let bytes: Vec<u8> = words(gpu).iter().flat_map(|word| word.to_le_bytes()).collect();
        bench.write(shown.words, &bytes);
    }
    let mut wrong = 0;
    for (gpu, bench) in benches.iter().enumerate() {
        let next = (gpu + 1) % benches.len();
        let (mine, theirs, cu) = (&shown[gpu], &shown[next], bench.cu);
        ok("cuCtxSetCurrent", step, bench.enter())?;
        let bytes = SHOWN_WORDS * 8;
        let copied = cu.cuMemcpyPeer(mine.copied, bench.context, theirs.words, benches[next].context, bytes);
        ok("cuMemcpyPeer", step, copied)?;
        let parameters = [mine.sums.0, mine.words.0, theirs.words.0, SHOWN_WORDS as u64];
        ok("add", step, bench.launch(ADD, CUstream::NULL, &parameters))?;
        ok("cuCtxSynchronize", step, cu.cuCtxSynchronize())?;
        let sums: Vec<u64> =
            words(gpu).iter().zip(words(next)).map(|(mine, theirs)| mine.wrapping_add(theirs)).collect();
        let copied_right = bench.read_words(mine.copied, SHOWN_WORDS) == words(next);
        let added_right = bench.read_words(mine.sums, SHOWN_WORDS) == sums;
        wrong += u64::from(!(copied_right && added_right));
        match bench.take_record() {
            trouble if trouble.is_empty() => {}
            trouble => return Err(WorkerError::Beginning(trouble)),
        }
    }
    Ok(wrong)
}

fn in_threads(options: &Options, count: usize) -> Result<Work, WorkerError> {
    let (barrier, wrong) = (Barrier::new(count), AtomicU64::new(0));
    let one = |gpu: usize| -> Result<(), std::io::Error> {
        // Whatever fails, the others must not wait for ever: the process ends.
        let fail = |error: WorkerError| -> ! {
            eprintln!("GPU {gpu}: {error}");
            std::process::exit(1)
        };
        let bench = bench_on(gpu).unwrap_or_else(|error| fail(error));
        let mut pieces = Pieces::allocate(&bench, &options.of(gpu)).unwrap_or_else(|error| fail(error));
        for step in 1..=options.steps {
            let mut work = || -> Result<u64, WorkerError> {
                pieces.rewrite(step, u64::MAX, 0)?;
                options.spin(&bench, step)?;
                pieces.wrong(step)
            };
            wrong.fetch_add(work().unwrap_or_else(|error| fail(error)), SeqCst);
            if barrier.wait().is_leader() {
                tell(&serde_json::json!({ "steps": step, "wrong": wrong.load(SeqCst) }))?;
            }
        }
        Ok(())
    };
    let one = &one;
    std::thread::scope(|scope| -> Result<(), std::io::Error> {
        let threads: Vec<_> = (0..count).map(|gpu| scope.spawn(move || one(gpu))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a thread that fails ends the process"))
    })?;
    let work = Work { steps: options.steps, wrong: wrong.load(SeqCst) };
    tell(&serde_json::json!({ "ended": true, "steps": work.steps, "wrong": work.wrong }))?;
    Ok(work)
}

/// A child that has everything of this process, and does nothing with it.
fn fork() {
    // SAFETY: the child calls only what is allowed after a fork of a process with threads.
    unsafe {
        if libc::fork() == 0 {
            loop {
                libc::pause();
            }
        }
    }
}
