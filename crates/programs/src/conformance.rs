//! The conformance suite: what a CUDA driver answers, call by call, to be compared between drivers.
//!
//! A [`Check`] makes a few calls and records what came out; its expected outcome is what the real driver of an H200
//! answered (driver 580, CUDA 13.0), so a check that passes says that two drivers agree, not that the answer is the documented
//! one. Output is one line a check, in a fixed order, without addresses or times.
//!
//! Checks of one family share a process; [`alone`] ones have one for themselves, and a process that dies or hangs costs
//! the check it was at, not the rest: [`mod@parent`] starts them and [`mod@child`] runs them.

mod checks;
pub mod child;
pub mod parent;

pub(crate) use checks::FAMILIES;

use crate::bench::Bench;

/// One thing a driver is asked, and what the real one answered.
pub(crate) struct Check {
    name: &'static str,
    expected: &'static str,
    run: fn(&Bench),
    setting: Setting,
}

/// What a check runs in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Setting {
    /// A process with a context, after other checks of the family.
    Shared,
    /// A process with a context of its own.
    Alone,
    /// A process of its own, in which `cuInit` was not called.
    Bare,
}

/// Checks about one kind of object.
pub(crate) struct Family {
    name: &'static str,
    checks: &'static [Check],
}

/// A check that leaves everything as it found it.
const fn check(name: &'static str, expected: &'static str, run: fn(&Bench)) -> Check {
    Check { name, expected, run, setting: Setting::Shared }
}

/// A check that may leave a context broken.
const fn alone(name: &'static str, expected: &'static str, run: fn(&Bench)) -> Check {
    Check { name, expected, run, setting: Setting::Alone }
}

/// A check that begins before `cuInit`.
const fn bare(name: &'static str, expected: &'static str, run: fn(&Bench)) -> Check {
    Check { name, expected, run, setting: Setting::Bare }
}

/// The family of this name.
fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// How many checks the suite promises at least.
    const CHECKS_MIN: usize = 150;

    #[test]
    fn names_are_unique_and_the_checks_are_many() {
        let mut names = HashSet::new();
        for family in FAMILIES {
            for check in family.checks {
                assert!(names.insert((family.name, check.name)), "{}/{} twice", family.name, check.name);
                assert!(!check.expected.is_empty(), "{}/{} expects nothing", family.name, check.name);
            }
        }
        assert!(names.len() >= CHECKS_MIN, "{} checks", names.len());
    }
}
