//! What the lanes of an exchange do at a moment, told from what is under way.

use super::{Asked, Run};
use crate::device::Device;
use crate::exchange::times::{Chore, Doing};

impl<D: Device> Run<'_, D> {
    /// Notes what the lanes do from now on.
    pub(super) fn meter_lanes(&mut self) {
        let doing = [self.out_does(), self.in_does()];
        self.meter.now_do(self.mover.clock.now(), doing);
    }

    /// Does something, and notes how long it took.
    pub(super) fn metered<T>(&mut self, chore: Chore, work: impl FnOnce(&mut Self) -> T) -> T {
        let begin = self.mover.clock.now();
        let done = work(self);
        let took = self.mover.clock.now().saturating_sub(begin);
        self.meter.did(chore, took);
        done
    }

    fn out_does(&self) -> Doing {
        match () {
            () if !self.copying_out.is_empty() => Doing::Copying,
            () if !self.hashing.is_empty() => Doing::Hashing,
            () if !self.waiting_out.is_empty() => Doing::Space,
            () => self.freeing().unwrap_or(Doing::Done),
        }
    }

    fn in_does(&self) -> Doing {
        match () {
            () if !self.copying_in.is_empty() => Doing::Copying,
            () if self.is_asked(|asked| matches!(asked, Asked::Create)) => Doing::Creating,
            () if self.waiting_in.is_empty() && self.is_asked(|asked| matches!(asked, Asked::Take)) => {
                Doing::Taking
            }
            () if self.waiting_in.is_empty() => Doing::Done,
            () if !self.fetching.is_empty() => Doing::Fetching,
            // What is nearest to being room.
            () => self.freeing().unwrap_or(match self.copying_out.is_empty() && self.hashing.is_empty() {
                true => Doing::Space,
                false => Doing::Room,
            }),
        }
    }

    /// How room is being made of what is copied, if it is.
    fn freeing(&self) -> Option<Doing> {
        let releases = !self.to_release.is_empty() || !self.to_pass.is_empty() || self.mover.has_graves();
        let unmaps = || {
            !self.to_unmap.is_empty()
                || self.is_asked(|asked| matches!(asked, Asked::Unmap | Asked::BackOut(_)))
        };
        releases.then_some(Doing::Releasing).or_else(|| unmaps().then_some(Doing::Unmapping))
    }

    pub(super) fn is_asked(&self, of_kind: impl Fn(&Asked) -> bool) -> bool {
        self.asked.values().any(of_kind)
    }
}
