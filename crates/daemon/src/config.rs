//! What the daemon is told: a TOML file, and flags that override it.

use crate::quantity::{Bytes, Span};
use clap::Args;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

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
    #[error("turn_jitter is {0}, but must be between 0 and 1")]
    Jitter(f64),
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
    /// The size that the GPU is treated as [default: all of it].
    #[arg(long, value_name = "BYTES")]
    pub capacity: Option<Bytes>,
    /// Pinned host memory for what is away [default: half of what the machine has free].
    #[arg(long, value_name = "BYTES")]
    pub arena: Option<Bytes>,
    /// Device memory kept for the daemon's own context [default: 600MiB].
    #[arg(long, value_name = "BYTES")]
    pub reserve: Option<Bytes>,
    /// How long a turn is [default: 5s].
    #[arg(long, value_name = "TIME")]
    pub turn: Option<Span>,
    /// By which share of its length a turn varies at random, 0 to 1, so that turns do not fall into step with a
    /// program's own rhythm [default: 0].
    #[arg(long, value_name = "RATIO")]
    pub turn_jitter: Option<f64>,
    /// A file that gets one JSON line per freeze, move, thaw and turn.
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
}

/// Settings with every gap filled that can be filled without looking at the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// See [`Settings::socket`].
    pub socket: PathBuf,
    /// See [`Settings::gpu`].
    pub gpu: u32,
    /// See [`Settings::capacity`].
    pub capacity: Option<Bytes>,
    /// See [`Settings::arena`].
    pub arena: Option<Bytes>,
    /// See [`Settings::reserve`].
    pub reserve: Bytes,
    /// See [`Settings::turn`].
    pub turn: Duration,
    /// See [`Settings::turn_jitter`].
    pub turn_jitter: f64,
    /// See [`Settings::events`].
    pub events: Option<PathBuf>,
}

impl Config {
    /// Flags, over the file that was named, over the user's or the system's file if there is one, over defaults.
    pub fn load(flags: Settings, named: Option<&Path>) -> Result<Self, ConfigError> {
        let file = match named {
            Some(path) => read(path)?,
            None => match usual_files().into_iter().find(|path| path.exists()) {
                Some(path) => read(&path)?,
                None => Settings::default(),
            },
        };
        let turn_jitter = flags.turn_jitter.or(file.turn_jitter).unwrap_or(0.0);
        if !(0.0..=1.0).contains(&turn_jitter) {
            return Err(ConfigError::Jitter(turn_jitter));
        }
        Ok(Self {
            socket: flags.socket.or(file.socket).unwrap_or_else(wire::default_socket),
            gpu: flags.gpu.or(file.gpu).unwrap_or(0),
            capacity: flags.capacity.or(file.capacity),
            arena: flags.arena.or(file.arena),
            reserve: flags.reserve.or(file.reserve).unwrap_or(Bytes(600 << 20)),
            turn: flags.turn.or(file.turn).map_or(Duration::from_secs(5), |turn| turn.0),
            turn_jitter,
            events: flags.events.or(file.events),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str, flags: Settings) -> Result<Config, ConfigError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Config::load(flags, Some(file.path()))
    }

    #[test]
    fn a_flag_beats_the_file_and_the_file_beats_the_default() {
        let text = "capacity = '16GiB'\nturn = '5s'\nturn_jitter = 0.5\n";
        let flags = Settings { turn: Some("100ms".parse().unwrap()), ..Settings::default() };
        let config = config(text, flags).unwrap();
        assert_eq!(config.turn, Duration::from_millis(100));
        assert_eq!(config.capacity, Some(Bytes(16 << 30)));
        assert_eq!(config.turn_jitter, 0.5);
        assert_eq!(config.reserve, Bytes(600 << 20));
    }

    #[test]
    fn errors_name_file_line_and_reason() {
        let text = config("gpu = 0\nturns = '5s'\n", Settings::default()).unwrap_err().to_string();
        assert!(text.contains("line 2") && text.contains("turns"), "{text}");
        let text = config("capacity = '16'\n", Settings::default()).unwrap_err().to_string();
        assert!(text.contains("no unit"), "{text}");
        assert!(matches!(config("turn_jitter = 2.0", Settings::default()), Err(ConfigError::Jitter(_))));
        let missing = Config::load(Settings::default(), Some(Path::new("/no/such/file")));
        assert!(missing.unwrap_err().to_string().contains("/no/such/file"));
    }
}
