//! What counts more where latency-critical programs and others meet, as people write it.

use clap::ValueEnum;
use serde::Deserialize;

/// See the module.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Favour {
    /// How soon requests are served.
    Latency,
    /// Some of both.
    Balanced,
    /// What best-effort programs get done.
    Throughput,
}

impl From<sched::Favour> for Favour {
    fn from(favour: sched::Favour) -> Self {
        match favour {
            sched::Favour::Latency => Self::Latency,
            sched::Favour::Balanced => Self::Balanced,
            sched::Favour::Throughput => Self::Throughput,
        }
    }
}

impl From<Favour> for sched::Favour {
    fn from(favour: Favour) -> Self {
        match favour {
            Favour::Latency => Self::Latency,
            Favour::Balanced => Self::Balanced,
            Favour::Throughput => Self::Throughput,
        }
    }
}

impl std::fmt::Display for Favour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Latency => "latency",
            Self::Balanced => "balanced",
            Self::Throughput => "throughput",
        })
    }
}
