//! The index written down, for a keeper that takes over from another.

use super::{Entry, Index, State, add};
use crate::BLOCK_BYTES;
use crate::message::{Extent, Place, Recorded, SegmentView};
use crate::names::{HandleKey, Process, TenantNumber};
use serde::{Deserialize, Serialize};

/// What was written contradicts itself, or the segments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// A segment has no place.
    #[error("the segment at {offset} has no place in the arena")]
    Segment {
        /// Which one.
        offset: u64,
    },
    /// A handle's tenant, size, extents or facts are wrong.
    #[error("{key} cannot be as it is written")]
    Handle {
        /// Which one.
        key: HandleKey,
    },
    /// Orphaned space is somebody's.
    #[error("orphaned space at {offset} is somebody's, or not there")]
    Orphan {
        /// Where.
        offset: u64,
    },
}

/// All that an index has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    tenants: Vec<(TenantNumber, Process)>,
    highest_tenant: Option<TenantNumber>,
    /// In the order of keys.
    away: Vec<(TenantNumber, Recorded)>,
    /// The oldest first.
    clean: Vec<(TenantNumber, Recorded)>,
    /// Also what is reserved: who reserved it is not there any more when this is read.
    orphaned: Vec<Extent>,
}

impl Index {
    /// Writes all of it down.
    pub fn write(&self) -> Written {
        let mut written = Written {
            tenants: self.tenants.iter().map(|(&tenant, &process)| (tenant, process)).collect(),
            highest_tenant: self.highest_tenant,
            orphaned: self.orphaned.iter().flat_map(|extents| extents.runs().to_vec()).collect(),
            ..Written::default()
        };
        for (key, entry) in &self.entries {
            match entry.state {
                State::Away => written.away.push((key.tenant, entry.write(key, Place::Away))),
                State::Reserved => written.orphaned.extend_from_slice(entry.extents.runs()),
                State::Clean(_) => {}
            }
        }
        let clean = self.clean.values().filter_map(|key| Some((key, self.entries.get(key)?)));
        written.clean.extend(clean.map(|(key, entry)| (key.tenant, entry.write(key, Place::Clean))));
        written
    }

    /// Reads what was written, of an arena of these segments.
    pub fn read(
        written: Written,
        segment_bytes: u64,
        segments: impl Iterator<Item = SegmentView>,
    ) -> Result<Index, Contradiction> {
        let mut index = Index::new(segment_bytes);
        for SegmentView { offset, bytes, node, .. } in segments {
            if !index.add_segment(Extent { offset, bytes }, node) {
                return Err(Contradiction::Segment { offset });
            }
        }
        index.tenants = written.tenants.into_iter().collect();
        index.highest_tenant = written.highest_tenant;
        for (tenant, recorded) in written.away {
            index.put_back(tenant, recorded, |_| State::Away)?;
        }
        for (tenant, recorded) in written.clean {
            index.put_back(tenant, recorded, State::Clean)?;
        }
        for run in written.orphaned {
            let taken =
                index.space.take_exactly(&[run]).ok_or(Contradiction::Orphan { offset: run.offset })?;
            add(&mut index.sums.orphaned, run.bytes);
            index.orphaned.push(taken);
        }
        Ok(index)
    }

    fn put_back(
        &mut self,
        tenant: TenantNumber,
        recorded: Recorded,
        state: impl Fn(u64) -> State,
    ) -> Result<(), Contradiction> {
        let Recorded { handle, bytes, extents, facts, .. } = recorded;
        let key = HandleKey { tenant, handle };
        let wrong = Contradiction::Handle { key };
        let right_facts = facts.is_empty() || facts.len() as u64 == bytes / BLOCK_BYTES;
        if !right_facts || !self.tenants.contains_key(&tenant) || self.entries.contains_key(&key) {
            return Err(wrong);
        }
        let extents = self.space.take_exactly(&extents).ok_or(wrong.clone())?;
        if extents.bytes() != bytes {
            return Err(wrong);
        }
        let state = state(self.next_age);
        if let State::Clean(age) = state {
            self.clean.insert(age, key);
            self.next_age = age.saturating_add(1);
        }
        add(self.sums.of(state), bytes);
        self.entries.insert(key, Entry { bytes, state, extents, facts: facts.into_boxed_slice() });
        Ok(())
    }
}

impl Entry {
    pub(super) fn write(&self, key: &HandleKey, place: Place) -> Recorded {
        let (extents, facts) = (self.extents.runs().to_vec(), self.facts.to_vec());
        Recorded { handle: key.handle, bytes: self.bytes, place, extents, facts }
    }
}
