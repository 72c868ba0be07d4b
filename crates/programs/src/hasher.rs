//! Hashes blocks on a GPU, as a daemon would before it moves them: is the hash that of the host, does it see every
//! change, and how fast is it?
//!
//! Prints a line of JSON for each thing it looked at. It judges no speed: that is what `gpu/hash.py` is for.

mod device;
mod speed;

use blocks::{BLOCK_BYTES, BlockHash, Changed, Key, Seed};
use serde_json::json;

use crate::api::ApiError;
use crate::bench::Bench;
use crate::kernels::{GOLDEN, mix};
use crate::worker::tell;
use device::Device;

/// What it is to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much memory to hash, in MiB.
    pub mib: usize,
    /// How many blocks of each kind to compare with the host.
    pub check_blocks: usize,
    /// The most blocks of a short launch.
    pub short_blocks: usize,
    /// How often each speed is measured.
    pub rounds: usize,
    /// What the bytes are made of, and which of them change. The key is drawn anew in each run.
    pub seed: u64,
}

/// Why it ends early.
#[derive(Debug, thiserror::Error)]
pub enum HasherError {
    /// There is no driver.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// There is no key.
    #[error(transparent)]
    Seed(#[from] blocks::SeedError),
    /// Calls failed.
    #[error("the GPU cannot be used: {0}")]
    Driver(String),
    /// Calls did not fail, and blocks were not hashed all the same.
    #[error(transparent)]
    Sums(#[from] blocks::SumsError),
    /// There would be nothing to do.
    #[error("{mib} MiB are fewer than the two blocks of 2 MiB that are needed")]
    TooSmall {
        /// What was asked for.
        mib: usize,
    },
    /// Nobody reads what is printed.
    #[error("what was found cannot be written: {0}")]
    Output(#[from] std::io::Error),
}

/// Does all of it; says how many blocks were wrong.
pub fn run(options: &Options) -> Result<usize, HasherError> {
    let blocks = options.mib * (1 << 20) / BLOCK_BYTES;
    if blocks < 2 {
        return Err(HasherError::TooSmall { mib: options.mib });
    }
    let bench = Bench::with_context()?;
    let key = Key::new(&Seed::random()?);
    let device = Device::allocate(&bench, &key, blocks)?;
    let wrong = compare(&device, options)? + audit(&device, options)?;
    speed::measure(&device, options)?;
    tell(&json!({ "ended": true, "wrong": wrong }))?;
    Ok(wrong)
}

/// Numbers without pattern.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(GOLDEN);
        ((u128::from(mix(self.0)) * bound as u128) >> 64) as usize
    }
}

/// Hashes blocks of every kind on both sides; says how many hashes differ.
fn compare(device: &Device<'_>, options: &Options) -> Result<usize, HasherError> {
    let count = options.check_blocks.clamp(1, device.blocks);
    let mut dice = Dice(options.seed);
    let mut wrong = 0;
    for kind in ["random", "zero", "ones", "one bit"] {
        match kind {
            "random" => device.rewrite(options.seed)?,
            "ones" => device.set(0..count, 0xff)?,
            _ => device.set(0..count, 0)?,
        }
        if kind == "one bit" {
            for block in 0..count {
                device.flip(block, dice.below(8 * BLOCK_BYTES))?;
            }
        }
        let found = device.hashes(count, options.short_blocks)?;
        let mut differ = 0;
        for (block, found) in found.iter().enumerate() {
            let here = device.key.hash(&*device.bytes(block)?);
            differ += usize::from(*found != here || found.zero != (kind == "zero"));
        }
        tell(&json!({ "compared": kind, "blocks": count, "wrong": differ }))?;
        wrong += differ;
    }
    Ok(wrong)
}

/// Flips one bit in about half of all blocks and back again; says for how many blocks the hashes tell something else.
fn audit(device: &Device<'_>, options: &Options) -> Result<usize, HasherError> {
    let mut dice = Dice(!options.seed);
    let flips: Vec<Option<usize>> =
        (0..device.blocks).map(|_| (dice.below(2) == 0).then(|| dice.below(8 * BLOCK_BYTES))).collect();
    let flip_all = || -> Result<(), HasherError> {
        flips
            .iter()
            .enumerate()
            .try_for_each(|(block, bit)| bit.map_or(Ok(()), |bit| device.flip(block, bit)))
    };
    device.rewrite(options.seed)?;
    let before = device.hashes(device.blocks, usize::MAX)?;
    flip_all()?;
    let flipped = device.hashes(device.blocks, usize::MAX)?;
    flip_all()?;
    let after = device.hashes(device.blocks, options.short_blocks)?;

    let seen = changed(&before, &flipped);
    let missed = flips.iter().zip(&seen).filter(|(flip, seen)| flip.is_some() && !**seen).count();
    let invented = flips.iter().zip(&seen).filter(|(flip, seen)| flip.is_none() && **seen).count();
    let not_back = changed(&before, &after).iter().filter(|seen| **seen).count();
    let flipped = flips.iter().flatten().count();
    tell(&json!({
        "audited": device.blocks, "flipped": flipped, "missed": missed, "invented": invented, "not_back": not_back,
    }))?;
    Ok(missed + invented + not_back)
}

/// Which blocks would be copied out.
fn changed(before: &[BlockHash], now: &[BlockHash]) -> Vec<bool> {
    let changed = Changed::since(Some(before), now).expect("the same blocks");
    let mut seen = vec![false; now.len()];
    for range in changed.copy.into_iter().chain(changed.zero) {
        seen[range].fill(true);
    }
    seen
}
