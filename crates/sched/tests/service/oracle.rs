//! Who was not served as it should be.
//!
//! - **Waits**: whoever has work, or waits for memory that there is, gets it within what everybody's turns and switches take.
//! - **Whole lives**: a program takes no longer than what it has to do, times the number of those it shares with, and a round
//!   for each pause in which others could take the GPU.
//! - **Idleness**: nobody has the GPU for nothing while somebody waits, for longer than a switch would take.
//! - **Pauses** in somebody's own turn that are shorter than a switch do not cost it that turn.
//! - **Turns** are not shorter than the shortest. **Moving** takes its share of the time, **forecasts** are not far off, and
//!   **shares** hold, among programs that do the same all the time.

use crate::machine::{FREEZE, Machine, PER_MOVE, PER_SECOND, RESIDUE, THAW};
use crate::program::{Process, Waits};
use sched::{Action, Bytes, GpuId, PolicyKind, Span, TenantId, Time};
use std::collections::BTreeMap;
use std::fmt;

/// Something may take so many times as long as it should.
const SLACK: f64 = 2.5;
/// And so much longer: deaths, contexts and claims take their time.
const GRACE: f64 = 0.5;
/// Shorter pauses are over before anybody sees them.
const SHORT_LEAST: Span = Span::from_millis(3);
/// Steps of a look ahead that says who is next.
const LOOK_AHEAD: usize = 20;
/// Programs that do the same all the time have done so for a while.
pub(crate) const SETTLED: Time = Time(60_000_000_000);

/// Somebody was not served.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Complaint {
    pub(crate) at: Time,
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.3} s: {}", self.kind, self.at.0 as f64 / 1e9, self.text)
    }
}

/// What was seen.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) complaints: Vec<Complaint>,
    /// Programs do the same all the time.
    pub(crate) steady: bool,
    /// The arena may be too small for what is asked for.
    pub(crate) arena: Bytes,
    idle: BTreeMap<GpuId, (Span, bool)>,
    critical: BTreeMap<GpuId, Time>,
    idle_sum: BTreeMap<GpuId, Span>,
    standing: BTreeMap<GpuId, Span>,
    turns: BTreeMap<TenantId, (Time, Time)>,
    worked: BTreeMap<TenantId, Span>,
    /// The shortest that turns should be.
    turn_least: BTreeMap<GpuId, f64>,
    /// Who has what has changed.
    pub(crate) is_stale: bool,
    /// The longest round of each, and the dearest switch.
    rounds: BTreeMap<TenantId, (f64, f64)>,
}

impl Machine {
    fn complain(&mut self, kind: &'static str, text: String) {
        let at = self.now;
        self.note(|| format!("!!!!!! {kind}: {text}"));
        self.watch.complaints.push(Complaint { at, kind, text });
    }

    fn usable(&self, gpu: GpuId) -> Bytes {
        let there = &self.gpus[&gpu];
        let contexts = self.here(gpu).count() as u64;
        there.capacity.less(there.reserve).less(Bytes(RESIDUE.0 * contexts)).less(there.unmanaged)
    }

    fn here(&self, gpu: GpuId) -> impl Iterator<Item = &Process> {
        self.all.values().filter(move |p| p.gpu == gpu && p.context)
    }

    /// What a program has, and what it waits for.
    fn needs(process: &Process) -> Bytes {
        let asked = if let Waits::Memory(_, bytes, _) = process.waits { bytes } else { Bytes::ZERO };
        process.bytes() + asked
    }

    /// What a switch costs, at most.
    fn switch(&self, gpu: GpuId) -> f64 {
        let largest = self.here(gpu).map(Self::needs).max().unwrap_or_default();
        (FREEZE + THAW + PER_MOVE + largest.at(PER_SECOND)).as_secs_f64()
    }

    /// How many turns of others pass between two of a program's.
    fn others(&self, process: &Process) -> f64 {
        let others = || self.here(process.gpu).filter(|other| other.id != process.id);
        let weights: u32 = others().map(|other| other.terms.weight).sum();
        (others().count() as f64).max(f64::from(weights) / f64::from(process.terms.weight))
    }

    fn turn_length(&self, gpu: GpuId) -> f64 {
        let settings = &self.settings;
        let cost = self.switch(gpu);
        let others = self.here(gpu).count().saturating_sub(1).max(1) as f64;
        let by_share = cost * 1.125 * 20.0;
        let by_gap = (settings.gap_max.as_secs_f64() / others).max(cost);
        by_share.min(by_gap).clamp(settings.turn_min.as_secs_f64(), settings.turn_max.as_secs_f64())
    }

    /// How long it takes until everybody else had a turn.
    fn round(&self, process: &Process) -> f64 {
        let cost = self.switch(process.gpu);
        self.others(process) * (self.turn_length(process.gpu) + cost) + cost
    }

    fn wait_max(&self, process: &Process) -> f64 {
        let gangs = process.fellows.iter().filter_map(|id| self.all.get(id));
        let round = gangs.map(|fellow| self.round(fellow)).fold(self.round(process), f64::max);
        let gangs = if self.has_gangs() { 3.0 } else { 1.0 };
        // What was had beside somebody latency-critical, while others could not come, is paid for later.
        let critical = if self.watch.critical.contains_key(&process.gpu) { 8.0 } else { 1.0 };
        let cap = process.terms.compute_max.map_or(0.0, |cap| {
            (self.turn_length(process.gpu) + self.switch(process.gpu)) * 1_000_000.0 / f64::from(cap.0)
        });
        SLACK * (round + cap) * gangs * critical + GRACE
    }

    fn has_gangs(&self) -> bool {
        self.all.values().any(|process| !process.fellows.is_empty())
    }

    fn has_critical(&self, gpu: GpuId) -> bool {
        self.here(gpu).any(Process::critical)
    }

    fn was_critical(&self, gpu: GpuId) -> bool {
        self.watch.critical.get(&gpu).is_some_and(|&at| self.now.since(at) < Span::from_secs(3))
    }

    /// Is there room for a program at all, beside what others have pinned?
    fn is_possible(&self, process: &Process) -> bool {
        let gpu = process.gpu;
        let usable = self.usable(gpu);
        let pinned: Bytes = self.here(gpu).filter(|p| p.id != process.id).map(Process::pinned).sum();
        let all: Bytes = self.here(gpu).map(|p| p.bytes()).sum();
        let needs = Self::needs(process);
        let asks = needs.less(process.bytes());
        let handles = self.here(gpu).flat_map(|p| p.handles.values()).map(|held| held.bytes);
        let largest = handles.max().unwrap_or_default().max(asks);
        let elsewhere: Bytes = self
            .gpus
            .keys()
            .filter(|&&other| other != gpu)
            .map(|&other| self.here(other).map(|p| p.bytes()).sum::<Bytes>().less(self.usable(other)))
            .sum();
        // With the arena nearly full nobody grows.
        let arena = Bytes(self.watch.arena.0 / 10 * 7).less(elsewhere);
        let others = || self.here(gpu).filter(|p| p.id != process.id);
        let loose = others().map(|p| p.bytes().less(p.pinned())).max().unwrap_or_default();
        let reserve_fits = !process.terms.reserve || needs + pinned + loose <= usable;
        needs + pinned <= usable
            && reserve_fits
            && (asks == Bytes::ZERO || all + asks + Bytes(largest.0 * 2) <= usable + arena)
    }

    /// So much time will pass with everything as it is.
    pub(crate) fn watch_pass(&mut self, span: Span) {
        for gpu in self.gpus.keys().copied().collect::<Vec<_>>() {
            self.watch_gpu(gpu, span);
        }
        let now = self.now;
        if std::mem::take(&mut self.watch.is_stale) {
            self.reckon();
        }
        for id in self.all.keys().copied().collect::<Vec<_>>() {
            let process = &self.all[&id];
            if !waits_now(process) {
                self.judge_wait(id);
                continue;
            }
            if process.waits_since.is_none() {
                let steady = self.watch.steady && now > SETTLED && !process.thawed;
                let forecast = if steady { self.core.forecast(id, now) } else { None };
                let most = self.wait_max(process);
                let process = self.process(id);
                (process.waits_since, process.forecast, process.wait_max) = (Some(now), forecast, most);
            }
        }
    }

    /// A wait is over, or all is.
    fn judge_wait(&mut self, id: TenantId) {
        let process = self.process(id);
        let Some(since) = process.waits_since.take() else { return };
        let (most, waits) = (process.wait_max, process.waits);
        let waited = self.now.since(since).as_secs_f64();
        if waited > most {
            let from = since.0 as f64 / 1e9;
            self.complain(
                "wait",
                format!("{id} waited for {waited:.2} s from {from:.2} s, at most {most:.2} s; now {waits:?}"),
            );
        }
    }

    /// What follows from who has what.
    fn reckon(&mut self) {
        for gpu in self.gpus.keys().copied().collect::<Vec<_>>() {
            if self.here(gpu).count() > 1 {
                let length = self.turn_length(gpu);
                let least = self.watch.turn_least.entry(gpu).or_insert(length);
                *least = least.min(length);
            }
        }
        for id in self.all.keys().copied().collect::<Vec<_>>() {
            let process = &self.all[&id];
            if !process.context {
                continue;
            }
            let (round, switch) = (self.round(process), self.switch(process.gpu));
            let (others, most) = (self.others(process), self.wait_max(process));
            let possible = self.is_possible(process);
            let longest = self.watch.rounds.entry(id).or_default();
            *longest = (longest.0.max(round), longest.1.max(switch));
            let process = self.process(id);
            process.others_max = process.others_max.max(others);
            process.wait_max = process.wait_max.max(most);
            process.possible = possible;
            process.disturbed |= !possible;
        }
    }

    fn watch_gpu(&mut self, gpu: GpuId, span: Span) {
        let there = &self.gpus[&gpu];
        let computing = self.computing(gpu) > 0;
        let busy = computing || there.moving || there.grips > 0;
        let standing = !computing && there.moving;
        let counts = |p: &Process| p.fellows.is_empty() && p.terms.compute_max.is_none();
        let waits = self.here(gpu).any(|p| waits_now(p) && !p.thawed && counts(p));
        if standing {
            *self.watch.standing.entry(gpu).or_default() += span;
        }
        if self.has_critical(gpu) {
            self.watch.critical.insert(gpu, self.now);
        }
        let (spell, told) = self.watch.idle.get(&gpu).copied().unwrap_or_default();
        if busy || !waits {
            // A switch that leads to nothing is not the end of it.
            if computing || !waits {
                self.watch.idle.insert(gpu, (Span::ZERO, false));
            }
            return;
        }
        let spell = spell + span;
        *self.watch.idle_sum.entry(gpu).or_default() += span;
        // Services keep their memory for a while after each request.
        let lingers = if self.was_critical(gpu) { self.settings.lc_linger.as_secs_f64() } else { 0.0 };
        let most = self.switch(gpu) * 1.5 + lingers + 0.12;
        let is_long = spell.as_secs_f64() > most;
        self.watch.idle.insert(gpu, (spell, told || is_long));
        if is_long && !told {
            let who: Vec<_> = self.here(gpu).filter(|p| waits_now(p)).map(|p| p.id.0).collect();
            let text = format!("GPU {gpu} idle for {spell}, at most {most:.3} s, while {who:?} wait");
            self.complain("idle", text);
        }
    }

    pub(crate) fn watch_thawed(&mut self, id: TenantId) {
        let now = self.now;
        let process = self.process(id);
        let (since, forecast) = (process.waits_since, process.forecast.take());
        if let (Some(since), Some(forecast)) = (since, forecast) {
            let (was, said) = (now.since(since).as_secs_f64(), forecast.as_secs_f64());
            if was > said * 5.0 + 1.0 {
                self.complain("forecast", format!("{id} was told {said:.2} s and waited {was:.2} s"));
            }
        }
    }

    pub(crate) fn watch_action(&mut self, action: &Action) {
        let now = self.now;
        match *action {
            Action::TurnBegins { tenant, until } => {
                self.watch.turns.insert(tenant, (now, until));
                self.count_lost_turns(tenant);
            }
            Action::TurnEnds { tenant, ran } => {
                let Some((since, until)) = self.watch.turns.remove(&tenant) else { return };
                if now >= until {
                    self.process(tenant).is_short = false;
                }
                let Some(process) = self.all.get(&tenant) else { return };
                let declared = until.since(since);
                let least = Span(declared.min(self.settings.turn_min).0 / 2);
                let undisturbed = process.wants
                    && process.work > Span::ZERO
                    && !process.paused
                    && process.is_alive()
                    && process.fellows.is_empty()
                    && !self.has_gangs()
                    && self.settings.policy == PolicyKind::Fair
                    && !self.has_critical(process.gpu);
                if undisturbed && ran < least {
                    self.complain("turn", format!("{tenant} had {ran} of a turn of {declared}"));
                }
            }
            Action::Move { ref into, .. } => {
                for owned in into {
                    self.process(owned.tenant).fetched_at = now;
                }
            }
            // It spends its own turn on what it gets.
            Action::Grant { tenant, .. } => {
                let gpu = self.all[&tenant].gpu;
                self.watch.idle.insert(gpu, (Span::ZERO, false));
            }
            Action::End { tenant, ref why } => {
                self.complain("end", format!("{tenant} is ended: {why}"));
            }
            _ => {}
        }
        if self.watch.steady && now >= SETTLED && self.watch.worked.is_empty() {
            self.watch.worked = self.all.values().map(|p| (p.id, p.worked)).collect();
        }
    }

    /// A program begins to do something else. May others take the GPU meanwhile?
    pub(crate) fn count_pause(&mut self, id: TenantId, span: Span) {
        let process = &self.all[&id];
        // Or it is about to: it was given what it asked for while it is off, which happens to nobody else in a crowd.
        let has_turn = self.watch.turns.contains_key(&id) || !process.thawed && process.asked_last;
        let next = if has_turn { self.next_cost(process) } else { None };
        let is_watched = process.fellows.is_empty() && !self.was_critical(process.gpu);
        let is_long = next.is_none_or(|cost| span.0 >= cost.0 / 10 * 8);
        let is_short = span >= SHORT_LEAST && next.is_some_and(|cost| span.0 < cost.0 / 2);
        let now = self.now;
        let process = self.process(id);
        process.pauses_since = now;
        process.host += span;
        process.is_short = is_short && is_watched;
        process.short_pauses += u64::from(process.is_short);
        if is_long {
            process.long_pauses += 1;
        } else {
            process.asked += span;
        }
    }

    /// What it costs to put on whoever is next after a program, if somebody waits.
    fn next_cost(&self, process: &Process) -> Option<Span> {
        let waits = |p: &Process| p.id != process.id && waits_now(p);
        if !self.here(process.gpu).any(waits) {
            return None;
        }
        let outlook = self.core.outlook(process.gpu, self.now, LOOK_AHEAD);
        let others = outlook.iter().filter(|&(&other, _)| other != process.id);
        let (next, _) = others.min_by_key(|(_, outlook)| outlook.place.unwrap_or(u32::MAX))?;
        let away = self.all.get(next)?.away();
        let moving = if away == Bytes::ZERO { Span::ZERO } else { PER_MOVE + away.at(PER_SECOND) };
        Some(FREEZE + THAW + moving)
    }

    /// Somebody's turn begins: those who pause for less than that costs, in their own turns, have lost them.
    fn count_lost_turns(&mut self, owner: TenantId) {
        let Process { gpu, fetched_at, .. } = self.all[&owner];
        // To one that came meanwhile, and is all there, it gave way rightly.
        let is_dear = |p: &Process| fetched_at >= p.pauses_since;
        let pausing = |p: &&Process| p.gpu == gpu && p.id != owner && p.is_short && !p.paused && is_dear(p);
        let lost: Vec<_> = self.all.values().filter(pausing).map(|p| p.id).collect();
        for id in lost {
            self.note(|| format!("!! {id} has lost its turn"));
            let process = self.process(id);
            process.is_short = false;
            process.lost_turns += 1;
        }
    }

    fn judge_pauses(&mut self, id: TenantId) {
        let process = &self.all[&id];
        let (short, lost) = (process.short_pauses, process.lost_turns);
        if lost > 2 && lost * 10 > short {
            self.complain("pause", format!("{id} lost its turn in {lost} of {short} short pauses"));
        }
    }

    /// All that was not as it should be.
    pub(crate) fn complaints(&mut self) -> Vec<Complaint> {
        for id in self.all.keys().copied().collect::<Vec<_>>() {
            self.judge_wait(id);
            self.judge_pauses(id);
            self.judge_life(id);
        }
        if self.watch.steady {
            self.judge_shares();
            self.judge_moving();
        }
        std::mem::take(&mut self.watch.complaints)
    }

    /// Was what a program did so far done in time?
    pub(crate) fn judge_life(&mut self, id: TenantId) {
        let process = &self.all[&id];
        let disturbed = self.watch.critical.contains_key(&process.gpu) || self.has_gangs();
        let capped = process.terms.compute_max.is_some();
        if capped
            || process.came == Time::ZERO
            || process.waits == Waits::Door
            || disturbed
            || process.disturbed
        {
            return;
        }
        let ended = process.left.unwrap_or(self.now);
        let took = ended.since(process.came).less(process.was_paused).as_secs_f64();
        let (round, switch) = self.watch.rounds.get(&id).copied().unwrap_or_default();
        let turn = self.watch.turn_least.get(&process.gpu).copied().unwrap_or(1.0);
        let dear = 1.3 * (1.0 + switch / turn);
        let busy = process.asked.as_secs_f64().min(process.worked.as_secs_f64() + process.host.as_secs_f64());
        let rounds = (process.long_pauses + 2) as f64 * round;
        let pieces = process.pieces as f64 * switch * 0.5;
        let most =
            process.host.as_secs_f64() + busy * (1.0 + process.others_max) * dear + rounds * 1.5 + pieces;
        if took > most + 1.0 {
            let text = format!(
                "{id} took {took:.1} s, at most {most:.1} s: worked {}, host {}, {} long pauses, {} pieces, {:.1} others, round {round:.1} s",
                process.worked, process.host, process.long_pauses, process.pieces, process.others_max
            );
            self.complain("life", text);
        }
    }

    fn judge_shares(&mut self) {
        let span = self.ends.since(SETTLED).as_secs_f64();
        for gpu in self.gpus.keys().copied().collect::<Vec<_>>() {
            let here: Vec<_> = self.here(gpu).map(|p| (p.id, p.terms.weight, p.worked)).collect();
            let weights: u32 = here.iter().map(|&(_, weight, _)| weight).sum();
            let did = |id: TenantId, worked: Span| {
                worked.less(self.watch.worked.get(&id).copied().unwrap_or_default()).as_secs_f64()
            };
            let sum: f64 = here.iter().map(|&(id, _, worked)| did(id, worked)).sum();
            let turn = self.turn_length(gpu);
            let mut wrong = Vec::new();
            for &(id, weight, worked) in &here {
                let (share, due) = (did(id, worked), sum * f64::from(weight) / f64::from(weights));
                if (share - due).abs() > due * 0.05 + turn * 2.0 {
                    wrong.push(format!(
                        "{id} had {share:.1} s of {due:.1} s that were its share, turns of {turn:.1} s"
                    ));
                }
            }
            let cost = self.switch(gpu);
            if here.len() > 1 && sum < span * 0.8 * turn / (turn + cost) {
                wrong.push(format!("GPU {gpu} computed for {sum:.1} s of {span:.1} s"));
            }
            wrong.into_iter().for_each(|text| self.complain("share", text));
        }
    }

    fn judge_moving(&mut self) {
        let span = self.ends.since(Time::ZERO).as_secs_f64();
        for (gpu, standing) in self.watch.standing.clone() {
            let share = standing.as_secs_f64() / span;
            let cost = self.switch(gpu);
            // Gaps may leave no choice.
            let most = (cost / (cost + self.turn_length(gpu)) * 1.4).max(0.12);
            if share > most {
                self.complain("moving", format!("GPU {gpu} stood still for {share:.3} of the time"));
            }
        }
    }
}

/// Does a program wait for something that it could get?
fn waits_now(process: &Process) -> bool {
    let asks = matches!(process.waits, Waits::Memory(..));
    process.possible && process.is_eligible() && (!process.thawed || asks)
}
