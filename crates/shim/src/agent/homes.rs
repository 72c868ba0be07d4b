//! Memory that changes places between the device and the host, as the daemon orders.
//!
//! New memory is made beside the old one and shown to the daemon, which fills it while the program is frozen; then it is put
//! under the same addresses, and the old one goes. Until then the old one has the program's bytes: should the daemon be gone
//! before, the new one is dropped, and nothing has happened. Each question for it has a number: the daemon may have given one
//! up and asked anew before the first is heard here, and has filled only what was made for the one that it names.
//!
//! Memory of the host's takes long to make, a quarter of a second for a GiB: it is made while the program runs, one part at a time,
//! so that other orders are served in between.

use std::os::fd::OwnedFd;

use cuda::CUresult;
use wire::{HandleId, Question, ToDaemon};

use super::{Ended, Next};
use crate::memory::physical::{self, Refused};
use crate::memory::table::{Home, Kind, Part};
use crate::memory::{oversize, peers};
use crate::session::Session;

/// Not an error of the driver: the program has freed it, shares it or has named its place, and the daemon may not know so yet.
const NOT_NOW: Refused = Refused { call: "not now", code: CUresult::SUCCESS };

/// Makes memory for these in another home, at once or, of the host's, one after the other.
pub(super) fn prepare(session: &Session, questions: &[Question], home: wire::Home) -> Result<(), Ended> {
    // First, so that there is room for the new.
    let outdated = session.table().take_outdated(questions);
    release(session, outdated);
    match home {
        wire::Home::Host => session.table().want_prepared(questions),
        wire::Home::Device => {
            for &question in questions {
                prepare_or_say(session, question, Home::Device)?;
            }
        }
    }
    Ok(())
}

/// Makes the next memory of the host's that is wanted, and lets go of what is not any more.
pub(super) fn go_on(session: &Session) -> Next {
    let (next, unwanted) = {
        let mut table = session.table();
        (table.next_to_prepare(), table.take_unwanted(false))
    };
    release(session, unwanted);
    let Some(question) = next else { return Next::WhenWoken };
    // A program that exits is found out by the next order.
    let _ = prepare_or_say(session, question, Home::Host(oversize::near_node(session)));
    Next::AtOnce
}

fn prepare_or_say(session: &Session, question: Question, home: Home) -> Result<(), Ended> {
    match prepare_one(session, question, home) {
        Ok(file) => {
            session.outbox.put(ToDaemon::Prepared { questions: vec![question] }, vec![file]);
            Ok(())
        }
        Err(refused) => stay(session, question, refused),
    }
}

fn prepare_one(session: &Session, question: Question, home: Home) -> Result<OwnedFd, Refused> {
    let driver = session.driver;
    let part = changing(session, question.handle, home)?;
    let prop = match home {
        Home::Device => part.kind.made(),
        Home::Host(node) | Home::Named(node) => Kind::on_host(node),
    };
    // Without the table: the program may be busy with its memory.
    let physical = physical::make(driver, &prop, part.bytes)?;
    let file = physical::export(driver, physical).inspect_err(|_| physical::release(driver, physical))?;
    let before = session.table().add_prepared(question, home, physical);
    release(session, before.into_iter().collect());
    Ok(file)
}

/// A part that can have this home, and has another.
fn changing(session: &Session, handle: HandleId, home: Home) -> Result<Part, Refused> {
    let table = session.table();
    let part = table.part(handle).map(|(_, part)| part).filter(|_| table.can_change_home(handle));
    let part = part.filter(|part| part.is_on_host() == (home == Home::Device)).ok_or(NOT_NOW)?;
    // Others know the memory, and not its address.
    if session.is_pinned(handle) { Err(NOT_NOW) } else { Ok(part) }
}

/// Puts what was prepared, and has their bytes by now, under the addresses of these.
pub(super) fn exchange(session: &Session, questions: &[Question]) -> Result<(), Ended> {
    // As for unmapping: calls that look up addresses wait meanwhile.
    session.table().begin_unmapping();
    session.gate.close();
    let mut done = Vec::new();
    let mut result = Ok(());
    for &question in questions {
        match exchange_one(session, question) {
            Ok(()) => done.push(question),
            Err(refused) => result = result.and(stay(session, question, refused)),
        }
    }
    if !done.is_empty() {
        session.say(ToDaemon::Exchanged { questions: done });
    }
    let mut table = session.table();
    table.end_unmapping();
    session.open_gate_if_whole(&table);
    result
}

fn exchange_one(session: &Session, question: Question) -> Result<(), Refused> {
    let (driver, handle) = (session.driver, question.handle);
    let mut table = session.table();
    let Some((home, new)) = table.take_prepared(question) else { return Err(NOT_NOW) };
    let drop_new = |refused: Refused| {
        physical::release(driver, new);
        refused
    };
    // Filled while it stood still: had it run since, that would be old.
    let stands = session.page.frozen() && !session.page.resident();
    let part = table.part(handle).filter(|_| stands && table.can_change_home(handle));
    let part = part.filter(|_| !session.is_pinned(handle)).ok_or(NOT_NOW).map_err(drop_new)?;
    let (context, part) = part;
    physical::within(driver, context, || physical::exchange(driver, &part, part.physical, new))
        .map_err(drop_new)?;
    if let Some(old) = part.physical {
        physical::release(driver, old);
    }
    table.set_home(handle, home, new);
    if table.is_in_a_range(handle) {
        peers::let_in(session, &table, &Part { physical: Some(new), home, ..part });
    }
    Ok(())
}

fn stay(session: &Session, question: Question, refused: Refused) -> Result<(), Ended> {
    if refused.code == CUresult::DEINITIALIZED {
        return Err(Ended::Program);
    }
    let (code, call) = (refused.code.0, refused.call.to_owned());
    session.say(ToDaemon::Stayed { questions: vec![question], code, call });
    Ok(())
}

/// What was prepared for these, or is to be, is not wanted any more.
pub(super) fn discard(session: &Session, questions: &[Question]) {
    let mut table = session.table();
    let made = questions.iter().filter_map(|&question| table.take_prepared(question));
    let made = made.map(|(_, physical)| physical).collect();
    drop(table);
    release(session, made);
}

/// The daemon is gone: it will never fill what was prepared.
pub(super) fn discard_all(session: &Session) {
    let unwanted = session.table().take_unwanted(true);
    release(session, unwanted);
}

fn release(session: &Session, unwanted: Vec<cuda::types::CUmemGenericAllocationHandle>) {
    for physical in unwanted {
        physical::release(session.driver, physical);
    }
}
