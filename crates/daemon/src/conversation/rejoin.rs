//! The first words of a tenant that outlived an earlier worker: it says who it was, and then what it has.

use super::guard::guarded;
use super::heard::closes_at_once;
use super::{Belonging, Caller, Ears, Ended, Held, await_welcome, stay_with, tell};
use crate::daemon::Input;
use crate::daemon::rejoining::{Applicant, Claim, Has, Returner};
use crate::names::on_wire;
use rustix::net::sockopt;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use wire::{
    BLOCK_BYTES, Connection, FromDaemon, HANDLE_BYTES_MAX, HANDLES_MAX, HandleId, SizedHandle, ToDaemon,
};

/// The most handles of one tenant: far more than any GPU has blocks.
const ALL_HANDLES_MAX: usize = 1 << 20;

/// The largest handle of what never moves, which is as the program asked for it. The sum of all fits into a number.
const KEPT_BYTES_MAX: u64 = 1 << 40;

/// How long it may take to tell the next of what it has.
const NEXT_WITHIN: Duration = Duration::from_secs(30);

/// Holds the conversation with somebody who comes back, to its end.
pub(super) fn hold(
    connection: &Arc<Connection>,
    caller: &Caller,
    ears: &Ears,
    claim: Claim,
) -> Result<(), Ended> {
    let process = caller.process()?;
    let (uid, said) = (caller.uid(), claim.clone());
    let domain = Belonging::of(caller);
    let (answer, answered) = mpsc::channel();
    tell(ears, Input::MayRejoin(Box::new(Applicant { claim: said, process, uid }), answer))?;
    // Nobody is to make files of all of its memory in vain.
    if let Err(turned_back) = answered.recv().map_err(|_| Ended::Stopping)? {
        return Ok(connection.send(&turned_back, &[])?);
    }
    connection.send(&FromDaemon::Waiting { reason: "it is to say what it has".into() }, &[])?;
    let _ = sockopt::set_socket_timeout(&**connection, sockopt::Timeout::Recv, Some(NEXT_WITHIN));
    let mut told = Told { held: ears.files.hold_none(uid), has: Has::default(), seen: HashSet::new() };
    while !guarded(|| told.hear(connection))? {}
    let Told { held, has, .. } = told;
    let _ = sockopt::set_socket_timeout(&**connection, sockopt::Timeout::Recv, None);
    let (answer, welcome) = mpsc::channel();
    let number = claim.tenant;
    let connection = connection.clone();
    let executable = ears.executable(caller)?;
    let stream = connection.clone();
    let returner =
        Returner { claim, process, executable, uid, domain, has, held, connection: stream, answer };
    ears.inputs.send(Input::Rejoin(Box::new(returner))).map_err(|_| Ended::Stopping)?;
    if let Some(taken) = await_welcome(&connection, caller.watch(), ears, &welcome) {
        // One that got another number is new to the keeper: it has nothing there, and nothing to lose.
        let come_back = (on_wire(taken.tenant) == number).then_some(process);
        stay_with(&connection, caller.watch(), ears, &taken, come_back);
    }
    Ok(())
}

/// What somebody has told so far.
struct Told {
    has: Has,
    held: Held,
    seen: HashSet<HandleId>,
}

impl Told {
    /// Hears some more. True if that is all.
    fn hear(&mut self, connection: &Connection) -> Result<bool, Ended> {
        let (message, files) = connection.receive::<ToDaemon>()?;
        let ToDaemon::Has { here, away, unshown, passable, complete } = message else {
            return Err(Ended::OutOfOrder("something else than what it has"));
        };
        if here.len() != files.len() || [&here, &away, &unshown].iter().any(|some| some.len() > HANDLES_MAX) {
            return Err(Ended::OutOfOrder("another number of files than handles, or too many"));
        }
        let all = || here.iter().chain(&away).chain(&unshown);
        let may_move = || here.iter().chain(&away);
        if !may_move().all(|sized| is_handle(sized, HANDLE_BYTES_MAX))
            || !unshown.iter().all(|sized| is_handle(sized, KEPT_BYTES_MAX))
        {
            return Err(Ended::OutOfOrder("a handle's size is not a multiple of 2 MiB, or too large"));
        }
        if !all().all(|sized| self.seen.insert(sized.handle)) {
            return Err(Ended::OutOfOrder("it told twice of one handle"));
        }
        if self.seen.len() > ALL_HANDLES_MAX {
            return Err(Ended::OutOfOrder("too many handles"));
        }
        let may_pass: HashSet<HandleId> = may_move().map(|sized| sized.handle).collect();
        if !passable.iter().all(|handle| may_pass.contains(handle)) {
            return Err(Ended::OutOfOrder("something is to be passed on that it does not have"));
        }
        if !files.iter().all(closes_at_once) {
            return Err(Ended::OutOfOrder("a file that stands for no memory and no driver"));
        }
        if !self.held.hold(files.len()) {
            return Err(Ended::Crowded);
        }
        self.has.here.extend(here.into_iter().zip(files));
        self.has.away.extend(away);
        self.has.unshown.extend(unshown);
        self.has.passable.extend(passable.iter().map(|handle| handle.0));
        Ok(complete)
    }
}

fn is_handle(handle: &SizedHandle, bytes_max: u64) -> bool {
    handle.bytes > 0 && handle.bytes.is_multiple_of(BLOCK_BYTES) && handle.bytes <= bytes_max
}
