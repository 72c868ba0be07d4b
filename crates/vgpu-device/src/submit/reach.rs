//! Which memory work uses: whether the device knows it, and whether work that is not done uses it.

use std::ops::Range;

use vgpu_messages::memory::{Access, Location};
use vgpu_messages::work::{Copy, Place, Work};
use vgpu_messages::{ContextId, SessionId};

use crate::machine::Machine;
use crate::space::{Kind, Mapping};

impl Machine {
    /// Whether all of a range is memory that the device knows: allocated, mapped or registered.
    pub(crate) fn is_known(&self, session: SessionId, address: u64, bytes: u64) -> bool {
        self.is_whole(session, address, bytes, |_| true)
    }

    /// Whether a context's copies may touch all of a range: what is mapped has to be accessible to its GPU, too.
    pub(super) fn is_allowed(&self, context: ContextId, address: u64, bytes: u64, write: bool) -> bool {
        let context = &self.contexts[&context];
        let needed = if write { Access::ReadWrite } else { Access::Read };
        let by = Location::Device(context.device);
        self.is_whole(context.session, address, bytes, |mapping| {
            mapping.access.get(&by).is_some_and(|access| *access >= needed)
        })
    }

    fn is_whole(
        &self,
        session: SessionId,
        mut address: u64,
        mut bytes: u64,
        allowed: impl Fn(&Mapping) -> bool,
    ) -> bool {
        let Some(space) = self.store.spaces.get(&session) else { return false };
        while bytes > 0 {
            let Some((start, region)) = space.around(address) else { return false };
            let end = match &region.kind {
                Kind::Reservation(_) => match space.mapping(address) {
                    Some((start, mapping)) if allowed(mapping) => start + mapping.bytes,
                    _ => return false,
                },
                Kind::Allocation(allocation) => start + allocation.asked_bytes,
                Kind::Host(_) => start + region.bytes,
            };
            if address >= end {
                return false;
            }
            let length = (end - address).min(bytes);
            address += length;
            bytes -= length;
        }
        true
    }
}

/// Addresses that work is certain to use, or, of kernels, was given.
pub(crate) fn uses(work: &Work) -> Vec<Range<u64>> {
    let line = |start: u64, bytes: u64| start..start.saturating_add(bytes);
    match work {
        Work::Copy(copy) => {
            let end = |place: Place, pitch: u64, slice: u64| {
                let (Place::Host(start) | Place::Device(start) | Place::Either(start)) = place;
                line(start, extent(copy, pitch, slice))
            };
            vec![
                end(copy.source, copy.source_pitch, copy.source_slice),
                end(copy.target, copy.target_pitch, copy.target_slice),
            ]
        }
        Work::Memset(memset) => {
            let row = memset.width.saturating_mul(u64::from(memset.element_bytes));
            let rows = memset.pitch.saturating_mul(memset.height.saturating_sub(1));
            vec![line(memset.address.0, rows.saturating_add(row))]
        }
        Work::Launch(launch) => {
            let words = launch.parameters.as_chunks::<8>().0;
            words.iter().map(|word| line(u64::from_le_bytes(*word), 1)).collect()
        }
        Work::WaitValue { address, .. } | Work::WriteValue { address, .. } => vec![line(address.0, 8)],
        Work::Host(_) | Work::Record(_) | Work::WaitEvent(_) => Vec::new(),
    }
}

/// Bytes from the first to the last of a box.
fn extent(copy: &Copy, pitch: u64, slice: u64) -> u64 {
    let rows = if copy.height > 1 { pitch.saturating_mul(copy.height - 1) } else { 0 };
    let slices = if copy.depth > 1 { slice.saturating_mul(copy.depth - 1) } else { 0 };
    slices.saturating_add(rows).saturating_add(copy.width_bytes)
}
