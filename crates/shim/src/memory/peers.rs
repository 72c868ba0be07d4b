//! Peer access: another GPU of the program reads and writes this one's memory.
//!
//! The driver opens its own allocations to a peer by itself, but mapped physical memory only where it is told for each
//! mapping. So whoever is let in is let into all memory of the session that is there, and into all that comes: new ranges,
//! and memory that is put back under the old ones.

use std::ffi::c_uint;

use cuda::CUresult;
use cuda::types::{
    CUcontext, CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType,
};

use super::physical;
use super::table::{Part, Table};
use crate::forward::index;
use crate::guard::guarded;
use crate::notice::OnceNotice;
use crate::session::Session;
use crate::{demand, forward, gpus};

/// Lets the current context use the memory of another one's device.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> CUresult {
    static UNSUPPORTED: OnceNotice = OnceNotice::new();
    if guarded("cuCtxEnablePeerAccess", || false, || would_not_be_frozen(peer)) {
        UNSUPPORTED.notice(format_args!(
            "cuCtxEnablePeerAccess: a GPU that is not shared here cannot use the memory of one that is, because \
             that memory moves; share both, or set ROTA_DISABLE=1"
        ));
        return CUresult::PEER_ACCESS_UNSUPPORTED;
    }
    let result = demand::briefly(index::cuCtxEnablePeerAccess, |real| {
        // SAFETY: the caller's arguments, as they came.
        unsafe { real(peer.0.addr(), flags as usize, 0, 0, 0, 0, 0, 0, 0, 0) }
    });
    if result == CUresult::SUCCESS {
        guarded("cuCtxEnablePeerAccess", || (), || change(peer, true));
    }
    result
}

/// Takes that back.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxDisablePeerAccess(peer: CUcontext) -> CUresult {
    let result = demand::briefly(index::cuCtxDisablePeerAccess, |real| {
        // SAFETY: the caller's argument, as it came.
        unsafe { real(peer.0.addr(), 0, 0, 0, 0, 0, 0, 0, 0, 0) }
    });
    if result == CUresult::SUCCESS {
        guarded("cuCtxDisablePeerAccess", || (), || change(peer, false));
    }
    result
}

/// The current context's device, and that of another context.
fn devices(owner: CUcontext) -> Option<(CUdevice, CUdevice)> {
    let driver = forward::driver()?;
    let device = || {
        let mut device = CUdevice(0);
        // SAFETY: the driver writes one number.
        unsafe { (driver.cuCtxGetDevice)(&mut device) }.ok().ok().map(|()| device)
    };
    Some((device()?, physical::within(driver, owner, device)?))
}

/// Whether the current context's device would go on while memory moves that it could use: nobody freezes one that is not
/// shared, or no longer. The calling thread must hold no lock.
fn would_not_be_frozen(owner: CUcontext) -> bool {
    let Some((peer, owner)) = devices(owner).filter(|(peer, owner)| peer != owner) else { return false };
    let is_live = |session: &&Session| !session.has_ended();
    gpus::of(owner).is_some() && gpus::session(peer).ok().flatten().filter(is_live).is_none()
}

/// The current context's device may use the memory of another context's device, or may no longer.
fn change(owner: CUcontext, allowed: bool) {
    let Some((peer, owner)) = devices(owner) else { return };
    let Some(session) = gpus::of(owner).filter(|_| owner != peer) else { return };
    let mut table = session.table();
    // Several contexts of the peer may have it: the first lets it in, and with the last it is out.
    if table.peers.change(peer, allowed) {
        let flags = if allowed { CUmemAccess_flags::READWRITE } else { CUmemAccess_flags::NONE };
        table.parts().for_each(|part| set(session, part, peer, flags));
    }
}

/// Lets peers into memory of a range that has just been mapped. With the table held, so that nobody is forgotten who is let in
/// meanwhile.
pub(crate) fn let_in(session: &Session, table: &Table, part: &Part) {
    table.peers.all().for_each(|peer| set(session, part, peer, CUmemAccess_flags::READWRITE));
}

fn set(session: &Session, part: &Part, peer: CUdevice, flags: CUmemAccess_flags) {
    static FAILED: OnceNotice = OnceNotice::new();
    if part.physical.is_none() {
        return;
    }
    let location = CUmemLocation { type_: CUmemLocationType::DEVICE, id: peer.0 };
    let access = CUmemAccessDesc { location, flags };
    for mapping in &part.mappings {
        let (address, bytes) = (CUdeviceptr(mapping.address), part.bytes as usize);
        // SAFETY: mapped at this address with this size; the driver reads one description.
        let result = unsafe { (session.driver.cuMemSetAccess)(address, bytes, &access, 1) };
        if result != CUresult::SUCCESS {
            FAILED.notice(format_args!(
                "cuMemSetAccess for a peer failed: {result}; it cannot use some of the memory"
            ));
        }
    }
}

/// Who may use the memory of a session beside its own device.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// Each with how many of its contexts.
    allowed: Vec<(CUdevice, usize)>,
}

impl Peers {
    /// One context more of a device, or less. True if that makes a difference to the device.
    fn change(&mut self, peer: CUdevice, more: bool) -> bool {
        let found = self.allowed.iter().position(|(device, _)| *device == peer);
        match (found, more) {
            (None, true) => {
                self.allowed.push((peer, 1));
                true
            }
            (Some(at), true) => {
                self.allowed[at].1 += 1;
                false
            }
            (Some(at), false) if self.allowed[at].1 == 1 => {
                self.allowed.swap_remove(at);
                true
            }
            (Some(at), false) => {
                self.allowed[at].1 -= 1;
                false
            }
            (None, false) => false,
        }
    }

    fn all(&self) -> impl Iterator<Item = CUdevice> {
        self.allowed.iter().map(|(device, _)| *device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_let_in_with_its_first_context_and_out_with_its_last() {
        let mut peers = Peers::default();
        let (one, other) = (CUdevice(1), CUdevice(2));
        assert!(peers.change(one, true) && peers.change(other, true));
        assert!(!peers.change(one, true));
        assert!(!peers.change(one, false));
        assert!(peers.change(one, false));
        assert!(!peers.change(one, false), "it is out already");
        assert_eq!(peers.all().collect::<Vec<_>>(), [other]);
    }
}
