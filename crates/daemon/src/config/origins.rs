//! Where each value comes from: a flag, the environment, a line of a file, or nowhere, which is the default.

use super::{ConfigError, File, Settings};
use std::collections::BTreeMap;
use std::path::Path;
use wire::quantity::{Bytes, Span};
use wire::{OVERSIZE_ALL, Oversize, Setting};

/// Every key, with what holds where nobody says anything.
pub(super) const KEYS: [(&str, &str); 34] = [
    ("socket", ""),
    ("gpus", "all"),
    ("vgpu", "none"),
    ("capacity", "all of the GPU's memory"),
    ("arena", "half of the host memory that is free"),
    ("cellar", "none"),
    ("cellar_limit", "half of what the disk has free"),
    ("reserve", "600MiB"),
    ("residue", "what a context takes in the self-test"),
    ("events", "none"),
    ("freeze", "auto"),
    ("clean_copies", "on"),
    ("pass_memory", "user"),
    ("policy", "fair"),
    ("turn", "none"),
    ("turn_min", "100ms"),
    ("turn_max", "60s"),
    ("turn_jitter", "0"),
    ("moving_share", "5%"),
    ("gap_max", "60s"),
    ("prefetch", "on"),
    ("headroom", "none"),
    ("overcommit_max", "1600%"),
    ("oversize_max", "a quarter of the host memory that is free"),
    ("rehome", "2s"),
    ("tenants_max", "128"),
    ("be_guarantee", "10%"),
    ("favour", "latency"),
    ("thaw_ahead", "off"),
    ("standby", "auto"),
    ("ageing", "30s"),
    ("idle_exit", "none"),
    ("everybody", "false"),
    ("user, group, command", "none"),
];

/// See the module.
#[derive(Debug)]
pub(super) struct Origins(BTreeMap<&'static str, String>);

impl Origins {
    pub(super) fn of(flags: &Settings, file: &File) -> Self {
        let mut origins = BTreeMap::new();
        for (key, _) in KEYS {
            if let Some((_, line)) = file.lines.iter().find(|(known, _)| known == key) {
                origins.insert(key, format!("{}:{line}", file.name()));
            }
        }
        let Settings { user, group, command, .. } = &file.settings;
        if !(user.is_empty() && group.is_empty() && command.is_empty()) {
            origins.insert("user, group, command", file.name());
        }
        for (key, _) in values(flags).into_iter().filter(|(_, value)| value.is_some()) {
            let variable = flags.from_environment.iter().find(|(known, _)| *known == key);
            let origin = match variable {
                Some((_, variable)) => format!("environment {variable}"),
                None => format!("flag --{}", key.replace('_', "-")),
            };
            origins.insert(key, origin);
        }
        Self(origins)
    }

    /// The same complaint, with the place where the value was given.
    pub(super) fn locate(&self, error: ConfigError) -> ConfigError {
        match error {
            ConfigError::OutOfRange { key, value, allowed, .. } => {
                // A fixed length is both bounds.
                let named = [key, "turn"].into_iter().find_map(|key| self.0.get(key));
                let place = named.map_or(String::new(), |place| format!("{place}: "));
                ConfigError::OutOfRange { place, key, value, allowed }
            }
            other => other,
        }
    }

    /// Every setting as it is in force.
    pub(super) fn all(&self, settings: &Settings, socket: &Path) -> Vec<Setting> {
        let given: BTreeMap<&str, Option<String>> = values(settings).into_iter().collect();
        let setting = |(key, usual): (&'static str, &str)| {
            let value = match (given.get(key).cloned().flatten(), key) {
                (Some(value), _) => value,
                (None, "socket") => socket.display().to_string(),
                (None, "idle_exit") if settings.idle_exit_usual.is_some() => {
                    settings.idle_exit_usual.iter().map(Span::to_string).collect()
                }
                (None, "reserve") if settings.vgpu.is_some() => "what two contexts take".into(),
                (None, "turn_min" | "turn_max") if settings.turn.is_some() => "as turn".into(),
                (None, "user, group, command") if self.0.contains_key(key) => "see the file".into(),
                (None, _) => usual.into(),
            };
            let origin = match given.get(key) {
                // A length that is fixed leaves no bounds, though the file may have some.
                Some(None) => None,
                _ => self.0.get(key),
            };
            Setting { key: key.into(), value, origin: origin.map_or("default", String::as_str).into() }
        };
        KEYS.into_iter().map(setting).collect()
    }
}

/// A number of bytes as people write it, to the byte.
fn exactly(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| format!("{bytes}B"), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// What is set, as people write it.
fn values(settings: &Settings) -> Vec<(&'static str, Option<String>)> {
    fn text<T: ToString>(value: &Option<T>) -> Option<String> {
        value.as_ref().map(T::to_string)
    }
    // As it is read: of the units that `Span` prints, two are none that people type.
    let time = |time: &Option<Span>| {
        time.map(|time| match time.to_string() {
            text if text.ends_with("ns") => format!("{}us", time.nanos() as f64 / 1e3),
            text => text.replace("µs", "us"),
        })
    };
    let bytes = |bytes: &Option<Bytes>| bytes.map(|Bytes(bytes)| exactly(bytes));
    let oversize = settings.oversize_max.map(|most| match most {
        Oversize(0 | OVERSIZE_ALL) => most.to_string(),
        Oversize(bytes) => exactly(bytes),
    });
    let on_off = |is_on: Option<super::OnOff>| is_on.map(|is_on| format!("{is_on:?}").to_lowercase());
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
    vec![
        ("socket", path(&settings.socket)),
        ("gpus", text(&settings.gpus)),
        ("vgpu", path(&settings.vgpu)),
        ("capacity", bytes(&settings.capacity)),
        ("arena", bytes(&settings.arena)),
        ("cellar", path(&settings.cellar)),
        ("cellar_limit", bytes(&settings.cellar_limit)),
        ("reserve", bytes(&settings.reserve)),
        ("residue", bytes(&settings.residue)),
        ("events", path(&settings.events)),
        ("freeze", settings.freeze.map(|freeze| format!("{freeze:?}").to_lowercase())),
        ("clean_copies", settings.clean_copies.map(|how| format!("{how:?}").to_lowercase())),
        ("pass_memory", settings.pass_memory.map(|whose| format!("{whose:?}").to_lowercase())),
        ("policy", settings.policy.map(|policy| format!("{policy:?}").to_lowercase())),
        ("turn", time(&settings.turn)),
        ("turn_min", time(&settings.turn_min)),
        ("turn_max", time(&settings.turn_max)),
        ("turn_jitter", text(&settings.turn_jitter)),
        ("moving_share", text(&settings.moving_share)),
        ("gap_max", time(&settings.gap_max)),
        ("prefetch", on_off(settings.prefetch)),
        ("headroom", bytes(&settings.headroom)),
        ("overcommit_max", text(&settings.overcommit_max)),
        ("oversize_max", oversize),
        ("rehome", text(&settings.rehome).map(|text| text.replace("µs", "us"))),
        ("tenants_max", text(&settings.tenants_max)),
        ("be_guarantee", text(&settings.be_guarantee)),
        ("favour", text(&settings.favour)),
        ("thaw_ahead", on_off(settings.thaw_ahead)),
        ("standby", settings.standby.map(|standby| format!("{standby:?}").to_lowercase())),
        ("ageing", time(&settings.ageing)),
        ("idle_exit", time(&settings.idle_exit)),
        ("everybody", text(&settings.everybody)),
    ]
}
