//! By which rules a scenario is run: rota's core, or one of the baselines.

use crate::baselines::{serial, stock, unified};
use crate::engine;
use crate::record::Record;
use crate::report::Row;
use crate::report::row::named;
use crate::scenario::nearest::nearest;
use crate::scenario::{Scenario, quantity};
use sched::{PolicyKind, Span};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// By which rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Unified memory with an exclusive quantum; the scenario's first if none is named.
    Unified(Option<Span>),
    /// The driver's time slices.
    Stock,
    /// One after the other.
    Serial,
    /// The core, with the scenario's policy if none is named.
    Rota(Option<PolicyKind>),
}

/// A policy that is none.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("there is no policy `{name}`; {hint}")]
pub struct UnknownPolicy {
    name: String,
    hint: String,
}

/// What can be typed, with what it means. `unified-60s` and other quanta are understood as well.
const NAMES: [(&str, Policy); 8] = [
    ("rota", Policy::Rota(None)),
    ("rota:fair", Policy::Rota(Some(PolicyKind::Fair))),
    ("rota:priority", Policy::Rota(Some(PolicyKind::Priority))),
    ("rota:deadline", Policy::Rota(Some(PolicyKind::Deadline))),
    ("rota:serial", Policy::Rota(Some(PolicyKind::Serial))),
    ("unified", Policy::Unified(None)),
    ("stock", Policy::Stock),
    ("serial", Policy::Serial),
];

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        if let Some((_, policy)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Ok(*policy);
        }
        let quantum = name.strip_prefix("unified-").and_then(|text| quantity::span(text).ok());
        if let Some(quantum) = quantum.filter(|quantum| *quantum > Span::ZERO) {
            return Ok(Self::Unified(Some(quantum)));
        }
        let known = || NAMES.iter().map(|(known, _)| *known);
        let hint = match nearest(name, known()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!(
                "known are {}, and unified-60s with any quantum",
                known().collect::<Vec<_>>().join(", ")
            ),
        };
        Err(UnknownPolicy { name: name.into(), hint })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = NAMES.iter().find(|(_, known)| known == self) {
            return f.write_str(name);
        }
        let quantum = if let Self::Unified(Some(quantum)) = self { quantum.0 } else { 0 };
        match quantum {
            ns if ns % 1_000_000_000 == 0 => write!(f, "unified-{}s", ns / 1_000_000_000),
            ns if ns % 1_000_000 == 0 => write!(f, "unified-{}ms", ns / 1_000_000),
            ns => write!(f, "unified-{ns}ns"),
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Everything.
    pub record: Record,
    /// The figures.
    pub row: Row,
}

/// Runs a scenario.
pub fn run(policy: Policy, scenario: &Scenario) -> Run {
    let mut note = None;
    let record = match policy {
        Policy::Unified(quantum) => {
            let usual = scenario.unified_quanta.first().copied();
            unified::run(scenario, quantum.or(usual).unwrap_or(Span::from_secs(30)))
        }
        Policy::Stock => {
            let (record, failed) = stock::run(scenario);
            note = named("out of memory", &failed);
            record
        }
        Policy::Serial => serial::run(scenario),
        Policy::Rota(None) => engine::run(scenario),
        Policy::Rota(Some(kind)) => {
            let mut scenario = scenario.clone();
            scenario.settings.policy = kind;
            engine::run(&scenario)
        }
    };
    let mut row = Row::of(&policy.to_string(), scenario, &record);
    row.note = note.or(row.note);
    Run { record, row }
}

/// Runs a scenario by all rules: the baselines, the longer quanta beside the first, and rota last.
pub fn compare(scenario: &Scenario) -> Vec<Run> {
    let longer = scenario.unified_quanta.iter().skip(1).map(|quantum| Policy::Unified(Some(*quantum)));
    let mut policies = vec![Policy::Unified(None)];
    policies.extend(longer);
    policies.extend([Policy::Stock, Policy::Serial, Policy::Rota(None)]);
    policies.into_iter().map(|policy| run(policy, scenario)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_and_given_back() {
        for name in NAMES.iter().map(|(name, _)| *name).chain(["unified-60s", "unified-1500ms"]) {
            assert_eq!(name.parse::<Policy>().unwrap().to_string(), name);
        }
        assert_eq!("unified-2min".parse::<Policy>().unwrap().to_string(), "unified-120s");
    }

    #[test]
    fn other_names_are_guessed_or_listed() {
        let said = |name: &str| name.parse::<Policy>().unwrap_err().to_string();
        assert_eq!(said("seriel"), "there is no policy `seriel`; did you mean `serial`?");
        assert!(said("best").contains("known are rota, "), "{}", said("best"));
        assert!(said("unified-0s").contains("no policy"));
    }
}
