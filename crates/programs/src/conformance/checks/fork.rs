//! A process that forks: the child has no driver, the parent keeps its own.

use std::io::Read;
use std::os::fd::FromRawFd;

use cuda::CUresult;
use cuda::types::{CUcontext, CUdeviceptr};

use super::{Check, alone, bare};
use crate::bench::Bench;

/// Most calls a child reports.
const CALLS_MAX: usize = 8;

/// Forks; the child makes calls and tells their codes through a pipe. Records them.
fn in_fork(b: &Bench, calls: impl FnOnce() -> Vec<CUresult>) {
    let mut ends = [-1; 2];
    // SAFETY: a plain call with room for two files.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        b.say("no pipe");
        return;
    }
    // SAFETY: the child uses only the driver, memory and write, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut bytes = Vec::with_capacity(CALLS_MAX * 4);
        for code in calls() {
            bytes.extend(code.0.to_le_bytes());
        }
        // SAFETY: plain calls; the buffer lives.
        unsafe {
            libc::write(ends[1], bytes.as_ptr().cast(), bytes.len());
            libc::_exit(0);
        }
    }
    // SAFETY: both files were just made and belong to nobody else.
    let mut reader = unsafe {
        libc::close(ends[1]);
        std::fs::File::from_raw_fd(ends[0])
    };
    let mut bytes = Vec::new();
    let told = reader.read_to_end(&mut bytes);
    let mut status = 0;
    // SAFETY: a plain call; `status` lives.
    unsafe { libc::waitpid(child, &mut status, 0) };
    b.value("child", if libc::WIFEXITED(status) && told.is_ok() { "ended" } else { "died" });
    for code in bytes.chunks_exact(4) {
        b.code(CUresult(u32::from_le_bytes(code.try_into().unwrap_or_default())));
    }
}

pub(super) const CHECKS: &[Check] = &[
    alone(
        "a child after the driver began",
        "child=ended NOT_INITIALIZED NOT_INITIALIZED NOT_INITIALIZED NOT_INITIALIZED ok",
        |b| {
            in_fork(b, || {
                vec![
                    b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64),
                    b.cu.cuCtxSynchronize(),
                    b.cu.cuDeviceGetCount(&mut 0),
                    b.cu.cuInit(0),
                ]
            });
            b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
        },
    ),
    alone("memory of the parent stays", "child=ended NOT_INITIALIZED bytes=0102030405060708", |b| {
        let memory = b.alloc_with(&[1, 2, 3, 4, 5, 6, 7, 8]);
        in_fork(b, || vec![b.cu.cuMemFree_v2(memory)]);
        b.bytes("bytes", &b.read(memory, 8));
    }),
    bare("a child before the driver began", "child=ended ok ok ok ok ok", |b| {
        in_fork(b, || {
            let mut context = CUcontext::NULL;
            vec![
                b.cu.cuInit(0),
                b.cu.cuDevicePrimaryCtxRetain(&mut context, b.device),
                b.cu.cuCtxSetCurrent(context),
                b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64),
            ]
        });
        b.code(b.cu.cuInit(0));
    }),
];
