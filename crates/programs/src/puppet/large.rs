//! One allocation that may be larger than the GPU, and where the program would rather have it.

use std::ffi::c_int;

use cuda::CUresult;
use cuda::types::CUdeviceptr;

use super::first_error;
use crate::bench::Bench;

/// How much of it is looked at at a time.
const WINDOW_BYTES: usize = 4 << 20;

/// What is there.
#[derive(Default)]
pub(super) struct Large {
    all: Vec<(CUdeviceptr, usize, u8)>,
}

impl Large {
    /// Does what a line says; None if that is nothing of this.
    pub(super) fn does(&mut self, bench: &Bench, words: &[&str]) -> Option<CUresult> {
        let cu = bench.cu;
        Some(match *words {
            ["large", mib, byte] => {
                let (bytes, byte) = (mib.parse::<usize>().ok()? << 20, byte.parse().ok()?);
                let mut address = CUdeviceptr(0);
                let code = first_error([
                    cu.cuMemAlloc_v2(&mut address, bytes),
                    cu.cuMemsetD8_v2(address, byte, bytes),
                    cu.cuCtxSynchronize(),
                ]);
                self.all.push((address, bytes, byte));
                code
            }
            ["fill-large", byte] => {
                let byte = byte.parse().ok()?;
                let fill = |(address, bytes, now): &mut (CUdeviceptr, usize, u8)| {
                    *now = byte;
                    cu.cuMemsetD8_v2(*address, byte, *bytes)
                };
                first_error(self.all.iter_mut().map(fill))
            }
            ["see-large"] => {
                let sees = |&(address, bytes, byte): &(CUdeviceptr, usize, u8)| {
                    (0..bytes).step_by(WINDOW_BYTES).all(|at| {
                        let window = CUdeviceptr(address.0 + at as u64);
                        let found = bench.read(window, WINDOW_BYTES.min(bytes - at));
                        found.iter().all(|&found| found == byte)
                    })
                };
                if self.all.iter().all(sees) { CUresult::SUCCESS } else { CUresult::UNKNOWN }
            }
            ["free-large"] => {
                self.all.pop().map_or(CUresult::INVALID_VALUE, |(address, ..)| cu.cuMemFree_v2(address))
            }
            ["prefer-host", code] => {
                let &(address, bytes, _) = self.all.last()?;
                if prefer_host(address, bytes)? == code.parse::<c_int>().ok()? {
                    CUresult::SUCCESS
                } else {
                    CUresult::UNKNOWN
                }
            }
            _ => return None,
        })
    }
}

/// Asks rota for it, as a program does that need not know whether rota is there; None without it.
fn prefer_host(address: CUdeviceptr, bytes: usize) -> Option<c_int> {
    type PreferHost = extern "C" fn(u64, u64) -> c_int;
    // SAFETY: the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"rota_prefer_host".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: rota exports this name with this signature.
    let prefer_host = unsafe { std::mem::transmute::<*mut libc::c_void, PreferHost>(found) };
    Some(prefer_host(address.0, bytes as u64))
}
