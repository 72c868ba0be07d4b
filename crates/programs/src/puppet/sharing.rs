//! Memory that other processes open, and memory that the driver moves itself.

use std::ffi::c_int;

use cuda::CUresult;
use cuda::types::{
    CUdeviceptr, CUipcMemHandle, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, CUstream,
};

use super::first_error;
use crate::bench::Bench;

/// The only flag of opening.
const LAZY_PEER: u32 = 1;
/// Managed memory for every stream.
const ATTACH_GLOBAL: u32 = 1;

/// How memory is exported.
const EXPORTED: CUmemAllocationHandleType = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;

/// What is shared with others.
#[derive(Default)]
pub(super) struct Shared {
    own: Vec<(CUdeviceptr, usize)>,
    opened: Vec<(CUdeviceptr, usize)>,
    managed: Vec<CUdeviceptr>,
    ordered: Vec<CUdeviceptr>,
    created: Vec<(CUdeviceptr, CUmemGenericAllocationHandle, usize)>,
}

impl Shared {
    /// Does what a line says; None if that is nothing of this.
    pub(super) fn does(&mut self, bench: &Bench, words: &[&str]) -> Option<CUresult> {
        let number = |word: &str| word.parse::<usize>().ok();
        let byte = |word: &str| word.parse::<u8>().ok();
        let cu = bench.cu;
        Some(match *words {
            ["share", file, bytes, value] => self.share(bench, file, number(bytes)?, byte(value)?),
            ["open", file] => {
                let (name, bytes) = read_name(file)?;
                let mut address = CUdeviceptr(0);
                let code = cu.cuIpcOpenMemHandle_v2(&mut address, name, LAZY_PEER);
                self.opened.push((address, bytes));
                code
            }
            ["not-open", file, code] => {
                let mut address = CUdeviceptr(0);
                let found = cu.cuIpcOpenMemHandle_v2(&mut address, read_name(file)?.0, LAZY_PEER);
                right(found.0 as usize == number(code)?)
            }
            ["close"] => self
                .opened
                .pop()
                .map_or(CUresult::INVALID_VALUE, |(address, _)| cu.cuIpcCloseMemHandle(address)),
            ["fill-shared", value] => fill(bench, self.own.last(), byte(value)?),
            ["fill-opened", value] => fill(bench, self.opened.last(), byte(value)?),
            ["see-shared", value] => see(bench, self.own.last(), byte(value)?),
            ["see-opened", value] => see(bench, self.opened.last(), byte(value)?),
            ["free-shared"] => {
                self.own.pop().map_or(CUresult::INVALID_VALUE, |(address, _)| cu.cuMemFree_v2(address))
            }
            ["managed", bytes] => {
                let mut address = CUdeviceptr(0);
                let code = cu.cuMemAllocManaged(&mut address, number(bytes)?, ATTACH_GLOBAL);
                self.managed.push(address);
                code
            }
            ["no-managed", bytes] => {
                let mut address = CUdeviceptr(0);
                let code = cu.cuMemAllocManaged(&mut address, number(bytes)?, ATTACH_GLOBAL);
                right(code == CUresult::OUT_OF_MEMORY)
            }
            ["free-managed"] => {
                self.managed.pop().map_or(CUresult::INVALID_VALUE, |address| cu.cuMemFree_v2(address))
            }
            ["ordered", bytes] => {
                let mut address = CUdeviceptr(0);
                let code = cu.cuMemAllocAsync(&mut address, number(bytes)?, CUstream::NULL);
                self.ordered.push(address);
                code
            }
            ["free-ordered"] => self.ordered.pop().map_or(CUresult::INVALID_VALUE, |address| {
                first_error([cu.cuMemFreeAsync(address, CUstream::NULL), cu.cuCtxSynchronize()])
            }),
            ["create", bytes] => self.create(bench, number(bytes)?),
            ["no-access", device] => {
                let &(address, _, bytes) = self.created.last()?;
                let access = access(device.parse().ok()?);
                right(cu.cuMemSetAccess(address, bytes, &access, 1) != CUresult::SUCCESS)
            }
            ["export"] => self.export(bench)?.0,
            ["export-to", name] => {
                let (code, file) = self.export(bench)?;
                let said = std::fs::write(name, format!("{} {file}", std::process::id()));
                first_error([code, right(said.is_ok())])
            }
            ["import", name] => {
                let file = file_of_another(&std::fs::read_to_string(name).ok()?)?;
                let mut handle = CUmemGenericAllocationHandle(0);
                let number = std::ptr::without_provenance_mut(file as usize);
                cu.cuMemImportFromShareableHandle(&mut handle, number, EXPORTED)
            }
            _ => return None,
        })
    }

    /// A file of what was created last, which stays open.
    fn export(&self, bench: &Bench) -> Option<(CUresult, c_int)> {
        let &(_, handle, _) = self.created.last()?;
        let mut file: c_int = -1;
        let code = bench.cu.cuMemExportToShareableHandle((&raw mut file).cast(), handle, EXPORTED, 0);
        Some((code, file))
    }

    fn create(&mut self, bench: &Bench, bytes: usize) -> CUresult {
        let (mut address, mut handle) = (CUdeviceptr(0), CUmemGenericAllocationHandle(0));
        let prop = CUmemAllocationProp::on_device(bench.device, EXPORTED);
        let code = first_error([
            bench.cu.cuMemAddressReserve(&mut address, bytes, 0, CUdeviceptr(0), 0),
            bench.cu.cuMemCreate(&mut handle, bytes, &prop, 0),
            bench.cu.cuMemMap(address, bytes, 0, handle, 0),
            bench.cu.cuMemSetAccess(address, bytes, &access(bench.device.0), 1),
        ]);
        self.created.push((address, handle, bytes));
        code
    }

    fn share(&mut self, bench: &Bench, file: &str, bytes: usize, value: u8) -> CUresult {
        let (mut address, mut name) = (CUdeviceptr(0), CUipcMemHandle { bytes: [0; 64] });
        let code = first_error([
            bench.cu.cuMemAlloc_v2(&mut address, bytes),
            fill(bench, Some(&(address, bytes)), value),
            bench.cu.cuIpcGetMemHandle(&mut name, address),
        ]);
        if code != CUresult::SUCCESS {
            return code;
        }
        self.own.push((address, bytes));
        let written = std::fs::write(file, [&name.bytes[..], &bytes.to_le_bytes()].concat());
        right(written.is_ok())
    }
}

/// A file of another process, by that one's number and its own number for the file.
fn file_of_another(said: &str) -> Option<c_int> {
    let (pid, file) = said.split_once(' ')?;
    let (pid, file): (c_int, c_int) = (pid.parse().ok()?, file.parse().ok()?);
    // SAFETY: both calls take numbers, and answer with a new file of this process, or less than zero.
    let found = unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        libc::syscall(libc::SYS_pidfd_getfd, process, file, 0)
    };
    c_int::try_from(found).ok().filter(|file| *file >= 0)
}

/// Everything is open to a device.
fn access(device: c_int) -> CUmemAccessDesc {
    let location = CUmemLocation { type_: CUmemLocationType::DEVICE, id: device };
    CUmemAccessDesc { location, flags: CUmemAccess_flags::READWRITE }
}

/// The name in a file, and how large the memory is.
fn read_name(file: &str) -> Option<(CUipcMemHandle, usize)> {
    let read = std::fs::read(file).ok()?;
    let (bytes, size) = read.split_first_chunk::<64>()?;
    Some((CUipcMemHandle { bytes: *bytes }, usize::from_le_bytes(size.try_into().ok()?)))
}

fn fill(bench: &Bench, memory: Option<&(CUdeviceptr, usize)>, value: u8) -> CUresult {
    let Some(&(address, bytes)) = memory else { return CUresult::INVALID_VALUE };
    first_error([bench.cu.cuMemsetD8_v2(address, value, bytes), bench.cu.cuCtxSynchronize()])
}

fn see(bench: &Bench, memory: Option<&(CUdeviceptr, usize)>, value: u8) -> CUresult {
    let Some(&(address, bytes)) = memory else { return CUresult::INVALID_VALUE };
    right(bench.read(address, bytes).iter().all(|byte| *byte == value))
}

fn right(is_right: bool) -> CUresult {
    if is_right { CUresult::SUCCESS } else { CUresult::UNKNOWN }
}
