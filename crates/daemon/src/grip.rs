//! The daemon's grip on one tenant: what it needs to freeze and thaw it, and to set its time slices.
//!
//! The tenant reports its channel groups with copies of its control files; the connection's thread puts them here,
//! the executor uses them. The shared page says which generation of channels the tenant has made: as long as the
//! report is behind, freezing waits for it (see `wire::Page` on why nothing slips through).
//!
//! Where the driver cannot freeze channels, the tenant holds its launches back instead ([`held`]).

mod held;
mod slices;
#[cfg(test)]
mod tests;
mod vacated;
mod widening;

use crate::outgoing::Outgoing;
use crate::resource_manager::ResourceManager;
use channels::control::Status;
use channels::{ChannelSet, Control, ControlError, RmControl};
use sched::{Scope, Slice};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;
pub use vacated::FOREIGN;
use vacated::occupied;
use wire::{ChannelGroup, FileId, Occupant, SharedPage};

/// How long a tenant may take to report channels that it has made.
const REPORT_WITHIN: Duration = Duration::from_secs(2);

/// How long a report may be behind a program that frees its channels: the end of a context takes a tenth of a second, more on a
/// busy machine.
const STALE_WAIT: Duration = Duration::from_millis(20);
const STALE_TRIES: usize = 25;

/// The most groups and files one tenant may report: far above what any program was seen to have (4 a context).
const GROUPS_MAX: usize = 1024;
const FILES_MAX: usize = 256;

/// The engine type of compute groups.
const COMPUTE: u32 = 1;

/// Why a tenant cannot be frozen or thawed.
#[derive(Debug, Error)]
pub enum GripError {
    /// The tenant's report does not come.
    #[error(
        "the program made channels (generation {made}) and has not reported them (generation {reported})"
    )]
    NotReported {
        /// The page's generation.
        made: u64,
        /// The last report's.
        reported: u64,
    },
    /// A group names a file that never came.
    #[error("a channel group is on the control file {0}, which the program did not send")]
    UnknownFile(FileId),
    /// The driver refused.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The program ended.
    #[error("the program is gone")]
    Gone,
    /// The program uses the GPU, and none of its channels was ever seen.
    #[error(
        "none of the program's channels was seen: is MPS in use, or a driver that was loaded past the shim?"
    )]
    NoChannels,
    /// It failed half way, and so did the way back: nobody knows what runs.
    #[error("that failed, and the program could not be frozen again: {0}")]
    Loose(Box<GripError>),
    /// The program's kernels go on, and they cannot be interrupted here.
    #[error("the program's work did not end within {0:?}, and this driver cannot interrupt it")]
    NotDrained(Duration),
    /// Threads of the program stay inside of the driver.
    #[error(
        "the program did not leave the driver within {0:?}: a thread of it waits there for work that is on the GPU, or it \
         may use the GPU in ways that are not seen"
    )]
    NotVacated(Duration),
    /// No thread of it is inside, but its context has to stay.
    #[error("{}", occupied(*.0))]
    Occupied(Occupant),
    /// A report that cannot be true.
    #[error("a report of channels with {0}")]
    Malformed(&'static str),
}

impl GripError {
    /// Is that because a report of channels, or one without those that are just freed, is on its way?
    pub fn is_for_a_report(&self) -> bool {
        match self {
            Self::NotReported { .. } => true,
            Self::Control(cause) => is_stale(cause.status()),
            _ => false,
        }
    }
}

#[derive(Debug, Default)]
struct Reported {
    generation: u64,
    files: BTreeMap<FileId, OwnedFd>,
    groups: Vec<ChannelGroup>,
    /// How much of it is frozen.
    frozen: Option<Scope>,
    /// More than that may be: channels that came since, of any kind, and froze themselves at birth, or what a freeze of all had
    /// done before it failed.
    more_frozen: bool,
    /// How often it was frozen from here since all of it was thawed. The page's count is also the tenant's, and not believed
    /// beyond a limit.
    freezes: u64,
    /// As it was set last.
    slice: Slice,
    /// Another was set since, which not all could be given.
    slices_differ: bool,
    gone: bool,
    /// The freeze generation in which nothing of it was left on the GPU.
    drained: u64,
    /// The last order to keep out of the driver.
    vacating: u64,
    /// The last that was answered, and what its context has to stay for, if anything.
    vacated: (u64, Option<Occupant>),
}

impl Reported {
    fn channels(&self) -> usize {
        self.groups.iter().map(|group| group.channels.len()).sum()
    }

    /// What a thaw has to touch. Where nobody here froze anything, an earlier worker may have frozen all.
    fn to_thaw(&self) -> Scope {
        match self.frozen {
            Some(Scope::Compute) if !self.more_frozen => Scope::Compute,
            _ => Scope::All,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Grip {
    page: SharedPage,
    manager: ResourceManager,
    reported: Mutex<Reported>,
    changed: Condvar,
    /// Its program is to end: its page never says again that its memory is there.
    condemned: AtomicBool,
    /// To its tenant, if that holds its launches back.
    holds: Option<Outgoing>,
}

impl Grip {
    /// For a tenant with this page.
    pub fn new(page: SharedPage, manager: ResourceManager) -> Self {
        Self {
            page,
            manager,
            reported: Mutex::default(),
            changed: Condvar::new(),
            condemned: AtomicBool::new(false),
            holds: None,
        }
    }

    /// For a tenant that is to hold its launches back, as its page says.
    pub fn by_launches(page: SharedPage, manager: ResourceManager, tenant: Outgoing) -> Self {
        Self { holds: Some(tenant), ..Self::new(page, manager) }
    }

    /// The page shared with the tenant.
    pub fn page(&self) -> &SharedPage {
        &self.page
    }

    /// Says in the page that all of the tenant's memory is on the device.
    pub fn commit_residency(&self, number: u64) {
        if self.condemned.load(SeqCst) {
            return;
        }
        self.page.commit_residency(number);
        // Condemned meanwhile, on another thread: one of the two revokes last.
        if self.condemned.load(SeqCst) {
            self.page.revoke_residency();
        }
    }

    /// The program is to end: hung up on, it must not go on, whatever becomes of its memory.
    pub fn condemn(&self) {
        self.condemned.store(true, SeqCst);
        self.page.revoke_residency();
    }

    /// Takes in a report. Returns how many channels there are now.
    pub fn report(
        &self,
        generation: u64,
        new_files: Vec<FileId>,
        groups: Vec<ChannelGroup>,
        files: Vec<OwnedFd>,
    ) -> Result<usize, GripError> {
        if new_files.len() != files.len() {
            return Err(GripError::Malformed("another number of files than announced"));
        }
        if !files.iter().all(|file| (self.manager.owns)(file.as_fd())) {
            return Err(GripError::Malformed("a file that is no control file of the driver"));
        }
        let mut reported = self.lock();
        if groups.len() > GROUPS_MAX || reported.files.len() + files.len() > FILES_MAX {
            return Err(GripError::Malformed("too many groups or files"));
        }
        reported.files.extend(new_files.into_iter().zip(files));
        if let Some(group) = groups.iter().find(|group| !reported.files.contains_key(&group.file)) {
            return Err(GripError::UnknownFile(group.file));
        }
        // Files of groups that are gone would keep the driver's objects alive: their last close frees them.
        reported.files.retain(|file, _| groups.iter().any(|group| group.file == *file));
        reported.generation = reported.generation.max(generation);
        let before = std::mem::replace(&mut reported.groups, groups);
        self.changed.notify_all();
        if self.holds.is_some() {
            return Ok(reported.channels());
        }
        let known = |group: &ChannelGroup, channel: &u32| {
            before
                .iter()
                .any(|b| (b.file, b.group) == (group.file, group.group) && b.channels.contains(channel))
        };
        let new = |group: &&ChannelGroup| !group.channels.iter().all(|channel| known(group, channel));
        // Of all of them: how many there are decides about the shortest, and a program gives its groups slices too, after which
        // it reports them again.
        if let Err(cause) = self.give_slice(&reported, &reported.groups, reported.slice) {
            tracing::debug!("a group cannot be given its slice: {cause}");
        }
        if self.page.frozen() {
            let born = reported.groups.iter().any(|group| new(&group));
            reported.more_frozen |= born;
            if born {
                // What froze itself may have been counted for a thaw that did not know of it.
                self.page.note_freeze();
            }
        } else {
            // A group that its tenant froze at birth, in a freeze that then failed here, is thawed by nobody else.
            // It says nothing of the others: they stay counted.
            for _ in 0..self.page.begin_thaw() {
                if let Err(cause) = self.switch(&reported, reported.groups.iter().filter(new), thaw) {
                    // The program may have freed it again already. If not, its next turn thaws it.
                    tracing::debug!("a new group cannot be thawed: {cause}");
                    break;
                }
            }
        }
        Ok(reported.channels())
    }

    /// How many channels it has, as far as it has told.
    pub fn channels(&self) -> usize {
        self.lock().channels()
    }

    /// Takes the tenant off the GPU, wherever its kernels are. Returns how many channels that were: of one that is frozen in part,
    /// those of the rest.
    ///
    /// A failure leaves the tenant as it was, unless it is [`GripError::Loose`].
    pub fn freeze(&self, scope: Scope) -> Result<usize, GripError> {
        if let Some(tenant) = &self.holds {
            return self.drain(tenant);
        }
        let (before, was_frozen) = (self.lock().frozen, self.page.frozen());
        if (before, scope) == (Some(Scope::Compute), Scope::All) {
            return self.while_stale(|| self.widen(REPORT_WITHIN)).or_else(|cause| self.leave(cause));
        }
        self.page.set_frozen(true);
        let frozen = self.while_stale(|| {
            let mut reported = self.reported_in_full(REPORT_WITHIN)?;
            if reported.channels() == 0 && self.page.channel_generation() == 0 {
                return Err(GripError::NoChannels);
            }
            self.page.note_freeze();
            reported.freezes += 1;
            reported.more_frozen |= scope == Scope::All;
            let count = self.switch(&reported, within(scope, &reported.groups), freeze)?;
            if scope == Scope::All {
                self.page.note_frozen_wholly();
            }
            reported.frozen = reported.frozen.max(Some(scope));
            Ok(count)
        });
        let Err(cause) = frozen else { return frozen };
        match before {
            // By an earlier worker, and with its memory away, for all that is known here.
            None if was_frozen => Err(cause),
            None => {
                self.page.set_frozen(false);
                self.page.wake_held();
                let mut reported = self.lock();
                if self.thaw_wholly(&reported, || &reported.groups).is_ok() {
                    reported.freezes = 0;
                }
                Err(cause)
            }
            // A freeze that fails is undone, and with it what was frozen before.
            Some(scope) => Err(self.hold(scope, cause)),
        }
    }

    /// Lets the tenant go on where it was. Returns how many channels that were: where only some were frozen, those.
    ///
    /// Does not wait for a report that is behind: a group that froze itself at birth is thawed by its tenant when it looks
    /// at the page again, or with its report. A failure leaves the tenant frozen, unless it is [`GripError::Loose`].
    pub fn thaw(&self) -> Result<usize, GripError> {
        if self.holds.is_some() {
            return self.release();
        }
        self.page.set_frozen(false);
        let thawed = self.while_stale(|| {
            let mut reported = self.lock();
            if reported.gone {
                return Err(GripError::Gone);
            }
            let scope = reported.to_thaw();
            let count = self.thaw_wholly(&reported, || within(scope, &reported.groups))?;
            (reported.frozen, reported.more_frozen, reported.freezes) = (None, false, 0);
            Ok(count)
        });
        // Threads of the tenant that wait for the GPU sleep meanwhile.
        self.page.wake_held();
        let Err(cause) = thawed else { return thawed };
        self.page.set_frozen(true);
        Err(self.hold(Scope::All, cause))
    }

    /// Thaws all that is frozen, which are these groups, as often as it was frozen.
    fn thaw_wholly<'a, G: IntoIterator<Item = &'a ChannelGroup>>(
        &self,
        reported: &Reported,
        groups: impl Fn() -> G,
    ) -> Result<usize, GripError> {
        // Where none is known yet, they are thawed by their report.
        if reported.groups.is_empty() {
            return Ok(0);
        }
        let times = self.page.begin_thaw().max(reported.freezes);
        let mut count = 0;
        for _ in 0..times {
            count = self.switch(reported, groups(), thaw)?;
        }
        self.page.end_thaw(times);
        Ok(count)
    }

    /// What is left to say of a failure after which the tenant is to be frozen: this, if it is.
    fn hold(&self, scope: Scope, cause: GripError) -> GripError {
        // By a complete report: a channel may have been born while the page said that it may run.
        let held = self.while_stale(|| {
            let mut reported = self.reported_in_full(REPORT_WITHIN)?;
            self.page.note_freeze();
            reported.freezes += 1;
            let count = self.switch(&reported, within(scope, &reported.groups), freeze)?;
            reported.frozen = Some(scope);
            Ok(count)
        });
        match held {
            Ok(_) => cause,
            Err(GripError::Gone) => GripError::Gone,
            Err(_) => GripError::Loose(Box::new(cause)),
        }
    }

    /// Tries again for a moment while channels are not found: their program has just freed them, and a report without them
    /// is on its way.
    fn while_stale(&self, act: impl Fn() -> Result<usize, GripError>) -> Result<usize, GripError> {
        for _ in 0..STALE_TRIES {
            match act() {
                Err(GripError::Control(cause)) if is_stale(cause.status()) => {
                    let reported = self.lock();
                    drop(self.changed.wait_timeout(reported, STALE_WAIT));
                }
                done => return done,
            }
        }
        act()
    }

    /// The tenant is gone: closes its files, which may take the driver 100 ms and frees its memory.
    pub fn close(&self) {
        let files = {
            let mut reported = self.lock();
            reported.gone = true;
            reported.groups.clear();
            self.changed.notify_all();
            std::mem::take(&mut reported.files)
        };
        drop(files);
    }

    /// Waits for so long until the report covers every channel that the tenant has made.
    fn reported_in_full(&self, within: Duration) -> Result<MutexGuard<'_, Reported>, GripError> {
        let deadline = Instant::now() + within;
        let mut reported = self.lock();
        loop {
            if reported.gone {
                return Err(GripError::Gone);
            }
            let made = self.page.channel_generation();
            if reported.generation >= made {
                return Ok(reported);
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Err(GripError::NotReported { made, reported: reported.generation });
            };
            (reported, _) = self.changed.wait_timeout(reported, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn switch<'a>(
        &self,
        reported: &Reported,
        groups: impl IntoIterator<Item = &'a ChannelGroup>,
        act: Act,
    ) -> Result<usize, GripError> {
        let mut count = 0;
        for set in sets(groups) {
            self.switch_set(reported, &set, act)?;
            count += set.1.channels.len();
        }
        Ok(count)
    }

    fn switch_set(
        &self,
        reported: &Reported,
        (file, set): &(FileId, ChannelSet),
        act: Act,
    ) -> Result<(), GripError> {
        let Some(file) = reported.files.get(file) else { return Err(GripError::UnknownFile(*file)) };
        Ok(act(&RmControl::through(file.as_fd(), self.manager.ioctl), set)?)
    }

    fn lock(&self) -> MutexGuard<'_, Reported> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A freeze or a thaw.
type Act = fn(&dyn Control, &ChannelSet) -> Result<(), ControlError>;

/// The channels of some groups as the fewest sets, each with its file.
fn sets<'a>(groups: impl IntoIterator<Item = &'a ChannelGroup>) -> Vec<(FileId, ChannelSet)> {
    let mut sets: BTreeMap<(FileId, u32, u32), Vec<u32>> = BTreeMap::new();
    for group in groups {
        sets.entry((group.file, group.client, group.subdevice)).or_default().extend(&group.channels);
    }
    let set = |((file, client, subdevice), channels)| (file, ChannelSet { client, subdevice, channels });
    sets.into_iter().map(set).collect()
}

/// Is that what the driver says of channels that are being freed?
fn is_stale(status: Option<Status>) -> bool {
    matches!(status, Some(Status::ObjectNotFound | Status::InvalidChannel))
}

fn within(scope: Scope, groups: &[ChannelGroup]) -> impl Iterator<Item = &ChannelGroup> {
    groups.iter().filter(move |group| scope == Scope::All || group.engine == COMPUTE)
}

fn freeze(control: &dyn Control, set: &ChannelSet) -> Result<(), ControlError> {
    control.freeze(set)
}

fn thaw(control: &dyn Control, set: &ChannelSet) -> Result<(), ControlError> {
    control.thaw(set)
}
