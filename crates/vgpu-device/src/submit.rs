//! Work as programs give it, checked and made into jobs. Copies are in [`copies`], what memory work uses in [`reach`].

mod copies;
mod reach;

pub(crate) use reach::uses;

use cuda::CUresult;
use vgpu_messages::work::{Launch, Memset, Work, WorkRequest};
use vgpu_messages::*;

use crate::item::Job;
use crate::kernels::{NoOp, Set, Stuck};
use crate::machine::{Handled, Machine, Outcome, Then};
use crate::session::ConnectionId;

/// Threads of a block.
const THREADS_MAX: u64 = 1024;
/// Bounds of a block and of a grid, each way.
const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];
const GRID_MAX: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// Shared memory of a block, unless the function was allowed more.
const SHARED_BYTES: u32 = 48 << 10;
/// Blocks that fit on a multiprocessor at once.
const BLOCKS_PER_MULTIPROCESSOR: u64 = 32;

/// How far work is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// To run now: pageable memory may be read at once.
    Now,
    /// To run later.
    Checked,
    /// To run now, checked before: its memory may be away for the moment.
    Trusted,
}

/// A job, and whether the program has to wait for it although it did not ask to.
pub(crate) struct Prepared {
    pub(crate) job: Job,
    pub(crate) wait: bool,
}

impl Machine {
    pub(crate) fn work_request(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        request: WorkRequest,
    ) -> Handled {
        let stream = self.resolve(connection, session, request.context, request.stream)?;
        if let Some(outcome) = self.capture_work(session, stream, &request)? {
            return Ok(outcome);
        }
        self.refuse_implicit(stream)?;
        let context = self.streams[&stream].context;
        match request.work {
            Work::Record(event) => {
                let of = self.event(session, event)?.context;
                if of != context {
                    return Err(CUresult::INVALID_HANDLE.into());
                }
                let item = self.enqueue(stream, Job::Mark(event));
                self.record(event, item);
                Ok(self.added(stream, Answer::Done))
            }
            Work::WaitEvent(event) => {
                let marker = self.event(session, event)?.marker.filter(|item| !self.items.is_done(*item));
                if let Some(marker) = marker {
                    let mut before = self.predecessors(stream);
                    before.push(marker);
                    let item = self.items.add(context, Some(stream), Job::Nothing, before);
                    self.streams.get_mut(&stream).expect("resolved").tail = Some(item);
                }
                Ok(self.added(stream, Answer::Done))
            }
            work => {
                let prepared = self.prepare(context, &work, How::Now)?;
                let item = self.enqueue(stream, prepared.job);
                self.items.note_uses(item, uses(&work));
                if request.blocking || prepared.wait {
                    return Ok(Outcome::After {
                        items: vec![item],
                        context,
                        then: Then::Answer(Answer::Done),
                    });
                }
                Ok(self.added(stream, Answer::Done))
            }
        }
    }

    /// Makes a job of work.
    pub(crate) fn prepare(&mut self, context: ContextId, work: &Work, how: How) -> Result<Prepared, Refusal> {
        let job = match work {
            Work::Copy(copy) => return self.prepare_copy(context, copy, how),
            Work::Memset(memset) => self.prepare_memset(context, memset, how)?,
            Work::Launch(launch) => self.prepare_launch(context, launch)?,
            Work::Host(call) => Job::Host(*call),
            Work::WaitValue { address, value, wide, flags } => {
                self.check_value(context, *address, *wide)?;
                let (address, value, wide, flags) = (*address, *value, *wide, *flags);
                Job::WaitValue { address, value, wide, flags, who: self.toucher(context, true) }
            }
            Work::WriteValue { address, value, wide } => {
                self.check_value(context, *address, *wide)?;
                let (address, value, wide) = (*address, *value, *wide);
                Job::WriteValue { address, value, wide, who: self.toucher(context, true) }
            }
            Work::Record(event) => Job::Mark(*event),
            Work::WaitEvent(_) => Job::Nothing,
        };
        Ok(Prepared { job, wait: false })
    }

    fn check_value(&self, context: ContextId, address: Address, wide: bool) -> Result<(), Refusal> {
        let bytes = if wide { 8 } else { 4 };
        let session = self.contexts[&context].session;
        if !address.0.is_multiple_of(bytes) || !self.is_known(session, address.0, bytes) {
            return Err(CUresult::INVALID_VALUE.into());
        }
        Ok(())
    }

    fn prepare_memset(&mut self, context: ContextId, memset: &Memset, how: How) -> Result<Job, Refusal> {
        let invalid = || Refusal::from(CUresult::INVALID_VALUE);
        let element = u64::from(memset.element_bytes);
        if !matches!(element, 1 | 2 | 4) || !memset.address.0.is_multiple_of(element) {
            return Err(invalid());
        }
        let mut memset = *memset;
        let row = memset.width.checked_mul(element).ok_or_else(invalid)?;
        if row == 0 || memset.height == 0 {
            return Ok(Job::Nothing);
        }
        if memset.height == 1 {
            memset.pitch = row;
        } else if memset.pitch < row || !memset.pitch.is_multiple_of(element) {
            return Err(invalid());
        }
        let bytes = memset.pitch.checked_mul(memset.height - 1).and_then(|all| all.checked_add(row));
        let bytes = bytes.ok_or_else(invalid)?;
        if how != How::Trusted && !self.is_allowed(context, memset.address.0, bytes, true) {
            return Err(invalid());
        }
        let kernel = Box::new(Set::new(memset, self.spec.memory_rate));
        Ok(Job::Kernel { kernel, start: self.spec.costs.copy, who: self.toucher(context, true) })
    }

    fn prepare_launch(&mut self, context: ContextId, launch: &Launch) -> Result<Job, Refusal> {
        let invalid = || Refusal::from(CUresult::INVALID_VALUE);
        let function = self.functions.get(&launch.function).ok_or(CUresult::INVALID_HANDLE)?;
        if function.context != context {
            return Err(CUresult::INVALID_HANDLE.into());
        }
        let within =
            |size: [u32; 3], max: [u32; 3]| size.iter().zip(max).all(|(&size, max)| size >= 1 && size <= max);
        let threads: u64 = launch.block.iter().map(|&size| u64::from(size)).product();
        if !within(launch.block, BLOCK_MAX) || !within(launch.grid, GRID_MAX) || threads > THREADS_MAX {
            return Err(invalid());
        }
        if launch.shared_bytes > function.shared_bytes_max.max(SHARED_BYTES)
            || launch.parameters.len() < function.parameter_bytes()
        {
            return Err(invalid());
        }
        let blocks: u64 = launch.grid.iter().map(|&size| u64::from(size)).product();
        if launch.cooperative && blocks > u64::from(self.spec.multiprocessors) * BLOCKS_PER_MULTIPROCESSOR {
            return Err(CUresult::COOPERATIVE_LAUNCH_TOO_LARGE.into());
        }
        let who = self.toucher(context, false);
        let kernel = match function.native {
            _ if self.faults.is_stuck(who.pid, &function.name) => Box::new(Stuck),
            Some(native) => native.start(&launch.parameters, &self.spec),
            None => Box::new(NoOp::new(self.spec.unknown_kernel_time)),
        };
        Ok(Job::Kernel { kernel, start: self.spec.costs.launch, who })
    }
}
