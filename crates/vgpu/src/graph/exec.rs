//! Executable graphs.

use std::ffi::{c_char, c_uint};

use cuda::CUresult;
use cuda::types::*;
use vgpu_messages::graph::GraphRequest;
use vgpu_messages::{Answer, Request};

use super::{NO_NODE, graphs};
use crate::argument::Out;
use crate::context::current;
use crate::guard::{Outcome, api, lock, stream_api};
use crate::handle::{self, Handle};
use crate::session::{self, ask};

/// Frees at launch, uploads, launches from the device, priorities of nodes.
const FLAGS: u64 = 15;
/// Why an update failed, when nothing closer is known.
const UPDATE_ERROR: c_uint = 1;
/// Why an instantiation failed, when nothing closer is known.
const INSTANTIATE_ERROR: c_uint = 1;

fn instantiate(exec: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> Outcome {
    session::current()?;
    exec.check()?;
    if flags & !FLAGS != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let request = Request::Graph(GraphRequest::Instantiate { graph: graph.id()?, flags });
    let id = ask!(request, Answer::GraphExec(id) => id);
    lock(graphs()?).execs.insert(id, flags);
    exec.set(CUgraphExec::of(id))
}

fn update(exec: CUgraphExec, graph: CUgraph) -> Outcome {
    session::tell(Request::Graph(GraphRequest::Update { exec: exec.id()?, graph: graph.id()? }))
}

fn flags_of(exec: CUgraphExec) -> Result<u64, CUresult> {
    let id = exec.id()?;
    lock(graphs()?).execs.get(&id).copied().ok_or(CUresult::INVALID_VALUE)
}

api! {
    cuGraphInstantiateWithFlags(exec: Out<CUgraphExec>, graph: CUgraph, flags: u64) {
        instantiate(exec, graph, flags)
    }

    cuGraphInstantiate, cuGraphInstantiate_v2(
        exec: Out<CUgraphExec>,
        graph: CUgraph,
        error_node: Out<CUgraphNode>,
        log: Out<c_char>,
        log_bytes: usize,
    ) {
        error_node.offer(NO_NODE);
        if log_bytes > 0 {
            log.offer(0);
        }
        instantiate(exec, graph, 0)
    }

    cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz(
        exec: Out<CUgraphExec>,
        graph: CUgraph,
        params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
    ) {
        session::current()?;
        let given = params.get()?;
        let made = instantiate(exec, graph, given.flags);
        let result = if made.is_ok() { 0 } else { INSTANTIATE_ERROR };
        params.set(CUDA_GRAPH_INSTANTIATE_PARAMS { error_node: NO_NODE, result, ..given })?;
        made
    }

    cuGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, error_node: Out<CUgraphNode>, result: Out<c_uint>) {
        session::current()?;
        let updated = update(exec, graph);
        error_node.offer(NO_NODE);
        result.offer(if updated.is_ok() { 0 } else { UPDATE_ERROR });
        updated
    }

    cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: Out<CUgraphExecUpdateResultInfo>) {
        session::current()?;
        let updated = update(exec, graph);
        let result = if updated.is_ok() { 0 } else { UPDATE_ERROR };
        info.offer(CUgraphExecUpdateResultInfo { result, error_node: NO_NODE, error_from_node: NO_NODE });
        updated
    }

    cuGraphExecDestroy(exec: CUgraphExec) {
        session::current()?;
        let id = exec.id()?;
        session::tell(Request::Graph(GraphRequest::DestroyExec(id)))?;
        lock(graphs()?).execs.remove(&id);
        Ok(())
    }

    cuGraphExecGetFlags(exec: CUgraphExec, flags: Out<u64>) {
        session::current()?;
        flags.check()?;
        flags.set(flags_of(exec)?)
    }
}

stream_api! {
    |default| cuGraphLaunch / cuGraphLaunch_ptsz(exec: CUgraphExec, stream: CUstream) {
        let context = current::id()?;
        let (exec, stream) = (exec.id()?, handle::stream(stream, default)?);
        session::tell(Request::Graph(GraphRequest::Launch { context, exec, stream }))
    }

    |default| cuGraphUpload / cuGraphUpload_ptsz(exec: CUgraphExec, stream: CUstream) {
        // The device has it already.
        current::id()?;
        handle::stream(stream, default)?;
        flags_of(exec).map(drop)
    }
}
