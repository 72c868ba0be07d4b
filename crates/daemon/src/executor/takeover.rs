//! Taking over what tenants of an earlier worker have.

use super::memory::Memory;
use super::moves::Requests;
use super::{Done, Link};
use crate::daemon::rejoining::TakenOver;
use crate::names::{key, owner};
use mover::{Device, Reported};
use sched::{Bytes, HandleId, Owned, Survivor, SurvivorPlace, TenantId};
use std::collections::BTreeMap;

impl<D: Device> Memory<D> {
    /// Takes over all that a tenant has. What is away by the keeper's word and still has memory of the tenant's is asked to
    /// be unmapped, and settles as such answers do.
    pub(super) fn take_over(
        &mut self,
        tenant: TenantId,
        link: Link,
        process: keeper::Process,
        is_new: bool,
        handles: Vec<Reported>,
    ) -> Done {
        self.links.insert(tenant, link);
        let sizes: BTreeMap<u64, u64> = handles.iter().map(|one| (one.handle, one.bytes)).collect();
        let found = match is_new {
            true => self.take_in_anew(tenant, process, handles),
            false => self.take_back(tenant, process, handles),
        };
        let found = found.map(|found| {
            let sized = |(handle, place): (u64, SurvivorPlace)| {
                let bytes = Bytes(sizes.get(&handle).copied().unwrap_or(0));
                Survivor { handle: HandleId(handle), bytes, place }
            };
            found.into_iter().map(sized).collect::<Vec<_>>()
        });
        match found {
            Ok(survivors) => {
                let unsettled = self.unsettled_of(tenant);
                self.remember_unsettled(tenant, unsettled);
                self.commit_if_whole(tenant);
                Done::TakenOver(tenant, TakenOver::All(survivors))
            }
            Err(reason) => {
                self.error(Some(tenant), &reason);
                self.links.remove(&tenant);
                Done::TakenOver(tenant, TakenOver::Lost(reason))
            }
        }
    }

    fn take_back(
        &mut self,
        tenant: TenantId,
        process: keeper::Process,
        handles: Vec<Reported>,
    ) -> Result<Vec<(u64, SurvivorPlace)>, String> {
        let adopted = self.mover.adopt_tenant(owner(tenant), process, handles, &mut Requests(&self.links));
        let adoption = adopted.map_err(|cause| cause.to_string())?;
        if !adoption.lost.is_empty() {
            let count = adoption.lost.len();
            return Err(format!("{count} pieces of its memory are neither on the GPU nor with the keeper"));
        }
        for (handle, cause) in &adoption.failed {
            self.error(Some(tenant), &format!("handle {handle} cannot be moved: {cause}"));
        }
        let here = adoption.resident.iter().map(|&handle| (handle, SurvivorPlace::Device { movable: true }));
        let failed =
            adoption.failed.iter().map(|(handle, _)| (*handle, SurvivorPlace::Device { movable: false }));
        let away = adoption.away.iter().map(|&handle| (handle, SurvivorPlace::Arena));
        let unsettled = adoption.unsettled.iter().map(|&handle| (handle, SurvivorPlace::Unsettled));
        Ok(here.chain(failed).chain(away).chain(unsettled).collect())
    }

    fn take_in_anew(
        &mut self,
        tenant: TenantId,
        process: keeper::Process,
        handles: Vec<Reported>,
    ) -> Result<Vec<(u64, SurvivorPlace)>, String> {
        self.introduce(tenant, process);
        let mut found = Vec::new();
        for Reported { handle, bytes, file } in handles {
            let file = file.ok_or("it has memory away, and nobody knows where")?;
            let owned = Owned { tenant, handle: HandleId(handle) };
            let movable = match self.mover.adopt(key(owned), bytes, file) {
                Ok(()) => true,
                Err(cause) => {
                    self.error(Some(tenant), &format!("handle {handle} cannot be moved: {cause}"));
                    false
                }
            };
            found.push((handle, SurvivorPlace::Device { movable }));
        }
        Ok(found)
    }
}
