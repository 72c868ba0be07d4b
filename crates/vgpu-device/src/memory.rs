//! Device memory: plain allocations, and what is known of addresses. Virtual addresses and handles are in [`vmm`], sharing
//! with other processes in [`share`].

pub(crate) mod share;
mod vmm;

use cuda::CUresult;
use vgpu_messages::memory::{HandleProperties, Location, MemoryRequest, PointerFacts, PointerKind};
use vgpu_messages::*;

use crate::machine::{Handled, Machine, Outcome, Then};
use crate::misuse::Misuse;
use crate::physical::BlockId;
use crate::rm::FileKey;
use crate::session::ConnectionId;
use crate::space::{Allocation, Kind, Region};

/// Rows of pitched memory begin at multiples of this.
const PITCH_BYTES: u64 = 512;

impl Machine {
    pub(crate) fn memory_request(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        request: MemoryRequest,
        file: Option<FileKey>,
    ) -> Handled {
        match request {
            MemoryRequest::Alloc { context, bytes } => {
                self.usable(session, context)?;
                self.refuse_in_capture(connection, session)?;
                let address = self.alloc(session, context, bytes)?;
                Ok(Answer::Address(Address(address)).into())
            }
            MemoryRequest::AllocPitch { context, width_bytes, height, element_bytes } => {
                self.usable(session, context)?;
                self.refuse_in_capture(connection, session)?;
                if !matches!(element_bytes, 4 | 8 | 16) || width_bytes == 0 || height == 0 {
                    return Err(CUresult::INVALID_VALUE.into());
                }
                let pitch_bytes =
                    width_bytes.checked_next_multiple_of(PITCH_BYTES).ok_or(CUresult::OUT_OF_MEMORY)?;
                let bytes = pitch_bytes.checked_mul(height).ok_or(CUresult::OUT_OF_MEMORY)?;
                let address = Address(self.alloc(session, context, bytes)?);
                Ok(Answer::Pitched { address, pitch_bytes }.into())
            }
            MemoryRequest::Free { context, address } => self.free(connection, session, context, address.0),
            MemoryRequest::Info(context) => {
                let device = self.usable(session, context)?.device;
                let (used, total) = self.store.physical.used(device);
                Ok(Answer::Memory { free_bytes: total - used, total_bytes: total }.into())
            }
            MemoryRequest::AddressRange { context, address } => {
                self.usable(session, context)?;
                let (base, bytes) = self.range(session, address.0).ok_or(CUresult::NOT_FOUND)?;
                Ok(Answer::Range { base: Address(base), bytes }.into())
            }
            MemoryRequest::Pointer(address) => Ok(Answer::Pointer(self.pointer(session, address.0)).into()),
            other => self.vmm_request(session, other, file),
        }
    }

    /// A new block, unless a fault or the books say there is no memory.
    pub(crate) fn make_block(
        &mut self,
        session: SessionId,
        bytes: u64,
        properties: HandleProperties,
    ) -> Result<BlockId, Refusal> {
        let pid = self.sessions[&session].pid;
        if self.faults.allocation_fails(pid) {
            return Err(CUresult::OUT_OF_MEMORY.into());
        }
        let mut made = self.store.physical.make(bytes, properties, session);
        if made.is_err() && self.tear_down_now() {
            made = self.store.physical.make(bytes, properties, session);
        }
        made.map_err(|_| CUresult::OUT_OF_MEMORY.into())
    }

    fn alloc(&mut self, session: SessionId, context: ContextId, asked_bytes: u64) -> Result<u64, Refusal> {
        if asked_bytes == 0 {
            return Err(CUresult::INVALID_VALUE.into());
        }
        let device = self.contexts[&context].device;
        self.allocate(session, device, asked_bytes, |block| Allocation {
            asked_bytes,
            block,
            device,
            context: Some(context),
            pool: None,
            freeing: false,
            opened: false,
        })
    }

    /// Memory with addresses of its own.
    pub(crate) fn allocate(
        &mut self,
        session: SessionId,
        device: DeviceId,
        asked_bytes: u64,
        allocation: impl FnOnce(BlockId) -> Allocation,
    ) -> Result<u64, Refusal> {
        let bytes = asked_bytes
            .checked_next_multiple_of(ALLOCATION_ALIGNMENT_BYTES)
            .ok_or(CUresult::OUT_OF_MEMORY)?;
        let location = Location::Device(device);
        let properties = HandleProperties { kind: 1, handle_types: 0, location, flags: [0; 8] };
        let block = self.make_block(session, bytes, properties)?;
        self.place(session, bytes, Kind::Allocation(allocation(block)))
    }

    /// Gives an allocation fresh addresses.
    pub(crate) fn place(&mut self, session: SessionId, bytes: u64, kind: Kind) -> Result<u64, Refusal> {
        let buffer_id = self.id();
        let space = self.store.spaces.get_mut(&session).expect("a session has a space");
        let Some(start) = space.fresh(bytes, 0) else {
            if let Kind::Allocation(allocation) = kind {
                self.store.physical.release(allocation.block);
            }
            return Err(CUresult::OUT_OF_MEMORY.into());
        };
        space.insert(start, Region { bytes, buffer_id, kind });
        Ok(start)
    }

    fn free(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        context: ContextId,
        address: u64,
    ) -> Handled {
        self.usable(session, context)?;
        self.refuse_in_capture(connection, session)?;
        if address == 0 {
            return Ok(Answer::Done.into());
        }
        let region = self.store.spaces[&session].starting(address).ok_or(CUresult::INVALID_VALUE)?;
        let Kind::Allocation(allocation) = &region.kind else { return Err(CUresult::INVALID_VALUE.into()) };
        if allocation.freeing || allocation.opened {
            return Err(CUresult::INVALID_VALUE.into());
        }
        // A free waits for all work that may use the memory: that of every context of the process on its device.
        let (device, range) = (allocation.device, address..address + region.bytes);
        let (mut items, mut used) = (Vec::new(), false);
        for (id, its) in &self.contexts {
            if its.session == session && its.device == device {
                items.extend(self.items.of_context(*id));
                // In the legacy stream a free comes after all work by its own nature.
                used |= self.items.use_memory(*id, Some(its.legacy), &range);
            }
        }
        if used {
            let what = format!("frees the memory at {address:#x} while work that is not done uses it");
            self.store.misuse.push(Misuse { pid: self.sessions[&session].pid, what });
        }
        if items.is_empty() {
            self.free_now(session, address)?;
            return Ok(Answer::Done.into());
        }
        Ok(Outcome::After { items, context, then: Then::Free(session, address) })
    }

    /// Memory of `cuMemAlloc` or of a pool goes.
    pub(crate) fn free_now(&mut self, session: SessionId, address: u64) -> Result<(), Refusal> {
        let space = self.store.spaces.get_mut(&session).ok_or(CUresult::INVALID_VALUE)?;
        match space.starting(address).map(|region| &region.kind) {
            Some(Kind::Allocation(allocation)) if allocation.pool.is_some() => {
                self.pool_free_now(session, address);
                return Ok(());
            }
            Some(Kind::Allocation(_)) => {}
            _ => return Err(CUresult::INVALID_VALUE.into()),
        }
        let region = space.remove(address).expect("looked up above");
        if let Kind::Allocation(allocation) = region.kind {
            self.store.physical.release(allocation.block);
        }
        self.tokens.forget_address(session, address);
        Ok(())
    }

    /// The allocation or mapping that holds an address.
    fn range(&self, session: SessionId, address: u64) -> Option<(u64, u64)> {
        let space = self.store.spaces.get(&session)?;
        let (start, region) = space.around(address)?;
        match &region.kind {
            Kind::Allocation(allocation) => {
                (address - start < allocation.asked_bytes).then_some((start, allocation.asked_bytes))
            }
            Kind::Reservation(_) => space.mapping(address).map(|(start, mapping)| (start, mapping.bytes)),
            Kind::Host(_) => Some((start, region.bytes)),
        }
    }

    fn pointer(&self, session: SessionId, address: u64) -> PointerFacts {
        let mut facts = PointerFacts {
            kind: PointerKind::Unknown,
            context: None,
            device: None,
            device_address: None,
            host_address: None,
            buffer_id: 0,
            range_start: 0,
            range_bytes: 0,
            mapping_start: 0,
            mapping_bytes: 0,
            handle_types: 0,
            pool: None,
            ipc_capable: false,
        };
        let Some(space) = self.store.spaces.get(&session) else { return facts };
        let Some((start, region)) = space.around(address) else { return facts };
        facts.buffer_id = region.buffer_id;
        (facts.range_start, facts.range_bytes) = (start, region.bytes);
        facts.device_address = Some(Address(address));
        match &region.kind {
            Kind::Allocation(allocation) => {
                facts.kind = PointerKind::Device;
                facts.context = allocation.context;
                facts.device = Some(allocation.device);
                facts.range_bytes = allocation.asked_bytes;
                facts.pool = allocation.pool;
                facts.ipc_capable = allocation.pool.is_none() && !allocation.opened;
            }
            Kind::Reservation(_) => {
                facts.kind = PointerKind::Reserved;
                if let Some((start, mapping)) = space.mapping(address) {
                    let block = self.store.physical.block(mapping.block);
                    facts.kind = PointerKind::Device;
                    facts.device = block.device();
                    facts.handle_types = block.properties.handle_types;
                    (facts.mapping_start, facts.mapping_bytes) = (start, mapping.bytes);
                }
            }
            Kind::Host(range) => {
                facts.kind = PointerKind::Host;
                facts.context = Some(range.context);
                facts.device = self.contexts.get(&range.context).map(|context| context.device);
                facts.host_address = Some(address);
            }
        }
        facts
    }
}
