//! A program that outlives its daemon joins the next one at the same place: its worker was replaced, or the whole daemon was
//! started again by whoever looks after it.
//!
//! It comes with all of its memory: what lies under its addresses, and what was away when the daemon went and is with the
//! keeper still. So one that has all of its memory goes on meanwhile, and one that has not waits, frozen as it is.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use cuda::CUresult;
use rustix::io::Errno;
use wire::{Connection, FromDaemon, HANDLES_MAX, HandleId, SizedHandle, ToDaemon, VERSION, WireError};

use super::farewell;
use crate::join::{self, JoinError, WELCOME_SECONDS_MAX};
use crate::memory::physical::{self, Refused};
use crate::notice::{OnceNotice, notice};
use crate::session::{self, Session};
use crate::settings;

/// How often it is looked whether there is one, at first and after a while.
const SOON: Duration = Duration::from_millis(200);
const SOON_TRIES: u32 = 100;
const LATER: Duration = Duration::from_secs(2);

/// The longest pause of a program that is refused again and again.
const REFUSED: Duration = Duration::from_secs(60);

/// How long a daemon may be silent to a program that cannot go on without: one that is started anew tests the GPU first.
const PATIENT_SECONDS_MAX: i64 = 120;

/// How often a message is tried again that the system has no room for, or memory that cannot be shown.
const TRIES_MAX: u32 = 500;
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Waits for the next daemon, and has it take this program in. False if there will be none for it, and it goes on without.
/// A program that cannot go on without ends here, should its memory be lost.
pub(super) fn join_next(session: &'static Session) -> bool {
    let can_go_on = farewell::can_go_on();
    if can_go_on {
        farewell::release(session);
    }
    session.connection.shut_down();
    // The GPUs of a process read each other's memory: with one of them under a daemon and another not, memory would move
    // away from under somebody who is not frozen.
    let is_on_several = session::all().nth(1).is_some();
    let Some(socket) = settings::socket().filter(|_| !is_on_several) else {
        if !can_go_on {
            farewell::lose(
                "the daemon is gone, and a program on several GPUs cannot be taken over by the next",
            );
        }
        farewell::go_alone(session);
        return false;
    };
    let waits = settings::wait_for_daemon();
    let until = Instant::now() + waits;
    let mut was_alone = false;
    let mut refusals = 0;
    for tries in 0.. {
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
                refusals += u32::from(can_go_on && matches!(error, JoinError::Refused(_)));
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
        std::thread::sleep(pause(tries, refusals));
    }
    false
}

/// How long until the next try. One that was refused, and goes on meanwhile, comes more and more seldom.
fn pause(tries: u32, refusals: u32) -> Duration {
    let usual = if tries < SOON_TRIES { SOON } else { LATER };
    usual.max((SOON * (1 << refusals.min(16))).min(REFUSED)).min(REFUSED)
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
    let (program, job) = join::names(true);
    let rejoin = ToDaemon::Rejoin {
        version: VERSION,
        tenant: session.tenant(),
        epoch: page.epoch(),
        job,
        program,
        gpu: session.uuid.to_string(),
        resident: can_go_on,
        frozen: page.frozen(),
        channels: page.channel_generation() > 0,
        holds_launches: page.holds_launches(),
    };
    join::ask(&connection, &rejoin)?;
    // Nothing is sent that nobody is there to take: files on their way count for the whole user.
    let (mut answer, mut files) = join::answer_within(&connection, socket, patience)?;
    let mut told = BTreeSet::new();
    if let FromDaemon::Waiting { .. } = answer {
        told = tell(session, &connection, can_go_on)?;
        (answer, files) = join::answer_within(&connection, socket, patience)?;
    }
    let welcome = join::welcomed(connection, answer, files)?;
    if welcome.page.holds_launches() != page.holds_launches() {
        return Err(JoinError::Strange("the new daemon stops programs in another way"));
    }
    session.begin_again(welcome, &told)
}

/// Some of what a program has, on its way to a daemon.
#[derive(Default)]
struct Batch {
    here: Vec<SizedHandle>,
    away: Vec<SizedHandle>,
    files: Vec<OwnedFd>,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.here.len() + self.away.len() >= HANDLES_MAX
    }

    /// Sends it, which closes its files here.
    fn send(&mut self, connection: &Connection) -> Result<(), WireError> {
        let Self { here, away, files } = std::mem::take(self);
        if here.is_empty() && away.is_empty() {
            return Ok(());
        }
        send(connection, &ToDaemon::Has { here, away, complete: false }, &files)
    }
}

/// Tells a daemon of all memory that it may move. Returns which that is.
///
/// Of a program that can go on, memory that cannot be shown just now is left out, and asked for later, as what is new. Of one
/// that cannot, nothing may be left out: the daemon takes that for freed, and its bytes may be with the keeper.
fn tell(
    session: &Session,
    connection: &Connection,
    can_go_on: bool,
) -> Result<BTreeSet<HandleId>, JoinError> {
    static FAILED: OnceNotice = OnceNotice::new();
    let mut told = BTreeSet::new();
    let mut batch = Batch::default();
    for handle in session.survivors() {
        let mut tries = 0;
        let is_told = loop {
            let refused = match show(session, handle, &mut batch) {
                Ok(is_told) => break is_told,
                Err(refused) => refused,
            };
            if refused.code == CUresult::DEINITIALIZED {
                return Err(JoinError::Exiting);
            }
            FAILED.notice(format_args!("{} failed: {}", refused.call, refused.code));
            if can_go_on {
                break false;
            }
            tries += 1;
            if tries > TRIES_MAX {
                return Err(JoinError::Hidden(refused.call, refused.code));
            }
            // Its files may be those that leave no room for another.
            batch.send(connection)?;
            std::thread::sleep(TRY_AGAIN);
        };
        if is_told {
            told.insert(handle);
        }
        if batch.is_full() {
            batch.send(connection)?;
        }
    }
    batch.send(connection)?;
    let (here, away) = (Vec::new(), Vec::new());
    send(connection, &ToDaemon::Has { here, away, complete: true }, &[])?;
    Ok(told)
}

/// Adds a handle to what is told. False if it is gone.
fn show(session: &Session, handle: HandleId, batch: &mut Batch) -> Result<bool, Refused> {
    // Held for one at a time: the program may be busy with its memory.
    let table = session.table();
    let Some((_, part)) = table.part(handle) else { return Ok(false) };
    let sized = SizedHandle { handle, bytes: part.bytes };
    match part.physical {
        None => batch.away.push(sized),
        Some(physical) => {
            batch.files.push(physical::export(session.driver, physical)?);
            batch.here.push(sized);
        }
    }
    Ok(true)
}

/// Sends a message, again after a moment if the system is short of memory, or of files on their way.
fn send(connection: &Connection, message: &ToDaemon, files: &[OwnedFd]) -> Result<(), WireError> {
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
        assert_eq!(pause(0, 0), SOON);
        assert_eq!(pause(SOON_TRIES, 0), LATER);
        assert_eq!(pause(5, 2), SOON * 4);
        assert!((0..40).all(|refusals| pause(40, refusals) <= pause(40, refusals + 1)));
        assert_eq!(pause(u32::MAX, u32::MAX), REFUSED);
    }
}
