//! Memory that somebody came back with and of which there is no file: exported, shared by name, or not to be shown just now.
//!
//! Its tenant's word alone says that it is there, so it counts as far as that can be true. Nobody can move it. What is not shown
//! after a while, or pinned by its program, counts as pinned: else others would be promised the room that it takes. Once it
//! is shown it is as any other.

use super::{Daemon, Shown};
use crate::executor::Work;
use sched::{Bytes, Event, GpuId, HandleId, JobId, Owned, Survivor, SurvivorPlace, TenantId};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long files may take to follow. Meanwhile nobody is out of memory for what is about to be shown.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

const UNSHOWN: SurvivorPlace = SurvivorPlace::Device { movable: false };

/// Those of a tenant's handles that have no file.
pub(super) fn of(handles: &[Survivor]) -> impl Iterator<Item = HandleId> {
    handles.iter().filter(|survivor| survivor.place == UNSHOWN).map(|survivor| survivor.handle)
}

/// When to look whose files have not followed.
#[derive(Debug, Default)]
pub(super) struct Unshown(VecDeque<(Instant, TenantId)>);

impl Unshown {
    /// When to look next.
    pub(super) fn wake_within(&self) -> Option<Duration> {
        Some(self.0.front()?.0.saturating_duration_since(Instant::now()))
    }

    fn is_due(&mut self) -> Option<TenantId> {
        self.0.pop_front_if(|(at, _)| *at <= Instant::now()).map(|(_, tenant)| tenant)
    }
}

impl Daemon {
    /// Somebody came back, and did not show all that it has.
    pub(super) fn await_files(&mut self, tenant: TenantId) {
        if self.known.get(&tenant).is_some_and(|known| !known.pins.unshown.is_empty()) {
            self.unshown.0.push_back((Instant::now() + SHOWN_WITHIN, tenant));
        }
    }

    /// What was not shown in time is in everybody's way for good.
    pub(super) fn pin_unshown(&mut self) {
        while let Some(tenant) = self.unshown.is_due() {
            let Some(known) = self.known.get(&tenant) else { continue };
            let unshown: Vec<_> = known.pins.unshown.iter().copied().collect();
            for owned in unshown.into_iter().map(|handle| Owned { tenant, handle }) {
                self.step(Event::Pinned { owned, pinned: true });
            }
        }
    }

    /// Of what somebody comes back with, all but what cannot be true: more than its job may have, or than the device has
    /// beside what is known to be there. That is left out and not refused: the limit may have been another one, and
    /// whatever it is that takes memory of the device, NVML sees it.
    pub(super) fn believed(&self, gpu: GpuId, job: JobId, handles: Vec<Survivor>) -> (Vec<Survivor>, Bytes) {
        let sum = |counts: fn(&Survivor) -> bool| -> Bytes {
            handles.iter().filter(|survivor| counts(survivor)).map(|survivor| survivor.bytes).sum()
        };
        let shown = sum(|survivor| survivor.place != UNSHOWN);
        let shown_here = sum(|survivor| ![UNSHOWN, SurvivorPlace::Arena].contains(&survivor.place));
        let shared = self.gpu(gpu);
        let context = Bytes(shared.residue_bytes);
        // All that there is, also what is left to others: contexts grow before anybody knows.
        let total = Bytes(shared.capacity_bytes.saturating_add(shared.spare_bytes));
        let free = self.core.gpu(gpu).map_or(Bytes::ZERO, |view| total.less(view.used + context));
        let may_have = Bytes(self.memory_limit(job, gpu)).less(context);
        let (mut left, mut too_much) = (free.less(shown_here).min(may_have.less(shown)), Bytes::ZERO);
        let is_believed = |survivor: &Survivor| {
            let is_believed = survivor.place != UNSHOWN || survivor.bytes <= left;
            match is_believed {
                true if survivor.place == UNSHOWN => left = left.less(survivor.bytes),
                true => {}
                false => too_much += survivor.bytes,
            }
            is_believed
        };
        (handles.into_iter().filter(is_believed).collect(), too_much)
    }

    /// A tenant shows what it did not show when it came back. What it has freed meanwhile, or never told of, is passed over.
    pub(super) fn show(&mut self, owned: Owned, shown: Shown) {
        let is_awaited =
            self.known.get(&owned.tenant).is_some_and(|known| known.pins.unshown.contains(&owned.handle));
        if let Some(bytes) = self.core.handle_bytes(owned).filter(|_| is_awaited) {
            self.order_for(owned.tenant, Work::Adopt(owned, bytes, shown));
        }
    }

    /// The mover knows a handle, or cannot. One that only stayed because there was no file of it may go from now on.
    pub(super) fn adopted(&mut self, owned: Owned, movable: bool) {
        self.step(Event::Adopted { owned, movable });
        let Some(known) = self.known.get_mut(&owned.tenant).filter(|_| movable) else { return };
        if known.pins.unshown.remove(&owned.handle) && !known.pins.has(owned.handle) {
            self.step(Event::Pinned { owned, pinned: false });
        }
    }
}
