//! Memory that changes places between the device and the host: what tenants are asked for it, and when their memory is looked at.
//!
//! A look hashes some blocks of what tenants with memory in the host's have, while they run; what it saw goes to the core.
//! Making memory of the host's takes long, and nobody waits for it: answers are taken in between other work. The change itself is
//! done in one go, with its tenant frozen: what goes to the host's memory first, and in its place what comes; or what comes into
//! room that is free.

#[cfg(test)]
mod tests;

use super::memory::Memory;
use super::moves::STEP_WITHIN;
use super::{Done, span};
use crate::events::nanos;
use crate::names::{key, owned, owner, tenant};
use mover::{Device, HandleKey, Home, Mover, Owner, Question, Settled};
use sched::{OpId, Outcome, Owned, Sighting, TenantId};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use wire::{FromDaemon, HANDLES_MAX, HandleId};

/// How long looks at all tenants may take together: they wait for kernels of whoever has the GPU, and moves wait for them.
const LOOK_WITHIN: Duration = Duration::from_millis(500);

/// How long a tenant may take to make memory of the host's.
const PREPARED_WITHIN: Duration = Duration::from_secs(30);

/// How long copies between the two homes may take.
const FILLED_WITHIN: Duration = Duration::from_secs(5);

/// How often to see whether somebody has answered.
const ANSWER_LOOK: Duration = Duration::from_millis(10);

/// What is under way, and what comes next.
#[derive(Debug)]
pub(super) struct Homing {
    /// How often to look, if ever.
    every: Option<Duration>,
    next_look: Instant,
    /// Whom the last look was at.
    looked_at: Option<Owner>,
    /// A tenant makes memory.
    preparing: Option<Preparing>,
    /// Handles that have settled, and of which the core has not heard.
    settled: Vec<HandleKey>,
}

#[derive(Clone, Copy, Debug)]
struct Preparing {
    op: OpId,
    tenant: TenantId,
    until: Instant,
}

/// What became of an exchange.
#[derive(Default)]
struct Exchanged {
    moved: Vec<HandleKey>,
    unsettled: Vec<HandleKey>,
}

impl Homing {
    pub(super) fn new(every: Option<Duration>) -> Self {
        Self { every, next_look: Instant::now(), looked_at: None, preparing: None, settled: Vec::new() }
    }
}

impl<D: Device> Memory<D> {
    /// How long until there is something to do about homes, if there is.
    pub(super) fn homes_patience(&self) -> Option<Duration> {
        if self.homing.preparing.is_some() {
            return Some(ANSWER_LOOK);
        }
        let looks = self.homing.every.is_some() && !self.mover.hosts().is_empty();
        looks.then(|| self.homing.next_look.saturating_duration_since(Instant::now()))
    }

    /// Does what there is to do about homes between other work.
    pub(super) fn mind_homes(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        let settled = self.mover.take_settled().into_iter().map(|(key, _)| key);
        for key in std::mem::take(&mut self.homing.settled).into_iter().chain(settled) {
            done.push(Done::HomeIs(owned(key), self.mover.is_hosted(key)));
            self.commit_if_whole(tenant(key.owner));
        }
        done.extend(self.end_preparing());
        let Some(every) = self.homing.every.filter(|_| self.homing.next_look <= Instant::now()) else {
            return done;
        };
        // A look is short kernels and a few copies, but somebody latency-critical would meet them.
        if !self.mover.pace().is_gentle() {
            done.extend(self.look());
        }
        self.homing.next_look = Instant::now() + every;
        done
    }

    /// Looks at the memory of all who have some in the host's, and run.
    fn look(&mut self) -> Vec<Done> {
        let mut looked = Vec::new();
        let until = Instant::now() + LOOK_WITHIN;
        for owner in in_turn(self.mover.hosts(), self.homing.looked_at) {
            let tenant = tenant(owner);
            // Whoever stands still changes nothing.
            let runs = self.links.get(&tenant).is_some_and(|link| !link.grip.page().frozen());
            if !runs {
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.mover.pace().is_gentle() {
                // The others are the first next time.
                break;
            }
            self.homing.looked_at = Some(owner);
            match self.mover.look(owner, left) {
                Ok(seen) => {
                    let sighting = |look: &mover::Look| Sighting {
                        handle: sched::HandleId(look.key.handle),
                        blocks: look.blocks,
                        changed: look.changed,
                    };
                    looked.push(Done::Looked(tenant, seen.iter().map(sighting).collect()));
                }
                Err(error) => tracing::debug!("tenant {tenant}: cannot look at its memory: {error}"),
            }
        }
        looked
    }

    /// Takes in a handle that lies in the host's memory.
    pub(super) fn adopt_hosted(&mut self, owned: Owned, bytes: sched::Bytes, file: std::os::fd::OwnedFd) {
        if self.homing.every.is_some()
            && let Err(error) = self.mover.adopt_hosted(key(owned), bytes.0, file)
        {
            tracing::warn!("tenant {}: what lies in the host's memory stays there: {error}", owned.tenant);
        }
    }

    /// Asks a tenant to make memory of the host's for these.
    pub(super) fn prepare(&mut self, op: OpId, tenant: TenantId, handles: &[Owned]) -> Option<Done> {
        let wanted: Vec<HandleKey> = handles.iter().map(|&handle| key(handle)).collect();
        let wanted = self.begin_homing(tenant, &wanted, Home::Host);
        if wanted.is_empty() || self.homing.preparing.is_some() {
            self.give_up_homing(tenant);
            return Some(Done::now(op, Outcome::Failed));
        }
        self.homing.preparing = Some(Preparing { op, tenant, until: Instant::now() + PREPARED_WITHIN });
        None
    }

    /// Asks a tenant for memory in another home. Says for which it was asked.
    fn begin_homing(&mut self, tenant: TenantId, keys: &[HandleKey], home: Home) -> Vec<HandleKey> {
        let questions: Vec<Question> =
            keys.iter().filter_map(|&key| self.mover.begin_homing(key, home)).collect();
        let home = match home {
            Home::Device => wire::Home::Device,
            Home::Host => wire::Home::Host,
        };
        self.ask(tenant, &questions, |questions| FromDaemon::Prepare { questions, home });
        keys_of(tenant, &questions)
    }

    fn end_preparing(&mut self) -> Option<Done> {
        let Preparing { op, tenant, until } = self.homing.preparing?;
        let is_late = Instant::now() >= until;
        if self.mover.awaits_memory(owner(tenant)) && !is_late {
            return None;
        }
        self.homing.preparing = None;
        if is_late {
            self.give_up_homing(tenant);
            return Some(Done::now(op, Outcome::Failed));
        }
        Some(Done::now(op, Outcome::Done { took: sched::Span::ZERO }))
    }

    /// Has handles change places. Their tenant is frozen.
    pub(super) fn rehome(&mut self, tenant: TenantId, down: &[Owned], up: &[Owned]) -> Outcome {
        self.rehome_within(tenant, down, up, STEP_WITHIN)
    }

    /// Fills what can be, and puts off a limit that is for the tenant's answers by how long that took.
    fn filled(&mut self, keys: &[HandleKey], until: &mut Instant) -> Vec<HandleKey> {
        let begin = Instant::now();
        let filled = self.mover.fill(keys, FILLED_WITHIN);
        *until += begin.elapsed();
        filled
    }

    /// One time limit for all that the tenant is asked: moves wait meanwhile.
    fn rehome_within(&mut self, tenant: TenantId, down: &[Owned], up: &[Owned], within: Duration) -> Outcome {
        let begin = Instant::now();
        let mut until = begin + within;
        let sizes = |mover: &Mover<D>, keys: &[HandleKey]| -> u64 {
            keys.iter().filter_map(|&key| mover.handle(key)).map(|held| held.bytes).sum()
        };
        let down: Vec<HandleKey> = down.iter().map(|&handle| key(handle)).collect();
        let filled = self.filled(&down, &mut until);
        let going_bytes: Vec<(HandleKey, u64)> =
            filled.iter().map(|&key| (key, sizes(&self.mover, &[key]))).collect();
        let gone = self.exchange_homes(tenant, &filled, until);
        let down_bytes: u64 =
            going_bytes.iter().filter(|(key, _)| gone.moved.contains(key)).map(|(_, bytes)| bytes).sum();
        // Where nothing is to go, whoever ordered it knows of room.
        let mut room = if down.is_empty() { u64::MAX } else { down_bytes };
        let mut come = Exchanged::default();
        if gone.unsettled.is_empty() && room > 0 && !up.is_empty() {
            let mut coming = Vec::new();
            for &handle in up {
                let bytes = self.mover.hosted_bytes(key(handle)).unwrap_or(u64::MAX);
                if bytes <= room {
                    room -= bytes;
                    coming.push(key(handle));
                }
            }
            let coming = self.begin_homing(tenant, &coming, Home::Device);
            self.wait_for_answers(until, |mover| !mover.awaits_memory(owner(tenant)));
            let filled = self.filled(&coming, &mut until);
            come = self.exchange_homes(tenant, &filled, until);
        }
        self.give_up_homing(tenant);
        let up_bytes = sizes(&self.mover, &come.moved);
        if down_bytes + up_bytes > 0 {
            let took_ns = nanos(begin.elapsed());
            self.note(
                "rehomed",
                tenant,
                json!({
                    "to_host": numbers(&gone.moved),
                    "to_host_bytes": down_bytes,
                    "to_device": numbers(&come.moved),
                    "to_device_bytes": up_bytes,
                    "took_ns": took_ns,
                }),
            );
        }
        let names = |keys: &[HandleKey]| keys.iter().map(|&key| owned(key)).collect::<Vec<_>>();
        let unsettled: Vec<HandleKey> = gone.unsettled.iter().chain(&come.unsettled).copied().collect();
        let left = self.unsettled_of(tenant);
        self.remember_unsettled(tenant, left);
        Outcome::Rehomed {
            down: names(&gone.moved),
            up: names(&come.moved),
            unsettled: names(&unsettled),
            took: span(begin.elapsed()),
        }
    }

    /// Has a tenant put what was filled under its addresses, and waits for its word. If it has no time left for that, it is not
    /// asked: then everything stays as it is.
    fn exchange_homes(&mut self, tenant: TenantId, keys: &[HandleKey], until: Instant) -> Exchanged {
        if Instant::now() >= until {
            return Exchanged::default();
        }
        let questions: Vec<Question> =
            keys.iter().filter_map(|&key| self.mover.begin_exchange(key)).collect();
        let keys = keys_of(tenant, &questions);
        let Some(link) = self.links.get(&tenant).filter(|_| !keys.is_empty()) else {
            return Exchanged::default();
        };
        // Until it has answered, nobody may thaw it: had it run since, what was filled would be old.
        link.grip.page().revoke_residency();
        self.ask(tenant, &questions, |questions| FromDaemon::Exchange { questions });
        self.wait_for_answers(until, |mover| mover.exchanging(owner(tenant)).next().is_none());
        let unsettled: Vec<HandleKey> =
            self.mover.exchanging(owner(tenant)).filter(|key| keys.contains(key)).collect();
        let (mine, others): (Vec<_>, Vec<_>) =
            self.mover.take_settled().into_iter().partition(|(key, _)| keys.contains(key));
        self.homing.settled.extend(others.into_iter().map(|(key, _)| key));
        let moved = mine
            .into_iter()
            .filter(|(_, how)| matches!(how, Settled::Moved(_)))
            .map(|(key, _)| key)
            .collect();
        self.commit_if_whole(tenant);
        Exchanged { moved, unsettled }
    }

    fn wait_for_answers(&mut self, until: Instant, is_over: impl Fn(&Mover<D>) -> bool) {
        while !is_over(&self.mover) && Instant::now() < until {
            let Ok(reply) = self.replies.recv_timeout(ANSWER_LOOK) else { continue };
            self.hear(reply);
        }
    }

    /// What a tenant has prepared, or is to, is not wanted any more.
    fn give_up_homing(&mut self, tenant: TenantId) {
        let given_up = self.mover.give_up_homing(owner(tenant));
        self.ask(tenant, &given_up, |questions| FromDaemon::Discard { questions });
    }

    fn ask(
        &self,
        tenant: TenantId,
        questions: &[Question],
        message: impl Fn(Vec<wire::Question>) -> FromDaemon,
    ) {
        let Some(link) = self.links.get(&tenant) else { return };
        let on_wire = |it: &Question| wire::Question { handle: HandleId(it.handle), number: it.number };
        for batch in questions.chunks(HANDLES_MAX) {
            // One that is gone is told of elsewhere.
            let _ = link.outgoing.send(message(batch.iter().map(on_wire).collect()));
        }
    }
}

/// What a tenant's questions are about.
fn keys_of(tenant: TenantId, questions: &[Question]) -> Vec<HandleKey> {
    questions.iter().map(|it| HandleKey { owner: owner(tenant), handle: it.handle }).collect()
}

/// First those behind the last.
fn in_turn(owners: BTreeSet<Owner>, last: Option<Owner>) -> Vec<Owner> {
    let (before, behind): (Vec<Owner>, Vec<Owner>) =
        owners.into_iter().partition(|owner| last.is_some_and(|last| *owner <= last));
    behind.into_iter().chain(before).collect()
}

fn numbers(keys: &[HandleKey]) -> Vec<u64> {
    keys.iter().map(|key| key.handle).collect()
}
