//! How an exchange goes: one loop that takes [`answers`], looks at copies, and starts whatever can start, by copying or
//! by [`asking`].
//!
//! All of it is done by one thread, so what takes long comes last: dropping an import takes up to a millisecond, and
//! happens only once every copy that can start has been started, one import at a time.

mod accounting;
mod answers;
mod asking;
mod balance;
mod cellar;
mod leaving;
mod metering;
mod passage;
mod passing;

use super::patience::Idleness;
use super::times::{Chore, Meter};
use super::{MoveError, Outcome, Plan, Reply, Step, Stuck, Tenants};
use crate::device::Device;
#[cfg(any(test, feature = "planted"))]
use crate::mover::planted::Bug;
use crate::mover::{CopyState, HashState};
use crate::{HandleKey, Mover};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Answers that are taken before the copies are looked at again.
const REPLIES_PER_ROUND_MAX: usize = 64;

impl<D: Device> Mover<D> {
    /// Moves handles out and others in, both at once. Returns when all is done, or nothing can go on.
    ///
    /// Tenants get their requests through `tenants`; their answers, and word of tenants that go away or free handles,
    /// come through `replies`.
    pub fn exchange(&mut self, plan: Plan, tenants: &mut dyn Tenants, replies: &Receiver<Reply>) -> Outcome {
        let _held_back = self.arena().hold_back();
        self.end_given_up(tenants);
        let mut run = Run::new(self, plan, tenants);
        run.drive(replies);
        run.account();
        let Run { mut outcome, meter, .. } = run;
        outcome.times = meter.end(self.clock.now());
        self.give_back_reserved();
        outcome.short_bytes = std::mem::take(&mut self.short_bytes);
        (outcome.audit_errors, outcome.compared_bytes) = self.take_audited();
        outcome
    }
}

/// What a tenant was asked for.
#[derive(Debug)]
enum Asked {
    Unmap,
    /// To unmap, and it has: our import is to be dropped.
    Release,
    Create,
    /// To take memory that is filled.
    Take,
    /// To unmap memory that could not be filled, for this reason.
    BackOut(MoveError),
}

/// Where a handle of a plan is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Out,
    In,
}

struct Run<'a, D: Device> {
    mover: &'a mut Mover<D>,
    tenants: &'a mut dyn Tenants,
    /// All of the plan that can be moved.
    planned: BTreeMap<HandleKey, Way>,
    /// Not started yet, in order.
    waiting_out: VecDeque<HandleKey>,
    waiting_in: VecDeque<HandleKey>,
    /// Being hashed before their copy out, in order.
    hashing: VecDeque<HandleKey>,
    /// Copies under way, in order, those out with the number of their pieces.
    copying_out: VecDeque<(HandleKey, usize)>,
    copying_in: VecDeque<HandleKey>,
    /// Copied out, or not to be filled: to be unmapped by the tenant.
    to_unmap: Vec<HandleKey>,
    /// Filled, in memory that another tenant had: to be taken by the tenant.
    to_take: Vec<HandleKey>,
    /// Waiting for the tenant's answer, or for us to act on it.
    asked: BTreeMap<HandleKey, Asked>,
    /// Unmapped by their tenants: our imports are to be dropped, in order. Each is in `asked`, too.
    to_release: VecDeque<HandleKey>,
    /// The same, but their memory may become another's.
    to_pass: VecDeque<HandleKey>,
    /// Going to the cellar, to make space.
    sinking: Vec<HandleKey>,
    /// Coming from the cellar. Each is in `waiting_in`, too.
    fetching: Vec<HandleKey>,
    /// Something waits for arena space: so much of it.
    lacking_bytes: u64,
    /// Arena space that is left to what is to be fetched.
    passage_bytes: u64,
    /// The largest handle that is known, where there is a cellar.
    largest_bytes: u64,
    /// What was fetched before it had room on the device.
    fetched_early: BTreeSet<HandleKey>,
    /// The arena has had space for all so far.
    has_space: bool,
    /// Why nothing more goes to the cellar in this exchange.
    cellar_trouble: Option<String>,
    /// Freed by their tenants while they were on the device: their bytes become room.
    freed_on_device: BTreeSet<HandleKey>,
    /// The size of all that is to go out, and to come in.
    planned_bytes: [u64; 2],
    room_bytes: u64,
    deadline: Duration,
    start: Duration,
    meter: Meter,
    outcome: Outcome,
}

impl<'a, D: Device> Run<'a, D> {
    fn new(mover: &'a mut Mover<D>, plan: Plan, tenants: &'a mut dyn Tenants) -> Run<'a, D> {
        mover.note_turn(&plan.out, &plan.into);
        let mut outcome = Outcome::default();
        let mut seen = BTreeSet::new();
        let mut admit = |keys: Vec<HandleKey>, check: &dyn Fn(HandleKey) -> Result<(), MoveError>| {
            let mut admitted = VecDeque::new();
            for key in keys {
                if !seen.insert(key) {
                    tracing::warn!(%key, "twice in one plan");
                    continue;
                }
                match check(key) {
                    Ok(()) => admitted.push_back(key),
                    Err(error) => outcome.failed.push((key, error)),
                }
            }
            admitted
        };
        let waiting_out = admit(plan.out, &|key| mover.check_out(key));
        let waiting_in = admit(plan.into, &|key| mover.check_in(key));
        // Freed after the plan was made: its room is there without a move.
        let mut room_bytes = plan.room_bytes;
        let is_freed = |(key, error): &mut (HandleKey, MoveError)| {
            let bytes = (*error == MoveError::Unknown).then(|| mover.take_freed(*key)).flatten();
            room_bytes += bytes.unwrap_or(0);
            bytes.is_some()
        };
        let freed = outcome.failed.extract_if(.., is_freed).map(|(key, _)| key);
        outcome.freed.extend(freed);
        // Of an exchange that was given up. Nobody else looks at it.
        let (sinking, fetching) = mover.between();
        let start = mover.clock.now();
        let bytes_of = |keys: &VecDeque<HandleKey>| keys.iter().map(|&key| mover.bytes_of(key)).sum();
        let largest_bytes = if mover.arena().has_cellar() { mover.largest_bytes() } else { 0 };
        let planned_bytes = [bytes_of(&waiting_out), bytes_of(&waiting_in)];
        let out = waiting_out.iter().map(|&key| (key, Way::Out));
        let planned = out.chain(waiting_in.iter().map(|&key| (key, Way::In))).collect();
        Run {
            mover,
            tenants,
            planned,
            waiting_out,
            waiting_in,
            hashing: VecDeque::new(),
            copying_out: VecDeque::new(),
            copying_in: VecDeque::new(),
            to_unmap: Vec::new(),
            to_take: Vec::new(),
            asked: BTreeMap::new(),
            to_release: VecDeque::new(),
            to_pass: VecDeque::new(),
            sinking,
            fetching,
            lacking_bytes: 0,
            passage_bytes: 0,
            largest_bytes,
            fetched_early: BTreeSet::new(),
            has_space: true,
            cellar_trouble: None,
            freed_on_device: BTreeSet::new(),
            planned_bytes,
            room_bytes,
            deadline: plan.deadline,
            start,
            meter: Meter::new(start),
            outcome,
        }
    }

    fn drive(&mut self, replies: &Receiver<Reply>) {
        let mut idleness = Idleness::new(self.deadline, self.start);
        loop {
            let mut progress = false;
            for reply in replies.try_iter().take(REPLIES_PER_ROUND_MAX) {
                progress |= self.hear(reply);
            }
            progress |= self.look_at_copies();
            progress |= self.look_at_cellar();
            progress |= self.metered(Chore::Pass, Run::pass_unmapped);
            progress |= self.ask_takes();
            progress |= self.ask_unmaps();
            self.meter_lanes();
            progress |= self.metered(Chore::Release, Run::release_next);
            progress |= self.fetch();
            progress |= self.ask_creates();
            self.meter_lanes();
            progress |= self.metered(Chore::Start, Run::start_copies_out);
            progress |= self.make_space();
            self.meter_lanes();
            if self.is_done() {
                return;
            }
            if !progress && !self.is_under_way() {
                // Out of order is better than not at all.
                progress = self.start_any_out(Self::leaves_passage)
                    || self.ask_any_create()
                    || self.fetch_early()
                    || self.start_any_out(|_, _| true)
                    || self.sink_what_is_wanted();
                let arena = self.mover.arena();
                // Other movers may be about to give space back.
                let may_get_space = !self.waiting_out.is_empty() && (arena.may_grow() || arena.is_shared());
                if !progress && !may_get_space {
                    return self.give_up(None);
                }
            }
            let now = self.mover.clock.now();
            if progress {
                idleness.moved(now);
                continue;
            }
            if let Some(idle) = idleness.look(now) {
                return self.give_up(Some(idle));
            }
            if let Some(reply) = self.mover.clock.wait(replies)
                && self.hear(reply)
            {
                idleness.moved(self.mover.clock.now());
            }
        }
    }

    /// Takes what a tenant says. Whether that changed anything here: what others say meanwhile is no reason to wait longer for
    /// one that says nothing.
    fn hear(&mut self, reply: Reply) -> bool {
        let before = self.stage();
        self.take(reply);
        self.stage() != before
    }

    /// How far all of it is, so that two of these differ if a handle of the plan is a step further.
    fn stage(&self) -> [u64; 11] {
        let lists = [
            self.waiting_out.len(),
            self.waiting_in.len(),
            self.hashing.len(),
            self.copying_out.len(),
            self.copying_in.len(),
            self.to_unmap.len(),
            self.to_take.len(),
            self.to_release.len() + self.to_pass.len(),
            self.asked.len(),
            self.outcome.gone.len(),
        ];
        let mut stage = [self.room_bytes; 11];
        stage.iter_mut().zip(lists).for_each(|(to, length)| *to = length as u64);
        stage
    }

    /// Since the exchange began.
    fn elapsed(&self) -> Duration {
        self.mover.clock.now().saturating_sub(self.start)
    }

    fn is_under_way(&self) -> bool {
        !(self.hashing.is_empty()
            && self.copying_out.is_empty()
            && self.copying_in.is_empty()
            && self.to_unmap.is_empty()
            && self.to_take.is_empty()
            && self.sinking.is_empty()
            && self.fetching.is_empty()
            && self.asked.is_empty())
            || self.mover.has_graves()
    }

    fn is_done(&self) -> bool {
        self.waiting_out.is_empty() && self.waiting_in.is_empty() && !self.is_under_way()
    }

    /// Looks at the oldest of each lane, and goes on with what has ended.
    fn look_at_copies(&mut self) -> bool {
        let mut progress = self.mover.passed_waypoint();
        let (mut copied_out, mut copied_in) = (Vec::new(), Vec::new());
        let copied = [!self.copying_out.is_empty(), !self.copying_in.is_empty()];
        while let Some(&key) = self.hashing.front() {
            match self.mover.look_hash(key) {
                HashState::UnderWay => break,
                HashState::Copying(pieces) => self.copying_out.push_back((key, pieces)),
                HashState::Done => copied_out.push(key),
                HashState::Failed(error) => self.outcome.failed.push((key, error)),
                HashState::None => {}
            }
            self.hashing.pop_front();
            progress = true;
        }
        while let Some(&(key, _)) = self.copying_out.front() {
            match self.mover.look_out(key) {
                CopyState::UnderWay => break,
                CopyState::Done => copied_out.push(key),
                CopyState::Failed(error) => self.outcome.failed.push((key, error)),
                CopyState::None | CopyState::Filled | CopyState::Unfilled(..) => {}
            }
            self.copying_out.pop_front();
            progress = true;
        }
        while let Some(&key) = self.copying_in.front() {
            match self.mover.look_in(key) {
                CopyState::UnderWay => break,
                #[cfg(any(test, feature = "planted"))]
                CopyState::Done | CopyState::Filled if self.mover.planted.has(Bug::LostCompletion) => {}
                CopyState::Done => copied_in.push(key),
                CopyState::Failed(error) => self.back_out(key, error),
                CopyState::Filled => self.to_take.push(key),
                CopyState::Unfilled(error, freed_bytes) => self.not_passed(key, error, freed_bytes),
                CopyState::None => {}
            }
            self.copying_in.pop_front();
            progress = true;
        }
        let dry = [copied[0] && self.copying_out.is_empty(), copied[1] && self.copying_in.is_empty()];
        self.meter.looked(self.mover.clock.now(), dry);
        self.meter_lanes();
        self.metered(Chore::Record, |run| run.record(&copied_out, &copied_in));
        for (key, freed_bytes) in self.mover.reap() {
            if self.freed_on_device.remove(&key) {
                self.room_bytes += freed_bytes;
            }
            progress = true;
        }
        progress
    }

    /// Records what was copied. What is out is to be unmapped, what is in has arrived.
    fn record(&mut self, out: &[HandleKey], into: &[HandleKey]) {
        for (&key, recorded) in out.iter().zip(self.mover.record_out(out)) {
            match recorded {
                Ok(()) => self.to_unmap.push(key),
                Err(error) => self.outcome.failed.push((key, error)),
            }
        }
        for (&key, recorded) in into.iter().zip(self.mover.record_in(into)) {
            match recorded {
                Ok(()) => self.note_in(key),
                Err(error) => self.outcome.failed.push((key, error)),
            }
        }
    }

    /// A handle of which that is recorded is in.
    fn note_in(&mut self, key: HandleKey) {
        self.outcome.bytes_in += self.mover.bytes_of(key);
        self.outcome.moved_in.push(key);
        self.outcome.into.end = self.elapsed();
    }

    /// Drops our import of one handle that its tenant has unmapped: it is out, and its bytes are room now.
    fn release_next(&mut self) -> bool {
        if self.holds_back() {
            return false;
        }
        let Some(key) = self.to_release.pop_front() else { return false };
        self.release(key);
        true
    }

    fn release(&mut self, key: HandleKey) {
        self.note_out(key);
        self.room_bytes += self.mover.unmapped(key).unwrap_or(0);
    }

    /// A handle that its tenant has unmapped is out.
    fn note_out(&mut self, key: HandleKey) {
        self.asked.remove(&key);
        self.outcome.copied_bytes += self.mover.copied_bytes(key);
        self.outcome.bytes_out += self.mover.bytes_of(key);
        self.outcome.moved_out.push(key);
        self.outcome.out.end = self.elapsed();
    }

    /// Ends with what is not done: nothing can start, or nothing has moved for this long.
    fn give_up(&mut self, idle: Option<Duration>) {
        debug_assert!(self.to_take.is_empty(), "each round asks for all of them");
        while let Some(key) = self.to_release.pop_front() {
            self.release(key);
        }
        let next_out = self.waiting_out.front().copied();
        let next_in = self.waiting_in.front().copied();
        if !self.is_under_way() {
            self.outcome.stuck = match (next_out, next_in) {
                (Some(key), _) => Some(self.no_space(key)),
                (None, Some(key)) if self.lacking_bytes > 0 => Some(self.no_space(key)),
                (None, Some(key)) => {
                    Some(Stuck::NoRoom { need_bytes: self.mover.bytes_of(key), room_bytes: self.room_bytes })
                }
                (None, None) => None,
            };
        }
        let after = idle.unwrap_or_default();
        let late = |step| MoveError::Deadline { step, after };
        for key in self.sinking.drain(..) {
            self.mover.stop_sink(key);
        }
        self.fetching.retain(|key| self.waiting_in.contains(key));
        self.waiting_in.retain(|key| !self.fetching.contains(key));
        let failed = &mut self.outcome.failed;
        failed.extend(self.hashing.drain(..).map(|key| (key, late(Step::Hash))));
        failed.extend(self.copying_out.drain(..).map(|(key, _)| (key, late(Step::CopyOut))));
        failed.extend(self.copying_in.drain(..).map(|key| (key, late(Step::CopyIn))));
        failed.extend(self.fetching.drain(..).map(|key| (key, late(Step::Fetch))));
        for (key, asked) in std::mem::take(&mut self.asked) {
            let step = match asked {
                Asked::Unmap | Asked::Release => Step::Unmap,
                Asked::Create => Step::Create,
                Asked::Take => Step::Take,
                Asked::BackOut(_) => Step::BackOut,
            };
            failed.push((key, late(step)));
        }
        let waiting = self.waiting_out.drain(..).chain(self.waiting_in.drain(..));
        failed.extend(waiting.map(|key| (key, MoveError::NotStarted)));
    }
}
