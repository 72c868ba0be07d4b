//! Graphs built node by node, instantiated and launched.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use cuda::types::{
    CU_MEMORYTYPE_DEVICE, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdeviceptr, CUgraph, CUgraphExec, CUgraphNode,
    CUkernel, CUstream,
};

use super::{Check, alone, check};
use crate::api::Zeroed;
use crate::bench::Bench;
use crate::bench::words::pointers;
use crate::kernels::{ADD, FILL, INCREMENT, Kernel};

pub(super) fn graph(b: &Bench) -> CUgraph {
    let mut graph = CUgraph::NULL;
    b.expect("graph", b.cu.cuGraphCreate(&mut graph, 0));
    graph
}

/// The parameters of a kernel node; the pointers must live until the node is made.
fn kernel_params(b: &Bench, kernel: Kernel, parameters: &mut [*mut c_void]) -> CUDA_KERNEL_NODE_PARAMS {
    let launch = CUDA_KERNEL_NODE_PARAMS_v1 {
        function: b.function(kernel),
        grid: [4, 1, 1],
        block: [64, 1, 1],
        shared_bytes: 0,
        parameters: parameters.as_mut_ptr().cast_const().cast(),
        extra: std::ptr::null(),
    };
    CUDA_KERNEL_NODE_PARAMS { launch, kernel: CUkernel::NULL, context: CUcontext::NULL }
}

fn kernel_node(
    b: &Bench,
    graph: CUgraph,
    after: &[CUgraphNode],
    kernel: Kernel,
    values: &[u64],
) -> CUgraphNode {
    let (mut node, mut parameters) = (CUgraphNode::NULL, pointers(values));
    let params = kernel_params(b, kernel, &mut parameters);
    b.expect("kernel", b.cu.cuGraphAddKernelNode_v2(&mut node, graph, after.as_ptr(), after.len(), &params));
    node
}

fn memset_node(
    b: &Bench,
    graph: CUgraph,
    after: &[CUgraphNode],
    to: CUdeviceptr,
    value: u32,
    count: usize,
) -> CUgraphNode {
    let mut node = CUgraphNode::NULL;
    let params = CUDA_MEMSET_NODE_PARAMS {
        address: to,
        pitch: 0,
        value,
        element_bytes: 1,
        width: count as u64,
        height: 1,
    };
    b.expect(
        "memset",
        b.cu.cuGraphAddMemsetNode(&mut node, graph, after.as_ptr(), after.len(), &params, b.context),
    );
    node
}

fn copy_node(
    b: &Bench,
    graph: CUgraph,
    after: &[CUgraphNode],
    to: CUdeviceptr,
    from: CUdeviceptr,
    count: usize,
) -> CUgraphNode {
    let (mut node, mut copy, bytes) = (CUgraphNode::NULL, CUDA_MEMCPY3D::zeroed(), count as u64);
    (copy.source.kind, copy.source.device, copy.target.kind, copy.target.device) =
        (CU_MEMORYTYPE_DEVICE, from.0, CU_MEMORYTYPE_DEVICE, to.0);
    (copy.width_bytes, copy.height, copy.depth) = (bytes, 1, 1);
    (copy.source.pitch, copy.target.pitch, copy.source.height, copy.target.height) = (bytes, bytes, 1, 1);
    b.expect(
        "copy",
        b.cu.cuGraphAddMemcpyNode(&mut node, graph, after.as_ptr(), after.len(), &copy, b.context),
    );
    node
}

pub(super) fn instantiate(b: &Bench, graph: CUgraph) -> CUgraphExec {
    let mut exec = CUgraphExec::NULL;
    b.expect("instantiate", b.cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    exec
}

pub(super) fn end(b: &Bench, graph: CUgraph, exec: CUgraphExec) {
    b.expect("exec-destroy", b.cu.cuGraphExecDestroy(exec));
    b.expect("graph-destroy", b.cu.cuGraphDestroy(graph));
}

pub(super) fn node_count(b: &Bench, graph: CUgraph) -> usize {
    let mut count = 0;
    b.expect("nodes", b.cu.cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count));
    count
}

/// How often the host function was called.
static CALLS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn count(_: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
}

pub(super) const CHECKS: &[Check] = &[
    check("an empty one", "ok ok nodes=0 ok ok ok ok", |b| {
        let (mut graph, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
        b.code(b.cu.cuGraphCreate(&mut graph, 0));
        b.code(b.cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        b.value("nodes", node_count(b, graph));
        b.code(b.cu.cuGraphLaunch(exec, CUstream::NULL));
        b.code(b.cu.cuStreamSynchronize(CUstream::NULL));
        b.code(b.cu.cuGraphExecDestroy(exec));
        b.code(b.cu.cuGraphDestroy(graph));
    }),
    check("a kernel", "ok ok word=8", |b| {
        let (memory, graph) = (b.alloc(800), graph(b));
        kernel_node(b, graph, &[], FILL, &[memory.0, 100, 8]);
        let exec = instantiate(b, graph);
        b.code(b.cu.cuGraphLaunch(exec, CUstream::NULL));
        b.code(b.cu.cuCtxSynchronize());
        b.value("word", b.read_words(memory, 100)[99]);
        end(b, graph, exec);
        b.free(memory);
    }),
    check("a chain of all kinds", "ok words=9a9a9a9a9a9a9aa0,0", |b| {
        let (memory, other, graph) = (b.alloc_with(&[0; 24]), b.alloc_with(&[0; 16]), graph(b));
        let set = memset_node(b, graph, &[], memory, 0x9A, 8);
        let fill = kernel_node(b, graph, &[set], FILL, &[memory.0 + 8, 1, 6]);
        let add = kernel_node(b, graph, &[fill], ADD, &[memory.0 + 16, memory.0, memory.0 + 8, 1]);
        copy_node(b, graph, &[add], other, CUdeviceptr(memory.0 + 16), 8);
        let exec = instantiate(b, graph);
        b.expect("launch", b.cu.cuGraphLaunch(exec, CUstream::NULL));
        b.code(b.cu.cuCtxSynchronize());
        let words = b.read_words(other, 2);
        b.value("words", format!("{:x},{:x}", words[0], words[1]));
        end(b, graph, exec);
        b.free(memory);
        b.free(other);
    }),
    check("launched many times", "word=100", |b| {
        let (memory, graph, stream) = (b.alloc_with(&[0; 8]), graph(b), b.stream(1));
        kernel_node(b, graph, &[], INCREMENT, &[memory.0, 1, 2, 0]);
        let exec = instantiate(b, graph);
        for _ in 0..50 {
            b.expect("launch", b.cu.cuGraphLaunch(exec, stream));
        }
        b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
        b.value("word", b.read_words(memory, 1)[0]);
        end(b, graph, exec);
        b.end_stream(stream);
        b.free(memory);
    }),
    check("branches join", "ok word=12", |b| {
        let (memory, graph) = (b.alloc_with(&[0; 24]), graph(b));
        let one = kernel_node(b, graph, &[], FILL, &[memory.0, 1, 5]);
        let two = kernel_node(b, graph, &[], FILL, &[memory.0 + 8, 1, 7]);
        kernel_node(b, graph, &[one, two], ADD, &[memory.0 + 16, memory.0, memory.0 + 8, 1]);
        let mut roots = 0;
        b.expect("roots", b.cu.cuGraphGetRootNodes(graph, std::ptr::null_mut(), &mut roots));
        assert_eq!(node_count(b, graph), 3);
        let exec = instantiate(b, graph);
        b.code(b.cu.cuGraphLaunch(exec, CUstream::NULL));
        b.value("word", b.read_words(memory, 3)[2]);
        end(b, graph, exec);
        b.free(memory);
    }),
    check("counts and kinds", "nodes=3 roots=1 kinds=2,0,5", |b| {
        let (memory, graph) = (b.alloc(64), graph(b));
        let set = memset_node(b, graph, &[], memory, 1, 8);
        let fill = kernel_node(b, graph, &[set], FILL, &[memory.0, 1, 1]);
        let mut empty = CUgraphNode::NULL;
        b.expect("empty", b.cu.cuGraphAddEmptyNode(&mut empty, graph, [fill].as_ptr(), 1));
        b.value("nodes", node_count(b, graph));
        let mut roots = 0;
        b.expect("roots", b.cu.cuGraphGetRootNodes(graph, std::ptr::null_mut(), &mut roots));
        b.value("roots", roots);
        let kind = |node| {
            let mut kind = 99;
            b.expect("kind", b.cu.cuGraphNodeGetType(node, &mut kind));
            kind
        };
        b.value("kinds", format!("{},{},{}", kind(set), kind(fill), kind(empty)));
        b.expect("destroy", b.cu.cuGraphDestroy(graph));
        b.free(memory);
    }),
    check("a host function", "ok calls=3", |b| {
        let (graph, mut node) = (graph(b), CUgraphNode::NULL);
        let params = CUDA_HOST_NODE_PARAMS { function: Some(count), data: std::ptr::null_mut() };
        b.code(b.cu.cuGraphAddHostNode(&mut node, graph, std::ptr::null(), 0, &params));
        let exec = instantiate(b, graph);
        for _ in 0..3 {
            b.expect("launch", b.cu.cuGraphLaunch(exec, CUstream::NULL));
        }
        b.synchronize();
        b.value("calls", CALLS.swap(0, Ordering::SeqCst));
        end(b, graph, exec);
    }),
    check("the graph goes, its launches stay", "ok ok ok word=4", |b| {
        let (memory, graph) = (b.alloc(8), graph(b));
        kernel_node(b, graph, &[], FILL, &[memory.0, 1, 4]);
        let exec = instantiate(b, graph);
        b.code(b.cu.cuGraphDestroy(graph));
        b.code(b.cu.cuGraphUpload(exec, CUstream::NULL));
        b.code(b.cu.cuGraphLaunch(exec, CUstream::NULL));
        b.value("word", b.read_words(memory, 1)[0]);
        b.expect("destroy", b.cu.cuGraphExecDestroy(exec));
        b.free(memory);
    }),
    check("other parameters", "word=4 ok word=5", |b| {
        let (memory, graph) = (b.alloc(8), graph(b));
        let node = kernel_node(b, graph, &[], FILL, &[memory.0, 1, 4]);
        let exec = instantiate(b, graph);
        b.expect("launch", b.cu.cuGraphLaunch(exec, CUstream::NULL));
        b.value("word", b.read_words(memory, 1)[0]);
        let values = [memory.0, 1, 5];
        let mut parameters = pointers(&values);
        let params = kernel_params(b, FILL, &mut parameters);
        b.code(b.cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
        b.expect("launch", b.cu.cuGraphLaunch(exec, CUstream::NULL));
        b.value("word", b.read_words(memory, 1)[0]);
        end(b, graph, exec);
        b.free(memory);
    }),
    check("a clone", "ok nodes=1 word=4", |b| {
        let (memory, original, mut clone) = (b.alloc(8), graph(b), CUgraph::NULL);
        kernel_node(b, original, &[], FILL, &[memory.0, 1, 4]);
        b.code(b.cu.cuGraphClone(&mut clone, original));
        kernel_node(b, original, &[], FILL, &[memory.0, 1, 5]);
        b.value("nodes", node_count(b, clone));
        let exec = instantiate(b, clone);
        b.expect("launch", b.cu.cuGraphLaunch(exec, CUstream::NULL));
        b.value("word", b.read_words(memory, 1)[0]);
        end(b, clone, exec);
        b.expect("destroy", b.cu.cuGraphDestroy(original));
        b.free(memory);
    }),
    check("in the order of its stream", "word=12", |b| {
        let (memory, graph, stream) = (b.alloc(8), graph(b), b.stream(1));
        kernel_node(b, graph, &[], INCREMENT, &[memory.0, 1, 1, 0]);
        let exec = instantiate(b, graph);
        b.run(FILL, stream, &[memory.0, 1, 10]);
        b.expect("launch", b.cu.cuGraphLaunch(exec, stream));
        b.run(INCREMENT, stream, &[memory.0, 1, 1, 0]);
        b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
        b.value("word", b.read_words(memory, 1)[0]);
        end(b, graph, exec);
        b.end_stream(stream);
        b.free(memory);
    }),
    check("two launches of one do not overlap", "word=30", |b| {
        let (memory, graph, one, two) = (b.alloc_with(&[0; 8]), graph(b), b.stream(1), b.stream(1));
        kernel_node(b, graph, &[], INCREMENT, &[memory.0, 1, 3, 0]);
        let exec = instantiate(b, graph);
        for _ in 0..5 {
            b.expect("launch", b.cu.cuGraphLaunch(exec, one));
            b.expect("launch", b.cu.cuGraphLaunch(exec, two));
        }
        b.synchronize();
        b.value("word", b.read_words(memory, 1)[0]);
        end(b, graph, exec);
        b.end_stream(one);
        b.end_stream(two);
        b.free(memory);
    }),
    check(
        "errors",
        "INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE",
        |b| {
            let graph = graph(b);
            b.code(b.cu.cuGraphCreate(std::ptr::null_mut(), 0));
            b.code(b.cu.cuGraphCreate(&mut CUgraph::default(), 1));
            b.code(b.cu.cuGraphInstantiateWithFlags(std::ptr::null_mut(), graph, 0));
            b.code(b.cu.cuGraphInstantiateWithFlags(&mut CUgraphExec::default(), CUgraph::NULL, 0));
            b.code(b.cu.cuGraphLaunch(CUgraphExec::NULL, CUstream::NULL));
            b.code(b.cu.cuGraphAddKernelNode_v2(
                &mut CUgraphNode::default(),
                graph,
                std::ptr::null(),
                0,
                std::ptr::null(),
            ));
            b.expect("destroy", b.cu.cuGraphDestroy(graph));
        },
    ),
    alone("null ones destroyed", "INVALID_VALUE INVALID_VALUE", |b| {
        b.code(b.cu.cuGraphDestroy(CUgraph::NULL));
        b.code(b.cu.cuGraphExecDestroy(CUgraphExec::NULL));
    }),
    check("kernels that cannot be launched", "INVALID_VALUE", |b| {
        let (graph, mut node, mut none) = (graph(b), CUgraphNode::NULL, pointers(&[]));
        let mut params = kernel_params(b, FILL, &mut none);
        let values = [0, 0, 0];
        let mut parameters = pointers(&values);
        params.launch.parameters = parameters.as_mut_ptr().cast_const().cast();
        params.launch.block = [2000, 1, 1];
        let added = b.code(b.cu.cuGraphAddKernelNode_v2(&mut node, graph, std::ptr::null(), 0, &params));
        if added {
            b.code(b.cu.cuGraphInstantiateWithFlags(&mut CUgraphExec::default(), graph, 0));
        }
        b.expect("destroy", b.cu.cuGraphDestroy(graph));
    }),
];
