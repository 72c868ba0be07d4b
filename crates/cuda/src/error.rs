//! The driver's result codes: numbers, names, and what they mean in our own words.
//!
//! [`CUresult`] is what a driver function returns; [`CUresult::ok`] turns it into a Rust `Result`.
//! This module only describes codes, it never asks a driver.

use std::ffi::CStr;
use std::fmt;

/// What every driver function returns: zero, or why it failed.
///
/// A driver newer than this table may return codes without a name here, hence not an enum.
#[repr(transparent)]
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
#[must_use = "the call may have failed"]
pub struct CUresult(pub u32);

/// A driver call that failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct CudaError(pub CUresult);

struct Code {
    number: u32,
    name: &'static CStr,
    description: &'static CStr,
}

/// Makes the associated constants and the table from one list, so that they cannot differ.
macro_rules! codes {
    ($($constant:ident, $number:literal, $name:literal, $description:literal;)*) => {
        impl CUresult {
            $(
                #[doc = concat!("`", $name, "`: ", $description, ".")]
                pub const $constant: CUresult = CUresult($number);
            )*
        }

        /// Sorted by number.
        static CODES: &[Code] = &[$(Code {
            number: $number,
            name: c_str(concat!($name, "\0")),
            description: c_str(concat!($description, "\0")),
        },)*];
    };
}

const fn c_str(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a text of the table holds a NUL"),
    }
}

codes! {
    SUCCESS, 0, "CUDA_SUCCESS", "no error";
    INVALID_VALUE, 1, "CUDA_ERROR_INVALID_VALUE", "an argument is out of range or malformed";
    OUT_OF_MEMORY, 2, "CUDA_ERROR_OUT_OF_MEMORY", "not enough memory for the request";
    NOT_INITIALIZED, 3, "CUDA_ERROR_NOT_INITIALIZED", "the driver was not initialised, or could not be";
    DEINITIALIZED, 4, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down";
    PROFILER_DISABLED, 5, "CUDA_ERROR_PROFILER_DISABLED", "the profiler is not available in this run";
    PROFILER_NOT_INITIALIZED, 6, "CUDA_ERROR_PROFILER_NOT_INITIALIZED", "the profiler was not initialised";
    PROFILER_ALREADY_STARTED, 7, "CUDA_ERROR_PROFILER_ALREADY_STARTED", "the profiler runs already";
    PROFILER_ALREADY_STOPPED, 8, "CUDA_ERROR_PROFILER_ALREADY_STOPPED", "the profiler is stopped already";
    STUB_LIBRARY, 34, "CUDA_ERROR_STUB_LIBRARY", "the library loaded is the toolkit's stub, not the driver";
    CALL_REQUIRES_NEWER_DRIVER, 36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "the call needs a newer driver";
    DEVICE_UNAVAILABLE, 46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is busy, or not available to this process";
    NO_DEVICE, 100, "CUDA_ERROR_NO_DEVICE", "no CUDA device was found";
    INVALID_DEVICE, 101, "CUDA_ERROR_INVALID_DEVICE", "no device has this number";
    DEVICE_NOT_LICENSED, 102, "CUDA_ERROR_DEVICE_NOT_LICENSED", "the device has no valid licence";
    INVALID_IMAGE, 200, "CUDA_ERROR_INVALID_IMAGE", "the kernel image is malformed";
    INVALID_CONTEXT, 201, "CUDA_ERROR_INVALID_CONTEXT", "no context is current, or the context is not valid";
    CONTEXT_ALREADY_CURRENT, 202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "the context is current already";
    MAP_FAILED, 205, "CUDA_ERROR_MAP_FAILED", "mapping failed";
    UNMAP_FAILED, 206, "CUDA_ERROR_UNMAP_FAILED", "unmapping failed";
    ARRAY_IS_MAPPED, 207, "CUDA_ERROR_ARRAY_IS_MAPPED", "the array is mapped and cannot be destroyed";
    ALREADY_MAPPED, 208, "CUDA_ERROR_ALREADY_MAPPED", "the resource is mapped already";
    NO_BINARY_FOR_GPU, 209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the module has no code for this device";
    ALREADY_ACQUIRED, 210, "CUDA_ERROR_ALREADY_ACQUIRED", "the resource is acquired already";
    NOT_MAPPED, 211, "CUDA_ERROR_NOT_MAPPED", "the resource is not mapped";
    NOT_MAPPED_AS_ARRAY, 212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "the resource is not mapped as an array";
    NOT_MAPPED_AS_POINTER, 213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER", "the resource is not mapped as a pointer";
    ECC_UNCORRECTABLE, 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "memory error that ECC could not correct";
    UNSUPPORTED_LIMIT, 215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "the device does not know this limit";
    CONTEXT_ALREADY_IN_USE, 216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "the context is bound to another thread";
    PEER_ACCESS_UNSUPPORTED, 217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "these devices cannot reach each other's memory";
    INVALID_PTX, 218, "CUDA_ERROR_INVALID_PTX", "the PTX could not be compiled";
    INVALID_GRAPHICS_CONTEXT, 219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "the OpenGL or DirectX context is not valid";
    NVLINK_UNCORRECTABLE, 220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "NVLink error that could not be corrected";
    JIT_COMPILER_NOT_FOUND, 221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "the PTX compiler library was not found";
    UNSUPPORTED_PTX_VERSION, 222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the PTX is newer than this driver's compiler";
    JIT_COMPILATION_DISABLED, 223, "CUDA_ERROR_JIT_COMPILATION_DISABLED", "compiling PTX is switched off";
    UNSUPPORTED_EXEC_AFFINITY, 224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "the device does not support this execution affinity";
    UNSUPPORTED_DEVSIDE_SYNC, 225, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", "the code synchronises on the device in a way that is not supported";
    CONTAINED, 226, "CUDA_ERROR_CONTAINED", "a contained error ended this process's work on the device";
    INVALID_SOURCE, 300, "CUDA_ERROR_INVALID_SOURCE", "the kernel source is not valid";
    FILE_NOT_FOUND, 301, "CUDA_ERROR_FILE_NOT_FOUND", "the file was not found";
    SHARED_OBJECT_SYMBOL_NOT_FOUND, 302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "a shared library lacks a symbol";
    SHARED_OBJECT_INIT_FAILED, 303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "a shared library failed to initialise";
    OPERATING_SYSTEM, 304, "CUDA_ERROR_OPERATING_SYSTEM", "a call to the operating system failed";
    INVALID_HANDLE, 400, "CUDA_ERROR_INVALID_HANDLE", "the handle is not valid";
    ILLEGAL_STATE, 401, "CUDA_ERROR_ILLEGAL_STATE", "a needed object is not in a state that allows this";
    LOSSY_QUERY, 402, "CUDA_ERROR_LOSSY_QUERY", "the answer would leave out what this version cannot describe";
    NOT_FOUND, 500, "CUDA_ERROR_NOT_FOUND", "the named symbol or object was not found";
    NOT_READY, 600, "CUDA_ERROR_NOT_READY", "the work is not finished yet";
    ILLEGAL_ADDRESS, 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel accessed an address that is not mapped";
    LAUNCH_OUT_OF_RESOURCES, 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "the launch asks for more registers, threads or memory than there are";
    LAUNCH_TIMEOUT, 702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the kernel ran longer than the device allows";
    LAUNCH_INCOMPATIBLE_TEXTURING, 703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "the kernel's texturing mode does not fit";
    PEER_ACCESS_ALREADY_ENABLED, 704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is enabled already";
    PEER_ACCESS_NOT_ENABLED, 705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access is not enabled";
    PRIMARY_CONTEXT_ACTIVE, 708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is active already";
    CONTEXT_IS_DESTROYED, 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context was destroyed";
    ASSERT, 710, "CUDA_ERROR_ASSERT", "an assertion failed in a kernel";
    TOO_MANY_PEERS, 711, "CUDA_ERROR_TOO_MANY_PEERS", "the hardware has no room for more peers";
    HOST_MEMORY_ALREADY_REGISTERED, 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the host memory is registered already";
    HOST_MEMORY_NOT_REGISTERED, 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the host memory is not registered";
    HARDWARE_STACK_ERROR, 714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel's call stack was corrupted or overflowed";
    ILLEGAL_INSTRUCTION, 715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel met an illegal instruction";
    MISALIGNED_ADDRESS, 716, "CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel accessed a misaligned address";
    INVALID_ADDRESS_SPACE, 717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel used an address of the wrong memory space";
    INVALID_PC, 718, "CUDA_ERROR_INVALID_PC", "a kernel's program counter left its code";
    LAUNCH_FAILED, 719, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed while it ran";
    COOPERATIVE_LAUNCH_TOO_LARGE, 720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "the cooperative grid does not fit on the device at once";
    TENSOR_MEMORY_LEAK, 721, "CUDA_ERROR_TENSOR_MEMORY_LEAK", "a kernel ended without freeing its tensor memory";
    NOT_PERMITTED, 800, "CUDA_ERROR_NOT_PERMITTED", "the operation is not permitted";
    NOT_SUPPORTED, 801, "CUDA_ERROR_NOT_SUPPORTED", "the operation is not supported here";
    SYSTEM_NOT_READY, 802, "CUDA_ERROR_SYSTEM_NOT_READY", "the system's CUDA services are not ready";
    SYSTEM_DRIVER_MISMATCH, 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "the kernel driver and this library have different versions";
    COMPAT_NOT_SUPPORTED_ON_DEVICE, 804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility does not cover this device";
    MPS_CONNECTION_FAILED, 805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "no connection to the MPS server";
    MPS_RPC_FAILURE, 806, "CUDA_ERROR_MPS_RPC_FAILURE", "the MPS server did not answer as expected";
    MPS_SERVER_NOT_READY, 807, "CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server cannot take clients now";
    MPS_MAX_CLIENTS_REACHED, 808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the MPS server has no room for more clients";
    MPS_MAX_CONNECTIONS_REACHED, 809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "the device has no room for more MPS connections";
    MPS_CLIENT_TERMINATED, 810, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS server ended this client";
    CDP_NOT_SUPPORTED, 811, "CUDA_ERROR_CDP_NOT_SUPPORTED", "launching from kernels is not supported here";
    CDP_VERSION_MISMATCH, 812, "CUDA_ERROR_CDP_VERSION_MISMATCH", "modules use different versions of launching from kernels";
    STREAM_CAPTURE_UNSUPPORTED, 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "the operation cannot be captured";
    STREAM_CAPTURE_INVALIDATED, 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an earlier error invalidated the capture";
    STREAM_CAPTURE_MERGE, 902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "the operation would merge two captures";
    STREAM_CAPTURE_UNMATCHED, 903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture did not begin in this stream";
    STREAM_CAPTURE_UNJOINED, 904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "the capture has a fork that was not joined";
    STREAM_CAPTURE_ISOLATION, 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "a dependency would leave the capture";
    STREAM_CAPTURE_IMPLICIT, 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "the operation depends on the default stream implicitly";
    CAPTURED_EVENT, 907, "CUDA_ERROR_CAPTURED_EVENT", "the event was last recorded in a capture";
    STREAM_CAPTURE_WRONG_THREAD, 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture began in another thread";
    TIMEOUT, 909, "CUDA_ERROR_TIMEOUT", "the operation timed out";
    GRAPH_EXEC_UPDATE_FAILURE, 910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the change cannot be applied to the instantiated graph";
    EXTERNAL_DEVICE, 911, "CUDA_ERROR_EXTERNAL_DEVICE", "a device outside of CUDA failed";
    INVALID_CLUSTER_SIZE, 912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "the cluster size is not valid for this launch";
    FUNCTION_NOT_LOADED, 913, "CUDA_ERROR_FUNCTION_NOT_LOADED", "the function is not loaded yet";
    INVALID_RESOURCE_TYPE, 914, "CUDA_ERROR_INVALID_RESOURCE_TYPE", "a resource is of the wrong type";
    INVALID_RESOURCE_CONFIGURATION, 915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "the resources do not fit together";
    KEY_ROTATION, 916, "CUDA_ERROR_KEY_ROTATION", "encryption keys are being changed; try again";
    UNKNOWN, 999, "CUDA_ERROR_UNKNOWN", "unknown error";
}

impl CUresult {
    /// All codes of the table, by number.
    pub fn all() -> impl Iterator<Item = CUresult> {
        CODES.iter().map(|code| CUresult(code.number))
    }

    /// The code's name, e.g. `CUDA_ERROR_OUT_OF_MEMORY`; none for a code that is not in the table.
    pub fn name(self) -> Option<&'static str> {
        self.name_c().and_then(|name| name.to_str().ok())
    }

    /// What the code means; none for a code that is not in the table.
    pub fn description(self) -> Option<&'static str> {
        self.description_c().and_then(|text| text.to_str().ok())
    }

    /// The name as C programs want it.
    pub fn name_c(self) -> Option<&'static CStr> {
        self.code().map(|code| code.name)
    }

    /// The description as C programs want it.
    pub fn description_c(self) -> Option<&'static CStr> {
        self.code().map(|code| code.description)
    }

    /// `Ok` if the call succeeded.
    pub fn ok(self) -> Result<(), CudaError> {
        match self {
            CUresult::SUCCESS => Ok(()),
            failure => Err(CudaError(failure)),
        }
    }

    fn code(self) -> Option<&'static Code> {
        let found = CODES.binary_search_by_key(&self.0, |code| code.number);
        found.ok().map(|index| &CODES[index])
    }
}

impl fmt::Display for CUresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.description()) {
            (Some(name), Some(text)) => write!(f, "{name} ({}): {text}", self.0),
            _ => write!(f, "CUDA error {}: a code this version of rota does not know", self.0),
        }
    }
}

impl fmt::Debug for CUresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "CUresult({})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_unique() {
        assert!(CODES.windows(2).all(|pair| pair[0].number < pair[1].number));
        assert_eq!(CUresult::all().count(), CODES.len());
    }

    #[test]
    fn names_and_numbers_agree() {
        assert_eq!(CUresult::SUCCESS, CUresult(0));
        assert_eq!(CUresult::SUCCESS.name(), Some("CUDA_SUCCESS"));
        assert_eq!(CUresult::OUT_OF_MEMORY.name(), Some("CUDA_ERROR_OUT_OF_MEMORY"));
        assert_eq!(CUresult::NO_DEVICE.0, 100);
        assert_eq!(CUresult::UNKNOWN.0, 999);
    }

    #[test]
    fn display_shows_name_number_and_meaning() {
        assert_eq!(
            CUresult(2).to_string(),
            "CUDA_ERROR_OUT_OF_MEMORY (2): not enough memory for the request"
        );
        assert_eq!(CUresult(4242).to_string(), "CUDA error 4242: a code this version of rota does not know");
    }

    #[test]
    fn ok_is_success_only() {
        assert_eq!(CUresult(0).ok(), Ok(()));
        assert_eq!(CUresult(700).ok(), Err(CudaError(CUresult::ILLEGAL_ADDRESS)));
    }

    #[test]
    fn unknown_codes_have_no_name() {
        assert_eq!(CUresult(4242).name(), None);
        assert_eq!(CUresult(4242).description_c(), None);
    }
}
