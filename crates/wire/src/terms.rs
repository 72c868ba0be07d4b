//! The terms of a job: what it has, and what is asked for.

use crate::quantity::{Memory, Share};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Latency-critical or best-effort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    /// Has the GPU at once.
    #[serde(rename = "lc")]
    LatencyCritical,
    /// Has the rest.
    #[default]
    #[serde(rename = "be")]
    BestEffort,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LatencyCritical => "lc",
            Self::BestEffort => "be",
        })
    }
}

/// How much a job matters, the most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Before all others.
    Realtime,
    /// Before most.
    High,
    /// As most.
    #[default]
    Normal,
    /// After most.
    Low,
    /// When nobody else wants.
    Idle,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Realtime => "realtime",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Idle => "idle",
        })
    }
}

/// The terms of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Its share among its user's jobs.
    pub weight: u32,
    /// One of two.
    pub class: Class,
    /// One of five; counts where the daemon's policy is `priority`, and at the door.
    pub priority: Priority,
    /// What it may have on a GPU, contexts included.
    pub memory_max_bytes: Option<u64>,
    /// What it may have of a GPU's time, in millionths.
    pub cores_max_millionths: Option<u32>,
    /// How soon its requests are to be served.
    pub slo_ns: Option<u64>,
    /// Does memory that is short make it wait? Else it is out of memory.
    pub wait: bool,
    /// Do its processes only get on together? Then they run at the same time, on all their GPUs, or not at all.
    pub gang: bool,
    /// What it may have in the host's memory beyond what its GPUs can have; 0 if it is out of memory then.
    pub oversize_bytes: u64,
    /// Does its memory stay on its GPUs, whoever's turn it is?
    pub reserve: bool,
}

/// As much of the host's memory as the daemon gives to anybody.
pub const OVERSIZE_ALL: u64 = u64::MAX;

/// Terms that are asked for. What is not named stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// See [`Terms::weight`].
    pub weight: Option<u32>,
    /// See [`Terms::class`].
    pub class: Option<Class>,
    /// See [`Terms::priority`].
    pub priority: Option<Priority>,
    /// See [`Terms::memory_max_bytes`]; all of a GPU's is no limit.
    pub memory: Option<Memory>,
    /// See [`Terms::cores_max_millionths`]; all of it is no limit.
    pub cores_millionths: Option<u32>,
    /// See [`Terms::slo_ns`].
    pub slo_ns: Option<u64>,
    /// See [`Terms::wait`].
    pub wait: Option<bool>,
    /// See [`Terms::gang`].
    pub gang: Option<bool>,
    /// See [`Terms::oversize_bytes`]; [`OVERSIZE_ALL`] is as much as the daemon gives.
    pub oversize_bytes: Option<u64>,
    /// See [`Terms::reserve`].
    pub reserve: Option<bool>,
}

impl Change {
    /// Changes nothing?
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These, and where they say nothing, those.
    pub fn or(self, other: Self) -> Self {
        Self {
            weight: self.weight.or(other.weight),
            class: self.class.or(other.class),
            priority: self.priority.or(other.priority),
            memory: self.memory.or(other.memory),
            cores_millionths: self.cores_millionths.or(other.cores_millionths),
            slo_ns: self.slo_ns.or(other.slo_ns),
            wait: self.wait.or(other.wait),
            gang: self.gang.or(other.gang),
            oversize_bytes: self.oversize_bytes.or(other.oversize_bytes),
            reserve: self.reserve.or(other.reserve),
        }
    }

    /// Terms with this change in them, on a GPU of this size.
    pub fn applied_to(&self, terms: &Terms, capacity_bytes: u64) -> Terms {
        let all = Share::ALL.millionths();
        Terms {
            weight: self.weight.unwrap_or(terms.weight),
            class: self.class.unwrap_or(terms.class),
            priority: self.priority.unwrap_or(terms.priority),
            memory_max_bytes: match self.memory {
                None => terms.memory_max_bytes,
                Some(memory) => Some(memory.on(capacity_bytes)).filter(|&bytes| bytes < capacity_bytes),
            },
            cores_max_millionths: match self.cores_millionths {
                None => terms.cores_max_millionths,
                Some(cores) => Some(cores).filter(|&cores| cores < all),
            },
            slo_ns: self.slo_ns.or(terms.slo_ns),
            wait: self.wait.unwrap_or(terms.wait),
            gang: self.gang.unwrap_or(terms.gang),
            oversize_bytes: self.oversize_bytes.unwrap_or(terms.oversize_bytes),
            reserve: self.reserve.unwrap_or(terms.reserve),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        weight: 1,
        class: Class::BestEffort,
        priority: Priority::Normal,
        memory_max_bytes: Some(1 << 30),
        cores_max_millionths: Some(300_000),
        slo_ns: None,
        wait: false,
        gang: false,
        oversize_bytes: 0,
        reserve: false,
    };

    #[test]
    fn what_is_not_named_stays() {
        assert_eq!(Change::default().applied_to(&TERMS, 8 << 30), TERMS);
        let change =
            Change { weight: Some(3), memory: Some(Memory::Millionths(500_000)), ..Change::default() };
        let expected = Terms { weight: 3, memory_max_bytes: Some(4 << 30), ..TERMS };
        assert_eq!(change.applied_to(&TERMS, 8 << 30), expected);
    }

    #[test]
    fn all_there_is_is_no_limit() {
        let change = Change {
            memory: Some(Memory::Millionths(1_000_000)),
            cores_millionths: Some(1_000_000),
            ..Change::default()
        };
        let open = Terms { memory_max_bytes: None, cores_max_millionths: None, ..TERMS };
        assert_eq!(change.applied_to(&TERMS, 8 << 30), open);
        let more = Change { memory: Some(Memory::Bytes(9 << 30)), ..Change::default() };
        assert_eq!(more.applied_to(&TERMS, 8 << 30).memory_max_bytes, None);
    }

    #[test]
    fn the_first_word_counts() {
        let flag = Change { weight: Some(3), ..Change::default() };
        let environment = Change { weight: Some(5), wait: Some(true), ..Change::default() };
        let both = flag.or(environment);
        assert_eq!((both.weight, both.wait), (Some(3), Some(true)));
        assert!(!both.is_empty() && Change::default().is_empty());
    }
}
