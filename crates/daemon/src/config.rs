//! What the daemon is told: a TOML file, and flags that override it.
//!
//! - `file`: reads the file, and says what is wrong with it, and where. `origins`: where each value comes from.
//!   `written`: all of it as a file.
//! - `sharing`: turns what concerns the core into its settings. [`rules`]: what users may ask for; [`commands`]: and with which
//!   programs.

mod accounts;
pub mod commands;
mod favour;
mod file;
mod glob;
mod gpus;
mod origins;
pub mod rehome;
pub mod rules;
mod sharing;
mod standby;
#[cfg(test)]
mod tests;
mod written;

use clap::{Args, ValueEnum};
use commands::{CommandError, CommandRule, Commands};
use file::File;
use rehome::Rehome;
use rules::{Rule, RuleError, Rules};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use thiserror::Error;
use wire::quantity::{Bytes, Share, Span};
use wire::{OVERSIZE_ALL, Oversize, Setting};

pub use favour::Favour;
pub use gpus::{Gpus, GpusError};
pub use sharing::TENANTS_MAX;
pub use standby::Standby;

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
    /// The file is not what is expected.
    #[error("{place}: {key}{reason}{hint}")]
    Wrong {
        /// Which file and line.
        place: String,
        /// The key and a colon, where one is known.
        key: String,
        /// What is wrong.
        reason: String,
        /// What to do, on a line of its own, where that is known.
        hint: String,
    },
    /// A value that cannot be meant.
    #[error("{place}{key} is {value}, but must be {allowed}")]
    OutOfRange {
        /// Where it was given, and a colon.
        place: String,
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
    /// A rule about users that cannot be used.
    #[error("{path}: {cause}")]
    Rule {
        /// Which file.
        path: String,
        /// Why not.
        cause: RuleError,
    },
    /// A rule about programs that cannot be used.
    #[error("{place}: {cause}")]
    Command {
        /// Which file and line.
        place: String,
        /// Why not.
        cause: CommandError,
    },
}

/// Settings that may be left open. The same names in the file and as flags.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Where to wait for programs.
    #[arg(long, value_name = "PATH", env = "ROTA_SOCKET")]
    pub socket: Option<PathBuf>,
    /// Which GPUs to share: `all`, or indices and UUIDs, as in 0,1 [default: all].
    #[arg(long, value_name = "GPUS")]
    pub gpus: Option<Gpus>,
    /// Share the GPUs of the virtual machine in this folder instead of real ones; its vgpu.toml may describe it.
    #[arg(long, value_name = "DIR", env = "ROTA_VGPU")]
    pub vgpu: Option<PathBuf>,
    /// The size that each GPU is treated as [default: all of it].
    #[arg(long, value_name = "BYTES")]
    pub capacity: Option<Bytes>,
    /// Pinned host memory for what is away [default: half of what the machine has free, for a virtual GPU at most twice its memory].
    #[arg(long, value_name = "BYTES")]
    pub arena: Option<Bytes>,
    /// A folder on a local disk for what is away and does not fit into the arena; it goes there packed and sealed [default: none].
    #[arg(long, value_name = "DIR")]
    pub cellar: Option<PathBuf>,
    /// The most that the cellar takes of its disk [default: half of what the disk has free].
    #[arg(long, value_name = "BYTES")]
    pub cellar_limit: Option<Bytes>,
    /// Memory of each GPU kept for the daemon's own context, beside 2 MiB for each GiB of the arena [default: 600MiB, on a virtual
    /// GPU what two contexts take].
    #[arg(long, value_name = "BYTES")]
    pub reserve: Option<Bytes>,
    /// What a program's context counts as at least, whether its memory is there or away [default: what one takes in the self-test].
    #[arg(long, value_name = "BYTES")]
    pub residue: Option<Bytes>,
    /// A file that gets one JSON line per freeze, move, thaw and turn.
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// How programs are stopped: `channels` takes them off the GPU in the middle of a kernel, `launches` holds back what they
    /// launch and waits for the rest, `auto` does the latter where the driver cannot do the former [default: auto].
    #[arg(long, value_name = "HOW")]
    pub freeze: Option<Freeze>,
    /// Keep copies of memory that came back, as far as the arena has room, so that only what changed since is copied out again:
    /// `on`, `off`, or `audit`, which copies all and compares [default: on].
    #[arg(long, value_name = "HOW")]
    pub clean_copies: Option<CleanCopies>,
    /// Whose memory a program may get when another leaves the GPU, instead of memory made anew: `user`, of programs of the same
    /// user and in the same namespaces, or `never` [default: user].
    #[arg(long, value_name = "WHOSE")]
    pub pass_memory: Option<PassMemory>,
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
    /// Bring memory of the next program in while another has its turn, where there is a place for it [default: on].
    #[arg(long, value_name = "HOW")]
    pub prefetch: Option<OnOff>,
    /// Device memory that is never given out [default: none].
    #[arg(long, value_name = "BYTES")]
    pub headroom: Option<Bytes>,
    /// What all programs together may have, as a share of the GPU's memory [default: 1600%].
    #[arg(long, value_name = "SHARE")]
    pub overcommit_max: Option<Share>,
    /// Host memory for programs that are larger than their GPU (`rota run --oversize`), all together, or `none` [default:
    /// a quarter of what the machine has free, for a virtual GPU at most twice its memory].
    #[arg(long, value_name = "BYTES", value_parser = oversize)]
    pub oversize_max: Option<Oversize>,
    /// How often to look at which memory of programs larger than their GPU changes, so that it is on the GPU and the rest in host
    /// memory, or `none`: then all of it stays where it was made [default: 2s].
    #[arg(long, value_name = "TIME")]
    pub rehome: Option<Rehome>,
    /// How many programs share the GPU; more of them wait until one ends [default: 128].
    #[arg(long, value_name = "COUNT")]
    pub tenants_max: Option<u32>,
    /// What best-effort programs get of the time beside latency-critical ones [default: 10%].
    #[arg(long, value_name = "SHARE")]
    pub be_guarantee: Option<Share>,
    /// What counts more where latency-critical programs and others meet: `latency` takes best-effort work off the GPU ahead of
    /// hinted requests, `throughput` lets it have slices that requests wait for, `balanced` does neither [default: latency].
    #[arg(long, value_name = "WHAT")]
    pub favour: Option<Favour>,
    /// Best-effort programs are put back on the GPU so long before a hinted request should end as that takes: `on` or `off`
    /// [default: off].
    #[arg(long, value_name = "WHETHER")]
    pub thaw_ahead: Option<OnOff>,
    /// Beside latency-critical programs the daemon's threads stay awake for moments, so that best-effort programs stand still for
    /// less long: `auto`, where there are processors to spare, or `off` [default: auto].
    #[arg(long, value_name = "HOW")]
    pub standby: Option<Standby>,
    /// With the policy `priority`: after so long a program that waits counts as one level higher [default: 30s].
    #[arg(long, value_name = "TIME")]
    pub ageing: Option<Span>,
    /// End when nobody was there for so long [default: never].
    #[arg(long, value_name = "TIME")]
    pub idle_exit: Option<Span>,
    /// Let all users of this machine come, not only the one who runs it [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub everybody: Option<bool>,
    /// What users may ask for; only in the file.
    #[arg(skip)]
    pub user: Vec<Rule>,
    /// What the members of groups may ask for; only in the file.
    #[arg(skip)]
    pub group: Vec<Rule>,
    /// What programs may have; only in the file.
    #[arg(skip)]
    pub command: Vec<toml::Spanned<CommandRule>>,
    /// What [`Settings::idle_exit`] is where nobody says anything.
    #[arg(skip)]
    #[serde(skip)]
    pub idle_exit_usual: Option<Span>,
    /// Keys whose values come from the environment, each with its variable.
    #[arg(skip)]
    #[serde(skip)]
    pub from_environment: Vec<(&'static str, &'static str)>,
}

/// How programs are stopped.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Freeze {
    /// By their channels where that works, otherwise by their launches.
    #[default]
    Auto,
    /// By their channels; where that does not work, nothing is shared.
    Channels,
    /// By their launches.
    Launches,
}

/// Whether copies are kept of memory that came back from the arena.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CleanCopies {
    /// No.
    Off,
    /// Yes, and what did not change since is not copied again.
    #[default]
    On,
    /// Yes, but all is copied and compared, and it is an error if something changed by its bytes and not by its hash.
    Audit,
}

/// Whose memory a program may get when another leaves the GPU.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PassMemory {
    /// That of programs of the same user, in the same user and PID namespaces.
    #[default]
    User,
    /// Nobody's: all memory is made anew.
    Never,
}

/// Whether something is done that can be left out.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum OnOff {
    /// Yes.
    On,
    /// No.
    Off,
}

impl From<CleanCopies> for mover::CleanCopies {
    fn from(setting: CleanCopies) -> Self {
        match setting {
            CleanCopies::Off => Self::Off,
            CleanCopies::On => Self::On,
            CleanCopies::Audit => Self::Audit,
        }
    }
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
    /// See [`Settings::gpus`].
    pub gpus: Gpus,
    /// See [`Settings::vgpu`].
    pub vgpu: Option<PathBuf>,
    /// See [`Settings::capacity`].
    pub capacity: Option<Bytes>,
    /// See [`Settings::arena`].
    pub arena: Option<Bytes>,
    /// See [`Settings::cellar`].
    pub cellar: Option<PathBuf>,
    /// See [`Settings::cellar_limit`].
    pub cellar_limit: Option<Bytes>,
    /// See [`Settings::reserve`].
    pub reserve: Option<Bytes>,
    /// See [`Settings::residue`].
    pub residue: Option<Bytes>,
    /// See [`Settings::events`].
    pub events: Option<PathBuf>,
    /// See [`Settings::freeze`].
    pub freeze: Freeze,
    /// See [`Settings::clean_copies`].
    pub clean_copies: CleanCopies,
    /// See [`Settings::pass_memory`].
    pub pass_memory: PassMemory,
    /// See [`Settings::oversize_max`].
    pub oversize_max: Option<Oversize>,
    /// See [`Settings::turn_jitter`].
    pub turn_jitter: f64,
    /// See [`Settings::rehome`].
    pub rehome: Rehome,
    /// See [`Settings::standby`].
    pub standby: Standby,
    /// See [`Settings::idle_exit`].
    pub idle_exit: Option<Span>,
    /// See [`Settings::everybody`].
    pub everybody: bool,
    /// All that concerns the core.
    pub sharing: sched::Settings,
    /// What users may ask for.
    pub rules: Rules,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Every setting, with where it comes from.
    pub settings: Vec<Setting>,
}

impl Config {
    /// Flags, over the file that was named, over the user's or the system's file if there is one, over defaults.
    pub fn load(flags: Settings, named: Option<&Path>) -> Result<Self, ConfigError> {
        let path = match named {
            Some(path) => Some(path.to_owned()),
            None => usual_files().into_iter().find(|path| path.exists()),
        };
        let file = match &path {
            Some(path) => File::read(path)?,
            None => File::default(),
        };
        let origins = origins::Origins::of(&flags, &file);
        flags.check_turn("the command line")?;
        file.settings.check_turn(&file.name())?;
        let name = file.name();
        let mut settings = flags.over(file.settings);
        let mut rules = Rules::new(std::mem::take(&mut settings.user), std::mem::take(&mut settings.group))
            .map_err(|cause| ConfigError::Rule { path: name.clone(), cause })?;
        let commands = std::mem::take(&mut settings.command).into_iter().map(toml::Spanned::into_inner);
        rules.commands = Commands::new(file.command_lines.into_iter().zip(commands).collect())
            .map_err(|(line, cause)| ConfigError::Command { place: format!("{name}:{line}"), cause })?;
        let sharing = settings.sharing().map_err(|error| origins.locate(error))?;
        let turn_jitter = settings.jitter().map_err(|error| origins.locate(error))?;
        let socket = settings.socket.clone().unwrap_or_else(wire::default_socket);
        Ok(Self {
            settings: origins.all(&settings, &socket),
            rules,
            sharing,
            turn_jitter,
            socket,
            gpus: settings.gpus.clone().unwrap_or_default(),
            vgpu: settings.vgpu,
            capacity: settings.capacity,
            arena: settings.arena,
            cellar: settings.cellar,
            cellar_limit: settings.cellar_limit,
            reserve: settings.reserve,
            residue: settings.residue,
            events: settings.events,
            freeze: settings.freeze.unwrap_or_default(),
            clean_copies: settings.clean_copies.unwrap_or_default(),
            pass_memory: settings.pass_memory.unwrap_or_default(),
            oversize_max: settings.oversize_max,
            rehome: settings.rehome.unwrap_or_default(),
            standby: settings.standby.unwrap_or_default(),
            idle_exit: settings.idle_exit.or(settings.idle_exit_usual),
            everybody: settings.everybody.unwrap_or(false),
            file: path,
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
            gpus: self.gpus.or(other.gpus),
            vgpu: self.vgpu.or(other.vgpu),
            capacity: self.capacity.or(other.capacity),
            arena: self.arena.or(other.arena),
            cellar: self.cellar.or(other.cellar),
            cellar_limit: self.cellar_limit.or(other.cellar_limit),
            reserve: self.reserve.or(other.reserve),
            residue: self.residue.or(other.residue),
            events: self.events.or(other.events),
            freeze: self.freeze.or(other.freeze),
            clean_copies: self.clean_copies.or(other.clean_copies),
            pass_memory: self.pass_memory.or(other.pass_memory),
            policy: self.policy.or(other.policy),
            turn: self.turn.or(turns.turn),
            turn_min: self.turn_min.or(turns.turn_min),
            turn_max: self.turn_max.or(turns.turn_max),
            turn_jitter: self.turn_jitter.or(other.turn_jitter),
            moving_share: self.moving_share.or(other.moving_share),
            gap_max: self.gap_max.or(other.gap_max),
            prefetch: self.prefetch.or(other.prefetch),
            headroom: self.headroom.or(other.headroom),
            overcommit_max: self.overcommit_max.or(other.overcommit_max),
            oversize_max: self.oversize_max.or(other.oversize_max),
            rehome: self.rehome.or(other.rehome),
            tenants_max: self.tenants_max.or(other.tenants_max),
            be_guarantee: self.be_guarantee.or(other.be_guarantee),
            favour: self.favour.or(other.favour),
            thaw_ahead: self.thaw_ahead.or(other.thaw_ahead),
            standby: self.standby.or(other.standby),
            ageing: self.ageing.or(other.ageing),
            idle_exit: self.idle_exit.or(other.idle_exit),
            everybody: self.everybody.or(other.everybody),
            user: other.user,
            group: other.group,
            command: other.command,
            idle_exit_usual: self.idle_exit_usual,
            from_environment: self.from_environment,
        }
    }
}

/// A size, or none: all that there is would be all of the machine's memory.
fn oversize(text: &str) -> Result<Oversize, String> {
    match text.parse() {
        Ok(Oversize(OVERSIZE_ALL)) => Err("write a size, as 64GiB, or none".into()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

fn usual_files() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    let mut files: Vec<PathBuf> = user.map(|folder| folder.join("rota/rotad.toml")).into_iter().collect();
    files.push("/etc/rota/rotad.toml".into());
    files
}
