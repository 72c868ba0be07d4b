//! Sharing memory with other processes: by files, and by the older IPC handles.

use std::collections::BTreeMap;

use cuda::CUresult;
use vgpu_messages::memory::MemoryRequest;
use vgpu_messages::*;

use crate::machine::{FileKind, Handled, Machine, Outcome};
use crate::rm::FileKey;
use crate::space::{Allocation, Kind};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FILE_HANDLE: u32 = 1;

/// IPC handles that were given out: whose memory, and where.
#[derive(Debug, Default)]
pub(crate) struct Tokens(BTreeMap<u64, (SessionId, u64)>);

impl Tokens {
    /// A process is gone.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.0.retain(|_, (other, _)| *other != session);
    }

    /// Some memory is gone.
    pub(crate) fn forget_address(&mut self, session: SessionId, address: u64) {
        self.0.retain(|_, it| *it != (session, address));
    }
}

impl Machine {
    pub(super) fn share_request(
        &mut self,
        session: SessionId,
        request: MemoryRequest,
        file: Option<FileKey>,
    ) -> Handled {
        match request {
            MemoryRequest::Export(handle) => {
                let block = self.block_of(session, handle)?;
                if self.properties_of(session, handle)?.handle_types & FILE_HANDLE == 0 {
                    return Err(CUresult::INVALID_VALUE.into());
                }
                let file = FileKey(self.id());
                self.store.physical.retain(block);
                self.exports.insert(file, block);
                Ok(Outcome::File(file, FileKind::Export))
            }
            MemoryRequest::Import => {
                let block =
                    file.and_then(|file| self.exports.get(&file).copied()).ok_or(CUresult::UNKNOWN)?;
                self.store.physical.hold(block, session);
                Ok(Answer::Handle(self.new_import(session, block)).into())
            }
            MemoryRequest::IpcExport(address) => {
                let region = self.store.spaces[&session].starting(address.0);
                match region.map(|region| &region.kind) {
                    Some(Kind::Allocation(allocation)) if allocation.pool.is_none() && !allocation.opened => {
                    }
                    _ => return Err(CUresult::INVALID_VALUE.into()),
                }
                let known = self
                    .tokens
                    .0
                    .iter()
                    .find(|(_, it)| **it == (session, address.0))
                    .map(|(token, _)| *token);
                let token = known.unwrap_or_else(|| self.id());
                self.tokens.0.insert(token, (session, address.0));
                Ok(Answer::Number(token).into())
            }
            MemoryRequest::IpcOpen { context, token } => self.ipc_open(session, context, token),
            MemoryRequest::IpcClose(address) => {
                let space = self.store.spaces.get_mut(&session).expect("a session has a space");
                match space.starting(address.0).map(|region| &region.kind) {
                    Some(Kind::Allocation(allocation)) if allocation.opened => {}
                    _ => return Err(CUresult::INVALID_VALUE.into()),
                }
                if let Some(Kind::Allocation(allocation)) = space.remove(address.0).map(|region| region.kind)
                {
                    self.store.physical.release(allocation.block);
                }
                Ok(Answer::Done.into())
            }
            _ => unreachable!("all other requests are handled before"),
        }
    }

    fn ipc_open(&mut self, session: SessionId, context: ContextId, token: u64) -> Handled {
        self.usable(session, context)?;
        let (owner, address) = *self.tokens.0.get(&token).ok_or(CUresult::INVALID_HANDLE)?;
        if owner == session {
            return Err(CUresult::INVALID_CONTEXT.into());
        }
        let region = self.store.spaces.get(&owner).and_then(|space| space.starting(address));
        let region = region.ok_or(CUresult::INVALID_HANDLE)?;
        let Kind::Allocation(theirs) = &region.kind else { return Err(CUresult::INVALID_HANDLE.into()) };
        let (bytes, block) = (region.bytes, theirs.block);
        let allocation = Allocation {
            asked_bytes: theirs.asked_bytes,
            block,
            device: theirs.device,
            context: Some(context),
            pool: None,
            freeing: false,
            opened: true,
        };
        self.store.physical.retain(block);
        let start = self.place(session, bytes, Kind::Allocation(allocation))?;
        Ok(Answer::Address(Address(start)).into())
    }
}
