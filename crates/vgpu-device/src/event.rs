//! Events: marks in the order of streams, and the time of each.

use cuda::CUresult;
use vgpu_messages::quantity::Nanos;
use vgpu_messages::stream::EventRequest;
use vgpu_messages::*;

use crate::item::ItemId;
use crate::machine::{Handled, Machine, Outcome, Then};
use crate::session::ConnectionId;

/// Flags that `cuEventCreate` takes: blocking, no timing, interprocess.
const FLAGS: u32 = 7;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) session: SessionId,
    pub(crate) context: ContextId,
    flags: u32,
    /// The item that records it, if it ever was.
    pub(crate) marker: Option<ItemId>,
    /// When that was.
    time: Option<Nanos>,
    /// It was last recorded in a capture: which, and the nodes before it.
    pub(crate) captured: Option<(u64, Vec<NodeId>)>,
}

impl Machine {
    pub(crate) fn event_request(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        request: EventRequest,
    ) -> Handled {
        match request {
            EventRequest::Create { context, flags } => {
                self.usable(session, context)?;
                let interprocess = flags & INTERPROCESS != 0;
                if flags & !FLAGS != 0 || interprocess && flags & DISABLE_TIMING == 0 {
                    return Err(CUresult::INVALID_VALUE.into());
                }
                let id = EventId(self.id());
                let event = Event { session, context, flags, marker: None, time: None, captured: None };
                self.events.insert(id, event);
                Ok(Answer::Event(id).into())
            }
            EventRequest::Destroy(id) => {
                let context = self.event(session, id)?.context;
                self.usable(session, context)?;
                self.events.remove(&id);
                Ok(Answer::Done.into())
            }
            EventRequest::Query(id) => {
                let event = self.event(session, id)?;
                let (context, marker) = (event.context, event.marker);
                self.usable(session, context)?;
                self.refuse_event_in_capture(connection, id)?;
                let done = marker.is_none_or(|item| self.items.is_done(item));
                if done { Ok(Answer::Done.into()) } else { Err(CUresult::NOT_READY.into()) }
            }
            EventRequest::Synchronize(id) => {
                let event = self.event(session, id)?;
                let (context, items) = (event.context, event.marker.into_iter().collect());
                self.usable(session, context)?;
                self.refuse_event_in_capture(connection, id)?;
                self.trim_pools(session);
                Ok(Outcome::After { items, context, then: Then::Answer(Answer::Done) })
            }
            EventRequest::Elapsed { start, end } => self.elapsed(session, start, end),
        }
    }

    fn elapsed(&self, session: SessionId, start: EventId, end: EventId) -> Handled {
        let (start, end) = (self.event(session, start)?, self.event(session, end)?);
        self.usable(session, start.context)?;
        let timed = |event: &Event| event.flags & DISABLE_TIMING == 0 && event.marker.is_some();
        if !timed(start) || !timed(end) || start.context != end.context {
            return Err(CUresult::INVALID_HANDLE.into());
        }
        match (start.time, end.time) {
            (Some(start), Some(end)) => Ok(Answer::Elapsed { nanos: end.since(start).0 }.into()),
            _ => Err(CUresult::NOT_READY.into()),
        }
    }

    /// An event of this process.
    pub(crate) fn event(&self, session: SessionId, id: EventId) -> Result<&Event, Refusal> {
        let event = self.events.get(&id).filter(|event| event.session == session);
        event.ok_or_else(|| CUresult::INVALID_HANDLE.into())
    }

    /// An event is to be recorded by this item.
    pub(crate) fn record(&mut self, id: EventId, item: ItemId) {
        let event = self.events.get_mut(&id).expect("checked by the caller");
        (event.marker, event.time, event.captured) = (Some(item), None, None);
    }

    /// The item that records an event runs.
    pub(crate) fn mark(&mut self, id: EventId, item: ItemId) {
        let now = self.now;
        if let Some(event) = self.events.get_mut(&id)
            && event.marker == Some(item)
        {
            event.time = Some(now);
        }
    }
}
