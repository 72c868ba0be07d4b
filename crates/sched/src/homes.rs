//! Which memory of a tenant changes, by looks at it, and so which is worth a place on the device.
//!
//! A handle in the host's memory that changes in look after look is used over the bus; one on the device that has not changed
//! for some looks is not written, and may not be used at all. The two change places, if that pays back: what changed in a look
//! went over the bus in that time at least once, and a change of places copies each of the two handles once. Where the device has
//! room that nobody needs, what changes comes alone: a change of places may leave such room, as may a worker that dies in one.
//! What is only read does not show in looks, so a change of places may also be a loss: whoever changed rests for a while,
//! longer each time, so that nothing goes to and fro.

use crate::{Bytes, HandleId, Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// So many looks in a row have to agree.
const LOOKS_MIN: u32 = 3;

/// Within so many looks a change of places has to have paid back.
const PAYBACK_LOOKS: u64 = 30;

/// What it costs, in copies of the handle over the bus: one each way, and as much again for making the memory, for the freeze
/// and for being wrong at times.
const COST_COPIES: u64 = 4;

/// All of it.
const WHOLE: u64 = 1_000_000;

/// No more than this changes places at a time, unless it is one pair.
const PASS_MAX: Bytes = Bytes::from_gib(1);

/// How long a handle that has changed its home keeps it, the first time; then twice as long each time, so often.
const REST: Span = Span::from_secs(30);
const RESTS_DOUBLED_MAX: u32 = 6;

/// How long what was prepared waits for its tenant to be whole and frozen.
const PREPARED_MAX: Span = Span::from_secs(10);

/// What a look saw of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// Which one.
    pub handle: HandleId,
    /// So many of its blocks were looked at.
    pub blocks: u16,
    /// So many of them have changed since the look before.
    pub changed: u16,
}

/// What is known of a handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Heat {
    looks: u32,
    /// Looks since it changed.
    quiet: u32,
    /// How much of it changes from look to look, in millionths.
    share: u64,
    rests_until: Time,
    /// How often it has changed its home.
    changes: u32,
}

/// Which handles change places.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Swap {
    /// To the host's memory, with their sizes.
    pub(crate) down: Vec<(HandleId, Bytes)>,
    /// To the device; no more than goes down or, if nothing does, than there is room for.
    pub(crate) up: Vec<(HandleId, Bytes)>,
}

impl Swap {
    /// How much goes to the host's memory.
    pub(crate) fn down_sum(&self) -> Bytes {
        self.down.iter().map(|&(_, bytes)| bytes).sum()
    }

    /// How much comes from there.
    pub(crate) fn up_sum(&self) -> Bytes {
        self.up.iter().map(|&(_, bytes)| bytes).sum()
    }
}

/// How far a change of places is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// There is none.
    #[default]
    Rest,
    /// The tenant makes memory of the host's, while it runs.
    Preparing(Swap),
    /// It has made it, by then: as soon as it is off the GPU, the handles change places.
    Prepared(Swap, Time),
    /// They do.
    Changing(Swap),
}

/// What is known of one tenant's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Homes {
    heat: BTreeMap<HandleId, Heat>,
    pub(crate) stage: Stage,
    /// Handles of which nobody knows which home they have: their tenant does not answer.
    pub(crate) unsettled: BTreeMap<HandleId, Bytes>,
    /// What has changed its home so far, both ways together.
    pub(crate) changed: Bytes,
}

impl Homes {
    /// Takes in what a look saw.
    pub(crate) fn see(&mut self, seen: &Sighting) {
        if seen.blocks == 0 {
            return;
        }
        let heat = self.heat.entry(seen.handle).or_default();
        let share = u64::from(seen.changed.min(seen.blocks)) * WHOLE / u64::from(seen.blocks);
        heat.share = if heat.looks == 0 { share } else { (3 * heat.share + share) / 4 };
        heat.quiet = if seen.changed == 0 { heat.quiet.saturating_add(1) } else { 0 };
        heat.looks = heat.looks.saturating_add(1);
    }

    /// Forgets handles that are not there any more.
    pub(crate) fn retain(&mut self, is_there: impl Fn(HandleId) -> bool) {
        self.heat.retain(|&handle, _| is_there(handle));
    }

    /// A handle has another home.
    pub(crate) fn has_moved(&mut self, handle: HandleId, bytes: Bytes, now: Time) {
        self.changed += bytes;
        let heat = self.heat.entry(handle).or_default();
        heat.rests_until = now + REST.times(1 << heat.changes.min(RESTS_DOUBLED_MAX));
        heat.changes = heat.changes.saturating_add(1);
        // Whoever froze it for this saw nothing of what it would have done.
        heat.looks = 0;
        heat.quiet = 0;
    }

    /// A handle was to have another home, and has not: each try takes its tenant off the GPU.
    pub(crate) fn has_stayed(&mut self, handle: HandleId, now: Time) {
        self.heat.entry(handle).or_default().rests_until = now + REST;
    }

    /// When what was prepared has waited for too long.
    pub(crate) fn lapses(&self) -> Option<Time> {
        match self.stage {
            Stage::Prepared(_, since) => Some(since + PREPARED_MAX),
            _ => None,
        }
    }

    /// Has it?
    pub(crate) fn has_lapsed(&self, now: Time) -> bool {
        self.lapses().is_some_and(|lapses| now >= lapses)
    }

    /// Which of these change places: of those in the host's memory the ones that change most, for those on the device that are as
    /// large, or a little larger, and have not changed for longest. No more than `room` goes to the host's memory before anything
    /// comes from there. As long as something fits into what is `free` on the device, nothing has to go for it.
    pub(crate) fn plan(
        &self,
        now: Time,
        device: &BTreeMap<HandleId, Bytes>,
        host: &BTreeMap<HandleId, Bytes>,
        room: Bytes,
        free: Bytes,
    ) -> Swap {
        let known = |handle: &HandleId| {
            self.heat.get(handle).filter(|heat| heat.looks >= LOOKS_MIN && heat.rests_until <= now)
        };
        let pays_back = |heat: &&Heat| heat.quiet == 0 && heat.share * PAYBACK_LOOKS >= COST_COPIES * WHOLE;
        let hot = host
            .iter()
            .filter_map(|(handle, &bytes)| Some((known(handle).filter(pays_back)?, *handle, bytes)));
        let mut hot: Vec<_> = hot.collect();
        hot.sort_by_key(|&(heat, handle, _)| (std::cmp::Reverse(heat.share), handle));
        let mut swap = Swap::default();
        for &(_, up, bytes) in &hot {
            let all = swap.up_sum() + bytes;
            if all <= free && (all <= PASS_MAX || swap.up.is_empty()) {
                swap.up.push((up, bytes));
            }
        }
        if !swap.up.is_empty() {
            return swap;
        }
        let is_cold = |heat: &&Heat| heat.quiet >= LOOKS_MIN;
        let cold = device
            .iter()
            .filter_map(|(handle, &bytes)| Some((known(handle).filter(is_cold)?, *handle, bytes)));
        let mut cold: Vec<_> = cold.collect();
        cold.sort_by_key(|&(heat, handle, _)| (std::cmp::Reverse(heat.quiet), handle));
        let mut taken = BTreeSet::new();
        for (_, up, up_bytes) in hot {
            // What goes must make room, and not for twice as much as comes.
            let fits = |&&(_, down, bytes): &&(&Heat, HandleId, Bytes)| {
                !taken.contains(&down) && bytes >= up_bytes && bytes.0 <= up_bytes.0.saturating_mul(2)
            };
            // The one that wastes least, and of those the one that is quiet for longest.
            let Some(&(_, down, bytes)) = cold.iter().filter(fits).min_by_key(|(_, _, bytes)| bytes) else {
                continue;
            };
            let all = swap.down_sum() + bytes;
            if all > room || (all > PASS_MAX && !swap.down.is_empty()) {
                break;
            }
            taken.insert(down);
            swap.down.push((down, bytes));
            swap.up.push((up, up_bytes));
        }
        swap
    }
}

#[cfg(test)]
mod tests;
