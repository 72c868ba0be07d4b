//! What a new worker asks: who is there, and what of them is in the arena. In pages that fit into a message.

use super::{Entry, Index, State};
use crate::message::{PAGE_BYTES_MAX, Place, Recorded, TENANTS_PER_ANSWER_MAX};
use crate::names::{HandleKey, Process, TenantNumber};
use std::ops::Bound;

/// The most bytes that a message needs for an extent: two numbers.
const EXTENT_BYTES_MAX: usize = 20;
/// The most bytes that a message needs for a fact.
const FACT_BYTES_MAX: usize = 17;
/// The most bytes that a message needs for the rest of an entry.
const ENTRY_BYTES_MAX: usize = 48;

impl Index {
    /// The next tenants behind one.
    pub fn tenants(&self, after: Option<TenantNumber>) -> Vec<(TenantNumber, Process)> {
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tenants = self.tenants.range((behind, Bound::Unbounded));
        tenants.take(TENANTS_PER_ANSWER_MAX).map(|(&tenant, &process)| (tenant, process)).collect()
    }

    /// The next handles of a tenant behind one that have recorded bytes in the arena or the cellar.
    pub fn recorded(&self, tenant: TenantNumber, after: Option<u64>) -> Vec<Recorded> {
        let mut page = Vec::new();
        let mut page_bytes = 0usize;
        for (key, entry) in self.of(tenant, after) {
            let Some(recorded) = view(key, entry) else { continue };
            page_bytes = page_bytes.saturating_add(message_bytes_max(&recorded));
            if page_bytes > PAGE_BYTES_MAX && !page.is_empty() {
                break;
            }
            page.push(recorded);
        }
        page
    }
}

fn view(key: &HandleKey, entry: &Entry) -> Option<Recorded> {
    let place = match entry.state {
        State::Reserved => return None,
        State::Away => Place::Away,
        State::Clean(_) => Place::Clean,
        State::Cellar => Place::Cellar,
    };
    // Space that it is fetched to is its worker's alone.
    let extents = if place == Place::Cellar { Vec::new() } else { entry.extents.runs().to_vec() };
    let facts = entry.facts.to_vec();
    Some(Recorded { handle: key.handle, bytes: entry.bytes, place, extents, facts })
}

fn message_bytes_max(recorded: &Recorded) -> usize {
    let extents = recorded.extents.len().saturating_mul(EXTENT_BYTES_MAX);
    let facts = recorded.facts.len().saturating_mul(FACT_BYTES_MAX);
    ENTRY_BYTES_MAX.saturating_add(extents).saturating_add(facts)
}
