//! Physical memory shared through files, in one process and between two.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::Command;

use anyhow::Context;
use cuda::types::{CUmemAllocationHandleType, CUmemAllocationProp, CUmemGenericAllocationHandle};

use super::mapping::{map, unmap};
use super::vmm::{PIECE, create, reserve};
use super::{Check, alone, check};
use crate::bench::Bench;
use crate::bench::words::pattern;

const FILES: CUmemAllocationHandleType = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;

/// Exports a handle; the code is in the record.
fn export(b: &Bench, handle: CUmemGenericAllocationHandle) -> Option<OwnedFd> {
    let mut file: c_int = -1;
    let ok =
        b.code(b.cu.cuMemExportToShareableHandle(std::ptr::from_mut(&mut file).cast(), handle, FILES, 0));
    // SAFETY: the driver made this file for the caller.
    (ok && file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file) })
}

/// Imports a file; the code is in the record.
fn import(b: &Bench, file: RawFd) -> CUmemGenericAllocationHandle {
    let mut handle = CUmemGenericAllocationHandle(0);
    let shared: *mut c_void = std::ptr::without_provenance_mut(file as usize);
    b.code(b.cu.cuMemImportFromShareableHandle(&mut handle, shared, FILES));
    handle
}

/// The part of a check that runs in a second process: takes memory over as a file, reads, writes and lets go.
pub(in crate::conformance) fn in_child(file: RawFd) -> anyhow::Result<()> {
    let b = Bench::with_context()?;
    let (handle, address) = (import(&b, file), reserve(&b, PIECE));
    map(&b, address, PIECE, handle);
    b.value("seen", b.read(address, 1000) == pattern(1, 1000));
    b.write(address, &pattern(2, 1000));
    // A small copy from pageable memory may return before it has arrived.
    b.code(b.cu.cuCtxSynchronize());
    b.value("written", b.read(address, 1000) == pattern(2, 1000));
    unmap(&b, address, PIECE);
    b.code(b.cu.cuMemRelease(handle));
    println!("{}", b.take_record());
    Ok(())
}

/// Starts this program as the second process of a check, with a file, and records what it printed.
fn child(b: &Bench, file: &OwnedFd) -> anyhow::Result<()> {
    // SAFETY: plain calls on a file that is open; the copy is inherited and closed below.
    let inherited = unsafe { OwnedFd::from_raw_fd(libc::dup(file.as_raw_fd())) };
    let own = std::env::current_exe().context("the path of this program is not known")?;
    let output = Command::new(own)
        .args(["import", &inherited.as_raw_fd().to_string()])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("a second process does not start")?;
    b.value("child", if output.status.success() { "ended" } else { "failed" });
    b.say(String::from_utf8_lossy(&output.stdout).trim());
    Ok(())
}

pub(super) const CHECKS: &[Check] = &[
    check("export and import here", "ok ok right=true ok ok", |b| {
        let (handle, one, two) = (create(b, PIECE), reserve(b, PIECE), reserve(b, PIECE));
        map(b, one, PIECE, handle);
        let Some(file) = export(b, handle) else { return };
        let imported = import(b, file.as_raw_fd());
        drop(file);
        map(b, two, PIECE, imported);
        b.write(one, &pattern(1, 1000));
        b.value("right", b.read(two, 1000) == pattern(1, 1000));
        unmap(b, one, PIECE);
        unmap(b, two, PIECE);
        b.code(b.cu.cuMemRelease(imported));
        b.code(b.cu.cuMemRelease(handle));
    }),
    check("an import outlives its handle", "ok ok ok right=true", |b| {
        let (handle, one, two) = (create(b, PIECE), reserve(b, PIECE), reserve(b, PIECE));
        map(b, one, PIECE, handle);
        b.write(one, &pattern(3, 1000));
        let Some(file) = export(b, handle) else { return };
        unmap(b, one, PIECE);
        b.code(b.cu.cuMemRelease(handle));
        let imported = import(b, file.as_raw_fd());
        map(b, two, PIECE, imported);
        b.value("right", b.read(two, 1000) == pattern(3, 1000));
        unmap(b, two, PIECE);
        b.expect("release", b.cu.cuMemRelease(imported));
    }),
    check("an exported file holds its memory", "ok held=true back=true", |b| {
        let free = || {
            let (mut free, mut total) = (0, 0);
            b.expect("info", b.cu.cuMemGetInfo_v2(&mut free, &mut total));
            free
        };
        let before = free();
        let handle = create(b, 64 * PIECE);
        let Some(file) = export(b, handle) else { return };
        b.expect("release", b.cu.cuMemRelease(handle));
        b.value("held", before - free() == 64 * PIECE);
        drop(file);
        b.value("back", free() == before);
    }),
    check("exported twice", "ok ok ok ok right=true", |b| {
        let (handle, one, two) = (create(b, PIECE), reserve(b, PIECE), reserve(b, PIECE));
        let (Some(first), Some(second)) = (export(b, handle), export(b, handle)) else { return };
        let imported = [import(b, first.as_raw_fd()), import(b, second.as_raw_fd())];
        map(b, one, PIECE, imported[0]);
        map(b, two, PIECE, imported[1]);
        b.write(one, &pattern(4, 1000));
        b.value("right", b.read(two, 1000) == pattern(4, 1000));
        unmap(b, one, PIECE);
        unmap(b, two, PIECE);
        for handle in imported {
            b.expect("release", b.cu.cuMemRelease(handle));
        }
        b.expect("release", b.cu.cuMemRelease(handle));
    }),
    check("export errors", "INVALID_VALUE INVALID_VALUE INVALID_VALUE", |b| {
        let private = CUmemAllocationProp::on_device(b.device, CUmemAllocationHandleType::NONE);
        let mut handle = CUmemGenericAllocationHandle(0);
        b.expect("create", b.cu.cuMemCreate(&mut handle, PIECE, &private, 0));
        export(b, handle);
        let mut file: c_int = -1;
        let place = std::ptr::from_mut(&mut file).cast();
        b.code(b.cu.cuMemExportToShareableHandle(place, handle, FILES, 1));
        b.code(b.cu.cuMemExportToShareableHandle(std::ptr::null_mut(), handle, FILES, 0));
        b.expect("release", b.cu.cuMemRelease(handle));
    }),
    // Every other wrong argument has a better code.
    check("import what is no memory", "UNKNOWN UNKNOWN", |b| {
        import(b, -1);
        let Ok(file) = std::fs::File::open("/dev/null") else { return };
        import(b, file.as_raw_fd());
    }),
    alone("between two processes", "ok child=ended ok seen=true ok written=true ok changed=true", |b| {
        let (handle, address) = (create(b, PIECE), reserve(b, PIECE));
        map(b, address, PIECE, handle);
        b.write(address, &pattern(1, 1000));
        let Some(file) = export(b, handle) else { return };
        if let Err(error) = child(b, &file) {
            b.say(error);
        }
        b.value("changed", b.read(address, 1000) == pattern(2, 1000));
        unmap(b, address, PIECE);
        b.expect("release", b.cu.cuMemRelease(handle));
    }),
];
