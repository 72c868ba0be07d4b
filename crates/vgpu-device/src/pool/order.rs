//! Allocating from pools and freeing to them, in the order of streams.

use cuda::CUresult;
use vgpu_messages::stream::StreamRef;
use vgpu_messages::*;

use super::invalid;
use crate::item::Job;
use crate::machine::{Handled, Machine};
use crate::session::ConnectionId;
use crate::space::{Allocation, Kind};

impl Machine {
    pub(super) fn alloc_async(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        context: ContextId,
        stream: StreamRef,
        pool: Option<PoolId>,
        bytes: u64,
    ) -> Handled {
        let stream = self.resolve(connection, session, context, stream)?;
        self.refuse_if_captured(stream)?;
        if bytes == 0 {
            return Ok(Answer::Address(Address(0)).into());
        }
        let device = self.contexts[&context].device;
        let id = match pool {
            Some(id) => id,
            None => self.device_pools(session, device)?.1,
        };
        let rounded =
            bytes.checked_next_multiple_of(ALLOCATION_ALIGNMENT_BYTES).ok_or(CUresult::OUT_OF_MEMORY)?;
        let pool = self.pool_mut(session, id)?;
        let device = pool.device;
        if pool.bytes_max != 0 && pool.used.saturating_add(rounded) > pool.bytes_max {
            return Err(CUresult::OUT_OF_MEMORY.into());
        }
        // What the pool keeps is taken first: it goes back to the books and comes out of them again.
        let reused = pool.kept.min(rounded);
        pool.kept -= reused;
        self.store.physical.give_back(device, reused);
        let made = self.allocate(session, device, bytes, |block| Allocation {
            asked_bytes: bytes,
            block,
            device,
            context: None,
            pool: Some(id),
            freeing: false,
            opened: false,
        });
        let address = match made {
            Ok(address) => address,
            Err(refusal) => {
                self.store.physical.take(device, reused).expect("given back just now");
                self.pools.get_mut(&id).expect("looked up above").kept += reused;
                return Err(refusal);
            }
        };
        let pool = self.pools.get_mut(&id).expect("looked up above");
        pool.used += rounded;
        pool.asked += bytes;
        pool.asked_high = pool.asked_high.max(pool.asked);
        pool.reserved_high = pool.reserved_high.max(pool.used + pool.kept);
        Ok(Answer::Address(Address(address)).into())
    }

    pub(super) fn free_async(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        context: ContextId,
        stream: StreamRef,
        address: u64,
    ) -> Handled {
        let stream = self.resolve(connection, session, context, stream)?;
        self.refuse_if_captured(stream)?;
        if address == 0 {
            return Ok(Answer::Done.into());
        }
        let space = self.store.spaces.get_mut(&session).expect("a session has a space");
        match space.starting_mut(address).map(|region| &mut region.kind) {
            Some(Kind::Allocation(allocation)) if !allocation.freeing && !allocation.opened => {
                allocation.freeing = true;
            }
            _ => return Err(invalid()),
        }
        self.enqueue(stream, Job::FreeAsync(address));
        Ok(self.added(stream, Answer::Done))
    }

    /// Memory goes back to its pool; that of `cuMemAlloc` is free.
    pub(crate) fn pool_free_now(&mut self, session: SessionId, address: u64) {
        let Some(space) = self.store.spaces.get_mut(&session) else { return };
        let Some(region) = space.remove(address) else { return };
        let Kind::Allocation(allocation) = region.kind else { return };
        self.store.physical.release(allocation.block);
        if let Some(id) = allocation.pool
            && let Some(pool) = self.pools.get_mut(&id)
        {
            pool.used -= region.bytes;
            pool.asked -= allocation.asked_bytes;
            if self.store.physical.take(pool.device, region.bytes).is_ok() {
                pool.kept += region.bytes;
            }
        }
    }
}
