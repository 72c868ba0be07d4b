//! Chance that can be repeated: SplitMix64.

use sched::{Bytes, Span};

/// A source of chance. The same seed gives the same run on every machine.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True in so many of a hundred.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    pub(crate) fn of<T: Clone>(&mut self, among: &[T]) -> Option<T> {
        (!among.is_empty()).then(|| among[self.below(among.len() as u64) as usize].clone())
    }

    /// Up to so long.
    pub(crate) fn span(&mut self, most: Span) -> Span {
        Span(self.below(most.0 + 1))
    }

    /// From so many MiB to so many.
    pub(crate) fn mib(&mut self, least: u64, most: u64) -> Bytes {
        Bytes::from_mib(least + self.below((most - least) / 2 + 1) * 2)
    }
}
