//! Graphs: nodes and edges. How they come out of streams is in [`capture`] and [`refusals`], how they run in [`exec`].

mod capture;
mod exec;
mod refusals;

pub(crate) use capture::Captures;
pub(crate) use exec::GraphExec;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use cuda::CUresult;
use vgpu_messages::graph::{GraphRequest, NodeWork};
use vgpu_messages::work::Work;
use vgpu_messages::*;

use crate::machine::{Handled, Machine};
use crate::session::ConnectionId;

/// The most nodes of one graph.
const NODES_MAX: usize = 4 << 10;

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) work: NodeWork,
    pub(crate) before: BTreeSet<NodeId>,
}

/// A graph.
#[derive(Debug)]
pub(crate) struct Graph {
    session: SessionId,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    /// Of a clone: node in the original to node here.
    clones: BTreeMap<NodeId, NodeId>,
    /// It is part of a node of another graph.
    is_child: bool,
}

impl Graph {
    fn new(session: SessionId) -> Self {
        Self { session, nodes: BTreeMap::new(), clones: BTreeMap::new(), is_child: false }
    }

    /// Nodes so that each comes after all before it; None if they go in a circle.
    pub(crate) fn in_order(&self) -> Option<Vec<NodeId>> {
        let mut missing: BTreeMap<NodeId, usize> =
            self.nodes.iter().map(|(id, node)| (*id, node.before.len())).collect();
        let mut order = Vec::new();
        while let Some((&next, _)) = missing.iter().find(|(_, count)| **count == 0) {
            missing.remove(&next);
            order.push(next);
            for (id, node) in &self.nodes {
                if node.before.contains(&next)
                    && let Some(count) = missing.get_mut(id)
                {
                    *count -= 1;
                }
            }
        }
        missing.is_empty().then_some(order)
    }

    /// Nodes that nobody comes after.
    pub(crate) fn leaves(&self) -> Vec<NodeId> {
        let before: BTreeSet<NodeId> =
            self.nodes.values().flat_map(|node| node.before.iter().copied()).collect();
        self.nodes.keys().filter(|id| !before.contains(id)).copied().collect()
    }
}

fn invalid() -> Refusal {
    CUresult::INVALID_VALUE.into()
}

/// Whether one can take the other's place.
fn same_kind(one: &NodeWork, other: &NodeWork) -> bool {
    match (one, other) {
        (NodeWork::Work { work: one, .. }, NodeWork::Work { work: other, .. }) => {
            discriminant(one) == discriminant(other)
        }
        _ => discriminant(one) == discriminant(other),
    }
}

impl Machine {
    pub(crate) fn graph_request(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        request: GraphRequest,
    ) -> Handled {
        match request {
            GraphRequest::Create => Ok(Answer::Graph(self.new_graph(session)).into()),
            GraphRequest::Clone(graph) => {
                self.graph(session, graph)?;
                Ok(Answer::Graph(self.clone_graph(graph)).into())
            }
            GraphRequest::Destroy(graph) => {
                if self.graph(session, graph)?.is_child {
                    return Err(invalid());
                }
                self.drop_graph(graph);
                Ok(Answer::Done.into())
            }
            GraphRequest::Add { graph, dependencies, work } => {
                self.graph(session, graph)?;
                let node = self.add_node(session, graph, dependencies, work)?;
                Ok(Answer::Node(node).into())
            }
            GraphRequest::Remove(node) => {
                let graph = self.graph_of(session, node)?;
                let its = self.graphs.get_mut(&graph).expect("found");
                let gone = its.nodes.remove(&node).expect("found there");
                its.nodes.values_mut().for_each(|other| {
                    other.before.remove(&node);
                });
                if let NodeWork::Child(child) = gone.work {
                    self.drop_graph(child);
                }
                Ok(Answer::Done.into())
            }
            GraphRequest::AddEdges { graph, edges } => self.add_edges(session, graph, &edges),
            GraphRequest::RemoveEdges { graph, edges } => {
                let known = |it: &Graph, (from, to): &(NodeId, NodeId)| {
                    it.nodes.get(to).is_some_and(|node| node.before.contains(from))
                };
                let its = self.graph(session, graph)?;
                if !edges.iter().all(|edge| known(its, edge)) {
                    return Err(invalid());
                }
                let its = self.graphs.get_mut(&graph).expect("looked up above");
                for (from, to) in edges {
                    its.nodes.get_mut(&to).expect("checked").before.remove(&from);
                }
                Ok(Answer::Done.into())
            }
            GraphRequest::Nodes(graph) => {
                Ok(Answer::Nodes(self.graph(session, graph)?.nodes.keys().copied().collect()).into())
            }
            GraphRequest::Roots(graph) => {
                let nodes = self.graph(session, graph)?.nodes.iter();
                let roots = nodes.filter(|(_, node)| node.before.is_empty()).map(|(id, _)| *id);
                Ok(Answer::Nodes(roots.collect()).into())
            }
            GraphRequest::Edges(graph) => {
                let nodes = self.graph(session, graph)?.nodes.iter();
                let edges = nodes.flat_map(|(to, node)| node.before.iter().map(move |from| (*from, *to)));
                Ok(Answer::Edges(edges.collect()).into())
            }
            GraphRequest::Work(node) => {
                let graph = self.graph_of(session, node)?;
                Ok(Answer::NodeWork(self.graphs[&graph].nodes[&node].work.clone()).into())
            }
            GraphRequest::SetWork { node, work } => {
                let graph = self.graph_of(session, node)?;
                if !same_kind(&self.graphs[&graph].nodes[&node].work, &work)
                    || matches!(work, NodeWork::Child(_))
                {
                    return Err(invalid());
                }
                self.check_node(session, &work)?;
                let its = self.graphs.get_mut(&graph).expect("found");
                its.nodes.get_mut(&node).expect("found there").work = work;
                Ok(Answer::Done.into())
            }
            GraphRequest::FindInClone { node, clone } => {
                let found = self.graph(session, clone)?.clones.get(&node).copied();
                Ok(Answer::Node(found.ok_or_else(invalid)?).into())
            }
            GraphRequest::BeginCapture { .. }
            | GraphRequest::EndCapture { .. }
            | GraphRequest::CaptureFacts { .. }
            | GraphRequest::SetCaptureDependencies { .. } => {
                self.capture_request(connection, session, request)
            }
            other => self.exec_request(connection, session, other),
        }
    }

    pub(crate) fn new_graph(&mut self, session: SessionId) -> GraphId {
        let id = GraphId(self.id());
        self.graphs.insert(id, Graph::new(session));
        id
    }

    pub(crate) fn graph(&self, session: SessionId, id: GraphId) -> Result<&Graph, Refusal> {
        self.graphs.get(&id).filter(|graph| graph.session == session).ok_or_else(invalid)
    }

    fn graph_of(&self, session: SessionId, node: NodeId) -> Result<GraphId, Refusal> {
        let own =
            self.graphs.iter().find(|(_, graph)| graph.session == session && graph.nodes.contains_key(&node));
        own.map(|(id, _)| *id).ok_or_else(invalid)
    }

    /// Adds a node; a child graph is copied.
    pub(crate) fn add_node(
        &mut self,
        session: SessionId,
        graph: GraphId,
        dependencies: Vec<NodeId>,
        mut work: NodeWork,
    ) -> Result<NodeId, Refusal> {
        let its = &self.graphs[&graph];
        let unique: BTreeSet<NodeId> = dependencies.iter().copied().collect();
        if unique.len() != dependencies.len()
            || !unique.iter().all(|node| its.nodes.contains_key(node))
            || its.nodes.len() >= NODES_MAX
        {
            return Err(invalid());
        }
        self.check_node(session, &work)?;
        if let NodeWork::Child(child) = &mut work {
            if *child == graph {
                return Err(invalid());
            }
            *child = self.clone_graph(*child);
            self.graphs.get_mut(child).expect("just made").is_child = true;
        }
        let id = NodeId(self.id());
        let its = self.graphs.get_mut(&graph).expect("looked up above");
        its.nodes.insert(id, Node { work, before: unique });
        Ok(id)
    }

    /// Whether a node can do that.
    pub(crate) fn check_node(&mut self, session: SessionId, work: &NodeWork) -> Result<(), Refusal> {
        match work {
            NodeWork::Empty => Ok(()),
            NodeWork::Child(child) => self.graph(session, *child).map(|_| ()),
            NodeWork::Work { context, work } => {
                self.usable(session, *context)?;
                match work {
                    Work::Record(event) | Work::WaitEvent(event) => self.event(session, *event).map(|_| ()),
                    work => self.prepare(*context, work, crate::submit::How::Checked).map(|_| ()),
                }
            }
        }
    }

    fn add_edges(&mut self, session: SessionId, graph: GraphId, edges: &[(NodeId, NodeId)]) -> Handled {
        let its = self.graph(session, graph)?;
        let mut nodes = its.nodes.clone();
        for (from, to) in edges {
            let known = nodes.contains_key(from) && from != to;
            let node = nodes.get_mut(to).filter(|_| known).ok_or_else(invalid)?;
            if !node.before.insert(*from) {
                return Err(invalid());
            }
        }
        self.graphs.get_mut(&graph).expect("looked up above").nodes = nodes;
        Ok(Answer::Done.into())
    }

    fn clone_graph(&mut self, original: GraphId) -> GraphId {
        let session = self.graphs[&original].session;
        let id = self.new_graph(session);
        let nodes = self.graphs[&original].nodes.clone();
        let names: BTreeMap<NodeId, NodeId> = nodes.keys().map(|old| (*old, NodeId(self.id()))).collect();
        let mut copies = BTreeMap::new();
        for (old, mut node) in nodes {
            node.before = node.before.iter().map(|before| names[before]).collect();
            if let NodeWork::Child(child) = &mut node.work {
                *child = self.clone_graph(*child);
                self.graphs.get_mut(child).expect("just made").is_child = true;
            }
            copies.insert(names[&old], node);
        }
        let graph = self.graphs.get_mut(&id).expect("just made");
        (graph.nodes, graph.clones) = (copies, names);
        id
    }

    pub(crate) fn drop_graph(&mut self, id: GraphId) {
        let Some(graph) = self.graphs.remove(&id) else { return };
        for node in graph.nodes.into_values() {
            if let NodeWork::Child(child) = node.work {
                self.drop_graph(child);
            }
        }
    }

    /// A process is gone, with its graphs.
    pub(crate) fn end_graphs(&mut self, session: SessionId) {
        self.graphs.retain(|_, graph| graph.session != session);
        self.execs.retain(|_, exec| exec.session != session);
        self.captures.end_session(session);
    }
}
