//! A handle on its way into the cellar or out of it, block by block. Nothing here waits for the disk.
//!
//! Jobs read and write arena space that is the handle's: it goes to nobody else before all of its jobs have ended, whatever
//! becomes of the handle ([`Putting::is_over`], [`Getting::is_over`]).

use super::Tier;
use crate::arena::{Arena, ArenaError, Extent, Extents, named, settled};
use crate::{BLOCK_BYTES, HandleKey};
use cellar::{BlockId, Destination, Done, GetError, JobId, Source, Ticket};
use keeper::Outcome;
use std::collections::BTreeMap;

const BLOCK: usize = BLOCK_BYTES as usize;

static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// A block in the arena.
struct Bytes(*mut u8);

// SAFETY: it is memory of the arena, which every thread of this process may use.
unsafe impl Send for Bytes {}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: a whole block, mapped until the arena is dropped, which ends the cellar's threads first. Nobody writes to it
        // before all jobs of its handle have ended: its place is the handle's until then.
        unsafe { std::slice::from_raw_parts(self.0, BLOCK) }
    }
}

impl AsMut<[u8]> for Bytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody reads it before: it was reserved for this.
        unsafe { std::slice::from_raw_parts_mut(self.0, BLOCK) }
    }
}

/// How far a handle is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way<E> {
    /// Jobs are under way. Whether one has ended since the last look.
    Going(bool),
    /// All are done, and that is recorded.
    Done,
    /// It is where it was.
    Failed(E),
}

/// Why a handle did not sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SinkError {
    /// It need not any more.
    Stopped,
    /// For this reason.
    Failed(String),
}

/// Why a handle was not fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FetchError {
    /// It can be tried again.
    Later(String),
    /// Its bytes are lost: this block cannot be had.
    Lost(String),
    /// The keeper did not record it.
    Keeper(ArenaError),
}

/// The blocks of a handle that are put.
#[derive(Debug)]
pub(crate) struct Putting {
    key: HandleKey,
    /// Where each block is. None: it is zero, whatever lies in its place.
    blocks: Vec<Option<Extent>>,
    next: usize,
    pending: BTreeMap<JobId, usize>,
    tickets: Vec<Option<Ticket>>,
    failed: Option<SinkError>,
}

/// The blocks of a handle that are fetched.
#[derive(Debug)]
pub(crate) struct Getting {
    key: HandleKey,
    places: Vec<Extent>,
    next: usize,
    pending: BTreeMap<JobId, usize>,
    failed: Option<FetchError>,
}

impl Putting {
    /// So many blocks of a handle, of which some are zero and the others have a place each.
    pub(crate) fn new(
        key: HandleKey,
        extents: &Extents,
        count: usize,
        is_zero: impl Fn(usize) -> bool,
    ) -> Putting {
        let mut places = blocks_of(extents).into_iter();
        let blocks: Vec<_> =
            (0..count).map(|index| if is_zero(index) { None } else { places.next() }).collect();
        let tickets = vec![None; blocks.len()];
        Putting { key, blocks, next: 0, pending: BTreeMap::new(), tickets, failed: None }
    }

    /// No further block is put. What is under way ends.
    pub(crate) fn stop(&mut self) {
        if self.next < self.blocks.len() {
            self.failed.get_or_insert(SinkError::Stopped);
        }
    }

    /// Has every job ended that was begun?
    pub(crate) fn is_over(&self) -> bool {
        self.pending.is_empty()
    }

    fn block(&self, index: usize) -> BlockId {
        BlockId { tenant: self.key.owner.0, handle: self.key.handle, index: index as u32 }
    }
}

impl Getting {
    /// All blocks of a handle, to this space.
    pub(crate) fn new(key: HandleKey, extents: &Extents) -> Getting {
        Getting { key, places: blocks_of(extents), next: 0, pending: BTreeMap::new(), failed: None }
    }

    /// Has every job ended that was begun?
    pub(crate) fn is_over(&self) -> bool {
        self.pending.is_empty()
    }

    /// Its handle is no more.
    pub(crate) fn stop(&mut self) {
        self.failed.get_or_insert_with(|| FetchError::Later("it was given up".to_owned()));
    }
}

fn blocks_of(extents: &Extents) -> Vec<Extent> {
    let of_run = |run: &Extent| {
        let offsets = (run.offset..run.offset + run.bytes).step_by(BLOCK);
        offsets.map(|offset| Extent { offset, bytes: BLOCK_BYTES }).collect::<Vec<_>>()
    };
    extents.runs().iter().flat_map(of_run).collect()
}

impl Arena {
    /// Goes on with a handle that is to sink. All of its space must be usable.
    pub(crate) fn go_on_putting(&self, putting: &mut Putting) -> Way<SinkError> {
        let Some(tier) = self.tier() else {
            // Its threads have ended, and with them every job.
            putting.pending.clear();
            return Way::Failed(SinkError::Failed("there is no cellar".to_owned()));
        };
        tier.step();
        let progress = tier.take_puts(putting);
        tier.step();
        self.submit_puts(&tier, putting);
        tier.step();
        if !putting.pending.is_empty() {
            return Way::Going(progress);
        }
        match putting.failed.take() {
            Some(why) => {
                tier.discard_all(putting.tickets.drain(..).flatten());
                Way::Failed(why)
            }
            // All places for jobs are taken by others.
            None if putting.next < putting.blocks.len() => Way::Going(progress),
            None => self.record_sunk(&tier, putting),
        }
    }

    fn submit_puts(&self, tier: &Tier, putting: &mut Putting) {
        while putting.failed.is_none()
            && let Some(place) = putting.blocks.get(putting.next)
        {
            let source: Source = match place {
                Some(place) => Box::new(Bytes(self.address(*place))),
                None => Box::new(&ZEROS[..]),
            };
            match tier.cellar.submit_put(putting.block(putting.next), source) {
                Ok(job) => {
                    putting.pending.insert(job, putting.next);
                    putting.next += 1;
                }
                Err(_busy) => return,
            }
        }
    }

    /// Has the keeper keep all tickets: from then on the cellar has the valid bytes, and the arena's space is free.
    fn record_sunk(&self, tier: &Tier, putting: &mut Putting) -> Way<SinkError> {
        let tickets: Vec<Ticket> = std::mem::take(&mut putting.tickets).into_iter().flatten().collect();
        let bytes: Vec<Vec<u8>> = tickets.iter().map(Ticket::to_bytes).collect();
        let key = putting.key;
        match self.0.link.ask(|client| client.sink(named(key), &bytes)) {
            Ok(Outcome::Done | Outcome::AlreadySo) => {
                tier.step();
                tier.state().held.insert(key, tickets);
                Way::Done
            }
            Ok(other) => {
                tier.discard_all(tickets);
                Way::Failed(SinkError::Failed(ArenaError::Refused(other).to_string()))
            }
            // Nobody knows whether they are kept: so they stay.
            Err(error) => Way::Failed(SinkError::Failed(error.to_string())),
        }
    }

    /// Goes on with a handle that is to rise. All of its space must be usable.
    pub(crate) fn go_on_getting(&self, getting: &mut Getting) -> Way<FetchError> {
        let Some(tier) = self.tier() else {
            getting.pending.clear();
            return Way::Failed(FetchError::Later("the cellar is not open in this worker".to_owned()));
        };
        tier.step();
        let progress = tier.take_gets(getting);
        tier.step();
        self.submit_gets(&tier, getting);
        tier.step();
        if !getting.pending.is_empty() {
            return Way::Going(progress);
        }
        if let Some(why) = getting.failed.take() {
            return Way::Failed(why);
        }
        if getting.next < getting.places.len() {
            return Way::Going(progress);
        }
        match self.0.link.ask(|client| client.rise(named(getting.key))).and_then(settled) {
            Ok(()) => {
                tier.step();
                tier.discard(getting.key);
                tier.step();
                Way::Done
            }
            Err(error) => Way::Failed(FetchError::Keeper(error)),
        }
    }

    fn submit_gets(&self, tier: &Tier, getting: &mut Getting) {
        while getting.failed.is_none()
            && let Some(&place) = getting.places.get(getting.next)
        {
            let ticket = tier.state().held.get(&getting.key).and_then(|held| held.get(getting.next)).cloned();
            let Some(ticket) = ticket else {
                let why = format!("no ticket of block {} of {} can be read", getting.next, getting.key);
                getting.failed = Some(FetchError::Lost(why));
                return;
            };
            let into: Destination = Box::new(Bytes(self.address(place)));
            match tier.cellar.submit_get(ticket, into) {
                Ok(job) => {
                    getting.pending.insert(job, getting.next);
                    getting.next += 1;
                }
                Err(_busy) => return,
            }
        }
    }
}

impl Tier {
    /// Takes what has ended. Says whether anything has.
    fn take_puts(&self, putting: &mut Putting) -> bool {
        let mut progress = false;
        while let Some(done) = self.take_done(&putting.pending) {
            progress = true;
            let Some(index) = putting.pending.remove(&done.job()) else { continue };
            match done {
                Done::Put { result: Ok(ticket), .. } => putting.tickets[index] = Some(ticket),
                Done::Put { result: Err(error), .. } => {
                    let failed = SinkError::Failed(error.to_string());
                    // What was stopped has a reason to tell of all the same.
                    match &mut putting.failed {
                        Some(before @ SinkError::Stopped) => *before = failed,
                        Some(SinkError::Failed(_)) => {}
                        none => *none = Some(failed),
                    }
                }
                Done::Get { .. } => unreachable!("it was put"),
            }
        }
        progress
    }

    fn take_gets(&self, getting: &mut Getting) -> bool {
        let mut progress = false;
        while let Some(done) = self.take_done(&getting.pending) {
            progress = true;
            getting.pending.remove(&done.job());
            if let Done::Get { result: Err(error), .. } = done {
                let why = error.to_string();
                getting.failed.get_or_insert(match error {
                    GetError::Broken { .. } | GetError::Disk { .. } | GetError::Unknown { .. } => {
                        FetchError::Lost(why)
                    }
                    _ => FetchError::Later(why),
                });
            }
        }
        progress
    }
}
