//! Streams: who comes after whom.
//!
//! A stream's work is in order. The legacy stream of a context also comes after all work of its blocking streams, and
//! they after its; streams made as non-blocking know nothing of it.

use cuda::CUresult;
use vgpu_messages::stream::{StreamFacts, StreamRef, StreamRequest};
use vgpu_messages::*;

use crate::item::{ItemId, Job};
use crate::machine::{Handled, Machine, Outcome, Then};
use crate::session::ConnectionId;

/// The most items of one stream that are not done; who adds another waits.
pub(crate) const QUEUE_MAX: usize = 1024;

/// Flag of a stream that does not wait for the legacy stream.
const NON_BLOCKING: u32 = 1;

/// How a stream stands to the legacy stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is the legacy stream.
    Legacy,
    /// In order with it.
    Blocking,
    /// Not so.
    NonBlocking,
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) session: SessionId,
    pub(crate) context: ContextId,
    pub(crate) kind: Kind,
    flags: u32,
    priority: i32,
    /// Its last item.
    pub(crate) tail: Option<ItemId>,
    /// It is one of a thread's or context's own: not to be destroyed.
    is_default: bool,
}

impl Machine {
    pub(crate) fn stream_request(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        request: StreamRequest,
    ) -> Handled {
        match request {
            StreamRequest::Create { context, flags, priority } => {
                self.usable(session, context)?;
                if flags & !NON_BLOCKING != 0 {
                    return Err(CUresult::INVALID_VALUE.into());
                }
                let kind = if flags & NON_BLOCKING != 0 { Kind::NonBlocking } else { Kind::Blocking };
                let id = self.new_stream(session, context, kind, flags, priority);
                self.streams.get_mut(&id).expect("just made").is_default = false;
                Ok(Answer::Stream(id).into())
            }
            StreamRequest::Destroy { context, stream } => {
                let id = self.resolve(connection, session, context, stream)?;
                if self.streams[&id].is_default {
                    return Err(CUresult::INVALID_HANDLE.into());
                }
                self.captures.end_stream(id);
                self.streams.remove(&id);
                Ok(Answer::Done.into())
            }
            StreamRequest::Query { context, stream } => {
                let id = self.resolve(connection, session, context, stream)?;
                self.refuse_if_captured(id)?;
                let done = self.awaited(id).iter().all(|item| self.items.is_done(*item));
                if done { Ok(Answer::Done.into()) } else { Err(CUresult::NOT_READY.into()) }
            }
            StreamRequest::Synchronize { context, stream } => {
                let id = self.resolve(connection, session, context, stream)?;
                self.refuse_if_captured(id)?;
                self.trim_pools(session);
                let context = self.streams[&id].context;
                let items = self.awaited(id);
                Ok(Outcome::After { items, context, then: Then::Answer(Answer::Done) })
            }
            StreamRequest::Facts { context, stream } => {
                let id = self.resolve(connection, session, context, stream)?;
                let its = &self.streams[&id];
                let (flags, priority) = (its.flags, its.priority);
                let facts = StreamFacts { context: its.context, flags, priority, number: id.0 };
                Ok(Answer::StreamFacts(facts).into())
            }
        }
    }

    pub(crate) fn new_stream(
        &mut self,
        session: SessionId,
        context: ContextId,
        kind: Kind,
        flags: u32,
        priority: i32,
    ) -> StreamId {
        let id = StreamId(self.id());
        let priority = priority.clamp(-5, 0);
        let stream = Stream { session, context, kind, flags, priority, tail: None, is_default: true };
        self.streams.insert(id, stream);
        id
    }

    /// The stream that a program means. Its context, and the current one, are usable.
    pub(crate) fn resolve(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        context: ContextId,
        stream: StreamRef,
    ) -> Result<StreamId, Refusal> {
        let current = self.usable(session, context)?;
        match stream {
            StreamRef::Legacy => Ok(current.legacy),
            StreamRef::PerThread => {
                if let Some(id) = current.per_thread.get(&connection) {
                    return Ok(*id);
                }
                let id = self.new_stream(session, context, Kind::Blocking, 0, 0);
                self.contexts.get_mut(&context).expect("usable").per_thread.insert(connection, id);
                Ok(id)
            }
            StreamRef::Made(id) => {
                let of = self.streams.get(&id).filter(|it| it.session == session && !it.is_default);
                let of = of.ok_or(CUresult::INVALID_HANDLE)?.context;
                self.usable(session, of)?;
                Ok(id)
            }
        }
    }

    /// What the next item of a stream comes after.
    pub(crate) fn predecessors(&self, id: StreamId) -> Vec<ItemId> {
        let stream = &self.streams[&id];
        let mut before: Vec<ItemId> = stream.tail.into_iter().collect();
        match stream.kind {
            Kind::NonBlocking => {}
            Kind::Blocking => {
                let legacy = self.contexts[&stream.context].legacy;
                before.extend(self.streams[&legacy].tail);
            }
            Kind::Legacy => {
                let beside = |it: &&Stream| it.context == stream.context && it.kind == Kind::Blocking;
                before.extend(self.streams.values().filter(beside).filter_map(|it| it.tail));
            }
        }
        before.retain(|item| !self.items.is_done(*item));
        before
    }

    /// What has to be done before a stream is: for the legacy stream, the work that it would wait for.
    fn awaited(&self, id: StreamId) -> Vec<ItemId> {
        match self.streams[&id].kind {
            Kind::Legacy => self.predecessors(id),
            _ => self.streams[&id].tail.into_iter().collect(),
        }
    }

    /// Adds an item to a stream.
    pub(crate) fn enqueue(&mut self, id: StreamId, job: Job) -> ItemId {
        let before = self.predecessors(id);
        let context = self.streams[&id].context;
        let item = self.items.add(context, Some(id), job, before);
        self.streams.get_mut(&id).expect("looked up above").tail = Some(item);
        item
    }

    /// An answer for work that was added: now, or when the stream has room.
    pub(crate) fn added(&self, id: StreamId, answer: Answer) -> Outcome {
        if self.items.in_stream(id) < QUEUE_MAX { answer.into() } else { Outcome::WithRoom(id, answer) }
    }

    /// A thread is gone: its default streams go; their work goes on.
    pub(crate) fn end_thread(&mut self, session: SessionId, connection: ConnectionId) {
        for context in self.contexts.values_mut().filter(|it| it.session == session) {
            if let Some(stream) = context.per_thread.remove(&connection) {
                self.streams.remove(&stream);
            }
        }
    }
}
