//! What nodes do: the forms of the driver's interface on one side, the device's on the other.

use std::ffi::c_void;

use cuda::CUresult;
use cuda::types::*;
use vgpu_messages::graph::{GraphRequest, NodeWork};
use vgpu_messages::work::{Copy, HostCall, Launch, Memset, Place, Work};
use vgpu_messages::{Address, Answer, ContextId, NodeId, Request};

use crate::argument::In;
use crate::context::{current, table};
use crate::handle::Handle;
use crate::launch::{self, Wanted};
use crate::session::{self, ask};
use crate::{copy, memset};

/// The types of nodes.
pub(super) mod kind {
    pub(in super::super) const KERNEL: u32 = 0;
    pub(in super::super) const COPY: u32 = 1;
    pub(in super::super) const MEMSET: u32 = 2;
    pub(in super::super) const HOST: u32 = 3;
    pub(in super::super) const CHILD: u32 = 4;
    pub(in super::super) const EMPTY: u32 = 5;
    pub(in super::super) const WAIT_EVENT: u32 = 6;
    pub(in super::super) const RECORD_EVENT: u32 = 7;
    pub(in super::super) const BATCH: u32 = 12;
}

/// A context that is named, or else the current one.
fn context(named: CUcontext) -> Result<ContextId, CUresult> {
    if named.is_null() { current::id() } else { table::id_of(named) }
}

fn in_context(named: CUcontext, work: Work) -> Result<NodeWork, CUresult> {
    Ok(NodeWork::Work { context: context(named)?, work })
}

pub(super) fn kernel(params: &CUDA_KERNEL_NODE_PARAMS) -> Result<NodeWork, CUresult> {
    let CUDA_KERNEL_NODE_PARAMS { launch, kernel, context } = *params;
    // A kernel of a library stands in for a function.
    let function = if launch.function.is_null() { CUfunction(kernel.0) } else { launch.function };
    let launch = launch::prepare(&Wanted {
        function,
        grid: launch.grid,
        block: launch.block,
        shared_bytes: launch.shared_bytes,
        parameters: launch::addresses(launch.parameters),
        extra: launch::addresses(launch.extra),
        cooperative: false,
    })?;
    in_context(context, Work::Launch(launch))
}

pub(super) fn kernel_v1(launch: CUDA_KERNEL_NODE_PARAMS_v1) -> Result<NodeWork, CUresult> {
    let kernel_handle = CUkernel(std::ptr::null_mut());
    kernel(&CUDA_KERNEL_NODE_PARAMS { launch, kernel: kernel_handle, context: CUcontext::NULL })
}

pub(super) fn copying(params: &CUDA_MEMCPY3D, context: CUcontext) -> Result<NodeWork, CUresult> {
    in_context(context, Work::Copy(copy::layers(params)?))
}

pub(super) fn setting(params: &CUDA_MEMSET_NODE_PARAMS, context: CUcontext) -> Result<NodeWork, CUresult> {
    let CUDA_MEMSET_NODE_PARAMS { address, pitch, value, element_bytes, width, height } = *params;
    if !matches!(element_bytes, 1 | 2 | 4) || width == 0 || height == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let memset = Memset { address: Address(address.0), value, element_bytes, width, height, pitch };
    memset::check(&memset)?;
    in_context(context, Work::Memset(memset))
}

pub(super) fn calling(params: &CUDA_HOST_NODE_PARAMS) -> Result<NodeWork, CUresult> {
    let function = params.function.ok_or(CUresult::INVALID_VALUE)?;
    session::current()?.callbacks.start()?;
    let function = (function as *const c_void).expose_provenance() as u64;
    let data = params.data.expose_provenance() as u64;
    in_context(CUcontext::NULL, Work::Host(HostCall { function, data, stream: None }))
}

pub(super) fn recording(event: CUevent) -> Result<NodeWork, CUresult> {
    in_context(CUcontext::NULL, Work::Record(event.id()?))
}

pub(super) fn waiting(event: CUevent) -> Result<NodeWork, CUresult> {
    in_context(CUcontext::NULL, Work::WaitEvent(event.id()?))
}

/// A node of any type, as `cuGraphAddNode` takes it.
pub(super) fn any(params: &CUgraphNodeParams) -> Result<NodeWork, CUresult> {
    // SAFETY: every member is plain data, and the program has filled the one that its type says.
    unsafe {
        match params.kind {
            kind::KERNEL => kernel(&params.of.kernel),
            kind::COPY => copying(&params.of.copy.copy, params.of.copy.context),
            kind::MEMSET => setting(&params.of.memset.memset, params.of.memset.context),
            kind::HOST => calling(&params.of.host),
            kind::CHILD => Ok(NodeWork::Child(params.of.child.id()?)),
            kind::EMPTY => Ok(NodeWork::Empty),
            kind::WAIT_EVENT => waiting(params.of.event),
            kind::RECORD_EVENT => recording(params.of.event),
            8..=13 => Err(CUresult::NOT_SUPPORTED),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }
}

/// What a node of a graph does.
pub(super) fn work_of(node: NodeId) -> Result<NodeWork, CUresult> {
    Ok(ask!(Request::Graph(GraphRequest::Work(node)), Answer::NodeWork(work) => work))
}

/// The type of a node.
pub(super) fn kind_of(work: &NodeWork) -> u32 {
    match work {
        NodeWork::Empty => kind::EMPTY,
        NodeWork::Child(_) => kind::CHILD,
        NodeWork::Work { work, .. } => match work {
            Work::Copy(_) => kind::COPY,
            Work::Memset(_) => kind::MEMSET,
            Work::Launch(_) => kind::KERNEL,
            Work::Host(_) => kind::HOST,
            Work::Record(_) => kind::RECORD_EVENT,
            Work::WaitEvent(_) => kind::WAIT_EVENT,
            Work::WaitValue { .. } | Work::WriteValue { .. } => kind::BATCH,
        },
    }
}

/// A launch for the program. The parameters live on: they are the program's to read for as long as the node is there.
pub(super) fn kernel_params(
    context: ContextId,
    launch: &Launch,
) -> Result<CUDA_KERNEL_NODE_PARAMS, CUresult> {
    let session = session::current()?;
    let function = CUfunction::of(launch.function);
    let known = crate::module::function::resolve(function)?.1;
    let bytes: &'static [u8] = Vec::leak(launch.parameters.clone());
    let addresses: Vec<*const c_void> = known
        .parameters
        .iter()
        .filter_map(|(offset, _)| bytes.get(*offset as usize..).map(|at| at.as_ptr().cast()))
        .collect();
    Ok(CUDA_KERNEL_NODE_PARAMS {
        launch: CUDA_KERNEL_NODE_PARAMS_v1 {
            function,
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared_bytes,
            parameters: Vec::leak(addresses).as_ptr(),
            extra: std::ptr::null(),
        },
        kernel: CUkernel(std::ptr::null_mut()),
        context: table::handle_of(session, context),
    })
}

/// A copy for the program.
pub(super) fn copy_params(copy: &Copy) -> CUDA_MEMCPY3D {
    let side = |place: Place, pitch: u64, slice: u64| {
        let (kind, host, device) = match place {
            Place::Host(at) => (CU_MEMORYTYPE_HOST, at, 0),
            Place::Device(at) => (CU_MEMORYTYPE_DEVICE, 0, at),
            Place::Either(at) => (CU_MEMORYTYPE_UNIFIED, 0, at),
        };
        let height = slice.checked_div(pitch).unwrap_or(0);
        Side3D {
            x_bytes: 0,
            y: 0,
            z: 0,
            level: 0,
            kind,
            host,
            device,
            array: 0,
            context: CUcontext::NULL,
            pitch,
            height,
        }
    };
    CUDA_MEMCPY3D {
        source: side(copy.source, copy.source_pitch, copy.source_slice),
        target: side(copy.target, copy.target_pitch, copy.target_slice),
        width_bytes: copy.width_bytes,
        height: copy.height,
        depth: copy.depth,
    }
}

/// A memset for the program.
pub(super) fn memset_params(memset: &Memset) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        address: CUdeviceptr(memset.address.0),
        pitch: memset.pitch,
        value: memset.value,
        element_bytes: memset.element_bytes,
        width: memset.width,
        height: memset.height,
    }
}

/// A call for the program.
pub(super) fn host_params(call: &HostCall) -> CUDA_HOST_NODE_PARAMS {
    let function: *const c_void = std::ptr::with_exposed_provenance(call.function as usize);
    CUDA_HOST_NODE_PARAMS {
        // SAFETY: the program gave this function, and null is none.
        function: unsafe { std::mem::transmute::<*const c_void, Option<CUhostFn>>(function) },
        data: std::ptr::with_exposed_provenance_mut(call.data as usize),
    }
}

/// The list that nodes come after.
pub(super) fn after(list: In<CUgraphNode>, count: usize) -> Result<Vec<NodeId>, CUresult> {
    super::ids(list.list(count)?)
}
