//! Moves: what they may not do, how long they take, and what comes of them, whole or in part.

use std::collections::BTreeSet;

use sched::{Bytes, OpId, Outcome, Owned, Scope, Span, Time};

use super::Engine;
use super::queue::Happening;
use super::tenant::Spot;
use crate::faults::Mishap;
use crate::record::What;

/// How long somebody that does not answer is silent.
const SILENCE: Span = Span::from_secs(2);

/// A move under way.
pub(super) struct Moving {
    op: OpId,
    pub(super) out: Vec<Owned>,
    into: Vec<Owned>,
    /// What it brings in and takes out.
    pub(super) bytes_in: Bytes,
    pub(super) bytes_out: Bytes,
    /// What of that the arena has no copy of that counts.
    pub(super) stored: Bytes,
    /// Free on the device for it before the first went.
    room: Bytes,
    took: Span,
    pub(super) ends: Time,
    mishap: Mishap,
}

impl Engine<'_> {
    pub(super) fn begin_move(
        &mut self,
        op: OpId,
        gpu: usize,
        out: Vec<Owned>,
        into: Vec<Owned>,
        room: Bytes,
    ) {
        self.require(self.gpus[gpu].moving.is_none(), || format!("a second move on GPU {gpu}"));
        let truth = &self.gpus[gpu];
        let free = truth.gpu.capacity.less(truth.used);
        self.require(room <= free, || {
            format!("a move counts on {room} of room on GPU {gpu}, there is {free}")
        });
        let mut seen = BTreeSet::new();
        let (mut bytes_out, mut bytes_in) = (Bytes::ZERO, Bytes::ZERO);
        let (mut copied_out, mut stored) = (Bytes::ZERO, Bytes::ZERO);
        let mut orphans = false;
        for (owned, from) in
            out.iter().map(|owned| (owned, Spot::Device)).chain(into.iter().map(|owned| (owned, Spot::Arena)))
        {
            let tenant = self.index(owned.tenant);
            self.may_move(tenant, gpu);
            if !self.tenants[tenant].is_alive() {
                orphans = true;
                continue;
            }
            self.require(seen.insert(*owned), || format!("{owned:?} twice in one move"));
            let Some(handle) = self.tenants[tenant].handles.get(&owned.handle) else {
                self.broken(&format!("{owned:?} is not there"));
            };
            self.require(handle.spot == from, || format!("{owned:?} should be {from:?} and is {handle:?}"));
            self.require(handle.adopted, || format!("{owned:?} moves, but the mover does not know it"));
            if from == Spot::Arena {
                bytes_in += handle.bytes;
            } else {
                bytes_out += handle.bytes;
                if !handle.copy {
                    copied_out += handle.bytes;
                }
                if !handle.told {
                    stored += handle.bytes;
                }
            }
        }
        self.require(orphans || bytes_in <= room + bytes_out, || {
            format!("{bytes_in} comes into {room} and {bytes_out}")
        });
        let used = self.arena_used() + self.arena_awaited() + stored.less(bytes_in);
        let arena = self.scenario.arena;
        self.require(stored <= bytes_in || used <= arena, || {
            let (core, _) = self.core.arena();
            let (now, awaited) = (self.arena_used(), self.arena_awaited());
            format!(
                "a move makes {used} in an arena of {arena}: {now} there ({core} for the core), {awaited} awaited, \
                 {stored} out, {bytes_in} in"
            )
        });
        let took = self.moving_time(gpu, copied_out, bytes_in);
        for (owned, what) in out
            .iter()
            .map(|owned| (owned, What::MovedOut))
            .chain(into.iter().map(|owned| (owned, What::MovedIn)))
        {
            let tenant = self.index(owned.tenant);
            self.tenants[tenant].moving = Some(what);
            self.note(tenant);
        }
        let ends = self.now + took;
        let mishap = self.luck.draw();
        self.gpus[gpu].moving =
            Some(Moving { op, out, into, bytes_in, bytes_out, stored, room, took, ends, mishap });
        self.queue.push(ends, Happening::MoveEnds(gpu));
    }

    fn may_move(&self, tenant: usize, gpu: usize) {
        let it = &self.tenants[tenant];
        self.require(!it.left_told, || format!("memory of tenant {tenant} moves, who has left"));
        if !it.is_alive() {
            // Word of its death is on its way.
            return;
        }
        self.require(it.gpu == gpu, || {
            format!("memory of tenant {tenant} moves on GPU {gpu}, it is on {}", it.gpu)
        });
        self.require(it.frozen == Some(Scope::All) && !it.thawing, || {
            format!("memory of tenant {tenant} moves while it is {:?}, thawing {}", it.frozen, it.thawing)
        });
    }

    /// Both ways at once while both go, then the rest alone.
    fn moving_time(&self, gpu: usize, out: Bytes, into: Bytes) -> Span {
        let gpu = self.gpus[gpu].gpu;
        let both = out.min(into);
        let rest = (out - both).at(gpu.out_per_second) + (into - both).at(gpu.in_per_second);
        both.at(gpu.both_per_second) + rest + gpu.physics.per_move
    }

    pub(super) fn move_ends(&mut self, gpu: usize) {
        let Some(moving) = self.gpus[gpu].moving.take() else { return };
        let all: Vec<Owned> = moving.out.iter().chain(&moving.into).copied().collect();
        let mut silent = None;
        for owned in &all {
            let tenant = self.index(owned.tenant);
            self.tenants[tenant].moving = None;
        }
        if moving.mishap == Mishap::Failed {
            // Nothing is done at all, or all but what belongs to one who does not answer.
            if self.luck.coin() {
                self.notes_of(&all);
                self.reply(moving.op, Outcome::Failed, Mishap::None);
                return;
            }
            silent = all.first().map(|owned| owned.tenant).filter(|&id| self.is_there(id));
            if let Some(silent) = silent {
                self.queue.push(self.now + SILENCE, Happening::Answers(self.index(silent)));
            }
        }
        let (ours, unsettled): (Vec<_>, Vec<_>) = all
            .iter()
            .copied()
            .filter(|owned| self.is_there(owned.tenant))
            .partition(|owned| Some(owned.tenant) != silent);
        // With hardly any room on either side the rest stays where it is.
        let mut room = moving.room;
        let moved = self.change_places(&mut room, ours);
        // Whoever is silent was asked to give memory up, or to make some.
        let unsettled: Vec<_> = unsettled
            .into_iter()
            .filter(|&owned| {
                let coming = self.spot(owned) == Some(Spot::Arena);
                self.goes(&mut room, owned, if coming { Spot::Returning } else { Spot::Unsettled })
            })
            .collect();
        let (used, capacity) = (self.gpus[gpu].used, self.gpus[gpu].gpu.capacity);
        self.require(used <= capacity, || format!("after a move {used} on GPU {gpu} of {capacity}"));
        let (used, arena) = (self.arena_used(), self.scenario.arena);
        self.require(used <= arena, || format!("{used} in an arena of {arena}"));
        self.notes_of(&all);
        let (out, into) = moved.into_iter().partition(|owned| moving.out.contains(owned));
        let outcome = Outcome::Moved { out, into, unsettled, took: moving.took };
        let mishap = if moving.mishap == Mishap::Failed { Mishap::None } else { moving.mishap };
        self.reply(moving.op, outcome, mishap);
    }

    /// Lets handles change places, one after the other as there is room, until no more can. Returns those that did.
    fn change_places(&mut self, room: &mut Bytes, handles: Vec<Owned>) -> Vec<Owned> {
        let (mut moved, mut left) = (Vec::new(), handles);
        loop {
            let before = left.len();
            left.retain(|&owned| {
                let spot = match self.spot(owned) {
                    Some(Spot::Device) => Spot::Arena,
                    _ => Spot::Device,
                };
                let goes = self.goes(room, owned, spot);
                if goes {
                    moved.push(owned);
                }
                !goes
            });
            if left.is_empty() || left.len() == before {
                return moved;
            }
        }
    }

    fn spot(&self, owned: Owned) -> Option<Spot> {
        self.tenants[self.index(owned.tenant)].handles.get(&owned.handle).map(|handle| handle.spot)
    }

    /// Puts a handle where it should go, if there is room for it.
    fn goes(&mut self, room: &mut Bytes, owned: Owned, spot: Spot) -> bool {
        let Some(&handle) = self.tenants[self.index(owned.tenant)].handles.get(&owned.handle) else {
            return false;
        };
        let lands = spot.takes_device() && !handle.spot.takes_device();
        let stores = spot != Spot::Device && handle.spot == Spot::Device && !handle.told;
        if lands && handle.bytes > *room {
            return false;
        }
        if stores && self.arena_used() + handle.bytes > self.scenario.arena {
            return false;
        }
        if lands {
            *room -= handle.bytes;
        } else if spot == Spot::Arena {
            *room += handle.bytes;
        }
        // What the arena has an unchanged copy of is only unmapped.
        if spot != Spot::Returning && (lands || !handle.copy) {
            self.record.moved += handle.bytes;
        }
        self.put(owned, spot);
        true
    }

    fn notes_of(&mut self, all: &[Owned]) {
        let tenants: BTreeSet<_> = all.iter().map(|owned| self.index(owned.tenant)).collect();
        tenants.into_iter().for_each(|tenant| self.note(tenant));
    }
}
