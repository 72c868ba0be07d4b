//! One move: what the mover is asked, what tenants are asked, and what is told of it.

use super::memory::Memory;
use super::{Link, span};
use crate::events::nanos;
use crate::names::{key, owned, owner, tenant};
use mover::exchange::times::{Doing, Times};
use mover::{Device, MoveError, Owner, Plan};
use sched::{Bytes, Outcome, Owned, TenantId};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{FromDaemon, HANDLES_MAX, HandleId};

/// How long a move may go without any progress before it is given up. Agents answer in milliseconds; one that does not
/// is stopped, most likely, and everybody waits for it meanwhile.
pub(super) const STEP_WITHIN: Duration = Duration::from_secs(3);

/// How long a move waits for the arena to be pinned: at its start it grows by a gigabyte or more a second.
pub(super) const ARENA_WITHIN: Duration = Duration::from_secs(60);

/// How much longer a move may take that goes through the cellar, as long as it gets on: 16 GiB both ways on a slow disk.
pub(super) const CELLAR_WITHIN: Duration = Duration::from_secs(180);

/// Handles and their bytes of each tenant in a move.
type Sums = BTreeMap<TenantId, (u64, usize)>;

impl<D: Device> Memory<D> {
    /// Moves what is to be moved, as far as it goes.
    pub(super) fn exchange(&mut self, out: &[Owned], into: &[Owned], room: Bytes) -> Outcome {
        let begin = Instant::now();
        let (sums_out, sums_in) = (self.sums(out), self.sums(into));
        self.wait_for_arena(sums_out.values().map(|(bytes, _)| bytes).sum());
        self.events.note("move_begin", json!({ "out": summary(&sums_out), "into": summary(&sums_in) }));
        for (&tenant, &(bytes, _)) in &sums_out {
            if let Some(link) = self.links.get(&tenant) {
                // Before the first unmap: a tenant that loses the daemon now must not go on.
                link.grip.page().revoke_residency();
            }
            self.note("moving_out", tenant, json!({ "bytes": bytes }));
        }
        for (&tenant, &(bytes, _)) in &sums_in {
            self.note("moving_in", tenant, json!({ "bytes": bytes }));
        }
        self.look_who_belongs_together(sums_out.keys().chain(sums_in.keys()));
        let plan = Plan {
            out: out.iter().map(|&owned| key(owned)).collect(),
            into: into.iter().map(|&owned| key(owned)).collect(),
            room_bytes: room.0,
            deadline: STEP_WITHIN,
        };
        let moved = Instant::now();
        let outcome = self.mover.exchange(plan, &mut Requests(&self.links), &self.replies);
        self.events.note(
            "move_end",
            json!({
                "took_ns": nanos(moved.elapsed()),
                "bytes_out": outcome.bytes_out,
                "copied_bytes": outcome.copied_bytes,
                "short_bytes": outcome.short_bytes,
                "compared_bytes": outcome.compared_bytes,
                "bytes_in": outcome.bytes_in,
                "passed_bytes": outcome.passed_bytes,
                "sunk_bytes": outcome.sunk_bytes,
                "fetched_bytes": outcome.fetched_bytes,
                "out_ns": nanos(outcome.out.length()),
                "in_ns": nanos(outcome.into.length()),
                "times": times(&outcome.times),
                "failed": outcome.failed.len(),
            }),
        );
        self.complain_of(&outcome);
        for &handle in &outcome.lost_sight_of {
            self.error(
                Some(tenant(handle.owner)),
                &format!(
                    "handle {} was lost sight of in a move, which is a mistake of rota's",
                    handle.handle
                ),
            );
        }
        self.look_whether_it_works(&outcome);
        for found in &outcome.audit_errors {
            self.error(Some(tenant(found.key.owner)), &found.to_string());
        }
        for &owner in &outcome.must_end {
            self.end(owner);
        }
        for &owner in &outcome.gone {
            self.lost(owner);
        }
        let concerned: BTreeSet<TenantId> = sums_out.keys().chain(sums_in.keys()).copied().collect();
        for &tenant in &concerned {
            self.commit_if_whole(tenant);
        }
        self.note_whereabouts(&sums_out, &sums_in);
        let planned = out.iter().chain(into).copied().collect();
        Outcome::Moved {
            out: outcome.moved_out.iter().map(|&key| owned(key)).collect(),
            into: outcome.moved_in.iter().map(|&key| owned(key)).collect(),
            unsettled: concerned.iter().flat_map(|&tenant| self.left_unsettled(tenant, &planned)).collect(),
            took: span(begin.elapsed()),
        }
    }

    /// A program that has become another's, or hides, neither gets memory that others had nor gives any, from now on.
    fn look_who_belongs_together<'a>(&mut self, concerned: impl Iterator<Item = &'a TenantId>) {
        for &tenant in concerned {
            let Some(link) = self.links.get_mut(&tenant) else { continue };
            if link.domain.as_ref().is_some_and(|belonging| !belonging.still_holds()) {
                tracing::info!(
                    "tenant {tenant} is not of the user any more as who it came: its memory is not passed on"
                );
                link.domain = None;
                self.mover.set_domain(owner(tenant), None);
            }
        }
    }

    /// What this move leaves unsettled of a tenant. What earlier ones did may have settled meanwhile, which is told apart.
    fn left_unsettled(&mut self, tenant: TenantId, planned: &BTreeSet<Owned>) -> Vec<Owned> {
        let left: BTreeSet<Owned> = self.unsettled_of(tenant).intersection(planned).copied().collect();
        let before = self.unsettled.get(&tenant).cloned().unwrap_or_default();
        let known = before.difference(planned).chain(&left).copied().collect();
        self.remember_unsettled(tenant, known);
        left.into_iter().collect()
    }

    fn note_whereabouts(&self, out: &Sums, into: &Sums) {
        for &tenant in out.keys() {
            let owner = owner(tenant);
            let away_bytes = self.mover.away_bytes(owner);
            let resident_bytes = self.mover.resident_bytes(owner);
            self.note("away", tenant, json!({ "away_bytes": away_bytes, "resident_bytes": resident_bytes }));
        }
        for &tenant in into.keys() {
            if self.mover.away_bytes(owner(tenant)) == 0 {
                self.note("resident", tenant, json!({}));
            }
        }
    }

    /// After some errors the driver does nothing for a process any more. The next worker has a context of its own, and nothing is
    /// lost with this one.
    fn look_whether_it_works(&mut self, outcome: &mover::Outcome) {
        if outcome.failed.iter().any(|(_, why)| why.is_the_devices())
            && let Err(cause) = self.mover.device_mut().drain()
        {
            self.error(
                None,
                &format!(
                    "the GPU does nothing for this worker any more, and the next one takes over: {cause}"
                ),
            );
            self.broken = Some(cause.to_string());
        }
    }

    /// What went wrong in a move, in a line for each tenant it concerns. A death explains itself elsewhere.
    fn complain_of(&self, outcome: &mover::Outcome) {
        let mut failures: BTreeMap<Owner, (usize, String)> = BTreeMap::new();
        // Of one who died before the move began, nothing could go, and so there was less room than was thought.
        let died = outcome.failed.iter().any(|(_, why)| matches!(why, MoveError::Unknown));
        let explained = |why: &MoveError| match why {
            // Told above.
            MoveError::Unknown | MoveError::LostSight => true,
            MoveError::NotStarted => died,
            _ => false,
        };
        for (handle, cause) in outcome.failed.iter().filter(|(_, why)| !explained(why)) {
            failures.entry(handle.owner).or_insert_with(|| (0, cause.to_string())).0 += 1;
        }
        if !outcome.gone.is_empty() {
            tracing::info!("a move ended early, because {} left", outcome.gone[0]);
            return;
        }
        for (owner, (count, cause)) in failures {
            self.error(Some(tenant(owner)), &format!("{count} handles were not moved: {cause}"));
        }
        if let Some(stuck) = outcome.stuck.as_ref().filter(|_| !died) {
            self.error(None, &format!("a move stopped early: {stuck}"));
        }
    }

    /// A move may come before the arena is ready. It waits as long as the arena still grows.
    fn wait_for_arena(&mut self, bytes: u64) {
        let arena = self.mover.arena();
        let deadline = Instant::now() + ARENA_WITHIN;
        while arena.free_bytes() < bytes && arena.may_grow() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn sums(&self, handles: &[Owned]) -> Sums {
        let mut sums = Sums::new();
        for &handle in handles {
            let sum = sums.entry(handle.tenant).or_default();
            sum.0 += self.mover.handle(key(handle)).map_or(0, |held| held.bytes);
            sum.1 += 1;
        }
        sums
    }
}

/// The mover's requests, sent to the tenants' agents.
pub(super) struct Requests<'a>(pub(super) &'a BTreeMap<TenantId, Link>);

impl Requests<'_> {
    fn send(
        &self,
        owner: Owner,
        handles: &[u64],
        message: impl Fn(Vec<HandleId>) -> FromDaemon,
    ) -> Result<(), mover::Gone> {
        let link = self.0.get(&tenant(owner)).ok_or(mover::Gone)?;
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

    fn take(&mut self, owner: Owner, handles: &[(u64, Arc<OwnedFd>)]) -> Result<(), mover::Gone> {
        let link = self.0.get(&tenant(owner)).ok_or(mover::Gone)?;
        for batch in handles.chunks(HANDLES_MAX) {
            let (handles, files) =
                batch.iter().map(|(handle, file)| (HandleId(*handle), file.clone())).unzip();
            link.outgoing.send_with(FromDaemon::Take { handles }, files).map_err(|_| mover::Gone)?;
        }
        Ok(())
    }
}

/// What the lanes of a move did and waited for, in nanoseconds.
fn times(times: &Times) -> serde_json::Value {
    let lane = |lane: &BTreeMap<Doing, Duration>| -> serde_json::Value {
        lane.iter().map(|(doing, took)| (doing.name().to_owned(), json!(nanos(*took)))).collect()
    };
    let chores: serde_json::Value =
        times.chores.iter().map(|(chore, took)| (chore.name().to_owned(), json!(nanos(*took)))).collect();
    json!({
        "out": lane(&times.out),
        "in": lane(&times.into),
        "both": nanos(times.both),
        "unseen_out": nanos(times.unseen_out),
        "unseen_in": nanos(times.unseen_in),
        "chores": chores,
    })
}

fn summary(sums: &Sums) -> serde_json::Value {
    sums.iter()
        .map(|(tenant, (bytes, handles))| json!({ "tenant": tenant.0, "bytes": bytes, "handles": handles }))
        .collect()
}
