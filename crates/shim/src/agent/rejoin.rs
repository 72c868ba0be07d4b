//! A program that outlives its daemon joins the next one at the same place: its worker was replaced, or the whole daemon was
//! started again by whoever looks after it.
//!
//! It comes with all of its memory: what lies under its addresses, and what was away when the daemon went and is with the
//! keeper still. So one that has all of its memory goes on meanwhile, and one that has not waits, frozen as it is.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use cuda::CUresult;
use rustix::io::Errno;
use wire::{Connection, FromDaemon, HANDLES_MAX, HandleId, SizedHandle, ToDaemon, VERSION, WireError};

use super::{farewell, homes};
use crate::demand::vacate;
use crate::gpus;
use crate::join::{self, JoinError, WELCOME_SECONDS_MAX};
use crate::memory::physical::{self, Refused};
use crate::memory::table::{Survivors, Told};
use crate::notice::{OnceNotice, notice};
use crate::session::{self, Session};
use crate::settings;
use crate::transient::{Noted, Transient};

/// How often it is looked whether there is one, at first and after a while.
const SOON: Duration = Duration::from_millis(200);
const SOON_TRIES: u32 = 100;
const LATER: Duration = Duration::from_secs(2);

/// The longest pauses of one that is refused again and again: of one that goes on meanwhile, and of one that cannot.
const REFUSED: Duration = Duration::from_secs(60);
const REFUSED_WAITING: Duration = Duration::from_secs(5);

/// How long a daemon may be silent to a program that cannot go on without: one that is started anew tests the GPU first.
const PATIENT_SECONDS_MAX: i64 = 120;

/// How often a message is tried again that the system has no room for.
const TRIES_MAX: u32 = 500;
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// How long all in all is waited for files of memory, where there are too many open: of a program that goes on meanwhile, and
/// of one that cannot.
const SHOWN_WITHIN: Duration = Duration::from_millis(100);
const SHOWN_WITHIN_WAITING: Duration = Duration::from_secs(5);

/// Waits for the next daemon, and has it take this program in. False if there will be none for it, and it goes on without.
/// A program that cannot go on without ends here, should its memory be lost.
pub(super) fn join_next(session: &'static Session) -> bool {
    let joined = join_some(session);
    if !joined {
        session.stay_alone();
    }
    joined
}

fn join_some(session: &'static Session) -> bool {
    let can_go_on = farewell::can_go_on();
    if can_go_on {
        farewell::release(session);
    }
    session.connection.shut_down();
    homes::discard_all(session);
    // Nobody hears it any more, and its files would keep memory that was let go of. What the next daemon has to know it is told anew.
    session.outbox.clear();
    let Some(socket) = settings::socket() else {
        return go_on_alone(session, can_go_on, "the daemon is gone");
    };
    let waits = settings::wait_for_daemon();
    let until = Instant::now() + waits;
    let mut was_alone = false;
    let mut refusals = 0;
    for tries in 0.. {
        // The GPUs of a process read each other's memory: with one of them under a daemon and another not, memory would move
        // away from under somebody who is not frozen.
        if session::all().any(Session::stays_alone) {
            return go_on_alone(session, can_go_on, "another GPU of this program is not shared any more");
        }
        match attempt(session, &socket, can_go_on) {
            Ok(()) => {
                if was_alone {
                    notice(format_args!("there is a daemon again"));
                }
                return true;
            }
            Err(JoinError::Exiting) => {
                farewell::leave(session);
                return false;
            }
            Err(JoinError::Lost(reason)) if !can_go_on => farewell::lose(&reason),
            Err(error) => {
                was_alone = true;
                let is_final = matches!(error, JoinError::Lost(_) | JoinError::Strange(_));
                // A daemon that has gone meanwhile refuses nobody.
                refusals = if matches!(error, JoinError::Refused(_)) { refusals + 1 } else { 0 };
                if can_go_on {
                    complain(&error);
                    farewell::go_alone(session);
                    if is_final {
                        return false;
                    }
                } else {
                    wait(&error, waits);
                    if Instant::now() >= until {
                        farewell::lose(&format!("no daemon took this program in within {waits:?}"));
                    }
                }
            }
        }
        std::thread::sleep(pause(tries, refusals, can_go_on));
    }
    false
}

/// There is no daemon for it, and will be none. Always false.
fn go_on_alone(session: &Session, can_go_on: bool, why: &str) -> bool {
    if !can_go_on {
        farewell::lose(why);
    }
    farewell::go_alone(session);
    false
}

/// How long until the next try. One that is refused comes more and more seldom: it makes files of all of its memory each time,
/// and whoever refuses it has its reasons.
fn pause(tries: u32, refusals: u32, can_go_on: bool) -> Duration {
    let most = if can_go_on { REFUSED } else { REFUSED_WAITING };
    match refusals {
        0 if tries < SOON_TRIES => SOON,
        0 => LATER,
        times => (LATER * (1 << (times - 1).min(16))).min(most),
    }
}

/// Why a program that can go on does so without rota. Where nobody is there, that is said elsewhere.
fn complain(error: &JoinError) {
    static REFUSED: OnceNotice = OnceNotice::new();
    if !matches!(error, JoinError::Wire(_) | JoinError::Silent(..)) {
        REFUSED.notice(format_args!("{error}; running on without rota"));
    }
}

/// A program that cannot go on waits.
fn wait(error: &JoinError, waits: Duration) {
    static WAITS: OnceNotice = OnceNotice::new();
    WAITS.notice(format_args!(
        "the daemon is gone ({error}); memory of this program is with its keeper, so it waits for the next one, for up to \
         {waits:?} (ROTA_WAIT_FOR_DAEMON)"
    ));
}

/// Has the daemon at a socket take this program in.
fn attempt(session: &'static Session, socket: &Path, can_go_on: bool) -> Result<(), JoinError> {
    let connection = Connection::connect(socket)?;
    let patience = if can_go_on { WELCOME_SECONDS_MAX } else { PATIENT_SECONDS_MAX };
    let page = &session.page;
    let (program, job) = join::names(gpus::is_sole());
    let rejoin = ToDaemon::Rejoin {
        version: VERSION,
        tenant: session.tenant(),
        epoch: page.epoch(),
        job,
        program,
        gpu: session.uuid.to_string(),
        resident: farewell::has_its_memory(),
        frozen: page.frozen(),
        channels: page.channel_generation() > 0,
        holds_launches: page.holds_launches(),
        sessions: session::all().count() as u32,
        vacated: vacate::is_closed(),
    };
    let noted = Noted::of(&connection);
    join::ask(&connection, &rejoin)?;
    // Nothing is sent that nobody is there to take: files on their way count for the whole user.
    let (mut answer, mut files) = join::answer_within(&connection, socket, patience)?;
    let mut told = Told::default();
    if let FromDaemon::Waiting { .. } = answer {
        told = tell(session, &connection, can_go_on)?;
        (answer, files) = join::answer_within(&connection, socket, patience)?;
    }
    // Before its number may be another's.
    drop(noted);
    let welcome = join::welcomed(connection, answer, files)?;
    if welcome.page.holds_launches() != page.holds_launches() {
        return Err(JoinError::Strange("the new daemon stops programs in another way"));
    }
    session.begin_again(welcome, told)
}

/// Some of what a program has, on its way to a daemon.
#[derive(Default)]
struct Batch {
    here: Vec<SizedHandle>,
    away: Vec<SizedHandle>,
    unshown: Vec<SizedHandle>,
    passable: Vec<HandleId>,
    files: Vec<Transient>,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.here.len() + self.away.len() + self.unshown.len() >= HANDLES_MAX
    }

    fn is_empty(&self) -> bool {
        self.here.is_empty() && self.away.is_empty() && self.unshown.is_empty()
    }

    /// Sends it, which closes its files here.
    fn send(&mut self, connection: &Connection, complete: bool) -> Result<(), WireError> {
        let Self { here, away, unshown, passable, files } = std::mem::take(self);
        send(connection, &ToDaemon::Has { here, away, unshown, passable, complete }, &files)
    }
}

/// Tells a daemon of all memory. Returns of what, and how.
///
/// What cannot be shown for a while is told of without a file. It must not be left out: the daemon takes that for freed, and
/// its bytes may be with the keeper.
fn tell(session: &Session, connection: &Connection, can_go_on: bool) -> Result<Told, JoinError> {
    static FAILED: OnceNotice = OnceNotice::new();
    let until = Instant::now() + if can_go_on { SHOWN_WITHIN } else { SHOWN_WITHIN_WAITING };
    let mut told = Told::default();
    let mut batch = Batch::default();
    let Survivors { movable, staying } = session.survivors();
    let stays = staying.into_iter().map(|handle| (handle, false));
    for (handle, mut is_shown) in movable.into_iter().map(|handle| (handle, true)).chain(stays) {
        let is_there = loop {
            let refused = match show(session, handle, is_shown, &mut batch) {
                Ok(is_there) => break is_there,
                Err(refused) => refused,
            };
            if refused.code == CUresult::DEINITIALIZED {
                return Err(JoinError::Exiting);
            }
            FAILED.notice(format_args!("{} failed: {}", refused.call, refused.code));
            if Instant::now() >= until {
                is_shown = false;
                continue;
            }
            // Its files may be those that leave no room for another.
            if !batch.is_empty() {
                batch.send(connection, false)?;
            }
            std::thread::sleep(TRY_AGAIN);
        };
        if is_there {
            let known = if is_shown { &mut told.shown } else { &mut told.unshown };
            known.insert(handle);
        }
        if batch.is_full() {
            batch.send(connection, false)?;
        }
    }
    for sized in session.kept_survivors() {
        told.kept.insert(sized.handle);
        batch.unshown.push(sized);
        if batch.is_full() {
            batch.send(connection, false)?;
        }
    }
    if !batch.is_empty() {
        batch.send(connection, false)?;
    }
    batch.send(connection, true)?;
    Ok(told)
}

/// Adds a handle to what is told, with a file if it is to be shown. False if it is gone.
fn show(session: &Session, handle: HandleId, is_shown: bool, batch: &mut Batch) -> Result<bool, Refused> {
    // Held for one at a time: the program may be busy with its memory.
    let table = session.table();
    let Some((_, part)) = table.part(handle) else { return Ok(false) };
    let sized = SizedHandle { handle, bytes: part.bytes };
    match part.physical {
        None => batch.away.push(sized),
        Some(_) if !is_shown => batch.unshown.push(sized),
        Some(physical) => {
            batch.files.push(physical::file_of(session.driver, &part, physical)?.into());
            batch.here.push(sized);
        }
    }
    if part.passable && (is_shown || part.physical.is_none()) {
        batch.passable.push(handle);
    }
    Ok(true)
}

/// Sends a message, again after a moment if the system is short of memory, or of files on their way.
fn send(connection: &Connection, message: &ToDaemon, files: &[Transient]) -> Result<(), WireError> {
    let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    for _ in 0..TRIES_MAX {
        match connection.send(message, &files) {
            Err(WireError::System(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM)) => {
                std::thread::sleep(TRY_AGAIN);
            }
            done => return done,
        }
    }
    connection.send(message, &files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_refused_comes_more_and_more_seldom() {
        assert_eq!(pause(0, 0, true), SOON);
        assert_eq!(pause(SOON_TRIES, 0, true), LATER);
        let seconds: Vec<_> = (1..8).map(|refusals| pause(5, refusals, true).as_secs()).collect();
        assert_eq!(seconds, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause(u32::MAX, u32::MAX, true), REFUSED);
        assert_eq!(pause(u32::MAX, u32::MAX, false), REFUSED_WAITING, "it cannot do anything else");
    }
}
