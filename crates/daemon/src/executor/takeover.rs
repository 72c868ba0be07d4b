//! Taking over what tenants of an earlier worker have.

use super::memory::Memory;
use super::moves::Requests;
use crate::daemon::rejoining::TakenOver;
use crate::names::{key, owner};
use mover::{AdoptError, Device, Reported, ReportedMemory};
use sched::{Bytes, HandleId, Owned, Survivor, SurvivorPlace, TenantId};
use std::collections::BTreeMap;

/// Why nothing is taken over.
#[derive(Debug)]
pub(super) enum Failure {
    /// Something is nowhere.
    Lost(String),
    /// Nothing has changed: it may come again.
    Refused(String),
}

impl From<AdoptError> for Failure {
    fn from(cause: AdoptError) -> Self {
        let reason = cause.to_string();
        match cause {
            // What it has away may well be there still, or is there, whatever it says.
            AdoptError::Keeper(_) | AdoptError::Contradiction { .. } => Self::Refused(reason),
            AdoptError::Unknown { .. } | AdoptError::OtherProcess { .. } | AdoptError::Gone { .. } => {
                Self::Lost(reason)
            }
        }
    }
}

impl<D: Device> Memory<D> {
    /// Ends taking over all that a tenant has. What is away by the keeper's word and still has memory of the tenant's was
    /// asked to be unmapped, and settles as such answers do.
    pub(super) fn settle_takeover(
        &mut self,
        tenant: TenantId,
        found: Result<Vec<Survivor>, Failure>,
    ) -> TakenOver {
        let failure = match found {
            Ok(survivors) => {
                let unsettled = self.unsettled_of(tenant);
                self.remember_unsettled(tenant, unsettled);
                self.commit_if_whole(tenant);
                return TakenOver::All(survivors);
            }
            Err(failure) => failure,
        };
        let (Failure::Lost(reason) | Failure::Refused(reason)) = &failure;
        self.error(Some(tenant), reason);
        self.links.remove(&tenant);
        self.mover.set_domain(owner(tenant), None);
        match failure {
            Failure::Lost(reason) => TakenOver::Lost(reason),
            Failure::Refused(reason) => TakenOver::Refused(reason),
        }
    }

    /// Of one that the keeper knows.
    pub(super) fn take_back(
        &mut self,
        tenant: TenantId,
        process: keeper::Process,
        handles: Vec<Reported>,
    ) -> Result<Vec<Survivor>, Failure> {
        let sizes: BTreeMap<u64, u64> = handles.iter().map(|one| (one.handle, one.bytes)).collect();
        let adopted = self.mover.adopt_tenant(owner(tenant), process, handles, &mut Requests(&self.links));
        let adoption = adopted.map_err(Failure::from)?;
        if !adoption.lost.is_empty() {
            let count = adoption.lost.len();
            return Err(Failure::Lost(format!(
                "{count} pieces of its memory are neither on the GPU nor with the keeper"
            )));
        }
        let survivor = |handle: u64, place: SurvivorPlace| {
            let bytes = Bytes(sizes.get(&handle).copied().unwrap_or(0));
            Survivor { handle: HandleId(handle), bytes, place }
        };
        let mut survivors = Vec::new();
        for (handle, cause) in &adoption.failed {
            self.error(Some(tenant), &format!("handle {handle} cannot be moved: {cause}"));
        }
        let failed = adoption.failed.iter().map(|(handle, _)| handle);
        let stays = failed.chain(&adoption.unmovable);
        survivors.extend(stays.map(|&handle| survivor(handle, SurvivorPlace::Device { movable: false })));
        let here =
            adoption.resident.iter().map(|&handle| survivor(handle, SurvivorPlace::Device { movable: true }));
        let away = adoption.away.iter().map(|&handle| survivor(handle, SurvivorPlace::Arena));
        let unsettled = adoption.unsettled.iter().map(|&handle| survivor(handle, SurvivorPlace::Unsettled));
        survivors.extend(here.chain(away).chain(unsettled));
        Ok(survivors)
    }

    /// Of one that the keeper does not know: nobody's word but its own says what it has, so all of it has to be there.
    pub(super) fn take_in_anew(
        &mut self,
        tenant: TenantId,
        process: keeper::Process,
        handles: Vec<Reported>,
    ) -> Result<Vec<Survivor>, Failure> {
        self.introduce(tenant, process);
        let mut found = Vec::new();
        for Reported { handle, bytes, memory } in handles {
            let owned = Owned { tenant, handle: HandleId(handle) };
            let movable = matches!(memory, ReportedMemory::Shown(_));
            let adopted = match memory {
                ReportedMemory::Shown(file) => {
                    self.mover.adopt(key(owned), bytes, file).map_err(|cause| cause.to_string())
                }
                ReportedMemory::Unshown => Ok(()),
                ReportedMemory::None => Err("it is away, and nobody knows where".to_owned()),
            };
            if let Err(cause) = adopted {
                self.mover.forget_owner(owner(tenant));
                return Err(Failure::Refused(format!("handle {handle} of it cannot be taken in: {cause}")));
            }
            let place = SurvivorPlace::Device { movable };
            found.push(Survivor { handle: owned.handle, bytes: Bytes(bytes), place });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mover::{ArenaError, Owner};

    #[test]
    fn a_keeper_that_does_not_answer_is_no_loss() {
        let silent = ArenaError::Lost { why: "it is silent".to_owned() };
        let failure = Failure::from(AdoptError::Keeper(silent));
        assert!(matches!(&failure, Failure::Refused(reason) if reason.contains("silent")), "{failure:?}");
        let unknown = Failure::from(AdoptError::Unknown { owner: Owner(5) });
        assert!(matches!(&unknown, Failure::Lost(_)), "{unknown:?}");
    }
}
