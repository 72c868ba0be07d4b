//! Looks at memory that is in use: which handles change, to know which of them are worth a place on the device.
//!
//! Nobody is frozen for it. Of each handle some blocks are hashed, always the same ones, and compared with what they were at the
//! last look. A block that is written meanwhile has a hash of nothing, which says what it should: it changed. What
//! is only read does not show.
//!
//! A look is bounded: so many blocks, of memory in the host's at most what the bus carries in 10 ms.

use super::{Mover, Place};
use crate::device::{Device, DeviceError};
use crate::{BLOCK_BYTES, HandleKey, Owner};
use blocks::{BlockHash, Key, Seed};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Blocks of one handle in a look.
const SAMPLES_MAX: usize = 8;

/// Blocks of one look in the host's memory: 512 MiB.
const HOST_BLOCKS_MAX: usize = 256;

/// Blocks of one look on the device.
const DEVICE_BLOCKS_MAX: usize = 1024;

/// How often to see whether a look is over.
const POLL: Duration = Duration::from_micros(200);

/// What was seen of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Which one.
    pub key: HandleKey,
    /// So many of its blocks were looked at, now and before.
    pub blocks: u16,
    /// So many of them have changed.
    pub changed: u16,
}

/// What is remembered from look to look.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Hashes are made with this, where no copies are kept.
    key: Option<Key>,
    /// What the samples of each handle were.
    seen: BTreeMap<HandleKey, Vec<BlockHash>>,
    /// Where there are too many for one look, the next begins here: for those on the device and those on the host.
    next: [u64; 2],
}

impl Looks {
    pub(super) fn forget(&mut self, key: HandleKey) {
        self.seen.remove(&key);
    }

    pub(super) fn forget_owner(&mut self, owner: Owner) {
        self.seen.retain(|key, _| key.owner != owner);
    }
}

impl<D: Device> Mover<D> {
    /// Looks at what a tenant has, on the device and in the host's memory. What is seen for the first time is not told.
    pub fn look(&mut self, owner: Owner, patience: Duration) -> Result<Vec<Look>, DeviceError> {
        self.prepare_looks()?;
        let on_device = self.of(owner).filter(|(_, held)| matches!(held.place, Place::Device { .. }));
        let on_device: Vec<HandleKey> = on_device.map(|(&key, _)| key).collect();
        let hosted = self.homes.hosted.keys().filter(|key| key.owner == owner).copied().collect::<Vec<_>>();
        let mut sampled: Vec<(HandleKey, Vec<u64>)> = Vec::new();
        for (at, (keys, blocks_max)) in
            [(on_device, DEVICE_BLOCKS_MAX), (hosted, HOST_BLOCKS_MAX)].into_iter().enumerate()
        {
            let (chosen, next) = window(keys, self.looks.next[at], blocks_max);
            self.looks.next[at] = next;
            let samples = samples_each(chosen.len(), blocks_max);
            let sample = |key: HandleKey| Some((key, spread(self.sampled(key)?.0 / BLOCK_BYTES, samples)));
            sampled.extend(chosen.into_iter().filter_map(sample));
        }
        let mut places = Vec::new();
        for (key, blocks) in &sampled {
            places.extend(blocks.iter().map(|&block| (*key, block)));
        }
        let hashes = self.hash_places(&places, patience)?;
        let mut hashes = hashes.into_iter();
        let mut looks = Vec::new();
        for (key, blocks) in sampled {
            let now: Vec<BlockHash> = hashes.by_ref().take(blocks.len()).collect();
            let before = self.looks.seen.insert(key, now.clone());
            // Of another number of samples, others were looked at.
            if let Some(before) = before.filter(|before| before.len() == now.len()) {
                let changed = before.iter().zip(&now).filter(|(before, now)| before != now).count();
                looks.push(Look { key, blocks: now.len() as u16, changed: changed as u16 });
            }
        }
        Ok(looks)
    }

    /// The size and the memory of a handle that can be looked at.
    fn sampled(&self, key: HandleKey) -> Option<(u64, &D::Memory)> {
        if let Some(hosted) = self.homes.hosted.get(&key) {
            return Some((hosted.bytes, &hosted.memory));
        }
        match self.handles.get(&key).map(|held| (held.bytes, &held.place)) {
            Some((bytes, Place::Device { memory, .. })) => Some((bytes, memory)),
            _ => None,
        }
    }

    /// Hashes some blocks, and waits for it.
    fn hash_places(
        &mut self,
        places: &[(HandleKey, u64)],
        patience: Duration,
    ) -> Result<Vec<BlockHash>, DeviceError> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let mark = {
            // Not by `sampled`, which would borrow the device too.
            let (hosted, handles) = (&self.homes.hosted, &self.handles);
            let memory = |key: &HandleKey| match (hosted.get(key), handles.get(key).map(|held| &held.place)) {
                (Some(hosted), _) => Some(&hosted.memory),
                (None, Some(Place::Device { memory, .. })) => Some(memory),
                _ => None,
            };
            let blocks: Vec<_> =
                places.iter().filter_map(|(key, block)| Some((memory(key)?, *block))).collect();
            self.device.device_mut().hash_some(&blocks)?
        };
        let until = Instant::now() + patience;
        while !self.device.passed(mark)? {
            if Instant::now() >= until {
                // Memory that it reads may go after this.
                self.device.device_mut().drain()?;
                return Err(DeviceError::TooMany);
            }
            std::thread::sleep(POLL);
        }
        let sums = self.device.device_mut().sums(mark)?;
        let key = self.hash_key().ok_or(DeviceError::NoHashing)?;
        sums.iter().map(|sums| key.finish(sums).map_err(|_| DeviceError::NoHashing)).collect()
    }

    fn hash_key(&self) -> Option<&Key> {
        self.hasher.as_ref().map(|hasher| &hasher.key).or(self.looks.key.as_ref())
    }

    /// Makes ready for hashing, unless copies are kept, which needs the same.
    fn prepare_looks(&mut self) -> Result<(), DeviceError> {
        if self.hash_key().is_some() {
            return Ok(());
        }
        let seed = Seed::random().map_err(|_| DeviceError::NoHashing)?;
        let key = Key::new(&seed);
        self.device.device_mut().prepare_hashing(key.device())?;
        self.looks.key = Some(key);
        Ok(())
    }
}

/// So many of each, a power of two so that a handle more or less seldom changes it.
fn samples_each(handles: usize, blocks_max: usize) -> usize {
    let each = (blocks_max / handles.max(1)).clamp(1, SAMPLES_MAX);
    1 << each.ilog2()
}

/// Blocks that are spread evenly, all if there are no more.
fn spread(blocks: u64, samples: usize) -> Vec<u64> {
    let samples = (samples as u64).min(blocks);
    (0..samples).map(|sample| (2 * sample + 1) * blocks / (2 * samples)).collect()
}

/// Those that this look is for, from the next one on, and where the one after it begins.
fn window(keys: Vec<HandleKey>, next: u64, most: usize) -> (Vec<HandleKey>, u64) {
    if keys.len() <= most {
        return (keys, 0);
    }
    let first = keys.partition_point(|key| key.handle < next) % keys.len();
    let chosen: Vec<HandleKey> = keys.iter().cycle().skip(first).take(most).copied().collect();
    let after = keys[(first + most) % keys.len()].handle;
    (chosen, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: u64) -> Vec<HandleKey> {
        (0..count).map(|handle| HandleKey { owner: Owner(1), handle }).collect()
    }

    #[test]
    fn a_look_is_bounded_and_comes_round_to_all() {
        let (all, _) = window(keys(5), 3, 8);
        assert_eq!(all, keys(5));
        let mut next = 0;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..4 {
            let chosen;
            (chosen, next) = window(keys(30), next, 8);
            assert_eq!(chosen.len(), 8);
            seen.extend(chosen);
        }
        assert_eq!(seen.len(), 30);
        for handles in [1, 7, 100, 1000] {
            assert!(samples_each(handles, 1024) * handles.min(1024) <= 1024.max(handles));
        }
        assert_eq!((samples_each(1, 1024), samples_each(1000, 256)), (SAMPLES_MAX, 1));
    }

    #[test]
    fn samples_are_spread_over_all_of_it() {
        assert_eq!(spread(2, 8), [0, 1]);
        assert_eq!(spread(128, 8), [8, 24, 40, 56, 72, 88, 104, 120]);
        assert_eq!(spread(128, 1), [64]);
    }
}
