//! Whether a block is packed: a pure function of measured figures.
//!
//! The rule: if it gets clearly smaller, and the pipeline stays at least as fast as storing plainly, both ways.
//!
//! Threads go round: each computes for a while, then waits for the disk, which serves one after the other. Storing plainly
//! is taken to be as fast as that can be at all, and packing only as fast as it is when every step takes now shorter
//! and now longer, by chance. So packing is chosen where the disk is clearly the slower one and there are processors to
//! spare; on a fast disk with few processors nothing is packed but what packs at no cost.

use crate::pace::Speed;
use std::time::Duration;

/// Packing has to save a sixteenth at least: two granules of a full block.
pub const SAVING_MIN: f64 = 1.0 / 16.0;

/// A whole block may take longer than its sample promises, which is in the processor's cache. As measured: 0.9 to 1.1 times
/// as long. This is far more, because a block that is packed wrongly slows a switch down, and one that is not takes space.
const WHOLE_BLOCK: f64 = 2.0;

/// What is known about the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// What the disk takes, if that was measured.
    pub write: Option<Speed>,
    /// What the disk gives, if that was measured. Else as much as it takes.
    pub read: Option<Speed>,
    /// What one processor copies and seals, if that was measured.
    pub seal: Option<Speed>,
    /// How many blocks are worked on at the same time.
    pub threads: u32,
    /// How many processors there are.
    pub processors: u32,
    /// What share of a processor a thread gets, if that was measured: others want them, too.
    pub share: Option<f64>,
}

/// How packing did with a sample of the block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The sample's size.
    pub plain_bytes: usize,
    /// What became of it.
    pub packed_bytes: usize,
    /// Processor time for packing it.
    pub pack: Duration,
    /// Processor time for unpacking it.
    pub unpack: Duration,
}

impl Trial {
    fn ratio(&self) -> f64 {
        self.packed_bytes as f64 / self.plain_bytes.max(1) as f64
    }

    /// Whether it saves enough to be worth anything.
    fn saves(&self) -> bool {
        self.ratio() <= 1.0 - SAVING_MIN
    }
}

/// Whether a block is to be packed, given how that did with a sample of it.
pub fn is_worth_it(conditions: &Conditions, trial: &Trial) -> bool {
    trial.saves() && is_no_slower(conditions, trial)
}

/// Whether the pipeline is at least as fast with packing as without, in both directions.
fn is_no_slower(conditions: &Conditions, trial: &Trial) -> bool {
    // Nothing is known before something was written: storing plainly is never wrong.
    let Some(write) = conditions.write else { return false };
    let read = conditions.read.unwrap_or(write);
    let seal_s = conditions.seal.map_or(0.0, |speed| 1.0 / speed.get());
    let (ratio, sample) = (trial.ratio(), trial.plain_bytes.max(1) as f64);
    [(write, trial.pack), (read, trial.unpack)].into_iter().all(|(disk, took)| {
        let disk_s = 1.0 / disk.get();
        let pack_s = took.as_secs_f64() * WHOLE_BLOCK / sample;
        let packed = Round::new(conditions, pack_s + ratio * seal_s, ratio * disk_s);
        packed.at_least() >= Round::new(conditions, seal_s, disk_s).at_most()
    })
}

/// What threads do for each byte, round after round.
struct Round {
    threads: u32,
    /// By the clock, while others want the processors, too.
    compute_s: f64,
    disk_s: f64,
    /// What all processors together could do, if the disk took no time.
    processors: f64,
}

impl Round {
    fn new(conditions: &Conditions, processor_s: f64, disk_s: f64) -> Round {
        Round {
            threads: conditions.threads.max(1),
            compute_s: processor_s / conditions.share.unwrap_or(1.0),
            disk_s,
            processors: f64::from(conditions.processors.max(1)) / processor_s,
        }
    }

    /// Bytes a second, if no thread ever waits for the disk without need.
    fn at_most(&self) -> f64 {
        let round_s = self.compute_s + self.disk_s;
        (1.0 / self.disk_s).min(f64::from(self.threads) / round_s).min(self.processors)
    }

    /// Bytes a second, if all times vary as they do in a queue where chance rules. By mean value analysis: whoever comes to
    /// the disk finds there what would be there without itself.
    fn at_least(&self) -> f64 {
        let (mut rate, mut at_disk) = (0.0, 0.0);
        for threads in 1..=self.threads.min(THREADS_MAX) {
            let wait_s = self.disk_s * (1.0 + at_disk);
            rate = f64::from(threads) / (self.compute_s + wait_s);
            at_disk = rate * wait_s;
        }
        rate.min(self.processors)
    }
}

/// More threads than this change nothing that could be calculated.
const THREADS_MAX: u32 = 256;

/// How often packing is tried when it has not paid of late: a trial costs time, too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    in_vain: u32,
}

/// Blocks that were not packed, after which it is tried less often.
const IN_VAIN_MAX: u32 = 8;
/// From then on one block in so many tries it.
const SELDOM: u32 = 16;

impl Patience {
    /// Whether the next block should try it.
    pub fn is_due(&self) -> bool {
        self.in_vain < IN_VAIN_MAX || (self.in_vain - IN_VAIN_MAX).is_multiple_of(SELDOM)
    }

    /// A block is over: was it packed?
    pub fn note(&mut self, chosen: bool) {
        self.in_vain = if chosen { 0 } else { self.in_vain.saturating_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: usize = 64 << 10;

    fn mbps(megabytes: u64) -> Speed {
        Speed::bytes_per_second(megabytes * 1_000_000)
    }

    fn conditions(disk: u64, threads: u32) -> Conditions {
        let disk = Some(mbps(disk));
        let seal = Some(mbps(5000));
        Conditions { write: disk, read: disk, seal, threads, processors: 64, share: None }
    }

    /// Packs and unpacks so many MB/s, to this share of the size.
    fn trial(pack: u64, unpack: u64, ratio: f64) -> Trial {
        let time = |speed: u64| Duration::from_secs_f64(SAMPLE as f64 / mbps(speed).get());
        let packed_bytes = (SAMPLE as f64 * ratio) as usize;
        Trial { plain_bytes: SAMPLE, packed_bytes, pack: time(pack), unpack: time(unpack) }
    }

    #[test]
    fn nothing_is_packed_before_the_disk_is_known() {
        let zeros = trial(8000, 30_000, 0.001);
        let unknown = Conditions { write: None, ..conditions(1000, 2) };
        assert!(!is_worth_it(&unknown, &zeros));
        assert!(is_worth_it(&Conditions { read: None, seal: None, ..conditions(1000, 2) }, &zeros));
    }

    #[test]
    fn it_takes_a_slow_disk_or_many_processors() {
        let tokens = trial(290, 780, 0.25);
        assert!(is_worth_it(&conditions(500, 4), &tokens));
        // Two threads pack no more than 290 MB/s, if blocks are at their worst.
        assert!(!is_worth_it(&conditions(350, 2), &tokens));
        assert!(!is_worth_it(&conditions(3000, 2), &tokens));
        assert!(is_worth_it(&conditions(3000, 32), &tokens));
    }

    /// Four threads on many processors: but others take most of them.
    #[test]
    fn where_processors_are_scarce_nothing_is_packed() {
        let floats = trial(800, 900, 0.8);
        let conditions = conditions(800, 4);
        assert!(is_worth_it(&conditions, &floats));
        assert!(!is_worth_it(&Conditions { share: Some(0.2), ..conditions }, &floats));
        assert!(!is_worth_it(&Conditions { processors: 1, ..conditions }, &floats));
        // Twice the threads get half of a processor each.
        let more = Conditions { threads: 8, processors: 4, share: Some(0.5), ..conditions };
        assert!(is_worth_it(&more, &floats));
    }

    /// Four threads in step would store 1150 MB/s. But they wait for each other now and then, and 1000 are sure without.
    #[test]
    fn what_is_faster_only_with_luck_is_not_packed() {
        let floats = trial(800, 900, 0.8);
        assert!(!is_worth_it(&conditions(1000, 4), &floats));
        assert!(is_worth_it(&conditions(1000, 6), &floats));
    }

    #[test]
    fn what_comes_back_too_slowly_is_not_packed() {
        let slow_back = trial(20_000, 500, 0.01);
        assert!(!is_worth_it(&conditions(3000, 2), &slow_back));
        assert!(is_worth_it(&conditions(400, 2), &slow_back));
        let reads_fast = Conditions { read: Some(mbps(3000)), ..conditions(400, 2) };
        assert!(!is_worth_it(&reads_fast, &slow_back));
    }

    #[test]
    fn a_small_saving_is_none() {
        let conditions = conditions(100, 16);
        assert!(is_worth_it(&conditions, &trial(50_000, 50_000, 0.93)));
        assert!(!is_worth_it(&conditions, &trial(50_000, 50_000, 0.95)));
        assert!(!is_worth_it(&conditions, &trial(50_000, 50_000, 1.0)));
    }

    #[test]
    fn what_never_pays_is_tried_less_often_until_it_does() {
        let mut patience = Patience::default();
        let mut tried = 0;
        for _ in 0..IN_VAIN_MAX + 10 * SELDOM {
            tried += u32::from(patience.is_due());
            patience.note(false);
        }
        assert_eq!(tried, IN_VAIN_MAX + 10);
        patience.note(true);
        assert!(patience.is_due());
    }

    /// Threads that go round, block after block, as a simulation: each computes, then waits until the disk has served those
    /// before it. Not the formula, but what it stands for.
    fn seconds(blocks: u32, threads: u32, compute: f64, disk: f64) -> f64 {
        let mut free_at = vec![0.0f64; threads as usize];
        let mut disk_free_at = 0.0f64;
        for _ in 0..blocks {
            let thread = free_at.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("there is a thread");
            disk_free_at = disk_free_at.max(*thread + compute) + disk;
            *thread = disk_free_at;
        }
        disk_free_at
    }

    proptest! {
        #[test]
        fn no_choice_is_slower_than_storing_plainly(
            disk in 50u64..8000,
            threads in 1u32..32,
            share in 0.05f64..=1.0,
            (pack, unpack, ratio) in (100u64..30_000, 100u64..40_000, 0.001f64..1.1),
        ) {
            let conditions = Conditions { share: Some(share), ..conditions(disk, threads) };
            let trial = trial(pack, unpack, ratio);
            if !is_worth_it(&conditions, &trial) {
                return Ok(());
            }
            let bytes = (2u64 << 20) as f64;
            let ratio = trial.packed_bytes as f64 / SAMPLE as f64;
            let (seal, disk) = (bytes / mbps(5000).get(), bytes / mbps(disk).get());
            let blocks = 2000;
            let plain = seconds(blocks, threads, seal / share, disk);
            for took in [trial.pack, trial.unpack] {
                let work = took.as_secs_f64() * bytes / SAMPLE as f64;
                let packed = seconds(blocks, threads, (work + ratio * seal) / share, ratio * disk);
                // The first block goes through alone, which is not what a pipeline is about.
                prop_assert!(packed <= plain * 1.001 + (work + seal) / share, "{packed} > {plain}: {trial:?}");
            }
        }
    }
}
