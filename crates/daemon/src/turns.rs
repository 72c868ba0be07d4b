//! Who has the GPU: turns in round robin, as a pure state machine.
//!
//! [`Turns::step`] takes the time and an [`Event`] and returns [`Action`]s. No clock, no I/O, no threads: the daemon
//! executes the actions and reports back. One rule is fixed here: everybody who has a context gets turns of the same
//! length, one after the other, and when the next one's memory does not fit, those whose own turn is furthest away
//! make room with just enough handles.
//!
//! What always holds, and is checked in `turns/tests.rs`: bytes on the device never exceed what is usable; only a
//! tenant whose every byte is on the device is thawed; at most one [`Shift`] is under way.

mod ledger;
mod member;
mod messages;
#[cfg(test)]
mod tests;

use ledger::Ledger;
use member::Member;
pub use messages::{Action, Described, Event, Owned, Rules, Shift, Shifted};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::{GrantId, SizedHandle, TenantId, TenantState};

/// Time since the daemon began.
pub type Now = Duration;

/// How long something that went wrong is not tried again, so that a lasting fault does not spin.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How long a handle that could not go out is left alone: its tenant is stopped, most likely.
const STUCK_FOR: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
struct Running {
    tenant: TenantId,
    since: Now,
    until: Now,
}

/// The state.
#[derive(Debug)]
pub struct Turns {
    rules: Rules,
    ledger: Ledger,
    running: Option<Running>,
    /// Whose turn was the last one, also when it is gone: the ring goes on behind it.
    last: TenantId,
    /// The shift under way.
    shift: Option<Shift>,
    /// No shift before this.
    retry_at: Now,
    stepped_at: Now,
    random: u64,
}

impl Turns {
    /// Nobody is there yet.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            ledger: Ledger::new(&rules),
            running: None,
            last: TenantId(0),
            shift: None,
            retry_at: Duration::ZERO,
            stepped_at: Duration::ZERO,
            random: rules.seed,
        }
    }

    /// Takes in what happened and says what to do.
    pub fn step(&mut self, now: Now, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.stepped_at = now;
        match event {
            Event::Joined(tenant) => self.ledger.join(tenant, now),
            Event::Context { tenant, present } => self.ledger.set_context(tenant, present, now),
            Event::Grow { tenant, grant, bytes } => {
                if let Err(reason) = self.ledger.ask(tenant, grant, bytes) {
                    actions.push(Action::Deny { tenant, grant, reason });
                }
            }
            Event::Adopted { tenant, handle, movable } => self.ledger.adopted(tenant, handle, movable),
            Event::Arena(bytes) => self.ledger.set_arena(bytes),
            Event::Returned { tenant, grant } => self.ledger.returned(tenant, grant),
            Event::Freed(handles) => self.ledger.freed(&handles),
            Event::Shifted(shifted) => self.shifted(now, shifted),
            Event::Left(tenant) => self.ledger.leave(tenant),
            Event::Lingers(tenant) => self.ledger.linger(tenant),
            Event::Buried(tenant) => self.ledger.bury(tenant),
            Event::Tick => {}
        }
        if self.running.is_some_and(|running| !self.ledger.ring().contains(&running.tenant)) {
            // It left, or gave up its context: there is nothing to run.
            self.running = None;
        }
        // What a shift under way brings in has its room already.
        let spoken_for = self.shift.as_ref().map_or(0, |shift| self.ledger.bytes_of(&shift.into));
        actions.extend(self.ledger.welcome_who_fits(spoken_for).into_iter().map(Action::Welcome));
        let runner = self.running.map(|running| running.tenant);
        let granted = self.ledger.grant_what_fits(runner, spoken_for);
        actions.extend(granted.into_iter().map(|(tenant, grant)| Action::Grant { tenant, grant }));
        if self.shift.is_none()
            && let Some(shift) = self.next_shift(now)
        {
            self.shift = Some(shift.clone());
            actions.push(Action::Shift(shift));
        }
        self.ledger.check();
        actions
    }

    /// A tenant says that it used a grant for this handle. Believed only if that is so.
    pub fn claim(
        &mut self,
        tenant: TenantId,
        grant: GrantId,
        handle: SizedHandle,
    ) -> Result<(), &'static str> {
        self.ledger.claim(tenant, grant, handle)
    }

    /// When [`Event::Tick`] is due, if nothing else happens before.
    pub fn wake_at(&self) -> Option<Now> {
        if self.shift.is_some() {
            return None;
        }
        let runner = self.running.map(|running| running.tenant);
        let others = self.ledger.ring().into_iter().filter(|&tenant| Some(tenant) != runner);
        let someone_at = others.filter_map(|tenant| Some(self.ledger.member(tenant)?.not_before)).min();
        let turn_at = someone_at.map(|at| at.max(self.running.map_or(Now::ZERO, |running| running.until)));
        let due = [
            turn_at.map(|at| at.max(self.retry_at)),
            Some(self.retry_at),
            self.ledger.unstuck_at(self.stepped_at),
        ];
        // What was due at the last step has been looked at there, and waits for something to happen.
        due.into_iter().flatten().filter(|&at| at > self.stepped_at).min()
    }

    /// May one more tenant come, or would its context leave no room for somebody who is there?
    pub fn admits(&self) -> Result<(), String> {
        self.ledger.admits()
    }

    /// How a tenant is, for people.
    pub fn describe(&self, tenant: TenantId, now: Now) -> Option<Described> {
        let member = self.ledger.member(tenant)?;
        let running = self.running.is_some_and(|running| running.tenant == tenant);
        let moving = self
            .shift
            .as_ref()
            .is_some_and(|shift| shift.out.iter().chain(&shift.into).any(|owned| owned.tenant == tenant));
        let state = match () {
            () if moving => TenantState::Moving,
            () if running => TenantState::Running,
            () if !member.takes_turns() => TenantState::Joined,
            () if member.away_bytes() > 0 => TenantState::Away,
            () => TenantState::Frozen,
        };
        let waiting =
            if running || !member.takes_turns() { Now::ZERO } else { now.saturating_sub(member.since) };
        Some(Described {
            state,
            resident_bytes: member.resident_bytes(),
            away_bytes: member.away_bytes(),
            turns: member.turns,
            waiting,
        })
    }

    /// Host memory for what is away, as large as it turned out.
    pub fn arena_bytes(&self) -> u64 {
        self.ledger.arena_bytes()
    }

    /// Bytes that tenants hold on the device, contexts included.
    pub fn used_bytes(&self) -> u64 {
        self.ledger.used_bytes()
    }

    /// How long the present turn has lasted.
    pub fn running_for(&self, tenant: TenantId, now: Now) -> Option<Duration> {
        self.running
            .filter(|running| running.tenant == tenant)
            .map(|running| now.saturating_sub(running.since))
    }

    fn shifted(&mut self, now: Now, done: Shifted) {
        let asked = self.shift.take().expect("a shift ends once");
        self.ledger.apply(&done, now);
        if let Some(running) = self.running
            && done.froze.contains(&running.tenant)
        {
            self.running = None;
        }
        if let Some(tenant) = asked.thaw.filter(|_| done.skipped) {
            // Whoever runs goes on; there may be others to have a turn.
            self.last = tenant;
            self.ledger.postpone(tenant, now + RETRY_AFTER);
            return;
        }
        let still_there = |tenant: &TenantId| self.ledger.member(*tenant).is_some();
        if asked.freeze.iter().any(|tenant| still_there(tenant) && !done.froze.contains(tenant)) {
            // Whoever could not be frozen keeps the GPU that long; nothing else is wrong.
            self.retry_at = now + RETRY_AFTER;
            if let Some(running) = &mut self.running {
                running.until = running.until.max(self.retry_at);
            }
            return;
        }
        let Some(tenant) = asked.thaw else {
            if !asked.out.is_empty() && asked.out.iter().all(|owned| !done.away.contains(owned)) {
                // Room was wanted in the middle of a turn, and none was made.
                self.retry_at = now + RETRY_AFTER;
            }
            return;
        };
        match done.thawed {
            Some(thawed) if still_there(&thawed) => {
                self.last = thawed;
                self.ledger.count_turn(thawed);
                self.running = Some(Running { tenant: thawed, since: now, until: now + self.turn_length() });
            }
            _ => {
                // The one behind it is tried next. If somebody left in the middle, that is the reason, and the same
                // one is tried again without waiting.
                let mut concerned = asked.freeze.iter().chain(asked.out.iter().map(|owned| &owned.tenant));
                if concerned.all(still_there) && still_there(&tenant) {
                    self.last = tenant;
                    self.ledger.postpone(tenant, now + RETRY_AFTER);
                }
            }
        }
    }

    fn next_shift(&self, now: Now) -> Option<Shift> {
        if now < self.retry_at {
            return None;
        }
        let ring = self.ledger.ring();
        let runner = self.running.map(|running| running.tenant);
        let turn_is_over = self.running.is_none_or(|running| now >= running.until);
        let ready = |tenant: &TenantId| self.ledger.member(*tenant).is_some_and(|m| m.not_before <= now);
        let others = behind(&ring, self.last).filter(|&tenant| Some(tenant) != runner);
        let following = others.filter(ready).filter(|_| turn_is_over);
        // The first who could have its turn; if nobody could, whoever runs goes on.
        following.chain(runner).find_map(|next| self.shift_to(now, &ring, next, Some(next) != runner))
    }

    /// The shift that puts `next` on, or keeps it there with the room it asks for. None if there is nothing to do, or if
    /// it could not succeed now.
    fn shift_to(&self, now: Now, ring: &[TenantId], next: TenantId, begins: bool) -> Option<Shift> {
        let freeze: Vec<_> = self.ledger.thawed().filter(|&tenant| tenant != next).collect();
        let member = self.ledger.member(next)?;
        let needed = member.away_bytes() + self.ledger.over_bytes();
        let wanted = needed + member.asked_bytes();
        let room_bytes = self.ledger.room_bytes();
        let out = self.make_room(now, ring, next, wanted.saturating_sub(room_bytes));
        let into: Vec<_> = member.away().map(|handle| Owned { tenant: next, handle }).collect();
        let nothing_to_do = !begins && freeze.is_empty() && out.is_empty();
        // Moving in vain would cost everybody: somebody's memory is stuck, or not adopted yet.
        let in_vain = begins && room_bytes + self.ledger.bytes_of(&out) < needed;
        // What the dead held is free in a moment: better than moving more than would be needed then.
        let too_soon = self.ledger.burials_pending() && wanted > room_bytes;
        if nothing_to_do || in_vain || too_soon {
            return None;
        }
        Some(Shift { freeze, out, into, room_bytes, thaw: begins.then_some(next) })
    }

    /// Handles to move out so that `bytes` become free: of the one whose next turn is furthest away first, which is
    /// the one just before `next` in the ring.
    fn make_room(&self, now: Now, ring: &[TenantId], next: TenantId, bytes: u64) -> Vec<Owned> {
        let start = ring.iter().position(|&tenant| tenant == next).unwrap_or(0);
        let furthest_first = (1..ring.len()).rev().map(|step| ring[(start + step) % ring.len()]);
        let mut out = Vec::new();
        let mut freed = 0;
        for tenant in furthest_first {
            let Some(member) = self.ledger.member(tenant) else { continue };
            for (handle, size) in member.movable(now) {
                if freed >= bytes {
                    return out;
                }
                freed += size;
                out.push(Owned { tenant, handle });
            }
        }
        out
    }

    fn turn_length(&mut self) -> Duration {
        // splitmix64: a stream of its own, so that the same seed gives the same turns.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let unit = (z >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
        self.rules.turn.mul_f64((1.0 + self.rules.turn_jitter * unit).max(0.05))
    }
}

/// The ring from the first one behind `last` round to it.
fn behind(ring: &[TenantId], last: TenantId) -> impl Iterator<Item = TenantId> {
    let (before, after): (Vec<_>, Vec<_>) = ring.iter().partition(|&&tenant| tenant <= last);
    after.into_iter().chain(before)
}

/// Members in the order of their numbers, which is the order in which they came.
type Members = BTreeMap<TenantId, Member>;
