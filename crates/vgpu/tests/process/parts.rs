//! What the programs of these tests do.

mod families;

use std::ffi::{c_int, c_void};
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use cuda::types::{CUcontext, CUdevice, CUdeviceptr, CUfunction, CUmodule, CUstream};
use cuda::{CUresult, Driver, Library};

/// Plays the part of this name.
pub(crate) fn play(name: &str) {
    let driver = Driver::load(Library::open("libcuda.so.1").unwrap()).unwrap();
    match name {
        "nothing" => nothing(&driver),
        "copy" => copy(&driver),
        "hold" => hold(&driver),
        "all free" => all_free(&driver),
        "count" => count(&driver),
        "fork" => fork(&driver),
        "callback" => callback(&driver),
        "threads" => threads(&driver),
        "kernel" => kernel(&driver),
        "unknown kernel" => unknown_kernel(&driver),
        "managed" => managed(&driver),
        "graph" => families::graph(&driver),
        "library" => families::library(&driver),
        "batch" => families::batch(&driver),
        "values" => families::values(&driver),
        "ipc" => families::ipc(&driver),
        "ipc other" => families::ipc_other(&driver),
        "refused" => families::refused(&driver),
        "sticky" => families::sticky(&driver),
        other => panic!("no part {other}"),
    }
}

fn ok(code: CUresult) {
    code.ok().unwrap();
}

fn start(driver: &Driver) -> CUcontext {
    let mut context = CUcontext::NULL;
    // SAFETY: the places live.
    unsafe {
        ok((driver.cuInit)(0));
        ok((driver.cuDevicePrimaryCtxRetain)(&mut context, CUdevice(0)));
        ok((driver.cuCtxSetCurrent)(context));
    }
    context
}

fn alloc(driver: &Driver, bytes: usize) -> CUdeviceptr {
    let mut address = CUdeviceptr(0);
    // SAFETY: the place lives.
    ok(unsafe { (driver.cuMemAlloc_v2)(&mut address, bytes) });
    address
}

/// Bytes to the device and back.
fn round_trip(driver: &Driver, bytes: usize) {
    let address = alloc(driver, bytes);
    let sent: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
    let mut got = vec![0_u8; bytes];
    // SAFETY: the memory has this size on both sides, and lives until the stream is done.
    unsafe {
        ok((driver.cuMemcpyHtoDAsync_v2)(address, sent.as_ptr().cast(), bytes, CUstream::NULL));
        ok((driver.cuMemcpyDtoHAsync_v2)(got.as_mut_ptr().cast(), address, bytes, CUstream::NULL));
        ok((driver.cuStreamSynchronize)(CUstream::NULL));
        ok((driver.cuMemFree_v2)(address));
    }
    assert!(sent == got, "the bytes that came back are others");
}

fn nothing(driver: &Driver) {
    // SAFETY: no condition.
    assert_eq!(unsafe { (driver.cuInit)(0) }, CUresult::NO_DEVICE);
}

fn copy(driver: &Driver) {
    start(driver);
    round_trip(driver, 3 << 20);
}

fn hold(driver: &Driver) {
    start(driver);
    alloc(driver, 64 << 20);
    println!("holding");
    std::io::stdout().flush().unwrap();
    // Until it is killed, or nobody listens any more.
    let _ = std::io::stdin().read(&mut [0]);
    std::thread::sleep(crate::bench::PATIENCE);
}

fn all_free(driver: &Driver) {
    start(driver);
    let (mut free, mut total) = (0, 0);
    // SAFETY: the places live.
    ok(unsafe { (driver.cuMemGetInfo_v2)(&mut free, &mut total) });
    println!("used {}", total - free);
}

fn count(driver: &Driver) {
    let mut count: c_int = -1;
    // SAFETY: the place lives.
    let codes = unsafe { ((driver.cuInit)(0), (driver.cuDeviceGetCount)(&mut count)) };
    println!("count {count} {}", codes.0.0);
}

fn fork(driver: &Driver) {
    start(driver);
    // SAFETY: the child only asks the driver, and leaves without unwinding.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let mut address = CUdeviceptr(0);
            let codes = [(driver.cuInit)(0), (driver.cuMemAlloc_v2)(&mut address, 64)];
            let right = codes == [CUresult::NOT_INITIALIZED; 2];
            libc::_exit(if right { 0 } else { 1 });
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status}");
    }
    round_trip(driver, 1 << 20);
}

static CALLED: AtomicU32 = AtomicU32::new(0);
static CODE: AtomicU32 = AtomicU32::new(0);

fn callback(driver: &Driver) {
    unsafe extern "C" fn called(driver: *mut c_void) {
        // SAFETY: the driver outlives the stream's work.
        let driver = unsafe { &*driver.cast::<Driver>() };
        // SAFETY: no condition.
        CODE.store(unsafe { (driver.cuCtxSynchronize)() }.0, SeqCst);
        CALLED.fetch_add(1, SeqCst);
    }
    type LaunchHostFunc =
        unsafe extern "C" fn(CUstream, unsafe extern "C" fn(*mut c_void), *mut c_void) -> CUresult;
    start(driver);
    let address = driver.library.symbol(c"cuLaunchHostFunc").unwrap();
    // SAFETY: the symbol's type.
    let launch = unsafe { std::mem::transmute::<*mut c_void, LaunchHostFunc>(address.as_ptr()) };
    for _ in 0..10 {
        let data = std::ptr::from_ref(driver).cast_mut().cast();
        // SAFETY: the function and its argument live until the stream is done.
        ok(unsafe { launch(CUstream::NULL, called, data) });
    }
    // SAFETY: no condition.
    ok(unsafe { (driver.cuStreamSynchronize)(CUstream::NULL) });
    assert_eq!(CALLED.load(SeqCst), 10);
    assert_eq!(CUresult(CODE.load(SeqCst)), CUresult::NOT_PERMITTED, "a callback may not call the driver");
}

fn threads(driver: &Driver) {
    let context = start(driver);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                // SAFETY: the context lives.
                ok(unsafe { (driver.cuCtxSetCurrent)(context) });
                (0..20).for_each(|round| round_trip(driver, 1000 + round * 777));
            });
        }
    });
}

fn kernel(driver: &Driver) {
    const FILL: &str = include_str!("../../../../kernels/fill.ptx");
    const WORDS: u64 = 1000;
    start(driver);
    let mut address = alloc(driver, WORDS as usize * 8);
    let text = std::ffi::CString::new(FILL).unwrap();
    let (mut module, mut function) = (CUmodule::NULL, CUfunction::NULL);
    let (mut words, mut value) = (WORDS, 0x0123_4567_89ab_cdef_u64);
    let mut parameters: [*mut c_void; 3] =
        [(&raw mut address).cast(), (&raw mut words).cast(), (&raw mut value).cast()];
    let mut got = vec![0_u64; WORDS as usize];
    // SAFETY: the kernel takes these parameters and writes as many words as there are.
    unsafe {
        ok((driver.cuModuleLoadData)(&mut module, text.as_ptr().cast()));
        ok((driver.cuModuleGetFunction)(&mut function, module, c"fill".as_ptr()));
        let (stream, none) = (CUstream::NULL, std::ptr::null_mut());
        ok((driver.cuLaunchKernel)(function, 2, 1, 1, 64, 1, 1, 0, stream, parameters.as_mut_ptr(), none));
        ok((driver.cuMemcpyDtoHAsync_v2)(got.as_mut_ptr().cast(), address, got.len() * 8, stream));
        ok((driver.cuStreamSynchronize)(stream));
    }
    assert!(got.iter().all(|word| *word == value));
}

fn unknown_kernel(driver: &Driver) {
    let text = c".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry strange() { ret; }\n";
    start(driver);
    let mut module = CUmodule::NULL;
    // SAFETY: the place lives, and the text ends with a zero.
    let code = unsafe { (driver.cuModuleLoadData)(&mut module, text.as_ptr().cast()) };
    assert_eq!(code, CUresult::NO_BINARY_FOR_GPU);
}

fn managed(driver: &Driver) {
    type AllocManaged = unsafe extern "C" fn(*mut CUdeviceptr, usize, u32) -> CUresult;
    start(driver);
    let address = driver.library.symbol(c"cuMemAllocManaged").unwrap();
    // SAFETY: the symbol's type.
    let alloc_managed = unsafe { std::mem::transmute::<*mut c_void, AllocManaged>(address.as_ptr()) };
    let (mut memory, plain) = (CUdeviceptr(0), alloc(driver, 4096));
    // SAFETY: the managed memory has 4096 bytes, which both sides reach.
    unsafe {
        ok(alloc_managed(&mut memory, 4096, 1));
        let host: *mut u8 = std::ptr::with_exposed_provenance_mut(memory.0 as usize);
        host.write_bytes(7, 4096);
        ok((driver.cuMemcpyHtoDAsync_v2)(plain, host.cast(), 4096, CUstream::NULL));
        ok((driver.cuStreamSynchronize)(CUstream::NULL));
        host.write_bytes(0, 4096);
        ok((driver.cuMemcpyDtoHAsync_v2)(host.cast(), plain, 4096, CUstream::NULL));
        ok((driver.cuStreamSynchronize)(CUstream::NULL));
        assert_eq!(host.add(4095).read(), 7);
        ok((driver.cuMemFree_v2)(memory));
        assert_eq!((driver.cuMemFree_v2)(memory), CUresult::INVALID_VALUE);
    }
}
