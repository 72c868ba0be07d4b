//! The first words of a tenant that outlived an earlier worker: it says who it was, and then what it has.

use super::{Ears, Ended, await_welcome, closes_at_once, stay_with, tell, watch};
use crate::daemon::Input;
use crate::daemon::rejoining::{Applicant, Claim, Returner};
use crate::names::on_wire;
use rustix::net::sockopt;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use wire::{BLOCK_BYTES, Connection, FromDaemon, HANDLE_BYTES_MAX, HANDLES_MAX, SizedHandle, ToDaemon};

/// The most handles of one tenant: far more than any GPU has blocks.
const ALL_HANDLES_MAX: usize = 1 << 20;

/// How long it may take to tell the next of what it has.
const NEXT_WITHIN: Duration = Duration::from_secs(30);

/// Holds the conversation with somebody who comes back, to its end.
pub(super) fn hold(connection: &Arc<Connection>, ears: &Ears, claim: Claim) -> Result<(), Ended> {
    let peer = connection.peer()?;
    let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
    // First the watch, then its start time: so both are of the same process.
    let watch = watch(peer.pid).map_err(|cause| Ended::Unwatchable(pid, cause))?;
    let process = keeper::Process::find(pid).ok_or(Ended::Died)?;
    let (uid, said) = (peer.uid.as_raw(), claim.clone());
    let (answer, answered) = mpsc::channel();
    tell(ears, Input::MayRejoin(Box::new(Applicant { claim: said, process, uid }), answer))?;
    // Nobody is to make files of all of its memory in vain.
    if let Err(turned_back) = answered.recv().map_err(|_| Ended::Stopping)? {
        return Ok(connection.send(&turned_back, &[])?);
    }
    connection.send(&FromDaemon::Waiting { reason: "it is to say what it has".into() }, &[])?;
    let _ = sockopt::set_socket_timeout(&**connection, sockopt::Timeout::Recv, Some(NEXT_WITHIN));
    let mut held = ears.files.hold_none(uid);
    let (mut here, mut away, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    loop {
        let (message, files) = connection.receive::<ToDaemon>()?;
        let ToDaemon::Has { here: some, away: others, complete } = message else {
            return Err(Ended::OutOfOrder("something else than what it has"));
        };
        if some.len() != files.len() || some.len() > HANDLES_MAX || others.len() > HANDLES_MAX {
            return Err(Ended::OutOfOrder("another number of files than handles, or too many"));
        }
        if !some.iter().chain(&others).all(is_handle) {
            return Err(Ended::OutOfOrder("a handle's size is not a multiple of 2 MiB, or too large"));
        }
        if !some.iter().chain(&others).all(|sized| seen.insert(sized.handle)) {
            return Err(Ended::OutOfOrder("it told twice of one handle"));
        }
        if !files.iter().all(closes_at_once) {
            return Err(Ended::OutOfOrder("a file that stands for no memory and no driver"));
        }
        if !held.hold(files.len()) {
            return Err(Ended::Crowded);
        }
        here.extend(some.into_iter().zip(files));
        away.extend(others);
        if here.len() + away.len() > ALL_HANDLES_MAX {
            return Err(Ended::OutOfOrder("too many handles"));
        }
        if complete {
            break;
        }
    }
    let _ = sockopt::set_socket_timeout(&**connection, sockopt::Timeout::Recv, None);
    let (answer, welcome) = mpsc::channel();
    let number = claim.tenant;
    let connection = connection.clone();
    let returner = Returner { claim, process, uid, here, away, held, connection: connection.clone(), answer };
    ears.inputs.send(Input::Rejoin(Box::new(returner))).map_err(|_| Ended::Stopping)?;
    if let Some(taken) = await_welcome(&connection, &watch, ears, &welcome) {
        // One that got another number is new to the keeper: it has nothing there, and nothing to lose.
        let come_back = (on_wire(taken.tenant) == number).then_some(process);
        stay_with(&connection, &watch, ears, &taken, come_back);
    }
    Ok(())
}

fn is_handle(handle: &SizedHandle) -> bool {
    handle.bytes > 0 && handle.bytes.is_multiple_of(BLOCK_BYTES) && handle.bytes <= HANDLE_BYTES_MAX
}
