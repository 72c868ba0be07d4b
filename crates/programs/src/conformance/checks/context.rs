//! Contexts: current ones, the stack of a thread, primary ones, and what becomes of what they held.

use cuda::CUresult;
use cuda::types::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUstream};

use super::{Check, alone, check};
use crate::bench::Bench;
use crate::kernels::FILL;

fn current(b: &Bench) -> CUcontext {
    let mut context = CUcontext(std::ptr::without_provenance_mut(1));
    b.expect("get-current", b.cu.cuCtxGetCurrent(&mut context));
    context
}

fn create(b: &Bench) -> CUcontext {
    let mut context = CUcontext::NULL;
    b.expect("create", b.cu.cuCtxCreate_v2(&mut context, 0, b.device));
    context
}

pub(super) const CHECKS: &[Check] = &[
    check("primary is active", "ok active=1 flags=0 same=true", |b| {
        let (mut flags, mut active) = (9, 9);
        b.code(b.cu.cuDevicePrimaryCtxGetState(b.device, &mut flags, &mut active));
        b.value("active", active);
        b.value("flags", flags);
        b.value("same", current(b) == b.context);
    }),
    check("primary is one", "ok same=true ok INVALID_DEVICE INVALID_VALUE", |b| {
        let mut again = CUcontext::NULL;
        b.code(b.cu.cuDevicePrimaryCtxRetain(&mut again, b.device));
        b.value("same", again == b.context);
        b.code(b.cu.cuDevicePrimaryCtxRelease_v2(b.device));
        b.code(b.cu.cuDevicePrimaryCtxRetain(&mut again, CUdevice(99)));
        b.code(b.cu.cuDevicePrimaryCtxRetain(std::ptr::null_mut(), b.device));
    }),
    // 8: host memory can be mapped, which is always so today.
    check("device, flags, version", "ok 0 ok 8 ok some=true", |b| {
        let (mut device, mut flags, mut version) = (CUdevice(-1), 99, 0);
        b.code(b.cu.cuCtxGetDevice(&mut device));
        b.say(device.0);
        b.code(b.cu.cuCtxGetFlags(&mut flags));
        b.say(flags);
        b.code(b.cu.cuCtxGetApiVersion(b.context, &mut version));
        b.value("some", version > 3000);
    }),
    check("create makes current", "current=true differs=true ok back=true", |b| {
        let context = create(b);
        b.value("current", current(b) == context);
        b.value("differs", context != b.context);
        b.code(b.cu.cuCtxDestroy_v2(context));
        b.value("back", current(b) == b.context);
    }),
    check("create errors", "INVALID_VALUE INVALID_VALUE INVALID_DEVICE", |b| {
        let mut context = CUcontext::NULL;
        b.code(b.cu.cuCtxCreate_v2(std::ptr::null_mut(), 0, b.device));
        b.code(b.cu.cuCtxCreate_v2(&mut context, 0xFFFF, b.device));
        b.code(b.cu.cuCtxCreate_v2(&mut context, 0, CUdevice(99)));
    }),
    check("ids differ", "ok ok differ=true", |b| {
        let context = create(b);
        let (mut one, mut two) = (0, 0);
        b.code(b.cu.cuCtxGetId(b.context, &mut one));
        b.code(b.cu.cuCtxGetId(context, &mut two));
        b.value("differ", one != two);
        b.expect("destroy", b.cu.cuCtxDestroy_v2(context));
    }),
    check("push and pop", "ok current=true ok popped=true back=true", |b| {
        let context = create(b);
        b.expect("pop", b.cu.cuCtxPopCurrent_v2(std::ptr::null_mut()));
        b.code(b.cu.cuCtxPushCurrent_v2(context));
        b.value("current", current(b) == context);
        let mut popped = CUcontext::NULL;
        b.code(b.cu.cuCtxPopCurrent_v2(&mut popped));
        b.value("popped", popped == context);
        b.value("back", current(b) == b.context);
        b.expect("destroy", b.cu.cuCtxDestroy_v2(context));
    }),
    check("set replaces the top", "ok popped=true null=true", |b| {
        let context = create(b);
        b.expect("pop", b.cu.cuCtxPopCurrent_v2(std::ptr::null_mut()));
        b.code(b.cu.cuCtxSetCurrent(context));
        let mut popped = CUcontext::NULL;
        b.expect("pop", b.cu.cuCtxPopCurrent_v2(&mut popped));
        b.value("popped", popped == context);
        b.value("null", current(b).is_null());
        b.expect("destroy", b.cu.cuCtxDestroy_v2(context));
    }),
    check("none current", "ok null=true INVALID_CONTEXT INVALID_CONTEXT INVALID_CONTEXT", |b| {
        b.code(b.cu.cuCtxSetCurrent(CUcontext::NULL));
        b.value("null", current(b).is_null());
        b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
        b.code(b.cu.cuStreamCreate(&mut CUstream::default(), 0));
        b.code(b.cu.cuCtxPopCurrent_v2(&mut CUcontext::default()));
    }),
    check("null ones", "INVALID_VALUE INVALID_VALUE INVALID_VALUE", |b| {
        b.code(b.cu.cuCtxGetCurrent(std::ptr::null_mut()));
        b.code(b.cu.cuCtxPushCurrent_v2(CUcontext::NULL));
        b.code(b.cu.cuCtxDestroy_v2(CUcontext::NULL));
    }),
    check("a thread begins with none", "null=true INVALID_CONTEXT ok ok", |b| {
        let (cu, context) = (b.cu, b.context);
        let thread = std::thread::spawn(move || {
            let mut current = CUcontext(std::ptr::without_provenance_mut(1));
            let mut address = CUdeviceptr(0);
            let got = cu.cuCtxGetCurrent(&mut current);
            let without = cu.cuMemAlloc_v2(&mut address, 64);
            let set = cu.cuCtxSetCurrent(context);
            let with = cu.cuMemAlloc_v2(&mut address, 64);
            (got == CUresult::SUCCESS && current.is_null(), without, set, with, address)
        });
        if let Ok((null, without, set, with, address)) = thread.join() {
            b.value("null", null);
            b.code(without);
            b.code(set);
            b.code(with);
            b.free(address);
        }
    }),
    // A limit that is none is a wrong value, not an unsupported limit.
    check("limits", "ok same=true INVALID_VALUE INVALID_VALUE ok", |b| {
        let (mut before, mut after) = (0, 0);
        let stack_size = 0;
        b.code(b.cu.cuCtxGetLimit(&mut before, stack_size));
        b.expect("set", b.cu.cuCtxSetLimit(stack_size, before));
        b.expect("get", b.cu.cuCtxGetLimit(&mut after, stack_size));
        b.value("same", before == after && before > 0);
        b.code(b.cu.cuCtxGetLimit(&mut after, 999));
        b.code(b.cu.cuCtxGetLimit(std::ptr::null_mut(), stack_size));
        b.code(b.cu.cuCtxSetLimit(stack_size, 2048));
        b.expect("back", b.cu.cuCtxSetLimit(stack_size, before));
    }),
    check("priorities", "ok least=0 greater=true ok", |b| {
        let (mut least, mut greatest) = (9, 9);
        b.code(b.cu.cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
        b.value("least", least);
        b.value("greater", greatest < 0);
        b.code(b.cu.cuCtxGetStreamPriorityRange(std::ptr::null_mut(), std::ptr::null_mut()));
    }),
    check("memory of another context", "ok bytes=0102030405060708 ok", |b| {
        let memory = b.alloc_with(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let context = create(b);
        let mut bytes = [0; 8];
        b.code(b.cu.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), memory, 8));
        b.bytes("bytes", &bytes);
        b.code(b.cu.cuMemFree_v2(memory));
        b.expect("destroy", b.cu.cuCtxDestroy_v2(context));
    }),
    check("stream of another context", "INVALID_HANDLE INVALID_HANDLE ok ok", |b| {
        let (memory, stream) = (b.alloc(64), b.stream(0));
        let context = create(b);
        let function = b.function_in(b.module(FILL), FILL);
        b.code(b.launch_function(function, (1, 1), stream, &[memory.0, 1, 1]));
        let event = b.event(0);
        b.code(b.cu.cuEventRecord(event, stream));
        b.code(b.cu.cuStreamQuery(stream));
        b.code(b.cu.cuMemsetD8Async(memory, 1, 64, stream));
        b.expect("destroy", b.cu.cuCtxDestroy_v2(context));
        b.end_stream(stream);
        b.free(memory);
    }),
    check("function of another context", "INVALID_HANDLE", |b| {
        let (memory, function) = (b.alloc(64), b.function(FILL));
        let context = create(b);
        b.code(b.launch_function(function, (1, 1), CUstream::NULL, &[memory.0, 1, 1]));
        b.expect("destroy", b.cu.cuCtxDestroy_v2(context));
        b.free(memory);
    }),
    check("destroyed with all it held", "ok INVALID_VALUE", |b| {
        let context = create(b);
        let memory = b.alloc(1 << 20);
        b.code(b.cu.cuCtxDestroy_v2(context));
        b.code(b.cu.cuMemFree_v2(memory));
    }),
    alone("destroyed by another thread", "ok CONTEXT_IS_DESTROYED", |b| {
        let context = create(b);
        let cu = b.cu;
        let code = std::thread::spawn(move || cu.cuCtxDestroy_v2(context)).join();
        b.code(code.unwrap_or(CUresult::UNKNOWN));
        b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
    }),
    alone("primary destroyed like another", "INVALID_CONTEXT ok", |b| {
        b.code(b.cu.cuCtxDestroy_v2(b.context));
        b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
    }),
    alone("primary released", "ok active=0 CONTEXT_IS_DESTROYED INVALID_CONTEXT", |b| {
        b.code(b.cu.cuDevicePrimaryCtxRelease_v2(b.device));
        let (mut flags, mut active) = (9, 9);
        b.expect("state", b.cu.cuDevicePrimaryCtxGetState(b.device, &mut flags, &mut active));
        b.value("active", active);
        b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
        b.code(b.cu.cuDevicePrimaryCtxRelease_v2(b.device));
    }),
    alone("primary retained again", "ok ok same=true ok ok", |b| {
        b.code(b.cu.cuDevicePrimaryCtxRelease_v2(b.device));
        let mut context = CUcontext::NULL;
        b.code(b.cu.cuDevicePrimaryCtxRetain(&mut context, b.device));
        b.value("same", context == b.context);
        b.code(b.cu.cuCtxSetCurrent(context));
        b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
    }),
    alone("primary reset", "ok active=0 CONTEXT_IS_DESTROYED CONTEXT_IS_DESTROYED ok ok", |b| {
        let memory = b.alloc(1 << 20);
        b.code(b.cu.cuDevicePrimaryCtxReset_v2(b.device));
        let (mut flags, mut active) = (9, 9);
        b.expect("state", b.cu.cuDevicePrimaryCtxGetState(b.device, &mut flags, &mut active));
        b.value("active", active);
        b.code(b.cu.cuMemFree_v2(memory));
        b.code(b.cu.cuEventCreate(&mut CUevent::default(), 0));
        let mut context = CUcontext::NULL;
        b.code(b.cu.cuDevicePrimaryCtxRetain(&mut context, b.device));
        b.expect("set", b.cu.cuCtxSetCurrent(context));
        b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
    }),
    alone("primary flags", "ok flags=4 INVALID_VALUE INVALID_DEVICE", |b| {
        let blocking_sync = 4;
        b.code(b.cu.cuDevicePrimaryCtxSetFlags_v2(b.device, blocking_sync));
        let (mut flags, mut active) = (9, 9);
        b.expect("state", b.cu.cuDevicePrimaryCtxGetState(b.device, &mut flags, &mut active));
        b.value("flags", flags);
        b.code(b.cu.cuDevicePrimaryCtxSetFlags_v2(b.device, 0xFFFF));
        b.code(b.cu.cuDevicePrimaryCtxSetFlags_v2(CUdevice(99), 0));
    }),
];
