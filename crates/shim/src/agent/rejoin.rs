//! A program that outlives its daemon joins the next one that listens at the same place: after an update, or when the daemon
//! was started again by whoever looks after it.

use std::time::Duration;

use crate::join::{self, JoinError};
use crate::notice::{OnceNotice, notice};
use crate::session::{self, Session};
use crate::settings;

/// How often it is looked whether there is one, at first and after a while.
const SOON: Duration = Duration::from_millis(200);
const SOON_TRIES: u32 = 100;
const LATER: Duration = Duration::from_secs(2);

/// Waits for the next daemon, and has it take this program in. False if there will be none for it.
pub(super) fn join_next(session: &'static Session) -> bool {
    static REFUSED: OnceNotice = OnceNotice::new();
    let Some(socket) = settings::socket() else { return false };
    for tries in 0.. {
        std::thread::sleep(if tries < SOON_TRIES { SOON } else { LATER });
        // The GPUs of a process read each other's memory: with one of them under a daemon and another not, memory would move
        // away from under somebody who is not frozen.
        if session::all().nth(1).is_some() {
            return false;
        }
        match join::be_welcomed(&socket, vec![session.uuid.to_string()], true, |_| ()) {
            Ok(welcome) => {
                let old = &session.page;
                if welcome.page.epoch() == old.epoch() {
                    // It is there, and did not want this program any more.
                    return false;
                }
                if welcome.page.holds_launches() != old.holds_launches() {
                    notice(format_args!(
                        "the new daemon stops programs in another way; running on without rota"
                    ));
                    return false;
                }
                if session.begin_again(welcome.connection, welcome.page).is_ok() {
                    notice(format_args!("there is a daemon again"));
                    return true;
                }
            }
            // Nobody is there yet.
            Err(JoinError::Wire(_) | JoinError::Silent(_)) => {}
            Err(error) => REFUSED.notice(format_args!("{error}; running on without rota")),
        }
    }
    false
}
