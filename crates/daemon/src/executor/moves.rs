//! One move: what the mover is asked, what tenants are asked, and what is told of it.

use super::{Executor, Link, key, owned};
use crate::events::nanos;
use crate::turns::{Owned, Shift};
use mover::{Device, MoveError, Outcome, Owner, Plan};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use wire::{FromDaemon, HANDLES_MAX, HandleId, TenantId};

/// How long a move may go without any progress before it is given up. Agents answer in milliseconds; one that does not
/// is stopped, most likely, and everybody waits for it meanwhile.
const STEP_WITHIN: Duration = Duration::from_secs(3);

/// How long a move waits for the arena to be pinned: at its start it grows by a gigabyte or more a second.
const ARENA_WITHIN: Duration = Duration::from_secs(60);

impl<D: Device> Executor<D> {
    /// Moves what is to be moved. Returns what was to go out and could not.
    pub(super) fn exchange(&mut self, shift: &Shift) -> Vec<Owned> {
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
    pub(super) fn end(&self, owner: Owner) {
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

    fn bytes_by_tenant(&self, handles: &[Owned]) -> BTreeMap<TenantId, (u64, usize)> {
        let mut sums = BTreeMap::new();
        for &handle in handles {
            let sum: &mut (u64, usize) = sums.entry(handle.tenant).or_default();
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

fn summary(sums: &BTreeMap<TenantId, (u64, usize)>) -> serde_json::Value {
    sums.iter()
        .map(|(tenant, (bytes, handles))| json!({ "tenant": tenant.0, "bytes": bytes, "handles": handles }))
        .collect()
}
