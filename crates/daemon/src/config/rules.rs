//! What users may ask for: `[[user]]` and `[[group]]` in the file, and with which programs: [`super::commands`].
//!
//! A user's own rule comes first; else the strictest of all its groups' rules; else the rule of the user `*`. Without any,
//! nothing is limited, but only the daemon's own user and root may have latency-critical jobs, memory that stays on the GPU,
//! or the priority realtime.
//!
//! What is said of a program holds besides, and the stricter counts. Only where nothing is said of this user, nor of its
//! groups, may a program have more than is usual, or than `*` has; and only one whose file the user cannot put there.

use super::accounts::Accounts;
use super::commands::Commands;
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
    /// What is said of programs.
    pub commands: Commands,
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

    /// What is said of a user in these groups, where `usual` is what holds where nothing is said, on a GPU of this size.
    pub fn said_of(&self, uid: u32, groups: &[u32], usual: Limits, capacity_bytes: u64) -> Said {
        let of_groups = || {
            let of_groups = groups.iter().filter_map(|group| self.groups.get(group).copied());
            of_groups.reduce(|a, b| a.stricter(b, capacity_bytes))
        };
        let own = self.users.get(&uid).copied().or_else(of_groups);
        let others = self.everybody.filter(|_| own.is_none()).unwrap_or_default();
        Said { own: own.unwrap_or_default(), others: others.or(usual), capacity_bytes }
    }
}

/// What is said of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Of this user, or its groups.
    own: Limits,
    /// Where that says nothing.
    others: Limits,
    capacity_bytes: u64,
}

impl Said {
    /// What it may ask for, whatever the program.
    pub fn limits(&self) -> Limits {
        self.own.or(self.others)
    }

    /// What it may ask for with a program of which this is said, and which it can have made itself, or not.
    pub fn limits_with(&self, command: Limits, guarded: bool) -> Limits {
        match guarded {
            true => self.own.stricter(command, self.capacity_bytes).or(self.others),
            false => self.limits().stricter(command, self.capacity_bytes),
        }
    }

    /// The most that it may ask for with any program, while nobody knows which it will be.
    pub fn most(&self, commands: &Commands) -> Limits {
        let some = commands.all().map(|&command| self.limits_with(command, true));
        some.fold(self.limits(), |most, some| most.looser(some, self.capacity_bytes))
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
    /// These, and where they say nothing, those.
    pub fn or(self, other: Self) -> Self {
        Self {
            memory_max: self.memory_max.or(other.memory_max),
            cores_max: self.cores_max.or(other.cores_max),
            weight_max: self.weight_max.or(other.weight_max),
            lc: self.lc.or(other.lc),
            gpus_max: self.gpus_max.or(other.gpus_max),
            reserve: self.reserve.or(other.reserve),
            priority_max: self.priority_max.or(other.priority_max),
        }
    }

    /// Of each limit the higher one, where none is the highest.
    fn looser(self, other: Self, capacity_bytes: u64) -> Self {
        fn most<T: Copy, K: Ord>(a: Option<T>, b: Option<T>, key: impl Fn(T) -> K) -> Option<T> {
            Some(a?).into_iter().chain([b?]).max_by_key(|&value| key(value))
        }
        Self {
            memory_max: most(self.memory_max, other.memory_max, |memory| memory.on(capacity_bytes)),
            cores_max: most(self.cores_max, other.cores_max, |share| share),
            weight_max: most(self.weight_max, other.weight_max, |weight| weight),
            lc: most(self.lc, other.lc, |allowed| allowed),
            gpus_max: most(self.gpus_max, other.gpus_max, |gpus| gpus),
            reserve: most(self.reserve, other.reserve, |allowed| allowed),
            // The first is the highest.
            priority_max: most(self.priority_max, other.priority_max, std::cmp::Reverse),
        }
    }

    /// Of each limit the lower one, where none is the highest.
    pub fn stricter(self, other: Self, capacity_bytes: u64) -> Self {
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

pub(super) fn memory<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Memory>, D::Error> {
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
            let said = rules.said_of(uid, groups, Limits::default(), 16 * GIB);
            said.limits().memory_max.map(|memory| memory.on(16 * GIB))
        };
        assert_eq!(memory(1000, &[10, 11]), Some(2 * GIB));
        assert_eq!(memory(1001, &[10]), Some(8 * GIB));
        assert_eq!(memory(1001, &[10, 11]), Some(4 * GIB));
        assert_eq!(memory(1001, &[12]), Some(GIB));
        let both = rules.said_of(1001, &[10, 11], Limits::default(), 16 * GIB).limits();
        assert_eq!((both.weight_max, both.lc), (Some(2), Some(false)));
        assert_eq!((both.reserve, both.priority_max), (Some(false), Some(Priority::Low)));
        let usual = Limits { lc: Some(false), ..Limits::default() };
        assert_eq!(Rules::default().said_of(7, &[1], usual, GIB).limits(), usual);
    }

    #[test]
    fn a_program_may_have_less_than_its_user_and_more_only_where_nothing_is_said_of_that_user() {
        let named = |lc| Rule { id: Some(1000), lc, ..Rule::default() };
        let everybody = Rule { name: Some("*".into()), ..rule(0, "1GiB") };
        let everybody = Rule { id: None, lc: Some(false), priority_max: Some(Priority::Low), ..everybody };
        let usual = Limits { lc: Some(false), priority_max: Some(Priority::High), ..Limits::default() };
        let lc = Limits { lc: Some(true), priority_max: Some(Priority::Realtime), ..Limits::default() };
        let with = |user: Option<Rule>, command: Limits, guarded| {
            let rules = Rules::new([everybody.clone()].into_iter().chain(user).collect(), vec![]).unwrap();
            let limits = rules.said_of(1000, &[], usual, 16 * GIB).limits_with(command, guarded);
            (limits.lc, limits.priority_max)
        };
        let granted = (Some(true), Some(Priority::Realtime));
        assert_eq!(with(None, lc, true), granted, "more than everybody has");
        assert_eq!(with(None, lc, false), (Some(false), Some(Priority::Low)), "anybody can call a file so");
        assert_eq!(with(Some(named(None)), lc, true), granted, "nothing is said of that");
        assert_eq!(with(Some(named(Some(false))), lc, true), (Some(false), Some(Priority::Realtime)));
        let none = Limits { lc: Some(false), priority_max: Some(Priority::Idle), ..Limits::default() };
        for guarded in [true, false] {
            assert_eq!(
                with(Some(named(Some(true))), none, guarded),
                (Some(false), Some(Priority::Idle)),
                "less than the user has"
            );
        }
        let memory = Limits { memory_max: Some("2GiB".parse().unwrap()), ..Limits::default() };
        let rules = Rules::new(vec![everybody.clone()], vec![]).unwrap();
        let said = rules.said_of(1000, &[], usual, 16 * GIB);
        let on = |limits: Limits| limits.memory_max.unwrap().on(16 * GIB);
        assert_eq!((on(said.limits_with(memory, true)), on(said.limits_with(memory, false))), (2 * GIB, GIB));
    }

    #[test]
    fn before_the_program_is_known_the_most_of_any_is_allowed() {
        let command = |lc, weight_max| super::super::commands::CommandRule {
            name: Some(format!("{lc:?}{weight_max:?}")),
            lc,
            weight_max,
            ..Default::default()
        };
        let usual = Limits { lc: Some(false), weight_max: Some(3), ..Limits::default() };
        let said = Rules::default().said_of(7, &[], usual, GIB);
        let most = |commands: Vec<_>| {
            let most = said.most(&Commands::new(commands.into_iter().enumerate().collect()).unwrap());
            (most.lc, most.weight_max)
        };
        assert_eq!(most(vec![]), (Some(false), Some(3)));
        assert_eq!(most(vec![command(Some(false), Some(1))]), (Some(false), Some(3)));
        assert_eq!(most(vec![command(Some(true), Some(1)), command(None, Some(5))]), (Some(true), Some(5)));
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
