//! Executable graphs: the nodes as they were when instantiated, run again and again.

use std::collections::BTreeMap;

use cuda::CUresult;
use vgpu_messages::graph::{GraphRequest, NodeWork};
use vgpu_messages::work::{Place, Work};
use vgpu_messages::*;

use super::{invalid, same_kind};
use crate::item::{ItemId, Job};
use crate::machine::{Handled, Machine};
use crate::session::ConnectionId;
use crate::submit::{How, uses};

/// How deep child graphs may lie in each other.
const DEPTH_MAX: usize = 16;

/// A step of an executable graph.
#[derive(Clone, Debug)]
struct Step {
    node: NodeId,
    work: NodeWork,
    /// The steps before it, by their place.
    before: Vec<usize>,
}

/// An executable graph.
#[derive(Debug)]
pub(crate) struct GraphExec {
    pub(super) session: SessionId,
    steps: Vec<Step>,
    /// The end of its last launch: it does not overlap with itself.
    last: Option<ItemId>,
}

impl Machine {
    pub(super) fn exec_request(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        request: GraphRequest,
    ) -> Handled {
        match request {
            GraphRequest::Instantiate { graph, flags: _ } => {
                let steps = self.steps(session, graph)?;
                let id = GraphExecId(self.id());
                self.execs.insert(id, GraphExec { session, steps, last: None });
                Ok(Answer::GraphExec(id).into())
            }
            GraphRequest::SetExecWork { exec, node, work } => {
                self.check_node(session, &work)?;
                let work = self.resolved(session, work);
                let its = self.exec_mut(session, exec)?;
                let step = its.steps.iter_mut().find(|step| step.node == node).ok_or_else(invalid)?;
                if !same_kind(&step.work, &work) {
                    return Err(invalid());
                }
                step.work = work;
                Ok(Answer::Done.into())
            }
            GraphRequest::Update { exec, graph } => {
                let new = self.steps(session, graph)?;
                let its = self.exec_mut(session, exec)?;
                let fits =
                    |(old, new): (&Step, &Step)| same_kind(&old.work, &new.work) && old.before == new.before;
                if its.steps.len() != new.len() || !its.steps.iter().zip(&new).all(fits) {
                    return Err(CUresult::GRAPH_EXEC_UPDATE_FAILURE.into());
                }
                for (old, new) in its.steps.iter_mut().zip(new) {
                    old.work = new.work;
                }
                Ok(Answer::Done.into())
            }
            GraphRequest::Launch { context, exec, stream } => {
                let stream = self.resolve(connection, session, context, stream)?;
                self.refuse_if_captured(stream)?;
                self.refuse_implicit(stream)?;
                self.launch(session, exec, stream)
            }
            GraphRequest::DestroyExec(exec) => {
                self.exec_mut(session, exec)?;
                self.execs.remove(&exec);
                Ok(Answer::Done.into())
            }
            _ => unreachable!("all other requests are handled before"),
        }
    }

    fn exec_mut(&mut self, session: SessionId, id: GraphExecId) -> Result<&mut GraphExec, Refusal> {
        self.execs.get_mut(&id).filter(|exec| exec.session == session).ok_or_else(invalid)
    }

    fn steps(&mut self, session: SessionId, graph: GraphId) -> Result<Vec<Step>, Refusal> {
        self.graph(session, graph)?;
        let mut steps = Vec::new();
        self.flatten(session, graph, &[], 0, &mut steps)?;
        Ok(steps)
    }

    /// Puts a graph's nodes in order, child graphs in place. Says where its ends are.
    fn flatten(
        &mut self,
        session: SessionId,
        graph: GraphId,
        entry: &[usize],
        depth: usize,
        steps: &mut Vec<Step>,
    ) -> Result<Vec<usize>, Refusal> {
        if depth > DEPTH_MAX {
            return Err(invalid());
        }
        let order = self.graphs[&graph].in_order().ok_or_else(invalid)?;
        let leaves = self.graphs[&graph].leaves();
        let mut places: BTreeMap<NodeId, usize> = BTreeMap::new();
        for id in order {
            let node = self.graphs[&graph].nodes[&id].clone();
            let mut before: Vec<usize> = node.before.iter().map(|before| places[before]).collect();
            if before.is_empty() {
                before = entry.to_vec();
            }
            let work = if let NodeWork::Child(child) = node.work {
                let ends = self.flatten(session, child, &before, depth + 1, steps)?;
                before = if ends.is_empty() { before } else { ends };
                NodeWork::Empty
            } else {
                self.check_node(session, &node.work)?;
                self.resolved(session, node.work)
            };
            places.insert(id, steps.len());
            steps.push(Step { node: id, work, before });
        }
        Ok(leaves.into_iter().map(|leaf| places[&leaf]).collect())
    }

    /// Where a copy goes is settled when the graph is made: later its memory may be away for a while.
    fn resolved(&self, session: SessionId, mut work: NodeWork) -> NodeWork {
        if let NodeWork::Work { work: Work::Copy(copy), .. } = &mut work {
            for place in [&mut copy.source, &mut copy.target] {
                if let Place::Either(address) = *place {
                    let known = self.is_known(session, address, 1);
                    *place = if known { Place::Device(address) } else { Place::Host(address) };
                }
            }
        }
        work
    }

    fn launch(&mut self, session: SessionId, exec: GraphExecId, stream: StreamId) -> Handled {
        let its = self.exec_mut(session, exec)?;
        let (steps, last) = (its.steps.clone(), its.last);
        // Everything is looked at before anything is added.
        let mut jobs = Vec::new();
        for step in &steps {
            jobs.push(match &step.work {
                NodeWork::Work { context, work } => {
                    self.usable(session, *context)?;
                    let job = match work {
                        Work::Record(event) => self.event(session, *event).map(|_| Job::Mark(*event))?,
                        Work::WaitEvent(event) => self.event(session, *event).map(|_| Job::Nothing)?,
                        work => self.prepare(*context, work, How::Trusted)?.job,
                    };
                    (*context, job)
                }
                _ => (self.streams[&stream].context, Job::Nothing),
            });
        }
        let mut begin = self.predecessors(stream);
        begin.extend(last);
        let mut items: Vec<ItemId> = Vec::new();
        for (step, (context, job)) in steps.iter().zip(jobs) {
            let mut before: Vec<ItemId> = step.before.iter().map(|place| items[*place]).collect();
            if before.is_empty() {
                before.clone_from(&begin);
            }
            if let NodeWork::Work { work: Work::WaitEvent(event), .. } = &step.work {
                before.extend(self.events[event].marker);
            }
            let item = self.items.add(context, None, job, before);
            if let NodeWork::Work { work, .. } = &step.work {
                self.items.note_uses(item, uses(work));
            }
            if let NodeWork::Work { work: Work::Record(event), .. } = &step.work {
                self.record(*event, item);
            }
            items.push(item);
        }
        items.extend(begin);
        let context = self.streams[&stream].context;
        let end = self.items.add(context, Some(stream), Job::Nothing, items);
        self.streams.get_mut(&stream).expect("resolved").tail = Some(end);
        self.exec_mut(session, exec)?.last = Some(end);
        Ok(self.added(stream, Answer::Done))
    }
}
