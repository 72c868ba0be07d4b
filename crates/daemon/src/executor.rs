//! The executor: the one thread that freezes, moves and thaws.
//!
//! It owns the mover and does what it is told, in order; what it finds is reported as [`Done`]. It decides nothing.
//! While it is busy with a move, the tenants' answers reach it through a channel of their own, so that a
//! connection's thread never waits.

use crate::events::{Events, Who, nanos};
use crate::grip::{Grip, GripError};
use crate::outgoing::Outgoing;
use crate::turns::{Owned, Shift, Shifted};
use mover::mover::{HandleView, Whereabouts};
use mover::{Device, HandleKey, MoveError, Mover, Outcome, Owner, Plan, Reply};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use wire::{FromDaemon, HANDLES_MAX, HandleId, SizedHandle, TenantId};

/// How long a move may go without any progress before it is given up. Agents answer in milliseconds; one that does not
/// is stopped, most likely, and everybody waits for it meanwhile.
const STEP_WITHIN: Duration = Duration::from_secs(3);

/// How long a move waits for the arena to be pinned: at its start it grows by a gigabyte or more a second.
const ARENA_WITHIN: Duration = Duration::from_secs(60);

/// How often to look at an arena that grows.
const ARENA_LOOK: Duration = Duration::from_millis(50);

/// A tenant as the executor needs it.
#[derive(Clone, Debug)]
pub struct Link {
    /// Who it is.
    pub who: Who,
    /// How to freeze it.
    pub grip: Arc<Grip>,
    /// How to speak to it.
    pub outgoing: Outgoing,
}

/// What the executor is told.
#[derive(Debug)]
pub enum Work {
    /// A tenant came.
    Join(TenantId, Link),
    /// A tenant made this handle; its file comes along.
    Adopt(TenantId, SizedHandle, OwnedFd),
    /// A tenant freed these.
    Forget(TenantId, Vec<HandleId>),
    /// See [`Shift`].
    Shift(Shift),
    /// A tenant is gone, as seen at this instant.
    Reap(TenantId, Instant),
    /// No more work.
    Stop,
}

/// What the executor reports.
#[derive(Debug)]
pub enum Done {
    /// A handle is known to the mover, or not.
    Adopted {
        /// Whose.
        tenant: TenantId,
        /// Which.
        handle: HandleId,
        /// Can it be moved?
        movable: bool,
    },
    /// The arena has reached its final size.
    Arena(u64),
    /// Handles are gone, the mover's import too.
    Forgotten(Vec<Owned>),
    /// A shift is over.
    Shifted(Shifted),
    /// What a dead tenant had is free.
    Reaped(TenantId, Instant),
}

/// See the module.
pub struct Executor<D: Device> {
    mover: Mover<D>,
    links: BTreeMap<TenantId, Link>,
    replies: Receiver<Reply>,
    events: Events,
    moves: u64,
}

impl<D: Device> Executor<D> {
    /// Owns `mover`; tenants' answers to moves come in through `replies`.
    pub fn new(mover: Mover<D>, replies: Receiver<Reply>, events: Events) -> Self {
        Self { mover, links: BTreeMap::new(), replies, events, moves: 1 }
    }

    /// Works until told to stop.
    pub fn run(mut self, work: &Receiver<Work>, report: &Sender<Done>) {
        if let Err(cause) = self.mover.device_mut().attach() {
            self.error(None, &format!("the executor cannot use the GPU: {cause}"));
            return;
        }
        let mut arena_grows = true;
        loop {
            let item = if arena_grows {
                arena_grows = self.arena_grows();
                if !arena_grows {
                    let bytes = self.note_arena();
                    if report.send(Done::Arena(bytes)).is_err() {
                        return;
                    }
                }
                match work.recv_timeout(ARENA_LOOK) {
                    Err(RecvTimeoutError::Timeout) => continue,
                    other => other.ok(),
                }
            } else {
                work.recv().ok()
            };
            let Some(item) = item else { return };
            self.take_late_answers();
            let done = match item {
                Work::Join(tenant, link) => {
                    self.links.insert(tenant, link);
                    continue;
                }
                Work::Adopt(tenant, handle, file) => {
                    let movable = self.adopt(tenant, handle, file);
                    Done::Adopted { tenant, handle: handle.handle, movable }
                }
                Work::Forget(tenant, handles) => {
                    for handle in &handles {
                        // Unknown if a move under way was told first, or if it could not be adopted.
                        let _ = self.mover.forget(key(Owned { tenant, handle: *handle }));
                    }
                    Done::Forgotten(handles.into_iter().map(|handle| Owned { tenant, handle }).collect())
                }
                Work::Shift(shift) => Done::Shifted(self.shift(shift)),
                Work::Reap(tenant, seen) => {
                    self.mover.forget_owner(Owner(tenant.0));
                    self.links.remove(&tenant);
                    Done::Reaped(tenant, seen)
                }
                Work::Stop => return,
            };
            if report.send(done).is_err() {
                return;
            }
        }
    }

    /// Answers that came after their move was given up still settle where those handles are. The core learns of it with
    /// the next shift.
    fn take_late_answers(&mut self) {
        while let Ok(reply) = self.replies.try_recv() {
            if let Some(owner) = self.mover.late(reply, &mut Requests(&self.links)) {
                self.end(owner);
            }
        }
    }

    fn adopt(&mut self, tenant: TenantId, handle: SizedHandle, file: OwnedFd) -> bool {
        match self.mover.adopt(key(Owned { tenant, handle: handle.handle }), handle.bytes, file) {
            Ok(()) => true,
            Err(cause) => {
                self.error(
                    Some(tenant),
                    &format!("a handle of {} bytes cannot be moved: {cause}", handle.bytes),
                );
                false
            }
        }
    }

    fn shift(&mut self, shift: Shift) -> Shifted {
        let mut done = Shifted::default();
        if let Some(tenant) = shift.thaw.filter(|&tenant| self.is_unsettled(tenant)) {
            // Nobody has to stop or make room for a tenant that could not run anyway.
            tracing::debug!("tenant {tenant} has not answered yet; its turn is skipped");
            done.away = self.links.keys().flat_map(|&tenant| self.away_of(tenant)).collect();
            done.skipped = true;
            return done;
        }
        // Nothing moves beside a tenant that still runs; those frozen so far stay so until their turn.
        if shift.freeze.iter().all(|&tenant| {
            let frozen = self.freeze(tenant);
            done.froze.extend(frozen.then_some(tenant));
            frozen
        }) {
            if !shift.out.is_empty() || !shift.into.is_empty() {
                done.stuck = self.exchange(&shift);
            }
            done.thawed = shift.thaw.filter(|&tenant| self.thaw(tenant));
        }
        done.away = self.links.keys().flat_map(|&tenant| self.away_of(tenant)).collect();
        done
    }

    /// What a tenant has in the arena. A handle whose tenant was asked for memory and has not answered is among them,
    /// though it may take up the device once its tenant goes on: it is handed back then, and meanwhile the room is
    /// better used by others.
    fn away_of(&self, tenant: TenantId) -> impl Iterator<Item = Owned> {
        let handles = self.mover.handles(Owner(tenant.0)).into_iter();
        let away =
            |held: &HandleView| matches!(held.whereabouts, Whereabouts::Arena | Whereabouts::Returning);
        handles.filter(away).map(|held| owned(held.key))
    }

    /// Has an earlier move of a tenant not ended, because it does not answer?
    fn is_unsettled(&self, tenant: TenantId) -> bool {
        let handles = self.mover.handles(Owner(tenant.0));
        handles.iter().any(|held| matches!(held.whereabouts, Whereabouts::Leaving | Whereabouts::Returning))
    }

    /// Is all of a tenant's memory on the device? A handle that is neither here nor there is not: its tenant may still
    /// follow an order to unmap it.
    fn is_whole(&self, tenant: TenantId) -> bool {
        self.mover.handles(Owner(tenant.0)).iter().all(|held| held.whereabouts == Whereabouts::Device)
    }

    fn freeze(&mut self, tenant: TenantId) -> bool {
        let Some(link) = self.links.get(&tenant) else { return false };
        let begin = Instant::now();
        match link.grip.freeze() {
            Ok(channels) => {
                self.note(
                    "freeze",
                    tenant,
                    json!({ "took_ns": nanos(begin.elapsed()), "channels": channels }),
                );
                true
            }
            Err(GripError::Gone) => false,
            Err(cause) => {
                self.error(Some(tenant), &format!("cannot freeze: {cause}"));
                false
            }
        }
    }

    fn thaw(&mut self, tenant: TenantId) -> bool {
        let Some(link) = self.links.get(&tenant) else { return false };
        if !self.is_whole(tenant) {
            return false;
        }
        // Committed before the thaw: from here on the tenant may go on without the daemon.
        self.moves += 1;
        link.grip.page().commit_residency(self.moves);
        let begin = Instant::now();
        match link.grip.thaw() {
            Ok(channels) => {
                self.note("thaw", tenant, json!({ "took_ns": nanos(begin.elapsed()), "channels": channels }));
                true
            }
            Err(GripError::Gone) => false,
            Err(cause) => {
                self.error(Some(tenant), &format!("cannot thaw: {cause}"));
                if let GripError::Loose(_) = cause {
                    link.outgoing.hang_up();
                }
                false
            }
        }
    }

    /// Moves what is to be moved. Returns what was to go out and could not.
    fn exchange(&mut self, shift: &Shift) -> Vec<Owned> {
        let bytes_out = self.bytes_by_tenant(&shift.out);
        let bytes_in = self.bytes_by_tenant(&shift.into);
        self.wait_for_arena(bytes_out.values().map(|(bytes, _)| bytes).sum());
        self.events.note("move_begin", json!({ "out": summary(&bytes_out), "into": summary(&bytes_in) }));
        for (&tenant, &(bytes, _)) in &bytes_out {
            if let Some(link) = self.links.get(&tenant) {
                // Before the first unmap: a tenant that loses the daemon now must not go on.
                link.grip.page().revoke_residency();
            }
            self.note("moving_out", tenant, json!({ "bytes": bytes }));
        }
        for (&tenant, &(bytes, _)) in &bytes_in {
            self.note("moving_in", tenant, json!({ "bytes": bytes }));
        }
        let plan = Plan {
            out: shift.out.iter().map(|&owned| key(owned)).collect(),
            into: shift.into.iter().map(|&owned| key(owned)).collect(),
            room_bytes: shift.room_bytes,
            deadline: STEP_WITHIN,
        };
        let begin = Instant::now();
        let outcome = self.mover.exchange(plan, &mut Requests(&self.links), &self.replies);
        self.events.note(
            "move_end",
            json!({
                "took_ns": nanos(begin.elapsed()),
                "bytes_out": outcome.bytes_out,
                "bytes_in": outcome.bytes_in,
                "out_ns": nanos(outcome.out.length()),
                "in_ns": nanos(outcome.into.length()),
                "failed": outcome.failed.len(),
            }),
        );
        self.complain(&outcome);
        for &owner in &outcome.must_end {
            self.end(owner);
        }
        for &tenant in bytes_out.keys() {
            let owner = Owner(tenant.0);
            let whole = self.is_whole(tenant);
            if let Some(link) = self.links.get(&tenant).filter(|_| whole) {
                // Nothing of it went, so it may go on alone again should the daemon die.
                link.grip.page().commit_residency(self.moves);
            }
            self.note(
                "away",
                tenant,
                json!({
                    "away_bytes": self.mover.away_bytes(owner),
                    "resident_bytes": self.mover.resident_bytes(owner),
                }),
            );
        }
        for &tenant in bytes_in.keys() {
            if self.mover.away_bytes(Owner(tenant.0)) == 0 {
                self.note("resident", tenant, json!({}));
            }
        }
        let faults = outcome.failed.iter().filter(|(_, why)| is_fault(why)).map(|(key, _)| owned(*key));
        faults.filter(|owned| shift.out.contains(owned)).collect()
    }

    /// What went wrong in a move, in a line for each tenant it concerns. A death explains itself elsewhere.
    fn complain(&self, outcome: &Outcome) {
        let mut failures: BTreeMap<Owner, (usize, String)> = BTreeMap::new();
        for (handle, cause) in outcome.failed.iter().filter(|(_, why)| !matches!(why, MoveError::Unknown)) {
            failures.entry(handle.owner).or_insert_with(|| (0, cause.to_string())).0 += 1;
        }
        if !outcome.gone.is_empty() {
            tracing::info!("a move ended early, because {} left", outcome.gone[0]);
            return;
        }
        for (owner, (count, cause)) in failures {
            let tenant = TenantId(owner.0);
            self.error(Some(tenant), &format!("{count} handles were not moved: {cause}"));
        }
        if let Some(stuck) = &outcome.stuck {
            self.error(None, &format!("a move stopped early: {stuck}"));
        }
    }

    /// A tenant has memory under its addresses that is not its own, and could not be made to drop it: its program must
    /// not go on. Hung up on with its residency revoked, it ends itself and says why.
    fn end(&self, owner: Owner) {
        let tenant = TenantId(owner.0);
        self.error(Some(tenant), "its memory cannot be brought back or put right: the program is ended");
        if let Some(link) = self.links.get(&tenant) {
            link.outgoing.hang_up();
        }
    }

    /// A move may come before the arena is ready. It waits as long as the arena still grows.
    fn wait_for_arena(&mut self, bytes: u64) {
        let arena = self.mover.arena_mut();
        let deadline = Instant::now() + ARENA_WITHIN;
        while arena.free_bytes() < bytes && arena.is_growing() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn arena_grows(&mut self) -> bool {
        self.mover.arena_mut().is_growing()
    }

    /// The arena is as large as it will be: says so, and how large that is.
    fn note_arena(&mut self) -> u64 {
        let arena = self.mover.arena_mut();
        let bytes = arena.ready_bytes();
        if let Some(why) = arena.stopped().map(str::to_owned) {
            self.error(None, &format!("the arena stays at {bytes} bytes: {why}"));
        }
        let took_ns = nanos(self.events.now());
        self.events.note("arena_ready", json!({ "bytes": bytes, "took_ns": took_ns }));
        bytes
    }

    fn bytes_by_tenant(&self, handles: &[Owned]) -> BTreeMap<TenantId, (u64, usize)> {
        let mut sums = BTreeMap::new();
        for &handle in handles {
            let sum: &mut (u64, usize) = sums.entry(handle.tenant).or_default();
            sum.0 += self.mover.handle(key(handle)).map_or(0, |held| held.bytes);
            sum.1 += 1;
        }
        sums
    }

    fn note(&self, event: &str, tenant: TenantId, fields: serde_json::Value) {
        match self.links.get(&tenant) {
            Some(link) => self.events.note_of(&link.who, event, fields),
            None => self.events.note(event, json!({ "tenant": tenant })),
        }
    }

    fn error(&self, tenant: Option<TenantId>, what: &str) {
        match tenant {
            Some(tenant) => {
                tracing::error!("tenant {tenant}: {what}");
                self.note("error", tenant, json!({ "what": what }));
            }
            None => {
                tracing::error!("{what}");
                self.events.note("error", json!({ "what": what }));
            }
        }
    }
}

/// The mover's requests, sent to the tenants' agents.
struct Requests<'a>(&'a BTreeMap<TenantId, Link>);

impl Requests<'_> {
    fn send(
        &self,
        owner: Owner,
        handles: &[u64],
        message: impl Fn(Vec<HandleId>) -> FromDaemon,
    ) -> Result<(), mover::Gone> {
        let link = self.0.get(&TenantId(owner.0)).ok_or(mover::Gone)?;
        for batch in handles.chunks(HANDLES_MAX) {
            let message = message(batch.iter().map(|&handle| HandleId(handle)).collect());
            link.outgoing.send(message).map_err(|_| mover::Gone)?;
        }
        Ok(())
    }
}

impl mover::Tenants for Requests<'_> {
    fn unmap(&mut self, owner: Owner, handles: &[u64]) -> Result<(), mover::Gone> {
        self.send(owner, handles, |handles| FromDaemon::Unmap { handles })
    }

    fn create(&mut self, owner: Owner, handles: &[u64]) -> Result<(), mover::Gone> {
        self.send(owner, handles, |handles| FromDaemon::Create { handles })
    }
}

/// Did something go wrong with this handle itself?
fn is_fault(why: &MoveError) -> bool {
    !matches!(why, MoveError::NotStarted | MoveError::Unknown | MoveError::NotResident | MoveError::NotAway)
}

fn key(owned: Owned) -> HandleKey {
    HandleKey { owner: Owner(owned.tenant.0), handle: owned.handle.0 }
}

fn owned(key: HandleKey) -> Owned {
    Owned { tenant: TenantId(key.owner.0), handle: HandleId(key.handle) }
}

fn summary(sums: &BTreeMap<TenantId, (u64, usize)>) -> serde_json::Value {
    sums.iter()
        .map(|(tenant, (bytes, handles))| json!({ "tenant": tenant.0, "bytes": bytes, "handles": handles }))
        .collect()
}
