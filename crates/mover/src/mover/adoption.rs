//! A tenant of an earlier worker: where its handles are, by the keeper's word and the tenant's own.
//!
//! The keeper decides what is away. The tenant says which of its handles have memory on the device; what is away and has
//! memory all the same was caught between two steps, out or in, and nobody can tell which. So that memory does not count:
//! the tenant is asked to unmap it, as after a copy in that failed. That needs no file of it.
//!
//! | by the keeper | memory, with a file | memory, without a file | no memory | not named |
//! |---|---|---|---|---|
//! | in the arena | unsettled: it unmaps | unsettled: it unmaps | away | freed meanwhile |
//! | in the cellar | contradiction | contradiction | away | freed meanwhile |
//! | on the device, with a clean copy | resident | unmovable; the copy is dropped | lost | the copy is dropped |
//! | on the device, or not known | resident | unmovable | lost | nothing is there |
//!
//! *Unmovable* is whole and stays where it is until a file comes. With something *lost* the tenant must not run again. A
//! *contradiction* cannot be true, as nobody is asked for memory before all of it is back from the cellar; another size than
//! was recorded for something away is one too. Then nothing is taken in or freed: what is away stays with the keeper.
//! A tenant that cannot show something names it all the same: only what is named nowhere counts as freed.

use super::clean::{Hashes, Stored};
use super::{Held, Mover, MoverError, Place, Returning};
use crate::arena::{ArenaError, Extents, hash_of};
use crate::device::Device;
use crate::exchange::Tenants;
use crate::{HandleKey, Owner};
use keeper::{Process, Recorded};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

/// A handle, as its tenant tells of it.
#[derive(Debug)]
pub struct Reported {
    /// Which one of the tenant.
    pub handle: u64,
    /// How large.
    pub bytes: u64,
    /// What it has of it on the device.
    pub memory: ReportedMemory,
}

/// What a tenant has of a handle on the device.
#[derive(Debug)]
pub enum ReportedMemory {
    /// All of it, and this is its file.
    Shown(OwnedFd),
    /// All of it, but there is no file of it, so it cannot be moved.
    Unshown,
    /// Nothing.
    None,
}

/// What became of a tenant's handles. Each that it told of is in one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adoption {
    /// On the device, complete.
    pub resident: Vec<u64>,
    /// The same, but there is no file of them: they are not taken in, and stay where they are.
    pub unmovable: Vec<u64>,
    /// In the arena, or the cellar.
    pub away: Vec<u64>,
    /// In the arena, and the tenant was asked to unmap what it has on the device. Its answer is for an exchange, or for
    /// [`Mover::late`].
    pub unsettled: Vec<u64>,
    /// Nowhere: the tenant has no memory for them, and the arena has no bytes. It must not run again.
    pub lost: Vec<u64>,
    /// Not taken in, for these reasons.
    pub failed: Vec<(u64, MoverError)>,
}

/// Why a tenant was not adopted. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdoptError {
    /// No earlier worker had it, or it was adopted already.
    #[error("the keeper knows no {owner} of an earlier worker that was not adopted yet")]
    Unknown {
        /// Who.
        owner: Owner,
    },
    /// The number belongs to somebody else.
    #[error("{owner} is another process: {} since tick {}", recorded.pid, recorded.start_ticks)]
    OtherProcess {
        /// Who.
        owner: Owner,
        /// Which process the keeper recorded.
        recorded: Process,
    },
    /// What it says of a handle that is away cannot be true.
    #[error(
        "handle {handle} of {owner} is away with {recorded_bytes} bytes, and cannot be as the tenant says: {what}"
    )]
    Contradiction {
        /// Who.
        owner: Owner,
        /// Which of its handles.
        handle: u64,
        /// How large it is.
        recorded_bytes: u64,
        /// What it says.
        what: &'static str,
    },
    /// The keeper did not say.
    #[error(transparent)]
    Keeper(#[from] ArenaError),
    /// The tenant is no longer there; all of it is dropped.
    #[error("{owner} is gone again")]
    Gone {
        /// Who.
        owner: Owner,
    },
}

impl<D: Device> Mover<D> {
    /// Takes in a tenant of an earlier worker ([`crate::Arena::found`]) with its handles on this device. It is known by its
    /// number and its process, both as the keeper recorded them. It is frozen, or was wholly on the device all the time.
    pub fn adopt_tenant(
        &mut self,
        owner: Owner,
        process: Process,
        handles: Vec<Reported>,
        tenants: &mut dyn Tenants,
    ) -> Result<Adoption, AdoptError> {
        let recorded = self.arena.recorded(owner)?;
        let mut recorded: BTreeMap<u64, Recorded> =
            recorded.into_iter().map(|recorded| (recorded.handle, recorded)).collect();
        match self.arena.take_found(owner, process) {
            None => return Err(AdoptError::Unknown { owner }),
            Some(Err(recorded)) => return Err(AdoptError::OtherProcess { owner, recorded }),
            Some(Ok(())) => {}
        }
        if let Some(contradiction) = contradiction(owner, &recorded, &handles) {
            self.arena.put_found(owner, process);
            return Err(contradiction);
        }
        let mut adoption = Adoption::default();
        for reported in handles {
            let (handle, known) = (reported.handle, recorded.remove(&reported.handle));
            let to = match self.place_of(HandleKey { owner, handle }, reported, known) {
                Ok(At::Resident) => &mut adoption.resident,
                Ok(At::Unmovable) => &mut adoption.unmovable,
                Ok(At::Away) => &mut adoption.away,
                Ok(At::Unsettled) => &mut adoption.unsettled,
                Ok(At::Lost) => &mut adoption.lost,
                Err(error) => {
                    adoption.failed.push((handle, error));
                    continue;
                }
            };
            to.push(handle);
        }
        // Freed while there was no worker.
        for &handle in recorded.keys() {
            self.arena.free(HandleKey { owner, handle });
        }
        let unsettled: Vec<HandleKey> =
            adoption.unsettled.iter().map(|&handle| HandleKey { owner, handle }).collect();
        self.ask_to_unmap(&unsettled, tenants);
        let is_gone = !unsettled.is_empty() && self.keys(owner).is_empty();
        if is_gone { Err(AdoptError::Gone { owner }) } else { Ok(adoption) }
    }

    fn place_of(
        &mut self,
        key: HandleKey,
        reported: Reported,
        recorded: Option<Recorded>,
    ) -> Result<At, MoverError> {
        let Reported { bytes, memory, .. } = reported;
        if self.handles.contains_key(&key) {
            return Err(MoverError::Duplicate { key });
        }
        let hashes = |recorded: &Recorded| -> Option<Hashes> {
            (!recorded.facts.is_empty()).then(|| recorded.facts.iter().map(hash_of).collect())
        };
        match (recorded, memory) {
            (Some(recorded), memory) if recorded.place == keeper::Place::Away => {
                let stored = Stored { hashes: hashes(&recorded), extents: Extents::new(recorded.extents) };
                let (place, at) = match memory {
                    ReportedMemory::None => (Place::Arena(stored), At::Away),
                    ReportedMemory::Shown(_) | ReportedMemory::Unshown => {
                        let stage = Returning::BackingOut { freed_bytes: bytes };
                        (Place::Returning { stored, stage }, At::Unsettled)
                    }
                };
                self.handles.insert(key, Held { bytes, place });
                Ok(at)
            }
            (Some(recorded), memory) if recorded.place == keeper::Place::Cellar => match memory {
                ReportedMemory::None => {
                    let place = Place::Cellar { hashes: hashes(&recorded) };
                    self.handles.insert(key, Held { bytes, place });
                    Ok(At::Away)
                }
                ReportedMemory::Shown(_) | ReportedMemory::Unshown => Err(MoverError::InCellar { key }),
            },
            (Some(clean), ReportedMemory::Shown(file)) => {
                if clean.bytes != bytes {
                    let recorded_bytes = clean.bytes;
                    return Err(MoverError::OtherSize { key, bytes, recorded_bytes });
                }
                let copy = hashes(&clean).filter(|_| self.hasher.is_some());
                if copy.is_none() {
                    // Its tenant may have run since, and nothing tells what is still the same.
                    self.arena.free(key);
                }
                self.take_in(key, bytes, file, copy).map(|()| At::Resident)
            }
            (None, ReportedMemory::Shown(file)) => {
                self.take_in(key, bytes, file, None).map(|()| At::Resident)
            }
            (clean, ReportedMemory::Unshown) => {
                if clean.is_some() {
                    // Nobody looks at this memory any more, so nobody would learn what has changed.
                    self.arena.free(key);
                }
                Ok(At::Unmovable)
            }
            (Some(_) | None, ReportedMemory::None) => Ok(At::Lost),
        }
    }
}

/// What cannot be true of something that is away.
fn contradiction(
    owner: Owner,
    recorded: &BTreeMap<u64, Recorded>,
    handles: &[Reported],
) -> Option<AdoptError> {
    let mut named = BTreeSet::new();
    handles.iter().find_map(|reported| {
        let recorded = recorded.get(&reported.handle)?;
        let is_in_cellar = recorded.place == keeper::Place::Cellar;
        if !is_in_cellar && recorded.place != keeper::Place::Away {
            return None;
        }
        let what = match () {
            () if recorded.bytes != reported.bytes => "another size",
            () if !named.insert(reported.handle) => "it is named twice",
            () if is_in_cellar && !matches!(reported.memory, ReportedMemory::None) => {
                "there is memory for it, which was not asked for"
            }
            () => return None,
        };
        Some(AdoptError::Contradiction {
            owner,
            handle: reported.handle,
            recorded_bytes: recorded.bytes,
            what,
        })
    })
}

enum At {
    Resident,
    Unmovable,
    Away,
    Unsettled,
    Lost,
}
