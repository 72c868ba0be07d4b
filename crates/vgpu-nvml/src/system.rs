//! The library itself: start and end, versions, texts of codes, names of processes.

use std::ffi::{c_char, c_int, c_uint};

use crate::session;
use crate::types::{ConfidentialComputing, Out, Return, nvml, write_text};

/// What the virtual driver calls itself.
const DRIVER_VERSION: &str = "580.0.0-vgpu";
const NVML_VERSION: &str = "13.580.0";

nvml! {
    nvmlInit, nvmlInit_v2() {
        session::open()
    }

    nvmlInitWithFlags(_flags: c_uint) {
        session::open()
    }

    nvmlShutdown() {
        session::close()
    }

    nvmlSystemGetDriverVersion(text: Out<c_char>, room: c_uint) {
        session::devices()?;
        write_text(text, room, DRIVER_VERSION)
    }

    nvmlSystemGetNVMLVersion(text: Out<c_char>, room: c_uint) {
        write_text(text, room, NVML_VERSION)
    }

    nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2(version: Out<c_int>) {
        version.set(cuda::table::TABLE_VERSION as c_int)
    }

    nvmlSystemGetConfComputeState(state: Out<ConfidentialComputing>) {
        let on = session::devices()?.iter().any(|device| device.confidential);
        state.set(ConfidentialComputing { environment: c_uint::from(on), feature: c_uint::from(on), tools: 0 })
    }

    nvmlSystemGetProcessName(pid: c_uint, text: Out<c_char>, room: c_uint) {
        session::devices()?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).map_err(|_| Return::NOT_FOUND)?;
        let name = name.trim_end();
        // Unlike other texts, names are cut.
        let kept = name.len().min((room as usize).saturating_sub(1));
        write_text(text, room, name.get(..kept).unwrap_or(""))
    }
}

/// The text of a code.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: Return) -> *const c_char {
    let text = match code {
        Return::SUCCESS => c"success",
        Return::UNINITIALIZED => c"NVML was not initialised",
        Return::INVALID_ARGUMENT => c"an argument is not valid",
        Return::NOT_SUPPORTED => c"not supported on the virtual GPU",
        Return::NOT_FOUND => c"not found",
        Return::INSUFFICIENT_SIZE => c"the buffer is too small",
        Return::DRIVER_NOT_LOADED => c"there is no virtual machine",
        Return::TIMEOUT => c"nothing happened in the time given",
        Return::GPU_IS_LOST => c"the GPU is lost",
        Return::ARGUMENT_VERSION_MISMATCH => c"the structure is of another version",
        _ => c"unknown error",
    };
    text.as_ptr()
}
