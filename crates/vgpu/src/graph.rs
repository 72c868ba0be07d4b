//! Graphs: made by hand, node by node, or by capturing streams; and run.
//!
//! - [`node`]: what nodes do, for the device and for the program.
//! - [`add`]: adding nodes.
//! - [`change`]: reading and changing nodes, in graphs and in executable ones.
//! - [`exec`]: executable graphs.
//! - [`capture`]: capturing streams.

mod add;
mod capture;
mod change;
mod exec;
mod node;

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::sync::Mutex;

use cuda::CUresult;
use vgpu_messages::graph::GraphRequest;
use vgpu_messages::{Answer, GraphExecId, GraphId, NodeId, Request};

use crate::argument::{In, Out};
use crate::guard::{Outcome, api, lock};
use crate::handle::Handle;
use crate::session::{self, ask};
use cuda::types::{CUgraph, CUgraphEdgeData, CUgraphNode};

/// What the library remembers of graphs.
#[derive(Default)]
pub(crate) struct Graphs {
    /// Which graph a node is in: of every node that the program was told of.
    nodes: BTreeMap<NodeId, GraphId>,
    /// The flags that executable graphs were made with.
    execs: BTreeMap<GraphExecId, u64>,
}

fn graphs() -> Result<&'static Mutex<Graphs>, CUresult> {
    Ok(&session::current()?.graphs)
}

/// Nodes of a graph for the program.
fn tell_nodes(graph: GraphId, nodes: &[NodeId]) -> Result<Vec<CUgraphNode>, CUresult> {
    let mut graphs = lock(graphs()?);
    Ok(nodes
        .iter()
        .map(|node| {
            graphs.nodes.insert(*node, graph);
            CUgraphNode::of(*node)
        })
        .collect())
}

fn ids(nodes: Vec<CUgraphNode>) -> Result<Vec<NodeId>, CUresult> {
    nodes.into_iter().map(Handle::id).collect()
}

/// Fills a list as long as the program says; without a place only the length is told.
fn give_list<T: Copy>(values: &[T], empty: T, place: Out<T>, count: Out<usize>) -> Outcome {
    let room = count.get()?;
    if !place.is_null() {
        let rest = std::iter::repeat_n(empty, room.saturating_sub(values.len()));
        place.set_all(values.iter().copied().take(room).chain(rest));
        return count.set(values.len().min(room));
    }
    count.set(values.len())
}

const NO_NODE: CUgraphNode = CUgraphNode(std::ptr::null_mut());

fn give_nodes(graph: GraphId, nodes: &[NodeId], place: Out<CUgraphNode>, count: Out<usize>) -> Outcome {
    give_list(&tell_nodes(graph, nodes)?, NO_NODE, place, count)
}

fn edges(graph: GraphId) -> Result<Vec<(NodeId, NodeId)>, CUresult> {
    Ok(ask!(Request::Graph(GraphRequest::Edges(graph)), Answer::Edges(edges) => edges))
}

/// The edges of the graph that a node is in.
fn edges_around(node: NodeId) -> Result<(GraphId, Vec<(NodeId, NodeId)>), CUresult> {
    let graph = lock(graphs()?).nodes.get(&node).copied().ok_or(CUresult::INVALID_VALUE)?;
    Ok((graph, edges(graph)?))
}

fn dependencies(node: CUgraphNode, place: Out<CUgraphNode>, count: Out<usize>) -> Outcome {
    session::current()?;
    count.check()?;
    let node = node.id()?;
    let (graph, edges) = edges_around(node)?;
    let found: Vec<NodeId> = edges.iter().filter(|(_, to)| *to == node).map(|(from, _)| *from).collect();
    give_nodes(graph, &found, place, count)
}

fn dependents(node: CUgraphNode, place: Out<CUgraphNode>, count: Out<usize>) -> Outcome {
    session::current()?;
    count.check()?;
    let node = node.id()?;
    let (graph, edges) = edges_around(node)?;
    let found: Vec<NodeId> = edges.iter().filter(|(from, _)| *from == node).map(|(_, to)| *to).collect();
    give_nodes(graph, &found, place, count)
}

fn all_edges(graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, count: Out<usize>) -> Outcome {
    session::current()?;
    count.check()?;
    let graph = graph.id()?;
    if from.is_null() != to.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let (starts, ends): (Vec<NodeId>, Vec<NodeId>) = edges(graph)?.into_iter().unzip();
    let room = count.get()?;
    give_nodes(graph, &starts, from, count)?;
    count.set(room)?;
    give_nodes(graph, &ends, to, count)
}

fn pairs(
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> Result<Vec<(NodeId, NodeId)>, CUresult> {
    Ok(ids(from.list(count)?)?.into_iter().zip(ids(to.list(count)?)?).collect())
}

/// Edges mean order and nothing else here.
fn check_edge_data(data: In<CUgraphEdgeData>, count: usize) -> Outcome {
    if data.is_null() || data.list(count)?.iter().all(|one| one.bytes == [0; 8]) {
        return Ok(());
    }
    Err(CUresult::NOT_SUPPORTED)
}

api! {
    cuGraphCreate(graph: Out<CUgraph>, flags: c_uint) {
        session::current()?;
        graph.check()?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        graph.set(ask!(Request::Graph(GraphRequest::Create), Answer::Graph(id) => CUgraph::of(id)))
    }

    cuGraphClone(clone: Out<CUgraph>, graph: CUgraph) {
        session::current()?;
        clone.check()?;
        let request = Request::Graph(GraphRequest::Clone(graph.id()?));
        clone.set(ask!(request, Answer::Graph(id) => CUgraph::of(id)))
    }

    cuGraphDestroy(graph: CUgraph) {
        session::current()?;
        let id = graph.id()?;
        session::tell(Request::Graph(GraphRequest::Destroy(id)))?;
        lock(graphs()?).nodes.retain(|_, of| *of != id);
        Ok(())
    }

    cuGraphDestroyNode(node: CUgraphNode) {
        session::current()?;
        let id = node.id()?;
        session::tell(Request::Graph(GraphRequest::Remove(id)))?;
        lock(graphs()?).nodes.remove(&id);
        Ok(())
    }

    cuGraphGetNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) {
        session::current()?;
        count.check()?;
        let graph = graph.id()?;
        let found = ask!(Request::Graph(GraphRequest::Nodes(graph)), Answer::Nodes(nodes) => nodes);
        give_nodes(graph, &found, nodes, count)
    }

    cuGraphGetRootNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) {
        session::current()?;
        count.check()?;
        let graph = graph.id()?;
        let found = ask!(Request::Graph(GraphRequest::Roots(graph)), Answer::Nodes(nodes) => nodes);
        give_nodes(graph, &found, nodes, count)
    }

    cuGraphGetEdges(graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, count: Out<usize>) {
        all_edges(graph, from, to, count)
    }

    cuGraphGetEdges_v2(
        graph: CUgraph,
        from: Out<CUgraphNode>,
        to: Out<CUgraphNode>,
        data: Out<CUgraphEdgeData>,
        count: Out<usize>,
    ) {
        all_edges(graph, from, to, count)?;
        give_no_data(data, from.is_null(), count)
    }

    cuGraphNodeGetDependencies(node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) {
        dependencies(node, nodes, count)
    }

    cuGraphNodeGetDependencies_v2(
        node: CUgraphNode,
        nodes: Out<CUgraphNode>,
        data: Out<CUgraphEdgeData>,
        count: Out<usize>,
    ) {
        dependencies(node, nodes, count)?;
        give_no_data(data, nodes.is_null(), count)
    }

    cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) {
        dependents(node, nodes, count)
    }

    cuGraphNodeGetDependentNodes_v2(
        node: CUgraphNode,
        nodes: Out<CUgraphNode>,
        data: Out<CUgraphEdgeData>,
        count: Out<usize>,
    ) {
        dependents(node, nodes, count)?;
        give_no_data(data, nodes.is_null(), count)
    }

    cuGraphAddDependencies(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) {
        session::current()?;
        let edges = pairs(from, to, count)?;
        session::tell(Request::Graph(GraphRequest::AddEdges { graph: graph.id()?, edges }))
    }

    cuGraphAddDependencies_v2(
        graph: CUgraph,
        from: In<CUgraphNode>,
        to: In<CUgraphNode>,
        data: In<CUgraphEdgeData>,
        count: usize,
    ) {
        session::current()?;
        check_edge_data(data, count)?;
        let edges = pairs(from, to, count)?;
        session::tell(Request::Graph(GraphRequest::AddEdges { graph: graph.id()?, edges }))
    }

    cuGraphRemoveDependencies(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) {
        session::current()?;
        let edges = pairs(from, to, count)?;
        session::tell(Request::Graph(GraphRequest::RemoveEdges { graph: graph.id()?, edges }))
    }

    cuGraphRemoveDependencies_v2(
        graph: CUgraph,
        from: In<CUgraphNode>,
        to: In<CUgraphNode>,
        data: In<CUgraphEdgeData>,
        count: usize,
    ) {
        session::current()?;
        check_edge_data(data, count)?;
        let edges = pairs(from, to, count)?;
        session::tell(Request::Graph(GraphRequest::RemoveEdges { graph: graph.id()?, edges }))
    }

    cuGraphNodeFindInClone(found: Out<CUgraphNode>, node: CUgraphNode, clone: CUgraph) {
        session::current()?;
        found.check()?;
        let (node, clone) = (node.id()?, clone.id()?);
        let request = Request::Graph(GraphRequest::FindInClone { node, clone });
        let id = ask!(request, Answer::Node(id) => id);
        found.set(tell_nodes(clone, &[id])?[0])
    }
}

fn give_no_data(data: Out<CUgraphEdgeData>, only_count: bool, count: Out<usize>) -> Outcome {
    if !data.is_null() && !only_count {
        data.set_all(std::iter::repeat_n(CUgraphEdgeData::default(), count.get()?));
    }
    Ok(())
}
