//! What an exchange has to do with the cellar: it fetches what comes in, and where the arena is full it has what is needed last
//! go there.
//!
//! A handle is fetched only when the device has room for it, or is about to: what leaves has its arena space already. So
//! whatever was fetched comes in, and makes the space free again; nothing waits for itself.
//! [`passage`](super::passage) sees to it that there is space for that where the cellar is full.

use super::{Asked, Run};
use crate::HandleKey;
use crate::arena::cellar::jobs::{SinkError, Way};
use crate::device::Device;
use crate::exchange::{MoveError, Stuck};
use crate::mover::Fetch;

/// So much is on its way to the cellar at a time, and as much from there, unless a single handle has more: enough to keep a
/// disk busy while the next one is begun.
const AHEAD_BYTES: u64 = 512 << 20;

impl<D: Device> Run<'_, D> {
    /// Whether a handle that comes in is not in the arena yet.
    pub(super) fn is_below(&self, key: HandleKey) -> bool {
        !self.mover.is_in_arena(key) && self.mover.check_in(key).is_ok()
    }

    /// Goes on with what is on its way to the cellar or back.
    pub(super) fn look_at_cellar(&mut self) -> bool {
        let mut progress = false;
        for key in std::mem::take(&mut self.sinking) {
            match self.mover.look_sink(key) {
                Some(Way::Going(moved)) => {
                    progress |= moved;
                    self.sinking.push(key);
                }
                Some(Way::Done) => {
                    self.outcome.sunk_bytes += self.mover.bytes_of(key);
                    self.mover.cellar_refuses = false;
                    progress = true;
                }
                Some(Way::Failed(SinkError::Stopped)) => progress = true,
                Some(Way::Failed(SinkError::Failed(why))) => {
                    tracing::warn!(%key, why, "it does not go to the cellar");
                    self.cellar_trouble.get_or_insert(why);
                    self.mover.cellar_refuses = true;
                    progress = true;
                }
                None => {}
            }
        }
        for key in std::mem::take(&mut self.fetching) {
            match self.mover.look_fetch(key) {
                Some(Way::Going(moved)) => {
                    progress |= moved;
                    self.fetching.push(key);
                }
                Some(Way::Done) => {
                    self.outcome.fetched_bytes += self.mover.bytes_of(key);
                    // There is room now where it was.
                    (self.cellar_trouble, self.mover.cellar_refuses) = (None, false);
                    progress = true;
                }
                Some(Way::Failed(error)) => {
                    self.not_fetched(key, error);
                    progress = true;
                }
                None => {}
            }
        }
        progress
    }

    pub(super) fn not_fetched(&mut self, key: HandleKey, error: MoveError) {
        self.waiting_in.retain(|waiting| *waiting != key);
        if matches!(error, MoveError::Lost(_)) {
            self.must_end(key.owner);
        }
        self.outcome.failed.push((key, error));
    }

    /// Begins to fetch what comes in, in order, as far as it will have room on the device and has space in the arena.
    pub(super) fn fetch(&mut self) -> bool {
        (self.lacking_bytes, self.passage_bytes) = (0, 0);
        let below = |key: &HandleKey| self.mover.is_in_cellar(*key);
        let wanted: Vec<HandleKey> = self.waiting_in.iter().copied().filter(below).collect();
        if wanted.is_empty() {
            return false;
        }
        let bytes_of = |key: &HandleKey| self.mover.bytes_of(*key);
        let above = self.waiting_in.iter().filter(|&key| !below(key)).map(bytes_of).sum::<u64>();
        let mut room_bytes = (self.room_bytes + self.leaving_bytes()).saturating_sub(above);
        let mut fetching_bytes: u64 = self.fetching.iter().map(bytes_of).sum();
        let mut progress = false;
        for &key in &wanted {
            let bytes = self.mover.bytes_of(key);
            if bytes > room_bytes || (fetching_bytes > 0 && fetching_bytes + bytes > AHEAD_BYTES) {
                break;
            }
            match self.mover.start_fetch(key) {
                Ok(Fetch::Begun) => self.fetching.push(key),
                Ok(Fetch::NoSpace) => {
                    self.lacking_bytes = bytes;
                    break;
                }
                Err(error) => self.not_fetched(key, error),
            }
            progress = true;
            room_bytes -= bytes;
            fetching_bytes += bytes;
        }
        self.note_passage();
        progress
    }

    /// Bytes that become room without needing anything of the arena any more.
    fn leaving_bytes(&self) -> u64 {
        let asked = self.asked.iter();
        let asked =
            asked.filter(|(_, asked)| matches!(asked, Asked::Unmap | Asked::Release)).map(|(key, _)| key);
        let copying = self.copying_out.iter().map(|(key, _)| key);
        // What could not be filled is in there, too, and is room afterwards as well.
        let leaving = self.hashing.iter().chain(copying).chain(asked);
        leaving.map(|key| self.mover.bytes_of(*key)).sum()
    }

    /// Where something waits for arena space that nothing else is about to give back, has what is needed last go to the cellar.
    pub(super) fn make_space(&mut self) -> bool {
        let lacks_space = |key: &&HandleKey| !self.mover.has_reserved(**key);
        let lacking: Vec<u64> =
            self.waiting_out.iter().filter(lacks_space).map(|key| self.mover.bytes_of(*key)).collect();
        let waiting: u64 = lacking.iter().sum();
        let first_out = lacking.first().copied().unwrap_or(0);
        // What goes out needs its own space, and leaves the passage.
        let passage = if waiting > 0 { self.passage_beside(first_out) } else { 0 };
        let wanted_bytes = self.lacking_bytes.max(passage) + waiting;
        if wanted_bytes == 0 {
            for &key in &self.sinking {
                self.mover.stop_sink(key);
            }
            return false;
        }
        if self.cellar_trouble.is_some() || !self.mover.arena().has_cellar() {
            return false;
        }
        let least_bytes = self.lacking_bytes.max(first_out + passage);
        let coming_in = self.copying_in.iter();
        let asked = self
            .asked
            .iter()
            .filter(|(_, asked)| matches!(asked, Asked::Create | Asked::Take))
            .map(|(key, _)| key);
        let coming = coming_in.chain(asked).chain(&self.sinking);
        let mut coming_bytes: u64 = coming.map(|key| self.mover.bytes_of(*key)).sum();
        if coming_bytes >= least_bytes.max(AHEAD_BYTES.min(wanted_bytes)) {
            return false;
        }
        coming_bytes += self.mover.arena().free_bytes();
        let mut progress = false;
        while coming_bytes < least_bytes.max(AHEAD_BYTES.min(wanted_bytes)) {
            let coldest = self.mover.coldest(|key| !self.waiting_in.contains(&key));
            let Some(bytes) = coldest.and_then(|key| self.sink(key)) else { break };
            coming_bytes += bytes;
            progress = true;
        }
        progress
    }

    /// Nothing else is left: what was to come in makes way for what has to go out first. The last one waits longest.
    pub(super) fn sink_what_is_wanted(&mut self) -> bool {
        let may_sink = !self.waiting_out.is_empty() && self.cellar_trouble.is_none();
        if !may_sink || !self.mover.arena().has_cellar() {
            return false;
        }
        let last = self.waiting_in.iter().rfind(|&&key| self.mover.is_in_arena(key)).copied();
        last.and_then(|key| self.sink(key)).is_some()
    }

    fn sink(&mut self, key: HandleKey) -> Option<u64> {
        match self.mover.start_sink(key) {
            Ok(()) => {
                self.sinking.push(key);
                Some(self.mover.bytes_of(key))
            }
            Err(error) => {
                self.cellar_trouble.get_or_insert(error.to_string());
                None
            }
        }
    }

    /// Why something that needs arena space has none.
    pub(super) fn no_space(&self, key: HandleKey) -> Stuck {
        let (need_bytes, free_bytes) = (self.mover.bytes_of(key), self.mover.arena().free_bytes());
        match self.cellar_trouble.clone() {
            Some(why) => Stuck::NoCellar { need_bytes, free_bytes, why },
            None => {
                let ready_bytes = self.mover.arena().ready_bytes();
                Stuck::NoArenaSpace { need_bytes, free_bytes, ready_bytes }
            }
        }
    }
}
