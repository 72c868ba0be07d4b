//! Processes: their connections, control files and callbacks, and their end.
//!
//! A process's contexts, memory and channels live until every copy of its control files is closed, in whatever process. Its
//! work stops as soon as it is dead.

use std::collections::{BTreeMap, BTreeSet};

use cuda::CUresult;
use vgpu_messages::stream::CaptureMode;
use vgpu_messages::*;

use crate::checkpoint::{Hold, Parked};
use crate::machine::{Handled, Machine, Outcome, Outgoing, Then, refuse};
use crate::physical::BlockId;
use crate::rm::{self, FileKey, Grip, Surroundings};

/// A connection, by a number that the server chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// One connection: a thread of a process.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) pid: i32,
    pub(crate) session: Option<SessionId>,
    pub(crate) capture_mode: CaptureMode,
}

/// A physical allocation as a process knows it.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) block: BlockId,
    /// How often it has to be released.
    pub(crate) count: u32,
    /// It came by a file.
    pub(crate) imported: bool,
}

/// One process.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) pid: i32,
    pub(crate) dead: bool,
    pub(crate) connections: BTreeSet<ConnectionId>,
    pub(crate) files: BTreeSet<FileKey>,
    pub(crate) handles: BTreeMap<HandleId, Handle>,
    /// Work of one of its contexts failed: nothing works in this process any more, in no context.
    pub(crate) error: Option<CUresult>,
    pub(crate) callback_connection: Option<ConnectionId>,
    pub(crate) callbacks_due: Vec<Callback>,
    /// The default and the current pool of each GPU that was asked for.
    pub(crate) pools: BTreeMap<DeviceId, (PoolId, PoolId)>,
    /// How its checkpoint stands.
    pub(crate) hold: Hold,
    /// Calls that wait until it is not locked any more.
    pub(crate) parked: Vec<Parked>,
}

impl Machine {
    /// Somebody connected.
    pub fn connect(&mut self, connection: ConnectionId, pid: i32) {
        let new = Connection { pid, session: None, capture_mode: CaptureMode::Global };
        self.connections.insert(connection, new);
    }

    /// A connection is gone.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        let Some(gone) = self.connections.remove(&connection) else { return };
        self.forget_waits(connection);
        let Some(id) = gone.session else { return };
        self.end_thread(id, connection);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.connections.remove(&connection);
            session.parked.retain(|parked| parked.connection != connection);
            if session.callback_connection == Some(connection) {
                session.callback_connection = None;
            }
            self.end_if_left(id);
        }
        self.pump();
    }

    /// A process is dead, whoever else may hold its connections: nothing of its work goes on.
    pub fn died(&mut self, pid: i32) {
        let dead: Vec<SessionId> =
            self.sessions.iter().filter(|(_, session)| session.pid == pid).map(|(id, _)| *id).collect();
        for id in dead {
            self.sessions.get_mut(&id).expect("its id").dead = true;
            let contexts: Vec<ContextId> = self
                .contexts
                .iter()
                .filter(|(_, context)| context.session == id)
                .map(|(id, _)| *id)
                .collect();
            for context in contexts {
                self.drop_work(context);
            }
            self.end_if_left(id);
        }
        self.pump();
    }

    /// Every copy of a file is closed.
    pub fn closed(&mut self, file: FileKey) {
        if let Some(block) = self.exports.remove(&file) {
            self.store.physical.release(block);
        }
        if let Some(id) = self.rm.session(file) {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.files.remove(&file);
            }
            let effects = self.rm.close(file);
            self.apply_effects(effects);
            self.end_if_left(id);
        }
        self.pump();
    }

    /// Gives back what a process had, if it is gone and nobody holds its files.
    fn end_if_left(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        if session.files.is_empty() && (session.dead || session.connections.is_empty()) {
            self.tear_down_later(id);
        }
    }

    /// Gives it back now.
    pub(crate) fn tear_down(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        let contexts: Vec<ContextId> =
            self.contexts.iter().filter(|(_, context)| context.session == id).map(|(id, _)| *id).collect();
        for context in contexts {
            self.end_context(context);
        }
        self.end_graphs(id);
        self.end_pools(id);
        for handle in session.handles.into_values() {
            for _ in 0..handle.count {
                self.store.physical.release(handle.block);
            }
        }
        self.tokens.forget(id);
        if let Some(space) = self.store.spaces.remove(&id) {
            for block in space.blocks() {
                self.store.physical.release(block);
            }
        }
        for connection in self.connections.values_mut().filter(|it| it.session == Some(id)) {
            connection.session = None;
        }
    }

    pub(crate) fn hello(
        &mut self,
        connection: ConnectionId,
        version: u32,
        session: Option<SessionId>,
    ) -> Handled {
        if version != VERSION {
            let notice = format!(
                "the virtual device speaks version {VERSION} of its messages, this library version {version}: \
                 both have to come from the same build"
            );
            return Err(refuse(CUresult::SYSTEM_DRIVER_MISMATCH, notice));
        }
        let its = self.connections.get(&connection).ok_or(CUresult::INVALID_VALUE)?;
        if its.session.is_some() {
            return Err(CUresult::INVALID_VALUE.into());
        }
        let pid = its.pid;
        let session = match session {
            Some(id) if self.sessions.get(&id).is_some_and(|its| its.pid == pid && !its.dead) => id,
            Some(_) => return Err(CUresult::INVALID_VALUE.into()),
            None => self.new_session(pid),
        };
        self.connections.get_mut(&connection).expect("looked up above").session = Some(session);
        self.sessions.get_mut(&session).expect("a session").connections.insert(connection);
        let device_pid = i32::try_from(std::process::id()).unwrap_or_default();
        Ok(Answer::Welcome { session, device_pid, devices: self.devices.clone() }.into())
    }

    fn new_session(&mut self, pid: i32) -> SessionId {
        let id = SessionId(self.id());
        let session = Session {
            pid,
            dead: false,
            connections: BTreeSet::new(),
            files: BTreeSet::new(),
            handles: BTreeMap::new(),
            error: None,
            callback_connection: None,
            callbacks_due: Vec::new(),
            pools: BTreeMap::new(),
            hold: Hold::Running,
            parked: Vec::new(),
        };
        self.sessions.insert(id, session);
        self.store.spaces.insert(id, Default::default());
        id
    }

    pub(crate) fn open_control(&mut self, session: SessionId) -> Handled {
        let file = FileKey(self.id());
        self.rm.open(file, session);
        self.sessions.get_mut(&session).expect("it asks").files.insert(file);
        Ok(Outcome::File(file, crate::machine::FileKind::Control))
    }

    pub(crate) fn ioctl(
        &mut self,
        session: SessionId,
        file: Option<FileKey>,
        request: u32,
        mut argument: Vec<u8>,
        mut parameters: Vec<u8>,
    ) -> Handled {
        let Some(file) = file.filter(|file| self.rm.session(*file).is_some()) else {
            return Ok(Answer::NotAControlFile.into());
        };
        let pid = self.sessions[&session].pid;
        let uuids: Vec<_> = self.devices.iter().map(|device| device.uuid).collect();
        let surroundings = Surroundings { costs: &self.spec.costs, uuids: &uuids };
        let called = rm::call(&mut self.rm, file, request, &mut argument, &mut parameters, &surroundings);
        let mut called = called.ok_or(CUresult::INVALID_VALUE)?;
        self.faults.control(pid, &mut called, &mut argument);
        if let Some(grip) = &called.grip {
            self.announce(grip);
        }
        let effects = std::mem::take(&mut called.effects);
        self.apply_effects(effects);
        // The driver has one lock: calls wait for each other.
        let begin = self.rm.locked_until.max(self.now);
        self.rm.locked_until = begin + called.takes;
        let takes = self.rm.locked_until.since(self.now);
        let answer = Answer::Ioctl { argument, parameters };
        let then = match called.grip {
            Some(grip) => Then::Grip(grip, answer),
            None => Then::Answer(answer),
        };
        Ok(Outcome::In(takes, then))
    }

    fn announce(&mut self, grip: &Grip) {
        for group in self.rm.groups_of(&grip.channels) {
            if grip.off
                && let Some(device) = self.rm.group(group).map(|group| group.device)
            {
                self.gpus[device.0 as usize].compute.freezing(self.now, group, true);
            }
        }
    }

    /// Channels go off or come back, now.
    pub(crate) fn apply_grip(&mut self, grip: &Grip) {
        for group in self.rm.groups_of(&grip.channels) {
            if let Some(device) = self.rm.group(group).map(|group| group.device) {
                self.gpus[device.0 as usize].compute.freezing(self.now, group, false);
            }
        }
        for (group, frozen) in self.rm.grip(grip) {
            if let Some(device) = self.rm.group(group).map(|group| group.device) {
                let gpu = &mut self.gpus[device.0 as usize];
                gpu.compute.set_frozen(self.now, group, frozen);
                gpu.bus.set_frozen(group, frozen);
            }
        }
        if !grip.off {
            self.start_held();
        }
    }

    pub(crate) fn serve_callbacks(&mut self, connection: ConnectionId, session: SessionId) -> Handled {
        let its = self.sessions.get_mut(&session).expect("it asks");
        its.callback_connection = Some(connection);
        let due = std::mem::take(&mut its.callbacks_due);
        self.push_outgoing(Outgoing::Reply(connection, Ok(Answer::Done), None));
        for callback in due {
            self.push_outgoing(Outgoing::Callback(connection, callback));
        }
        Ok(Outcome::Silent)
    }

    pub(crate) fn callback_done(&mut self, _session: SessionId, callback: CallbackId) -> Handled {
        if let Some(item) = self.callbacks.remove(&callback) {
            self.items.finish(item);
        }
        Ok(Outcome::Silent)
    }
}
