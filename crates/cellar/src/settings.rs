//! What a cellar is made from.

use crate::GRANULE_BYTES;
use std::path::PathBuf;

/// The most threads that a cellar may have.
pub const WORKERS_MAX: usize = 64;
/// The most jobs that may be under way, from their submission until they are polled.
pub const JOBS_MAX: usize = 4096;
/// The largest file: what offsets can say, with some room.
pub const LIMIT_BYTES_MAX: u64 = 1 << 48;

/// Blocks of zeros that are held at most: they take nothing of the disk, but some 200 bytes of memory each.
pub const ZERO_BLOCKS_MAX: usize = 1 << 18;

/// Where, how large, and with how many threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder whose file system holds the file. The file itself never has a name there.
    pub folder: PathBuf,
    /// The file never takes more than this. Rounded down to whole granules. One that was taken over and takes more already
    /// does not grow until it takes less.
    pub limit_bytes: u64,
    /// The file does not grow beyond what leaves so much of the file system to others.
    pub leave_bytes: u64,
    /// The step by which the file grows and shrinks.
    pub segment_bytes: u64,
    /// Threads, each with one block in its hands: so many requests the disk has at once.
    pub workers: usize,
    /// How many jobs may be under way. One more is refused, by [`crate::Busy`].
    pub jobs: usize,
    /// What kind of file system will do.
    pub accept: Accept,
}

/// What kind of file system will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// A local disk: not memory, and not another machine's.
    LocalDisk,
    /// Whatever is there. For tests, and for those who know what their network can do.
    Anything,
}

/// Settings that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Too small for one granule, or larger than offsets go.
    #[error(
        "a cellar cannot have {bytes} bytes: at least {GRANULE_BYTES} and at most {LIMIT_BYTES_MAX} are needed"
    )]
    Limit {
        /// What was asked for.
        bytes: u64,
    },
    /// Too small for one granule.
    #[error("a cellar cannot grow by {bytes} bytes: at least {GRANULE_BYTES} are needed")]
    Segment {
        /// What was asked for.
        bytes: u64,
    },
    /// None, or too many.
    #[error("a cellar cannot have {workers} threads: 1 to {WORKERS_MAX} are possible")]
    Workers {
        /// What was asked for.
        workers: usize,
    },
    /// None, or too many.
    #[error("a cellar cannot have {jobs} jobs under way: 1 to {JOBS_MAX} are possible")]
    Jobs {
        /// What was asked for.
        jobs: usize,
    },
}

impl Settings {
    /// A file of at most this size in this folder, the rest as usual.
    pub fn new(folder: impl Into<PathBuf>, limit_bytes: u64) -> Settings {
        Settings {
            folder: folder.into(),
            limit_bytes,
            leave_bytes: 1 << 30,
            segment_bytes: 64 << 20,
            workers: 4,
            jobs: 64,
            accept: Accept::LocalDisk,
        }
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        if !(GRANULE_BYTES..=LIMIT_BYTES_MAX).contains(&self.limit_bytes) {
            return Err(SettingsError::Limit { bytes: self.limit_bytes });
        }
        if self.segment_bytes < GRANULE_BYTES {
            return Err(SettingsError::Segment { bytes: self.segment_bytes });
        }
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return Err(SettingsError::Workers { workers: self.workers });
        }
        if !(1..=JOBS_MAX).contains(&self.jobs) {
            return Err(SettingsError::Jobs { jobs: self.jobs });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused() {
        let usual = Settings::new("/somewhere", 1 << 30);
        assert_eq!(usual.check(), Ok(()));
        let small = Settings { limit_bytes: GRANULE_BYTES - 1, ..usual.clone() };
        assert_eq!(small.check(), Err(SettingsError::Limit { bytes: GRANULE_BYTES - 1 }));
        let large = Settings { limit_bytes: LIMIT_BYTES_MAX + 1, ..usual.clone() };
        assert!(large.check().is_err());
        let fine = Settings { segment_bytes: GRANULE_BYTES - 1, ..usual.clone() };
        assert_eq!(fine.check(), Err(SettingsError::Segment { bytes: GRANULE_BYTES - 1 }));
        for workers in [0, WORKERS_MAX + 1] {
            assert_eq!(
                Settings { workers, ..usual.clone() }.check(),
                Err(SettingsError::Workers { workers })
            );
        }
        for jobs in [0, JOBS_MAX + 1] {
            assert_eq!(Settings { jobs, ..usual.clone() }.check(), Err(SettingsError::Jobs { jobs }));
        }
    }
}
