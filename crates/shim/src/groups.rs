//! The channel groups of this process: watched from its first RM call on, reported to the daemon once there is one,
//! and frozen here when they come to life while the tenant is frozen.
//!
//! The groups are independent of the session, because they may be there before it. Nothing here waits: the lock is
//! held for bookkeeping only, never during an RM call.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use channels::{Call, Change, ChannelSet, Control, ControlError, Engine, Group, Micros, RmControl, Tracker};
use wire::{ChannelGroup, FILES_MAX, FileId, ToDaemon};

use crate::guard::lock;
use crate::notice::OnceNotice;
use crate::session::{self, Session};
use crate::{fork, ioctl};

/// How often a group that comes to life follows the page before it is left to the daemon.
const FOLLOW_MAX: usize = 8;

static TRACKER: AtomicPtr<Mutex<Tracker>> = AtomicPtr::new(ptr::null_mut());

fn tracker() -> &'static Mutex<Tracker> {
    let mut current = TRACKER.load(SeqCst);
    if current.is_null() {
        fork::watch();
        let fresh = Box::into_raw(Box::new(Mutex::new(Tracker::new())));
        current = match TRACKER.compare_exchange(ptr::null_mut(), fresh, SeqCst, SeqCst) {
            Ok(_) => fresh,
            Err(theirs) => {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                theirs
            }
        };
    }
    // SAFETY: what is stored is never freed.
    unsafe { &*current }
}

/// In a forked child: no groups are known, and the lock is a new one.
pub(crate) fn forget() {
    TRACKER.store(ptr::null_mut(), SeqCst);
}

/// Takes in one RM call.
pub(crate) fn observe(call: &Call) {
    static OVERLOOKED: OnceNotice = OnceNotice::new();
    let (change, overlooked) = {
        let mut tracker = lock(tracker());
        (tracker.observe(call), tracker.overlooked())
    };
    if overlooked != 0 {
        OVERLOOKED.notice(format_args!("too many channels to follow: this program cannot be frozen wholly"));
    }
    let Some(change) = change else { return };
    let Some(session) = session::current() else { return };
    if session.has_ended() {
        return;
    }
    match change {
        // After the tracker has it, so that a report of this generation contains it.
        Change::Born { .. } => {
            session.page.raise_channel_generation();
        }
        Change::Scheduled(key) => follow_page(session, |group| group.key() == key),
        Change::Reachable { file, client, device } => follow_page(session, |group| {
            group.scheduled && (group.file, group.client, group.device) == (file, client, device)
        }),
        Change::Gone { .. } => {}
    }
    session.groups_changed.store(true, SeqCst);
    session.wake_agent();
}

/// Freezes groups that have just come to life, if the tenant is frozen. The daemon may thaw or freeze it meanwhile
/// without knowing of them, so the page is read again after each step.
fn follow_page(session: &Session, chosen: impl Fn(&Group) -> bool) {
    let mut frozen = false;
    for _ in 0..FOLLOW_MAX {
        if session.page.frozen() == frozen {
            return;
        }
        frozen = !frozen;
        switch(sets(&chosen), frozen);
    }
}

/// Thaws everything: for when there is no daemon that could.
pub(crate) fn thaw_all() {
    switch(sets(|_| true), false);
}

/// Gives the compute groups their own time slice back.
pub(crate) fn restore_slices(slice: Micros) {
    let groups: Vec<_> = {
        let tracker = lock(tracker());
        let compute = tracker.groups().filter(|group| group.engine == Engine::Compute);
        compute.filter_map(|group| Some((group.file, group.address()?))).collect()
    };
    for (file, group) in groups {
        complain(control(file).set_time_slice(group, slice));
    }
}

fn sets(chosen: impl Fn(&Group) -> bool) -> Vec<(RawFd, ChannelSet)> {
    let tracker = lock(tracker());
    channels::channel_sets(tracker.groups().filter(|group| chosen(group))).0
}

fn switch(sets: Vec<(RawFd, ChannelSet)>, frozen: bool) {
    for (file, set) in sets {
        let control = control(file);
        complain(if frozen { control.freeze(&set) } else { control.thaw(&set) });
    }
}

fn control(file: RawFd) -> RmControl<'static, fn(RawFd, std::ffi::c_ulong, *mut std::ffi::c_void) -> i32> {
    // SAFETY: the driver library has it open: its client lives. Were it closed, the control would fail.
    RmControl::through(unsafe { BorrowedFd::borrow_raw(file) }, ioctl::call_next)
}

fn complain(result: Result<(), ControlError>) {
    static FAILED: OnceNotice = OnceNotice::new();
    if let Err(error) = result {
        FAILED.notice(format_args!("{error}"));
    }
}

/// The control files that the daemon has, by file number and client.
///
/// The client belongs to the key because a number may come to mean another file. A file that no group of the last
/// report uses is forgotten on both sides, and gets a new name if it is needed again.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    files: BTreeMap<(RawFd, u32), FileId>,
    last_file: u32,
    generation: u64,
    anything: bool,
}

impl Reported {
    /// A report of all groups as they are now, for the session's page; None if there never was any to speak of. The
    /// flag says that more files are left than one message can carry: then the report is of an older generation, and
    /// another has to follow.
    pub(crate) fn next(&mut self, session: &Session) -> (Option<(ToDaemon, Vec<OwnedFd>)>, bool) {
        // Read before the groups, so that these contain every channel that it counts.
        let generation = session.page.channel_generation();
        let groups: Vec<Group> = lock(tracker()).groups().cloned().collect();
        if groups.is_empty() && !self.anything {
            return (None, false);
        }
        self.anything = true;
        let (message, files, more) = self.report(generation, groups, |file| {
            // SAFETY: only duplicated; if the program has closed it meanwhile, that fails.
            let file = unsafe { BorrowedFd::borrow_raw(file) };
            rustix::io::fcntl_dupfd_cloexec(file, 0).ok()
        });
        (Some((message, files)), more)
    }

    fn report(
        &mut self,
        generation: u64,
        groups: Vec<Group>,
        duplicate: impl Fn(RawFd) -> Option<OwnedFd>,
    ) -> (ToDaemon, Vec<OwnedFd>, bool) {
        // A group that cannot be reached has no channels that run yet; it is reported when it can.
        let groups: Vec<(u32, Group)> =
            groups.into_iter().filter_map(|group| Some((group.subdevice?, group))).collect();
        self.files.retain(|key, _| groups.iter().any(|(_, group)| (group.file, group.client) == *key));
        let (mut new_files, mut copies, mut more) = (Vec::new(), Vec::new(), false);
        let mut reported = Vec::with_capacity(groups.len());
        for (subdevice, group) in groups {
            let key = (group.file, group.client);
            let file = match self.files.get(&key) {
                Some(file) => *file,
                None if new_files.len() == FILES_MAX => {
                    more = true;
                    continue;
                }
                None => {
                    let Some(copy) = duplicate(group.file) else { continue };
                    self.last_file += 1;
                    let file = FileId(self.last_file);
                    self.files.insert(key, file);
                    new_files.push(file);
                    copies.push(copy);
                    file
                }
            };
            reported.push(ChannelGroup {
                file,
                client: group.client,
                subdevice,
                group: group.handle,
                engine: group.engine.engine_type(),
                channels: group.channels,
            });
        }
        if !more {
            self.generation = generation;
        }
        let message = ToDaemon::Channels { generation: self.generation, new_files, groups: reported };
        (message, copies, more)
    }
}

#[cfg(test)]
mod tests;
