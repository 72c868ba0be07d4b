//! Handles and tenants that are no longer there: what they held goes, now or as soon as no copy uses it any more.

use super::sinking::{CellarGrave, Jobs};
use super::{Dropped, FREED_MAX};
use super::{Grave, Held, Leaving, Mover, MoverError, Place, Returning, Stage};
use crate::device::{Device, DeviceError};
use crate::{HandleKey, Owner};
use keeper::{Outcome, Process};

impl<D: Device> Mover<D> {
    /// Drops a handle that its tenant has freed.
    pub fn forget(&mut self, key: HandleKey) -> Result<Dropped, MoverError> {
        self.reap();
        let dropped = self.drop_handle(key)?;
        self.remember_freed(key, dropped.device_bytes);
        Ok(dropped)
    }

    /// A handle was freed, and these bytes of it that the device got back are nobody's room yet.
    pub(crate) fn remember_freed(&mut self, key: HandleKey, device_bytes: u64) {
        if self.freed.len() == FREED_MAX {
            self.freed.pop_front();
        }
        self.freed.push_back((key, device_bytes));
    }

    /// The room of a handle that was freed, once.
    pub(crate) fn take_freed(&mut self, key: HandleKey) -> Option<u64> {
        let at = self.freed.iter().rposition(|(freed, _)| *freed == key)?;
        self.freed.remove(at).map(|(_, bytes)| bytes)
    }

    /// Drops everything of a tenant that is gone; also of one that an earlier worker had, and nobody has adopted.
    pub fn forget_owner(&mut self, owner: Owner) -> Dropped {
        self.reap();
        self.drop_owner(owner)
    }

    /// Lets go of a tenant that came back, went again without a word, and lives: what the keeper has of it stays, and it can
    /// be adopted once more. False, and nothing has changed, if something of it is being copied.
    pub fn let_go(&mut self, owner: Owner, process: Process) -> bool {
        self.reap();
        // By the keeper's record each of these is on the device, in the arena or in the cellar. Should it have memory for one that is in
        // the arena, that settles when it is adopted.
        let is_recorded = |held: &Held<D::Memory>| match &held.place {
            Place::Device { .. } | Place::Arena(_) | Place::Cellar { .. } => true,
            Place::Sinking { .. } | Place::Fetching { .. } => false,
            Place::Leaving(leaving) => matches!(leaving.stage, Stage::Unmapping),
            Place::Returning { stage, .. } => {
                matches!(stage, Returning::Creating | Returning::Taking { .. } | Returning::BackingOut { .. })
            }
        };
        let keys = self.keys(owner);
        let graves = self.graves.iter().map(|grave| &grave.key);
        let cellar_graves = self.cellar_graves.iter().map(|grave| &grave.key);
        let is_buried = graves.chain(cellar_graves).chain(self.lost.keys()).any(|key| key.owner == owner);
        if is_buried || !keys.iter().all(|key| self.handles.get(key).is_some_and(is_recorded)) {
            return false;
        }
        self.drop_homes(owner);
        for key in keys {
            self.habits.remove(&key);
            let held = self.handles.remove(&key);
            if let Some(Held {
                bytes,
                place:
                    Place::Device { memory, .. }
                    | Place::Leaving(Leaving { memory, .. })
                    | Place::Returning { stage: Returning::Taking { memory }, .. },
            }) = held
            {
                self.release(key, memory, bytes);
            }
        }
        self.passing.forget_owner(owner);
        self.arena.put_found(owner, process);
        true
    }

    pub(crate) fn drop_handle(&mut self, key: HandleKey) -> Result<Dropped, MoverError> {
        if self.drop_home(key) {
            return Ok(Dropped { handles: vec![key], ..Dropped::default() });
        }
        self.drop_on_device(key)
    }

    /// Drops a handle that is no handle in the host's memory.
    pub(super) fn drop_on_device(&mut self, key: HandleKey) -> Result<Dropped, MoverError> {
        let held = self.handles.remove(&key).ok_or(MoverError::Unknown { key })?;
        let mut dropped = Dropped::default();
        let has_space = self.reserved.remove(&key).is_some();
        if self.bury(key, held, &mut dropped) || has_space {
            self.arena.free(key);
        }
        Ok(dropped)
    }

    pub(crate) fn drop_owner(&mut self, owner: Owner) -> Dropped {
        let mut dropped = Dropped::default();
        self.drop_homes(owner);
        for key in self.keys(owner) {
            if let Some(held) = self.handles.remove(&key) {
                self.bury(key, held, &mut dropped);
            }
        }
        self.forget_reserved_of(owner);
        self.passing.forget_owner(owner);
        self.turns.forget(owner);
        self.dying.insert(owner);
        self.tell_of_the_dead();
        dropped
    }

    /// Tells the keeper of tenants that are gone, once no copy uses their space.
    fn tell_of_the_dead(&mut self) {
        for owner in std::mem::take(&mut self.dying) {
            let is_used = self.graves.iter().any(|grave| grave.key.owner == owner)
                || self.cellar_graves.iter().any(|grave| grave.key.owner == owner);
            if is_used {
                self.dying.insert(owner);
            } else if self.lost.keys().any(|key| key.owner == owner) {
                // One of its copies may go on. The next worker finds it, and that it is dead.
                tracing::warn!(%owner, "what it had in the arena stays taken until the daemon's worker is started anew");
            } else {
                self.arena.died(owner);
            }
        }
    }

    /// Drops what a handle holds on the device, now or as soon as its copy has ended. Says whether the arena may have
    /// something of it that nothing uses any more.
    fn bury(&mut self, key: HandleKey, held: Held<D::Memory>, dropped: &mut Dropped) -> bool {
        #[cfg(any(test, feature = "planted"))]
        self.see_buried(key, &held.place);
        let bytes = held.bytes;
        dropped.handles.push(key);
        self.habits.remove(&key);
        self.passing.forbid(key);
        match held.place {
            Place::Device { memory, copy } => {
                dropped.device_bytes += self.release(key, memory, bytes);
                copy.is_some()
            }
            Place::Arena(_) | Place::Cellar { .. } | Place::Returning { stage: Returning::Creating, .. } => {
                true
            }
            Place::Sinking { puts, .. } => {
                self.cellar_graves.push(CellarGrave { key, jobs: Jobs::Puts(puts) });
                false
            }
            Place::Fetching { gets, .. } => {
                self.cellar_graves.push(CellarGrave { key, jobs: Jobs::Gets(gets) });
                false
            }
            Place::Returning { stage: Returning::BackingOut { freed_bytes }, .. } => {
                dropped.device_bytes += freed_bytes;
                true
            }
            Place::Leaving(Leaving { memory, stage: Stage::Copied | Stage::Unmapping, .. })
            | Place::Returning {
                stage: Returning::Copied { memory } | Returning::Taking { memory }, ..
            } => {
                dropped.device_bytes += self.release(key, memory, bytes);
                true
            }
            Place::Leaving(Leaving {
                memory, stage: Stage::Hashing(until) | Stage::Copying(until), ..
            })
            | Place::Returning {
                stage: Returning::Copying { memory, mark: until } | Returning::Filling { memory, mark: until },
                ..
            } => {
                dropped.dying_bytes += bytes;
                self.graves.push(Grave { key, memory, until, bytes });
                false
            }
        }
    }

    /// Drops what was waiting for a copy that has ended now. Says which handles, and how many bytes of each the device
    /// got back.
    pub(crate) fn reap(&mut self) -> Vec<(HandleKey, u64)> {
        let mut reaped = Vec::new();
        for grave in std::mem::take(&mut self.graves) {
            match self.device.passed(grave.until) {
                Ok(false) => {
                    self.graves.push(grave);
                    continue;
                }
                Ok(true) => self.free_of_grave(grave.key),
                Err(error) if self.has_ended(grave.key, grave.bytes, &error) => {
                    self.free_of_grave(grave.key);
                }
                Err(_) => {}
            }
            let freed_bytes = self.release(grave.key, grave.memory, grave.bytes);
            reaped.push((grave.key, freed_bytes));
        }
        if self.reap_cellar() || !reaped.is_empty() {
            self.tell_of_the_dead();
        }
        reaped
    }

    /// Frees the arena space of a handle that was dropped during a copy, which it has until now.
    fn free_of_grave(&mut self, key: HandleKey) {
        if self.arena.free(key) == Some(Outcome::AlreadySo) {
            tracing::error!(%key, "its arena space was free already, while a copy used it");
            #[cfg(test)]
            self.planted.seen.freed_twice.push(key);
        }
    }

    pub(crate) fn has_graves(&self) -> bool {
        !self.graves.is_empty() || !self.cellar_graves.is_empty()
    }

    /// Drops an import. Says how many bytes the device got back: all or none.
    pub(super) fn release(&mut self, key: HandleKey, memory: D::Memory, bytes: u64) -> u64 {
        self.passing.drop_file(key);
        self.drop_import(key, memory, bytes)
    }

    /// The same of memory that is not the handle's own, or not yet.
    pub(super) fn drop_import(&mut self, key: HandleKey, memory: D::Memory, bytes: u64) -> u64 {
        match self.device.device_mut().release(memory) {
            Ok(()) => bytes,
            Err(error) => {
                tracing::error!(%key, bytes, %error, "cannot let go of device memory; it counts as used from now on");
                self.lost_device_bytes += bytes;
                0
            }
        }
    }

    /// A copy has failed: is it certain that nothing of it is under way any more? Otherwise its arena space is not used
    /// again.
    pub(super) fn has_ended(&mut self, key: HandleKey, bytes: u64, error: &DeviceError) -> bool {
        match self.device.drain() {
            Ok(()) => true,
            Err(drain_error) => {
                tracing::error!(%key, bytes, %error, %drain_error, "a copy failed and may go on; its arena space is lost");
                self.lost.insert(key, bytes);
                false
            }
        }
    }
}

impl<D: Device> Drop for Mover<D> {
    fn drop(&mut self) {
        // Host memory must not be unregistered under a copy. This may be another thread than the one that used it.
        if let Err(error) = self.device.device_mut().attach().and_then(|()| self.device.drain()) {
            tracing::warn!(%error, "cannot wait for copies under way");
            self.arena.at_end_say_nothing();
        }
        if !self.lost.is_empty() {
            self.arena.at_end_say_nothing();
        }
        for owner in self.homes.owners() {
            self.drop_homes(owner);
        }
        // What is in the arena stays there: it is the next worker's.
        for (key, held) in std::mem::take(&mut self.handles) {
            self.bury(key, held, &mut Dropped::default());
        }
        for grave in std::mem::take(&mut self.graves) {
            self.release(grave.key, grave.memory, grave.bytes);
        }
    }
}

#[cfg(test)]
impl Mover<crate::fake_device::FakeDevice> {
    /// The process dies: nothing is cleaned up, and what the device has started may still happen. So it is given away, with
    /// the memory that it copies from and to.
    pub(crate) fn kill(mut self) -> (crate::fake_device::FakeDevice, crate::Arena) {
        self.arena.cut();
        let nothing = crate::fake_device::FakeDevice::new(0);
        let device = std::mem::replace(self.device.device_mut(), nothing);
        self.handles.clear();
        self.homes = super::homes::Homes::default();
        self.graves.clear();
        (device, self.arena.clone())
    }
}
