//! Capturing streams into graphs.

use std::cell::RefCell;
use std::ffi::c_uint;

use cuda::CUresult;
use cuda::types::{CUgraph, CUgraphEdgeData, CUgraphNode, CUstream, CUstreamCaptureMode};
use vgpu_messages::graph::GraphRequest;
use vgpu_messages::stream::{CaptureFacts, CaptureMode, CaptureStatus, StreamRef};
use vgpu_messages::{Answer, Request};

use super::{check_edge_data, ids, tell_nodes};
use crate::argument::{In, Out};
use crate::context::current;
use crate::guard::{Outcome, api, stream_api};
use crate::handle::{self, Handle};
use crate::session::{self, ask};

thread_local! {
    /// The dependencies that this thread was told last, which it reads after the call.
    static TOLD: RefCell<(Vec<CUgraphNode>, Vec<CUgraphEdgeData>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

fn mode(mode: CUstreamCaptureMode) -> Result<CaptureMode, CUresult> {
    match mode {
        CUstreamCaptureMode::GLOBAL => Ok(CaptureMode::Global),
        CUstreamCaptureMode::THREAD_LOCAL => Ok(CaptureMode::ThreadLocal),
        CUstreamCaptureMode::RELAXED => Ok(CaptureMode::Relaxed),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn begin(stream: CUstream, wanted: CUstreamCaptureMode, default: StreamRef) -> Outcome {
    let context = current::id()?;
    let (stream, mode) = (handle::stream(stream, default)?, mode(wanted)?);
    session::tell(Request::Graph(GraphRequest::BeginCapture { context, stream, mode }))
}

fn facts(stream: CUstream, default: StreamRef) -> Result<CaptureFacts, CUresult> {
    let context = current::id()?;
    let stream = handle::stream(stream, default)?;
    let request = Request::Graph(GraphRequest::CaptureFacts { context, stream });
    Ok(ask!(request, Answer::Capture(facts) => facts))
}

fn number(status: CaptureStatus) -> c_uint {
    match status {
        CaptureStatus::None => 0,
        CaptureStatus::Active => 1,
        CaptureStatus::Invalidated => 2,
    }
}

fn info(
    facts: &CaptureFacts,
    status: Out<c_uint>,
    id: Out<u64>,
    graph: Out<CUgraph>,
    dependencies: Out<*const CUgraphNode>,
    data: Out<*const CUgraphEdgeData>,
    count: Out<usize>,
) -> Outcome {
    status.set(number(facts.status))?;
    if facts.status != CaptureStatus::Active {
        return Ok(());
    }
    id.offer(facts.id);
    let Some(of) = facts.graph else { return Ok(()) };
    graph.offer(CUgraph::of(of));
    let nodes = tell_nodes(of, &facts.dependencies)?;
    count.offer(nodes.len());
    TOLD.with_borrow_mut(|told| {
        *told = (nodes, vec![CUgraphEdgeData::default(); facts.dependencies.len()]);
        dependencies.offer(told.0.as_ptr());
        data.offer(told.1.as_ptr());
    });
    Ok(())
}

fn set_dependencies(
    stream: CUstream,
    nodes: In<CUgraphNode>,
    count: usize,
    flags: c_uint,
    default: StreamRef,
) -> Outcome {
    let context = current::id()?;
    let stream = handle::stream(stream, default)?;
    if flags > 1 {
        return Err(CUresult::INVALID_VALUE);
    }
    let (nodes, replace) = (ids(nodes.list(count)?)?, flags == 1);
    session::tell(Request::Graph(GraphRequest::SetCaptureDependencies { context, stream, nodes, replace }))
}

api! {
    cuThreadExchangeStreamCaptureMode(wanted: Out<CUstreamCaptureMode>) {
        session::current()?;
        let new = mode(wanted.get()?)?;
        let before = ask!(Request::ExchangeCaptureMode(new), Answer::CaptureMode(before) => before);
        wanted.set(match before {
            CaptureMode::Global => CUstreamCaptureMode::GLOBAL,
            CaptureMode::ThreadLocal => CUstreamCaptureMode::THREAD_LOCAL,
            CaptureMode::Relaxed => CUstreamCaptureMode::RELAXED,
        })
    }
}

stream_api! {
    |default| cuStreamBeginCapture / cuStreamBeginCapture_ptsz(stream: CUstream) {
        begin(stream, CUstreamCaptureMode::GLOBAL, default)
    }

    |default| cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: CUstreamCaptureMode) {
        begin(stream, mode, default)
    }

    |default| cuStreamEndCapture / cuStreamEndCapture_ptsz(stream: CUstream, graph: Out<CUgraph>) {
        let context = current::id()?;
        graph.check()?;
        let stream = handle::stream(stream, default)?;
        let request = Request::Graph(GraphRequest::EndCapture { context, stream });
        // A capture that failed has ended too, without a graph.
        graph.offer(CUgraph(std::ptr::null_mut()));
        graph.set(ask!(request, Answer::Graph(id) => CUgraph::of(id)))
    }

    |default| cuStreamIsCapturing / cuStreamIsCapturing_ptsz(stream: CUstream, status: Out<c_uint>) {
        current::id()?;
        status.check()?;
        status.set(number(facts(stream, default)?.status))
    }

    |default| cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz(
        stream: CUstream,
        status: Out<c_uint>,
        id: Out<u64>,
    ) {
        current::id()?;
        status.check()?;
        let facts = facts(stream, default)?;
        let none = (Out::somewhere(0), Out::somewhere(0), Out::somewhere(0), Out::somewhere(0));
        info(&facts, status, id, none.0, none.1, none.2, none.3)
    }

    |default| cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz(
        stream: CUstream,
        status: Out<c_uint>,
        id: Out<u64>,
        graph: Out<CUgraph>,
        dependencies: Out<*const CUgraphNode>,
        count: Out<usize>,
    ) {
        current::id()?;
        status.check()?;
        let facts = facts(stream, default)?;
        info(&facts, status, id, graph, dependencies, Out::somewhere(0), count)
    }

    |default| cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz(
        stream: CUstream,
        status: Out<c_uint>,
        id: Out<u64>,
        graph: Out<CUgraph>,
        dependencies: Out<*const CUgraphNode>,
        data: Out<*const CUgraphEdgeData>,
        count: Out<usize>,
    ) {
        current::id()?;
        status.check()?;
        let facts = facts(stream, default)?;
        info(&facts, status, id, graph, dependencies, data, count)
    }

    |default| cuStreamUpdateCaptureDependencies / cuStreamUpdateCaptureDependencies_ptsz(
        stream: CUstream,
        nodes: In<CUgraphNode>,
        count: usize,
        flags: c_uint,
    ) {
        set_dependencies(stream, nodes, count, flags, default)
    }

    |default| cuStreamUpdateCaptureDependencies_v2 / cuStreamUpdateCaptureDependencies_v2_ptsz(
        stream: CUstream,
        nodes: In<CUgraphNode>,
        data: In<CUgraphEdgeData>,
        count: usize,
        flags: c_uint,
    ) {
        check_edge_data(data, count)?;
        set_dependencies(stream, nodes, count, flags, default)
    }
}
