//! What programs may have, whoever runs them: `[[command]]` in the file.
//!
//! A rule for exactly this path comes first; else the strictest of all that fit; else the rule `*`: as it is with users and
//! groups. How that meets what the user may have is in [`super::rules`].

use super::glob;
use super::rules::Limits;
use crate::executable::Executable;
use serde::{Deserialize, Deserializer};
use std::os::unix::ffi::OsStrExt as _;
use thiserror::Error;
use wire::Priority;
use wire::quantity::{Memory, Share};

/// Why a rule cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CommandError {
    /// About nothing.
    #[error("a [[command]] names nothing\nhint: add path = \"/…\" or name = \"…\"")]
    Nothing,
    /// About two things.
    #[error("[[command]] {0}: path and name are both given\nhint: leave out one of the two")]
    Both(String),
    /// A path that depends on where somebody is.
    #[error(
        "[[command]] {0}: a path begins with /\nhint: to go by the file's name alone, write name = \"…\""
    )]
    Relative(String),
    /// A file's name that is none.
    #[error("[[command]] {0}: a file's name has no /\nhint: write path = \"…\"")]
    Slash(String),
    /// More than patterns have.
    #[error("[[command]] {0}: `{1}` has no meaning here\nhint: *, ** and ? are all there is")]
    Pattern(String, char),
    /// Two about the same.
    #[error("[[command]] {0}: there is a rule for it already, in line {1}\nhint: make one of the two")]
    Twice(String, usize),
    /// A value that cannot be meant.
    #[error("[[command]] {0}: {1} is 0, but must be 1 or more")]
    Zero(String, &'static str),
}

/// One rule as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandRule {
    /// Where the program's file lies, or a pattern.
    pub path: Option<String>,
    /// What the file is called, or a pattern, instead. `*` is every program without another rule.
    pub name: Option<String>,
    /// See [`super::rules::Rule::memory_max`].
    #[serde(deserialize_with = "memory")]
    pub memory_max: Option<Memory>,
    /// See [`super::rules::Rule::cores_max`].
    pub cores_max: Option<Share>,
    /// See [`super::rules::Rule::weight_max`].
    pub weight_max: Option<u32>,
    /// See [`super::rules::Rule::lc`].
    pub lc: Option<bool>,
    /// See [`super::rules::Rule::reserve`].
    pub reserve: Option<bool>,
    /// See [`super::rules::Rule::priority_max`].
    pub priority_max: Option<Priority>,
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Which {
    Path(String),
    Name(String),
}

/// All rules about programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    rules: Vec<(Which, Limits)>,
    others: Option<Limits>,
}

impl Commands {
    /// Rules, each with its line. What is wrong is said with the line.
    pub fn new(rules: Vec<(usize, CommandRule)>) -> Result<Self, (usize, CommandError)> {
        let mut commands = Self::default();
        let mut lines: Vec<(Which, usize)> = Vec::new();
        for (line, rule) in rules {
            let which = rule.which().map_err(|error| (line, error))?;
            if let Some((_, before)) = lines.iter().find(|(known, _)| *known == which) {
                return Err((line, CommandError::Twice(which.text().into(), *before)));
            }
            lines.push((which.clone(), line));
            match which.text() {
                "*" => commands.others = Some(rule.limits()),
                _ => commands.rules.push((which, rule.limits())),
            }
        }
        Ok(commands)
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.others.is_none()
    }

    /// What is said of a program.
    pub fn limits_of(&self, program: &Executable, capacity_bytes: u64) -> Option<Limits> {
        let path = program.path.as_os_str().as_bytes();
        let name = program.path.file_name().unwrap_or_default().as_bytes();
        let exact = self.rules.iter().find(|(which, _)| {
            matches!(which, Which::Path(pattern) if glob::is_plain(pattern) && pattern.as_bytes() == path)
        });
        if let Some((_, exact)) = exact {
            return Some(*exact);
        }
        let fitting = self.rules.iter().filter(|(which, _)| match which {
            Which::Path(pattern) => glob::fits(pattern, path),
            Which::Name(pattern) => glob::fits(pattern, name),
        });
        let strictest = fitting.map(|(_, limits)| *limits).reduce(|a, b| a.stricter(b, capacity_bytes));
        strictest.or(self.others)
    }

    /// What is said of any program.
    pub fn all(&self) -> impl Iterator<Item = &Limits> {
        self.rules.iter().map(|(_, limits)| limits).chain(&self.others)
    }
}

impl Which {
    fn text(&self) -> &str {
        match self {
            Self::Path(text) | Self::Name(text) => text,
        }
    }
}

impl CommandRule {
    fn which(&self) -> Result<Which, CommandError> {
        let which = match (&self.path, &self.name) {
            (None, None) => return Err(CommandError::Nothing),
            (Some(path), Some(_)) => return Err(CommandError::Both(path.clone())),
            (Some(path), None) if !path.starts_with('/') => {
                return Err(CommandError::Relative(path.clone()));
            }
            (None, Some(name)) if name.contains('/') => return Err(CommandError::Slash(name.clone())),
            (Some(path), None) => Which::Path(path.clone()),
            (None, Some(name)) => Which::Name(name.clone()),
        };
        if let Some(unknown) = which.text().chars().find(|unknown| ['[', '{', '\\'].contains(unknown)) {
            return Err(CommandError::Pattern(which.text().into(), unknown));
        }
        if which.text().is_empty() {
            return Err(CommandError::Nothing);
        }
        match self.weight_max {
            Some(0) => Err(CommandError::Zero(which.text().into(), "weight_max")),
            _ => Ok(which),
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            memory_max: self.memory_max,
            cores_max: self.cores_max,
            weight_max: self.weight_max,
            lc: self.lc,
            // Which GPUs a job gets is settled before its program is there.
            gpus_max: None,
            reserve: self.reserve,
            priority_max: self.priority_max,
        }
    }
}

fn memory<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Memory>, D::Error> {
    super::rules::memory(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> CommandRule {
        CommandRule { path: Some(path.into()), ..CommandRule::default() }
    }

    fn name(name: &str) -> CommandRule {
        CommandRule { name: Some(name.into()), ..CommandRule::default() }
    }

    fn program(path: &str) -> Executable {
        Executable { path: path.into(), guarded: true }
    }

    fn weights(rules: Vec<(CommandRule, u32)>) -> Commands {
        let rules = rules.into_iter().zip(1..);
        let rules =
            rules.map(|((rule, weight), line)| (line, CommandRule { weight_max: Some(weight), ..rule }));
        Commands::new(rules.collect()).unwrap()
    }

    #[test]
    fn the_path_itself_comes_first_then_the_strictest_that_fits_then_the_rule_of_the_others() {
        let commands = weights(vec![
            (name("*"), 1),
            (path("/opt/**"), 5),
            (name("serve"), 4),
            (path("/opt/a/serve"), 9),
            (name("python3*"), 7),
        ]);
        let weight = |path: &str| commands.limits_of(&program(path), 1).unwrap().weight_max.unwrap();
        assert_eq!(weight("/opt/a/serve"), 9);
        assert_eq!(weight("/opt/b/serve"), 4);
        assert_eq!(weight("/opt/b/other"), 5);
        assert_eq!(weight("/usr/bin/python3.11"), 7);
        assert_eq!(weight("/usr/bin/sleep"), 1);
        assert_eq!(weights(vec![(name("a"), 2)]).limits_of(&program("/b"), 1), None);
    }

    #[test]
    fn rules_that_cannot_be_meant_are_refused_with_their_line() {
        let wrong =
            |rules: Vec<CommandRule>| Commands::new(rules.into_iter().enumerate().collect()).unwrap_err();
        assert_eq!(wrong(vec![CommandRule::default()]), (0, CommandError::Nothing));
        assert_eq!(wrong(vec![name("")]), (0, CommandError::Nothing));
        assert_eq!(wrong(vec![name("a"), path("b")]), (1, CommandError::Relative("b".into())));
        assert_eq!(wrong(vec![name("bin/a")]), (0, CommandError::Slash("bin/a".into())));
        assert_eq!(wrong(vec![name("[ab]")]), (0, CommandError::Pattern("[ab]".into(), '[')));
        assert_eq!(wrong(vec![name("a"), name("b"), name("a")]), (2, CommandError::Twice("a".into(), 0)));
        let both = CommandRule { name: Some("a".into()), ..path("/a") };
        assert_eq!(wrong(vec![both]), (0, CommandError::Both("/a".into())));
        let zero = CommandRule { weight_max: Some(0), ..name("a") };
        assert_eq!(wrong(vec![zero]), (0, CommandError::Zero("a".into(), "weight_max")));
    }
}
