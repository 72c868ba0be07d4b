//! Capture: work given to a stream becomes nodes of a graph.

use std::collections::{BTreeMap, BTreeSet};

use cuda::CUresult;
use vgpu_messages::graph::{GraphRequest, NodeWork};
use vgpu_messages::stream::{CaptureFacts, CaptureMode, CaptureStatus};
use vgpu_messages::work::{Work, WorkRequest};
use vgpu_messages::*;

use super::invalid;
use crate::machine::{Handled, Machine, Outcome};
use crate::session::ConnectionId;
use crate::stream::Kind;

/// A capture under way.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) session: SessionId,
    pub(super) connection: ConnectionId,
    pub(super) mode: CaptureMode,
    graph: GraphId,
    origin: StreamId,
    /// The streams that take part, with the nodes that their next one comes after.
    pub(super) streams: BTreeMap<StreamId, Vec<NodeId>>,
    spoilt: bool,
}

/// All captures.
#[derive(Debug, Default)]
pub(crate) struct Captures(pub(super) BTreeMap<u64, Capture>);

impl Captures {
    pub(super) fn of(&self, stream: StreamId) -> Option<u64> {
        self.0.iter().find(|(_, capture)| capture.streams.contains_key(&stream)).map(|(id, _)| *id)
    }

    /// A stream is gone: a capture on it cannot be ended any more.
    pub(crate) fn end_stream(&mut self, stream: StreamId) {
        for capture in self.0.values_mut().filter(|capture| capture.streams.contains_key(&stream)) {
            capture.spoilt = true;
        }
        self.0.retain(|_, capture| capture.origin != stream);
    }

    /// A context is gone; its streams follow.
    pub(crate) fn end_context(&mut self, _context: ContextId) {
        for capture in self.0.values_mut() {
            capture.spoilt = true;
        }
    }

    pub(super) fn end_session(&mut self, session: SessionId) {
        self.0.retain(|_, capture| capture.session != session);
    }
}

impl Machine {
    pub(super) fn capture_request(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        request: GraphRequest,
    ) -> Handled {
        match request {
            GraphRequest::BeginCapture { context, stream, mode } => {
                let stream = self.resolve(connection, session, context, stream)?;
                if self.streams[&stream].kind == Kind::Legacy {
                    return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED.into());
                }
                if self.captures.of(stream).is_some() {
                    return Err(CUresult::ILLEGAL_STATE.into());
                }
                let graph = self.new_graph(session);
                let streams = BTreeMap::from([(stream, Vec::new())]);
                let id = self.id();
                let capture =
                    Capture { session, connection, mode, graph, origin: stream, streams, spoilt: false };
                self.captures.0.insert(id, capture);
                Ok(Answer::Done.into())
            }
            GraphRequest::EndCapture { context, stream } => {
                let stream = self.resolve(connection, session, context, stream)?;
                self.end_capture(connection, stream)
            }
            GraphRequest::CaptureFacts { context, stream } => {
                let stream = self.resolve(connection, session, context, stream)?;
                let mut facts = CaptureFacts {
                    status: CaptureStatus::None,
                    id: 0,
                    graph: None,
                    dependencies: Vec::new(),
                };
                if let Some(id) = self.captures.of(stream) {
                    let capture = &self.captures.0[&id];
                    facts.status =
                        if capture.spoilt { CaptureStatus::Invalidated } else { CaptureStatus::Active };
                    (facts.id, facts.graph) = (id, Some(capture.graph));
                    facts.dependencies.clone_from(&capture.streams[&stream]);
                } else if self.streams[&stream].kind == Kind::Legacy
                    && self.captured_beside(stream).next().is_some()
                {
                    return Err(CUresult::STREAM_CAPTURE_IMPLICIT.into());
                }
                Ok(Answer::Capture(facts).into())
            }
            GraphRequest::SetCaptureDependencies { context, stream, nodes, replace } => {
                let stream = self.resolve(connection, session, context, stream)?;
                let id = self.captures.of(stream).ok_or(CUresult::ILLEGAL_STATE)?;
                let graph = self.captures.0[&id].graph;
                if !nodes.iter().all(|node| self.graphs[&graph].nodes.contains_key(node)) {
                    return Err(invalid());
                }
                let capture = self.captures.0.get_mut(&id).expect("found");
                let its = capture.streams.get_mut(&stream).expect("it takes part");
                if replace {
                    its.clear();
                }
                its.extend(nodes);
                its.sort();
                its.dedup();
                Ok(Answer::Done.into())
            }
            _ => unreachable!("only requests about captures come here"),
        }
    }

    fn end_capture(&mut self, connection: ConnectionId, stream: StreamId) -> Handled {
        let id = self.captures.of(stream).ok_or(CUresult::ILLEGAL_STATE)?;
        let capture = &self.captures.0[&id];
        if capture.origin != stream {
            return Err(self.spoil_capture(id, CUresult::STREAM_CAPTURE_UNMATCHED));
        }
        let wrong_thread = capture.mode != CaptureMode::Relaxed && capture.connection != connection;
        let capture = self.captures.0.remove(&id).expect("found");
        // Refused or not, the capture is over.
        let code = if wrong_thread {
            CUresult::STREAM_CAPTURE_WRONG_THREAD
        } else if capture.spoilt {
            CUresult::STREAM_CAPTURE_INVALIDATED
        } else if !self.is_joined(&capture) {
            CUresult::STREAM_CAPTURE_UNJOINED
        } else {
            return Ok(Answer::Graph(capture.graph).into());
        };
        self.drop_graph(capture.graph);
        Err(code.into())
    }

    /// Whether all that other streams did comes before where the first stream is.
    fn is_joined(&self, capture: &Capture) -> bool {
        let nodes = &self.graphs[&capture.graph].nodes;
        let mut seen: BTreeSet<NodeId> = BTreeSet::new();
        let mut look: Vec<NodeId> = capture.streams[&capture.origin].clone();
        while let Some(node) = look.pop() {
            if seen.insert(node) {
                look.extend(&nodes[&node].before);
            }
        }
        capture.streams.values().flatten().all(|node| seen.contains(node))
    }

    pub(super) fn spoil_capture(&mut self, id: u64, code: CUresult) -> Refusal {
        if let Some(capture) = self.captures.0.get_mut(&id) {
            capture.spoilt = true;
        }
        code.into()
    }

    /// Work for a stream that is being captured, or that joins a capture by waiting for its event. None: it is not captured.
    pub(crate) fn capture_work(
        &mut self,
        session: SessionId,
        stream: StreamId,
        request: &WorkRequest,
    ) -> Result<Option<Outcome>, Refusal> {
        let id = match (self.captures.of(stream), &request.work) {
            (Some(id), _) => id,
            (None, Work::WaitEvent(event)) => match self.event(session, *event)?.captured.clone() {
                Some((id, nodes)) if self.captures.0.contains_key(&id) => {
                    if self.streams[&stream].kind == Kind::Legacy {
                        return Err(self.spoil_capture(id, CUresult::STREAM_CAPTURE_IMPLICIT));
                    }
                    self.captures.0.get_mut(&id).expect("checked").streams.insert(stream, nodes);
                    return Ok(Some(Answer::Done.into()));
                }
                _ => return Ok(None),
            },
            (None, _) => return Ok(None),
        };
        let capture = &self.captures.0[&id];
        if capture.spoilt {
            return Err(CUresult::STREAM_CAPTURE_INVALIDATED.into());
        }
        if request.blocking {
            return Err(self.spoil_capture(id, CUresult::STREAM_CAPTURE_UNSUPPORTED));
        }
        let (graph, nodes) = (capture.graph, capture.streams[&stream].clone());
        match &request.work {
            Work::Record(event) => {
                self.event(session, *event)?;
                let event = self.events.get_mut(event).expect("looked up above");
                event.captured = Some((id, nodes));
                return Ok(Some(Answer::Done.into()));
            }
            Work::WaitEvent(event) => {
                let captured = self.event(session, *event)?.captured.clone();
                match captured {
                    Some((other, more)) if other == id => {
                        let its = self.captures.0.get_mut(&id).expect("found").streams.get_mut(&stream);
                        let its = its.expect("it takes part");
                        its.extend(more);
                        its.sort();
                        its.dedup();
                    }
                    Some(_) => return Err(self.spoil_capture(id, CUresult::STREAM_CAPTURE_MERGE)),
                    None => return Err(self.spoil_capture(id, CUresult::STREAM_CAPTURE_ISOLATION)),
                }
                return Ok(Some(Answer::Done.into()));
            }
            _ => {}
        }
        let context = self.streams[&stream].context;
        let work = NodeWork::Work { context, work: request.work.clone() };
        let node = self.add_node(session, graph, nodes, work)?;
        let capture = self.captures.0.get_mut(&id).expect("found");
        capture.streams.insert(stream, vec![node]);
        Ok(Some(Answer::Done.into()))
    }
}
