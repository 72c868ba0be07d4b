//! Requests as a service has them: a kernel that is waited for, then nothing until the next one; evenly, or by chance. Or an input
//! some time before the kernel, and told of by the program or not.

mod told;

use std::time::{Duration, Instant};

use cuda::CUresult;
use cuda::types::{CUdeviceptr, CUstream};

use super::first_error;
use crate::bench::Bench;
use crate::kernels::SPIN;

/// How long each keeps the GPU busy.
const KERNEL: Duration = Duration::from_millis(1);

/// So long after its input the kernel of a request follows.
const PREPARED: Duration = Duration::from_millis(3);

/// The same numbers in every run.
pub(super) struct Requests {
    chance: u64,
}

impl Default for Requests {
    fn default() -> Self {
        Self { chance: 88_172_645_463_325_252 }
    }
}

impl Requests {
    /// What a line says, if it is one of these.
    pub(super) fn does(&mut self, bench: &Bench, input: CUdeviceptr, words: &[&str]) -> Option<CUresult> {
        let (evenly, kind, count, gap_ms) = match *words {
            ["requests", count, gap_ms] => (true, Kind::Plain, count, gap_ms),
            ["requests-by-chance", count, gap_ms] => (false, Kind::Plain, count, gap_ms),
            ["serve", count, gap_ms] => (true, Kind::Prepared, count, gap_ms),
            ["serve-hinted", count, gap_ms] => (true, Kind::Told, count, gap_ms),
            _ => return None,
        };
        let (count, gap_ms): (u64, u64) = (count.parse().ok()?, gap_ms.parse().ok()?);
        let mut next = Instant::now();
        Some(first_error((0..count).map(|_| {
            // One that takes long does not put off those behind it.
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let times = if evenly { 1.0 } else { -(1.0 - self.next()).ln() };
            next += Duration::from_millis(gap_ms).mul_f64(times);
            match kind {
                Kind::Plain => compute(bench),
                Kind::Prepared => {
                    bench.read(input, 8);
                    std::thread::sleep(PREPARED);
                    compute(bench)
                }
                Kind::Told => {
                    bench.read(input, 8);
                    // What it gives the GPU after its hint is taken for the kernels.
                    let request = told::Request::begin(PREPARED);
                    std::thread::sleep(PREPARED);
                    let code = compute(bench);
                    request.end();
                    code
                }
            }
        })))
    }

    /// Even between 0 and 1.
    fn next(&mut self) -> f64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// What a request is like.
#[derive(Clone, Copy)]
enum Kind {
    /// Only its kernel.
    Plain,
    /// With an input before that.
    Prepared,
    /// And told of.
    Told,
}

fn compute(bench: &Bench) -> CUresult {
    let parameters = [u64::MAX, KERNEL.as_nanos() as u64];
    first_error([
        bench.launch_function(bench.function(SPIN), (1, 32), CUstream::NULL, &parameters),
        bench.cu.cuStreamSynchronize(CUstream::NULL),
    ])
}
