//! What an exchange does with what tenants say: each answer takes a handle a step further, back, or out of the plan.

use super::{Asked, Run};
use crate::device::Device;
use crate::exchange::times::Chore;
use crate::exchange::{MoveError, Reply};
use crate::{HandleKey, Owner};

impl<D: Device> Run<'_, D> {
    pub(super) fn take(&mut self, reply: Reply) {
        match reply {
            Reply::Unmapped { owner, handles } => {
                for handle in handles {
                    self.unmapped(HandleKey { owner, handle });
                }
            }
            Reply::Created { owner, handles, files } => {
                let mut files = files.into_iter();
                for handle in handles {
                    let key = HandleKey { owner, handle };
                    let file = files.next();
                    if let Some(Asked::Create) = self.asked.get(&key) {
                        self.asked.remove(&key);
                        match self.metered(Chore::Import, |run| run.mover.created(key, file)) {
                            Ok(()) => self.copying_in.push_back(key),
                            Err(error) => self.back_out(key, error),
                        }
                    } else {
                        let files = file.into_iter().collect();
                        self.mover
                            .settle(Reply::Created { owner, handles: vec![handle], files }, self.tenants);
                    }
                }
            }
            Reply::Taken { owner, handles } => {
                let keys: Vec<_> = handles.into_iter().map(|handle| HandleKey { owner, handle }).collect();
                self.metered(Chore::Record, |run| run.taken(&keys));
            }
            Reply::Failed { owner, handles, code, call } => {
                for handle in handles {
                    self.tenant_failed(HandleKey { owner, handle }, code, &call);
                }
            }
            Reply::Gone { owner } => self.lose(owner),
            Reply::Freed { owner, handles } => {
                for handle in handles {
                    self.free(HandleKey { owner, handle });
                }
            }
            // Nothing of what is on its way to another home is in a plan.
            Reply::Prepared { .. } | Reply::Exchanged { .. } | Reply::Stayed { .. } => {
                self.mover.home_answer(reply);
            }
        }
    }

    fn unmapped(&mut self, key: HandleKey) {
        match self.asked.remove(&key) {
            Some(Asked::Unmap) => {
                self.asked.insert(key, Asked::Release);
                match self.mover.may_pass_on(key) {
                    true => self.to_pass.push_back(key),
                    false => self.to_release.push_back(key),
                }
            }
            Some(Asked::BackOut(why)) => {
                self.room_bytes += self.mover.backed_out(key).unwrap_or(0);
                self.outcome.failed.push((key, why));
            }
            Some(asked @ (Asked::Create | Asked::Take | Asked::Release)) => {
                tracing::warn!(%key, ?asked, "unmapped, which nobody asked for");
                self.asked.insert(key, asked);
            }
            None => {
                let reply = Reply::Unmapped { owner: key.owner, handles: vec![key.handle] };
                self.mover.settle(reply, self.tenants);
            }
        }
    }

    fn tenant_failed(&mut self, key: HandleKey, code: u32, call: &str) {
        let call = call.to_owned();
        match self.asked.remove(&key) {
            Some(Asked::Unmap) => {
                self.mover.unmap_failed(key);
                self.outcome.failed.push((key, MoveError::TenantFailed { code, call }));
            }
            Some(Asked::Create) => {
                self.mover.create_failed(key);
                self.room_bytes += self.mover.bytes_of(key);
                self.outcome.failed.push((key, MoveError::TenantFailed { code, call }));
            }
            // It has freed this, and says so next.
            Some(Asked::Take) if code == 0 => {
                self.room_bytes += self.mover.take_failed(key).unwrap_or(0);
                self.outcome.failed.push((key, MoveError::TenantFailed { code, call }));
            }
            Some(Asked::Take) => {
                tracing::warn!(%key, code, call, "a tenant cannot take memory that another had");
                self.make_instead(key);
            }
            Some(Asked::Release) => {
                tracing::warn!(%key, code, call, "a tenant failed to unmap what it has unmapped");
                self.asked.insert(key, Asked::Release);
            }
            Some(Asked::BackOut(why)) => {
                self.outcome.failed.push((key, MoveError::NotBackedOut { why: Box::new(why), code, call }));
                self.must_end(key.owner);
            }
            None => {
                let reply = Reply::Failed { owner: key.owner, handles: vec![key.handle], code, call };
                if let Some(owner) = self.mover.settle(reply, self.tenants) {
                    self.must_end(owner);
                }
            }
        }
    }

    pub(super) fn must_end(&mut self, owner: Owner) {
        if !self.outcome.must_end.contains(&owner) {
            self.outcome.must_end.push(owner);
        }
    }

    /// A handle has memory that could not be filled: has its tenant unmap that again.
    pub(super) fn back_out(&mut self, key: HandleKey, why: MoveError) {
        self.asked.insert(key, Asked::BackOut(why));
        self.to_unmap.push(key);
    }

    /// Drops everything of a tenant that is gone. Its bytes are no room yet: the driver still holds them until the
    /// tenant is torn down.
    pub(super) fn lose(&mut self, owner: Owner) {
        self.mover.drop_owner(owner);
        self.strike(|key| key.owner == owner);
        self.outcome.must_end.retain(|other| *other != owner);
        if !self.outcome.gone.contains(&owner) {
            self.outcome.gone.push(owner);
        }
    }

    /// Drops a handle that its tenant has freed.
    fn free(&mut self, key: HandleKey) {
        let bytes = self.mover.bytes_of(key);
        let on_device = self.waiting_out.contains(&key)
            || self.to_unmap.contains(&key)
            || self.hashing.contains(&key)
            || self.copying_in.contains(&key)
            || self.copying_out.iter().any(|(copying, _)| *copying == key);
        let asked = self.asked.remove(&key);
        self.strike(|other| other == key);
        let dropped = match self.mover.drop_handle(key) {
            Ok(dropped) => dropped,
            Err(error) => {
                // Kept by the driver, or not taken in yet: then the order to forget it comes behind.
                tracing::debug!(%error, "a tenant freed what is not there");
                return;
            }
        };
        match asked {
            Some(Asked::Create) => self.room_bytes += bytes,
            Some(Asked::Unmap | Asked::Release | Asked::BackOut(_)) => {
                self.room_bytes += dropped.device_bytes;
            }
            // Its file may be on its way to the tenant, which has the memory meanwhile.
            Some(Asked::Take) => {}
            None if on_device && dropped.dying_bytes > 0 => {
                self.freed_on_device.insert(key);
            }
            None if on_device => self.room_bytes += dropped.device_bytes,
            // Not in this plan, but maybe in the next.
            None => self.mover.remember_freed(key, dropped.device_bytes),
        }
        self.outcome.freed.push(key);
    }

    /// Takes handles out of all lists of things to do.
    pub(super) fn strike(&mut self, is_struck: impl Fn(HandleKey) -> bool) {
        self.waiting_out.retain(|key| !is_struck(*key));
        self.waiting_in.retain(|key| !is_struck(*key));
        self.sinking.retain(|key| !is_struck(*key));
        self.fetching.retain(|key| !is_struck(*key));
        self.hashing.retain(|key| !is_struck(*key));
        self.copying_out.retain(|(key, _)| !is_struck(*key));
        self.copying_in.retain(|key| !is_struck(*key));
        self.to_unmap.retain(|key| !is_struck(*key));
        self.to_take.retain(|key| !is_struck(*key));
        self.to_release.retain(|key| !is_struck(*key));
        self.to_pass.retain(|key| !is_struck(*key));
        self.asked.retain(|key, _| !is_struck(*key));
    }
}
