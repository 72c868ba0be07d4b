//! How much memory the host can still give to this process, so that an arena that is too large is refused before
//! anything is taken.

use super::ArenaError;
use super::cgroup;
use std::path::Path;

/// Left to everybody else: a part of the host's memory, ...
const MARGIN_PART: u64 = 16;
/// ... but not more than this.
const MARGIN_BYTES_MAX: u64 = 4 << 30;

/// What the host has, and this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HostMemory {
    total_bytes: u64,
    available_bytes: u64,
}

/// Whether an arena of this size fits into what is available now.
pub(super) fn check_fits(bytes: u64) -> Result<(), ArenaError> {
    read(Path::new("/"))?.check(bytes)
}

/// Half of what is available now.
pub(super) fn half_available() -> Result<u64, ArenaError> {
    Ok(read(Path::new("/"))?.available_bytes / 2)
}

/// Reads it all below this root folder.
fn read(root: &Path) -> Result<HostMemory, ArenaError> {
    let text = std::fs::read_to_string(root.join("proc/meminfo"))
        .map_err(|error| ArenaError::HostMemoryUnknown { why: error.to_string() })?;
    let host = parse(&text).ok_or_else(|| ArenaError::HostMemoryUnknown {
        why: "it has no MemTotal or no MemAvailable in kB".to_owned(),
    })?;
    Ok(cgroup::read(root).map_or(host, |limit| host.within(limit)))
}

impl HostMemory {
    fn within(self, limit: cgroup::Limit) -> HostMemory {
        HostMemory {
            total_bytes: self.total_bytes.min(limit.limit_bytes),
            available_bytes: self.available_bytes.min(limit.left_bytes),
        }
    }

    fn check(self, bytes: u64) -> Result<(), ArenaError> {
        let margin_bytes = (self.total_bytes / MARGIN_PART).min(MARGIN_BYTES_MAX);
        if bytes > self.available_bytes.saturating_sub(margin_bytes) {
            return Err(ArenaError::TooLarge { bytes, available_bytes: self.available_bytes, margin_bytes });
        }
        Ok(())
    }
}

fn parse(meminfo: &str) -> Option<HostMemory> {
    let field = |name: &str| -> Option<u64> {
        let value = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(HostMemory { total_bytes: field("MemTotal:")?, available_bytes: field("MemAvailable:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read() {
        let text = "MemTotal:       1024 kB\nMemFree:        3 kB\nMemAvailable:   512 kB\n";
        assert_eq!(parse(text), Some(HostMemory { total_bytes: 1 << 20, available_bytes: 512 << 10 }));
        assert_eq!(parse("MemTotal: 1024 kB\n"), None);
        assert_eq!(parse("MemTotal: 1024 kB\nMemAvailable: many kB\n"), None);
    }

    #[test]
    fn a_margin_is_left() {
        let host = HostMemory { total_bytes: 16 << 30, available_bytes: 8 << 30 };
        assert_eq!(host.check(7 << 30), Ok(()));
        assert_eq!(
            host.check((7 << 30) + 1),
            Err(ArenaError::TooLarge {
                bytes: (7 << 30) + 1,
                available_bytes: 8 << 30,
                margin_bytes: 1 << 30
            })
        );
        let large = HostMemory { total_bytes: 1 << 40, available_bytes: 1 << 40 };
        assert_eq!(large.check((1 << 40) - MARGIN_BYTES_MAX), Ok(()));
    }
    #[test]
    fn a_group_may_allow_less_than_the_host_has() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder above it")).expect("a folder");
            std::fs::write(path, text).expect("a small file");
        };
        let unknown = read(root.path()).expect_err("nothing is there");
        assert!(matches!(unknown, ArenaError::HostMemoryUnknown { .. }));

        write("proc/meminfo", "MemTotal: 16 kB\nMemAvailable: 12 kB\n");
        let host = HostMemory { total_bytes: 16 << 10, available_bytes: 12 << 10 };
        assert_eq!(read(root.path()), Ok(host));

        write("proc/self/cgroup", "0::/box\n");
        write("sys/fs/cgroup/box/memory.max", "8192\n");
        write("sys/fs/cgroup/box/memory.current", "1024\n");
        assert_eq!(read(root.path()), Ok(HostMemory { total_bytes: 8 << 10, available_bytes: 7 << 10 }));

        write("sys/fs/cgroup/box/memory.max", "1048576\n");
        assert_eq!(read(root.path()), Ok(host), "a limit above what the host has changes nothing");
    }
}
