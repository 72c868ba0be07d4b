//! Which addresses of the tenant's ranges are free, and which range is worth keeping.
//!
//! Pure bookkeeping: a range is only a start and a size here; who makes, maps and releases it is not this module's matter.
//! There is one heap for each context, and sizes decide where memory comes from, as with the native driver:
//!
//! | asked for | comes from | rounded up to |
//! |---|---|---|
//! | 1 MiB or less | a slab for small ones | 512 bytes |
//! | less than 32 MiB | a slab for medium ones | blocks of 2 MiB |
//! | more | a range of its own | blocks of 2 MiB |
//!
//! Slabs grow with what is there, from 2 MiB to 64 MiB, each about a quarter of all before: a small program stays small, and
//! a large one has few handles, each of which costs as much to move as a large one. An empty slab and a range that was given
//! back stay mapped as a **cache**, until somebody asks for them ([`Heap::drop_idle`]).
//!
//! - [`fit`]: blocks in slabs.
//! - [`whole`]: ranges that are handed out whole.

mod fit;
mod whole;

use wire::BLOCK_BYTES;

use fit::Fit;
use whole::Whole;

/// Addresses of small memory are multiples of this.
const GRANULE_BYTES: u64 = 512;
/// Beyond this memory comes in blocks: two of these still share one, as natively.
const SMALL_BYTES_MAX: u64 = 1 << 20;
/// From here on memory has a range of its own.
const LARGE_BYTES_MIN: u64 = 32 << 20;
/// The largest slab.
const SLAB_BYTES_MAX: u64 = 64 << 20;
/// A new slab is as large as all others of its kind, divided by this.
const SLAB_PART: u64 = 4;

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Block {
    /// Where it starts.
    pub(crate) address: u64,
    /// Its size, rounded up as the heap does.
    pub(crate) bytes: u64,
}

/// The ranges of one context.
#[derive(Debug)]
pub(crate) struct Heap {
    small: Fit,
    medium: Fit,
    large: Whole,
}

impl Default for Heap {
    fn default() -> Self {
        Self { small: Fit::new(), medium: Fit::new(), large: Whole::default() }
    }
}

/// What a request becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Small,
    Medium,
    Large,
}

fn kind(bytes: u64) -> Kind {
    match bytes {
        ..=SMALL_BYTES_MAX => Kind::Small,
        LARGE_BYTES_MIN.. => Kind::Large,
        _ => Kind::Medium,
    }
}

/// The size that a request is rounded up to; None if no such memory can exist.
pub(crate) fn rounded(asked: u64) -> Option<u64> {
    asked.checked_next_multiple_of(if asked <= SMALL_BYTES_MAX { GRANULE_BYTES } else { BLOCK_BYTES })
}

/// Whether requests of these sizes are served from the same place.
pub(crate) fn are_alike(one: u64, other: u64) -> bool {
    kind(one) == kind(other)
}

impl Heap {
    /// Finds room for a request. None if there is none: then a range has to be added.
    pub(crate) fn take(&mut self, asked: u64) -> Option<Block> {
        let bytes = rounded(asked)?;
        match kind(asked) {
            Kind::Small => self.small.take(bytes),
            Kind::Medium => self.medium.take(bytes),
            Kind::Large => self.large.take(bytes),
        }
    }

    /// Gives back what `take` found for a request of this size.
    pub(crate) fn give(&mut self, asked: u64, block: Block, now_ns: u64) {
        match kind(asked) {
            Kind::Small => self.small.give(block, now_ns),
            Kind::Medium => self.medium.give(block, now_ns),
            Kind::Large => self.large.give(block, now_ns),
        }
    }

    /// The size of the range that is best added for a request, and of the smallest that will do.
    pub(crate) fn growth(&self, asked: u64) -> Option<Growth> {
        let least = asked.checked_next_multiple_of(BLOCK_BYTES)?;
        // A multiple of the request, if it is one of blocks: such requests come in numbers, and leave nothing over.
        let slab = |fit: &Fit| least.max((fit.bytes() / SLAB_PART).min(SLAB_BYTES_MAX) / least * least);
        let best = match kind(asked) {
            Kind::Small => slab(&self.small),
            Kind::Medium => slab(&self.medium),
            Kind::Large => least,
        };
        Some(Growth { best, least })
    }

    /// Adds a range, for requests like this one.
    pub(crate) fn add(&mut self, asked: u64, range: Block, now_ns: u64) {
        match kind(asked) {
            Kind::Small => self.small.add(range, now_ns),
            Kind::Medium => self.medium.add(range, now_ns),
            Kind::Large => self.large.add(range, now_ns),
        }
    }

    /// Takes ranges out that nothing is in since this time or longer, but no more than so many bytes of them; the ones idle
    /// for longest come first. Returns where they start.
    pub(crate) fn drop_idle(&mut self, since_ns: u64, bytes_max: u64) -> Vec<u64> {
        let mut idle: Vec<(u64, Block)> =
            self.small.idle().chain(self.medium.idle()).chain(self.large.idle()).collect();
        idle.retain(|(since, _)| *since <= since_ns);
        idle.sort_unstable();
        let mut left = bytes_max;
        let mut dropped = Vec::new();
        for (_, range) in idle {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(range.bytes);
            let start = range.address;
            let was_there = self.small.remove(start) || self.medium.remove(start) || self.large.remove(start);
            debug_assert!(was_there, "an idle range is in one of the three");
            dropped.push(start);
        }
        dropped
    }

    /// Bytes of ranges that nothing is in.
    pub(crate) fn idle_bytes(&self) -> u64 {
        self.small.idle_bytes() + self.medium.idle_bytes() + self.large.idle_bytes()
    }

    /// Since when the range is idle that is so for longest.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        let all = self.small.idle().chain(self.medium.idle()).chain(self.large.idle());
        all.map(|(since, _)| since).min()
    }
}

/// How large a range may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    /// With room for more requests of the kind.
    pub(crate) best: u64,
    /// With room for this request only.
    pub(crate) least: u64,
}

#[cfg(test)]
mod tests;
