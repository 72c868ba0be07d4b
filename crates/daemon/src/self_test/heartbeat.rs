//! The tenant of the self-test: a kernel that counts until it is told to stop.

use super::{HEARTBEAT_BYTES, Heartbeat};
use anyhow::Context as _;
use cuda::types::{CUcontext, CUdevice, CUdeviceptr, CUfunction, CUmodule, CUstream};
use cuda::{Driver, Library};
use rustix::process::Signal;
use std::ffi::{CString, c_uint, c_void};
use std::os::fd::AsFd;

/// Maps host memory so that the device can reach it.
const HOST_REGISTER_DEVICEMAP: c_uint = 2;

/// Runs the kernel on the shared words behind standard input. Returns when the kernel has ended. Should `parent` end before,
/// whoever ends it, nobody is left to stop the kernel, and this process is killed.
pub fn tenant(parent: u32) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot bind this process to the self-test")?;
    let is_there = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    anyhow::ensure!(is_there == Some(parent), "the self-test is gone");
    let words = std::io::stdin().as_fd().try_clone_to_owned()?;
    let heartbeat = Heartbeat::map(&words).context("cannot map the words behind standard input")?;
    // By its name, as a program would: the loader answers with the shim.
    let driver = Driver::load(Library::open("libcuda.so.1")?)?;
    let ptx = CString::new(channels::HEARTBEAT_PTX)?;
    let host: *mut c_void = std::ptr::from_ref(heartbeat.counter()).cast_mut().cast();
    let mut device = CUdevice::default();
    let mut context = CUcontext::default();
    let mut module = CUmodule::default();
    let mut function = CUfunction::default();
    let mut counter = CUdeviceptr::default();
    // SAFETY: all pointers are to live values of the types that the driver expects; the host words stay mapped.
    unsafe {
        (driver.cuInit)(0).ok().context("cuInit")?;
        (driver.cuDeviceGet)(&mut device, 0).ok().context("cuDeviceGet")?;
        (driver.cuDevicePrimaryCtxRetain)(&mut context, device).ok().context("cuDevicePrimaryCtxRetain")?;
        (driver.cuCtxSetCurrent)(context).ok().context("cuCtxSetCurrent")?;
        (driver.cuMemHostRegister_v2)(host, HEARTBEAT_BYTES, HOST_REGISTER_DEVICEMAP)
            .ok()
            .context("cuMemHostRegister")?;
        (driver.cuMemHostGetDevicePointer_v2)(&mut counter, host, 0)
            .ok()
            .context("cuMemHostGetDevicePointer")?;
        (driver.cuModuleLoadData)(&mut module, ptx.as_ptr().cast()).ok().context("cuModuleLoadData")?;
        (driver.cuModuleGetFunction)(&mut function, module, c"heartbeat".as_ptr())
            .ok()
            .context("cuModuleGetFunction")?;
    }
    let mut stop = counter;
    stop.0 += size_of::<u64>() as u64;
    let mut limit = u64::MAX;
    let mut arguments: [*mut c_void; 3] =
        [(&raw mut counter).cast(), (&raw mut stop).cast(), (&raw mut limit).cast()];
    // SAFETY: the kernel takes these three 64-bit values and touches only the two words they name.
    unsafe {
        let no_extra = std::ptr::null_mut();
        (driver.cuLaunchKernel)(
            function,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            CUstream::default(),
            arguments.as_mut_ptr(),
            no_extra,
        )
        .ok()
        .context("cuLaunchKernel")?;
        (driver.cuCtxSynchronize)().ok().context("cuCtxSynchronize")?;
    }
    Ok(())
}
