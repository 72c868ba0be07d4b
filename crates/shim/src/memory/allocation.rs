//! `cuMemAlloc` and `cuMemFree`.

use cuda::types::{CUcontext, CUdevice, CUdeviceptr};
use cuda::{CUresult, Driver};
use wire::ToDaemon;

use super::table::{Allocation, Part, mapped_bytes, part_sizes};
use super::{native, physical};
use crate::grants::Answer;
use crate::guard::guarded;
use crate::notice::OnceNotice;
use crate::session::{self, Session};

/// Allocates device memory.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> CUresult {
    let allocated = guarded(
        "cuMemAlloc",
        || Some(CUresult::UNKNOWN),
        || {
            let session = session::current()?;
            if address.is_null() || bytes == 0 || session.has_ended() {
                return None;
            }
            Some(match allocate(session, bytes as u64)? {
                Ok(start) => {
                    // SAFETY: not null, and the caller promises a place for an address.
                    unsafe { address.write(CUdeviceptr(start)) };
                    CUresult::SUCCESS
                }
                Err(code) => code,
            })
        },
    );
    // SAFETY: the caller's arguments, as they came.
    allocated.unwrap_or_else(|| unsafe { native::cuMemAlloc_v2(address, bytes) })
}

/// Frees device memory, once the device no longer uses it.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFree_v2(address: CUdeviceptr) -> CUresult {
    let freed = guarded(
        "cuMemFree",
        || Some(CUresult::UNKNOWN),
        || {
            let session = session::current()?;
            free(session, address.0)
        },
    );
    // SAFETY: the caller's argument, as it came.
    freed.unwrap_or_else(|| unsafe { native::cuMemFree_v2(address) })
}

/// The start of a new allocation; None if the real driver is to make it.
fn allocate(session: &Session, asked_bytes: u64) -> Option<Result<u64, CUresult>> {
    static DENIED: OnceNotice = OnceNotice::new();
    let driver = session.driver;
    let mut device = CUdevice(0);
    let mut context = CUcontext::NULL;
    // SAFETY: the driver writes one number and one handle. Without a current context the real function says so itself.
    unsafe {
        (driver.cuCtxGetDevice)(&mut device).ok().ok()?;
        (driver.cuCtxGetCurrent)(&mut context).ok().ok()?;
    }
    // A size that cannot be rounded up cannot be had: the real function says so too.
    let bytes = mapped_bytes(asked_bytes)?;
    if !session.shares(device) {
        return None;
    }
    let (grant, answer) = session.ask(bytes);
    match answer {
        Answer::Granted => {}
        Answer::Denied(reason) => {
            DENIED.notice(format_args!("no memory for this program: {reason}"));
            return Some(Err(CUresult::OUT_OF_MEMORY));
        }
        Answer::Ended => return None,
    }
    let made = physical::reserve(driver, bytes).and_then(|address| {
        let parts = make_parts(session, device, address, bytes);
        parts.map(|parts| Allocation { address, asked_bytes, bytes, context, device, grant, parts })
    });
    let result = match made {
        Ok(allocation) => {
            let address = allocation.address;
            session.table().insert(allocation);
            Ok(address)
        }
        Err(refused) => {
            session.say(ToDaemon::Returned { grant });
            Err(refused.code)
        }
    };
    session.wake_agent();
    Some(result)
}

/// Makes the memory under a range that was reserved for it. On failure nothing is left, nor the range.
fn make_parts(
    session: &Session,
    device: CUdevice,
    start: u64,
    bytes: u64,
) -> Result<Vec<Part>, physical::Refused> {
    let driver = session.driver;
    let mut parts = Vec::new();
    let mut address = start;
    for size in part_sizes(bytes) {
        let mut part = Part {
            handle: session.new_handle(),
            address,
            bytes: size,
            device,
            physical: None,
            exported: false,
        };
        match physical::bring(driver, &part) {
            Ok(physical) => part.physical = Some(physical),
            Err(refused) => {
                unmake(driver, start, bytes, &parts);
                return Err(refused);
            }
        }
        address += size;
        parts.push(part);
    }
    Ok(parts)
}

/// Lets the memory under a range go, and the range. A driver that refuses has lost the context, and with it the memory.
fn unmake(driver: &Driver, start: u64, bytes: u64, parts: &[Part]) {
    for part in parts {
        if let Some(physical) = part.physical {
            let _ = physical::send_away(driver, part, physical);
        }
    }
    let _ = physical::unreserve(driver, start, bytes);
}

/// Frees what starts at an address; None if that is not rota's.
fn free(session: &Session, address: u64) -> Option<CUresult> {
    let context = session.table().at(address)?.context;
    // A frozen program waits here until its next turn, with no lock held.
    let waited = wait_as_free_does(session.driver, context);
    if is_capture(waited) {
        // As natively: a stream capture is in the way, and nothing is freed.
        return Some(waited);
    }
    // None if another thread freed the same address meanwhile; then the real function refuses it.
    release(session, address)?;
    Some(waited)
}

/// Takes an allocation out of the table, frees its memory and address, and has the daemon told. The device must be done
/// with it. None if it is not there.
pub(super) fn release(session: &Session, address: u64) -> Option<()> {
    let mut table = session.table();
    let allocation = table.remove(address)?;
    unmake(session.driver, address, allocation.bytes, &allocation.parts);
    // Before the table is let go, so that messages have its order.
    for part in allocation.parts.iter().filter(|part| part.exported) {
        session.say_freed(part.handle);
    }
    if allocation.parts.iter().any(|part| !part.exported) {
        session.say(ToDaemon::Returned { grant: allocation.grant });
    }
    session.open_gate_if_whole(&table);
    drop(table);
    session.wake_agent();
    Some(())
}

/// Waits for the device exactly as the driver's own `cuMemFree` does, by having it free a byte of its own: that minds
/// stream captures as programs expect it, where `cuCtxSynchronize` would end every capture in the context. The calling
/// thread must hold no lock.
fn wait_as_free_does(driver: &Driver, context: CUcontext) -> CUresult {
    if context.is_null() {
        return CUresult::SUCCESS;
    }
    physical::within(driver, context, || {
        let mut token = CUdeviceptr(0);
        // SAFETY: the driver writes one address.
        match unsafe { native::cuMemAlloc_v2(&mut token, 1) } {
            // SAFETY: made just now, and nobody else has it.
            CUresult::SUCCESS => unsafe { native::cuMemFree_v2(token) },
            // Not a byte is left on the device: the next best thing.
            // SAFETY: no conditions.
            CUresult::OUT_OF_MEMORY => unsafe { (driver.cuCtxSynchronize)() },
            other => other,
        }
    })
}

/// Whether a call failed because of a stream capture.
fn is_capture(result: CUresult) -> bool {
    let first = CUresult::STREAM_CAPTURE_UNSUPPORTED.0;
    let last = CUresult::STREAM_CAPTURE_WRONG_THREAD.0;
    (first..=last).contains(&result.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_errors_are_told_from_others() {
        assert!(is_capture(CUresult(900)) && is_capture(CUresult(906)) && is_capture(CUresult(908)));
        for other in [CUresult::SUCCESS, CUresult::LAUNCH_FAILED, CUresult::TIMEOUT, CUresult::UNKNOWN] {
            assert!(!is_capture(other), "{other}");
        }
    }
}
