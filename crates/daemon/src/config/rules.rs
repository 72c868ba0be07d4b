//! What users may ask for: `[[user]]` and `[[group]]` in the file.
//!
//! A user's own rule comes first; else the strictest of all its groups' rules; else the rule of the user `*`. Without any,
//! nothing is limited, but only the daemon's own user and root may have latency-critical jobs, memory that stays on the GPU,
//! or the priority realtime.

use super::accounts::Accounts;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use thiserror::Error;
use wire::Priority;
use wire::quantity::{Memory, Share};

/// Why a rule cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RuleError {
    /// About nobody.
    #[error("a [[{0}]] names nobody\nhint: add name = \"…\" or {1} = …")]
    Nobody(&'static str, &'static str),
    /// About somebody unknown.
    #[error("[[{0}]] {1}: there is no such {0}\nhint: see `getent {2} {1}`")]
    Unknown(&'static str, String, &'static str),
    /// Two about the same.
    #[error("[[{0}]] {1}: there is a rule for it already\nhint: make one of the two")]
    Twice(&'static str, String),
    /// A share among users for more than one of them.
    #[error(
        "[[{0}]] {1}: weight is the share of one user\nhint: give each [[user]] its own, or set weight_max"
    )]
    WeightOfMany(&'static str, String),
    /// A value that cannot be meant.
    #[error("[[{0}]] {1}: {2} is 0, but must be 1 or more")]
    Zero(&'static str, String, &'static str),
}

/// One rule as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// The user's or group's name; `*` is every user without another rule.
    pub name: Option<String>,
    /// Its number, instead.
    #[serde(alias = "uid", alias = "gid")]
    pub id: Option<u32>,
    /// Its share among users.
    pub weight: Option<u32>,
    /// The most memory that a job may have on a GPU.
    #[serde(deserialize_with = "memory")]
    pub memory_max: Option<Memory>,
    /// The most of a GPU's time that a job may have.
    pub cores_max: Option<Share>,
    /// The highest weight of a job.
    pub weight_max: Option<u32>,
    /// May jobs be latency-critical?
    pub lc: Option<bool>,
    /// The most GPUs that a job may have.
    pub gpus_max: Option<u32>,
    /// May jobs keep their memory on the GPU, whoever's turn it is?
    pub reserve: Option<bool>,
    /// The highest priority of a job.
    pub priority_max: Option<Priority>,
}

/// What somebody may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// See [`Rule::memory_max`].
    pub memory_max: Option<Memory>,
    /// See [`Rule::cores_max`].
    pub cores_max: Option<Share>,
    /// See [`Rule::weight_max`].
    pub weight_max: Option<u32>,
    /// See [`Rule::lc`]; where nothing is said it depends on who it is.
    pub lc: Option<bool>,
    /// See [`Rule::gpus_max`].
    pub gpus_max: Option<u32>,
    /// See [`Rule::reserve`]; where nothing is said it depends on who it is.
    pub reserve: Option<bool>,
    /// See [`Rule::priority_max`]; where nothing is said it depends on who it is.
    pub priority_max: Option<Priority>,
}

/// All rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    users: BTreeMap<u32, Limits>,
    groups: BTreeMap<u32, Limits>,
    everybody: Option<Limits>,
    /// Shares among users.
    pub weights: BTreeMap<u32, u32>,
}

impl Rules {
    /// Rules about users and about groups.
    pub fn new(users: Vec<Rule>, groups: Vec<Rule>) -> Result<Self, RuleError> {
        let mut rules = Self::default();
        for rule in users {
            rule.check("user", rule.name.as_deref() != Some("*"))?;
            if rule.name.as_deref() == Some("*") {
                if rules.everybody.replace(rule.limits()).is_some() {
                    return Err(RuleError::Twice("user", "*".into()));
                }
                continue;
            }
            let (id, name) = rule.whom("user", "uid", "passwd", Accounts::Users)?;
            if rules.users.insert(id, rule.limits()).is_some() {
                return Err(RuleError::Twice("user", name));
            }
            rules.weights.extend(rule.weight.map(|weight| (id, weight)));
        }
        for rule in groups {
            rule.check("group", false)?;
            let (id, name) = rule.whom("group", "gid", "group", Accounts::Groups)?;
            if rules.groups.insert(id, rule.limits()).is_some() {
                return Err(RuleError::Twice("group", name));
            }
        }
        Ok(rules)
    }

    /// Does it matter which groups this user is in?
    pub fn needs_groups_of(&self, uid: u32) -> bool {
        !self.groups.is_empty() && !self.users.contains_key(&uid)
    }

    /// What a user in these groups may ask for, on a GPU of this size.
    pub fn limits_of(&self, uid: u32, groups: &[u32], capacity_bytes: u64) -> Limits {
        if let Some(own) = self.users.get(&uid) {
            return *own;
        }
        let of_groups = groups.iter().filter_map(|group| self.groups.get(group).copied());
        let strictest = of_groups.reduce(|a, b| a.stricter(b, capacity_bytes));
        strictest.or(self.everybody).unwrap_or_default()
    }
}

impl Rule {
    fn check(&self, kind: &'static str, one: bool) -> Result<(), RuleError> {
        let who = || self.name.clone().or(self.id.map(|id| id.to_string())).unwrap_or_default();
        for (key, value) in
            [("weight", self.weight), ("weight_max", self.weight_max), ("gpus_max", self.gpus_max)]
        {
            if value == Some(0) {
                return Err(RuleError::Zero(kind, who(), key));
            }
        }
        match self.weight.is_some() && !one {
            true => Err(RuleError::WeightOfMany(kind, who())),
            false => Ok(()),
        }
    }

    fn whom(
        &self,
        kind: &'static str,
        number: &'static str,
        database: &'static str,
        accounts: Accounts,
    ) -> Result<(u32, String), RuleError> {
        match (self.id, &self.name) {
            (Some(id), _) => Ok((id, id.to_string())),
            (None, Some(name)) => match accounts.number(name) {
                Some(id) => Ok((id, name.clone())),
                None => Err(RuleError::Unknown(kind, name.clone(), database)),
            },
            (None, None) => Err(RuleError::Nobody(kind, number)),
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            memory_max: self.memory_max,
            cores_max: self.cores_max,
            weight_max: self.weight_max,
            lc: self.lc,
            gpus_max: self.gpus_max,
            reserve: self.reserve,
            priority_max: self.priority_max,
        }
    }
}

impl Limits {
    /// Of each limit the lower one.
    fn stricter(self, other: Self, capacity_bytes: u64) -> Self {
        fn least<T: Copy, K: Ord>(a: Option<T>, b: Option<T>, key: impl Fn(T) -> K) -> Option<T> {
            a.into_iter().chain(b).min_by_key(|&value| key(value))
        }
        Self {
            memory_max: least(self.memory_max, other.memory_max, |memory| memory.on(capacity_bytes)),
            cores_max: least(self.cores_max, other.cores_max, |share| share),
            weight_max: least(self.weight_max, other.weight_max, |weight| weight),
            lc: least(self.lc, other.lc, |allowed| allowed),
            gpus_max: least(self.gpus_max, other.gpus_max, |gpus| gpus),
            reserve: least(self.reserve, other.reserve, |allowed| allowed),
            // The first is the highest.
            priority_max: least(self.priority_max, other.priority_max, std::cmp::Reverse),
        }
    }
}

fn memory<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Memory>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn rule(id: u32, memory: &str) -> Rule {
        Rule { id: Some(id), memory_max: Some(memory.parse().unwrap()), ..Rule::default() }
    }

    #[test]
    fn a_users_own_rule_comes_first_then_the_strictest_group_then_everybodys() {
        let everybody = Rule { name: Some("*".into()), id: None, ..rule(0, "1GiB") };
        let heavy = Rule { weight_max: Some(2), ..rule(11, "4GiB") };
        let groups = vec![
            Rule { lc: Some(true), priority_max: Some(Priority::Realtime), ..rule(10, "50%") },
            Rule { lc: Some(false), reserve: Some(false), priority_max: Some(Priority::Low), ..heavy },
        ];
        let rules = Rules::new(vec![rule(1000, "2GiB"), everybody], groups).unwrap();
        let memory = |uid, groups: &[u32]| {
            rules.limits_of(uid, groups, 16 * GIB).memory_max.map(|memory| memory.on(16 * GIB))
        };
        assert_eq!(memory(1000, &[10, 11]), Some(2 * GIB));
        assert_eq!(memory(1001, &[10]), Some(8 * GIB));
        assert_eq!(memory(1001, &[10, 11]), Some(4 * GIB));
        assert_eq!(memory(1001, &[12]), Some(GIB));
        let both = rules.limits_of(1001, &[10, 11], 16 * GIB);
        assert_eq!((both.weight_max, both.lc), (Some(2), Some(false)));
        assert_eq!((both.reserve, both.priority_max), (Some(false), Some(Priority::Low)));
        assert_eq!(Rules::default().limits_of(7, &[1], GIB), Limits::default());
    }

    #[test]
    fn rules_that_cannot_be_meant_are_refused() {
        assert_eq!(Rules::new(vec![Rule::default()], vec![]), Err(RuleError::Nobody("user", "uid")));
        let twice = vec![rule(7, "1GiB"), rule(7, "2GiB")];
        assert_eq!(Rules::new(twice, vec![]), Err(RuleError::Twice("user", "7".into())));
        let unknown = Rule { name: Some("no-such-group-here".into()), ..Rule::default() };
        let error = Rules::new(vec![], vec![unknown]).unwrap_err().to_string();
        assert!(error.ends_with("hint: see `getent group no-such-group-here`"), "{error}");
        let zero = Rule { weight: Some(0), ..rule(7, "1GiB") };
        assert_eq!(Rules::new(vec![zero], vec![]), Err(RuleError::Zero("user", "7".into(), "weight")));
        let shared = Rule { weight: Some(2), ..rule(7, "1GiB") };
        let error = Rules::new(vec![], vec![shared]).unwrap_err();
        assert_eq!(error, RuleError::WeightOfMany("group", "7".into()));
    }
}
