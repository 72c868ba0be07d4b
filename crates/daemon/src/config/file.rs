//! Reads the file. What is wrong is said with the file, the line and the key, and with the nearest key that exists.

use super::{ConfigError, Settings, origins};
use std::path::{Path, PathBuf};
use toml::de::Error as TomlError;

/// A key with more wrong letters than this is another word.
const TYPO_MAX: usize = 3;

/// What one file says.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) path: Option<PathBuf>,
    pub(super) settings: Settings,
    /// Its keys outside of tables, each with its line.
    pub(super) lines: Vec<(String, usize)>,
    /// The line of each rule about programs.
    pub(super) command_lines: Vec<usize>,
}

impl File {
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = Self::text(path)?;
        let settings: Settings = toml::from_str(&text).map_err(|cause| wrong(path, &text, &cause))?;
        let starts = settings.command.iter().map(|rule| rule.span().start);
        let command_lines = starts.map(|start| line_at(&text, start)).collect();
        Ok(Self { path: Some(path.into()), settings, lines: keys(&text), command_lines })
    }

    /// All that is in a file.
    pub(super) fn text(path: &Path) -> Result<String, ConfigError> {
        std::fs::read_to_string(path).map_err(|cause| ConfigError::Unreadable { path: path.into(), cause })
    }

    /// The file's name, for people.
    pub(super) fn name(&self) -> String {
        self.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    }
}

fn wrong(path: &Path, text: &str, cause: &TomlError) -> ConfigError {
    let line = line_at(text, cause.span().map_or(0, |span| span.start));
    let place = format!("{}:{line}", path.display());
    let key = key_of(text.lines().nth(line - 1).unwrap_or_default()).map(|key| format!("{key}: "));
    let message = cause.message();
    let (reason, hint) = match message.strip_prefix("unknown field `") {
        Some(rest) => {
            let unknown = rest.split('`').next().unwrap_or_default();
            let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
            let hint = match nearest(unknown, &known) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("known here are {}", known.join(", ")),
            };
            ("there is no such key".to_owned(), format!("\nhint: {hint}"))
        }
        None => (message.to_owned(), String::new()),
    };
    ConfigError::Wrong { place, key: key.unwrap_or_default(), reason, hint }
}

/// The number of the line that has this byte; the first is 1.
fn line_at(text: &str, at: usize) -> usize {
    text[..at.min(text.len())].matches('\n').count() + 1
}

/// The keys of a file that are outside of its tables. It has been parsed, so it is in order.
fn keys(text: &str) -> Vec<(String, usize)> {
    let outside = text.lines().enumerate().take_while(|(_, line)| !line.trim_start().starts_with('['));
    let keys = outside.filter_map(|(number, line)| Some((key_of(line)?, number + 1)));
    keys.filter(|(key, _)| origins::KEYS.iter().any(|(known, _)| known == key)).collect()
}

/// The key that a line sets.
fn key_of(line: &str) -> Option<String> {
    let (key, _) = line.split_once('=')?;
    let key = key.trim().trim_matches(['"', '\'']);
    (!key.is_empty() && !key.starts_with('#')).then(|| key.to_owned())
}

fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let best = known.iter().map(|&known| (distance(word, known), known)).min()?;
    (best.0 <= TYPO_MAX.min(word.len() / 2)).then_some(best.1)
}

/// How many letters have to be put in, left out or changed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], i + 1);
        for (j, &to) in b.iter().enumerate() {
            let changed = before + usize::from(from != to);
            before = row[j + 1];
            row[j + 1] = changed.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
