//! The configuration in force as a file that says the same: `rotad check-config`.

use super::{Config, ConfigError, File, Settings};
use std::fmt::Write as _;
use wire::Setting;

/// The tables of a file, which have no line of their own.
const TABLES: [&str; 3] = ["user", "group", "command"];

impl Config {
    /// All settings, each with where it comes from. What depends on the machine, and what there is none of, is a comment. Read
    /// again, it gives the same configuration.
    pub fn as_toml(&self) -> Result<String, ConfigError> {
        let mut text = String::new();
        for Setting { key, value, origin } in self.settings.iter().filter(|setting| setting.key != RULES) {
            let _ = match literal(key, value, origin) {
                Some(literal) => writeln!(text, "{key} = {literal}    # {origin}"),
                None => writeln!(text, "# {key}: {value}    # {origin}"),
            };
        }
        let Some(path) = &self.file else { return Ok(text) };
        let mut rules: toml::Table = toml::from_str(&File::text(path)?).unwrap_or_default();
        rules.retain(|key, _| TABLES.contains(&key));
        if !rules.is_empty() {
            let _ = write!(text, "\n{rules}");
        }
        Ok(text)
    }
}

/// The key that stands for all tables.
const RULES: &str = "user, group, command";

/// A value as a file has it, if it is one that can be written there.
fn literal(key: &str, value: &str, origin: &str) -> Option<String> {
    if origin == "default" && value == "none" {
        return None;
    }
    let text = toml::Value::String(value.into()).to_string();
    // Numbers and truths are written without quotes.
    [text, value.into()]
        .into_iter()
        .find(|literal| toml::from_str::<Settings>(&format!("{key} = {literal}")).is_ok())
}
