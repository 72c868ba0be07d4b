//! A tenant: how it is held, what it has and what it asks for. Sums are kept beside the parts, so that nothing has to be
//! added up to decide.

use crate::gpu::PutOff;
use crate::habits::Habits;
use crate::hints::Hints;
use crate::homes::Homes;
use crate::host::Hosted;
use crate::lead::Slowest;
use crate::pauses::Pauses;
use crate::policies::Rank;
use crate::way::Place;
use crate::{
    Bytes, GpuId, HandleId, JobId, OpId, Priority, Ratio, RequestId, Scope, Slice, Span, Terms, Time,
};
use std::collections::BTreeMap;

/// How far a tenant has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// At the door.
    Queued,
    /// Its context is counted, and room is being made for it.
    Arriving,
    /// Let in.
    Here,
}

/// How its channels are held. Whoever is not frozen may be running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Grip {
    Thawed,
    Freezing(OpId, Scope),
    /// Its compute channels are off, and the others go: because it has to go, or only when that keeps nobody waiting.
    Widening(OpId, Hurry),
    Frozen(Scope),
    /// With what is still frozen until then.
    Thawing(OpId, Scope),
}

/// Whether somebody waits for the rest of a tenant to be off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Hurry {
    Needed,
    None,
}

impl Grip {
    /// How it is after a freeze or thaw of which nobody knows what became: whoever may run, runs.
    pub(crate) fn given_up(self) -> Self {
        match self {
            Self::Widening(..) => Self::Frozen(Scope::Compute),
            _ => Self::Thawed,
        }
    }
}

/// Where a handle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Spot {
    Device,
    Arena,
    /// Neither here nor there, so counted in both.
    Unsettled,
    /// In the arena. Its tenant was asked for memory and has not answered: should it make some, it is handed back at
    /// once, and meanwhile the room is better used by others.
    Returning,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    pub(crate) spot: Spot,
    /// The mover knows it.
    pub(crate) adopted: bool,
    /// Something that knows no freeze uses it.
    pub(crate) pinned: bool,
    /// The arena has an unchanged copy of it.
    pub(crate) clean: bool,
    /// It could not go out, and is left alone until then.
    pub(crate) stuck_until: Time,
}

impl Held {
    pub(crate) fn can_go(&self, now: Time) -> bool {
        self.spot == Spot::Device && self.adopted && !self.pinned && self.stuck_until <= now
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tenant {
    pub(crate) job: JobId,
    pub(crate) gpu: GpuId,
    pub(crate) phase: Phase,
    pub(crate) arrived: Time,
    pub(crate) residue: Bytes,
    pub(crate) context: bool,
    pub(crate) grip: Grip,
    /// Nobody knows what became of its last freeze or thaw: it may run, or not.
    pub(crate) unsure: bool,
    /// The slice it has, as far as is known.
    pub(crate) slice: Slice,
    /// A change of its slice is under way.
    pub(crate) slicing: Option<OpId>,
    /// No freeze, thaw or slice before then: the last one failed.
    pub(crate) grip_retry: Time,
    /// What it copies is not taken off before then, unless somebody waits for that: it could not be at once.
    pub(crate) rest_retry: Time,
    /// Its slice is not set before then: it was refused. Whether it can be frozen has nothing to do with that.
    pub(crate) slice_retry: Time,

    pub(crate) handles: BTreeMap<HandleId, Held>,
    pub(crate) granted: BTreeMap<RequestId, Bytes>,
    pub(crate) asked: BTreeMap<RequestId, Bytes>,
    /// Sum of what is on the device, the unsettled included.
    pub(crate) resident: Bytes,
    /// Sum of what can never go: pinned, or unknown to the mover.
    pub(crate) fixed: Bytes,
    /// Sum of what is in the arena only.
    pub(crate) away: Bytes,
    pub(crate) unsettled: Bytes,
    /// Sum of what must stay on the device, or come back to it, wherever it is.
    pub(crate) pinned: Bytes,
    /// Of what is away, what its tenant was asked to make room for and has not answered.
    pub(crate) returning: Bytes,
    pub(crate) granted_sum: Bytes,
    pub(crate) asked_sum: Bytes,
    /// What it has in the host's memory.
    pub(crate) hosted: Hosted,
    /// Which of its memory changes, and what changes its home.
    pub(crate) homes: Homes,
    /// The largest handle it ever had, or may have made of a grant.
    pub(crate) piece_max: Bytes,
    /// Part of a move under way.
    pub(crate) moving: bool,

    pub(crate) critical: bool,
    /// What of its job's terms decides about turns, kept here because it is looked at all the time.
    pub(crate) priority: Priority,
    pub(crate) slo: Option<Span>,
    pub(crate) compute_max: Option<Ratio>,
    /// Of a gang, if there are more of it.
    pub(crate) gang: bool,
    /// All it has stays on the device, whoever's turn it is.
    pub(crate) reserved: bool,
    pub(crate) wants: bool,
    pub(crate) paused: bool,
    pub(crate) idle_since: Time,
    /// Since when it waits for its turn, the door or memory.
    pub(crate) since: Time,
    pub(crate) queued_at: Time,
    /// How many turns had begun then.
    pub(crate) queued_behind: u64,
    pub(crate) virtual_time: u64,
    /// The share of its turns in which it has work, and whether anybody measured it.
    pub(crate) busy: Ratio,
    pub(crate) measured: bool,
    pub(crate) turns: u64,
    /// Its turn ended then, and it has not been frozen since: it may still be running.
    pub(crate) stays_since: Option<Time>,
    /// GPU time that it had after the ends of its turns, and has not paid for: its next turn is shorter by that.
    pub(crate) owes: Span,
    /// What it usually does, for forecasts.
    pub(crate) habits: Habits,
    /// What is known of its pauses.
    pub(crate) pauses: Pauses,
    /// It gets no turn before then.
    pub(crate) not_before: Time,
    /// So often in a row nothing could be moved for its turn.
    pub(crate) vain: u8,
    /// What keeps it out of line after the last time.
    pub(crate) put_off_in_vain: Option<PutOff>,
    /// Until then, that is further away than a turn of everybody in line.
    pub(crate) near_from: Time,
    /// It is next, although others have had less.
    pub(crate) preferred: bool,
    /// How long its last turn was.
    pub(crate) ran: Span,
    /// What was left of it when it was cut short: its next one is no longer.
    pub(crate) cut_short: Option<Span>,
    /// Its place in the line for turns, while it is in line.
    pub(crate) in_line: Option<Rank>,
    /// Since when it is in line, while it is among those in line who take turns.
    pub(crate) in_waits: Option<Time>,
    /// Its place in the line of those who make room, while it has something there.
    pub(crate) in_way: Option<Place>,
    pub(crate) hints: Hints,
    /// How long its hinted requests take.
    pub(crate) lasts: Slowest,
    /// It gives way as soon as it has no work.
    pub(crate) gives_way: bool,
}

impl Tenant {
    pub(crate) fn new(job: JobId, gpu: GpuId, residue: Bytes, now: Time) -> Self {
        Self {
            job,
            gpu,
            phase: Phase::Queued,
            arrived: now,
            residue,
            context: false,
            grip: Grip::Frozen(Scope::All),
            unsure: false,
            slice: Slice::Own,
            slicing: None,
            grip_retry: Time::ZERO,
            rest_retry: Time::ZERO,
            slice_retry: Time::ZERO,
            handles: BTreeMap::new(),
            granted: BTreeMap::new(),
            asked: BTreeMap::new(),
            resident: Bytes::ZERO,
            fixed: Bytes::ZERO,
            away: Bytes::ZERO,
            unsettled: Bytes::ZERO,
            pinned: Bytes::ZERO,
            returning: Bytes::ZERO,
            granted_sum: Bytes::ZERO,
            asked_sum: Bytes::ZERO,
            hosted: Hosted::default(),
            homes: Homes::default(),
            piece_max: Bytes::ZERO,
            moving: false,
            critical: false,
            priority: Priority::default(),
            slo: None,
            compute_max: None,
            gang: false,
            reserved: false,
            wants: false,
            paused: false,
            idle_since: now,
            since: now,
            queued_at: now,
            queued_behind: 0,
            virtual_time: 0,
            busy: Ratio::ONE,
            measured: false,
            turns: 0,
            stays_since: None,
            owes: Span::ZERO,
            habits: Habits::default(),
            pauses: Pauses::default(),
            not_before: Time::ZERO,
            vain: 0,
            put_off_in_vain: None,
            near_from: Time::ZERO,
            preferred: false,
            ran: Span::ZERO,
            cut_short: None,
            in_line: None,
            in_waits: None,
            in_way: None,
            hints: Hints::default(),
            lasts: Slowest::default(),
            gives_way: false,
        }
    }

    /// Takes over what matters of its job's terms.
    pub(crate) fn heed(&mut self, terms: &Terms) {
        self.priority = terms.priority;
        self.slo = terms.slo;
        self.compute_max = terms.compute_max;
        self.gang = terms.gang;
        self.reserved = terms.reserve;
    }

    /// All it has, wherever it is, without its context.
    pub(crate) fn whole_bytes(&self) -> Bytes {
        self.resident + self.away + self.granted_sum
    }

    /// What it takes of the device beside its context.
    pub(crate) fn on_device(&self) -> Bytes {
        self.resident + self.granted_sum
    }

    /// Could its channels run something now?
    pub(crate) fn may_run(&self) -> bool {
        self.context && !matches!(self.grip, Grip::Frozen(_) | Grip::Widening(..))
    }

    /// The freeze under way fails: it is tried again then. One that nobody waits for keeps it from nothing else.
    pub(crate) fn not_frozen_before(&mut self, then: Time) {
        match self.grip {
            Grip::Widening(_, Hurry::None) => self.rest_retry = then,
            _ => self.grip_retry = then,
        }
    }

    /// Is all of it off the GPU, its copies too?
    pub(crate) fn is_off(&self) -> bool {
        !self.context || self.grip == Grip::Frozen(Scope::All)
    }

    /// Is every byte of it on the device, with nothing under way?
    pub(crate) fn is_whole(&self) -> bool {
        self.away == Bytes::ZERO && self.unsettled == Bytes::ZERO && !self.moving
    }

    /// Has it anything to do with a turn?
    pub(crate) fn is_active(&self) -> bool {
        self.context && !self.paused && (self.wants || !self.asked.is_empty())
    }

    /// Does not answer, so nothing of it can be moved.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unsettled > Bytes::ZERO || self.returning > Bytes::ZERO
    }

    /// What it was given and the mover does not know yet: it can go once that does, in most cases.
    pub(crate) fn just_given(&self) -> Bytes {
        let is_new = |held: &&Held| held.spot == Spot::Device && !held.adopted && !held.pinned;
        let unknown: Bytes = self.handles.values().filter(is_new).map(|held| held.bytes).sum();
        if self.reserved || !self.context { Bytes::ZERO } else { unknown + self.granted_sum }
    }

    /// What of it could make room for others.
    pub(crate) fn could_go(&self) -> Bytes {
        if self.reserved { Bytes::ZERO } else { self.resident.less(self.fixed) }
    }

    /// What of it is on the device whoever's turn it is, or will be once it is back.
    pub(crate) fn stays(&self) -> Bytes {
        if self.reserved { self.whole_bytes() } else { self.pinned }
    }

    /// Books a handle in, or out.
    fn book(&mut self, held: &Held, add: bool) {
        let enter = |sum: &mut Bytes| {
            if add {
                *sum += held.bytes;
            } else {
                *sum -= held.bytes;
            }
        };
        match held.spot {
            Spot::Device => enter(&mut self.resident),
            Spot::Arena => enter(&mut self.away),
            Spot::Returning => {
                enter(&mut self.away);
                enter(&mut self.returning);
            }
            Spot::Unsettled => {
                enter(&mut self.resident);
                enter(&mut self.unsettled);
            }
        }
        if held.pinned {
            enter(&mut self.pinned);
        }
        if matches!(held.spot, Spot::Device | Spot::Unsettled)
            && (held.pinned || !held.adopted || held.spot == Spot::Unsettled)
        {
            enter(&mut self.fixed);
        }
    }

    pub(crate) fn insert(&mut self, handle: HandleId, held: Held) {
        self.book(&held, true);
        self.handles.insert(handle, held);
    }

    pub(crate) fn remove(&mut self, handle: HandleId) -> Option<Held> {
        let held = self.handles.remove(&handle)?;
        self.book(&held, false);
        Some(held)
    }

    /// Changes a handle and the sums with it. Returns it as it was.
    pub(crate) fn change(&mut self, handle: HandleId, change: impl FnOnce(&mut Held)) -> Option<Held> {
        let before = *self.handles.get(&handle)?;
        let mut after = before;
        change(&mut after);
        self.book(&before, false);
        self.book(&after, true);
        self.handles.insert(handle, after);
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(bytes: u64) -> Held {
        Held {
            bytes: Bytes(bytes),
            spot: Spot::Device,
            adopted: true,
            pinned: false,
            clean: false,
            stuck_until: Time::ZERO,
        }
    }

    #[test]
    fn what_is_pinned_or_unknown_to_the_mover_or_unsettled_makes_no_room() {
        let mut tenant = Tenant::new(JobId(1), GpuId(0), Bytes::ZERO, Time::ZERO);
        tenant.insert(HandleId(1), held(16));
        tenant.insert(HandleId(2), Held { pinned: true, ..held(8) });
        tenant.insert(HandleId(3), Held { adopted: false, ..held(4) });
        tenant.insert(HandleId(4), Held { spot: Spot::Unsettled, ..held(2) });
        tenant.insert(HandleId(5), Held { spot: Spot::Arena, ..held(1) });
        assert_eq!((tenant.resident, tenant.could_go()), (Bytes(30), Bytes(16)));
        tenant.change(HandleId(2), |held| held.pinned = false);
        assert_eq!(tenant.could_go(), Bytes(24));
        tenant.change(HandleId(3), |held| held.adopted = true);
        assert_eq!(tenant.could_go(), Bytes(28));
        tenant.remove(HandleId(1));
        assert_eq!((tenant.resident, tenant.could_go()), (Bytes(14), Bytes(12)));
    }

    #[test]
    fn only_what_the_mover_can_take_now_can_go() {
        let now = Time(100);
        assert!(held(1).can_go(now));
        assert!(Held { stuck_until: now, ..held(1) }.can_go(now));
        assert!(!Held { stuck_until: Time(101), ..held(1) }.can_go(now));
        assert!(!Held { pinned: true, ..held(1) }.can_go(now));
        assert!(!Held { adopted: false, ..held(1) }.can_go(now));
        assert!(!Held { spot: Spot::Arena, ..held(1) }.can_go(now));
    }

    #[test]
    fn whose_freeze_was_given_up_may_run_unless_its_compute_channels_were_off_before() {
        let op = OpId(1);
        assert_eq!(Grip::Freezing(op, Scope::All).given_up(), Grip::Thawed);
        assert_eq!(Grip::Thawing(op, Scope::All).given_up(), Grip::Thawed);
        assert_eq!(Grip::Widening(op, Hurry::None).given_up(), Grip::Frozen(Scope::Compute));
    }
}
