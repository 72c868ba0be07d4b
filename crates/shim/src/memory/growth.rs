//! More memory: asks the daemon, and makes it. For a heap it is mapped at addresses of its own; what the program creates
//! itself is the program's to map.
//!
//! A slab has room for more than the request at hand, so most requests never come here: the bytes of their slab were granted
//! ahead. Where so much is not to be had, the request is tried once more with the least that serves it; and before it is out of
//! memory, all that is kept without use goes back.

use cuda::types::CUdevice;
use cuda::{CUresult, Driver};
use wire::{GrantId, HANDLE_BYTES_MAX, PART_BYTES_MAX, SizedHandle, ToDaemon};

use super::heap::{Block, Growth};
use super::table::{Allocation, Created, Home, Kind, Making, Mapping, Part, Range, Wanted, part_sizes};
use super::{cache, now_ns, oversize, peers, physical};
use crate::grants::Answer;
use crate::notice::OnceNotice;
use crate::session::{HeldTable, Session};

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
    let growth = session.table().growth(wanted.context, wanted.asked_bytes).ok_or(Short::NotHere)?;
    let mut device = CUdevice(0);
    // SAFETY: the driver writes one number.
    unsafe { (session.driver.cuCtxGetDevice)(&mut device) }.ok().map_err(|_| Short::NotHere)?;
    persist(session, growth, |bytes| attempt(session, wanted, device, bytes, bytes == growth.least))
}

/// Makes memory that the program is to map itself; returns its number. The calling thread must hold no lock.
pub(super) fn create(session: &Session, kind: Kind, bytes: u64, making: Making) -> Result<u64, Short> {
    persist(session, Growth { best: bytes, least: bytes }, |bytes| {
        let Granted { grant, host_bytes } = granted(session, making, bytes)?;
        let result = match make_unmapped(session, kind, bytes, host_bytes, making) {
            Ok(parts) => {
                let (mut table, grant) = match hold_table(session, making, bytes, (grant, host_bytes)) {
                    Ok(held) => held,
                    Err(failed) => {
                        unmake(session.driver, None, &parts);
                        return Err(failed);
                    }
                };
                tell_of_hosted(session, grant, &parts);
                if making == Making::Kept {
                    // No file stands for it. In the table's order: it may be freed at once.
                    for Part { handle, bytes, .. } in &parts {
                        let handle = SizedHandle { handle: *handle, bytes: *bytes };
                        session.say(ToDaemon::Kept { grant, handle });
                    }
                }
                Ok(table.add_created(Created::new(kind, making, grant, parts)))
            }
            Err(refused) => {
                session.say(ToDaemon::Returned { grant });
                Err(Failed::Driver(refused.code))
            }
        };
        session.wake_agent();
        result
    })
}

/// Tries with less, and without what is kept, before a request is out of memory.
fn persist<T>(
    session: &Session,
    growth: Growth,
    attempt: impl Fn(u64) -> Result<T, Failed>,
) -> Result<T, Short> {
    static DENIED: OnceNotice = OnceNotice::new();
    let mut bytes = growth.best;
    for tries_left in (0..TRIES_MAX).rev() {
        let failed = match attempt(bytes) {
            Ok(made) => return Ok(made),
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

/// What may be made.
struct Granted {
    grant: GrantId,
    /// So much of it in the host's memory.
    host_bytes: u64,
}

/// Asks for bytes, which will be moved or kept.
fn granted(session: &Session, making: Making, bytes: u64) -> Result<Granted, Failed> {
    let ask = || match making {
        Making::Kept => session.ask_to_keep(bytes),
        Making::Moving => session.ask(bytes),
    };
    let mut answer = ask();
    // Before anything lies in the host's memory for good, what is kept without use goes.
    if let (grant, Answer::GrantedHost(_)) = answer
        && cache::drop_all(session)
    {
        session.say(ToDaemon::Returned { grant });
        answer = ask();
    }
    match answer {
        (grant, Answer::Granted) => Ok(Granted { grant, host_bytes: 0 }),
        (grant, Answer::GrantedHost(host_bytes)) if host_bytes <= bytes && making == Making::Moving => {
            Ok(Granted { grant, host_bytes })
        }
        (grant, Answer::GrantedHost(_)) => {
            session.say(ToDaemon::Returned { grant });
            Err(Failed::Driver(CUresult::OUT_OF_MEMORY))
        }
        (_, Answer::Denied(reason)) => Err(Failed::Denied(reason)),
        (_, Answer::Ended) => Err(Failed::NotHere),
    }
}

/// Takes the table to add memory that was made, so much of it in the host's. That may have taken long: a daemon that has come
/// meanwhile knows nothing of the grant, and is asked for one of its own.
fn hold_table(
    session: &Session,
    making: Making,
    bytes: u64,
    (mut grant, host_bytes): (GrantId, u64),
) -> Result<(HeldTable<'_>, GrantId), Failed> {
    loop {
        let table = session.table();
        if session.knows_grant(grant) {
            return Ok((table, grant));
        }
        drop(table);
        match granted(session, making, bytes) {
            Ok(again) if again.host_bytes == host_bytes => grant = again.grant,
            Ok(again) => {
                // Not where it is.
                session.say(ToDaemon::Returned { grant: again.grant });
                return Err(Failed::Driver(CUresult::OUT_OF_MEMORY));
            }
            // There is no daemon any more: the next one hears of all that is in the table.
            Err(Failed::NotHere) => {}
            Err(failed) => return Err(failed),
        }
    }
}

/// Makes a range of this size and takes the request out of it.
fn attempt(
    session: &Session,
    wanted: Wanted,
    device: CUdevice,
    bytes: u64,
    is_least: bool,
) -> Result<Allocation, Failed> {
    let Granted { grant, host_bytes } = granted(session, Making::Moving, bytes)?;
    if host_bytes > 0 && !is_least {
        // The device may have room for less.
        session.say(ToDaemon::Returned { grant });
        return Err(Failed::Driver(CUresult::OUT_OF_MEMORY));
    }
    let made = physical::reserve(session.driver, bytes).and_then(|address| {
        let parts = make_parts(session, device, address, (bytes, host_bytes))?;
        Ok(Range { block: Block { address, bytes }, device, grant, parts })
    });
    let result = match made {
        Ok(mut range) => {
            let mut table;
            (table, range.grant) = match hold_table(session, Making::Moving, bytes, (grant, host_bytes)) {
                Ok(held) => held,
                Err(failed) => {
                    unmake(session.driver, Some(range.block), &range.parts);
                    return Err(failed);
                }
            };
            tell_of_hosted(session, range.grant, &range.parts);
            range.parts.iter().for_each(|part| peers::let_in(session, &table, part));
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

/// Makes memory that is mapped nowhere. On failure nothing is left.
fn make_unmapped(
    session: &Session,
    kind: Kind,
    bytes: u64,
    host_bytes: u64,
    making: Making,
) -> Result<Vec<Part>, physical::Refused> {
    // What stays is as the program asked for it: one handle of the driver.
    let sizes = match making {
        Making::Kept => vec![(Home::Device, bytes)],
        Making::Moving => sizes(session, bytes, host_bytes, HANDLE_BYTES_MAX),
    };
    let mut parts = Vec::new();
    for (home, bytes) in sizes {
        let mut part = new_part(session, kind, home, bytes);
        part.exported |= making == Making::Kept;
        let prop = if making == Making::Kept { kind.asked() } else { part.made() };
        match physical::make(session.driver, &prop, bytes).map_err(|refused| on(home, refused)) {
            Ok(physical) => parts.push(Part { physical: Some(physical), ..part }),
            Err(refused) => {
                unmake(session.driver, None, &parts);
                return Err(refused);
            }
        }
    }
    Ok(parts)
}

/// A part without memory. The daemon gets a file of it, unless it lies in the host's memory.
fn new_part(session: &Session, kind: Kind, home: Home, bytes: u64) -> Part {
    let (handle, exported) = (session.new_handle(), home != Home::Device);
    Part {
        handle,
        mappings: Vec::new(),
        bytes,
        kind,
        home,
        physical: None,
        file: None,
        exported,
        passable: false,
    }
}

/// The sizes of the parts that so much memory is made of, those on the device first, none larger than `most`.
fn sizes(session: &Session, bytes: u64, host_bytes: u64, most: u64) -> Vec<(Home, u64)> {
    let mut sizes = Vec::new();
    if bytes > host_bytes {
        sizes.extend(part_sizes(bytes - host_bytes, most).map(|size| (Home::Device, size)));
    }
    if host_bytes > 0 {
        let home = Home::Host(oversize::near_node(session));
        sizes.extend(part_sizes(host_bytes, most).map(|size| (home, size)));
    }
    sizes
}

/// What a program is told that has no memory: that of the host's is the driver's to refuse for reasons of its own.
fn on(home: Home, refused: physical::Refused) -> physical::Refused {
    match home {
        Home::Device => refused,
        Home::Host(node) | Home::Named(node) => oversize::refused(node, refused),
    }
}

/// Tells the daemon which parts lie in the host's memory. With the table held: they may be freed at once.
fn tell_of_hosted(session: &Session, grant: GrantId, parts: &[Part]) {
    for Part { handle, bytes, .. } in parts.iter().filter(|part| part.is_on_host()) {
        let handle = SizedHandle { handle: *handle, bytes: *bytes };
        session.say(ToDaemon::Hosted { grant, handle });
    }
}

/// Makes the memory under a range that was reserved for it. On failure nothing is left, nor the range.
fn make_parts(
    session: &Session,
    device: CUdevice,
    start: u64,
    (bytes, host_bytes): (u64, u64),
) -> Result<Vec<Part>, physical::Refused> {
    let driver = session.driver;
    let mut parts = Vec::new();
    let mut address = start;
    for (home, size) in sizes(session, bytes, host_bytes, PART_BYTES_MAX) {
        let mut part = new_part(session, Kind::plain(device), home, size);
        part.mappings.push(Mapping::for_device(address, device));
        match physical::bring(driver, &part).map_err(|refused| on(home, refused)) {
            Ok(physical) => part.physical = Some(physical),
            Err(refused) => {
                unmake(driver, Some(Block { address: start, bytes }), &parts);
                return Err(refused);
            }
        }
        address += size;
        parts.push(part);
    }
    Ok(parts)
}

/// Lets memory go, and its addresses where those are rota's. A driver that refuses has lost the context, and with it the
/// memory.
pub(super) fn unmake(driver: &Driver, range: Option<Block>, parts: &[Part]) {
    for part in parts {
        if let Some(physical) = part.physical {
            let _ = physical::send_away(driver, part, physical);
        }
    }
    if let Some(range) = range {
        let _ = physical::unreserve(driver, range.address, range.bytes);
    }
}
