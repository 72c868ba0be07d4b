//! Kernels of two processes that wait for each other, as collective operations do: in each round both store a word and wait for
//! the other's, in memory of a file that both have mapped and registered.
//!
//! A word is used once, so nobody overtakes the other. Whoever waits for longer than it is willing to is late.

use std::fs::File;
use std::path::Path;

use cuda::types::{CUdeviceptr, CUstream};

use crate::bench::Bench;
use crate::kernels::{FILL, PEER_CAME, WAIT_FOR_PEER};
use crate::worker::{WorkerError, ok, tell};

/// The most rounds: as many words as each side has.
pub const ROUNDS_MAX: u64 = 4096;

const SIDE_BYTES: usize = ROUNDS_MAX as usize * 8;
/// Registered memory that kernels of every context reach.
const PORTABLE_AND_MAPPED: u32 = 3;

/// What it is to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which of the two this is.
    pub second: bool,
    /// How often they meet.
    pub rounds: u64,
    /// How long each waits, in nanoseconds of the GPU's clock, which goes on while it is frozen.
    pub patience_ns: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// They met in every round.
    Always,
    /// The other did not come in time.
    Late,
}

/// Meets the other side by a file that exists and is large enough; prints a line of JSON after each round.
pub fn run(file: &Path, options: &Options) -> Result<Met, WorkerError> {
    let bench = Bench::with_context()?;
    let words = map(file)?;
    let cu = bench.cu;
    ok("cuMemHostRegister", 0, cu.cuMemHostRegister_v2(words, 2 * SIDE_BYTES, PORTABLE_AND_MAPPED))?;
    let mut address = CUdeviceptr(0);
    ok("cuMemHostGetDevicePointer", 0, cu.cuMemHostGetDevicePointer_v2(&mut address, words, 0))?;
    let outcome = bench.alloc(8);
    let trouble = bench.take_record();
    if !trouble.is_empty() {
        return Err(WorkerError::Beginning(trouble));
    }
    let (mine, theirs) = (u64::from(options.second), u64::from(!options.second));
    for round in 1..=options.rounds.min(ROUNDS_MAX) {
        let place = |side: u64| address.0 + side * SIDE_BYTES as u64 + (round - 1) * 8;
        let launch = |kernel, parameters: &[u64]| {
            bench.launch_function(bench.function(kernel), (1, 1), CUstream::NULL, parameters)
        };
        ok("fill", round, launch(FILL, &[place(mine), 1, round]))?;
        let wait = [place(theirs), round, options.patience_ns, outcome.0];
        ok("wait_for_peer", round, launch(WAIT_FOR_PEER, &wait))?;
        ok("cuCtxSynchronize", round, cu.cuCtxSynchronize())?;
        if bench.read_words(outcome, 1) != [PEER_CAME] {
            tell(&serde_json::json!({ "late": true, "steps": round - 1, "wrong": 0 }))?;
            return Ok(Met::Late);
        }
        tell(&serde_json::json!({ "steps": round, "wrong": 0 }))?;
    }
    tell(&serde_json::json!({ "ended": true, "steps": options.rounds, "wrong": 0 }))?;
    Ok(Met::Always)
}

/// Bytes that the file must have.
pub const FILE_BYTES: u64 = 2 * SIDE_BYTES as u64;

fn map(file: &Path) -> Result<*mut std::ffi::c_void, WorkerError> {
    use std::os::fd::AsRawFd as _;
    let file = File::options().read(true).write(true).open(file)?;
    if file.metadata()?.len() < FILE_BYTES {
        return Err(WorkerError::Beginning(format!("the file has fewer than {FILE_BYTES} bytes")));
    }
    let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a fresh mapping at an address of the kernel's choice, of a file that is large enough.
    let words =
        unsafe { libc::mmap(std::ptr::null_mut(), 2 * SIDE_BYTES, access, shared, file.as_raw_fd(), 0) };
    match words == libc::MAP_FAILED {
        true => Err(std::io::Error::last_os_error().into()),
        false => Ok(words),
    }
}
