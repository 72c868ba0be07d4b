//! One GPU: its books, its line of tenants and the turn that is on.

use crate::guarantee::Guarantee;
use crate::lead::Lead;
use crate::load::Load;
use crate::policies::Rank;
use crate::release::Thaws;
use crate::way::Places;
use crate::{Bytes, GpuSpec, JobId, OpId, Owned, Span, TenantId, Time, UserId};
use std::collections::{BTreeMap, BTreeSet};

/// The turn that is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Turn {
    pub(crate) tenant: TenantId,
    pub(crate) since: Time,
    pub(crate) until: Time,
    /// GPU time is on the books up to here.
    pub(crate) charged: Time,
    /// What of the turn was had before it began.
    pub(crate) owed: Span,
    /// Its virtual time when it began, and when all of the turn has been used.
    pub(crate) from: u64,
    pub(crate) goal: u64,
}

/// How many waited when a turn began, the most of late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Crowd {
    pub(crate) others: u64,
    /// From then on it does not matter any more.
    pub(crate) until: Time,
}

/// A cost as it was of late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Learnt {
    mean: Span,
    /// The same, but steady: lengths of turns follow it.
    pub(crate) known: Span,
}

impl Learnt {
    /// Learns what it was this time, and was expected to be. What is known follows only when that changed by more than an
    /// eighth.
    pub(crate) fn learn(&mut self, cost: Span, expected: Span) {
        // Quick to see that it costs more, slow to believe that it costs less.
        self.mean = match cost > self.mean {
            true => Span(self.mean.max(expected.min(cost)).0.midpoint(cost.0)),
            false => Span(self.mean.0 - (self.mean.0 - cost.0) / 8),
        };
        if self.mean.0.abs_diff(self.known.0) > self.known.0 / 8 {
            self.known = self.mean;
        }
    }
}

/// What someone who left still has on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Departed {
    bytes: Bytes,
    /// It hung up and lives: nobody knows for how long.
    lingers: bool,
}

/// What a move is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum For {
    /// That somebody has its turn, or that there is room again.
    Turn(Option<TenantId>),
    /// That somebody has more of its memory here by then, when its turn comes.
    Later(TenantId),
}

impl For {
    /// Who waits for it, if somebody does.
    pub(crate) fn whom(self) -> Option<TenantId> {
        match self {
            Self::Turn(whom) => whom,
            Self::Later(_) => None,
        }
    }
}

/// The move that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moving {
    pub(crate) op: OpId,
    pub(crate) out: Vec<(Owned, Bytes)>,
    pub(crate) into: Vec<(Owned, Bytes)>,
    /// Device bytes taken by what comes in.
    pub(crate) landing: Bytes,
    /// What the arena will have more of when it is over.
    pub(crate) to_arena: Bytes,
    pub(crate) purpose: For,
    /// Somebody whom it was about has left.
    pub(crate) bereft: bool,
}

/// Best-effort work is held back for a hinted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(crate) tenant: TenantId,
    /// When it begins.
    pub(crate) from: Time,
    /// When the request should come.
    pub(crate) expect: Time,
    /// When it ends if nothing comes.
    pub(crate) until: Time,
    /// The request is there, since then.
    pub(crate) came: Option<Time>,
    /// From then on it holds back nobody, although the request is served.
    pub(crate) release: Option<Time>,
    /// Its time has come.
    pub(crate) begun: bool,
    /// Best-effort work was off in time.
    pub(crate) honoured: bool,
}

impl Hold {
    /// Is best-effort work let go, though its request may still be served?
    pub(crate) fn is_released(&self, now: Time) -> bool {
        self.release.is_some_and(|release| release <= now)
    }
}

/// Who gets no room on a GPU now, because services keep their memory there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NoRoom {
    pub(crate) put_off: BTreeMap<TenantId, PutOff>,
    /// Those services.
    pub(crate) keepers: BTreeSet<TenantId>,
}

/// One that is tried again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PutOff {
    pub(crate) until: Time,
    /// It was kept out until then anyway, by its cap.
    pub(crate) capped_until: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gpu {
    pub(crate) spec: GpuSpec,
    pub(crate) unmanaged: Bytes,
    /// Programs outside of rota may compute here.
    pub(crate) strangers: bool,
    /// Contexts of all who are let in.
    pub(crate) residues: Bytes,
    /// What tenants hold on the device beside their contexts, grants included.
    pub(crate) held: Bytes,
    /// Of it, what cannot be moved off.
    pub(crate) fixed: Bytes,
    /// What tenants have in the arena.
    pub(crate) away: Bytes,
    /// What must stay on the device, or come back to it: pinned handles, and all that reserved tenants have.
    pub(crate) pinned: Bytes,
    /// What tenants ask for.
    pub(crate) asked: Bytes,
    departed: BTreeMap<TenantId, Departed>,
    /// Sums of what they hold: those who are dying, and those who linger.
    dying: Bytes,
    lingering: Bytes,
    /// Sizes of everybody, to know the largest.
    pub(crate) sizes: BTreeSet<(Bytes, TenantId)>,
    /// The same without what is pinned: whoever runs needs its own, beside all that is pinned.
    pub(crate) loose: BTreeSet<(Bytes, TenantId)>,
    /// The largest piece of everybody: so much has to find a place for anything to move.
    pub(crate) pieces: BTreeSet<(Bytes, TenantId)>,
    /// Tenants that are let in or on their way in.
    pub(crate) tenants: u32,
    /// Of them, those that want turns.
    pub(crate) active: u32,
    /// For each user the weights of the jobs that want turns.
    pub(crate) users: BTreeMap<UserId, u64>,

    /// Those at the door, the first first.
    pub(crate) door: BTreeSet<(u8, Time, TenantId)>,
    /// Those whose context is counted and for whom room is being made.
    pub(crate) arriving: BTreeSet<TenantId>,
    /// Those who ask for memory.
    pub(crate) asking: BTreeSet<TenantId>,
    /// The line for turns.
    pub(crate) line: BTreeSet<(Rank, TenantId)>,
    /// Those in the line who take turns, whoever has waited longest first.
    pub(crate) waits: BTreeSet<(Time, TenantId)>,
    /// Those who have something on the device that could go.
    pub(crate) way: Places,
    /// Those who may be running something.
    pub(crate) running: BTreeSet<TenantId>,
    /// Of them, those who are thawed and have something to do with it.
    pub(crate) awake: BTreeSet<TenantId>,
    /// Of them, those who are thawed and idle.
    pub(crate) dozing: BTreeSet<TenantId>,
    /// Those of whom only the compute channels are frozen.
    pub(crate) partly: BTreeSet<TenantId>,
    /// Those of whom the rest is being frozen.
    pub(crate) widening: BTreeSet<TenantId>,

    pub(crate) turn: Option<Turn>,
    /// Whose turn comes as soon as it is ready.
    pub(crate) incoming: Option<TenantId>,
    /// Who runs beside the owner of the turn, and since when.
    pub(crate) filler: Option<(TenantId, Time)>,
    pub(crate) moving: Option<Moving>,
    /// Whose memory changes its home, or is about to.
    pub(crate) homing: Option<TenantId>,
    /// The last move was given up: no other one before this inspection has said what became of it.
    pub(crate) looking: Option<OpId>,
    /// Those who have to go off because their memory is needed.
    pub(crate) leaving: BTreeSet<TenantId>,
    /// Those for whom services leave no room.
    pub(crate) no_room: NoRoom,
    /// No move before then: the last one failed.
    pub(crate) move_retry: Time,
    /// Nothing is fetched ahead before then: the last time it failed.
    pub(crate) ahead_retry: Time,
    /// Since when nothing can move because the arena is full.
    pub(crate) starved_since: Option<Time>,
    /// Since when a move waits for what the dead held.
    pub(crate) burials_since: Option<Time>,
    /// Since when a turn waits for memory that others were just given, and that could make room for it.
    pub(crate) making_since: Option<Time>,
    /// What the switch under way has cost so far.
    pub(crate) switch_cost: Option<Span>,
    /// What was fetched ahead of it, while somebody else ran, took so long.
    pub(crate) ahead_cost: Span,
    /// What it was expected to cost.
    pub(crate) expected_cost: Span,
    /// What switches cost of late: for so long nobody computed.
    pub(crate) switching: Learnt,
    /// The same with all that was moved ahead of them: turns are made to be worth it.
    pub(crate) moving_in_all: Learnt,
    /// How many turns have begun.
    pub(crate) turns: u64,
    /// How many waited of late: turns are short enough for all of them.
    pub(crate) crowd: Crowd,
    /// Somebody left: until then those who wait come in the order in which they wait.
    pub(crate) parted_until: Time,
    /// When the next handle that could not go out may be tried again.
    pub(crate) stuck_until: Time,
    /// The virtual time of the last one whose turn began: the present, for newcomers.
    pub(crate) present: u64,

    /// Latency-critical tenants.
    pub(crate) critical: BTreeSet<TenantId>,
    /// Those of them with work.
    pub(crate) critical_wanting: u32,
    /// Latency-critical mode lasts until then at least.
    pub(crate) critical_until: Time,
    /// Latency-critical mode is on.
    pub(crate) critical_mode: bool,
    /// Hinted requests for which best-effort work is held back, or will be.
    pub(crate) holds: Vec<Hold>,
    /// How long ahead of its request one begins.
    pub(crate) lead: Lead,
    /// How soon best-effort work is back.
    pub(crate) thaws: Thaws,
    /// Since when best-effort work is held back.
    pub(crate) held_since: Option<Time>,
    /// A request is pressed for time: best-effort work is off for it until then.
    pub(crate) pressed_until: Time,
    /// The context of whoever hinted has been loaded.
    pub(crate) warmed: bool,
    pub(crate) guarantee: Guarantee,
    /// How long somebody latency-critical had requests of late, as far as they are busy enough for that to matter.
    pub(crate) load: Load,
    pub(crate) load_since: Option<Time>,
    /// They leave best-effort work less than its guarantee.
    pub(crate) crowded: bool,

    /// The gang that has this GPU, or will have it once it has the others.
    pub(crate) held_by: Option<JobId>,
    /// Gangs that want it next.
    pub(crate) gangs_waiting: BTreeSet<JobId>,

    /// How long tenants stay, for forecasts.
    pub(crate) stay: Span,
    /// When to look again.
    pub(crate) wake: Option<Time>,
}

impl Gpu {
    pub(crate) fn new(spec: GpuSpec) -> Self {
        Self {
            spec,
            unmanaged: Bytes::ZERO,
            strangers: false,
            residues: Bytes::ZERO,
            held: Bytes::ZERO,
            fixed: Bytes::ZERO,
            away: Bytes::ZERO,
            pinned: Bytes::ZERO,
            asked: Bytes::ZERO,
            departed: BTreeMap::new(),
            dying: Bytes::ZERO,
            lingering: Bytes::ZERO,
            sizes: BTreeSet::new(),
            loose: BTreeSet::new(),
            pieces: BTreeSet::new(),
            tenants: 0,
            active: 0,
            users: BTreeMap::new(),
            door: BTreeSet::new(),
            arriving: BTreeSet::new(),
            asking: BTreeSet::new(),
            line: BTreeSet::new(),
            waits: BTreeSet::new(),
            way: Places::default(),
            running: BTreeSet::new(),
            awake: BTreeSet::new(),
            dozing: BTreeSet::new(),
            partly: BTreeSet::new(),
            widening: BTreeSet::new(),
            turn: None,
            incoming: None,
            filler: None,
            moving: None,
            homing: None,
            looking: None,
            leaving: BTreeSet::new(),
            no_room: NoRoom::default(),
            move_retry: Time::ZERO,
            ahead_retry: Time::ZERO,
            starved_since: None,
            burials_since: None,
            making_since: None,
            switch_cost: None,
            ahead_cost: Span::ZERO,
            expected_cost: Span::ZERO,
            switching: Learnt::default(),
            moving_in_all: Learnt::default(),
            turns: 0,
            crowd: Crowd::default(),
            parted_until: Time::ZERO,
            stuck_until: Time::ZERO,
            present: 0,
            critical: BTreeSet::new(),
            critical_wanting: 0,
            critical_until: Time::ZERO,
            critical_mode: false,
            holds: Vec::new(),
            lead: Lead::default(),
            thaws: Thaws::default(),
            held_since: None,
            pressed_until: Time::ZERO,
            warmed: false,
            guarantee: Guarantee::default(),
            load: Load::default(),
            load_since: None,
            crowded: false,
            held_by: None,
            gangs_waiting: BTreeSet::new(),
            stay: Span::ZERO,
            wake: None,
        }
    }

    /// What handles and grants may take: the rest is for contexts, for others, and for those who hung up and live.
    pub(crate) fn usable(&self, headroom: Bytes) -> Bytes {
        let taken = self.spec.reserve + headroom + self.unmanaged + self.residues + self.lingering;
        self.spec.capacity.less(taken)
    }

    /// Everything that is taken of the device: by tenants, by what comes in, by others, by the dead, and what is kept.
    fn all_taken(&self, headroom: Bytes) -> Bytes {
        let kept = self.spec.reserve + headroom + self.unmanaged + self.residues;
        kept + self.lingering + self.taken()
    }

    /// What could be given out now.
    pub(crate) fn room(&self, headroom: Bytes) -> Bytes {
        self.spec.capacity.less(self.all_taken(headroom))
    }

    /// How much would have to go for so much more.
    pub(crate) fn short_of(&self, more: Bytes, headroom: Bytes) -> Bytes {
        (self.all_taken(headroom) + more).less(self.spec.capacity)
    }

    /// What is taken of it: handles and grants, what comes in, and what the dying still hold for a moment.
    pub(crate) fn taken(&self) -> Bytes {
        let landing = self.moving.as_ref().map_or(Bytes::ZERO, |moving| moving.landing);
        self.held + landing + self.dying
    }

    /// Someone left, and its bytes are not free yet.
    pub(crate) fn depart(&mut self, id: TenantId, bytes: Bytes) {
        self.departed.insert(id, Departed { bytes, lingers: false });
        self.dying += bytes;
    }

    /// Someone who left lives. False if nobody of that name left.
    pub(crate) fn linger(&mut self, id: TenantId) -> bool {
        let Some(departed) = self.departed.get_mut(&id) else { return false };
        if !std::mem::replace(&mut departed.lingers, true) {
            self.dying -= departed.bytes;
            self.lingering += departed.bytes;
        }
        true
    }

    /// What someone who left had is free. False if nobody of that name left.
    pub(crate) fn bury(&mut self, id: TenantId) -> bool {
        let Some(departed) = self.departed.remove(&id) else { return false };
        if departed.lingers {
            self.lingering -= departed.bytes;
        } else {
            self.dying -= departed.bytes;
        }
        true
    }

    /// Has somebody left whose memory is not free yet?
    pub(crate) fn has_departed(&self, id: TenantId) -> bool {
        self.departed.contains_key(&id)
    }

    /// Those who left and whose memory will be free in a moment.
    pub(crate) fn dying_ones(&self) -> impl Iterator<Item = TenantId> {
        self.departed.iter().filter(|(_, departed)| !departed.lingers).map(|(&id, _)| id)
    }

    /// What those who left still hold.
    pub(crate) fn departed(&self) -> Bytes {
        self.dying + self.lingering
    }

    /// What others have who may leave at any time: programs outside of rota, and those who hung up and live.
    pub(crate) fn foreign(&self) -> Bytes {
        self.unmanaged + self.lingering
    }

    /// May somebody compute here whom nobody can freeze or give a slice: a program outside of rota, or one that hung up?
    pub(crate) fn has_strangers(&self) -> bool {
        self.strangers || self.lingering > Bytes::ZERO
    }

    /// Is somebody dying whose memory will be free in a moment?
    pub(crate) fn burials_pending(&self) -> bool {
        self.dying > Bytes::ZERO
    }

    /// All that tenants have here, on the device and away.
    pub(crate) fn everything(&self) -> Bytes {
        self.held + self.away
    }

    /// The most that has to be on the device at once: the largest tenant, and what others have pinned.
    pub(crate) fn largest(&self) -> Bytes {
        self.pinned + self.loose.last().map_or(Bytes::ZERO, |&(bytes, _)| bytes)
    }

    /// The same for all but one.
    pub(crate) fn largest_without(&self, id: TenantId) -> Bytes {
        let largest = self.loose.iter().rev().find(|&&(_, other)| other != id);
        self.pinned + largest.map_or(Bytes::ZERO, |&(bytes, _)| bytes)
    }
}
