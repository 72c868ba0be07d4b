//! Reading and changing what nodes do, in graphs and in executable ones.

use std::ffi::c_uint;

use cuda::CUresult;
use cuda::types::*;
use vgpu_messages::Request;
use vgpu_messages::graph::{GraphRequest, NodeWork};
use vgpu_messages::work::Work;

use super::node::{
    any, calling, copy_params, copying, host_params, kernel, kernel_params, kernel_v1, kind_of,
    memset_params, recording, setting, waiting, work_of,
};
use crate::argument::{In, Out};
use crate::guard::{Outcome, api};
use crate::handle::Handle;
use crate::session;

/// What a node does, if it is of the kind that the function is for.
macro_rules! work {
    ($node:expr, $context:pat, $pattern:pat => $value:expr) => {{
        session::current()?;
        match work_of($node.id()?)? {
            NodeWork::Work { context: $context, work: $pattern } => $value,
            _ => return Err(CUresult::INVALID_VALUE),
        }
    }};
}

fn set(node: CUgraphNode, work: NodeWork) -> Outcome {
    session::tell(Request::Graph(GraphRequest::SetWork { node: node.id()?, work }))
}

fn set_exec(exec: CUgraphExec, node: CUgraphNode, work: NodeWork) -> Outcome {
    session::tell(Request::Graph(GraphRequest::SetExecWork { exec: exec.id()?, node: node.id()?, work }))
}

/// The context that a node of a graph runs in, for changes that don't name one.
fn context_of(node: CUgraphNode) -> Result<CUcontext, CUresult> {
    match work_of(node.id()?)? {
        NodeWork::Work { context, .. } => Ok(crate::context::table::handle_of(session::current()?, context)),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

api! {
    cuGraphNodeGetType(node: CUgraphNode, kind: Out<c_uint>) {
        session::current()?;
        kind.check()?;
        kind.set(kind_of(&work_of(node.id()?)?))
    }

    cuGraphKernelNodeGetParams(node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS_v1>) {
        let (context, launch) = work!(node, context, Work::Launch(launch) => (context, launch));
        params.set(kernel_params(context, &launch)?.launch)
    }

    cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS>) {
        let (context, launch) = work!(node, context, Work::Launch(launch) => (context, launch));
        params.set(kernel_params(context, &launch)?)
    }

    cuGraphKernelNodeSetParams(node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS_v1>) {
        session::current()?;
        set(node, kernel_v1(params.get()?)?)
    }

    cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS>) {
        session::current()?;
        set(node, kernel(&params.get()?)?)
    }

    cuGraphExecKernelNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: In<CUDA_KERNEL_NODE_PARAMS_v1>,
    ) {
        session::current()?;
        set_exec(exec, node, kernel_v1(params.get()?)?)
    }

    cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: In<CUDA_KERNEL_NODE_PARAMS>,
    ) {
        session::current()?;
        set_exec(exec, node, kernel(&params.get()?)?)
    }

    cuGraphKernelNodeGetAttribute(node: CUgraphNode, _attribute: c_uint, value: Out<[u64; 8]>) {
        let _ = work!(node, _, Work::Launch(launch) => launch);
        value.set([0; 8])
    }

    cuGraphKernelNodeSetAttribute(node: CUgraphNode, _attribute: c_uint, value: In<[u64; 8]>) {
        // Caching, priorities, domains: nothing that the virtual GPU has.
        let _ = work!(node, _, Work::Launch(launch) => launch);
        value.get().map(drop)
    }

    cuGraphKernelNodeCopyAttributes(target: CUgraphNode, source: CUgraphNode) {
        let _ = work!(target, _, Work::Launch(launch) => launch);
        let _ = work!(source, _, Work::Launch(launch) => launch);
        Ok(())
    }

    cuGraphMemcpyNodeGetParams(node: CUgraphNode, params: Out<CUDA_MEMCPY3D>) {
        let copy = work!(node, _, Work::Copy(copy) => copy);
        params.set(copy_params(&copy))
    }

    cuGraphMemcpyNodeSetParams(node: CUgraphNode, params: In<CUDA_MEMCPY3D>) {
        session::current()?;
        set(node, copying(&params.get()?, context_of(node)?)?)
    }

    cuGraphExecMemcpyNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: In<CUDA_MEMCPY3D>,
        context: CUcontext,
    ) {
        session::current()?;
        set_exec(exec, node, copying(&params.get()?, context)?)
    }

    cuGraphMemsetNodeGetParams(node: CUgraphNode, params: Out<CUDA_MEMSET_NODE_PARAMS>) {
        let memset = work!(node, _, Work::Memset(memset) => memset);
        params.set(memset_params(&memset))
    }

    cuGraphMemsetNodeSetParams(node: CUgraphNode, params: In<CUDA_MEMSET_NODE_PARAMS>) {
        session::current()?;
        set(node, setting(&params.get()?, context_of(node)?)?)
    }

    cuGraphExecMemsetNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: In<CUDA_MEMSET_NODE_PARAMS>,
        context: CUcontext,
    ) {
        session::current()?;
        set_exec(exec, node, setting(&params.get()?, context)?)
    }

    cuGraphHostNodeGetParams(node: CUgraphNode, params: Out<CUDA_HOST_NODE_PARAMS>) {
        let call = work!(node, _, Work::Host(call) => call);
        params.set(host_params(&call))
    }

    cuGraphHostNodeSetParams(node: CUgraphNode, params: In<CUDA_HOST_NODE_PARAMS>) {
        session::current()?;
        set(node, calling(&params.get()?)?)
    }

    cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: In<CUDA_HOST_NODE_PARAMS>) {
        session::current()?;
        set_exec(exec, node, calling(&params.get()?)?)
    }

    cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: Out<CUevent>) {
        let id = work!(node, _, Work::Record(id) => id);
        event.set(CUevent::of(id))
    }

    cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) {
        session::current()?;
        set(node, recording(event)?)
    }

    cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        session::current()?;
        set_exec(exec, node, recording(event)?)
    }

    cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: Out<CUevent>) {
        let id = work!(node, _, Work::WaitEvent(id) => id);
        event.set(CUevent::of(id))
    }

    cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) {
        session::current()?;
        set(node, waiting(event)?)
    }

    cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        session::current()?;
        set_exec(exec, node, waiting(event)?)
    }

    cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: Out<CUgraph>) {
        session::current()?;
        match work_of(node.id()?)? {
            NodeWork::Child(id) => graph.set(CUgraph::of(id)),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) {
        session::current()?;
        set_exec(exec, node, NodeWork::Child(child.id()?))
    }

    cuGraphNodeSetParams(node: CUgraphNode, params: In<CUgraphNodeParams>) {
        session::current()?;
        set(node, any(&params.get()?)?)
    }

    cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: In<CUgraphNodeParams>) {
        session::current()?;
        set_exec(exec, node, any(&params.get()?)?)
    }
}
