//! What a cellar tells about itself.

use crate::pace::Speed;
use crate::pack::Method;

/// A cellar's figures, as of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Blocks that are held.
    pub blocks: u64,
    /// How large they are.
    pub plain_bytes: u64,
    /// What they take of the file.
    pub disk_bytes: u64,
    /// What the file takes on the disk.
    pub file_bytes: u64,
    /// What it may take at most.
    pub limit_bytes: u64,
    /// What is free within the limit, whether the disk has room for it or not.
    pub free_bytes: u64,
    /// What of that is there to be taken, as far as is known: without that by which the file was to grow and could not, the last
    /// time.
    pub ready_bytes: u64,
    /// What the disk takes at its best of late.
    pub write_speed: Option<Speed>,
    /// What the disk gives at its best of late.
    pub read_speed: Option<Speed>,
    /// Jobs that are under way, or done and not polled yet.
    pub jobs: usize,
    /// What happened so far.
    pub totals: Totals,
}

/// What happened since the cellar was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of blocks that were put.
    pub put_bytes: u64,
    /// What was written for them.
    pub written_bytes: u64,
    /// Bytes of blocks that came back.
    pub got_bytes: u64,
    /// What was read for them.
    pub read_bytes: u64,
    /// Blocks that were all zero: nothing of them is on the disk.
    pub zero_blocks: u64,
    /// Blocks that were stored as they are.
    pub plain_blocks: u64,
    /// Blocks that were packed.
    pub packed_blocks: u64,
    /// Puts that failed.
    pub puts_failed: u64,
    /// Gets that failed.
    pub gets_failed: u64,
}

impl Statistics {
    /// What the blocks take of the file, as a share of their size. None without blocks.
    pub fn ratio(&self) -> Option<f64> {
        (self.plain_bytes > 0).then(|| self.disk_bytes as f64 / self.plain_bytes as f64)
    }
}

impl Totals {
    pub(crate) fn count_put(&mut self, plain_bytes: usize, written_bytes: usize, method: Option<Method>) {
        self.put_bytes += plain_bytes as u64;
        self.written_bytes += written_bytes as u64;
        let blocks = match method {
            None => &mut self.zero_blocks,
            Some(Method::Plain) => &mut self.plain_blocks,
            Some(Method::Zstd) => &mut self.packed_blocks,
        };
        *blocks += 1;
    }
}
