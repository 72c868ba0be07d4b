//! How the kernel is launched, and what it needs on the device. The calls are somebody else's.

use crate::{DeviceKey, STRIPS, Sums};

/// The kernel's name.
pub const ENTRY: &str = "hash_blocks";

/// The module that holds it: PTX that ends with a NUL, as the driver wants it.
pub const PTX: &str = concat!(include_str!("../../../kernels/hash_blocks.ptx"), "\0");

/// Threads of a block of threads. The kernel takes no other number.
pub const THREADS: u32 = 256;

/// Blocks of a launch that is over soon, for when somebody latency-critical may come: 64 MiB, 16 us at 4 TB/s.
pub const SHORT_BLOCKS: usize = 32;

/// The most blocks of one launch: a grid is shorter than 2^31.
pub const LAUNCH_BLOCKS_MAX: usize = (i32::MAX as usize) / STRIPS;

/// Device memory that the kernel uses besides the blocks. All of it is the daemon's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAddresses {
    /// The address of each block, a word each.
    pub places: u64,
    /// [`DeviceKey::to_bytes`].
    pub key: u64,
    /// [`Sums`] for each block, all zero before the first launch.
    pub sums: u64,
}

impl DeviceAddresses {
    /// Bytes of device memory for so many blocks: places and sums, without the key.
    pub const fn bytes_of(blocks: usize) -> usize {
        blocks * (8 + Sums::BYTES)
    }

    /// Bytes of the key there.
    pub const KEY_BYTES: usize = DeviceKey::BYTES;
}

/// One launch: some blocks of a list, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    first: usize,
    count: usize,
}

impl Launch {
    /// Launches over a list of blocks, none of them over more than `most` (at least 1, at most [`LAUNCH_BLOCKS_MAX`]).
    pub fn over(blocks: usize, most: usize) -> impl Iterator<Item = Launch> {
        let most = most.clamp(1, LAUNCH_BLOCKS_MAX);
        (0..blocks).step_by(most).map(move |first| Launch { first, count: most.min(blocks - first) })
    }

    /// The grid, along x; 1 along y and z. The block is [`THREADS`] along x, without dynamic shared memory.
    pub const fn grid(&self) -> u32 {
        (self.count * STRIPS) as u32
    }

    /// The kernel's four parameters, of which each is a word.
    pub const fn parameters(&self, at: &DeviceAddresses) -> [u64; 4] {
        let first = self.first as u64;
        [at.places + 8 * first, self.count as u64, at.key, at.sums + Sums::BYTES as u64 * first]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_cover_all_blocks_once() {
        let at = DeviceAddresses { places: 1000, key: 5, sums: 9000 };
        let launches: Vec<([u64; 4], u32)> =
            Launch::over(70, 32).map(|launch| (launch.parameters(&at), launch.grid())).collect();
        let expected = [
            ([1000, 32, 5, 9000], 256),
            ([1000 + 32 * 8, 32, 5, 9000 + 32 * 40], 256),
            ([1000 + 64 * 8, 6, 5, 9000 + 64 * 40], 48),
        ];
        assert_eq!(launches, expected);
        assert_eq!(Launch::over(0, 32).count(), 0);
        assert_eq!(Launch::over(3, 0).count(), 3);
        assert_eq!(DeviceAddresses::bytes_of(70), 70 * 48);
    }

    #[test]
    fn the_longest_launch_has_a_grid_that_there_is() {
        let longest = Launch::over(usize::MAX / 2, usize::MAX).next().unwrap();
        assert!(longest.grid() <= i32::MAX as u32 && longest.count == LAUNCH_BLOCKS_MAX);
    }

    #[test]
    fn the_module_is_what_is_launched() {
        assert!(PTX.contains(&format!(".visible .entry {ENTRY}(")));
        assert!(PTX.contains(&format!(".reqntid {THREADS}, 1, 1")));
        assert!(PTX.ends_with('\0') && PTX.is_ascii());
    }
}
