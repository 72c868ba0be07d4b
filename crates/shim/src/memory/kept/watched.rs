//! Memory that the driver takes and gives back by itself: for graphs that allocate, and for pools that are its own. Such a call
//! cannot be refused, so what is there is looked at about once a second and counted. Once it is more than the
//! program may have, nothing else is granted to it.
//!
//! A thread of its own does that, from the first such memory on: the agent may not ask a driver that a frozen program keeps
//! busy, nor wait for the daemon.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::time::Duration;

use cuda::CUresult;
use cuda::types::{CUdevice, CUgraph, CUmemoryPool, CUstreamCaptureMode};
use wire::{BLOCK_BYTES, HandleId};

use super::book;
use crate::agent;
use crate::demand::vacate;
use crate::guard::guarded;
use crate::memory::native;
use crate::session::{self, Session};

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(900);
/// What is booked at once: such memory comes and goes in pieces.
const PIECE_BYTES: u64 = 32 << 20;
/// The driver's number of what graphs have set aside on a device.
const GRAPHS_RESERVED: c_int = 2;
/// The same of a pool.
const POOL_RESERVED: c_int = 5;
/// Pools that are looked at. Programs have a few.
const POOLS_MAX: usize = 1024;

/// What is looked at.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    devices: HashSet<c_int>,
    pools: HashSet<CUmemoryPool>,
    has_begun: bool,
    booked: Pieces,
}

/// What is booked, in pieces.
#[derive(Debug, Default)]
struct Pieces(Vec<(u64, HandleId)>);

impl Pieces {
    fn bytes(&self) -> u64 {
        self.0.iter().map(|(bytes, _)| bytes).sum()
    }

    /// Takes pieces out until no more than so much is left, or just above it: the largest first that fit.
    fn shrink_to(&mut self, bytes: u64) -> Vec<(u64, HandleId)> {
        self.0.sort_unstable();
        let mut spare = self.bytes().saturating_sub(bytes);
        let mut gone = Vec::new();
        for at in (0..self.0.len()).rev() {
            if self.0[at].0 <= spare {
                spare -= self.0[at].0;
                gone.push(self.0.remove(at));
            }
        }
        gone
    }
}

/// Adds a node to a graph that allocates.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphAddMemAllocNode(
    node: *mut *mut c_void,
    graph: CUgraph,
    after: *const c_void,
    count: usize,
    params: *mut c_void,
) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let result = unsafe { native::cuGraphAddMemAllocNode(node, graph, after, count, params) };
    if result == CUresult::SUCCESS {
        guarded("cuGraphAddMemAllocNode", || (), || watch(None));
    }
    result
}

/// The driver allocated in a stream of the current context: for a graph, or of a pool of its own.
pub(crate) fn watch(asked: Option<CUmemoryPool>) {
    let Some((session, _)) = super::counting() else { return };
    let mut device = CUdevice(0);
    // SAFETY: the driver writes one number.
    if unsafe { (session.driver.cuCtxGetDevice)(&mut device) }.ok().is_err() {
        return;
    }
    let mut pool = asked.unwrap_or(CUmemoryPool::NULL);
    if asked.is_none() {
        // SAFETY: the driver writes one handle.
        let _ = unsafe { native::cuDeviceGetMemPool(&mut pool, device) };
    }
    let mut watched = session.watched();
    let is_new = watched.devices.insert(device.0);
    let has_room = watched.pools.len() < POOLS_MAX;
    if (!pool.is_null() && has_room && watched.pools.insert(pool)) || is_new {
        drop(watched);
        begin(session);
    }
}

/// A pool is about to go: its handle may not be used any more.
pub(crate) fn forget_pool(pool: CUmemoryPool) {
    session::all().for_each(|session| {
        session.watched().pools.remove(&pool);
    });
}

fn begin(session: &'static Session) {
    if std::mem::replace(&mut session.watched().has_begun, true) {
        return;
    }
    let watch = move || {
        guarded(
            "the watch over the driver's memory",
            || (),
            || {
                let mut mode = CUstreamCaptureMode::RELAXED;
                // SAFETY: the driver reads and writes one number.
                let _ = unsafe { (session.driver.cuThreadExchangeStreamCaptureMode)(&mut mode) };
                while !session.stays_alone() {
                    // Another daemon may come, which counts it.
                    if !session.has_ended() {
                        look(session);
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
            },
        );
    };
    // Without it that memory is not counted, and the program goes on.
    let _ = agent::start_thread("rota-watch", watch);
}

/// Counts what is there now.
fn look(session: &Session) {
    // While its context is put away nothing changes, and none of rota's own threads may be in the driver.
    let all = vacate::enter().map(|_entered| reserved(session));
    if let Some(bytes) = all {
        settle(session, bytes.next_multiple_of(BLOCK_BYTES));
    }
}

/// What the driver has set aside.
fn reserved(session: &Session) -> u64 {
    let (devices, pools) = {
        let watched = session.watched();
        (watched.devices.clone(), watched.pools.clone())
    };
    let mut all = 0_u64;
    for device in devices {
        let mut bytes = 0_u64;
        // SAFETY: for this attribute the driver writes one number.
        let result = unsafe {
            native::cuDeviceGetGraphMemAttribute(CUdevice(device), GRAPHS_RESERVED, (&raw mut bytes).cast())
        };
        all += if result == CUresult::SUCCESS { bytes } else { 0 };
    }
    for pool in pools {
        let mut bytes = 0_u64;
        let is_there = session.watched().pools.contains(&pool);
        // SAFETY: for this attribute the driver writes one number. The pool was there just now; should the program destroy it
        // at this moment, the driver refuses a handle that it does not know.
        let result = unsafe { native::cuMemPoolGetAttribute(pool, POOL_RESERVED, (&raw mut bytes).cast()) };
        all += if is_there && result == CUresult::SUCCESS { bytes } else { 0 };
    }
    all
}

/// Has the daemon count so much. What it does not grant is asked for again at the next look.
fn settle(session: &Session, bytes: u64) {
    let mut watched = session.watched();
    let gone = watched.booked.shrink_to(bytes);
    let mut missing = bytes.saturating_sub(watched.booked.bytes());
    drop(watched);
    for (bytes, handle) in gone {
        super::let_go(session, super::Booking::Own(handle, bytes));
    }
    while missing > 0 {
        let piece = missing.min(PIECE_BYTES);
        let Some(Ok(handle)) = book(session, piece) else { return };
        session.watched().booked.0.push((piece, handle));
        missing -= piece;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_go_as_far_as_they_fit() {
        let mut pieces = Pieces((1..=4).map(|number| (number * 10, HandleId(number))).collect());
        assert_eq!(pieces.shrink_to(100), []);
        assert_eq!(pieces.shrink_to(55), [(40, HandleId(4))], "and nothing more fits in what is left");
        assert_eq!(pieces.bytes(), 60);
        assert_eq!(pieces.shrink_to(25).len(), 1);
        assert_eq!(pieces.shrink_to(0).len(), 2);
        assert_eq!(pieces.bytes(), 0);
    }
}
