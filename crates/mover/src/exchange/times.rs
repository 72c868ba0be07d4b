//! Where the time of an exchange goes: what each lane does, and what it waits for while it does nothing.
//!
//! A lane's times add up to the exchange's. That a copy has ended is seen only at the next look, so up to
//! [`Times::unseen_out`] and [`Times::unseen_in`] of what counts as copying was waiting.

use std::collections::BTreeMap;
use std::time::Duration;

/// What a lane does, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doing {
    /// Copies.
    Copying,
    /// Waits until it is known what has to be copied.
    Hashing,
    /// Waits for space in the arena.
    Space,
    /// Waits for room on the device: what leaves is being copied.
    Room,
    /// Waits for a tenant to unmap what is copied.
    Unmapping,
    /// Waits for us to drop an import of what is unmapped.
    Releasing,
    /// Waits for a tenant to create memory.
    Creating,
    /// Waits for a tenant to take memory that is filled.
    Taking,
    /// Waits for the cellar.
    Fetching,
    /// Has nothing left to do.
    Done,
}

impl Doing {
    /// In a word, for events.
    pub fn name(self) -> &'static str {
        match self {
            Doing::Copying => "copying",
            Doing::Hashing => "hashing",
            Doing::Space => "space",
            Doing::Room => "room",
            Doing::Unmapping => "unmapping",
            Doing::Releasing => "releasing",
            Doing::Creating => "creating",
            Doing::Taking => "taking",
            Doing::Fetching => "fetching",
            Doing::Done => "done",
        }
    }
}

/// What the thread of an exchange does itself, while lanes go on or wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Chore {
    /// Imports memory that a tenant created, and starts the copy in.
    Import,
    /// Starts copies into memory that another tenant had.
    Pass,
    /// Drops imports.
    Release,
    /// Has the keeper record what was copied.
    Record,
    /// Takes arena space, and starts copies out.
    Start,
}

impl Chore {
    /// In a word, for events.
    pub fn name(self) -> &'static str {
        match self {
            Chore::Import => "import",
            Chore::Pass => "pass",
            Chore::Release => "release",
            Chore::Record => "record",
            Chore::Start => "start",
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// What the lane out did.
    pub out: BTreeMap<Doing, Duration>,
    /// What the lane in did.
    pub into: BTreeMap<Doing, Duration>,
    /// How long both copied at once.
    pub both: Duration,
    /// So much of the lane out's copying at most was waiting for somebody to see that it had ended.
    pub unseen_out: Duration,
    /// The same of the lane in.
    pub unseen_in: Duration,
    /// What the thread did.
    pub chores: BTreeMap<Chore, Duration>,
}

/// Adds up [`Times`] while time passes.
#[derive(Debug)]
pub(super) struct Meter {
    times: Times,
    /// Since when the lanes do what they do.
    since: Duration,
    doing: [Doing; 2],
    /// When somebody looked at copies last.
    looked: Duration,
}

impl Meter {
    pub(super) fn new(now: Duration) -> Meter {
        Meter { times: Times::default(), since: now, doing: [Doing::Done; 2], looked: now }
    }

    /// From now on the lanes out and in do this.
    pub(super) fn now_do(&mut self, now: Duration, doing: [Doing; 2]) {
        let passed = now.saturating_sub(self.since);
        let lanes = [&mut self.times.out, &mut self.times.into];
        for (lane, doing) in lanes.into_iter().zip(self.doing) {
            if !passed.is_zero() {
                *lane.entry(doing).or_default() += passed;
            }
        }
        if self.doing == [Doing::Copying; 2] {
            self.times.both += passed;
        }
        (self.since, self.doing) = (now, doing);
    }

    /// Somebody looked at copies: which lanes had some, and have none any more.
    pub(super) fn looked(&mut self, now: Duration, ran_dry: [bool; 2]) {
        let unseen = now.saturating_sub(self.looked);
        let lanes = [&mut self.times.unseen_out, &mut self.times.unseen_in];
        for (lane, _) in lanes.into_iter().zip(ran_dry).filter(|(_, dry)| *dry) {
            *lane += unseen;
        }
        self.looked = now;
    }

    pub(super) fn did(&mut self, chore: Chore, took: Duration) {
        *self.times.chores.entry(chore).or_default() += took;
    }

    /// All of it, up to now.
    pub(super) fn end(mut self, now: Duration) -> Times {
        self.now_do(now, self.doing);
        self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn every_lane_accounts_for_all_of_the_time() {
        let mut meter = Meter::new(5 * MS);
        meter.now_do(5 * MS, [Doing::Copying, Doing::Room]);
        meter.now_do(9 * MS, [Doing::Copying, Doing::Creating]);
        meter.now_do(10 * MS, [Doing::Copying; 2]);
        meter.looked(11 * MS, [false, false]);
        meter.looked(13 * MS, [true, false]);
        meter.now_do(13 * MS, [Doing::Unmapping, Doing::Copying]);
        meter.did(Chore::Release, MS);
        meter.did(Chore::Release, 2 * MS);
        let times = meter.end(20 * MS);
        assert_eq!(times.out, BTreeMap::from([(Doing::Copying, 8 * MS), (Doing::Unmapping, 7 * MS)]));
        let into = [(Doing::Copying, 10 * MS), (Doing::Room, 4 * MS), (Doing::Creating, MS)];
        assert_eq!(times.into, BTreeMap::from(into));
        assert_eq!((times.both, times.unseen_out, times.unseen_in), (3 * MS, 2 * MS, Duration::ZERO));
        assert_eq!(times.chores, BTreeMap::from([(Chore::Release, 3 * MS)]));
    }
}
