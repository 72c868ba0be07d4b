//! Adding nodes.

use cuda::CUresult;
use cuda::types::*;
use vgpu_messages::graph::{GraphRequest, NodeWork};
use vgpu_messages::{Answer, Request};

use super::node::{after, any, calling, copying, kernel, kernel_v1, recording, setting, waiting};
use super::{check_edge_data, tell_nodes};
use crate::argument::{In, Out};
use crate::guard::{Outcome, api};
use crate::handle::Handle;
use crate::session::{self, ask};

fn add(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    work: impl FnOnce() -> Result<NodeWork, CUresult>,
) -> Outcome {
    session::current()?;
    node.check()?;
    let graph = graph.id()?;
    let dependencies = after(dependencies, count)?;
    let request = Request::Graph(GraphRequest::Add { graph, dependencies, work: work()? });
    let id = ask!(request, Answer::Node(id) => id);
    node.set(tell_nodes(graph, &[id])?[0])
}

api! {
    cuGraphAddEmptyNode(node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize) {
        add(node, graph, after, count, || Ok(NodeWork::Empty))
    }

    cuGraphAddKernelNode(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        after: In<CUgraphNode>,
        count: usize,
        params: In<CUDA_KERNEL_NODE_PARAMS_v1>,
    ) {
        add(node, graph, after, count, || kernel_v1(params.get()?))
    }

    cuGraphAddKernelNode_v2(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        after: In<CUgraphNode>,
        count: usize,
        params: In<CUDA_KERNEL_NODE_PARAMS>,
    ) {
        add(node, graph, after, count, || kernel(&params.get()?))
    }

    cuGraphAddMemcpyNode(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        after: In<CUgraphNode>,
        count: usize,
        params: In<CUDA_MEMCPY3D>,
        context: CUcontext,
    ) {
        add(node, graph, after, count, || copying(&params.get()?, context))
    }

    cuGraphAddMemsetNode(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        after: In<CUgraphNode>,
        count: usize,
        params: In<CUDA_MEMSET_NODE_PARAMS>,
        context: CUcontext,
    ) {
        add(node, graph, after, count, || setting(&params.get()?, context))
    }

    cuGraphAddHostNode(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        after: In<CUgraphNode>,
        count: usize,
        params: In<CUDA_HOST_NODE_PARAMS>,
    ) {
        add(node, graph, after, count, || calling(&params.get()?))
    }

    cuGraphAddChildGraphNode(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        after: In<CUgraphNode>,
        count: usize,
        child: CUgraph,
    ) {
        add(node, graph, after, count, || Ok(NodeWork::Child(child.id()?)))
    }

    cuGraphAddEventRecordNode(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        after: In<CUgraphNode>,
        count: usize,
        event: CUevent,
    ) {
        add(node, graph, after, count, || recording(event))
    }

    cuGraphAddEventWaitNode(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        after: In<CUgraphNode>,
        count: usize,
        event: CUevent,
    ) {
        add(node, graph, after, count, || waiting(event))
    }

    cuGraphAddNode(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        after: In<CUgraphNode>,
        count: usize,
        params: In<CUgraphNodeParams>,
    ) {
        add(node, graph, after, count, || any(&params.get()?))
    }

    cuGraphAddNode_v2(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        after: In<CUgraphNode>,
        data: In<CUgraphEdgeData>,
        count: usize,
        params: In<CUgraphNodeParams>,
    ) {
        check_edge_data(data, count)?;
        add(node, graph, after, count, || any(&params.get()?))
    }
}
