//! Contexts: on which groups they run, their sticky errors and their end.

use std::collections::{BTreeMap, BTreeSet};

use cuda::CUresult;
use vgpu_messages::request::ContextRequest;
use vgpu_messages::*;

use crate::engine::GroupKey;
use crate::machine::{Handled, Machine, Outcome, Then};
use crate::rm::{ENGINE_COMPUTE, ENGINE_COPY, Effect};
use crate::session::ConnectionId;
use crate::space::Kind;
use crate::space::touch::{Fault, Toucher};

/// The number of the error that a memory fault leaves in NVML's books.
const XID_MEMORY_FAULT: u32 = 31;
/// That of a lost device.
const XID_LOST: u32 = 79;
/// That of a failed copy.
const XID_COPY: u32 = 69;

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) session: SessionId,
    pub(crate) device: DeviceId,
    pub(crate) compute: GroupKey,
    /// To the device, from it.
    pub(crate) copies: [GroupKey; 2],
    /// From now on every call fails with it.
    pub(crate) error: Option<CUresult>,
    /// GPUs whose plain memory it may reach.
    pub(crate) peers: BTreeSet<DeviceId>,
    /// Its process is checkpointed: it has nothing on its GPU.
    pub(crate) out: bool,
    pub(crate) legacy: StreamId,
    pub(crate) per_thread: BTreeMap<ConnectionId, StreamId>,
}

impl Machine {
    pub(crate) fn context_request(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        request: ContextRequest,
    ) -> Handled {
        match request {
            ContextRequest::Create { device, client, compute_group, copy_groups, flags: _ } => {
                self.create_context(session, device, client, compute_group, &copy_groups)
            }
            ContextRequest::Destroy(id) => {
                self.context_of(session, id)?;
                let items = self.items.of_context(id);
                Ok(Outcome::After { items, context: id, then: Then::DestroyContext(id) })
            }
            ContextRequest::Synchronize(id) => {
                self.usable(session, id)?;
                self.refuse_in_capture(connection, session)?;
                self.refuse_in_own_capture(id)?;
                self.trim_pools(session);
                let items = self.items.of_context(id);
                Ok(Outcome::After { items, context: id, then: Then::Answer(Answer::Done) })
            }
            ContextRequest::Check(id) => {
                self.usable(session, id)?;
                Ok(Answer::Done.into())
            }
            ContextRequest::EnablePeer { context, peer } => {
                let (from, to) = self.peers(session, context, peer)?;
                if !self.devices[from.0 as usize].peers.contains(&to) {
                    return Err(CUresult::PEER_ACCESS_UNSUPPORTED.into());
                }
                let its = self.contexts.get_mut(&context).expect("checked");
                if !its.peers.insert(to) {
                    return Err(CUresult::PEER_ACCESS_ALREADY_ENABLED.into());
                }
                Ok(Answer::Done.into())
            }
            ContextRequest::DisablePeer { context, peer } => {
                let (_, to) = self.peers(session, context, peer)?;
                let its = self.contexts.get_mut(&context).expect("checked");
                if !its.peers.remove(&to) {
                    return Err(CUresult::PEER_ACCESS_NOT_ENABLED.into());
                }
                Ok(Answer::Done.into())
            }
        }
    }

    fn peers(
        &self,
        session: SessionId,
        context: ContextId,
        peer: ContextId,
    ) -> Result<(DeviceId, DeviceId), Refusal> {
        let from = self.usable(session, context)?.device;
        let to = self.usable(session, peer)?.device;
        if from == to { Err(CUresult::INVALID_DEVICE.into()) } else { Ok((from, to)) }
    }

    fn create_context(
        &mut self,
        session: SessionId,
        device: DeviceId,
        client: u32,
        compute_group: u32,
        copy_groups: &[u32],
    ) -> Handled {
        if device.0 >= self.spec.gpus {
            return Err(CUresult::INVALID_DEVICE.into());
        }
        if let Some(code) = self.sessions[&session].error {
            return Err(code.into());
        }
        if self.faults.is_lost(device, self.sessions[&session].pid) {
            return Err(CUresult::DEVICE_UNAVAILABLE.into());
        }
        let others = self.contexts.values().any(|other| other.device == device && other.session != session);
        match self.spec.compute_mode {
            ComputeMode::Prohibited => return Err(CUresult::DEVICE_UNAVAILABLE.into()),
            ComputeMode::ExclusiveProcess if others => return Err(CUresult::DEVICE_UNAVAILABLE.into()),
            _ => {}
        }
        let [into, out] = copy_groups else { return Err(CUresult::INVALID_VALUE.into()) };
        let key = |handle| GroupKey { client, handle };
        let fits = |key: GroupKey, compute: bool| {
            self.rm.owner(client) == Some(session)
                && self.rm.group(key).is_some_and(|group| {
                    let engine =
                        if compute { group.engine == ENGINE_COMPUTE } else { group.engine >= ENGINE_COPY };
                    group.device == device && group.scheduled && engine
                })
        };
        if !fits(key(compute_group), true) || !fits(key(*into), false) || !fits(key(*out), false) {
            return Err(CUresult::INVALID_VALUE.into());
        }
        let bytes = self.spec.context_memory.0;
        let mut taken = self.store.physical.take(device, bytes);
        if taken.is_err() && self.tear_down_now() {
            taken = self.store.physical.take(device, bytes);
        }
        if taken.is_err() {
            return Err(CUresult::OUT_OF_MEMORY.into());
        }
        let id = ContextId(self.id());
        let legacy = self.new_stream(session, id, crate::stream::Kind::Legacy, 0, 0);
        let context = Context {
            session,
            device,
            compute: key(compute_group),
            copies: [key(*into), key(*out)],
            error: None,
            peers: BTreeSet::new(),
            out: false,
            legacy,
            per_thread: BTreeMap::new(),
        };
        self.contexts.insert(id, context);
        Ok(Outcome::In(self.spec.costs.context, Then::Answer(Answer::Context(id))))
    }

    /// A context of this process, whatever its state.
    pub(crate) fn context_of(&self, session: SessionId, id: ContextId) -> Result<&Context, Refusal> {
        match self.contexts.get(&id) {
            Some(context) if context.session == session => Ok(context),
            _ => Err(CUresult::INVALID_CONTEXT.into()),
        }
    }

    /// A context of this process that has no error.
    pub(crate) fn usable(&self, session: SessionId, id: ContextId) -> Result<&Context, Refusal> {
        let context = self.context_of(session, id)?;
        match context.error.or(self.sessions[&session].error) {
            None => Ok(context),
            Some(code) => Err(code.into()),
        }
    }

    /// Who touches memory when this context works.
    pub(crate) fn toucher(&self, id: ContextId, copies: bool) -> Toucher {
        let context = &self.contexts[&id];
        Toucher {
            session: context.session,
            pid: self.sessions[&context.session].pid,
            device: context.device,
            peers: context.peers.clone(),
            copies,
        }
    }

    /// Work that cannot go on: its process is gone.
    pub(crate) fn drop_work(&mut self, id: ContextId) {
        let Some(context) = self.contexts.get(&id) else { return };
        let gpu = &mut self.gpus[context.device.0 as usize];
        gpu.compute.drop_context(self.now, id);
        gpu.bus.drop_context(id);
        self.drop_jobs(id);
        self.items.drop_context(id);
        self.callbacks.retain(|_, item| !self.items.is_done(*item));
    }

    /// A context's work touched what it must not, or failed: the context is of no use any more.
    pub(crate) fn fail_context(&mut self, id: ContextId, fault: Fault) {
        let (code, xid) = match fault {
            Fault::Address(_) => (CUresult::ILLEGAL_ADDRESS, XID_MEMORY_FAULT),
            Fault::Misaligned(_) => (CUresult::MISALIGNED_ADDRESS, XID_MEMORY_FAULT),
            Fault::Copy => (CUresult::LAUNCH_FAILED, XID_COPY),
            Fault::Gone => return self.drop_work(id),
        };
        if let Some(context) = self.contexts.get(&id) {
            let pid = self.sessions.get(&context.session).map_or(0, |session| session.pid);
            tracing::warn!("pid {pid}, {:?}, {id:?}: {fault}", context.device);
        }
        self.spoil(id, code, xid);
        // The real driver gives up the whole process: all its contexts, and every one it would make.
        let Some(session) = self.contexts.get(&id).map(|context| context.session) else { return };
        if let Some(session) = self.sessions.get_mut(&session) {
            session.error.get_or_insert(code);
        }
        let others: Vec<ContextId> = (self.contexts.iter())
            .filter(|(other, context)| context.session == session && **other != id)
            .map(|(other, _)| *other)
            .collect();
        for other in others {
            self.drop_work(other);
        }
    }

    fn spoil(&mut self, id: ContextId, code: CUresult, xid: u32) {
        let Some(context) = self.contexts.get_mut(&id) else { return };
        context.error.get_or_insert(code);
        let device = context.device;
        self.gpus[device.0 as usize].meter.error(xid);
        self.drop_work(id);
    }

    /// Contexts on devices that are lost by a fault.
    pub(crate) fn lose_devices(&mut self) {
        let lost: Vec<ContextId> = self
            .contexts
            .iter()
            .filter(|(_, context)| self.faults.is_lost(context.device, self.sessions[&context.session].pid))
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            self.spoil(id, CUresult::UNKNOWN, XID_LOST);
        }
        self.pump();
    }

    /// Gives back everything of a context.
    pub(crate) fn end_context(&mut self, id: ContextId) {
        self.drop_work(id);
        let Some(context) = self.contexts.remove(&id) else { return };
        if !context.out {
            self.store.physical.give_back(context.device, self.spec.context_memory.0);
        }
        self.captures.end_context(id);
        self.streams.retain(|_, stream| stream.context != id);
        self.events.retain(|_, event| event.context != id);
        self.modules.retain(|_, module| module.context != id);
        self.functions.retain(|_, function| function.context != id);
        let Some(space) = self.store.spaces.get_mut(&context.session) else { return };
        let own: Vec<u64> = space
            .regions()
            .filter(|(_, region)| match &region.kind {
                Kind::Allocation(allocation) => allocation.context == Some(id),
                Kind::Host(range) => range.context == id,
                Kind::Reservation(_) => false,
            })
            .map(|(start, _)| start)
            .collect();
        for start in own {
            if let Some(region) = space.remove(start)
                && let Kind::Allocation(allocation) = region.kind
            {
                self.store.physical.release(allocation.block);
            }
        }
    }

    /// What an RM call means for the engines, and for contexts whose groups are gone.
    pub(crate) fn apply_effects(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Born { group, device, engine, slice } => {
                    if engine == ENGINE_COMPUTE {
                        self.gpus[device.0 as usize].compute.add(group, slice);
                    }
                }
                Effect::Slice { group, device, slice } => {
                    self.gpus[device.0 as usize].compute.set_slice(self.now, group, slice);
                }
                Effect::Gone { group, device } => {
                    let on_it: Vec<ContextId> = self
                        .contexts
                        .iter()
                        .filter(|(_, context)| context.compute == group || context.copies.contains(&group))
                        .map(|(id, _)| *id)
                        .collect();
                    for id in on_it {
                        self.drop_work(id);
                        self.contexts
                            .get_mut(&id)
                            .expect("its id")
                            .error
                            .get_or_insert(CUresult::CONTEXT_IS_DESTROYED);
                    }
                    let gpu = &mut self.gpus[device.0 as usize];
                    gpu.compute.remove(self.now, group);
                    gpu.bus.remove(group);
                }
            }
        }
    }
}
