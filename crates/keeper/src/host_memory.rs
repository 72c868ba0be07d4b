//! Whether there is room for the arena: in the host's memory, and within the limits of this process's control groups. One
//! that is too large would be found out by the kernel, which ends processes then, the keeper perhaps.

mod cgroup;

use crate::SEGMENT_BYTES;
use crate::segment::free_huge_bytes;
use std::path::Path;
use wire::quantity::Bytes;

/// Left to everybody else: a part of the host's memory, ...
const MARGIN_PART: u64 = 16;
/// ... but not more than this.
const MARGIN_BYTES_MAX: u64 = 4 << 30;

/// Why there is no room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostMemoryError {
    /// There is too little.
    #[error(
        "an arena of {} does not fit: {} are left here, within the limits of this process's control groups, and {} of \
         that are for everything else; ask for less, or raise the limit",
        Bytes(*wanted_bytes), Bytes(*available_bytes), Bytes(*margin_bytes)
    )]
    TooLittle {
        /// What was asked for, but for huge pages that are set aside.
        wanted_bytes: u64,
        /// What the host can give to this process.
        available_bytes: u64,
        /// What of it has to be left.
        margin_bytes: u64,
    },
    /// The host does not say.
    #[error("/proc/meminfo does not say how much memory there is: {why}")]
    Unknown {
        /// What was wrong.
        why: String,
    },
}

/// The size of an arena where nobody says otherwise: half of what the host has available, and this process may use.
pub fn usual_arena_bytes() -> Result<u64, HostMemoryError> {
    let half = HostMemory::read(Path::new("/"))?.available_bytes / 2;
    Ok((half / SEGMENT_BYTES).saturating_mul(SEGMENT_BYTES))
}

/// Whether an arena of this size fits into what is available now. Huge pages that are set aside are not part of that, and
/// segments are made of them first.
pub fn check_fits(wanted_bytes: u64) -> Result<(), HostMemoryError> {
    HostMemory::read(Path::new("/"))?.check(wanted_bytes.saturating_sub(free_huge_bytes()))
}

/// What the host has, and this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HostMemory {
    total_bytes: u64,
    available_bytes: u64,
}

impl HostMemory {
    /// Reads it all below this root folder.
    fn read(root: &Path) -> Result<HostMemory, HostMemoryError> {
        let text = std::fs::read_to_string(root.join("proc/meminfo"))
            .map_err(|error| HostMemoryError::Unknown { why: error.to_string() })?;
        let host = HostMemory::parse(&text)?;
        Ok(cgroup::read(root).map_or(host, |limit| HostMemory {
            total_bytes: host.total_bytes.min(limit.limit_bytes),
            available_bytes: host.available_bytes.min(limit.left_bytes),
        }))
    }

    fn parse(meminfo: &str) -> Result<HostMemory, HostMemoryError> {
        let field = |name: &str| {
            let kib = meminfo.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"));
            let bytes = kib.and_then(|kib| kib.trim().parse::<u64>().ok()?.checked_mul(1024));
            bytes.ok_or_else(|| HostMemoryError::Unknown { why: format!("no {name} in kB") })
        };
        Ok(HostMemory { total_bytes: field("MemTotal:")?, available_bytes: field("MemAvailable:")? })
    }

    fn check(self, wanted_bytes: u64) -> Result<(), HostMemoryError> {
        let HostMemory { total_bytes, available_bytes } = self;
        let margin_bytes = (total_bytes / MARGIN_PART).min(MARGIN_BYTES_MAX);
        if wanted_bytes > available_bytes.saturating_sub(margin_bytes) {
            return Err(HostMemoryError::TooLittle { wanted_bytes, available_bytes, margin_bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn check(wanted_bytes: u64, meminfo: &str) -> Result<(), HostMemoryError> {
        HostMemory::parse(meminfo)?.check(wanted_bytes)
    }

    #[test]
    fn a_margin_is_left() {
        let host = "MemTotal:       16777216 kB\nMemFree:  3 kB\nMemAvailable:   8388608 kB\n";
        assert_eq!(check(7 * GIB, host), Ok(()));
        let refused = check(7 * GIB + 1, host).expect_err("the host needs some");
        let (available_bytes, margin_bytes) = (8 * GIB, GIB);
        let wanted_bytes = 7 * GIB + 1;
        assert_eq!(refused, HostMemoryError::TooLittle { wanted_bytes, available_bytes, margin_bytes });
        let large = "MemTotal: 1073741824 kB\nMemAvailable: 1073741824 kB\n";
        assert_eq!(check(1024 * GIB - MARGIN_BYTES_MAX, large), Ok(()));
    }

    #[test]
    fn a_host_that_does_not_say_gets_no_arena() {
        for strange in ["", "MemTotal: 1024 kB\n", "MemTotal: 1024 kB\nMemAvailable: many kB\n"] {
            assert!(matches!(check(1, strange), Err(HostMemoryError::Unknown { .. })), "{strange}");
        }
    }

    #[test]
    fn a_group_may_allow_less_than_the_host_has() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder above it")).expect("a folder");
            std::fs::write(path, text).expect("a small file");
        };
        let unknown = HostMemory::read(root.path()).expect_err("nothing is there");
        assert!(matches!(unknown, HostMemoryError::Unknown { .. }));

        write("proc/meminfo", "MemTotal: 16 kB\nMemAvailable: 12 kB\n");
        let host = HostMemory { total_bytes: 16 << 10, available_bytes: 12 << 10 };
        assert_eq!(HostMemory::read(root.path()), Ok(host));

        write("proc/self/cgroup", "0::/box\n");
        write("sys/fs/cgroup/box/memory.max", "8192\n");
        write("sys/fs/cgroup/box/memory.current", "1024\n");
        let within = HostMemory { total_bytes: 8 << 10, available_bytes: 7 << 10 };
        assert_eq!(HostMemory::read(root.path()), Ok(within));

        write("sys/fs/cgroup/box/memory.max", "1048576\n");
        assert_eq!(
            HostMemory::read(root.path()),
            Ok(host),
            "a limit above what the host has changes nothing"
        );
    }
}
