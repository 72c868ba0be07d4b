//! A place to try driver calls on: one device, usually its primary context, the project's kernels, and a record of what
//! came out, in words without addresses or times, so that two drivers can be compared.

pub(crate) mod gate;
pub(crate) mod words;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::fmt::Display;

use cuda::CUresult;
use cuda::types::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream};

use crate::api::{Api, ApiError};
use crate::kernels::Kernel;

/// A device, its calls and the record.
pub(crate) struct Bench {
    pub(crate) cu: &'static Api,
    pub(crate) device: CUdevice,
    /// The device's primary context; null on a bare bench.
    pub(crate) context: CUcontext,
    record: RefCell<Vec<String>>,
    functions: RefCell<HashMap<&'static str, CUfunction>>,
}

impl Bench {
    /// A bench on which not even `cuInit` was called.
    pub(crate) fn bare() -> Result<Bench, ApiError> {
        Ok(Bench {
            // Lives as long as the process, so that threads and callbacks can use it.
            cu: Box::leak(Box::new(Api::open()?)),
            device: CUdevice(0),
            context: CUcontext::NULL,
            record: RefCell::default(),
            functions: RefCell::default(),
        })
    }

    /// A bench with the first device's primary context current; anything that fails on the way is in the record.
    pub(crate) fn with_context() -> Result<Bench, ApiError> {
        Self::with_context_on(0)
    }

    /// The same on another device, by its place.
    pub(crate) fn with_context_on(place: i32) -> Result<Bench, ApiError> {
        let mut bench = Bench::bare()?;
        bench.expect("init", bench.cu.cuInit(0));
        let mut device = CUdevice(-1);
        bench.expect("device", bench.cu.cuDeviceGet(&mut device, place));
        let mut context = CUcontext::NULL;
        bench.expect("retain", bench.cu.cuDevicePrimaryCtxRetain(&mut context, device));
        bench.expect("set-current", bench.cu.cuCtxSetCurrent(context));
        bench.device = device;
        bench.context = context;
        Ok(bench)
    }

    /// How many devices there are.
    pub(crate) fn devices(&self) -> i32 {
        let mut count = 0;
        self.expect("count", self.cu.cuDeviceGetCount(&mut count));
        count
    }

    /// Makes its context the calling thread's.
    pub(crate) fn enter(&self) -> CUresult {
        self.cu.cuCtxSetCurrent(self.context)
    }

    /// Takes the record out: the words said since the last time, separated by spaces.
    pub(crate) fn take_record(&self) -> String {
        self.record.take().join(" ")
    }

    /// Records a word.
    pub(crate) fn say(&self, word: impl Display) {
        self.record.borrow_mut().push(word.to_string());
    }

    /// Records what a call returned; true if it succeeded.
    pub(crate) fn code(&self, code: CUresult) -> bool {
        self.say(words::code(code));
        code == CUresult::SUCCESS
    }

    /// Records a named value.
    pub(crate) fn value(&self, name: &str, value: impl Display) {
        self.say(format!("{name}={value}"));
    }

    /// Records bytes: short ones as they are, long ones by their hash.
    pub(crate) fn bytes(&self, name: &str, bytes: &[u8]) {
        self.value(name, words::bytes(bytes));
    }

    /// Records a call only if it fails: for what a check needs and is not about.
    pub(crate) fn expect(&self, name: &str, code: CUresult) -> bool {
        if code != CUresult::SUCCESS {
            self.say(format!("{name}!{}", words::code(code)));
        }
        code == CUresult::SUCCESS
    }

    /// Allocates device memory.
    pub(crate) fn alloc(&self, bytes: usize) -> CUdeviceptr {
        let mut address = CUdeviceptr(0);
        self.expect("alloc", self.cu.cuMemAlloc_v2(&mut address, bytes));
        address
    }

    /// Frees device memory.
    pub(crate) fn free(&self, address: CUdeviceptr) {
        self.expect("free", self.cu.cuMemFree_v2(address));
    }

    /// Copies bytes to the device.
    pub(crate) fn write(&self, to: CUdeviceptr, bytes: &[u8]) {
        self.expect("write", self.cu.cuMemcpyHtoD_v2(to, bytes.as_ptr().cast(), bytes.len()));
    }

    /// Copies bytes from the device.
    pub(crate) fn read(&self, from: CUdeviceptr, count: usize) -> Vec<u8> {
        let mut bytes = vec![0xEE; count];
        self.expect("read", self.cu.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), from, count));
        bytes
    }

    /// Copies words from the device.
    pub(crate) fn read_words(&self, from: CUdeviceptr, count: usize) -> Vec<u64> {
        let bytes = self.read(from, count * 8);
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
    }

    /// Allocates memory and fills it with bytes.
    pub(crate) fn alloc_with(&self, bytes: &[u8]) -> CUdeviceptr {
        let address = self.alloc(bytes.len());
        self.write(address, bytes);
        address
    }

    /// Makes a stream.
    pub(crate) fn stream(&self, flags: u32) -> CUstream {
        let mut stream = CUstream::NULL;
        self.expect("stream", self.cu.cuStreamCreate(&mut stream, flags));
        stream
    }

    /// Destroys a stream.
    pub(crate) fn end_stream(&self, stream: CUstream) {
        self.expect("stream-destroy", self.cu.cuStreamDestroy_v2(stream));
    }

    /// Makes an event.
    pub(crate) fn event(&self, flags: u32) -> CUevent {
        let mut event = CUevent::NULL;
        self.expect("event", self.cu.cuEventCreate(&mut event, flags));
        event
    }

    /// Destroys an event.
    pub(crate) fn end_event(&self, event: CUevent) {
        self.expect("event-destroy", self.cu.cuEventDestroy_v2(event));
    }

    /// Waits for everything.
    pub(crate) fn synchronize(&self) -> bool {
        self.expect("synchronize", self.cu.cuCtxSynchronize())
    }

    /// Loads a kernel's module.
    pub(crate) fn module(&self, kernel: Kernel) -> CUmodule {
        let mut module = CUmodule::NULL;
        self.expect("load", self.cu.cuModuleLoadData(&mut module, kernel.ptx.as_ptr().cast()));
        module
    }

    /// Finds a kernel in a loaded module.
    pub(crate) fn function_in(&self, module: CUmodule, kernel: Kernel) -> CUfunction {
        let name = CString::new(kernel.entry).unwrap_or_default();
        let mut function = CUfunction::NULL;
        self.expect("function", self.cu.cuModuleGetFunction(&mut function, module, name.as_ptr()));
        function
    }

    /// A kernel in the primary context, loaded once.
    pub(crate) fn function(&self, kernel: Kernel) -> CUfunction {
        if let Some(function) = self.functions.borrow().get(kernel.entry) {
            return *function;
        }
        let function = self.function_in(self.module(kernel), kernel);
        self.functions.borrow_mut().insert(kernel.entry, function);
        function
    }

    /// Launches a function with word parameters on so many blocks of so many threads.
    pub(crate) fn launch_function(
        &self,
        function: CUfunction,
        (blocks, threads): (u32, u32),
        stream: CUstream,
        parameters: &[u64],
    ) -> CUresult {
        // The driver reads each parameter through a pointer to it.
        let mut pointers = words::pointers(parameters);
        let (pointers, none) = (pointers.as_mut_ptr(), std::ptr::null_mut());
        self.cu.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, none)
    }

    /// Launches a kernel on a few blocks.
    pub(crate) fn launch(&self, kernel: Kernel, stream: CUstream, parameters: &[u64]) -> CUresult {
        assert_eq!(parameters.len(), kernel.parameters, "{}", kernel.entry);
        self.launch_function(self.function(kernel), (8, 128), stream, parameters)
    }

    /// Launches a kernel that is expected to work.
    pub(crate) fn run(&self, kernel: Kernel, stream: CUstream, parameters: &[u64]) {
        self.expect(kernel.entry, self.launch(kernel, stream, parameters));
    }

    /// Allocates pinned host memory that kernels can reach, as bytes that live until [`Bench::end_pinned`].
    pub(crate) fn pinned(&self, count: usize) -> &'static mut [u8] {
        let mut host: *mut c_void = std::ptr::null_mut();
        let portable_and_mapped = 3;
        if !self.expect("pinned", self.cu.cuMemHostAlloc(&mut host, count, portable_and_mapped)) {
            return Box::leak(vec![0; count].into_boxed_slice());
        }
        // SAFETY: the driver gave `count` bytes, which nobody else has.
        let bytes = unsafe { std::slice::from_raw_parts_mut(host.cast::<u8>(), count) };
        bytes.fill(0);
        bytes
    }

    /// Frees what [`Bench::pinned`] gave.
    pub(crate) fn end_pinned(&self, bytes: &'static mut [u8]) {
        self.expect("pinned-free", self.cu.cuMemFreeHost(bytes.as_mut_ptr().cast()));
    }
}
