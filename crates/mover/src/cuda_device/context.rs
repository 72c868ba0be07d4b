//! Finding a GPU, and the daemon's context there: what every call needs, also from other threads.

use crate::device::{DeviceError, Registrar};
use cuda::types::{CUcontext, CUdevice, CUuuid};
use cuda::{CUresult, Driver};
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

/// Room for a device's name.
const NAME_BYTES_MAX: usize = 256;
/// Portable: the movers of all GPUs copy from and to the same memory.
const REGISTER_FLAGS: u32 = 1;

/// Which GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// By its number in this process.
    Index(i32),
    /// By its id, as `GPU-…`.
    Uuid(String),
}

/// Turns a result into ours, with the name of the call.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<(), DeviceError> {
    result.ok().map_err(|error| DeviceError::Call { call, code: error.0 })
}

/// Calls a driver function and checks its result.
macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        check(stringify!($function), ($driver.$function)($($argument),*))
    };
}
pub(super) use call;

/// The context, and the right to use it; released when the last user is gone.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) driver: Arc<Driver>,
    pub(super) device: CUdevice,
    context: CUcontext,
}

impl Context {
    pub(super) fn retain(driver: Arc<Driver>, device: CUdevice) -> Result<Context, DeviceError> {
        let mut context = CUcontext::NULL;
        // SAFETY: `context` is a place for the result.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&mut context, device)) }?;
        Ok(Context { driver, device, context })
    }

    pub(super) fn make_current(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained for as long as `self` lives.
        unsafe { call!(self.driver, cuCtxSetCurrent(self.context)) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once by `retain`.
        if let Err(error) = unsafe { call!(self.driver, cuDevicePrimaryCtxRelease_v2(self.device)) } {
            tracing::warn!(%error, "cannot release the context");
        }
    }
}

pub(super) fn find(driver: &Driver, which: &Which) -> Result<CUdevice, DeviceError> {
    let mut count = 0;
    // SAFETY: `count` is a place for the result.
    unsafe { call!(driver, cuDeviceGetCount(&mut count)) }?;
    let mut found = Vec::new();
    for index in 0..count {
        let mut device = CUdevice(0);
        // SAFETY: `device` is a place for the result.
        unsafe { call!(driver, cuDeviceGet(&mut device, index)) }?;
        let id = uuid(driver, device)?;
        let is_wanted = match which {
            Which::Index(wanted) => *wanted == index,
            Which::Uuid(wanted) => *wanted == id,
        };
        if is_wanted {
            return Ok(device);
        }
        found.push(id);
    }
    let wanted = match which {
        Which::Index(index) => index.to_string(),
        Which::Uuid(uuid) => uuid.clone(),
    };
    Err(DeviceError::NoSuchDevice { wanted, found: found.join(", ") })
}

pub(super) fn uuid(driver: &Driver, device: CUdevice) -> Result<String, DeviceError> {
    let mut uuid = CUuuid::default();
    // SAFETY: `uuid` is a place for the result.
    unsafe { call!(driver, cuDeviceGetUuid_v2(&mut uuid, device)) }?;
    Ok(uuid.to_string())
}

pub(super) fn name(driver: &Driver, device: CUdevice) -> Result<String, DeviceError> {
    let mut text = [0u8; NAME_BYTES_MAX];
    let place = text.as_mut_ptr().cast::<c_char>();
    // SAFETY: `place` has room for as many bytes as are named.
    unsafe { call!(driver, cuDeviceGetName(place, NAME_BYTES_MAX as i32, device)) }?;
    let name = CStr::from_bytes_until_nul(&text).map(|name| name.to_string_lossy().into_owned());
    Ok(name.unwrap_or_default())
}

/// Registers host memory for the contexts of all devices, from any thread.
#[derive(Debug)]
pub struct CudaRegistrar {
    pub(super) context: Arc<Context>,
}

impl Registrar for CudaRegistrar {
    unsafe fn register(&mut self, start: *mut u8, bytes: u64) -> Result<(), DeviceError> {
        self.context.make_current()?;
        let (start, size) = (start.cast::<c_void>(), bytes as usize);
        // SAFETY: the caller says that the range is mapped and stays so.
        unsafe { call!(self.context.driver, cuMemHostRegister_v2(start, size, REGISTER_FLAGS)) }
    }

    unsafe fn unregister(&mut self, start: *mut u8) -> Result<(), DeviceError> {
        self.context.make_current()?;
        // SAFETY: the caller says that no copy of the range is under way.
        unsafe { call!(self.context.driver, cuMemHostUnregister(start.cast::<c_void>())) }
    }
}
