//! Where each value comes from: a flag, the environment, a line of a file, or nowhere, which is the default.

use super::{ConfigError, File, Settings};
use std::collections::BTreeMap;
use std::path::Path;
use wire::Setting;
use wire::quantity::Span;

/// Every key, with what holds where nobody says anything.
pub(super) const KEYS: [(&str, &str); 33] = [
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

/// What is set, as people write it.
fn values(settings: &Settings) -> Vec<(&'static str, Option<String>)> {
    fn text<T: ToString>(value: &Option<T>) -> Option<String> {
        value.as_ref().map(T::to_string)
    }
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
    vec![
        ("socket", path(&settings.socket)),
        ("gpus", text(&settings.gpus)),
        ("vgpu", path(&settings.vgpu)),
        ("capacity", text(&settings.capacity)),
        ("arena", text(&settings.arena)),
        ("cellar", path(&settings.cellar)),
        ("cellar_limit", text(&settings.cellar_limit)),
        ("reserve", text(&settings.reserve)),
        ("residue", text(&settings.residue)),
        ("events", path(&settings.events)),
        ("freeze", settings.freeze.map(|freeze| format!("{freeze:?}").to_lowercase())),
        ("clean_copies", settings.clean_copies.map(|how| format!("{how:?}").to_lowercase())),
        ("pass_memory", settings.pass_memory.map(|whose| format!("{whose:?}").to_lowercase())),
        ("policy", settings.policy.map(|policy| format!("{policy:?}").to_lowercase())),
        ("turn", text(&settings.turn)),
        ("turn_min", text(&settings.turn_min)),
        ("turn_max", text(&settings.turn_max)),
        ("turn_jitter", text(&settings.turn_jitter)),
        ("moving_share", text(&settings.moving_share)),
        ("gap_max", text(&settings.gap_max)),
        ("prefetch", settings.prefetch.map(|prefetch| format!("{prefetch:?}").to_lowercase())),
        ("headroom", text(&settings.headroom)),
        ("overcommit_max", text(&settings.overcommit_max)),
        ("oversize_max", text(&settings.oversize_max)),
        ("rehome", text(&settings.rehome)),
        ("tenants_max", text(&settings.tenants_max)),
        ("be_guarantee", text(&settings.be_guarantee)),
        ("favour", text(&settings.favour)),
        ("standby", settings.standby.map(|standby| format!("{standby:?}").to_lowercase())),
        ("ageing", text(&settings.ageing)),
        ("idle_exit", text(&settings.idle_exit)),
        ("everybody", text(&settings.everybody)),
    ]
}
