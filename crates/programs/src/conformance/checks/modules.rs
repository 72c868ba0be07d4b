//! Modules, libraries and the functions in them.

use std::ffi::{CStr, c_char};

use cuda::types::{CUdeviceptr, CUfunction, CUkernel, CUlibrary, CUmodule, CUstream};

use super::{Check, alone, check};
use crate::bench::Bench;
use crate::kernels::{ALL, FILL, REWRITE, SPIN};

fn load(b: &Bench, image: &CStr) {
    let mut module = CUmodule::NULL;
    if b.code(b.cu.cuModuleLoadData(&mut module, image.as_ptr().cast())) {
        b.expect("unload", b.cu.cuModuleUnload(module));
    }
}

/// Numbers of function attributes in the driver's interface.
const MAX_THREADS: u32 = 0;
const SHARED_BYTES: u32 = 1;
const LOCAL_BYTES: u32 = 3;
const REGISTERS: u32 = 4;
const PTX_VERSION: u32 = 5;
const MAX_DYNAMIC_SHARED: u32 = 8;

pub(super) const CHECKS: &[Check] = &[
    check("every kernel loads", "loaded=9", |b| {
        let mut loaded = 0;
        for kernel in ALL {
            let module = b.module(*kernel);
            loaded += usize::from(!b.function_in(module, *kernel).is_null());
            b.expect("unload", b.cu.cuModuleUnload(module));
        }
        b.value("loaded", loaded);
    }),
    check("names that are not there", "NOT_FOUND INVALID_VALUE INVALID_VALUE INVALID_VALUE NOT_FOUND", |b| {
        let (module, mut function) = (b.module(FILL), CUfunction::NULL);
        b.code(b.cu.cuModuleGetFunction(&mut function, module, c"nothing".as_ptr()));
        b.code(b.cu.cuModuleGetFunction(&mut function, module, c"".as_ptr()));
        b.code(b.cu.cuModuleGetFunction(&mut function, module, std::ptr::null()));
        b.code(b.cu.cuModuleGetFunction(std::ptr::null_mut(), module, c"fill".as_ptr()));
        b.code(b.cu.cuModuleGetGlobal_v2(&mut CUdeviceptr(0), &mut 0, module, c"nothing".as_ptr()));
        b.expect("unload", b.cu.cuModuleUnload(module));
    }),
    check("images that are none", "INVALID_IMAGE INVALID_IMAGE INVALID_PTX INVALID_VALUE", |b| {
        load(b, c"this is no module");
        load(b, c"");
        load(b, c".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry broken() { nonsense; }\n");
        b.code(b.cu.cuModuleLoadData(&mut CUmodule::default(), std::ptr::null()));
    }),
    check("PTX of another time", "UNSUPPORTED_PTX_VERSION INVALID_PTX", |b| {
        load(b, c".version 99.0\n.target sm_70\n.address_size 64\n");
        load(b, c".version 7.0\n.target sm_999\n.address_size 64\n");
    }),
    check("an empty module", "ok", |b| load(b, c".version 7.0\n.target sm_70\n.address_size 64\n")),
    check("what went wrong is told", "INVALID_PTX told=true", |b| {
        let mut log = [0_u8; 1024];
        // JIT options: where the error log goes, and how large it is.
        let mut options = [5, 6];
        let mut values = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(1024)];
        let image =
            c".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry broken() { nonsense; }\n";
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        b.code(b.cu.cuModuleLoadDataEx(&mut CUmodule::default(), image.as_ptr().cast(), 2, options, values));
        b.value("told", std::hint::black_box(&mut log)[0] != 0);
    }),
    check("null ones", "INVALID_HANDLE INVALID_HANDLE", |b| {
        b.code(b.cu.cuModuleUnload(CUmodule::NULL));
        b.code(b.cu.cuModuleGetFunction(&mut CUfunction::default(), CUmodule::NULL, c"fill".as_ptr()));
    }),
    alone("unloaded twice", "ok INVALID_HANDLE", |b| {
        let module = b.module(FILL);
        b.code(b.cu.cuModuleUnload(module));
        b.code(b.cu.cuModuleUnload(module));
    }),
    check("functions are counted", "ok 1", |b| {
        let (module, mut count) = (b.module(FILL), 99);
        b.code(b.cu.cuModuleGetFunctionCount(&mut count, module));
        b.say(count);
        b.expect("unload", b.cu.cuModuleUnload(module));
    }),
    check("a function knows its name and module", "ok rewrite ok same=true", |b| {
        let module = b.module(REWRITE);
        let (function, mut name, mut found) =
            (b.function_in(module, REWRITE), std::ptr::null::<c_char>(), CUmodule::NULL);
        b.code(b.cu.cuFuncGetName(&mut name, function));
        if !name.is_null() {
            // SAFETY: the driver gave a C string that lives as long as the module.
            b.say(unsafe { CStr::from_ptr(name) }.to_string_lossy());
        }
        b.code(b.cu.cuFuncGetModule(&mut found, function));
        b.value("same", found == module);
        b.expect("unload", b.cu.cuModuleUnload(module));
    }),
    check("a function knows its parameters", "ok 0 8 ok 32 8 INVALID_VALUE", |b| {
        let (function, mut offset, mut bytes) = (b.function(REWRITE), 99, 99);
        for index in [0, 4] {
            b.code(b.cu.cuFuncGetParamInfo(function, index, &mut offset, &mut bytes));
            b.say(offset);
            b.say(bytes);
        }
        b.code(b.cu.cuFuncGetParamInfo(function, 5, &mut offset, &mut bytes));
    }),
    check("attributes of a function", "threads=1024 shared=0 local=0 registers=true ptx=70", |b| {
        let ask = |attribute| {
            let mut value = -1;
            b.expect("attribute", b.cu.cuFuncGetAttribute(&mut value, attribute, b.function(FILL)));
            value
        };
        b.value("threads", ask(MAX_THREADS));
        b.value("shared", ask(SHARED_BYTES));
        b.value("local", ask(LOCAL_BYTES));
        b.value("registers", ask(REGISTERS) > 0);
        b.value("ptx", ask(PTX_VERSION));
    }),
    check("attributes that are none", "INVALID_VALUE INVALID_VALUE INVALID_VALUE ok INVALID_VALUE", |b| {
        let (function, mut value) = (b.function(SPIN), 0);
        b.code(b.cu.cuFuncGetAttribute(&mut value, 999, function));
        b.code(b.cu.cuFuncGetAttribute(std::ptr::null_mut(), MAX_THREADS, function));
        b.code(b.cu.cuFuncSetAttribute(function, MAX_THREADS, 1));
        b.code(b.cu.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, 16_384));
        b.code(b.cu.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, 1 << 30));
    }),
    check("occupancy", "ok some=true INVALID_VALUE", |b| {
        let (function, mut blocks) = (b.function(FILL), 0);
        b.code(b.cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 128, 0));
        b.value("some", blocks >= 1);
        b.code(b.cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 0, 0));
    }),
    check("a library's kernel", "ok ok ok ok word=31 NOT_FOUND ok", |b| {
        let (mut library, mut kernel, mut function) = (CUlibrary::NULL, CUkernel::NULL, CUfunction::NULL);
        let none = std::ptr::null_mut();
        let memory = b.alloc(8);
        b.code(b.cu.cuLibraryLoadData(
            &mut library,
            FILL.ptx.as_ptr().cast(),
            std::ptr::null_mut(),
            none,
            0,
            std::ptr::null_mut(),
            none,
            0,
        ));
        b.code(b.cu.cuLibraryGetKernel(&mut kernel, library, c"fill".as_ptr()));
        b.code(b.cu.cuKernelGetFunction(&mut function, kernel));
        b.code(b.launch_function(function, (1, 1), CUstream::NULL, &[memory.0, 1, 31]));
        b.value("word", b.read_words(memory, 1)[0]);
        b.code(b.cu.cuLibraryGetKernel(&mut kernel, library, c"nothing".as_ptr()));
        b.code(b.cu.cuLibraryUnload(library));
        b.free(memory);
    }),
    check("a library's kernel is launched itself", "ok word=32 ok", |b| {
        let (mut library, mut kernel, mut module) = (CUlibrary::NULL, CUkernel::NULL, CUmodule::NULL);
        let (none, memory) = (std::ptr::null_mut(), b.alloc(8));
        let image = FILL.ptx.as_ptr().cast();
        let options = std::ptr::null_mut();
        b.expect("load", b.cu.cuLibraryLoadData(&mut library, image, options, none, 0, options, none, 0));
        b.expect("kernel", b.cu.cuLibraryGetKernel(&mut kernel, library, c"fill".as_ptr()));
        // A kernel of a library is taken wherever a function is.
        b.code(b.launch_function(CUfunction(kernel.0), (1, 1), CUstream::NULL, &[memory.0, 1, 32]));
        b.value("word", b.read_words(memory, 1)[0]);
        b.code(b.cu.cuLibraryGetModule(&mut module, library));
        b.expect("unload", b.cu.cuLibraryUnload(library));
        b.free(memory);
    }),
];
