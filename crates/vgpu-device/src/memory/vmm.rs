//! Virtual addresses and physical handles: reserve, create, map, set access.

use std::collections::BTreeMap;

use cuda::CUresult;
use vgpu_messages::memory::{Access, HandleProperties, Location, MemoryRequest};
use vgpu_messages::*;

use crate::machine::{Handled, Machine};
use crate::physical::BlockId;
use crate::rm::FileKey;
use crate::session::Handle;
use crate::space::{Kind, Mapping, Region};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: u32 = 1;

fn invalid() -> Refusal {
    CUresult::INVALID_VALUE.into()
}

fn whole(bytes: u64) -> Result<(), Refusal> {
    if bytes > 0 && bytes.is_multiple_of(GRANULARITY_BYTES) { Ok(()) } else { Err(invalid()) }
}

impl Machine {
    pub(super) fn vmm_request(
        &mut self,
        session: SessionId,
        request: MemoryRequest,
        file: Option<FileKey>,
    ) -> Handled {
        match request {
            MemoryRequest::Reserve { bytes, alignment, hint } => {
                self.reserve(session, bytes, alignment, hint)
            }
            MemoryRequest::Unreserve { address, bytes } => {
                let space = self.store.spaces.get_mut(&session).expect("a session has a space");
                match space.starting(address.0) {
                    Some(Region { bytes: all, kind: Kind::Reservation(mappings), .. })
                        if *all == bytes && mappings.is_empty() => {}
                    _ => return Err(invalid()),
                }
                space.remove(address.0);
                Ok(Answer::Done.into())
            }
            MemoryRequest::Create { bytes, properties } => {
                whole(bytes)?;
                self.check_properties(&properties)?;
                let block = self.make_block(session, bytes, properties)?;
                Ok(Answer::Handle(self.new_handle(session, block)).into())
            }
            MemoryRequest::Release(handle) => {
                let handles = &mut self.sessions.get_mut(&session).expect("it asks").handles;
                let its = handles.get_mut(&handle).ok_or_else(invalid)?;
                its.count -= 1;
                let block = its.block;
                if its.count == 0 {
                    handles.remove(&handle);
                }
                self.store.physical.let_go(block, session);
                Ok(Answer::Done.into())
            }
            MemoryRequest::Map { address, bytes, offset, handle } => {
                self.map(session, address.0, bytes, offset, handle)
            }
            MemoryRequest::Unmap { address, bytes } => self.unmap(session, address.0, bytes),
            MemoryRequest::SetAccess { address, bytes, access } => {
                self.set_access(session, address.0, bytes, &access)
            }
            MemoryRequest::GetAccess { address, location } => {
                let space = &self.store.spaces[&session];
                let (_, mapping) = space.mapping(address.0).ok_or_else(invalid)?;
                Ok(Answer::Access(mapping.access.get(&location).copied().unwrap_or_default()).into())
            }
            MemoryRequest::Retain(address) => {
                let space = &self.store.spaces[&session];
                let block = space.mapping(address.0).ok_or_else(invalid)?.1.block;
                let handles = &mut self.sessions.get_mut(&session).expect("it asks").handles;
                self.store.physical.hold(block, session);
                if let Some((id, handle)) = handles.iter_mut().find(|(_, handle)| handle.block == block) {
                    handle.count += 1;
                    return Ok(Answer::Handle(*id).into());
                }
                Ok(Answer::Handle(self.new_handle(session, block)).into())
            }
            MemoryRequest::Properties(handle) => {
                Ok(Answer::HandleProperties(self.properties_of(session, handle)?).into())
            }
            MemoryRequest::Granularity(properties) => {
                self.check_properties(&properties)?;
                Ok(Answer::Number(GRANULARITY_BYTES).into())
            }
            other => self.share_request(session, other, file),
        }
    }

    fn check_properties(&self, properties: &HandleProperties) -> Result<(), Refusal> {
        if properties.kind != PINNED {
            return Err(invalid());
        }
        match properties.location {
            Location::Device(device) if device.0 < self.spec.gpus => Ok(()),
            Location::Device(_) => Err(CUresult::INVALID_DEVICE.into()),
            Location::Host => Ok(()),
            Location::Other(..) => Err(invalid()),
        }
    }

    fn reserve(&mut self, session: SessionId, bytes: u64, alignment: u64, hint: u64) -> Handled {
        whole(bytes)?;
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(invalid());
        }
        let buffer_id = self.id();
        let space = self.store.spaces.get_mut(&session).expect("a session has a space");
        let wished = hint != 0 && hint.is_multiple_of(alignment.max(1)) && space.is_free(hint, bytes);
        let start =
            if wished { hint } else { space.fresh(bytes, alignment).ok_or(CUresult::OUT_OF_MEMORY)? };
        space.insert(start, Region { bytes, buffer_id, kind: Kind::Reservation(BTreeMap::new()) });
        Ok(Answer::Address(Address(start)).into())
    }

    /// A new name for a block, to which a reference is already held.
    pub(crate) fn new_handle(&mut self, session: SessionId, block: BlockId) -> HandleId {
        let id = HandleId(self.id());
        let handles = &mut self.sessions.get_mut(&session).expect("it asks").handles;
        handles.insert(id, Handle { block, count: 1, imported: false });
        id
    }

    /// The same for memory that came by a file: it cannot be exported again.
    pub(crate) fn new_import(&mut self, session: SessionId, block: BlockId) -> HandleId {
        let id = self.new_handle(session, block);
        let handles = &mut self.sessions.get_mut(&session).expect("it asks").handles;
        handles.get_mut(&id).expect("just made").imported = true;
        id
    }

    /// As what a handle was made: one that was imported has no types of handles.
    pub(crate) fn properties_of(
        &self,
        session: SessionId,
        id: HandleId,
    ) -> Result<HandleProperties, Refusal> {
        let handle = self.sessions[&session].handles.get(&id).ok_or_else(invalid)?;
        let properties = self.store.physical.block(handle.block).properties;
        let handle_types = if handle.imported { 0 } else { properties.handle_types };
        Ok(HandleProperties { handle_types, ..properties })
    }

    /// The block that a handle names.
    pub(crate) fn block_of(&self, session: SessionId, id: HandleId) -> Result<BlockId, Refusal> {
        self.sessions[&session].handles.get(&id).map(|handle| handle.block).ok_or_else(invalid)
    }

    fn map(
        &mut self,
        session: SessionId,
        address: u64,
        bytes: u64,
        offset: u64,
        handle: HandleId,
    ) -> Handled {
        whole(bytes)?;
        let block = self.block_of(session, handle)?;
        let size = self.store.physical.block(block).bytes;
        if !address.is_multiple_of(GRANULARITY_BYTES) {
            return Err(invalid());
        }
        // A handle is mapped whole.
        if offset != 0 || bytes != size {
            return Err(CUresult::NOT_SUPPORTED.into());
        }
        let space = self.store.spaces.get_mut(&session).expect("a session has a space");
        let mappings = space.reservation(address, bytes).ok_or_else(invalid)?;
        let end = address + bytes;
        if mappings.range(..end).next_back().is_some_and(|(at, mapping)| at + mapping.bytes > address) {
            return Err(invalid());
        }
        mappings.insert(address, Mapping { bytes, block, offset, access: BTreeMap::new() });
        self.store.physical.hold(block, session);
        Ok(Answer::Done.into())
    }

    /// The mappings that make up exactly this range.
    fn mapped(mappings: &BTreeMap<u64, Mapping>, address: u64, bytes: u64) -> Result<Vec<u64>, Refusal> {
        let end = address.checked_add(bytes).ok_or_else(invalid)?;
        let mut next = address;
        let mut starts = Vec::new();
        for (&start, mapping) in mappings.range(address..end) {
            if start != next {
                return Err(invalid());
            }
            next = start + mapping.bytes;
            starts.push(start);
        }
        if next == end && !starts.is_empty() { Ok(starts) } else { Err(invalid()) }
    }

    fn unmap(&mut self, session: SessionId, address: u64, bytes: u64) -> Handled {
        whole(bytes)?;
        let space = self.store.spaces.get_mut(&session).expect("a session has a space");
        let mappings = space.reservation(address, bytes).ok_or_else(invalid)?;
        // Where nothing is mapped there is nothing to complain about; a part of a mapping cannot go alone.
        let end = address + bytes;
        let touched: Vec<(u64, u64)> = (mappings.range(..end))
            .map(|(start, mapping)| (*start, start + mapping.bytes))
            .filter(|(_, last)| *last > address)
            .collect();
        if touched.iter().any(|(start, last)| *start < address || *last > end) {
            return Err(invalid());
        }
        for (start, _) in touched {
            let mapping = mappings.remove(&start).expect("listed above");
            self.store.physical.let_go(mapping.block, session);
        }
        Ok(Answer::Done.into())
    }

    fn set_access(
        &mut self,
        session: SessionId,
        address: u64,
        bytes: u64,
        access: &[(Location, Access)],
    ) -> Handled {
        whole(bytes)?;
        for (location, _) in access {
            match location {
                Location::Device(device) if device.0 >= self.spec.gpus => {
                    return Err(CUresult::INVALID_DEVICE.into());
                }
                Location::Other(..) => return Err(invalid()),
                _ => {}
            }
        }
        let space = self.store.spaces.get_mut(&session).expect("a session has a space");
        let mappings = space.reservation(address, bytes).ok_or_else(invalid)?;
        for start in Self::mapped(mappings, address, bytes)? {
            let mapping = mappings.get_mut(&start).expect("listed above");
            for &(location, access) in access {
                mapping.access.insert(location, access);
            }
        }
        Ok(Answer::Done.into())
    }
}
