//! Memory of another process, by a name that it was told.

use std::ffi::c_uint;

use cuda::CUresult;
use cuda::types::{CUdeviceptr, CUipcMemHandle};
use vgpu_messages::memory::MemoryRequest;
use vgpu_messages::{Address, Answer, Request};

use crate::argument::Out;
use crate::context::current;
use crate::guard::api;
use crate::session::{self, ask};

/// The only flag: enable peer access where it is needed.
const LAZY_PEER: c_uint = 1;

api! {
    cuIpcGetMemHandle(name: Out<CUipcMemHandle>, address: CUdeviceptr) {
        current::id()?;
        name.check()?;
        let request = Request::Memory(MemoryRequest::IpcExport(Address(address.0)));
        let token = ask!(request, Answer::Number(token) => token);
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&token.to_le_bytes());
        name.set(CUipcMemHandle { bytes })
    }

    cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2(address: Out<CUdeviceptr>, name: CUipcMemHandle, flags: c_uint) {
        let context = current::id()?;
        address.check()?;
        if flags != LAZY_PEER {
            return Err(CUresult::INVALID_VALUE);
        }
        let [a, b, c, d, e, f, g, h, ..] = name.bytes;
        let token = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let request = Request::Memory(MemoryRequest::IpcOpen { context, token });
        address.set(ask!(request, Answer::Address(Address(at)) => CUdeviceptr(at)))
    }

    cuIpcCloseMemHandle(address: CUdeviceptr) {
        current::id()?;
        session::tell(Request::Memory(MemoryRequest::IpcClose(Address(address.0))))
    }
}
