//! Faults on request, in the description or live in `faults.toml`, which is read again whenever it changes.

use serde::Deserialize;
use std::path::{Path, PathBuf};

use crate::quantity::Nanos;

/// Why faults cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FaultsError {
    /// The file cannot be read.
    #[error("cannot read {0}: {1}")]
    Unreadable(PathBuf, std::io::Error),
    /// The file says what cannot be understood.
    #[error("{0}: {1}")]
    Malformed(PathBuf, Box<toml::de::Error>),
}

/// What goes wrong. Counts begin when the faults are read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// This allocation of device memory (the first is 1) finds none, whatever is free.
    pub out_of_memory_at: Option<u64>,
    /// Every allocation from that one on, too.
    pub out_of_memory_stays: bool,
    /// Copies.
    pub copy: Option<CopyFault>,
    /// Kernels of this name never end once begun.
    pub stuck_kernel: Option<String>,
    /// GPUs that are lost: everything on them fails.
    pub lost_devices: Vec<u32>,
    /// RM calls.
    pub control: Option<ControlFault>,
    /// Only processes with these ids meet the faults above; all, if empty.
    pub pids: Vec<i32>,
}

/// What goes wrong with copies.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CopyFault {
    /// This many times as long.
    pub slower: f64,
    /// This copy (the first is 1) fails, and with it its context.
    pub fails_at: Option<u64>,
}

impl Default for CopyFault {
    fn default() -> Self {
        Self { slower: 1.0, fails_at: None }
    }
}

/// What goes wrong with RM calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ControlFault {
    /// Freezing answers success and does nothing.
    pub freeze_does_nothing: bool,
    /// Thawing answers success and does nothing.
    pub thaw_does_nothing: bool,
    /// Setting a slice answers success and does nothing.
    pub slice_does_nothing: bool,
    /// Every call takes this much longer.
    pub takes: Option<Nanos>,
    /// Only every so many calls take longer; 0 and 1: each.
    pub takes_every: u64,
    /// Every control is refused with this status.
    pub status: Option<u32>,
}

impl Faults {
    /// From a file; None where there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, FaultsError> {
        match std::fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text)
                .map(Some)
                .map_err(|source| FaultsError::Malformed(path.into(), Box::new(source))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(FaultsError::Unreadable(path.into(), source)),
        }
    }
}
