//! Launching: shapes, parameters, and what is refused.

use std::ffi::c_void;

use cuda::CUresult;
use cuda::types::{CUfunction, CUlaunchConfig, CUstream};

use super::{Check, check};
use crate::api::Zeroed;
use crate::bench::Bench;
use crate::bench::words::pointers;
use crate::kernels::{FILL, REWRITE, SPIN, rewritten};

/// Parameters of `spin` that let it end at once.
static NOTHING: [u64; 2] = [0, 0];

/// Launches `spin` with nothing to do, in a shape.
fn shape(b: &Bench, grid: [u32; 3], block: [u32; 3], shared: u32) -> CUresult {
    let mut parameters = pointers(&NOTHING);
    let (function, parameters, none) = (b.function(SPIN), parameters.as_mut_ptr(), std::ptr::null_mut());
    let ([x, y, z], [i, j, k]) = (grid, block);
    b.cu.cuLaunchKernel(function, x, y, z, i, j, k, shared, CUstream::NULL, parameters, none)
}

pub(super) const CHECKS: &[Check] = &[
    check("shapes", "ok ok ok ok", |b| {
        b.code(shape(b, [1, 1, 1], [1024, 1, 1], 0));
        b.code(shape(b, [2, 3, 4], [8, 8, 8], 0));
        b.code(shape(b, [1, 65_535, 1], [1, 1, 64], 0));
        b.code(shape(b, [1, 1, 1], [1, 1, 1], 49_152));
        b.synchronize();
    }),
    check(
        "grids that are too large or nothing",
        "INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE",
        |b| {
            b.code(shape(b, [0, 1, 1], [1, 1, 1], 0));
            b.code(shape(b, [1, 0, 1], [1, 1, 1], 0));
            b.code(shape(b, [1, 65_536, 1], [1, 1, 1], 0));
            b.code(shape(b, [1, 1, 65_536], [1, 1, 1], 0));
            b.code(shape(b, [1 << 31, 1, 1], [1, 1, 1], 0));
        },
    ),
    check(
        "blocks that are too large or nothing",
        "INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE",
        |b| {
            b.code(shape(b, [1, 1, 1], [0, 1, 1], 0));
            b.code(shape(b, [1, 1, 1], [1025, 1, 1], 0));
            b.code(shape(b, [1, 1, 1], [1, 1, 65], 0));
            b.code(shape(b, [1, 1, 1], [32, 33, 1], 0));
        },
    ),
    check("shared memory that is too much", "INVALID_VALUE ok", |b| {
        b.code(shape(b, [1, 1, 1], [1, 1, 1], 1 << 20));
        b.code(shape(b, [1, 1, 1], [1, 1, 1], 0));
    }),
    check("an error leaves the context whole", "INVALID_VALUE ok word=3", |b| {
        let memory = b.alloc(8);
        b.code(shape(b, [0, 1, 1], [1, 1, 1], 0));
        b.code(b.launch(FILL, CUstream::NULL, &[memory.0, 1, 3]));
        b.value("word", b.read_words(memory, 1)[0]);
        b.free(memory);
    }),
    check("no function", "INVALID_HANDLE", |b| {
        b.code(b.launch_function(CUfunction::NULL, (1, 1), CUstream::NULL, &[0]));
    }),
    check("no parameters", "INVALID_VALUE", |b| {
        let (function, none) = (b.function(FILL), std::ptr::null_mut());
        b.code(b.cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, CUstream::NULL, none, none));
    }),
    check("parameters in a buffer", "ok right=true", |b| {
        let memory = b.alloc(800);
        let mut buffer = [memory.0, 100, 5, 6, 7];
        let mut bytes = size_of_val(&buffer);
        let mut extra: [*mut c_void; 5] = [
            std::ptr::without_provenance_mut(1),
            buffer.as_mut_ptr().cast(),
            std::ptr::without_provenance_mut(2),
            std::ptr::from_mut(&mut bytes).cast(),
            std::ptr::null_mut(),
        ];
        let (function, none) = (b.function(REWRITE), std::ptr::null_mut());
        b.code(b.cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, CUstream::NULL, none, extra.as_mut_ptr()));
        let expected: Vec<u64> = (0..100).map(|i| rewritten(5, 6, 7, i)).collect();
        b.value("right", b.read_words(memory, 100) == expected);
        b.free(memory);
    }),
    check("parameters in both ways", "INVALID_VALUE", |b| {
        let mut parameters = pointers(&NOTHING);
        let mut bytes = 16_usize;
        let mut buffer = [0_u64; 2];
        let mut extra: [*mut c_void; 5] = [
            std::ptr::without_provenance_mut(1),
            buffer.as_mut_ptr().cast(),
            std::ptr::without_provenance_mut(2),
            std::ptr::from_mut(&mut bytes).cast(),
            std::ptr::null_mut(),
        ];
        let (parameters, extra) = (parameters.as_mut_ptr(), extra.as_mut_ptr());
        b.code(b.cu.cuLaunchKernel(b.function(SPIN), 1, 1, 1, 1, 1, 1, 0, CUstream::NULL, parameters, extra));
    }),
    check("parameters are taken at the launch", "word=1", |b| {
        let (memory, stream) = (b.alloc(8), b.stream(1));
        b.function(FILL);
        let gate = crate::bench::gate::Gate::close(b, stream);
        let mut values = [memory.0, 1, 1];
        b.expect("launch", b.launch_function(b.function(FILL), (1, 1), stream, &values));
        values.fill(99);
        std::hint::black_box(&mut values);
        drop(gate);
        b.value("word", b.read_words(memory, 1)[0]);
        b.end_stream(stream);
        b.free(memory);
    }),
    check("with a configuration", "ok word=21 INVALID_VALUE INVALID_VALUE", |b| {
        let (memory, none) = (b.alloc(8), std::ptr::null_mut());
        let mut config = CUlaunchConfig::zeroed();
        (config.grid, config.block) = ([1, 1, 1], [32, 1, 1]);
        let values = [memory.0, 1, 21];
        let mut parameters = pointers(&values);
        b.code(b.cu.cuLaunchKernelEx(&config, b.function(FILL), parameters.as_mut_ptr(), none));
        b.value("word", b.read_words(memory, 1)[0]);
        config.block = [0, 1, 1];
        b.code(b.cu.cuLaunchKernelEx(&config, b.function(FILL), parameters.as_mut_ptr(), none));
        b.code(b.cu.cuLaunchKernelEx(std::ptr::null(), b.function(FILL), parameters.as_mut_ptr(), none));
        b.free(memory);
    }),
    check("together", "ok COOPERATIVE_LAUNCH_TOO_LARGE ok", |b| {
        let mut parameters = pointers(&NOTHING);
        let (function, parameters) = (b.function(SPIN), parameters.as_mut_ptr());
        b.code(b.cu.cuLaunchCooperativeKernel(function, 2, 1, 1, 32, 1, 1, 0, CUstream::NULL, parameters));
        b.code(b.cu.cuLaunchCooperativeKernel(
            function,
            1 << 20,
            1,
            1,
            1024,
            1,
            1,
            0,
            CUstream::NULL,
            parameters,
        ));
        b.code(b.cu.cuCtxSynchronize());
    }),
];
