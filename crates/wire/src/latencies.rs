//! How long things took: counts in steps of a thirty-second, so that any quantile is known to 1.6%, without a lock. Part of the
//! shared page, where the tenant writes them and the daemon reads them; the daemon has some of its own.

use crate::Times;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// Nobody tells times that differ by less than this apart: 128 ns.
const UNIT_LOG: u32 = 7;
/// Steps within a doubling.
const STEPS: usize = 32;
const STEPS_LOG: u32 = STEPS.ilog2();
/// Up to 2^36 ns, more than a minute. What took longer counts as that; the longest is known all the same.
const DOUBLINGS: usize = 36 - (UNIT_LOG + STEPS_LOG) as usize;
const BUCKETS: usize = STEPS * (DOUBLINGS + 1);

/// The counts. The layout is the page's.
#[derive(Debug)]
#[repr(C)]
pub struct Latencies {
    max_ns: AtomicU64,
    missed: AtomicU64,
    buckets: [AtomicU32; BUCKETS],
}

const _: () = assert!(size_of::<Latencies>() == 16 + 4 * BUCKETS && BUCKETS == 800);

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// Nothing took any time yet.
    pub const fn new() -> Self {
        let buckets = [const { AtomicU32::new(0) }; BUCKETS];
        Self { max_ns: AtomicU64::new(0), missed: AtomicU64::new(0), buckets }
    }

    /// Something took so long, and was to take no longer than that, if anything was said.
    pub fn add(&self, ns: u64, slo_ns: Option<u64>) {
        self.buckets[bucket(ns)].fetch_add(1, Relaxed);
        self.max_ns.fetch_max(ns, Relaxed);
        if slo_ns.is_some_and(|slo| ns > slo) {
            self.missed.fetch_add(1, Relaxed);
        }
    }

    /// How many took longer than they were to.
    pub fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }

    /// How long all of it took; None if there was nothing.
    pub fn times(&self) -> Option<Times> {
        let counts: Vec<u64> = self.buckets.iter().map(|count| u64::from(count.load(Relaxed))).collect();
        let count = counts.iter().sum();
        let max_ns = self.max_ns.load(Relaxed);
        let quantile = |thousandths: u64| {
            let wanted = (u128::from(count) * u128::from(thousandths)).div_ceil(1000).max(1);
            let mut seen = 0u128;
            let reached = |&count: &u64| {
                seen += u128::from(count);
                seen >= wanted
            };
            counts.iter().position(reached).map_or(max_ns, |index| middle(index).min(max_ns))
        };
        (count > 0).then(|| Times {
            count,
            p50_ns: quantile(500),
            p99_ns: quantile(990),
            p999_ns: quantile(999),
            max_ns,
        })
    }

    /// Takes over what another counted, in place of what is here.
    pub fn copy_from(&self, other: &Self) {
        self.max_ns.store(other.max_ns.load(SeqCst), SeqCst);
        self.missed.store(other.missed.load(SeqCst), SeqCst);
        for (here, there) in self.buckets.iter().zip(&other.buckets) {
            here.store(there.load(SeqCst), SeqCst);
        }
    }
}

/// Short ones one by one, then by their leading bits.
fn bucket(ns: u64) -> usize {
    let units = ns >> UNIT_LOG;
    let doublings = units.checked_ilog2().unwrap_or(0).saturating_sub(STEPS_LOG);
    let index = doublings as usize * STEPS + (units >> doublings) as usize;
    index.min(BUCKETS - 1)
}

/// The middle of the times that fall into a bucket.
fn middle(index: usize) -> u64 {
    let doublings = (index / STEPS).saturating_sub(1);
    let step = (index - doublings * STEPS) as u64;
    let width = 1u64 << (doublings as u32 + UNIT_LOG);
    step * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_a_bucket_that_is_close_to_it() {
        let mut last = 0;
        let edges = (17..36).flat_map(|log| [(1u64 << log) - 1, 1 << log, (1 << log) + 1]);
        for ns in (0..200_000).chain(edges) {
            let index = bucket(ns);
            assert!(
                middle(index).abs_diff(ns) <= (ns / 64 + 1).max(1 << UNIT_LOG),
                "{ns} as {}",
                middle(index)
            );
            assert!(index >= last || ns < 200_001, "longer ones come later");
            last = last.max(index);
        }
        assert!(last < BUCKETS);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let latencies = Latencies::new();
        assert_eq!(latencies.times(), None);
        let times: Vec<u64> = (1..=10_000).map(|number| number * 977).collect();
        // In any order.
        times.iter().rev().for_each(|&ns| latencies.add(ns, Some(9_000 * 977)));
        let found = latencies.times().unwrap();
        let close =
            |found: u64, exact: u64| assert!(found.abs_diff(exact) <= exact / 50, "{found}, not {exact}");
        close(found.p50_ns, 5_000 * 977);
        close(found.p99_ns, 9_900 * 977);
        close(found.p999_ns, 9_990 * 977);
        assert_eq!((found.count, found.max_ns, latencies.missed()), (10_000, 9_770_000, 1_000));
        let copy = Latencies::new();
        copy.add(5, None);
        copy.copy_from(&latencies);
        assert_eq!((copy.times(), copy.missed()), (Some(found), 1_000));
    }

    #[test]
    fn no_quantile_is_longer_than_the_longest() {
        let latencies = Latencies::new();
        latencies.add(1_000_001, None);
        let found = latencies.times().unwrap();
        assert!(found.p50_ns <= found.max_ns && found.p999_ns <= found.max_ns, "{found:?}");
    }
}
