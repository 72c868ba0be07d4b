//! More memory for a heap: asks the daemon, reserves addresses, and makes and maps memory there.
//!
//! A slab has room for more than the request at hand, so most requests never come here: the bytes of their slab were granted
//! ahead. Where so much is not to be had, the request is tried once more with the least that serves it; and before it is out of
//! memory, all that is kept without use goes back.

use cuda::types::CUdevice;
use cuda::{CUresult, Driver};
use wire::ToDaemon;

use super::heap::Block;
use super::table::{Allocation, Part, Range, Wanted, part_sizes};
use super::{cache, now_ns, physical};
use crate::grants::Answer;
use crate::notice::OnceNotice;
use crate::session::Session;

/// How often a request is made smaller, or again after unused memory went back.
const TRIES_MAX: usize = 4;

/// Why there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// The program is told this.
    Refused(CUresult),
    /// The daemon is gone, or such memory cannot exist: the real driver says what comes of it.
    NotHere,
}

/// Why one attempt failed.
enum Failed {
    Denied(String),
    Driver(CUresult),
    NotHere,
}

/// Makes memory for a request of the current context, and takes it. The calling thread must hold no lock.
pub(super) fn grow(session: &Session, wanted: Wanted) -> Result<Allocation, Short> {
    static DENIED: OnceNotice = OnceNotice::new();
    let growth = session.table().growth(wanted.context, wanted.asked_bytes).ok_or(Short::NotHere)?;
    let mut device = CUdevice(0);
    // SAFETY: the driver writes one number.
    unsafe { (session.driver.cuCtxGetDevice)(&mut device) }.ok().map_err(|_| Short::NotHere)?;
    let mut bytes = growth.best;
    for tries_left in (0..TRIES_MAX).rev() {
        let failed = match attempt(session, wanted, device, bytes) {
            Ok(allocation) => return Ok(allocation),
            Err(failed) => failed,
        };
        let code = match &failed {
            Failed::NotHere => return Err(Short::NotHere),
            Failed::Denied(_) => CUresult::OUT_OF_MEMORY,
            Failed::Driver(code) => *code,
        };
        // Near a limit slabs are as small as they can be, and what is kept may serve the next request.
        let is_least = bytes == growth.least;
        let can_help = code == CUresult::OUT_OF_MEMORY && (!is_least || cache::drop_all(session));
        if !can_help || tries_left == 0 {
            if let Failed::Denied(reason) = failed {
                DENIED.notice(format_args!("no memory for this program: {reason}"));
            }
            return Err(Short::Refused(code));
        }
        bytes = growth.least;
    }
    Err(Short::Refused(CUresult::OUT_OF_MEMORY))
}

/// Makes a range of this size and takes the request out of it.
fn attempt(session: &Session, wanted: Wanted, device: CUdevice, bytes: u64) -> Result<Allocation, Failed> {
    let (grant, answer) = session.ask(bytes);
    match answer {
        Answer::Granted => {}
        Answer::Denied(reason) => return Err(Failed::Denied(reason)),
        Answer::Ended => return Err(Failed::NotHere),
    }
    let made = physical::reserve(session.driver, bytes).and_then(|address| {
        let parts = make_parts(session, device, address, bytes)?;
        Ok(Range { block: Block { address, bytes }, device, grant, parts })
    });
    let result = match made {
        Ok(range) => {
            let mut table = session.table();
            table.add(wanted.context, wanted.asked_bytes, range, now_ns());
            // Nobody else can have taken it since: the table was held. And if its context ended meanwhile, the new heap
            // is one of nobody's, whose memory the program could not have freed natively either.
            table.take(wanted).ok_or(Failed::Driver(CUresult::OUT_OF_MEMORY))
        }
        Err(refused) => {
            session.say(ToDaemon::Returned { grant });
            Err(Failed::Driver(refused.code))
        }
    };
    session.wake_agent();
    result
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
                unmake(driver, Block { address: start, bytes }, &parts);
                return Err(refused);
            }
        }
        address += size;
        parts.push(part);
    }
    Ok(parts)
}

/// Lets the memory under a range go, and the range. A driver that refuses has lost the context, and with it the memory.
pub(super) fn unmake(driver: &Driver, range: Block, parts: &[Part]) {
    for part in parts {
        if let Some(physical) = part.physical {
            let _ = physical::send_away(driver, part, physical);
        }
    }
    let _ = physical::unreserve(driver, range.address, range.bytes);
}
