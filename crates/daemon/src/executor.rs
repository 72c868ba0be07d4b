//! The executor: the one thread that freezes, moves and thaws.
//!
//! It owns the mover and does what it is told, in order; what it finds is reported as [`Done`]. It decides nothing.
//! While it is busy with a move, the tenants' answers reach it through a channel of their own, so that a
//! connection's thread never waits.

mod moves;

use crate::events::{Events, Who, nanos};
use crate::grip::{Grip, GripError};
use crate::outgoing::Outgoing;
use crate::turns::{Owned, Shift, Shifted};
use mover::mover::{HandleView, Whereabouts};
use mover::{Device, HandleKey, Mover, Owner, Reply};
use moves::Requests;
use serde_json::json;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use wire::{HandleId, SizedHandle, TenantId};

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
                Work::Shift(shift) => Done::Shifted(self.shift(&shift)),
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

    fn shift(&mut self, shift: &Shift) -> Shifted {
        let mut done = self.carry_out(shift);
        done.away = self.links.keys().flat_map(|&tenant| self.away_of(tenant)).collect();
        done
    }

    /// The steps of a shift. One that fails is the last.
    fn carry_out(&mut self, shift: &Shift) -> Shifted {
        let mut done = Shifted::default();
        if let Some(tenant) = shift.thaw.filter(|&tenant| self.is_unsettled(tenant)) {
            // Nobody has to stop or make room for a tenant that could not run anyway.
            tracing::debug!("tenant {tenant} has not answered yet; its turn is skipped");
            done.skipped = true;
            return done;
        }
        for &tenant in &shift.freeze {
            if !self.freeze(tenant) {
                // Nothing moves beside a tenant that still runs; those frozen so far stay so until their turn.
                return done;
            }
            done.froze.push(tenant);
        }
        if !shift.out.is_empty() || !shift.into.is_empty() {
            done.stuck = self.exchange(shift);
        }
        done.thawed = shift.thaw.filter(|&tenant| self.thaw(tenant));
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

fn key(owned: Owned) -> HandleKey {
    HandleKey { owner: Owner(owned.tenant.0), handle: owned.handle.0 }
}

fn owned(key: HandleKey) -> Owned {
    Owned { tenant: TenantId(key.owner.0), handle: HandleId(key.handle) }
}
