//! Calls about pools. The driver has them as names, with their settings; rota has the numbers.

use std::ffi::{c_int, c_void};

use cuda::CUresult;
use cuda::types::{CUdevice, CUmemLocation, CUmemLocationType, CUmemPoolProps, CUmemoryPool};

use super::accounts::Account;
use crate::gpus;
use crate::guard::guarded;
use crate::memory::kept::watched;
use crate::memory::native;
use crate::session::{self, Session};

/// Attributes of a pool, by their numbers in the driver's interface.
const RELEASE_THRESHOLD: c_int = 4;
const RESERVED: c_int = 5;
const RESERVED_HIGH: c_int = 6;
const USED: c_int = 7;
const USED_HIGH: c_int = 8;

/// The kind of a pool of device memory.
const PINNED: u32 = 1;

/// Does something with the account of a pool whose memory is rota's; None if it is not.
fn with<T>(name: &str, pool: CUmemoryPool, work: impl FnOnce(&mut Account) -> T) -> Option<T> {
    let work = || {
        let has = |session: &&Session| session.table().pools.get(pool).is_some();
        let mut table = session::all().find(has)?.table();
        table.pools.get_mut(pool).filter(|account| !account.is_native).map(work)
    };
    guarded(name, || None, work)
}

/// Makes a pool.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let result = unsafe { native::cuMemPoolCreate(pool, props) };
    if result == CUresult::SUCCESS {
        // SAFETY: the driver has just read the one and written the other.
        let (pool, props) = unsafe { (pool.read(), props.read()) };
        guarded(
            "cuMemPoolCreate",
            || (),
            || {
                if props.location.type_ != CUmemLocationType::DEVICE {
                    return;
                }
                let Ok(Some(session)) = gpus::session(CUdevice(props.location.id)) else { return };
                // One that is shared with others, or limited, is left to the driver.
                let is_plain = props.kind == PINNED && props.handle_types == 0 && props.bytes_max == 0;
                session.table().pools.add(pool, !is_plain);
            },
        );
    }
    result
}

/// Destroys a pool; what is allocated of it lives on.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult {
    guarded("cuMemPoolDestroy", || (), || watched::forget_pool(pool));
    // SAFETY: the caller's argument, as it came.
    let result = unsafe { native::cuMemPoolDestroy(pool) };
    if result == CUresult::SUCCESS {
        let forget = || {
            session::all().for_each(|session| session.table().pools.remove(pool));
        };
        guarded("cuMemPoolDestroy", || (), forget);
    }
    result
}

/// A number of a pool.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolGetAttribute(
    pool: CUmemoryPool,
    attribute: c_int,
    value: *mut c_void,
) -> CUresult {
    let known = with("cuMemPoolGetAttribute", pool, |account| {
        Some(match attribute {
            RESERVED => account.reserved,
            RESERVED_HIGH => account.reserved_high,
            USED => account.used,
            USED_HIGH => account.used_high,
            _ => return None,
        })
    });
    match known.flatten() {
        Some(known) if !value.is_null() => {
            // SAFETY: not null, and the caller promises a place for such a number.
            unsafe { value.cast::<u64>().write_unaligned(known) };
            CUresult::SUCCESS
        }
        // SAFETY: the caller's arguments, as they came.
        _ => unsafe { native::cuMemPoolGetAttribute(pool, attribute, value) },
    }
}

/// Changes a setting of a pool, or has its high marks begin anew.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolSetAttribute(
    pool: CUmemoryPool,
    attribute: c_int,
    value: *mut c_void,
) -> CUresult {
    // The driver keeps the settings, and says what is wrong.
    // SAFETY: the caller's arguments, as they came.
    let result = unsafe { native::cuMemPoolSetAttribute(pool, attribute, value) };
    if result == CUresult::SUCCESS && matches!(attribute, RELEASE_THRESHOLD | RESERVED_HIGH | USED_HIGH) {
        // SAFETY: the driver has just read this number.
        let value = unsafe { value.cast::<u64>().read_unaligned() };
        with("cuMemPoolSetAttribute", pool, |account| match attribute {
            RELEASE_THRESHOLD => account.threshold = value,
            RESERVED_HIGH => account.reserved_high = account.reserved,
            _ => account.used_high = account.used,
        });
    }
    result
}

/// Has a pool let go of what is not used, but for so many bytes.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolTrimTo(pool: CUmemoryPool, bytes: usize) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let result = unsafe { native::cuMemPoolTrimTo(pool, bytes) };
    if result == CUresult::SUCCESS {
        with("cuMemPoolTrimTo", pool, |account| account.keep(bytes as u64));
    }
    result
}

/// Lets other devices use the memory of a pool: from now on that is the driver's.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolSetAccess(pool: CUmemoryPool, access: *const c_void, count: usize) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let result = unsafe { native::cuMemPoolSetAccess(pool, access, count) };
    if result == CUresult::SUCCESS {
        with("cuMemPoolSetAccess", pool, |account| account.is_native = true);
    }
    result
}

/// Says which pool a device allocates from.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let result = unsafe { native::cuDeviceSetMemPool(device, pool) };
    forget_current("cuDeviceSetMemPool");
    result
}

/// Says which pool a place allocates from.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemSetMemPool(
    location: *mut CUmemLocation,
    kind: c_int,
    pool: CUmemoryPool,
) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let result = unsafe { native::cuMemSetMemPool(location, kind, pool) };
    forget_current("cuMemSetMemPool");
    result
}

fn forget_current(name: &str) {
    let forget = || {
        session::all().for_each(|session| session.table().pools.forget_current());
    };
    guarded(name, || (), forget);
}
