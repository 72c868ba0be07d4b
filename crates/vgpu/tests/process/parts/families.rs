//! What the programs of `families` do: one part a family.

use std::ffi::{CString, c_int, c_void};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use cuda::types::{CUcontext, CUdevice, CUdeviceptr, CUfunction, CUmodule, CUstream};
use cuda::{CUresult, Driver};

use super::{alloc, ok, start};

const FILL: &str = include_str!("../../../../../kernels/fill.ptx");

/// Calls a function by its name. Integers and pointers alone, so the types of the arguments are all there is to it.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr => $type:ty),* $(,)?)) => {{
        let name = CString::new(stringify!($name)).unwrap();
        let symbol = $driver.library.symbol(&name).unwrap();
        // SAFETY: the types are the symbol's; places live, and sizes are right.
        unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> CUresult>(symbol.as_ptr())
                ($($argument),*)
        }
    }};
}

type Handle = *mut c_void;
const NULL: Handle = std::ptr::null_mut();

fn read(driver: &Driver, address: CUdeviceptr, bytes: usize) -> Vec<u8> {
    let mut got = vec![0_u8; bytes];
    ok(call!(driver, cuMemcpyDtoH_v2(got.as_mut_ptr() => *mut u8, address => CUdeviceptr, bytes => usize)));
    got
}

fn set(driver: &Driver, address: CUdeviceptr, value: u8, bytes: usize) {
    ok(call!(driver, cuMemsetD8_v2(address => CUdeviceptr, value => u8, bytes => usize)));
}

/// The older form of a kernel node's parameters.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelNode {
    function: CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    parameters: *const *const u64,
    extra: Handle,
}

fn module(driver: &Driver) -> (CUmodule, CUfunction) {
    let text = CString::new(FILL).unwrap();
    let (mut module, mut function) = (CUmodule::NULL, CUfunction::NULL);
    // SAFETY: the places live, and the texts end with a zero.
    unsafe {
        ok((driver.cuModuleLoadData)(&mut module, text.as_ptr().cast()));
        ok((driver.cuModuleGetFunction)(&mut function, module, c"fill".as_ptr()));
    }
    (module, function)
}

pub(super) fn graph(driver: &Driver) {
    start(driver);
    let (_, function) = module(driver);
    let memory = alloc(driver, 64);
    let values = [memory.0, 8, 5_u64];
    let parameters: Vec<*const u64> = values.iter().map(std::ptr::from_ref).collect();
    let wanted = KernelNode {
        function,
        grid: [1; 3],
        block: [8, 1, 1],
        shared_bytes: 0,
        parameters: parameters.as_ptr(),
        extra: NULL,
    };
    let (mut graph, mut first, mut second) = (NULL, NULL, NULL);
    ok(call!(driver, cuGraphCreate(&mut graph => *mut Handle, 0 => u32)));
    ok(call!(driver, cuGraphAddEmptyNode(
        &mut first => *mut Handle, graph => Handle, std::ptr::null() => *const Handle, 0 => usize)));
    ok(call!(driver, cuGraphAddKernelNode(
        &mut second => *mut Handle, graph => Handle, &first => *const Handle, 1 => usize,
        &wanted => *const KernelNode)));

    let (mut from, mut to, mut count) = (NULL, NULL, 1_usize);
    ok(call!(driver, cuGraphGetEdges(
        graph => Handle, &mut from => *mut Handle, &mut to => *mut Handle, &mut count => *mut usize)));
    assert_eq!((from, to, count), (first, second, 1));
    let mut before = [NULL; 3];
    count = 3;
    ok(call!(driver, cuGraphNodeGetDependencies(
        second => Handle, before.as_mut_ptr() => *mut Handle, &mut count => *mut usize)));
    assert_eq!((before, count), ([first, NULL, NULL], 1), "the rest of the list is null");
    ok(call!(driver, cuGraphNodeGetDependentNodes(
        second => Handle, std::ptr::null_mut() => *mut Handle, &mut count => *mut usize)));
    assert_eq!(count, 0);
    let mut kind = 99;
    ok(call!(driver, cuGraphNodeGetType(second => Handle, &mut kind => *mut u32)));
    assert_eq!(kind, 0, "a kernel");

    let mut found = KernelNode { function: CUfunction::NULL, ..wanted };
    ok(call!(driver, cuGraphKernelNodeGetParams(second => Handle, &mut found => *mut KernelNode)));
    assert_eq!((found.function, found.block), (function, [8, 1, 1]));
    // SAFETY: the kernel has three parameters of eight bytes.
    let told = unsafe { (0..3).map(|index| **found.parameters.add(index)).collect::<Vec<_>>() };
    assert_eq!(told, values);

    let mut exec = NULL;
    ok(call!(driver, cuGraphInstantiateWithFlags(&mut exec => *mut Handle, graph => Handle, 0 => u64)));
    set(driver, memory, 0, 64);
    ok(call!(driver, cuGraphLaunch(exec => Handle, NULL => Handle)));
    assert_eq!(read(driver, memory, 8), 5_u64.to_le_bytes());
    let other = 6_u64;
    let changed: Vec<*const u64> = [&values[0], &values[1], &other].map(std::ptr::from_ref).to_vec();
    let wanted = KernelNode { parameters: changed.as_ptr(), ..wanted };
    ok(call!(driver, cuGraphExecKernelNodeSetParams(
        exec => Handle, second => Handle, &wanted => *const KernelNode)));
    ok(call!(driver, cuGraphLaunch(exec => Handle, NULL => Handle)));
    assert_eq!(read(driver, memory, 8), 6_u64.to_le_bytes());
}

pub(super) fn library(driver: &Driver) {
    start(driver);
    let text = CString::new(FILL).unwrap();
    let (mut library, mut kernel, mut count) = (NULL, NULL, 0);
    let none = std::ptr::null_mut();
    ok(call!(driver, cuLibraryLoadData(
        &mut library => *mut Handle, text.as_ptr() => *const i8, none => Handle, none => Handle, 0 => u32,
        none => Handle, none => Handle, 0 => u32)));
    ok(call!(driver, cuLibraryGetKernelCount(&mut count => *mut u32, library => Handle)));
    assert_eq!(count, 1);
    ok(call!(driver, cuLibraryGetKernel(
        &mut kernel => *mut Handle, library => Handle, c"fill".as_ptr() => *const i8)));
    // A kernel of a library can be launched as it is.
    let memory = alloc(driver, 64);
    let values = [memory.0, 8, 9_u64];
    let parameters: Vec<*const u64> = values.iter().map(std::ptr::from_ref).collect();
    ok(call!(driver, cuLaunchKernel(
        kernel => Handle, 1 => u32, 1 => u32, 1 => u32, 8 => u32, 1 => u32, 1 => u32, 0 => u32, NULL => Handle,
        parameters.as_ptr() => *const *const u64, NULL => Handle)));
    assert_eq!(read(driver, memory, 8), 9_u64.to_le_bytes());
    let (mut blocks, mut grid, mut block) = (0, 0, 0);
    ok(call!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &mut blocks => *mut c_int, kernel => Handle, 1024 => c_int, 0 => usize)));
    assert_eq!(blocks, 2, "2048 threads are two blocks of 1024");
    ok(call!(driver, cuOccupancyMaxPotentialBlockSize(
        &mut grid => *mut c_int, &mut block => *mut c_int, kernel => Handle, NULL => Handle, 0 => usize, 0 => c_int)));
    assert!(grid >= 1 && block >= 32, "{grid} {block}");
    ok(call!(driver, cuLibraryUnload(library => Handle)));

    let file = std::env::temp_dir().join(format!("vgpu-module-{}.ptx", std::process::id()));
    std::fs::write(&file, FILL).unwrap();
    let path = CString::new(file.to_str().unwrap()).unwrap();
    let mut module = NULL;
    let loaded = call!(driver, cuModuleLoad(&mut module => *mut Handle, path.as_ptr() => *const i8));
    std::fs::remove_file(&file).unwrap();
    ok(loaded);
    let missing = call!(driver, cuModuleLoad(&mut module => *mut Handle, path.as_ptr() => *const i8));
    assert_eq!(missing, CUresult::FILE_NOT_FOUND);
}

pub(super) fn batch(driver: &Driver) {
    let context = start(driver);
    let (one, two, mut stream) = (alloc(driver, 64), alloc(driver, 64), CUstream::NULL);
    set(driver, one, 3, 64);
    set(driver, two, 4, 64);
    // SAFETY: the place lives.
    ok(unsafe { (driver.cuStreamCreate)(&mut stream, 0) });
    let mut host = [0_u8; 32];
    let targets = [CUdeviceptr(host.as_mut_ptr().expose_provenance() as u64), CUdeviceptr(two.0 + 32)];
    let (sources, sizes, mut failed) = ([one, one], [32_usize, 16], 9_usize);
    ok(call!(driver, cuMemcpyBatchAsync(
        targets.as_ptr() => *const CUdeviceptr, sources.as_ptr() => *const CUdeviceptr,
        sizes.as_ptr() => *const usize, 2 => usize, NULL => Handle, NULL => Handle, 0 => usize,
        &mut failed => *mut usize, stream => CUstream)));
    // SAFETY: the stream lives.
    ok(unsafe { (driver.cuStreamSynchronize)(stream) });
    assert_eq!(std::hint::black_box(host), [3; 32]);
    assert_eq!(read(driver, two, 64), [[4; 32].as_slice(), &[3; 16], &[4; 16]].concat());

    // On the other GPU.
    let mut other = CUcontext::NULL;
    // SAFETY: the places live.
    unsafe {
        ok((driver.cuDevicePrimaryCtxRetain)(&mut other, CUdevice(1)));
        ok((driver.cuCtxSetCurrent)(other));
    }
    let there = alloc(driver, 64);
    ok(call!(driver, cuMemcpyPeer(
        there => CUdeviceptr, other => CUcontext, one => CUdeviceptr, context => CUcontext, 64 => usize)));
    assert_eq!(read(driver, there, 64), [3; 64]);
    let (mut can, mut info) = (0, [0_usize; 2]);
    ok(
        call!(driver, cuDeviceCanAccessPeer(&mut can => *mut c_int, CUdevice(0) => CUdevice, CUdevice(1) => CUdevice)),
    );
    assert_eq!(can, 1);
    ok(call!(driver, cuCtxEnablePeerAccess(context => CUcontext, 0 => u32)));
    let again = call!(driver, cuCtxEnablePeerAccess(context => CUcontext, 0 => u32));
    assert_eq!(again, CUresult::PEER_ACCESS_ALREADY_ENABLED);
    let [free, total] = &mut info;
    ok(call!(driver, cuMemGetInfo_v2(free => *mut usize, total => *mut usize)));
}

/// An operation of a batch.
#[repr(C)]
struct MemoryOperation {
    operation: u32,
    address: CUdeviceptr,
    value: u64,
    flags: u32,
    padding: [u64; 2],
}

pub(super) fn values(driver: &Driver) {
    start(driver);
    let (word, mut one, mut two) = (alloc(driver, 8), CUstream::NULL, CUstream::NULL);
    set(driver, word, 0, 8);
    // SAFETY: the places live.
    unsafe {
        ok((driver.cuCtxSynchronize)());
        ok((driver.cuStreamCreate)(&mut one, 1));
        ok((driver.cuStreamCreate)(&mut two, 1));
    }
    ok(call!(driver, cuStreamWaitValue64_v2(one => CUstream, word => CUdeviceptr, 7 => u64, 1 => u32)));
    // SAFETY: the stream lives.
    assert_eq!(unsafe { (driver.cuStreamQuery)(one) }, CUresult::NOT_READY);
    let operation =
        |operation, value| MemoryOperation { operation, address: word, value, flags: 0, padding: [0; 2] };
    let operations = [operation(5, 6), operation(5, 7)];
    ok(call!(driver, cuStreamBatchMemOp_v2(
        two => CUstream, 2 => u32, operations.as_ptr() => *const MemoryOperation, 0 => u32)));
    // SAFETY: the streams live.
    unsafe {
        ok((driver.cuStreamSynchronize)(two));
        ok((driver.cuStreamSynchronize)(one));
    }
    assert_eq!(read(driver, word, 8), 7_u64.to_le_bytes());
}

pub(super) fn ipc(driver: &Driver) {
    start(driver);
    let memory = alloc(driver, 4096);
    set(driver, memory, 21, 4096);
    let mut name = [0_u8; 64];
    ok(call!(driver, cuIpcGetMemHandle(&mut name => *mut [u8; 64], memory => CUdeviceptr)));
    let text: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "part", "--nocapture", "--test-threads=1", "-q"])
        .env(crate::PART, "ipc other")
        .stdin(Stdio::piped())
        .stdout(Stdio::inherit())
        .spawn()
        .unwrap();
    writeln!(other.stdin.take().unwrap(), "{text}").unwrap();
    assert!(other.wait().unwrap().success());
    assert_eq!(read(driver, memory, 16), [22; 16]);
}

/// The name is what the C function takes by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Name([u8; 64]);

pub(super) fn ipc_other(driver: &Driver) {
    start(driver);
    let mut line = String::new();
    BufReader::new(std::io::stdin()).read_line(&mut line).unwrap();
    let mut name = Name([0; 64]);
    for (index, byte) in name.0.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&line[2 * index..2 * index + 2], 16).unwrap();
    }
    let mut memory = CUdeviceptr(0);
    ok(call!(driver, cuIpcOpenMemHandle_v2(&mut memory => *mut CUdeviceptr, name => Name, 1 => u32)));
    assert_eq!(read(driver, memory, 16), [21; 16]);
    set(driver, memory, 22, 4096);
    // SAFETY: no condition.
    ok(unsafe { (driver.cuCtxSynchronize)() });
    ok(call!(driver, cuIpcCloseMemHandle(memory => CUdeviceptr)));
}

pub(super) fn refused(driver: &Driver) {
    let before = call!(driver, cuArrayCreate_v2(NULL => Handle, NULL => Handle));
    assert_eq!(before, CUresult::NOT_INITIALIZED);
    start(driver);
    let after = call!(driver, cuArrayCreate_v2(NULL => Handle, NULL => Handle));
    assert_eq!(after, CUresult::NOT_SUPPORTED);
}

pub(super) fn sticky(driver: &Driver) {
    start(driver);
    let (_, function) = module(driver);
    let values = [0x1000_u64, 1, 1];
    let parameters: Vec<*const u64> = values.iter().map(std::ptr::from_ref).collect();
    ok(call!(driver, cuLaunchKernel(
        function => CUfunction, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 0 => u32, NULL => Handle,
        parameters.as_ptr() => *const *const u64, NULL => Handle)));
    let mut context = CUcontext::NULL;
    // SAFETY: the place lives.
    unsafe {
        assert_eq!((driver.cuCtxSynchronize)(), CUresult::ILLEGAL_ADDRESS);
        ok((driver.cuDevicePrimaryCtxReset_v2)(CUdevice(0)));
        let again = (driver.cuDevicePrimaryCtxRetain)(&mut context, CUdevice(0));
        assert_eq!(again, CUresult::ILLEGAL_ADDRESS, "as with the real driver, not even a reset helps");
    }
}
