//! Time slices: how long a tenant computes before the GPU looks for others.
//!
//! Only compute groups get another slice than the driver's; copies are short. The slice that a tenant had is kept in
//! its page before the first change, so that the tenant can go back to it should the daemon be gone.

use super::{COMPUTE, Grip, GripError, Reported};
use channels::{Control as _, GroupAddress, Micros, RmControl};
use sched::Slice;
use std::os::fd::AsFd as _;
use wire::ChannelGroup;

/// What the driver gives compute groups, in case it does not say.
const DRIVERS_OWN: Micros = Micros(2048);

/// The slice for each of so many compute groups of one tenant. Two of the shortest would only be switched between, and get
/// nowhere: whoever has several contexts has the next longer one for each.
fn bearable(slice: Slice, groups: usize) -> Slice {
    if slice == Slice::Shortest && groups > 1 { Slice::Guaranteed } else { slice }
}

/// How many compute groups there are.
pub(super) fn compute_groups(groups: &[ChannelGroup]) -> usize {
    groups.iter().filter(|group| group.engine == COMPUTE).count()
}

/// The slice to set. None for what the driver gives.
const fn length(slice: Slice) -> Option<Micros> {
    match slice {
        Slice::Own => None,
        Slice::Long => Some(Micros(20_000)),
        Slice::Shortest => Some(Micros(1)),
        Slice::Critical => Some(Micros(10_000)),
        Slice::Guaranteed => Some(Micros(1_200)),
    }
}

impl Grip {
    /// Gives the tenant this slice from now on, also for groups that it makes later. Returns how many groups changed.
    pub fn set_slice(&self, slice: Slice) -> Result<usize, GripError> {
        self.while_stale(|| {
            let mut reported = self.lock();
            if reported.gone {
                return Err(GripError::Gone);
            }
            if (reported.slice == slice && !reported.slices_differ) || self.holds.is_some() {
                return Ok(0);
            }
            let given = self.give_slice(&reported, &reported.groups, slice);
            reported.slices_differ = given.is_err();
            if given.is_ok() {
                reported.slice = slice;
            }
            given
        })
    }

    /// The slice that its groups have, which may be another than it was given.
    pub fn slice(&self) -> Slice {
        let reported = self.lock();
        bearable(reported.slice, compute_groups(&reported.groups))
    }

    /// Sets the slice of these groups, also of those behind one that cannot be given it: that may be freed just now. Nothing is
    /// sent for a tenant that has always had its own.
    pub(super) fn give_slice<'a>(
        &self,
        reported: &Reported,
        groups: impl IntoIterator<Item = &'a ChannelGroup>,
        slice: Slice,
    ) -> Result<usize, GripError> {
        let slice = bearable(slice, compute_groups(&reported.groups));
        let (mut count, mut failed) = (0, None);
        for group in groups.into_iter().filter(|group| group.engine == COMPUTE) {
            match self.give_group(reported, group, slice) {
                Ok(given) => count += usize::from(given),
                Err(cause) => failed = failed.or(Some(cause)),
            }
        }
        failed.map_or(Ok(count), Err)
    }

    /// False if it keeps its own.
    fn give_group(&self, reported: &Reported, group: &ChannelGroup, slice: Slice) -> Result<bool, GripError> {
        let file = reported.files.get(&group.file).ok_or(GripError::UnknownFile(group.file))?;
        let control = RmControl::through(file.as_fd(), self.manager.ioctl);
        let address = GroupAddress { client: group.client, group: group.group };
        let length = match (length(slice), self.page.slice_us()) {
            (Some(length), Some(_)) => length,
            (Some(length), None) => {
                let own = control.time_slice(address).ok().filter(|own| own.0 > 0).unwrap_or(DRIVERS_OWN);
                self.page.set_slice_us(own.0);
                length
            }
            (None, Some(own)) => Micros(own),
            (None, None) => return Ok(false),
        };
        control.set_time_slice(address, length)?;
        Ok(true)
    }
}
