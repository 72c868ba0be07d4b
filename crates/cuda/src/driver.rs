//! The driver functions rota calls itself, typed.
//!
//! [`Driver`] holds one function pointer per symbol, named exactly like it, all taken from one [`Library`]. The
//! signatures are the driver's; calling one is `unsafe` because the driver trusts its arguments.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

use crate::error::CUresult;
use crate::library::Library;
use crate::types::{
    CUcheckpointLockArgs, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr,
    CUdriverProcAddressQueryResult, CUevent, CUfunction, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmodule,
    CUpointer_attribute, CUprocessState, CUstream, CUstreamCaptureMode, CUuuid,
};

/// Why a library cannot be used as a driver.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DriverError {
    /// A function that rota needs is not exported.
    #[error(
        "{library} does not export {symbol}, which rota needs: the driver is too old \
         (install one for CUDA 12 or newer) or this is not NVIDIA's driver library"
    )]
    MissingSymbol {
        /// The library.
        library: String,
        /// The symbol.
        symbol: &'static str,
    },
}

macro_rules! driver {
    (
        required { $($required:ident($($required_argument:ty),* $(,)?);)* }
        optional { $($optional:ident($($optional_argument:ty),* $(,)?);)* }
    ) => {
        /// The real driver's functions. The library they come from stays open for ever.
        #[allow(non_snake_case)] // The driver's names.
        #[derive(Clone, Debug)]
        pub struct Driver {
            $(
                #[doc = concat!("`", stringify!($required), "`")]
                pub $required: unsafe extern "C" fn($($required_argument),*) -> CUresult,
            )*
            $(
                #[doc = concat!("`", stringify!($optional), "`; not in every driver.")]
                pub $optional: Option<unsafe extern "C" fn($($optional_argument),*) -> CUresult>,
            )*
            /// Where the functions come from.
            pub library: Library,
        }

        impl Driver {
            /// The symbols that [`Driver::load`] insists on.
            pub const REQUIRED: &'static [&'static str] = &[$(stringify!($required)),*];
            /// The symbols that [`Driver::load`] takes if they are there.
            pub const OPTIONAL: &'static [&'static str] = &[$(stringify!($optional)),*];

            /// Takes the functions from a library.
            pub fn load(library: Library) -> Result<Driver, DriverError> {
                Ok(Driver {
                    $($required: {
                        let address = address(&library, concat!(stringify!($required), "\0"));
                        let Some(address) = address else {
                            return Err(DriverError::MissingSymbol {
                                library: library.path().display().to_string(),
                                symbol: stringify!($required),
                            });
                        };
                        // SAFETY: the driver exports this symbol with this signature.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($required_argument),*) -> CUresult,
                            >(address)
                        }
                    },)*
                    $($optional: address(&library, concat!(stringify!($optional), "\0")).map(|address| {
                        // SAFETY: the driver exports this symbol with this signature.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($optional_argument),*) -> CUresult,
                            >(address)
                        }
                    }),)*
                    library,
                })
            }
        }
    };
}

fn address(library: &Library, symbol_with_nul: &'static str) -> Option<*mut c_void> {
    let symbol = CStr::from_bytes_with_nul(symbol_with_nul.as_bytes()).ok()?;
    library.symbol(symbol).map(|address| address.as_ptr())
}

driver! {
    required {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuGetErrorName(CUresult, *mut *const c_char);
        cuGetErrorString(CUresult, *mut *const c_char);

        cuDeviceGet(*mut CUdevice, c_int);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGetUuid_v2(*mut CUuuid, CUdevice);
        cuDeviceGetName(*mut c_char, c_int, CUdevice);
        cuDeviceTotalMem_v2(*mut usize, CUdevice);
        cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);
        cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        cuDevicePrimaryCtxRelease_v2(CUdevice);
        cuDevicePrimaryCtxReset_v2(CUdevice);

        cuCtxSetCurrent(CUcontext);
        cuCtxGetCurrent(*mut CUcontext);
        cuCtxGetDevice(*mut CUdevice);
        cuCtxSynchronize();
        cuCtxDestroy_v2(CUcontext);

        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut CUdeviceptr, usize);
        cuMemFree_v2(CUdeviceptr);
        cuMemGetAddressRange_v2(*mut CUdeviceptr, *mut usize, CUdeviceptr);
        cuPointerGetAttribute(*mut c_void, CUpointer_attribute, CUdeviceptr);
        cuPointerGetAttributes(c_uint, *mut CUpointer_attribute, *mut *mut c_void, CUdeviceptr);

        cuMemAddressReserve(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
        cuMemAddressFree(CUdeviceptr, usize);
        cuMemCreate(*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
        cuMemRelease(CUmemGenericAllocationHandle);
        cuMemMap(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
        cuMemUnmap(CUdeviceptr, usize);
        cuMemSetAccess(CUdeviceptr, usize, *const CUmemAccessDesc, usize);
        cuMemGetAllocationGranularity(
            *mut usize,
            *const CUmemAllocationProp,
            CUmemAllocationGranularity_flags,
        );
        cuMemExportToShareableHandle(
            *mut c_void,
            CUmemGenericAllocationHandle,
            CUmemAllocationHandleType,
            c_ulonglong,
        );
        cuMemImportFromShareableHandle(
            *mut CUmemGenericAllocationHandle,
            *mut c_void,
            CUmemAllocationHandleType,
        );

        cuMemHostRegister_v2(*mut c_void, usize, c_uint);
        cuMemHostUnregister(*mut c_void);
        cuMemHostGetDevicePointer_v2(*mut CUdeviceptr, *mut c_void, c_uint);
        cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        cuMemFreeHost(*mut c_void);
        cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
        cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream);

        cuStreamCreate(*mut CUstream, c_uint);
        cuStreamDestroy_v2(CUstream);
        cuStreamSynchronize(CUstream);
        cuStreamQuery(CUstream);
        cuThreadExchangeStreamCaptureMode(*mut CUstreamCaptureMode);
        cuEventCreate(*mut CUevent, c_uint);
        cuEventRecord(CUevent, CUstream);
        cuEventQuery(CUevent);
        cuEventSynchronize(CUevent);
        cuEventDestroy_v2(CUevent);

        cuModuleLoadData(*mut CUmodule, *const c_void);
        cuModuleUnload(CUmodule);
        cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
        cuLaunchKernel(
            CUfunction,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            CUstream,
            *mut *mut c_void,
            *mut *mut c_void,
        );
    }
    optional {
        cuGetProcAddress(*const c_char, *mut *mut c_void, c_int, u64);
        cuGetProcAddress_v2(
            *const c_char,
            *mut *mut c_void,
            c_int,
            u64,
            *mut CUdriverProcAddressQueryResult,
        );
        cuCheckpointProcessGetState(c_int, *mut CUprocessState);
        cuCheckpointProcessLock(c_int, *mut CUcheckpointLockArgs);
        cuCheckpointProcessCheckpoint(c_int, *mut c_void);
        cuCheckpointProcessRestore(c_int, *mut c_void);
        cuCheckpointProcessUnlock(c_int, *mut c_void);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn every_function_is_in_the_table() {
        for symbol in Driver::REQUIRED.iter().chain(Driver::OPTIONAL) {
            assert!(table::by_symbol(symbol).is_some(), "{symbol}");
        }
    }

    #[test]
    fn a_library_without_the_functions_is_refused_by_name() {
        let library = Library::open("libc.so.6").expect("the C library opens");
        let error = Driver::load(library).expect_err("the C library is no driver");
        assert!(error.to_string().starts_with("libc.so.6 does not export cuInit"), "{error}");
    }
}
