//! How long requests took: counts in steps of a sixty-fourth, so that any quantile is known to 1.6%, without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Steps within a doubling.
const STEPS: usize = 64;
const STEPS_LOG: u32 = STEPS.ilog2();
/// Longer than any request: 2^42 ns is more than an hour.
const DOUBLINGS: usize = 42 - STEPS_LOG as usize;
const BUCKETS: usize = STEPS * (DOUBLINGS + 1);

/// The counts.
#[derive(Debug)]
pub(crate) struct Latencies {
    buckets: [AtomicU64; BUCKETS],
    count: AtomicU64,
    max_ns: AtomicU64,
    missed: AtomicU64,
}

impl Latencies {
    pub(crate) const fn new() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            count: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        }
    }

    /// A request took so long, and was to take no longer than that, if anything was said.
    pub(crate) fn add(&self, ns: u64, slo_ns: Option<u64>) {
        self.buckets[bucket(ns)].fetch_add(1, Relaxed);
        self.count.fetch_add(1, Relaxed);
        self.max_ns.fetch_max(ns, Relaxed);
        if slo_ns.is_some_and(|slo| ns > slo) {
            self.missed.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    pub(crate) fn max_ns(&self) -> u64 {
        self.max_ns.load(Relaxed)
    }

    /// How many took longer than they were to.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }

    /// So many of a thousand requests took this long at most.
    pub(crate) fn quantile_ns(&self, thousandths: u64) -> u64 {
        let counts = || self.buckets.iter().map(|count| count.load(Relaxed));
        let total: u64 = counts().sum();
        let wanted = (u128::from(total) * u128::from(thousandths)).div_ceil(1000).max(1);
        let mut seen = 0u128;
        for (index, count) in counts().enumerate() {
            seen += u128::from(count);
            if count > 0 && seen >= wanted {
                return upper(index).min(self.max_ns());
            }
        }
        self.max_ns()
    }

    pub(crate) fn reset(&self) {
        self.buckets
            .iter()
            .chain([&self.count, &self.max_ns, &self.missed])
            .for_each(|word| word.store(0, Relaxed));
    }
}

/// Small ones one by one, then by their leading bits.
fn bucket(ns: u64) -> usize {
    let doublings = ns.checked_ilog2().unwrap_or(0).saturating_sub(STEPS_LOG);
    let index = doublings as usize * STEPS + (ns >> doublings) as usize;
    index.min(BUCKETS - 1)
}

/// The longest time that falls into a bucket.
fn upper(index: usize) -> u64 {
    let doublings = (index / STEPS).saturating_sub(1);
    let step = (index - doublings * STEPS) as u64;
    ((step + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_a_bucket_that_is_close_to_it() {
        let mut last = 0;
        for ns in (0..200_000).chain((17..41).flat_map(|log| [(1 << log) - 1, 1 << log, (1 << log) + 1])) {
            let index = bucket(ns);
            assert!(upper(index) >= ns, "{ns}");
            assert!(upper(index) - ns <= ns / STEPS as u64, "{ns} as {}", upper(index));
            assert!(index == 0 || upper(index - 1) < ns, "{ns}: not the first that has room");
            last = last.max(index);
        }
        assert!(last < BUCKETS);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let latencies = Latencies::new();
        assert_eq!((latencies.count(), latencies.quantile_ns(500), latencies.max_ns()), (0, 0, 0));
        let times: Vec<u64> = (1..=10_000).map(|number| number * 977).collect();
        // In any order.
        times.iter().rev().for_each(|&ns| latencies.add(ns, Some(9_000 * 977)));
        for thousandths in [1, 500, 990, 999, 1000] {
            let exact = times[(thousandths * 10 - 1) as usize];
            let found = latencies.quantile_ns(thousandths);
            assert!(found >= exact && found - exact <= exact / 32, "{thousandths}: {found}, not {exact}");
        }
        assert_eq!((latencies.count(), latencies.max_ns(), latencies.missed()), (10_000, 9_770_000, 1_000));
        latencies.reset();
        assert_eq!((latencies.count(), latencies.quantile_ns(990), latencies.missed()), (0, 0, 0));
    }
}
