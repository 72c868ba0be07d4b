//! The cellar's threads. Each takes a job, does all of it, and takes the next; so the disk has as many requests at once
//! as there are threads. A panic ends a job and not a thread: what was handed over comes back with an error.

use super::error::{GetError, OpenError, PutError};
use super::jobs::{Closing, Done, JobId, Jobs, Work};
use super::keep::{Bench, Keep};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Threads that end when this is dropped.
pub(super) struct Workers {
    jobs: Arc<Jobs>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub(super) fn start(count: usize, keep: &Arc<Keep>, jobs: &Arc<Jobs>) -> Result<Workers, OpenError> {
        let mut workers = Workers { jobs: Arc::clone(jobs), threads: Vec::with_capacity(count) };
        for number in 0..count {
            let bench = Bench::new().map_err(OpenError::Thread)?;
            let (keep, jobs) = (Arc::clone(keep), Arc::clone(jobs));
            let thread = Builder::new().name(format!("rota-cellar-{number}"));
            let thread = thread.spawn(move || serve(&keep, &jobs, bench)).map_err(OpenError::Thread)?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs.close(Closing::Now);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the cellar ended by a panic");
            }
        }
    }
}

fn serve(keep: &Keep, jobs: &Jobs, mut bench: Bench) {
    while let Some((job, work)) = jobs.next() {
        jobs.finish(perform(keep, &mut bench, job, work));
    }
}

/// Does one job. What it holds of the books goes back by itself, also by a panic, and what is left on the bench is
/// written over by the next job: so nothing half done can be seen after one.
fn perform(keep: &Keep, bench: &mut Bench, job: JobId, work: Work) -> Done {
    match work {
        Work::Put { block, source } => {
            let put = AssertUnwindSafe(|| keep.put(bench, block, (*source).as_ref()));
            let result = catch_unwind(put).unwrap_or(Err(PutError::Panicked { block }));
            Done::Put { job, block, source, result }
        }
        Work::Get { ticket, mut into } => {
            let get = AssertUnwindSafe(|| keep.get(bench, &ticket, (*into).as_mut()));
            let panicked = GetError::Panicked { block: ticket.block() };
            let result = catch_unwind(get).unwrap_or(Err(panicked));
            Done::Get { job, ticket, into, result }
        }
    }
}
