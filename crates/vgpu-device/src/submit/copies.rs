//! Copies: which way they go, and whether the program has to wait.

use cuda::CUresult;
use vgpu_messages::work::{Copy, Place};
use vgpu_messages::*;

use super::{How, Prepared};
use crate::engine::bus::Way;
use crate::item::Job;
use crate::kernels::DeviceCopy;
use crate::machine::Machine;
use crate::space::Kind;
use crate::transfer::{End, Transfer};

/// Pageable memory up to this size is read when the copy is asked for, and the program goes on at once.
const STAGED_BYTES_MAX: u64 = 64 << 10;
impl Machine {
    /// The GPU that holds an address; None for the host. What is away comes back to where the context is.
    fn holder(&self, context: ContextId, address: u64) -> Option<DeviceId> {
        let context = &self.contexts[&context];
        let space = self.store.spaces.get(&context.session)?;
        match &space.around(address)?.1.kind {
            Kind::Allocation(allocation) => Some(allocation.device),
            Kind::Reservation(_) => match space.mapping(address) {
                Some((_, mapping)) => self.store.physical.block(mapping.block).device(),
                None => Some(context.device),
            },
            Kind::Host(_) => None,
        }
    }

    pub(super) fn prepare_copy(
        &mut self,
        context: ContextId,
        copy: &Copy,
        how: How,
    ) -> Result<Prepared, Refusal> {
        let invalid = || Refusal::from(CUresult::INVALID_VALUE);
        let session = self.contexts[&context].session;
        let shape = [copy.width_bytes, copy.height, copy.depth];
        if shape.contains(&0) {
            return Ok(Prepared { job: Job::Nothing, wait: false });
        }
        let steps = |pitch: u64, slice: u64| {
            let pitch = if copy.height == 1 { copy.width_bytes } else { pitch };
            let slice = if copy.depth == 1 { pitch.checked_mul(copy.height)? } else { slice };
            let fits =
                pitch >= copy.width_bytes && slice >= pitch.checked_mul(copy.height - 1)? + copy.width_bytes;
            fits.then_some([pitch, slice])
        };
        let mut transfer = Transfer {
            source: End::Host(0),
            target: End::Host(0),
            shape,
            source_steps: steps(copy.source_pitch, copy.source_slice).ok_or_else(invalid)?,
            target_steps: steps(copy.target_pitch, copy.target_slice).ok_or_else(invalid)?,
        };
        transfer.source = self.end(session, copy.source);
        transfer.target = self.end(session, copy.target);
        for end in [&transfer.source, &transfer.target] {
            let span = transfer.span(end).ok_or_else(invalid)?;
            let bytes = span.end.checked_sub(span.start).ok_or_else(invalid)?;
            let looked_at = how != How::Trusted && matches!(end, End::Device(_));
            let write = std::ptr::eq(end, &transfer.target);
            if looked_at && !self.is_allowed(context, span.start, bytes, write) {
                return Err(invalid());
            }
        }
        let who = self.toucher(context, true);
        let side = |end: &End| match end {
            End::Device(address) => self.holder(context, *address),
            _ => None,
        };
        let (from, to) = (side(&transfer.source), side(&transfer.target));
        let pageable = |end: &End| match end {
            End::Host(_) => transfer
                .span(end)
                .is_none_or(|span| !self.is_known(session, span.start, span.end - span.start)),
            _ => false,
        };
        let (pageable_source, pageable_target) = (pageable(&transfer.source), pageable(&transfer.target));
        if let (Some(from), Some(to)) = (from, to)
            && from == to
        {
            let kernel = Box::new(DeviceCopy::new(transfer, self.spec.memory_rate));
            let job = Job::Kernel { kernel, start: self.spec.costs.copy, who };
            return Ok(Prepared { job, wait: false });
        }
        let way = if from.is_some() { Way::Out } else { Way::In };
        let mut wait = pageable_source || pageable_target;
        if how == How::Now && pageable_source && !pageable_target && transfer.bytes() <= STAGED_BYTES_MAX {
            self.stage(&mut transfer, who.pid)?;
            wait = false;
        }
        let pageable = pageable_source || pageable_target;
        let peer = from.is_some() && to.is_some();
        Ok(Prepared { job: Job::Transfer { way, transfer, pageable, peer, who }, wait })
    }

    /// Reads the source now.
    fn stage(&mut self, transfer: &mut Transfer, pid: i32) -> Result<(), Refusal> {
        let End::Host(base) = transfer.source else { return Ok(()) };
        let [width, height, depth] = transfer.shape;
        let [pitch, slice] = transfer.source_steps;
        let mut bytes = vec![0; transfer.bytes() as usize];
        for (row, part) in bytes.chunks_mut(width as usize).enumerate() {
            let row = row as u64;
            debug_assert!(row < height * depth);
            let address = base + row / height * slice + row % height * pitch;
            self.store.host.read(pid, address, part).map_err(|_| Refusal::from(CUresult::INVALID_VALUE))?;
        }
        transfer.source = End::Staged(bytes);
        Ok(())
    }

    fn end(&self, session: SessionId, place: Place) -> End {
        match place {
            Place::Host(address) => End::Host(address),
            Place::Device(address) => End::Device(address),
            Place::Either(address) if self.is_known(session, address, 1) => End::Device(address),
            Place::Either(address) => End::Host(address),
        }
    }
}
