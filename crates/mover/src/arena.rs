//! Pinned host memory for what is away. The memory is the keeper's, and so is the book of whose it is: whatever happens to
//! this process, both are there for the next one.
//!
//! - `link`: the connection to the keeper. Movers of several GPUs share it, one request at a time; each takes some 15 us.
//! - `taking`: how space is reserved for copies out, and given up.
//! - `cellar`: where handles go that the arena has no room for.
//! - `memory`: the keeper's segments, mapped here and registered with the device in the background, as they become ready.
//!
//! **Before a part is registered** it can be taken all the same: a copy from or to it waits until it is, and it is registered
//! next, before what nobody waits for. So a move never waits longer than for its own memory. Where the device registers no
//! more, the driver copies through a buffer of its own, which is slow and right. [`Arena::be_gentle`] has it registered in
//! short steps.
//!
//! What space is *taken* is *reserved* in the keeper's words, and whether its bytes mean anything is told by recording it:
//! `keeper` has the order that keeps every byte. Space of clean copies counts as free, and is taken from the oldest of them
//! when there is no other. **After the connection has failed** nobody knows what of the last request was done. So nothing is
//! asked any more: moves fail, what is on the device stays there, and what was in the middle stays unsettled, until another
//! worker asks the keeper what is recorded.

pub(crate) mod cellar;
mod link;
mod memory;
mod taking;

pub use self::cellar::CellarError;
pub use self::memory::HeldBack;
pub use keeper::Extent;
pub(crate) use taking::Taken;

use self::cellar::Tier;
use crate::device::Registrar;
use crate::{HandleKey, Owner};
use blocks::{BlockHash, Seed};
use keeper::client::{Client, ViewError};
use keeper::{BlockFact, End, In, Node, Out, Outcome, Process, Recorded, TenantNumber};
use link::Link;
use memory::Memory;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Why the arena did not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    /// The connection to the keeper has failed, now or before.
    #[error("the keeper cannot be asked any more, and nothing moves until another worker can: {why}")]
    Lost {
        /// How.
        why: String,
    },
    /// The keeper did not do it.
    #[error("the keeper refuses: {0}")]
    Refused(Outcome),
    /// A part of it cannot be mapped.
    #[error("its place in the arena cannot be used by this worker: {why}")]
    NotMapped {
        /// Why not.
        why: String,
    },
    /// There are no addresses for it.
    #[error(transparent)]
    View(#[from] ViewError),
    /// There is no thread to make it ready.
    #[error("cannot start to register the arena: {why}")]
    Thread {
        /// The kernel's error.
        why: String,
    },
}

/// Space that was taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<Extent>);

impl Extents {
    /// These runs, in the order in which bytes are laid into them.
    pub(crate) fn new(runs: Vec<Extent>) -> Extents {
        Extents(runs)
    }

    /// The runs, in the order in which bytes are laid into them.
    pub fn runs(&self) -> &[Extent] {
        &self.0
    }

    /// The size of all runs.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|run| run.bytes).sum()
    }
}

/// See the module. Shared by the movers of several GPUs: each has a clone, which takes space near to its GPU as far as there
/// is some. When the last one is dropped the memory is unregistered and unmapped, and the keeper is told that nothing is
/// under way: so it must be.
#[derive(Clone, Debug)]
pub struct Arena(Arc<Inner>, Option<Node>);

#[derive(Debug)]
struct Inner {
    link: Arc<Link>,
    memory: Memory,
    /// Once it is open.
    tier: Mutex<Option<Arc<Tier>>>,
    size_bytes: u64,
    highest_tenant: Option<Owner>,
    /// How many movers have it.
    movers: AtomicUsize,
    /// What clean copies had of it when somebody looked last.
    kept_bytes: AtomicU64,
}

impl Arena {
    /// The arena of a keeper, of which this is the worker from now on. Starts to register it with a device's registrar: for
    /// all devices of the driver.
    pub fn open(mut client: Client, registrar: Box<dyn Registrar>) -> Result<Arena, ArenaError> {
        let lost = |error: keeper::ClientError| ArenaError::Lost { why: error.to_string() };
        let welcome = client.welcome().clone();
        let size_bytes = client.progress().map_err(lost)?.wanted_bytes;
        let found = client.tenants().map_err(lost)?;
        let found = found.into_iter().map(|(tenant, process)| (Owner(tenant.0), process)).collect();
        let link = Arc::new(Link::new(client, found));
        let memory = Memory::open(&welcome, Arc::clone(&link), registrar)?;
        let highest_tenant = welcome.highest_tenant.map(|tenant| Owner(tenant.0));
        let tier = Mutex::default();
        let (movers, kept_bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
        let inner = Inner { link, memory, tier, size_bytes, highest_tenant, movers, kept_bytes };
        Ok(Arena(Arc::new(inner), None))
    }

    /// The same arena, for a device that is near to this node of the host.
    pub fn near(&self, node: Option<Node>) -> Arena {
        Arena(Arc::clone(&self.0), node)
    }

    /// Has what the arena has no room for go to a cellar. Where an earlier worker had one, this goes on with it, whatever is
    /// wanted now: with none, or a smaller one, nothing more goes there, and what is there can be brought back.
    ///
    /// To be called once. No thread of an earlier worker writes to the cellar any more: the keeper has let this one in, so the
    /// process of that one has ended.
    pub fn open_cellar(&self, wanted: Option<::cellar::Settings>) -> Result<(), CellarError> {
        self.set_tier(|link| Tier::open(link, wanted, &cellar::local_file))
    }

    fn set_tier(
        &self,
        open: impl FnOnce(&Link) -> Result<Option<Tier>, CellarError>,
    ) -> Result<(), CellarError> {
        let mut tier = self.0.tier.lock().unwrap_or_else(PoisonError::into_inner);
        if tier.is_some() {
            return Err(CellarError::Twice);
        }
        *tier = open(&self.0.link)?.map(Arc::new);
        Ok(())
    }

    fn tier(&self) -> Option<Arc<Tier>> {
        self.0.tier.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether what the arena has no room for can go further.
    pub fn has_cellar(&self) -> bool {
        self.tier().is_some_and(|tier| tier.may_take_bytes() > 0)
    }

    /// What the cellar may take of its disk, of which the rest is left to others. Zero where there is none.
    pub fn cellar_room_bytes(&self) -> u64 {
        self.tier().map_or(0, |tier| tier.may_take_bytes())
    }

    /// Room for what is away: what is ready here, and what the cellar may take.
    pub fn room_bytes(&self) -> u64 {
        self.ready_bytes().saturating_add(self.cellar_room_bytes())
    }

    /// What the cellar says of itself, if there is one.
    pub fn cellar_statistics(&self) -> Option<::cellar::Statistics> {
        self.tier().map(|tier| tier.statistics())
    }

    /// The size that it will have when all of it is ready.
    pub fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }

    /// How much is ready at the keeper, taken or not. Zero once the keeper is lost.
    pub fn ready_bytes(&self) -> u64 {
        self.0.link.ask(Client::progress).map_or(0, |progress| progress.ready_bytes)
    }

    /// How much can be taken now. Zero once the keeper is lost.
    pub fn free_bytes(&self) -> u64 {
        let progress = self.0.link.ask(Client::progress);
        progress.map_or(0, |progress| progress.free_bytes.saturating_add(progress.clean_bytes))
    }

    /// How much of that are clean copies, by the last look. Asks nobody.
    pub fn kept_bytes(&self) -> u64 {
        self.0.kept_bytes.load(Ordering::Relaxed)
    }

    /// Looks how much of it are clean copies now. Zero once the keeper is lost.
    pub fn look_at_kept(&self) -> u64 {
        let bytes = self.0.link.ask(Client::progress).map_or(0, |progress| progress.clean_bytes);
        self.0.kept_bytes.store(bytes, Ordering::Relaxed);
        bytes
    }

    /// Whether there may come to be more space than now.
    pub fn may_grow(&self) -> bool {
        self.0.memory.may_grow()
    }

    /// Whether more of it may become ready, or be registered.
    pub fn is_growing(&self) -> bool {
        self.0.memory.is_growing()
    }

    /// There is one more mover for it.
    pub(crate) fn serve_mover(&self) {
        self.0.movers.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it has several movers, of which others may give space back at any time.
    pub fn is_shared(&self) -> bool {
        self.0.movers.load(Ordering::Relaxed) > 1
    }

    /// Somebody is here whom the driver's lock must not keep waiting, or is not: what is not registered yet is so in short
    /// steps meanwhile.
    pub fn be_gentle(&self, yes: bool) {
        self.0.memory.be_gentle(yes);
    }

    /// Somebody needs the driver: until what is returned is dropped, nothing is registered that no move waits for.
    pub fn hold_back(&self) -> HeldBack {
        self.0.memory.hold_back()
    }

    /// Why it stays smaller than wanted, or slower, if it does.
    pub fn stopped(&self) -> Option<String> {
        self.0.memory.stopped()
    }

    /// Waits until nothing more becomes ready.
    pub fn wait_until_prepared(&self) {
        self.0.memory.wait_until_prepared();
    }

    /// Why the keeper cannot be asked any more, if so.
    pub fn lost(&self) -> Option<String> {
        self.0.link.lost()
    }

    /// The highest number that a tenant of this keeper ever had: new ones get higher ones.
    pub fn highest_tenant(&self) -> Option<Owner> {
        self.0.highest_tenant
    }

    /// Tenants of earlier workers that were neither adopted nor forgotten by this one yet.
    pub fn found(&self) -> Vec<(Owner, Process)> {
        self.0.link.found()
    }

    /// Nothing of an earlier worker is under way on any device any more: what it had reserved and not recorded is free.
    /// Says how much that is.
    ///
    /// That its connection has ended is not enough. But the keeper lets nobody in before the process of the last worker has
    /// ended: then its files of the driver are closed, and with them its contexts and all their copies.
    pub fn reclaim(&self) -> Result<u64, ArenaError> {
        self.0.link.ask(Client::reclaim)
    }

    /// What the keeper is to do when the last clone of this is dropped. At first it is to stay.
    pub fn at_end(&self, end: End) {
        self.0.link.at_end(Some(end));
    }

    /// The process ends when the last clone of this is dropped, or soon after: what is registered is left to the kernel, which has
    /// it back with the process, and not segment by segment.
    pub fn end_with_process(&self) {
        self.0.memory.stay_registered();
    }

    /// Something may still be under way at the end: the keeper hears nothing then, and takes this worker for a dead one.
    pub(crate) fn at_end_say_nothing(&self) {
        self.0.link.at_end(None);
    }

    /// There is a new tenant.
    pub fn introduce(&self, owner: Owner, process: Process) -> Result<(), ArenaError> {
        settled(self.0.link.ask(|client| client.introduce(number(owner), process))?)
    }

    /// Takes a tenant of an earlier worker out of those that were found, if it is that very process. None: it is not known.
    pub(crate) fn take_found(&self, owner: Owner, process: Process) -> Option<Result<(), Process>> {
        self.0.link.take_found(owner, process)
    }

    /// A tenant of an earlier worker was adopted and has gone again: it is among those that were found.
    pub(crate) fn put_found(&self, owner: Owner, process: Process) {
        self.0.link.put_found(owner, process);
    }

    /// All of a tenant that has recorded bytes here.
    pub(crate) fn recorded(&self, owner: Owner) -> Result<Vec<Recorded>, ArenaError> {
        self.0.link.ask(|client| client.recorded(number(owner)))
    }

    /// The handles of a tenant that are away, with their bytes.
    pub fn away(&self, owner: Owner) -> Result<Vec<(u64, u64)>, ArenaError> {
        let is_away = |recorded: &Recorded| recorded.place != keeper::Place::Clean;
        let away = self.recorded(owner)?.into_iter().filter(is_away);
        Ok(away.map(|recorded| (recorded.handle, recorded.bytes)).collect())
    }

    /// The seed of all hashes that are recorded, now or by earlier workers: this one, if there is none yet.
    pub(crate) fn seed(&self, new: &Seed) -> Result<Seed, ArenaError> {
        self.0.link.seed(new)
    }

    /// These copies out are complete, with what is known of their blocks. What becomes of each.
    pub(crate) fn record_out<'a>(
        &self,
        handles: impl Iterator<Item = (HandleKey, Option<&'a [BlockHash]>)>,
    ) -> Result<Vec<Outcome>, ArenaError> {
        let out = |(key, hashes): (HandleKey, Option<&[BlockHash]>)| {
            let facts = hashes.unwrap_or_default().iter().map(fact).collect();
            Out { key: named(key), facts }
        };
        let all: Vec<Out> = handles.map(out).collect();
        self.0.link.ask(|client| client.record_out(&all))
    }

    /// These are on the device again, and their copies here are kept or not. What becomes of each.
    pub(crate) fn record_in(&self, handles: &[(HandleKey, bool)]) -> Result<Vec<Outcome>, ArenaError> {
        let all: Vec<In> =
            handles.iter().map(|&(key, keep_clean)| In { key: named(key), keep_clean }).collect();
        self.0.link.ask(|client| client.record_in(&all))
    }

    /// A handle was freed, and nothing uses its space any more. What the keeper says to that, if it can be asked.
    pub(crate) fn free(&self, key: HandleKey) -> Option<Outcome> {
        let outcomes = self.tell("cannot free space", |client| client.free(&[named(key)]))?;
        if let Some(tier) = self.tier() {
            tier.discard(key);
        }
        outcomes.first().copied()
    }

    /// A tenant is gone, and nothing uses its space any more.
    pub(crate) fn died(&self, owner: Owner) {
        self.0.link.drop_found(owner);
        if self.tell("cannot free a tenant's space", |client| client.died(number(owner))).is_some()
            && let Some(tier) = self.tier()
        {
            tier.discard_owner(owner);
        }
    }

    /// What changes nothing for whoever says it, should the keeper not hear it. What it says, if it has.
    fn tell<T>(
        &self,
        what: &str,
        request: impl FnOnce(&mut Client) -> Result<T, keeper::ClientError>,
    ) -> Option<T> {
        self.0.link.ask(request).inspect_err(|error| tracing::debug!(%error, "{what}")).ok()
    }

    /// Has all of it mapped and registered, as far as the device registers it. Waits for that, and says whether it had to.
    pub(crate) fn make_usable(&self, extents: &Extents) -> Result<bool, ArenaError> {
        self.0.memory.make_usable(extents.runs())
    }

    /// A run, in parts that each may be copied from or to as one. It must have been made usable.
    pub(crate) fn registered_parts(&self, run: Extent) -> Vec<Extent> {
        self.0.memory.registered_parts(run)
    }

    /// Where a run lies in this process. It must have been made usable.
    pub(crate) fn address(&self, run: Extent) -> *mut u8 {
        self.0.memory.address(run)
    }

    /// All of the keeper's books: how full it is, and who its tenants are.
    #[cfg(test)]
    pub(crate) fn books(&self) -> (keeper::Progress, Vec<Owner>) {
        let asked = self.0.link.ask(|client| Ok((client.progress()?, client.tenants()?)));
        let (progress, tenants) = asked.expect("the keeper answers");
        (progress, tenants.into_iter().map(|(tenant, _)| Owner(tenant.0)).collect())
    }

    /// The process dies, as far as the keeper can tell.
    #[cfg(test)]
    pub(crate) fn cut(&self) {
        self.0.link.cut();
        // Its threads end with it.
        *self.0.tier.lock().expect("no panic") = None;
    }

    /// Calls something at every step of the cellar, if there is one.
    #[cfg(test)]
    pub(crate) fn each_cellar_step(&self, what: impl Fn() + Send + Sync + 'static) {
        if let Some(tier) = self.tier() {
            tier.each_step(Box::new(what));
        }
    }

    /// A cellar on a disk that this makes, whose jobs are waited for.
    #[cfg(test)]
    pub(crate) fn open_test_cellar(
        &self,
        wanted: Option<::cellar::Settings>,
        make_disk: cellar::MakeDisk<'_>,
    ) -> Result<(), CellarError> {
        self.set_tier(|link| {
            let tier = Tier::open(link, wanted, make_disk)?;
            Ok(tier.map(|mut tier| {
                tier.be_patient();
                tier
            }))
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // First: its threads use the memory.
        *self.tier.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        self.memory.undo();
        self.link.leave();
    }
}

/// An outcome of what is so afterwards.
pub(crate) fn settled(outcome: Outcome) -> Result<(), ArenaError> {
    match outcome {
        Outcome::Done | Outcome::AlreadySo => Ok(()),
        other => Err(ArenaError::Refused(other)),
    }
}

fn number(owner: Owner) -> TenantNumber {
    TenantNumber(owner.0)
}

fn named(key: HandleKey) -> keeper::HandleKey {
    keeper::HandleKey { tenant: number(key.owner), handle: key.handle }
}

fn fact(hash: &BlockHash) -> BlockFact {
    BlockFact { hash: hash.bits.to_le_bytes(), zero: hash.zero }
}

/// What was recorded of a block.
pub(crate) fn hash_of(fact: &BlockFact) -> BlockHash {
    BlockHash { bits: u128::from_le_bytes(fact.hash), zero: fact.zero }
}

#[cfg(test)]
mod tests;
