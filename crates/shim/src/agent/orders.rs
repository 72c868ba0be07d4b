//! The daemon's orders: take memory away from under addresses, and put new memory there, or such as another program had.
//!
//! They come while the tenant is frozen, so nothing on the GPU uses those addresses. Every handle of an order is
//! answered for exactly once, unless the program is exiting: then there is nobody to answer for.

use std::os::fd::OwnedFd;

use wire::{HANDLES_MAX, HandleId, ToDaemon};

use super::Ended;
use crate::memory::physical::{self, Refused};
use crate::memory::table::Part;
use crate::memory::taken::TakenFile;
use crate::memory::{cache, peers};
use crate::session::Session;

/// Unmaps these and lets their memory go.
pub(super) fn unmap(session: &Session, handles: &[HandleId]) -> Result<(), Ended> {
    // First, so that no free opens the gate before this is done; and closing waits for calls, so not with the lock held.
    session.table().begin_unmapping();
    session.gate.close();
    // What nobody has need not come back either.
    cache::drop_all(session);
    for handles in handles.chunks(HANDLES_MAX) {
        let mut done = Vec::new();
        for &handle in handles {
            match unmap_one(session, handle) {
                Ok(()) => done.push(handle),
                Err(refused) => fail(session, handle, refused)?,
            }
        }
        if !done.is_empty() {
            session.say(ToDaemon::Unmapped { handles: done });
        }
    }
    let mut table = session.table();
    table.end_unmapping();
    // Perhaps nothing is away: all of it was freed meanwhile, or could not be unmapped.
    session.open_gate_if_whole(&table);
    Ok(())
}

fn unmap_one(session: &Session, handle: HandleId) -> Result<(), Refused> {
    let mut table = session.table();
    // Freed by the program: the daemon is about to hear so.
    let Some((context, part)) = table.part(handle) else { return Ok(()) };
    let Some(physical) = part.physical else { return Ok(()) };
    physical::within(session.driver, context, || physical::send_away(session.driver, &part, physical))?;
    table.set_physical(handle, None);
    Ok(())
}

/// Puts new memory under these, and gives the daemon a file for each.
pub(super) fn create(session: &Session, handles: &[HandleId]) -> Result<(), Ended> {
    for handles in handles.chunks(HANDLES_MAX) {
        let (mut done, mut files) = (Vec::new(), Vec::new());
        for &handle in handles {
            match create_one(session, handle) {
                Ok(file) => {
                    done.push(handle);
                    files.push(file);
                }
                Err(refused) => fail(session, handle, refused)?,
            }
        }
        if !done.is_empty() {
            session.outbox.put(ToDaemon::Created { handles: done }, files);
        }
    }
    session.open_gate_if_whole(&session.table());
    Ok(())
}

fn create_one(session: &Session, handle: HandleId) -> Result<OwnedFd, Refused> {
    let driver = session.driver;
    let mut table = session.table();
    let Some((context, part)) = table.part(handle) else { return Err(FREED) };
    physical::within(driver, context, || {
        // What is there already is only exported again.
        if let Some(physical) = part.physical {
            return physical::file_of(driver, &part, physical);
        }
        let physical = physical::bring(driver, &part)?;
        match physical::file_of(driver, &part, physical) {
            Ok(file) => {
                table.set_physical(handle, Some(physical));
                // What the program maps itself, it opens itself.
                if table.is_in_a_range(handle) {
                    peers::let_in(session, &table, &Part { physical: Some(physical), ..part });
                }
                Ok(file)
            }
            Err(refused) => {
                let _ = physical::send_away(driver, &part, physical);
                Err(refused)
            }
        }
    })
}

/// Puts memory under these that another program had. It is filled already.
pub(super) fn take(session: &Session, handles: &[HandleId], files: Vec<OwnedFd>) -> Result<(), Ended> {
    // All at once, so that a forked child finds them.
    let mut files = files.into_iter().map(TakenFile::keep).collect::<Vec<_>>().into_iter();
    let mut done = Vec::new();
    for &handle in handles {
        match take_one(session, handle, files.next().flatten()) {
            Ok(()) => done.push(handle),
            Err(refused) => fail(session, handle, refused)?,
        }
    }
    for handles in done.chunks(HANDLES_MAX) {
        session.say(ToDaemon::Taken { handles: handles.to_vec() });
    }
    session.open_gate_if_whole(&session.table());
    Ok(())
}

fn take_one(session: &Session, handle: HandleId, file: Option<TakenFile>) -> Result<(), Refused> {
    let driver = session.driver;
    let mut table = session.table();
    let Some((context, part)) = table.part(handle) else { return Err(FREED) };
    // What others may have, or is there already, cannot be another's; and without its file it could not be shown again.
    let file = file.filter(|_| part.passable && part.physical.is_none());
    let file = file.ok_or(Refused { call: "Take", code: cuda::CUresult::OPERATING_SYSTEM })?;
    physical::within(driver, context, || {
        let physical = physical::take(driver, &part, file.file())?;
        table.set_taken(handle, physical, file);
        peers::let_in(session, &table, &Part { physical: Some(physical), ..part });
        Ok(())
    })
}

/// Not an error of the driver: the program freed it meanwhile, and the daemon is about to hear so.
const FREED: Refused = Refused { call: "freed", code: cuda::CUresult::SUCCESS };

fn fail(session: &Session, handle: HandleId, refused: Refused) -> Result<(), Ended> {
    if refused.code == cuda::CUresult::DEINITIALIZED {
        return Err(Ended::Program);
    }
    let (code, call) = (refused.code.0, refused.call.to_owned());
    session.say(ToDaemon::Failed { handles: vec![handle], code, call });
    Ok(())
}
