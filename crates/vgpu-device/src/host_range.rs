//! Host memory that the device knows: registered or allocated by the program.

use cuda::CUresult;
use vgpu_messages::host::HostRequest;
use vgpu_messages::*;

use crate::machine::{Handled, Machine, Outcome, Then};
use crate::misuse::Misuse;
use crate::session::ConnectionId;
use crate::space::{BASE, END, HostRange, Kind, Region};

impl Machine {
    pub(crate) fn host_request(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        request: HostRequest,
    ) -> Handled {
        match request {
            HostRequest::Register { context, address, bytes, flags, allocated } => {
                self.usable(session, context)?;
                self.refuse_in_capture(connection, session)?;
                self.register(session, context, address, bytes, flags, allocated)
            }
            HostRequest::Unregister { address, allocated } => self.unregister(session, address, allocated),
            HostRequest::DeviceAddress(address) => {
                self.host_range(session, address)?;
                Ok(Answer::Address(Address(address)).into())
            }
            HostRequest::Flags(address) => {
                Ok(Answer::Number(u64::from(self.host_range(session, address)?.flags)).into())
            }
        }
    }

    fn host_range(&self, session: SessionId, address: u64) -> Result<&HostRange, Refusal> {
        match self.store.spaces[&session].around(address) {
            Some((_, Region { kind: Kind::Host(range), .. })) => Ok(range),
            _ => Err(CUresult::INVALID_VALUE.into()),
        }
    }

    fn register(
        &mut self,
        session: SessionId,
        context: ContextId,
        address: u64,
        bytes: u64,
        flags: u32,
        allocated: bool,
    ) -> Handled {
        let end = address.checked_add(bytes).ok_or(CUresult::INVALID_VALUE)?;
        if address == 0 || bytes == 0 || address < END && end > BASE {
            return Err(CUresult::INVALID_VALUE.into());
        }
        let pid = self.sessions[&session].pid;
        let mut byte = [0];
        let mut there = |address| self.store.host.read(pid, address, &mut byte).is_ok();
        if !there(address) || !there(end - 1) {
            return Err(CUresult::INVALID_VALUE.into());
        }
        if self.store.spaces[&session].overlaps(address, bytes) {
            return Err(CUresult::HOST_MEMORY_ALREADY_REGISTERED.into());
        }
        let buffer_id = self.id();
        let kind = Kind::Host(HostRange { flags, allocated, context });
        let space = self.store.spaces.get_mut(&session).expect("a session has a space");
        space.insert(address, Region { bytes, buffer_id, kind });
        // Pinning holds the driver's lock: RM calls wait.
        let takes = self.spec.costs.pin_rate.time_of(bytes);
        self.rm.locked_until = self.rm.locked_until.max(self.now) + takes;
        Ok(Outcome::In(takes, Then::Answer(Answer::Done)))
    }

    fn unregister(&mut self, session: SessionId, address: u64, allocated: bool) -> Handled {
        let unknown = if allocated { CUresult::INVALID_VALUE } else { CUresult::HOST_MEMORY_NOT_REGISTERED };
        let context = match self.store.spaces[&session].starting(address) {
            Some(Region { kind: Kind::Host(range), .. }) if range.allocated == allocated => range.context,
            Some(Region { kind: Kind::Host(_), .. }) => return Err(CUresult::INVALID_VALUE.into()),
            _ if self.host_range(session, address).is_ok() => return Err(CUresult::INVALID_VALUE.into()),
            _ => return Err(unknown.into()),
        };
        let own = |id: &&ContextId| self.contexts[*id].session == session;
        let items: Vec<_> =
            self.contexts.keys().filter(own).flat_map(|id| self.items.of_context(*id)).collect();
        if items.is_empty() {
            self.unregister_now(session, address);
            return Ok(Answer::Done.into());
        }
        let range = self.host_span(session, address);
        let used =
            |id: &ContextId| self.contexts[id].session == session && self.items.use_memory(*id, None, &range);
        if !allocated && self.contexts.keys().any(used) {
            let pid = self.sessions[&session].pid;
            let what =
                format!("unregisters the host memory at {address:#x} while work that is not done uses it");
            self.store.misuse.push(Misuse { pid, what });
        }
        Ok(Outcome::After { items, context, then: Then::Unregister(session, address) })
    }

    fn host_span(&self, session: SessionId, address: u64) -> std::ops::Range<u64> {
        let bytes = self.store.spaces[&session].starting(address).map_or(0, |region| region.bytes);
        address..address + bytes
    }

    /// The range goes now.
    pub(crate) fn unregister_now(&mut self, session: SessionId, address: u64) {
        if let Some(space) = self.store.spaces.get_mut(&session) {
            space.remove(address);
        }
    }
}
