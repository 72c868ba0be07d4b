//! What the daemon is told: a TOML file, and flags that override it.
//!
//! [`sharing`] turns what concerns the core into its settings.

mod sharing;
#[cfg(test)]
mod tests;

use crate::quantity::{Bytes, Share, Span};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use thiserror::Error;

pub use sharing::TENANTS_MAX;

/// Why the configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {cause}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The file is not what is expected; the cause names line and key.
    #[error("the configuration {path} is wrong: {cause}")]
    Wrong {
        /// Which file.
        path: PathBuf,
        /// Line, key and reason.
        cause: Box<toml::de::Error>,
    },
    /// A value that cannot be meant.
    #[error("{key} is {value}, but must be {allowed}")]
    OutOfRange {
        /// Which setting.
        key: &'static str,
        /// As it was given.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// A length that is fixed and has bounds.
    #[error(
        "{place} sets turn, which fixes the length of turns, and {key} as well\nhint: leave out one of the two"
    )]
    TurnTwice {
        /// Where.
        place: String,
        /// What else it sets.
        key: &'static str,
    },
}

/// Settings that may be left open. The same names in the file and as flags.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Where to wait for programs.
    #[arg(long, value_name = "PATH", env = "ROTA_SOCKET")]
    pub socket: Option<PathBuf>,
    /// Which GPU to share, by its index [default: 0].
    #[arg(long, value_name = "INDEX")]
    pub gpu: Option<u32>,
    /// Share a GPU of the virtual machine in this folder instead of a real one; its vgpu.toml may describe it.
    #[arg(long, value_name = "DIR", env = "ROTA_VGPU")]
    pub vgpu: Option<PathBuf>,
    /// The size that the GPU is treated as [default: all of it].
    #[arg(long, value_name = "BYTES")]
    pub capacity: Option<Bytes>,
    /// Pinned host memory for what is away [default: half of what the machine has free, for a virtual GPU at most twice its memory].
    #[arg(long, value_name = "BYTES")]
    pub arena: Option<Bytes>,
    /// Device memory kept for the daemon's own context [default: 600MiB, on a virtual GPU what two contexts take].
    #[arg(long, value_name = "BYTES")]
    pub reserve: Option<Bytes>,
    /// What a program's context takes on the device, whether its memory is there or away [default: 544MiB, or as a virtual GPU has it].
    #[arg(long, value_name = "BYTES")]
    pub residue: Option<Bytes>,
    /// A file that gets one JSON line per freeze, move, thaw and turn.
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// How the next one is chosen [default: fair].
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<Policy>,
    /// All turns are this long [default: as long as moving makes worthwhile, from turn_min to turn_max].
    #[arg(long, value_name = "TIME")]
    pub turn: Option<Span>,
    /// The shortest turn [default: 100ms].
    #[arg(long, value_name = "TIME")]
    pub turn_min: Option<Span>,
    /// The longest turn [default: 60s].
    #[arg(long, value_name = "TIME")]
    pub turn_max: Option<Span>,
    /// By which share of its length a turn varies at random, 0 to 1, so that turns do not fall into step with a
    /// program's own rhythm [default: 0].
    #[arg(long, value_name = "RATIO")]
    pub turn_jitter: Option<f64>,
    /// How much of the time may go into moving memory [default: 5%].
    #[arg(long, value_name = "SHARE")]
    pub moving_share: Option<Share>,
    /// How long a program may wait between two turns, if moving leaves the choice [default: 60s].
    #[arg(long, value_name = "TIME")]
    pub gap_max: Option<Span>,
    /// Device memory that is never given out [default: none].
    #[arg(long, value_name = "BYTES")]
    pub headroom: Option<Bytes>,
    /// What all programs together may have, as a share of the GPU's memory [default: 1600%].
    #[arg(long, value_name = "SHARE")]
    pub overcommit_max: Option<Share>,
    /// How many programs share the GPU; more of them wait until one ends [default: 128].
    #[arg(long, value_name = "COUNT")]
    pub tenants_max: Option<u32>,
    /// What best-effort programs get of the time beside latency-critical ones [default: 10%].
    #[arg(long, value_name = "SHARE")]
    pub be_guarantee: Option<Share>,
}

/// How the next one is chosen.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Weighted shares of GPU time, user first, then job.
    Fair,
    /// By five levels; whoever waits long rises.
    Priority,
    /// Whoever has the least time left.
    Deadline,
    /// One after the other, each to its end.
    Serial,
}

/// Settings with every gap filled that can be filled without looking at the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// See [`Settings::socket`].
    pub socket: PathBuf,
    /// See [`Settings::gpu`].
    pub gpu: u32,
    /// See [`Settings::vgpu`].
    pub vgpu: Option<PathBuf>,
    /// See [`Settings::capacity`].
    pub capacity: Option<Bytes>,
    /// See [`Settings::arena`].
    pub arena: Option<Bytes>,
    /// See [`Settings::reserve`].
    pub reserve: Option<Bytes>,
    /// See [`Settings::residue`].
    pub residue: Option<Bytes>,
    /// See [`Settings::events`].
    pub events: Option<PathBuf>,
    /// See [`Settings::turn_jitter`].
    pub turn_jitter: f64,
    /// All that concerns the core.
    pub sharing: sched::Settings,
}

impl Config {
    /// Flags, over the file that was named, over the user's or the system's file if there is one, over defaults.
    pub fn load(flags: Settings, named: Option<&Path>) -> Result<Self, ConfigError> {
        let path = match named {
            Some(path) => Some(path.to_owned()),
            None => usual_files().into_iter().find(|path| path.exists()),
        };
        let file = match &path {
            Some(path) => read(path)?,
            None => Settings::default(),
        };
        flags.check_turn("the command line")?;
        file.check_turn(&path.map(|path| path.display().to_string()).unwrap_or_default())?;
        let settings = flags.over(file);
        Ok(Self {
            sharing: settings.sharing()?,
            turn_jitter: settings.jitter()?,
            socket: settings.socket.unwrap_or_else(wire::default_socket),
            gpu: settings.gpu.unwrap_or(0),
            vgpu: settings.vgpu,
            capacity: settings.capacity,
            arena: settings.arena,
            reserve: settings.reserve,
            residue: settings.residue,
            events: settings.events,
        })
    }
}

impl Settings {
    /// These, and where they are open, those.
    fn over(self, other: Self) -> Self {
        // A fixed length and bounds on it are one choice: who makes it makes all of it.
        let chooses_turn = self.turn.is_some() || self.turn_min.is_some() || self.turn_max.is_some();
        let turns = match chooses_turn && (self.turn.is_some() != other.turn.is_some()) {
            true => Self::default(),
            false => Self {
                turn: other.turn,
                turn_min: other.turn_min,
                turn_max: other.turn_max,
                ..Self::default()
            },
        };
        Self {
            socket: self.socket.or(other.socket),
            gpu: self.gpu.or(other.gpu),
            vgpu: self.vgpu.or(other.vgpu),
            capacity: self.capacity.or(other.capacity),
            arena: self.arena.or(other.arena),
            reserve: self.reserve.or(other.reserve),
            residue: self.residue.or(other.residue),
            events: self.events.or(other.events),
            policy: self.policy.or(other.policy),
            turn: self.turn.or(turns.turn),
            turn_min: self.turn_min.or(turns.turn_min),
            turn_max: self.turn_max.or(turns.turn_max),
            turn_jitter: self.turn_jitter.or(other.turn_jitter),
            moving_share: self.moving_share.or(other.moving_share),
            gap_max: self.gap_max.or(other.gap_max),
            headroom: self.headroom.or(other.headroom),
            overcommit_max: self.overcommit_max.or(other.overcommit_max),
            tenants_max: self.tenants_max.or(other.tenants_max),
            be_guarantee: self.be_guarantee.or(other.be_guarantee),
        }
    }
}

fn read(path: &Path) -> Result<Settings, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|cause| ConfigError::Unreadable { path: path.into(), cause })?;
    toml::from_str(&text).map_err(|cause| ConfigError::Wrong { path: path.into(), cause: Box::new(cause) })
}

fn usual_files() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    let mut files: Vec<PathBuf> = user.map(|folder| folder.join("rota/rotad.toml")).into_iter().collect();
    files.push("/etc/rota/rotad.toml".into());
    files
}
