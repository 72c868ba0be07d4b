//! Whether the daemon's threads stay awake for moments, as people write it.

use clap::ValueEnum;
use serde::Deserialize;

/// See `crate::standby`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Standby {
    /// Where there are processors to spare.
    #[default]
    Auto,
    /// Never: they sleep whenever there is nothing to do.
    Off,
}
