//! Whether the host has room for the arena. One that is too large would be found out by the kernel, which ends processes
//! then, the keeper perhaps.
//!
//! Only what the whole host has is asked; limits of control groups are not.

use crate::segment::free_huge_bytes;
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
        "an arena of {} does not fit: the host has {} left, and {} of that are for everything else; ask for less",
        Bytes(*wanted_bytes), Bytes(*available_bytes), Bytes(*margin_bytes)
    )]
    TooLittle {
        /// What was asked for, but for huge pages that are set aside.
        wanted_bytes: u64,
        /// What the host can give.
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

/// Whether an arena of this size fits into what is available now. Huge pages that are set aside are not part of that, and
/// segments are made of them first.
pub(crate) fn check_fits(wanted_bytes: u64) -> Result<(), HostMemoryError> {
    let unknown = |why: String| HostMemoryError::Unknown { why };
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|error| unknown(error.to_string()))?;
    check(wanted_bytes.saturating_sub(free_huge_bytes()), &text)
}

fn check(wanted_bytes: u64, meminfo: &str) -> Result<(), HostMemoryError> {
    let field = |name: &str| {
        let kib = meminfo.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"));
        let bytes = kib.and_then(|kib| kib.trim().parse::<u64>().ok()?.checked_mul(1024));
        bytes.ok_or_else(|| HostMemoryError::Unknown { why: format!("no {name} in kB") })
    };
    let (total_bytes, available_bytes) = (field("MemTotal:")?, field("MemAvailable:")?);
    let margin_bytes = (total_bytes / MARGIN_PART).min(MARGIN_BYTES_MAX);
    if wanted_bytes > available_bytes.saturating_sub(margin_bytes) {
        return Err(HostMemoryError::TooLittle { wanted_bytes, available_bytes, margin_bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

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
}
