//! The worker's side: each request as a call that waits for its answer, but not for ever.
//!
//! When a call fails by [`ClientError::Late`], [`ClientError::Gone`] or anything else but a refusal, nobody knows whether
//! the keeper has acted. The connection is closed then, because a late answer must not be taken for that to the next
//! request. What this worker had reserved is dropped by the keeper; [`Client::reconnect`], and go on from what is recorded.
//!
//! A new worker does this: [`Client::connect`], [`View::new`] and [`View::map`] of all [`Client::segments`],
//! [`Client::tenants`], and [`Client::recorded`] for each; [`Client::reclaim`] once nothing of the last worker is on the
//! device any more.

mod batches;
mod cellar;
mod error;
mod view;

pub use error::ClientError;
pub use view::{View, ViewError};

use crate::message::{
    Answer, End, In, Out, Outcome, Progress, Recorded, Refusal, Request, Reservation, SegmentView, VERSION,
    Wanted, Welcome,
};
use crate::names::{HandleKey, HashSeed, Node, Process, TenantNumber};
use crate::trust::may_have_everything;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wire::{Connection, WireError};

/// How long to wait before a keeper that is not there, or has a worker still, is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(5);

/// How long a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a keeper that is not there yet, or has another worker still: a dead process's connections end only when its
    /// memory is gone, and unpinning hundreds of GiB takes its time.
    pub connect: Duration,
    /// For an answer.
    pub answer: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { connect: Duration::from_secs(60), answer: Duration::from_secs(5) }
    }
}

/// A connection to the keeper, as its worker.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    patience: Patience,
    connection: Option<Connection>,
    welcome: Welcome,
}

impl Client {
    /// Becomes the worker of the keeper at this socket.
    pub fn connect(path: &Path, patience: Patience) -> Result<Client, ClientError> {
        let (connection, welcome) = enter(path, patience)?;
        Ok(Client { path: path.into(), patience, connection: Some(connection), welcome })
    }

    /// Connects anew. What was reserved is dropped, and its space is free after [`Client::reclaim`]; what was recorded is as
    /// it was. A keeper that is another one by now is an error.
    pub fn reconnect(&mut self) -> Result<(), ClientError> {
        // First, or the keeper would find two of us.
        self.connection = None;
        let (connection, welcome) = enter(&self.path, self.patience)?;
        if welcome.keeper != self.welcome.keeper {
            return Err(ClientError::OtherKeeper { pid: welcome.keeper.pid });
        }
        self.welcome = welcome;
        self.connection = Some(connection);
        Ok(())
    }

    /// What the keeper said first.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Tells of a tenant. Its number must be higher than [`Welcome::highest_tenant`], unless it is known.
    pub fn introduce(&mut self, tenant: TenantNumber, process: Process) -> Result<Outcome, ClientError> {
        match self.ask(&Request::Introduce { tenant, process })? {
            Answer::Outcome(outcome) => Ok(outcome),
            other => self.strange(&other),
        }
    }

    /// Space for copies out: one answer for each, in order.
    pub fn reserve(
        &mut self,
        near: Option<Node>,
        wanted: &[Wanted],
    ) -> Result<Vec<Reservation>, ClientError> {
        let mut all = Vec::with_capacity(wanted.len());
        for batch in batches::of_wanted(wanted) {
            match self.ask(&Request::Reserve { near, wanted: batch.to_vec() })? {
                Answer::Reserved(reservations) if reservations.len() == batch.len() => {
                    all.extend(reservations);
                }
                other => return self.strange(&other),
            }
        }
        Ok(all)
    }

    /// These copies out will not be used, and nothing writes to their space any more.
    pub fn cancel(&mut self, keys: &[HandleKey]) -> Result<Vec<Outcome>, ClientError> {
        self.ask_in_batches(batches::of_any(keys), |keys| Request::Cancel { keys })
    }

    /// These copies out are complete. To be called before their tenants are asked to unmap.
    pub fn record_out(&mut self, handles: &[Out]) -> Result<Vec<Outcome>, ClientError> {
        self.ask_in_batches(batches::of_out(handles), |handles| Request::RecordOut { handles })
    }

    /// These copies in are complete. To be called before their tenants run.
    pub fn record_in(&mut self, handles: &[In]) -> Result<Vec<Outcome>, ClientError> {
        self.ask_in_batches(batches::of_any(handles), |handles| Request::RecordIn { handles })
    }

    /// These were freed, and nothing uses their space any more.
    pub fn free(&mut self, keys: &[HandleKey]) -> Result<Vec<Outcome>, ClientError> {
        self.ask_in_batches(batches::of_any(keys), |keys| Request::Free { keys })
    }

    /// Makes at least this much room, if there are clean copies enough beside one that stays. Says how much.
    pub fn drop_clean(&mut self, bytes: u64, keep: Option<HandleKey>) -> Result<u64, ClientError> {
        self.ask_to_free(&Request::DropClean { bytes, keep })
    }

    /// A tenant is gone, and nothing uses its space any more. Says how much room that makes.
    pub fn died(&mut self, tenant: TenantNumber) -> Result<u64, ClientError> {
        self.ask_to_free(&Request::Died { tenant })
    }

    /// Nothing of an earlier worker, or of this one before it reconnected, is under way on any device. Says how much room
    /// that makes.
    pub fn reclaim(&mut self) -> Result<u64, ClientError> {
        self.ask_to_free(&Request::Reclaim)
    }

    /// How far the arena is, and how full.
    pub fn progress(&mut self) -> Result<Progress, ClientError> {
        match self.ask(&Request::Progress)? {
            Answer::Progress(progress) => Ok(progress),
            other => self.strange(&other),
        }
    }

    /// The segments that are ready, but for the first so many, each with its memory, one after the other. To be mapped and
    /// let go of: an arena has more of them than a process may have open files. The first error is the last word.
    pub fn segments<E: From<ClientError>>(
        &mut self,
        known: u32,
        mut each: impl FnMut(SegmentView, OwnedFd) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut known = known;
        loop {
            let (answer, files) = self.ask_for_files(&Request::Segments { known })?;
            match answer {
                Answer::Segments(views) if views.is_empty() => return Ok(()),
                Answer::Segments(views) if views.len() == files.len() => {
                    known = known.saturating_add(u32::try_from(views.len()).unwrap_or(u32::MAX));
                    for (view, file) in views.into_iter().zip(files) {
                        each(view, file)?;
                    }
                }
                other => return Ok(self.strange(&other)?),
            }
        }
    }

    /// Has the seed of all hashes kept for the workers to come, if none is: see [`Welcome::seed`].
    pub fn keep_seed(&mut self, seed: HashSeed) -> Result<Outcome, ClientError> {
        match self.ask(&Request::KeepSeed { seed })? {
            Answer::Outcome(outcome) => Ok(outcome),
            other => self.strange(&other),
        }
    }

    /// All tenants, in the order of their numbers.
    pub fn tenants(&mut self) -> Result<Vec<(TenantNumber, Process)>, ClientError> {
        let mut all: Vec<(TenantNumber, Process)> = Vec::new();
        loop {
            let after = all.last().map(|(tenant, _)| *tenant);
            match self.ask(&Request::Tenants { after })? {
                Answer::Tenants(page) if page.is_empty() => return Ok(all),
                Answer::Tenants(page) => all.extend(page),
                other => return self.strange(&other),
            }
        }
    }

    /// All of a tenant that has bytes in the arena, in the order of handles.
    pub fn recorded(&mut self, tenant: TenantNumber) -> Result<Vec<Recorded>, ClientError> {
        let mut all: Vec<Recorded> = Vec::new();
        loop {
            let after = all.last().map(|recorded| recorded.handle);
            match self.ask(&Request::Recorded { tenant, after })? {
                Answer::Recorded(page) if page.is_empty() => return Ok(all),
                Answer::Recorded(page) => all.extend(page),
                other => return self.strange(&other),
            }
        }
    }

    /// Leaves, with nothing under way: reservations are dropped. Says whether the keeper ends, and what is away.
    pub fn leave(mut self, end: End) -> Result<(bool, u64), ClientError> {
        match self.ask(&Request::Leave { end })? {
            Answer::Left { ends, away_bytes } => Ok((ends, away_bytes)),
            other => self.strange(&other),
        }
    }

    fn ask_to_free(&mut self, request: &Request) -> Result<u64, ClientError> {
        match self.ask(request)? {
            Answer::Freed { bytes } => Ok(bytes),
            other => self.strange(&other),
        }
    }

    fn ask_in_batches<'a, T: Clone + 'a>(
        &mut self,
        batches: impl Iterator<Item = &'a [T]>,
        request: impl Fn(Vec<T>) -> Request,
    ) -> Result<Vec<Outcome>, ClientError> {
        let mut all = Vec::new();
        for batch in batches {
            match self.ask(&request(batch.to_vec()))? {
                Answer::Outcomes(outcomes) if outcomes.len() == batch.len() => all.extend(outcomes),
                other => return self.strange(&other),
            }
        }
        Ok(all)
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        let (answer, files) = self.ask_for_files(request)?;
        if files.is_empty() { Ok(answer) } else { self.strange(&answer) }
    }

    fn ask_for_files(&mut self, request: &Request) -> Result<(Answer, Vec<OwnedFd>), ClientError> {
        // Taken, and put back only after a whole answer.
        let connection = self.connection.take().ok_or(ClientError::Disconnected)?;
        let answered = converse(&connection, request, &[], self.patience.answer)?;
        self.connection = Some(connection);
        Ok(answered)
    }

    fn strange<T>(&mut self, answer: &Answer) -> Result<T, ClientError> {
        tracing::error!(?answer, "the keeper's answer does not belong to the request");
        self.connection = None;
        Err(ClientError::Strange)
    }
}

/// Connects and says hello, again and again while the keeper is not there or has another worker.
fn enter(path: &Path, patience: Patience) -> Result<(Connection, Welcome), ClientError> {
    let start = Instant::now();
    loop {
        let refused = match try_to_enter(path, patience) {
            Err(
                error @ (ClientError::Unreachable(_)
                | ClientError::Gone
                | ClientError::Refused(Refusal::Busy { .. })),
            ) => error,
            other => return other,
        };
        if start.elapsed() >= patience.connect {
            return Err(match refused {
                ClientError::Refused(Refusal::Busy { pid }) => {
                    ClientError::Busy { pid, within: patience.connect }
                }
                other => other,
            });
        }
        std::thread::sleep(AGAIN_AFTER);
    }
}

fn try_to_enter(path: &Path, patience: Patience) -> Result<(Connection, Welcome), ClientError> {
    let connection = Connection::connect(path).map_err(ClientError::Unreachable)?;
    let keeper = connection.peer().map_err(ClientError::Wire)?;
    if !may_have_everything(keeper.uid) {
        return Err(ClientError::Stranger { uid: keeper.uid.as_raw() });
    }
    for direction in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&connection, direction, Some(patience.answer))
            .map_err(|cause| ClientError::Wire(cause.into()))?;
    }
    match converse(&connection, &Request::Hello { version: VERSION }, &[], patience.answer)? {
        (Answer::Welcome(welcome), files) if files.is_empty() => Ok((connection, welcome)),
        _ => Err(ClientError::Strange),
    }
}

fn converse(
    connection: &Connection,
    request: &Request,
    files: &[BorrowedFd<'_>],
    within: Duration,
) -> Result<(Answer, Vec<OwnedFd>), ClientError> {
    let failed = |error| match error {
        WireError::Closed => ClientError::Gone,
        WireError::System(Errno::AGAIN) => ClientError::Late { within },
        other => ClientError::Wire(other),
    };
    connection.send(request, files).map_err(failed)?;
    match connection.receive::<Answer>().map_err(failed)? {
        (Answer::Refused(refusal), _) => Err(ClientError::Refused(refusal)),
        answered => Ok(answered),
    }
}

#[cfg(test)]
mod tests;
