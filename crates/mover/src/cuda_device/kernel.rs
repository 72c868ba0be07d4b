//! A kernel on the GPU: loaded, launched, and unloaded when it is dropped.

use super::Context;
use super::context::{call, check};
use crate::device::DeviceError;
use cuda::types::{CUfunction, CUmodule, CUstream};
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(super) struct Kernel {
    context: Arc<Context>,
    module: CUmodule,
    function: CUfunction,
    threads: u32,
}

impl Kernel {
    /// Loads it, to be launched with blocks of so many threads. The context must be current.
    pub(super) fn load(
        context: &Arc<Context>,
        entry: &str,
        ptx: &'static str,
        threads: u32,
    ) -> Result<Kernel, DeviceError> {
        assert!(ptx.ends_with('\0'), "the driver looks for the end of the text");
        let entry = CString::new(entry).expect("a name without NUL");
        let (mut module, driver) = (CUmodule::NULL, &context.driver);
        // SAFETY: `module` is a place for the result, and the text ends with a NUL.
        unsafe { call!(driver, cuModuleLoadData(&mut module, ptx.as_ptr().cast::<c_void>())) }?;
        let mut kernel = Kernel { context: Arc::clone(context), module, function: CUfunction::NULL, threads };
        // SAFETY: `function` is a place for the result. Dropping unloads the module.
        unsafe { call!(driver, cuModuleGetFunction(&mut kernel.function, module, entry.as_ptr())) }?;
        Ok(kernel)
    }

    /// Puts a launch into a stream.
    ///
    /// # Safety
    /// These are the kernel's parameters, and what it does with them is sound until it has ended.
    pub(super) unsafe fn launch<const WORDS: usize>(
        &self,
        grid: u32,
        mut parameters: [u64; WORDS],
        stream: CUstream,
    ) -> Result<(), DeviceError> {
        let mut pointers = parameters.each_mut().map(|word| std::ptr::from_mut(word).cast::<c_void>());
        let (function, threads, pointers) = (self.function, self.threads, pointers.as_mut_ptr());
        let none = std::ptr::null_mut();
        // SAFETY: the driver reads the parameters during the call; the caller answers for the rest.
        unsafe {
            call!(
                self.context.driver,
                cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, 0, stream, pointers, none)
            )
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: whoever drops it has waited for its launches and has the context current.
        super::warn_if_failed(unsafe { call!(self.context.driver, cuModuleUnload(self.module)) });
    }
}
