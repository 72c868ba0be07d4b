//! Whether a block is packed, and how: a pure function of measured figures.
//!
//! The rule: of all methods that keep the pipeline at least as fast as storing plainly, both ways, the one with the
//! smallest result. Processors and disk work at the same time, so a pipeline is as fast as the slower of them:
//!
//! ```text
//! plain:  min(disk,          lanes / seal)
//! packed: min(disk / ratio,  lanes / (pack + ratio * seal))      seal, pack: time for a byte
//! lanes:  min(threads * share, processors)                       share: of a processor, that a thread gets
//! ```
//!
//! So packing is chosen where the disk is the slower one and there are processors to spare; on a fast disk with few
//! processors nothing is packed but what packs at no cost.

use super::Method;
use crate::pace::Speed;
use std::time::Duration;

/// Packing has to save a sixteenth at least: two granules of a full block.
pub const SAVING_MIN: f64 = 1.0 / 16.0;

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

impl Conditions {
    /// How many processors work for us, when all threads have something to compute.
    fn lanes(&self) -> f64 {
        (f64::from(self.threads) * self.share.unwrap_or(1.0)).min(f64::from(self.processors))
    }
}

/// How a method did with a sample of the block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Which one.
    pub method: Method,
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
    pub fn saves(&self) -> bool {
        self.ratio() <= 1.0 - SAVING_MIN
    }
}

/// The method for a block, given how each did with a sample of it.
pub fn choose(conditions: &Conditions, trials: &[Trial]) -> Method {
    let smallest = trials
        .iter()
        .filter(|trial| trial.saves() && is_no_slower(conditions, trial))
        .min_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    smallest.map_or(Method::Plain, |trial| trial.method)
}

/// Whether the pipeline is at least as fast with this method as without any, in both directions.
fn is_no_slower(conditions: &Conditions, trial: &Trial) -> bool {
    // Nothing is known before something was written: storing plainly is never wrong.
    let Some(write) = conditions.write else { return false };
    let read = conditions.read.unwrap_or(write);
    let seal = conditions.seal.map_or(0.0, |speed| 1.0 / speed.get());
    let lanes = conditions.lanes();
    let rate = |disk: Speed, ratio: f64, per_byte: f64| {
        let processors = lanes / (per_byte + ratio * seal);
        (disk.get() / ratio).min(processors)
    };
    let sample = trial.plain_bytes.max(1) as f64;
    let ratio = trial.ratio();
    rate(write, ratio, trial.pack.as_secs_f64() / sample) >= rate(write, 1.0, 0.0)
        && rate(read, ratio, trial.unpack.as_secs_f64() / sample) >= rate(read, 1.0, 0.0)
}

/// How often a method is tried that has not paid of late: a trial costs time, too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    in_vain: u32,
}

/// Trials in vain after which a method is tried less often.
const IN_VAIN_MAX: u32 = 8;
/// From then on one block in so many tries it.
const SELDOM: u32 = 16;

impl Patience {
    /// Whether the next block should try it.
    pub fn is_due(&self) -> bool {
        self.in_vain < IN_VAIN_MAX || (self.in_vain - IN_VAIN_MAX).is_multiple_of(SELDOM)
    }

    /// A block is over: was the method chosen?
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

    fn conditions(disk: u64, lanes: u32) -> Conditions {
        let disk = Some(mbps(disk));
        let seal = Some(mbps(5000));
        Conditions { write: disk, read: disk, seal, threads: lanes, processors: 64, share: None }
    }

    /// A method that packs and unpacks so many MB/s, to this share of the size.
    fn trial(method: Method, pack: u64, unpack: u64, ratio: f64) -> Trial {
        let time = |speed: u64| Duration::from_secs_f64(SAMPLE as f64 / mbps(speed).get());
        let packed_bytes = (SAMPLE as f64 * ratio) as usize;
        Trial { method, plain_bytes: SAMPLE, packed_bytes, pack: time(pack), unpack: time(unpack) }
    }

    #[test]
    fn incompressible_data_is_stored_as_it_is() {
        let trials = [trial(Method::Lz4, 20_000, 20_000, 1.004), trial(Method::Zstd, 6000, 30_000, 1.0)];
        assert_eq!(choose(&conditions(100, 16), &trials), Method::Plain);
        assert_eq!(choose(&conditions(100, 16), &[]), Method::Plain);
    }

    #[test]
    fn nothing_is_packed_before_the_disk_is_known() {
        let zeros = [trial(Method::Zstd, 8000, 30_000, 0.001)];
        let unknown = Conditions { write: None, ..conditions(1000, 2) };
        assert_eq!(choose(&unknown, &zeros), Method::Plain);
        assert_eq!(
            choose(&Conditions { read: None, seal: None, ..conditions(1000, 2) }, &zeros),
            Method::Zstd
        );
    }

    #[test]
    fn a_slow_disk_and_many_processors_get_the_smallest() {
        let tokens = [trial(Method::Lz4, 600, 2400, 0.5), trial(Method::Zstd, 290, 780, 0.25)];
        assert_eq!(choose(&conditions(500, 4), &tokens), Method::Zstd);
        // Two processors pack no more than 580 MB/s with zstd, but 1200 with the other.
        assert_eq!(choose(&conditions(900, 2), &tokens), Method::Lz4);
        assert_eq!(choose(&conditions(3000, 2), &tokens), Method::Plain);
        assert_eq!(choose(&conditions(3000, 16), &tokens), Method::Zstd);
    }

    /// Four threads on many processors: but others take most of them.
    #[test]
    fn where_processors_are_scarce_nothing_is_packed() {
        let floats = [trial(Method::Zstd, 800, 900, 0.8)];
        let conditions = conditions(1000, 4);
        assert_eq!(choose(&conditions, &floats), Method::Zstd);
        assert_eq!(choose(&Conditions { share: Some(0.2), ..conditions }, &floats), Method::Plain);
        assert_eq!(choose(&Conditions { processors: 1, ..conditions }, &floats), Method::Plain);
        // Twice the threads get half of a processor each.
        let more = Conditions { threads: 8, processors: 4, share: Some(0.5), ..conditions };
        assert_eq!(choose(&more, &floats), Method::Zstd);
    }

    #[test]
    fn what_comes_back_too_slowly_is_not_packed() {
        let slow_back = [trial(Method::Lz4, 20_000, 500, 0.01)];
        assert_eq!(choose(&conditions(3000, 2), &slow_back), Method::Plain);
        assert_eq!(choose(&conditions(900, 2), &slow_back), Method::Lz4);
        let reads_fast = Conditions { read: Some(mbps(3000)), ..conditions(900, 2) };
        assert_eq!(choose(&reads_fast, &slow_back), Method::Plain);
    }

    #[test]
    fn a_small_saving_is_none() {
        let just = [trial(Method::Zstd, 50_000, 50_000, 0.93)];
        let not_quite = [trial(Method::Zstd, 50_000, 50_000, 0.95)];
        assert_eq!(choose(&conditions(100, 4), &just), Method::Zstd);
        assert_eq!(choose(&conditions(100, 4), &not_quite), Method::Plain);
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

    /// The pipeline, block after block, as a simulation: `lanes` processors, each busy for a block's processor time, and
    /// a disk that serves them in turn. Not the formula, but what it stands for.
    fn seconds(blocks: u32, lanes: u32, processor: f64, disk: f64) -> f64 {
        let mut free_at = vec![0.0f64; lanes as usize];
        let mut disk_free_at = 0.0f64;
        for _ in 0..blocks {
            let lane = free_at.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("there is a lane");
            *lane += processor;
            disk_free_at = disk_free_at.max(*lane) + disk;
        }
        disk_free_at
    }

    proptest! {
        #[test]
        fn no_choice_is_slower_than_storing_plainly(
            disk in 50u64..8000,
            lanes in 1u32..32,
            figures in prop::collection::vec((100u64..30_000, 100u64..40_000, 0.001f64..1.1), 2),
        ) {
            let conditions = conditions(disk, lanes);
            let trials = [
                trial(Method::Lz4, figures[0].0, figures[0].1, figures[0].2),
                trial(Method::Zstd, figures[1].0, figures[1].1, figures[1].2),
            ];
            let chosen = choose(&conditions, &trials);
            let Some(trial) = trials.iter().find(|trial| trial.method == chosen) else { return Ok(()) };
            let bytes = (2u64 << 20) as f64;
            let ratio = trial.packed_bytes as f64 / SAMPLE as f64;
            let (seal, disk) = (bytes / mbps(5000).get(), bytes / mbps(disk).get());
            let blocks = 2000;
            let plain = seconds(blocks, lanes, seal, disk);
            for took in [trial.pack, trial.unpack] {
                let work = took.as_secs_f64() * bytes / SAMPLE as f64;
                let packed = seconds(blocks, lanes, work + ratio * seal, ratio * disk);
                // The first block goes through alone, which is not what a pipeline is about.
                prop_assert!(packed <= plain * 1.001 + work + seal, "{packed} > {plain}: {trial:?}");
            }
        }
    }
}
