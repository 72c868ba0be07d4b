//! Misuse that a real driver forgives. It is written down, a line each, and tests fail when there is any.

use std::fmt;

/// What a program should not have done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misuse {
    /// Which process.
    pub pid: i32,
    /// What.
    pub what: String,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}: {}", self.pid, self.what)
    }
}
