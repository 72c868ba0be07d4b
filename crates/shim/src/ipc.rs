//! Memory that other processes open by a name of 64 bytes: `cuIpcGetMemHandle`, `cuIpcOpenMemHandle`, `cuIpcCloseMemHandle`.
//!
//! The driver has such names for its own `cuMemAlloc` memory only. Rota's names lead to the daemon: it has a file for each
//! handle under the allocation, which its owner sent, and gives it to processes of the same user. From then on that memory
//! stays where it is. A name without rota's mark is the driver's matter.
//!
//! What is opened is the whole range that the allocation lies in, since a handle cannot be mapped in part: a small
//! allocation is opened together with its neighbours in the slab, all of them of the same program and the same user.
//!
//! - [`name`]: what the 64 bytes say. [`opened`]: what this process has open.

mod name;
mod opened;

use std::ffi::{c_uint, c_void};
use std::os::fd::{AsRawFd as _, OwnedFd};

use cuda::CUresult;
use cuda::types::{
    CUcontext, CUdevice, CUdeviceptr, CUipcMemHandle, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemGenericAllocationHandle,
};
use wire::{GrantId, HANDLES_MAX, HandleId, SizedHandle, ToDaemon, Token};

use crate::foreign::{self, Taking};
use crate::grants::Answer;
use crate::guard::guarded;
use crate::memory::physical::{self, Refused};
use crate::memory::{Table, allocation, native, pinned, probe};
use crate::notice::OnceNotice;
use crate::session::{self, NotPinned, Session};
use name::Name;
pub(crate) use opened::{Names, Opened};

/// The only flag that there is.
const LAZY_PEER: c_uint = 1;

/// A name for an allocation by which other processes open it.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuIpcGetMemHandle(name: *mut CUipcMemHandle, address: CUdeviceptr) -> CUresult {
    let published = guarded(
        "cuIpcGetMemHandle",
        || Some(Err(CUresult::UNKNOWN)),
        || {
            let session = session::around(address.0).filter(|_| !name.is_null())?;
            allocation::current(session)?;
            publish(session, address.0)
        },
    );
    match published {
        // SAFETY: the caller's arguments, as they came.
        None => unsafe { native::cuIpcGetMemHandle(name, address) },
        Some(Err(code)) => code,
        Some(Ok(published)) => {
            // SAFETY: not null, and the caller promises a place for a name.
            unsafe { name.write(published.bytes()) };
            CUresult::SUCCESS
        }
    }
}

macro_rules! opening {
    ($symbol:ident) => {
        /// Opens memory of another process.
        ///
        /// # Safety
        /// As for the driver's function.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(
            address: *mut CUdeviceptr,
            name: CUipcMemHandle,
            flags: c_uint,
        ) -> CUresult {
            let opened = guarded(
                stringify!($symbol),
                || Some(Err(CUresult::UNKNOWN)),
                || {
                    let asked = Name::of(&name)?;
                    if address.is_null() || flags != LAZY_PEER {
                        return Some(Err(CUresult::INVALID_VALUE));
                    }
                    Some(open(&asked))
                },
            );
            match opened {
                // SAFETY: the caller's arguments, as they came.
                None => foreign::taken_by(stringify!($symbol), || unsafe {
                    native::$symbol(address, name, flags)
                }),
                Some(Err(code)) => code,
                Some(Ok(start)) => {
                    // SAFETY: not null, and the caller promises a place for an address.
                    unsafe { address.write(CUdeviceptr(start)) };
                    CUresult::SUCCESS
                }
            }
        }
    };
}

opening!(cuIpcOpenMemHandle);
opening!(cuIpcOpenMemHandle_v2);

/// Closes memory of another process.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuIpcCloseMemHandle(address: CUdeviceptr) -> CUresult {
    let close = || {
        let mut all = session::all();
        let session = all.find(|session| session.names().context_of(address.0).is_some())?;
        close(session, address.0)
    };
    let closed = guarded("cuIpcCloseMemHandle", || Some(CUresult::UNKNOWN), close);
    // SAFETY: the caller's argument, as it came.
    closed.unwrap_or_else(|| unsafe { native::cuIpcCloseMemHandle(address) })
}

/// A name for what an address lies in; None if that is not rota's.
fn publish(session: &Session, address: u64) -> Option<Result<Name, CUresult>> {
    let table = session.table();
    let Some(found) = table.around(address).copied() else {
        // What the program created itself has no such names, and what is free has none.
        return table.overlaps(address, 1).then_some(Err(CUresult::INVALID_VALUE));
    };
    let range = table.range_around(address)?;
    let (start, first) = (range.block.address, range.parts.first()?.handle);
    drop(table);
    if !found.pool.is_null() {
        return Some(Err(CUresult::INVALID_VALUE));
    }
    let name = |token| Name { token, offset: found.block.address - start, bytes: found.asked_bytes };
    if let Some(token) = session.names().published(start, first) {
        return Some(Ok(name(token)));
    }
    let (token, request) = match publish_range(session, start) {
        Ok(published) => published,
        Err(code) => return Some(Err(code)),
    };
    let mut names = session.names();
    if !session.knows_grant(request) {
        // There is another daemon meanwhile, which was not told of it.
        names.publish_later(start, first, token);
        session.wake_agent();
    }
    names.note_published(start, first, token, |handle| session.table().part(handle).is_some());
    Some(Ok(name(token)))
}

/// Has the daemon let others open all of a range, which stays where it is from then on.
fn publish_range(session: &Session, start: u64) -> Result<(Token, GrantId), CUresult> {
    static DENIED: OnceNotice = OnceNotice::new();
    let denied = |reason: String| {
        DENIED.notice(format_args!("memory cannot be shared with other processes: {reason}"));
        CUresult::OUT_OF_MEMORY
    };
    let handles = pinned::once_exported(session, |table| Some(table.range_around(start)?.parts.clone()))?;
    session.pin(&handles).map_err(|not| match not {
        NotPinned::Denied(reason) => denied(reason),
        // Rota's memory has no names without the daemon.
        NotPinned::Ended => CUresult::NOT_SUPPORTED,
    })?;
    let token = random_token();
    let published = loop {
        let sent = send_files(session, start, &handles, token, || session.request());
        session.wake_agent();
        match sent.map(|request| (request, session.answer(request))) {
            Ok((request, Answer::Granted | Answer::GrantedHost(_))) => break Ok((token, request)),
            Ok((_, Answer::Denied(reason))) => break Err(denied(reason)),
            Ok((_, Answer::Ended)) if session.has_ended() => break Err(CUresult::NOT_SUPPORTED),
            // There is another daemon.
            Ok((_, Answer::Ended)) => {}
            Err(code) => break Err(code),
        }
    };
    published.inspect_err(|_| session.unpin(&handles))
}

/// Publishes the next of what was published before this daemon came, under its old name. False if that has to be tried again;
/// None if nothing is left.
pub(crate) fn publish_again(session: &Session) -> Option<bool> {
    let (start, first, token) = session.names().next_to_publish()?;
    let handles = |table: &Table| {
        let parts = &table.range_around(start)?.parts;
        let is_same = parts.first().is_some_and(|part| part.handle == first);
        is_same.then(|| parts.iter().map(|part| part.handle).collect::<Vec<_>>())
    };
    // Freed, or sent away before the daemon knows it as pinned: its name means nothing then.
    let handles = handles(&session.table()).filter(|handles| session.are_pinned(handles));
    let send = |handles: Vec<_>| {
        // Nobody waits for the answer.
        send_files(session, start, &handles, token, || session.unawaited_request()).map(drop)
    };
    let published = handles.map_or(Ok(()), send);
    let for_good = [CUresult::INVALID_VALUE, CUresult::UNKNOWN, CUresult::DEINITIALIZED];
    let is_over = published.map_or_else(|code| for_good.contains(&code), |()| true);
    if !is_over {
        // Too many files are open for the moment, most likely.
        session.names().publish_later(start, first, token);
    }
    Some(is_over)
}

/// Sends the daemon a file for each of these handles of a range, and asks for them to be published, by a request that is made
/// only if all of them can be sent.
fn send_files(
    session: &Session,
    start: u64,
    handles: &[HandleId],
    token: Token,
    request: impl FnOnce() -> GrantId,
) -> Result<GrantId, CUresult> {
    // A free that comes later is told later.
    let table = session.table();
    let parts = table.range_around(start).map(|range| &range.parts[..]).unwrap_or_default();
    if parts.iter().map(|part| part.handle).ne(handles.iter().copied()) {
        // Freed meanwhile by another thread of the program.
        return Err(CUresult::INVALID_VALUE);
    }
    let mut files = Vec::new();
    for part in parts {
        let physical = part.physical.ok_or(CUresult::UNKNOWN)?;
        files.push(physical::file_of(session.driver, part, physical).map_err(|refused| refused.code)?);
    }
    let request = request();
    let mut files = files.into_iter();
    let batches = parts.chunks(HANDLES_MAX).len();
    for (number, batch) in (1..).zip(parts.chunks(HANDLES_MAX)) {
        let handles: Vec<_> =
            batch.iter().map(|part| SizedHandle { handle: part.handle, bytes: part.bytes }).collect();
        let files = files.by_ref().take(handles.len()).collect();
        let message = ToDaemon::Publish { request, token, handles, complete: number == batches };
        session.outbox.put(message, files);
    }
    Ok(request)
}

/// Random bits that nobody guesses.
fn random_token() -> Token {
    let mut bytes = [0_u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: the system writes at most so many bytes. It fails only when a signal comes.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        filled += usize::try_from(got).unwrap_or(0);
    }
    Token(u128::from_le_bytes(bytes))
}

/// Opens what another process published, and returns where the allocation is here.
fn open(name: &Name) -> Result<u64, CUresult> {
    static ALONE: OnceNotice = OnceNotice::new();
    let Some(session) = session::here()?.filter(|session| !session.has_ended()) else {
        ALONE.notice(format_args!(
            "memory of a program under rota can be opened only by programs under the same daemon"
        ));
        return Err(CUresult::INVALID_VALUE);
    };
    let context = allocation::current(session).ok_or(CUresult::INVALID_CONTEXT)?;
    if session::all().any(|session| session.names().is_own(name.token)) {
        return Err(CUresult::INVALID_CONTEXT);
    }
    if let Some(start) = session.names().open_again(context, name) {
        return start;
    }
    let (request, sizes_and_files) = session.open(name.token)?;
    let _taking = Taking::begin();
    let mapped = map(session, sizes_and_files).and_then(|(start, sizes)| {
        let opened = Opened::new(context, name.token, start, sizes);
        match opened.place(name) {
            Some(_) => {
                let mut names = session.names();
                if !session.knows_grant(request) {
                    // There is another daemon meanwhile, which was not told of it.
                    let request = session.unawaited_request();
                    session.say(ToDaemon::Open { request, token: name.token });
                    session.wake_agent();
                }
                Ok(names.add(opened, name))
            }
            None => {
                unmap(session, &opened);
                Err(CUresult::INVALID_VALUE)
            }
        }
    });
    if mapped.is_err() {
        let _names = session.names();
        // A daemon that was not told of it would close another one of the same name.
        if session.knows_grant(request) {
            session.say(ToDaemon::Closed { token: name.token });
            session.wake_agent();
        }
    }
    mapped
}

/// Maps memory of others at addresses in a row, for the current context's device. On failure nothing is left.
fn map(session: &Session, memory: Vec<(u64, OwnedFd)>) -> Result<(u64, Vec<u64>), CUresult> {
    let driver = session.driver;
    let mut device = CUdevice(0);
    // SAFETY: the driver writes one number.
    let code = unsafe { (driver.cuCtxGetDevice)(&mut device) };
    if code != CUresult::SUCCESS {
        return Err(code);
    }
    let bytes: u64 = memory.iter().map(|(bytes, _)| bytes).sum();
    let start = physical::reserve(driver, bytes).map_err(|refused| refused.code)?;
    let mut mapped = Vec::new();
    let undo = |mapped: Vec<u64>| {
        unmap_parts(session, start, &mapped);
        let _ = physical::unreserve(driver, start, bytes);
    };
    for (size, file) in memory {
        let at = start + mapped.iter().sum::<u64>();
        if let Err(refused) = import(session, at, size, &file) {
            undo(mapped);
            return Err(refused.code);
        }
        mapped.push(size);
    }
    let location =
        CUmemAllocationProp::on_device(device, CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR).location;
    let access = CUmemAccessDesc { location, flags: CUmemAccess_flags::READWRITE };
    // SAFETY: mapped above with this size; the driver reads one description.
    let allowed = unsafe { (driver.cuMemSetAccess)(CUdeviceptr(start), bytes as usize, &access, 1) };
    if allowed != CUresult::SUCCESS {
        undo(mapped);
        return Err(allowed);
    }
    Ok((start, mapped))
}

/// Maps the memory that a file stands for.
fn import(session: &Session, address: u64, bytes: u64, file: &OwnedFd) -> Result<(), Refused> {
    let driver = session.driver;
    let mut handle = CUmemGenericAllocationHandle(0);
    // The driver takes the number of a file in place of an address.
    let number = std::ptr::without_provenance_mut::<c_void>(file.as_raw_fd() as usize);
    let kind = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
    // SAFETY: the driver writes one handle, and takes a file of its own for this one.
    let code = unsafe { (driver.cuMemImportFromShareableHandle)(&mut handle, number, kind) };
    if code != CUresult::SUCCESS {
        return Err(Refused { call: "cuMemImportFromShareableHandle", code });
    }
    let mapped = physical::map(driver, address, bytes, handle);
    // What is mapped stays without it.
    // SAFETY: made above, and nobody else has it.
    let _ = unsafe { (driver.cuMemRelease)(handle) };
    mapped
}

fn unmap_parts(session: &Session, start: u64, sizes: &[u64]) {
    let mut at = start;
    for size in sizes {
        // A driver that refuses has lost the context, and with it the memory.
        let _ = physical::unmap(session.driver, at, *size);
        at += size;
    }
}

fn unmap(session: &Session, opened: &Opened) {
    unmap_parts(session, opened.start, &opened.sizes);
    let _ = physical::unreserve(session.driver, opened.start, opened.bytes());
}

/// Closes what was opened at an address; None if nothing of rota's was.
fn close(session: &Session, address: u64) -> Option<CUresult> {
    let context = session.names().context_of(address)?;
    // As the driver does when memory goes; a frozen program waits here for its next turn, with no lock held.
    let waited = probe::wait(session, context);
    // Until it is unmapped it is there, whatever the books say.
    let _taking = Taking::begin();
    if !probe::is_capture(waited)
        && let Some(opened) = session.names().close(address)
    {
        let_go(session, &[opened]);
    }
    Some(waited)
}

/// A context is gone, and what was open in it.
pub(crate) fn context_ended(session: &Session, context: CUcontext) {
    let opened = session.names().end(context);
    let_go(session, &opened);
}

fn let_go(session: &Session, all: &[Opened]) {
    for opened in all {
        unmap(session, opened);
        session.say(ToDaemon::Closed { token: opened.token });
    }
    if !all.is_empty() {
        session.wake_agent();
    }
}
