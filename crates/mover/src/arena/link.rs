//! The connection to the keeper. One request at a time, whoever asks; after the first that failed, none.

use super::ArenaError;
use crate::Owner;
use blocks::Seed;
use keeper::client::{Client, ClientError};
use keeper::{End, HashSeed, Outcome, Process};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    state: Mutex<State>,
    /// Beside the rest, which is locked for as long as the keeper takes to answer.
    lost: Arc<OnceLock<String>>,
}

#[derive(Debug)]
struct State {
    /// None once it has failed, or has ended.
    client: Option<Client>,
    /// Why it has failed.
    lost: Arc<OnceLock<String>>,
    /// Tenants of earlier workers that nobody has taken up.
    found: BTreeMap<Owner, Process>,
    seed: Option<HashSeed>,
    /// The last word. None: it ends without one.
    end: Option<End>,
}

impl Link {
    pub(super) fn new(client: Client, found: BTreeMap<Owner, Process>) -> Link {
        let seed = client.welcome().seed.clone();
        let lost = Arc::new(OnceLock::new());
        let end = Some(End::Stay);
        let state = State { client: Some(client), lost: Arc::clone(&lost), found, seed, end };
        Link { state: Mutex::new(state), lost }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the keeper. Several requests in one call are one to all others.
    pub(super) fn ask<T>(
        &self,
        request: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, ArenaError> {
        self.state().ask(request)
    }

    pub(super) fn lost(&self) -> Option<String> {
        self.lost.get().cloned()
    }

    pub(super) fn found(&self) -> Vec<(Owner, Process)> {
        self.state().found.iter().map(|(&owner, &process)| (owner, process)).collect()
    }

    /// Takes a tenant out of those that were found, if it is this process; otherwise says which one it was.
    pub(super) fn take_found(&self, owner: Owner, process: Process) -> Option<Result<(), Process>> {
        let mut state = self.state();
        match state.found.get(&owner).copied()? {
            recorded if recorded == process => {
                state.found.remove(&owner);
                Some(Ok(()))
            }
            other => Some(Err(other)),
        }
    }

    /// Whoever was taken out has gone again, and may come once more.
    pub(super) fn put_found(&self, owner: Owner, process: Process) {
        self.state().found.insert(owner, process);
    }

    pub(super) fn drop_found(&self, owner: Owner) {
        self.state().found.remove(&owner);
    }

    /// The seed that is kept: this one, if there was none.
    pub(super) fn seed(&self, new: &Seed) -> Result<Seed, ArenaError> {
        let mut state = self.state();
        if state.seed.is_none() {
            let kept =
                HashSeed::new(&new.to_bytes()).ok_or(ArenaError::Refused(keeper::Outcome::OtherSeed))?;
            super::settled(state.ask(|client| client.keep_seed(kept.clone()))?)?;
            state.seed = Some(kept);
        }
        let kept = state.seed.as_ref().and_then(|kept| <[u8; Seed::BYTES]>::try_from(kept.bytes()).ok());
        // Of another length: another version's. What it hashed is of no use here.
        kept.map(Seed::from_bytes).ok_or(ArenaError::Refused(Outcome::OtherSeed))
    }

    pub(super) fn at_end(&self, end: Option<End>) {
        let mut state = self.state();
        // Once something may be under way, there is no last word.
        if state.end.is_some() {
            state.end = end;
        }
    }

    /// Says the last word.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        if let Some(end) = state.end
            && let Some(client) = state.client.take()
            && let Err(error) = client.leave(end)
        {
            tracing::warn!(%error, "the keeper was not told that this worker ends");
        }
    }

    #[cfg(test)]
    pub(super) fn cut(&self) {
        self.state().client = None;
        let _ = self.lost.set("the worker is dead".to_owned());
    }
}

impl State {
    fn ask<T>(
        &mut self,
        request: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, ArenaError> {
        let Some(client) = &mut self.client else {
            let why = self.lost.get().cloned().unwrap_or_else(|| "the connection was closed".to_owned());
            return Err(ArenaError::Lost { why });
        };
        request(client).map_err(|error| {
            let why = error.to_string();
            tracing::error!(%error, "the connection to the keeper has failed; nothing moves from now on");
            self.client = None;
            let _ = self.lost.set(why.clone());
            ArenaError::Lost { why }
        })
    }
}
