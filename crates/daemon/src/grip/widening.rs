//! Taking the rest of a tenant off the GPU of which nothing computes any more.
//!
//! What computes is left alone. Frozen once more, it would have to be thawed once more too; and the compute engine, on which others
//! run, would be interrupted for nothing.

use super::{COMPUTE, Grip, GripError, Reported, freeze, sets, thaw};
use channels::ChannelSet;
use sched::Scope;
use std::time::Duration;
use wire::{ChannelGroup, FileId};

impl Grip {
    /// Freezes all of a tenant that is frozen as to what it computes, if that can be done at once: nobody waits for it, and
    /// freezes that others wait for stand in line behind it.
    pub fn freeze_rest_at_once(&self) -> Result<usize, GripError> {
        if self.holds.is_some() || self.lock().frozen != Some(Scope::Compute) {
            return self.freeze(Scope::All);
        }
        self.widen(Duration::ZERO).or_else(|cause| self.leave(cause))
    }

    /// Of a tenant that is frozen as to what it computes, when all of its channels are reported within that time.
    pub(super) fn widen(&self, within: Duration) -> Result<usize, GripError> {
        let mut reported = self.reported_in_full(within)?;
        // Of those that came since nobody here knows how often they are frozen.
        if reported.more_frozen {
            self.page.note_freeze();
            reported.freezes += 1;
        }
        let count = self.freeze_or_leave(&mut reported)?;
        self.page.note_frozen_wholly();
        reported.frozen = Some(Scope::All);
        Ok(count)
    }

    /// That failed: the tenant is as it was, with nothing more that a thaw would have to take back, however often it is tried.
    pub(super) fn leave(&self, cause: GripError) -> Result<usize, GripError> {
        // Without a report nothing was tried.
        let is_tried = !matches!(cause, GripError::NotReported { .. } | GripError::Gone);
        if !is_tried || !self.lock().more_frozen {
            return Err(cause);
        }
        Err(self.begin_anew(cause))
    }

    /// Freezes what is left to freeze. A failure takes back what it had done, as far as it is known how often that is frozen.
    fn freeze_or_leave(&self, reported: &mut Reported) -> Result<usize, GripError> {
        let sets = sets(rest(reported));
        for (index, set) in sets.iter().enumerate() {
            let Err(cause) = self.switch_set(reported, set, freeze) else { continue };
            // Of the one that failed nothing is frozen.
            let is_back = |set: &(FileId, ChannelSet)| self.switch_set(reported, set, thaw).is_ok();
            if !reported.more_frozen && !sets[..index].iter().all(is_back) {
                self.page.note_freeze();
                (reported.freezes, reported.more_frozen) = (reported.freezes + 1, true);
            }
            return Err(cause);
        }
        Ok(sets.iter().map(|(_, set)| set.channels.len()).sum())
    }

    /// Where it is not known how often which channel is frozen: all are thawed, and what computes is frozen again.
    fn begin_anew(&self, cause: GripError) -> GripError {
        let mut reported = self.lock();
        // Frozen in part, it has all of its memory; whoever has not must not run.
        if self.page.resident() && self.thaw_wholly(&reported, || &reported.groups).is_ok() {
            (reported.freezes, reported.more_frozen) = (0, false);
        }
        drop(reported);
        self.hold(Scope::Compute, cause)
    }
}

fn rest(reported: &Reported) -> impl Iterator<Item = &ChannelGroup> {
    let all = reported.more_frozen;
    reported.groups.iter().filter(move |group| all || group.engine != COMPUTE)
}
