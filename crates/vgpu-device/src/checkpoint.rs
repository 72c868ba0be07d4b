//! The driver's checkpoint of a process: locked, none of its calls goes on; checkpointed, it has nothing on any GPU.
//!
//! For a process any of whose channels is off the GPU only locking is answered, as far as the real driver was seen (580, on an
//! H200). Refused is one whose memory others have, or that has others', where the real driver's way is not known.

use cuda::CUresult;
use cuda::types::CUprocessState;
use vgpu_messages::checkpoint::CheckpointStep;
use vgpu_messages::quantity::Nanos;
use vgpu_messages::*;

use crate::machine::{Handled, Machine, Outcome, Then};
use crate::misuse::Misuse;
use crate::physical::OutOfMemory;
use crate::rm::FileKey;
use crate::session::ConnectionId;

/// Whether a process's calls go on, and where its memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hold {
    #[default]
    Running,
    Locked,
    Checkpointed,
}

/// A call that waits for the end of a lock.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) connection: ConnectionId,
    request: Request,
    file: Option<FileKey>,
}

/// What a call is about, if nobody should make it while its process is locked: it waits, as with the real driver, but an H200's was
/// seen to answer no unlock with a thread inside. What only asks, or makes memory, does not matter so.
fn expected_outside(request: &Request) -> Option<&'static str> {
    match request {
        Request::Work(_) => Some("work"),
        Request::Pool(_) => Some("pools"),
        Request::Stream(_) => Some("streams"),
        Request::Event(_) => Some("events"),
        Request::Graph(_) => Some("graphs"),
        Request::Module(_) => Some("modules"),
        _ => None,
    }
}

impl Machine {
    pub(crate) fn checkpoint(&mut self, pid: i32, step: CheckpointStep) -> Handled {
        let of_pid = self.sessions.iter().find(|(_, session)| session.pid == pid && !session.dead);
        let (id, hold) = of_pid.map(|(id, session)| (*id, session.hold)).ok_or(CUresult::INVALID_VALUE)?;
        match (step, hold) {
            (CheckpointStep::State, hold) => {
                let state = match hold {
                    Hold::Running => CUprocessState::RUNNING,
                    Hold::Locked => CUprocessState::LOCKED,
                    Hold::Checkpointed => CUprocessState::CHECKPOINTED,
                };
                Ok(Answer::Number(u64::from(state.0)).into())
            }
            (CheckpointStep::Lock { .. }, Hold::Running) if self.is_at_rest(id) => {
                self.set_hold(id, Hold::Locked);
                Ok(Answer::Done.into())
            }
            (CheckpointStep::Lock { timeout_nanos }, Hold::Running) => {
                let longest = Nanos(if timeout_nanos == 0 { u64::MAX / 2 } else { timeout_nanos });
                Ok(Outcome::In(longest, Then::Lock(id)))
            }
            (CheckpointStep::Out | CheckpointStep::Unlock, Hold::Locked)
            | (CheckpointStep::In, Hold::Checkpointed)
                if self.is_frozen(id) =>
            {
                Ok(Outcome::Silent)
            }
            (CheckpointStep::Out, Hold::Locked) => {
                self.send_out(id)?;
                self.set_hold(id, Hold::Checkpointed);
                Ok(Answer::Done.into())
            }
            (CheckpointStep::In, Hold::Checkpointed) => {
                self.bring_in(id).map_err(|OutOfMemory| CUresult::OUT_OF_MEMORY)?;
                self.set_hold(id, Hold::Locked);
                Ok(Answer::Done.into())
            }
            (CheckpointStep::Unlock, Hold::Locked) => {
                self.set_hold(id, Hold::Running);
                let parked = std::mem::take(&mut self.sessions.get_mut(&id).expect("looked up").parked);
                for Parked { connection, request, file } in parked {
                    self.handle(connection, request, file);
                }
                Ok(Answer::Done.into())
            }
            _ => Err(CUresult::ILLEGAL_STATE.into()),
        }
    }

    /// The time for a lock is over.
    pub(crate) fn lock_at_last(&mut self, id: SessionId) -> Reply {
        match self.sessions.get(&id).map(|session| session.hold) {
            Some(Hold::Running) if self.is_at_rest(id) => {
                self.set_hold(id, Hold::Locked);
                Ok(Answer::Done)
            }
            Some(Hold::Running) => Err(CUresult::NOT_READY.into()),
            Some(_) => Err(CUresult::ILLEGAL_STATE.into()),
            None => Err(CUresult::INVALID_VALUE.into()),
        }
    }

    /// Keeps a call of a locked process for later. None: it goes on. Control files know nothing of locks.
    pub(crate) fn park(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        request: Request,
        file: Option<FileKey>,
    ) -> Option<(Request, Option<FileKey>)> {
        let passes = matches!(
            request,
            Request::Ioctl { .. }
                | Request::OpenControl
                | Request::Figures(_)
                | Request::CallbackDone(_)
                | Request::Checkpoint { .. }
        );
        let session = self.sessions.get_mut(&session)?;
        if passes || session.hold == Hold::Running {
            return Some((request, file));
        }
        if let Some(kind) = expected_outside(&request) {
            let what = format!("a call about {kind} while its process is locked");
            self.store.misuse.push(Misuse { pid: session.pid, what });
        }
        session.parked.push(Parked { connection, request, file });
        None
    }

    /// Whether nothing of it is on a GPU or waits for one.
    fn is_at_rest(&self, id: SessionId) -> bool {
        let mut contexts = self.contexts.iter().filter(|(_, context)| context.session == id);
        contexts.all(|(context, _)| self.items.of_context(*context).is_empty())
    }

    /// Whether any of its channels is off the GPU.
    fn is_frozen(&self, id: SessionId) -> bool {
        let own = self.contexts.values().filter(|context| context.session == id);
        let mut groups = own.flat_map(|context| context.copies.into_iter().chain([context.compute]));
        groups.any(|group| self.rm.group(group).is_some_and(|group| group.frozen))
    }

    /// Whether it has memory that is not its own: another's, or nobody's any more.
    fn has_of_others(&self, id: SessionId) -> bool {
        let handles = self.sessions[&id].handles.values().map(|handle| handle.block);
        let mut all = handles.chain(self.store.spaces[&id].blocks());
        all.any(|block| !self.store.physical.is_of(block, id))
    }

    fn set_hold(&mut self, id: SessionId, hold: Hold) {
        self.sessions.get_mut(&id).expect("looked up").hold = hold;
    }

    fn send_out(&mut self, id: SessionId) -> Result<(), Refusal> {
        if self.store.physical.has_shared(id) || self.has_of_others(id) {
            return Err(CUresult::NOT_SUPPORTED.into());
        }
        for context in self.contexts.values_mut().filter(|context| context.session == id) {
            context.out = true;
            self.store.physical.give_back(context.device, self.spec.context_memory.0);
        }
        self.store.physical.send_out(id);
        Ok(())
    }

    fn bring_in(&mut self, id: SessionId) -> Result<(), OutOfMemory> {
        self.store.physical.bring_in(id)?;
        let bytes = self.spec.context_memory.0;
        for context in self.contexts.values_mut().filter(|context| context.session == id) {
            if self.store.physical.take(context.device, bytes).is_err() {
                break;
            }
            context.out = false;
        }
        let own = || self.contexts.values().filter(|context| context.session == id);
        if own().all(|context| !context.out) {
            return Ok(());
        }
        for context in self.contexts.values_mut().filter(|context| context.session == id && !context.out) {
            context.out = true;
            self.store.physical.give_back(context.device, bytes);
        }
        self.store.physical.send_out(id);
        Err(OutOfMemory)
    }
}
