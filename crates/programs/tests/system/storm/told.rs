//! What the daemon tells of a storm: how much has happened, in which phase each program is, and who had to end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::stage::Stage;

/// Where a program is on its way off the GPU and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Running,
    Frozen,
    MovingOut,
    Away,
    MovingIn,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Told {
    read: usize,
    pub(super) freezes: u64,
    pub(super) moves: u64,
    /// What went to the disk, as the arena was full.
    pub(super) sunk_bytes: u64,
    /// What went wrong, in the daemon's words, and how often.
    pub(super) errors: BTreeMap<String, u64>,
    /// Programs that did not get memory, and programs whose memory the disk has lost.
    excused: BTreeSet<String>,
    /// Where it is known.
    phases: BTreeMap<String, Phase>,
}

impl Told {
    /// Takes in what is new.
    pub(super) fn hear(&mut self, stage: &Stage) {
        let new = stage.events_from(self.read);
        self.read += new.len();
        new.iter().for_each(|event| self.take(event));
    }

    pub(super) fn phase(&self, program: &str) -> Option<Phase> {
        self.phases.get(program).copied()
    }

    /// Was it told that it cannot go on?
    pub(super) fn excuses(&self, program: &str) -> bool {
        self.excused.contains(program)
    }

    /// How often something went wrong whose description has one of these words.
    pub(super) fn errors_with(&self, words: &[&str]) -> u64 {
        let has = |what: &str| words.iter().any(|word| what.contains(word));
        self.errors.iter().filter(|(what, _)| has(what)).map(|(_, count)| count).sum()
    }

    fn take(&mut self, event: &Value) {
        let job = || event["job"].as_str().unwrap_or_default().to_owned();
        match event["event"].as_str().unwrap_or_default() {
            "thaw" | "turn_begin" => self.enter(job(), Phase::Running),
            "freeze" => {
                self.freezes += 1;
                // The rest of it may be frozen when it is away already.
                if self.phase(&job()).is_none_or(|phase| phase == Phase::Running) {
                    self.enter(job(), Phase::Frozen);
                }
            }
            "moving_out" => self.enter(job(), Phase::MovingOut),
            "moving_in" => self.enter(job(), Phase::MovingIn),
            "move_end" => {
                self.moves += 1;
                self.sunk_bytes += event["sunk_bytes"].as_u64().unwrap_or_default();
                // Where they are now is told next.
                self.phases.retain(|_, phase| !matches!(phase, Phase::MovingOut | Phase::MovingIn));
            }
            "away" | "rejoined" if event["away_bytes"].as_u64() > Some(0) => self.enter(job(), Phase::Away),
            "resident" => self.enter(job(), Phase::Frozen),
            "worker" => self.phases.clear(),
            "left" => drop(self.phases.remove(&job())),
            "denied" => {
                self.excused.insert(job());
                self.count_error(&event["why"]);
            }
            "error" => {
                let what = self.count_error(&event["what"]);
                if what.contains("the program is ended") {
                    self.excused.insert(job());
                }
            }
            _ => {}
        }
    }

    fn enter(&mut self, program: String, phase: Phase) {
        self.phases.insert(program, phase);
    }

    fn count_error<'a>(&mut self, what: &'a Value) -> &'a str {
        let what = what.as_str().unwrap_or_default();
        *self.errors.entry(what.to_owned()).or_default() += 1;
        what
    }
}
