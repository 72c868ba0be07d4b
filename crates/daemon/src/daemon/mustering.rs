//! Programs on several GPUs come back as a whole, or not at all.
//!
//! To the core each GPU of such a program is a tenant of its own. Kernels on one may read the memory of another, so nothing of
//! it may move, and nothing of it be thawed, before all of them are back and their channels are known. Until then the core
//! hears of no channels of any of them, and so it leaves all of them as they are.

use super::{Daemon, Input};
use crate::executor::{Switch, SwitchTo};
use sched::{Slice, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long the rest of a program is waited for that runs meanwhile. After that it goes on without rota, with all of it.
const MUSTER_WITHIN: Duration = Duration::from_secs(30);

/// One program. It is kept when all are back: one of them may be let go once more.
#[derive(Debug)]
struct Muster {
    process: keeper::Process,
    sessions: usize,
    members: BTreeMap<TenantId, Member>,
    /// All are back, and the core knows it.
    is_over: bool,
    /// Until then the rest is waited for.
    until: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    /// It has channels, of which it will tell.
    tells: bool,
    /// So many, as it told last.
    channels: Option<usize>,
}

impl Muster {
    fn is_complete(&self) -> bool {
        self.members.len() >= self.sessions
            && self.members.values().all(|member| member.channels.is_some() || !member.tells)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Mustering {
    musters: Vec<Muster>,
    /// Frozen, although all of their own memory is there, because that of a fellow is not. The core takes them for thawed, as
    /// all who are whole; they are, as soon as all of their program is.
    held: BTreeSet<TenantId>,
}

impl Mustering {
    fn with(&mut self, tenant: TenantId) -> Option<&mut Muster> {
        self.musters.iter_mut().find(|muster| muster.members.contains_key(&tenant))
    }

    fn waiting(&mut self) -> impl Iterator<Item = &mut Muster> {
        self.musters.iter_mut().filter(|muster| !muster.is_over)
    }

    /// When to look next.
    pub(super) fn wake_within(&self) -> Option<Duration> {
        let waiting = self.musters.iter().filter(|muster| !muster.is_over);
        Some(waiting.map(|muster| muster.until).min()?.saturating_duration_since(Instant::now()))
    }

    fn is_of_any(&self, tenant: TenantId) -> bool {
        self.musters.iter().any(|muster| muster.members.contains_key(&tenant))
    }

    fn add(&mut self, tenant: TenantId, process: keeper::Process, sessions: usize, tells: bool) {
        let member = Member { tells, channels: None };
        if let Some(muster) = self.musters.iter_mut().find(|muster| muster.process == process) {
            muster.members.insert(tenant, member);
            return;
        }
        if sessions > 1 {
            let (members, until) = ([(tenant, member)].into(), Instant::now() + MUSTER_WITHIN);
            self.musters.push(Muster { process, sessions, members, is_over: false, until });
        }
    }

    /// A tenant told of its channels. Those of all of its program, if that is all; None if it waits for nobody.
    fn told(&mut self, tenant: TenantId, channels: usize) -> Option<Vec<(TenantId, usize)>> {
        let muster = self.with(tenant)?;
        muster.members.get_mut(&tenant)?.channels = Some(channels);
        if muster.is_over { None } else { Some(self.end_if_complete(tenant)) }
    }

    /// What all of a program told, if all that is waited for is there.
    fn end_if_complete(&mut self, tenant: TenantId) -> Vec<(TenantId, usize)> {
        let complete = |muster: &&mut Muster| !muster.is_over && muster.is_complete();
        let Some(muster) = self.with(tenant).filter(complete) else { return Vec::new() };
        muster.is_over = true;
        let members = muster.members.iter();
        members.filter_map(|(&tenant, member)| Some((tenant, member.channels?))).collect()
    }

    /// One that was back is expected again. Those of its program that the core has heard of, who wait for it from now on.
    fn let_go(&mut self, tenant: TenantId) -> Vec<TenantId> {
        let mut fellows = Vec::new();
        if let Some(muster) = self.with(tenant).filter(|muster| muster.is_over) {
            muster.is_over = false;
            muster.until = Instant::now() + MUSTER_WITHIN;
            fellows.extend(muster.members.keys().copied().filter(|&fellow| fellow != tenant));
        }
        self.forget(tenant);
        fellows
    }

    /// The core has a tenant frozen or thawed: from now on it is as the core takes it to be.
    pub(super) fn is_switched(&mut self, tenant: TenantId) {
        self.held.remove(&tenant);
    }

    fn forget(&mut self, tenant: TenantId) {
        self.held.remove(&tenant);
        for muster in &mut self.musters {
            muster.members.remove(&tenant);
        }
        self.musters.retain(|muster| !muster.members.is_empty());
    }
}

impl Daemon {
    /// One of the GPUs of a program that is back.
    pub(super) fn muster(&mut self, tenant: TenantId, process: keeper::Process, sessions: u32, tells: bool) {
        // Those that came to this worker first are here, and tell of their channels as others do.
        let theirs = self.known.iter().filter(|(_, known)| known.link.who.pid == process.pid);
        let beside = theirs.filter(|&(&id, _)| id != tenant && !self.mustering.is_of_any(id)).count();
        self.mustering.add(tenant, process, (sessions as usize).saturating_sub(beside), tells);
        if !self.mustering.is_of_any(tenant) {
            if let Some(job) = self.jobs.of(tenant).filter(|_| beside > 0) {
                self.mind_several(job);
            }
            return;
        }
        // The others may have told of their channels before.
        let all = self.mustering.end_if_complete(tenant);
        self.go_on_together(all);
    }

    /// Somebody is let go who was back, and comes once more: what it has may be away, so the rest of its program stays as it
    /// is until then.
    pub(super) fn muster_again(&mut self, tenant: TenantId) {
        for fellow in self.mustering.let_go(tenant) {
            self.gathering.drop_channels(fellow);
            self.note_channels(fellow, false);
        }
    }

    /// Takes what a tenant tells of its channels, if the rest of its program is waited for.
    pub(super) fn wait_for_fellows(&mut self, input: Input) -> Option<Input> {
        let Input::Channels(tenant, channels) = input else { return Some(input) };
        let Some(all) = self.mustering.told(tenant, channels) else { return Some(input) };
        self.gathered(tenant);
        self.go_on_together(all);
        None
    }

    /// All of a program is back: from now on it is a gang.
    fn go_on_together(&mut self, all: Vec<(TenantId, usize)>) {
        let Some(job) = all.first().and_then(|(tenant, _)| self.jobs.of(*tenant)) else { return };
        self.mind_several(job);
        if self.gathering.is_on() {
            return self.gathering.hold_channels(all);
        }
        let begun: Vec<_> = all
            .into_iter()
            .filter(|&(id, channels)| self.note_channels(id, channels > 0) && channels > 0)
            .collect();
        // Only when all are known, so that none of them gets its turn alone.
        begun.into_iter().for_each(|(tenant, _)| self.find_demand(tenant));
    }

    /// Somebody is gone.
    pub(super) fn leave_muster(&mut self, tenant: TenantId) {
        self.mustering.forget(tenant);
    }

    /// One of a program's GPUs cannot come back: those that are here, and run, go on without rota.
    pub(super) fn give_up_muster(&mut self, process: keeper::Process) {
        let given_up = self.mustering.musters.iter().filter(|muster| muster.process == process);
        let members: Vec<TenantId> = given_up.flat_map(|muster| muster.members.keys().copied()).collect();
        for tenant in members {
            self.put_out_if_resident(tenant);
        }
    }

    /// Looks who has waited long enough.
    pub(super) fn look_at_musters(&mut self) {
        let now = Instant::now();
        let mut late = Vec::new();
        for muster in self.mustering.waiting().filter(|muster| muster.until <= now) {
            muster.until = now + MUSTER_WITHIN;
            late.extend(muster.members.keys().copied());
        }
        late.into_iter().for_each(|tenant| self.put_out_if_resident(tenant));
    }

    /// Whoever has memory away waits: it cannot go on without.
    fn put_out_if_resident(&self, tenant: TenantId) {
        let resident =
            |known: &super::Known| known.link.grip.page().resident() && !known.link.grip.page().frozen();
        if self.known.get(&tenant).is_some_and(resident) {
            self.put_out(tenant, "not all GPUs of its program came back");
        }
    }

    /// Thaws somebody who is whole and frozen, once all of its program is whole.
    pub(super) fn thaw_together(&mut self, tenant: TenantId) {
        self.mustering.held.insert(tenant);
        self.thaw_held();
    }

    /// Thaws those whose fellows are whole by now.
    pub(super) fn thaw_held(&mut self) {
        for tenant in self.mustering.held.clone() {
            let Some(known) = self.known.get(&tenant) else { continue };
            if self.is_wholly_resident(known.link.who.pid) {
                let to = SwitchTo::Thawed(Slice::Own);
                let (link, aim, warms, then_by) = (known.link.clone(), None, None, None);
                self.executor(known.gpu).switch(Switch { op: None, link, to, aim, warms, then_by });
                self.mustering.held.remove(&tenant);
            }
        }
    }

    /// Whether all memory of a process is on its GPUs, as far as they are known.
    fn is_wholly_resident(&self, pid: u32) -> bool {
        let mut own = self.known.values().filter(|known| known.link.who.pid == pid);
        own.all(|known| known.link.grip.page().resident())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: keeper::Process = keeper::Process { pid: 7, start_ticks: 8 };

    #[test]
    fn nobody_is_told_of_before_all_are_back() {
        let mut mustering = Mustering::default();
        let [one, two, silent] = [1, 2, 3].map(TenantId);
        mustering.add(one, PROCESS, 3, true);
        mustering.add(silent, PROCESS, 3, false);
        assert_eq!(mustering.told(one, 4), Some(vec![]));
        assert_eq!(mustering.told(TenantId(9), 4), None, "one that waits for nobody");
        mustering.add(two, PROCESS, 3, true);
        assert_eq!(mustering.end_if_complete(two), []);
        assert_eq!(mustering.told(two, 5), Some(vec![(one, 4), (two, 5)]));
        assert_eq!(mustering.told(one, 6), None, "it waits no more");
    }

    #[test]
    fn one_that_goes_again_is_waited_for_again() {
        let mut mustering = Mustering::default();
        let [one, two] = [1, 2].map(TenantId);
        mustering.add(one, PROCESS, 2, true);
        mustering.add(two, PROCESS, 2, true);
        assert_eq!(mustering.told(two, 5), Some(vec![]));
        mustering.forget(two);
        assert_eq!(mustering.told(one, 4), Some(vec![]));
        mustering.add(two, PROCESS, 2, true);
        assert_eq!(mustering.told(two, 5), Some(vec![(one, 4), (two, 5)]));
        assert_eq!(mustering.wake_within(), None);
    }

    #[test]
    fn one_that_is_let_go_when_all_were_back_is_waited_for_by_all() {
        let mut mustering = Mustering::default();
        let [one, silent] = [1, 2].map(TenantId);
        mustering.add(one, PROCESS, 2, true);
        mustering.add(silent, PROCESS, 2, false);
        assert_eq!(mustering.told(one, 4), Some(vec![(one, 4)]));
        assert_eq!(mustering.told(one, 5), None, "nobody is waited for");
        assert_eq!(mustering.let_go(silent), [one]);
        assert!(mustering.wake_within().is_some());
        assert_eq!(mustering.told(one, 6), Some(vec![]), "the other one is not back");
        // It may have channels by now.
        mustering.add(silent, PROCESS, 2, true);
        assert_eq!(mustering.end_if_complete(silent), []);
        assert_eq!(mustering.told(silent, 7), Some(vec![(one, 6), (silent, 7)]));
        assert_eq!(mustering.wake_within(), None);
        // One that is waited for already stops nobody who has been heard of.
        assert_eq!(mustering.let_go(one), [silent]);
        assert_eq!(mustering.let_go(silent), []);
        assert!(mustering.musters.is_empty());
    }

    #[test]
    fn one_that_comes_alone_waits_for_nobody() {
        let mut mustering = Mustering::default();
        mustering.add(TenantId(1), PROCESS, 1, true);
        assert_eq!(mustering.told(TenantId(1), 4), None);
        assert_eq!(mustering.let_go(TenantId(1)), []);
    }
}
