//! What is refused while streams are being captured, and what that does to the captures.

use cuda::CUresult;
use vgpu_messages::stream::CaptureMode;
use vgpu_messages::*;

use super::capture::Capture;
use crate::machine::Machine;
use crate::session::ConnectionId;
use crate::stream::Kind;

impl Machine {
    /// Captures on streams that the legacy stream would wait for.
    pub(super) fn captured_beside(&self, legacy: StreamId) -> impl Iterator<Item = u64> {
        let context = self.streams[&legacy].context;
        self.captures.0.iter().filter_map(move |(id, capture)| {
            let beside = |stream: &StreamId| {
                self.streams.get(stream).is_some_and(|it| it.context == context && it.kind == Kind::Blocking)
            };
            capture.streams.keys().any(beside).then_some(*id)
        })
    }

    /// The legacy stream must not be used while a stream that it waits for is being captured.
    pub(crate) fn refuse_implicit(&mut self, stream: StreamId) -> Result<(), Refusal> {
        if self.captures.0.is_empty() || self.streams[&stream].kind != Kind::Legacy {
            return Ok(());
        }
        let spoilt: Vec<u64> = self.captured_beside(stream).collect();
        match spoilt.into_iter().map(|id| self.spoil_capture(id, CUresult::STREAM_CAPTURE_IMPLICIT)).last() {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    /// Calls that a stream cannot take while it is being captured.
    pub(crate) fn refuse_if_captured(&mut self, stream: StreamId) -> Result<(), Refusal> {
        match self.captures.of(stream) {
            Some(id) => Err(self.spoil_capture(id, CUresult::STREAM_CAPTURE_UNSUPPORTED)),
            None => self.refuse_implicit(stream),
        }
    }

    /// Calls that a thread must not make while some stream is being captured, as its mode says.
    pub(crate) fn refuse_in_capture(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
    ) -> Result<(), Refusal> {
        let mode = self.connections[&connection].capture_mode;
        let concerns = |capture: &Capture| {
            let own = capture.connection == connection && capture.mode != CaptureMode::Relaxed;
            match mode {
                CaptureMode::Relaxed => false,
                CaptureMode::ThreadLocal => own,
                CaptureMode::Global => own || capture.mode == CaptureMode::Global,
            }
        };
        let spoilt: Vec<u64> = (self.captures.0.iter())
            .filter(|(_, capture)| capture.session == session && concerns(capture))
            .map(|(id, _)| *id)
            .collect();
        match spoilt.into_iter().map(|id| self.spoil_capture(id, CUresult::STREAM_CAPTURE_UNSUPPORTED)).last()
        {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    /// A context whose stream is being captured cannot be waited for, whatever the mode.
    pub(crate) fn refuse_in_own_capture(&mut self, context: ContextId) -> Result<(), Refusal> {
        let of = |stream: &StreamId| self.streams.get(stream).is_some_and(|it| it.context == context);
        let own =
            self.captures.0.iter().find(|(_, capture)| capture.streams.keys().any(of)).map(|(id, _)| *id);
        match own {
            Some(id) => Err(self.spoil_capture(id, CUresult::STREAM_CAPTURE_UNSUPPORTED)),
            None => Ok(()),
        }
    }

    /// An event that was recorded in a capture cannot be waited for.
    pub(crate) fn refuse_event_in_capture(
        &mut self,
        _connection: ConnectionId,
        event: EventId,
    ) -> Result<(), Refusal> {
        match self.events.get(&event).and_then(|event| event.captured.as_ref()) {
            Some((id, _)) if self.captures.0.contains_key(id) => {
                let id = *id;
                Err(self.spoil_capture(id, CUresult::CAPTURED_EVENT))
            }
            _ => Ok(()),
        }
    }
}
