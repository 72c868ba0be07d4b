//! Other ways to launch, and to see that it is done, than the usual ones.

use std::ffi::c_void;

use cuda::CUresult;
use cuda::types::{CUevent, CUgraph, CUgraphExec, CUlaunchConfig, CUstream, CUstreamCaptureMode};

use super::first_error;
use crate::api::Zeroed as _;
use crate::bench::{Bench, words};
use crate::kernels::SPIN;

/// A graph that was instantiated.
#[derive(Default)]
pub(super) struct Launches(Option<CUgraphExec>);

impl Launches {
    /// None if that is none of these.
    pub(super) fn does(
        &mut self,
        bench: &Bench,
        (beside, event): (CUstream, CUevent),
        words: &[&str],
    ) -> Option<CUresult> {
        Some(match *words {
            ["launch-ex", ms] => extended(bench, ms.parse().ok()?),
            ["launch-cooperative", ms] => cooperative(bench, ms.parse().ok()?),
            ["instantiate", ms] => self.instantiate(bench, beside, ms.parse().ok()?),
            ["launch-graph"] => {
                self.0.map_or(CUresult::INVALID_VALUE, |exec| bench.cu.cuGraphLaunch(exec, CUstream::NULL))
            }
            ["poll"] => polled(|| bench.cu.cuStreamQuery(CUstream::NULL)),
            ["poll-event"] => match bench.cu.cuEventRecord(event, CUstream::NULL) {
                CUresult::SUCCESS => polled(|| bench.cu.cuEventQuery(event)),
                code => code,
            },
            _ => return None,
        })
    }

    fn instantiate(&mut self, bench: &Bench, stream: CUstream, ms: u64) -> CUresult {
        let (mut graph, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
        let cu = bench.cu;
        let code = first_error([
            cu.cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::RELAXED),
            bench.launch_function(bench.function(SPIN), (1, 32), stream, &spinning(ms)),
            cu.cuStreamEndCapture(stream, &mut graph),
            cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0),
        ]);
        self.0 = Some(exec);
        code
    }
}

/// Looks again and again, until there is something else to say than that it is not done.
fn polled(look: impl Fn() -> CUresult) -> CUresult {
    loop {
        match look() {
            CUresult::NOT_READY => std::thread::yield_now(),
            code => return code,
        }
    }
}

/// The kernel's parameters: it ends after so many milliseconds.
fn spinning(ms: u64) -> [u64; 2] {
    [u64::MAX, ms * 1_000_000]
}

fn extended(bench: &Bench, ms: u64) -> CUresult {
    let parameters = spinning(ms);
    let mut pointers: Vec<*mut c_void> = words::pointers(&parameters);
    let mut config = CUlaunchConfig::zeroed();
    (config.grid, config.block) = ([1, 1, 1], [32, 1, 1]);
    bench.cu.cuLaunchKernelEx(&config, bench.function(SPIN), pointers.as_mut_ptr(), std::ptr::null_mut())
}

fn cooperative(bench: &Bench, ms: u64) -> CUresult {
    let parameters = spinning(ms);
    let mut pointers: Vec<*mut c_void> = words::pointers(&parameters);
    let function = bench.function(SPIN);
    bench.cu.cuLaunchCooperativeKernel(function, 1, 1, 1, 32, 1, 1, 0, CUstream::NULL, pointers.as_mut_ptr())
}
