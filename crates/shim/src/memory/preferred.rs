//! Memory that the program would rather have in the host's: `rota_prefer_host`, for programs that know what they seldom use.
//!
//! The program's own thread does it: it copies the memory into the host's, and puts that under the same addresses. The copy
//! is work like any other, and may be frozen and go on. Should the memory be away by then, that copy of it is dropped; to the
//! daemon the program has freed one handle and has another. Only whole handles change places, so small allocations, which
//! share one, stay on the GPU.

use std::ffi::c_int;

use cuda::CUresult;
use cuda::types::{CUcontext, CUdeviceptr, CUmemGenericAllocationHandle};
use wire::{GrantId, HandleId, SizedHandle, ToDaemon};

use super::allocation::current;
use super::physical::{self, Refused};
use super::table::{Home, Kind, Mapping, Part};
use super::{native, oversize, peers, pinned, probe, while_mapped};
use crate::demand::Inside;
use crate::grants::Answer;
use crate::guard::guarded;
use crate::session::{self, Session};

/// Has the memory in a range of addresses lie in the host's from now on, as far as it is made of whole handles (of 32 MiB and
/// more, as a rule). It keeps its addresses and what is in it, and is used over the bus; room on the GPU is free for other
/// memory. Waits for the device as `cuMemFree` does, and like there nothing may use the memory meanwhile.
///
/// Returns a CUDA error code: 0 if it is so now, or there is nothing that could be moved; 1 for addresses that are not rota's; 2 if
/// the job may have no more of the host's memory (`rota run --oversize`); 801 without a daemon, or for memory that others use
/// too. Whatever is returned, no byte has changed.
#[unsafe(no_mangle)]
extern "C" fn rota_prefer_host(address: u64, bytes: u64) -> c_int {
    let result = guarded("rota_prefer_host", || CUresult::UNKNOWN, || prefer(address, bytes));
    c_int::try_from(result.0).unwrap_or(c_int::MAX)
}

fn prefer(address: u64, bytes: u64) -> CUresult {
    let Some(session) = session::around(address).filter(|session| !session.has_ended()) else {
        return CUresult::NOT_SUPPORTED;
    };
    if bytes == 0 || !session.table().knows_address(address) {
        return CUresult::INVALID_VALUE;
    }
    let parts = session.table().whole_parts_in(address, bytes);
    let moved = parts.into_iter().try_for_each(|handle| rehome(session, handle));
    session.wake_agent();
    moved.err().unwrap_or(CUresult::SUCCESS)
}

/// Has one part lie in the host's memory. The calling thread must hold no lock.
fn rehome(session: &'static Session, handle: HandleId) -> Result<(), CUresult> {
    // Others know the memory, and not its address.
    if session.is_pinned(handle) {
        return Err(CUresult::NOT_SUPPORTED);
    }
    // From then on it ends by its name.
    pinned::once_exported(session, |table| Some(vec![table.part(handle)?.1]))?;
    let Some((context, part)) = session.table().part(handle) else { return Ok(()) };
    let Some(mapping) = part.mappings.first() else { return Err(CUresult::NOT_SUPPORTED) };
    let context = if context.is_null() { current(session).unwrap_or(CUcontext::NULL) } else { context };
    let (grant, answer) = session.ask_for_host(part.bytes);
    match answer {
        Answer::GrantedHost(granted) if granted == part.bytes => {}
        Answer::Denied(_) => return Err(CUresult::OUT_OF_MEMORY),
        Answer::Ended => return Err(CUresult::NOT_SUPPORTED),
        Answer::Granted | Answer::GrantedHost(_) => {
            session.say(ToDaemon::Returned { grant });
            return Err(CUresult::NOT_SUPPORTED);
        }
    }
    let node = oversize::near_node(session);
    let copied = make_copy(session, context, (mapping.address, part.bytes), node);
    let exchanged = copied.and_then(|new| {
        exchange(session, context, &part, new, (grant, node)).inspect_err(|_| {
            physical::release(session.driver, new);
        })
    });
    exchanged.inspect_err(|_| session.say(ToDaemon::Returned { grant }))
}

/// New memory of the host's with the bytes that lie at an address.
fn make_copy(
    session: &Session,
    context: CUcontext,
    (address, bytes): (u64, u64),
    node: c_int,
) -> Result<CUmemGenericAllocationHandle, CUresult> {
    let driver = session.driver;
    let code = |refused: Refused| oversize::refused(node, refused).code;
    let new = physical::make(driver, &Kind::on_host(node), bytes).map_err(code)?;
    let copied = physical::reserve(driver, bytes).map_err(code).and_then(|window| {
        let mapping = Mapping::for_device(window, session.device);
        let copied = physical::map_again(driver, &mapping, bytes, new).map_err(code).and_then(|()| {
            let copied = copy(session, context, (window, address), bytes);
            let _ = physical::unmap(driver, window, bytes);
            copied
        });
        let _ = physical::unreserve(driver, window, bytes);
        copied
    });
    copied.map(|()| new).inspect_err(|_| physical::release(driver, new))
}

/// Copies once the device does nothing else, and waits for it.
fn copy(session: &Session, context: CUcontext, (to, from): (u64, u64), bytes: u64) -> Result<(), CUresult> {
    // A program that is frozen must have turns for it.
    let _inside = Inside::enter();
    done(probe::wait(session, context))?;
    physical::within(session.driver, context, || {
        let (to, from) = (CUdeviceptr(to), CUdeviceptr(from));
        // SAFETY: both are mapped, so large, and used by nobody else.
        done(while_mapped(|| unsafe { native::cuMemcpyDtoD_v2(to, from, bytes as usize) }))
    })?;
    done(probe::wait(session, context))
}

fn done(result: CUresult) -> Result<(), CUresult> {
    if result == CUresult::SUCCESS { Ok(()) } else { Err(result) }
}

/// Puts the new memory in the place of the old, unless the program freed it meanwhile.
fn exchange(
    session: &Session,
    context: CUcontext,
    part: &Part,
    new: CUmemGenericAllocationHandle,
    (grant, node): (GrantId, c_int),
) -> Result<(), CUresult> {
    let mut table = session.table();
    if session.is_pinned(part.handle) {
        return Err(CUresult::NOT_SUPPORTED);
    }
    let old = match table.part(part.handle) {
        Some((_, now)) if now.mappings == part.mappings => now.physical,
        // It has other mappings by now, or is gone.
        _ => return Err(CUresult::INVALID_VALUE),
    };
    let driver = session.driver;
    physical::within(driver, context, || physical::exchange(driver, part, old, new))
        .map_err(|refused| refused.code)?;
    if let Some(old) = old {
        physical::release(driver, old);
    }
    let handle = session.new_handle();
    table.rehome(part.handle, handle, Home::Named(node), new);
    if table.is_in_a_range(handle) {
        peers::let_in(session, &table, &Part { physical: Some(new), ..part.clone() });
    }
    // With the table held: it may be freed at once.
    session.say_freed(part.handle);
    let handle = SizedHandle { handle, bytes: part.bytes };
    session.say(match session.knows_grant(grant) {
        true => ToDaemon::Hosted { grant, handle },
        // Copying may have taken long, and there is another daemon.
        false => ToDaemon::HostedBefore { handles: vec![handle] },
    });
    session.open_gate_if_whole(&table);
    Ok(())
}
