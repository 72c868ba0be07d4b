//! The channel groups of this process: watched from its first RM call on, reported to the daemon once there is one,
//! and frozen here when they come to life while the tenant is frozen.
//!
//! - [`report`]: what the daemon is told, and when it is told that this is not all.
//! - [`slices`]: how often it is told of time slices.
//! - [`whose`]: on which GPU a group is, and so in which session.
//!
//! The groups are independent of the session, because they may be there before it. Nothing here waits: the lock is
//! held for bookkeeping only, never during an RM call.

mod report;
mod slices;
mod whose;

use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use channels::{
    Call, Change, ChannelSet, Control, ControlError, Engine, Group, GroupKey, Micros, RmControl, Tracker,
};

use crate::guard::lock;
use crate::notice::OnceNotice;
use crate::session::{self, Session};
use crate::{fork, init, ioctl, settings};

pub(crate) use report::{Again, Reported};
pub(crate) use slices::{Slices, Telling};

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
    whose::forget();
}

/// Shows the groups as they are now.
pub(crate) fn seen(show: impl FnOnce(&[Group])) {
    show(&chosen(|_| true));
}

/// Copies of some groups as they are now.
fn chosen(chosen: impl Fn(&Group) -> bool) -> Vec<Group> {
    lock(tracker()).groups().filter(|group| chosen(group)).cloned().collect()
}

/// Takes in one RM call.
pub(crate) fn observe(call: &Call) {
    static OVERLOOKED: OnceNotice = OnceNotice::new();
    let (change, overlooked) = {
        let mut tracker = lock(tracker());
        let before = tracker.overlooked();
        (tracker.observe(call), tracker.overlooked() != before)
    };
    if overlooked {
        OVERLOOKED.notice(format_args!(
            "too many channels to follow: this program cannot be frozen, and keeps the GPU"
        ));
    }
    if change.is_none() && !overlooked {
        return;
    }
    if session::first().is_none() && matches!(change, Some(Change::Scheduled(_))) {
        mention_other_ways();
    }
    for session in session::all().filter(|session| !session.has_ended()) {
        match change {
            // After the tracker has it, so that a report of this generation contains it, or says that it is not complete.
            _ if overlooked => {
                session.page.raise_channel_generation();
            }
            // Until its group is scheduled it cannot run, and must not be touched: see `report`.
            Some(Change::Born { group, .. }) => begin(session, |its| its.scheduled && its.key() == group),
            Some(Change::Scheduled(key)) => begin(session, |group| group.key() == key),
            Some(Change::Reachable { file, client, device }) => follow_page(session, |group| {
                group.scheduled && (group.file, group.client, group.device) == (file, client, device)
            }),
            Some(Change::Sliced { group, slice }) => {
                if !sliced(session, group, slice) {
                    continue;
                }
            }
            Some(Change::Gone { .. }) | None => {}
        }
        session.groups_changed.store(true, SeqCst);
        session.wake_agent();
    }
}

/// Channels of these groups can run from now on, if they are a session's, or may be.
fn begin(session: &Session, of: impl Fn(&Group) -> bool) {
    if chosen(&of).iter().any(|group| whose::belongs(session, group) != Some(false)) {
        session.page.raise_channel_generation();
        follow_page(session, of);
    }
}

/// The driver library gives a group its slice at the end of making a context. If the daemon has given the session another one by
/// then, it does so again when it is told, and this one is what the group goes back to. False if that concerns nobody, or is
/// told later.
fn sliced(session: &Session, key: GroupKey, slice: Micros) -> bool {
    let is_its = |group: &Group| group.engine == Engine::Compute && group.key() == key;
    // The daemon writes to the page before it sets a slice: nothing there, and what it sets comes later than this.
    let concerned = session.page.slice_us().is_some()
        && chosen(is_its).iter().any(|group| whose::belongs(session, group) != Some(false));
    if concerned {
        if slice.0 > 0 {
            session.page.set_slice_us(slice.0);
        }
        match session.slices.changed(wire::monotonic_ns()) {
            Telling::Now => {
                session.page.raise_channel_generation();
                return true;
            }
            Telling::After(_) => session.wake_agent(),
            Telling::Nothing => {}
        }
    }
    false
}

/// Has the daemon told of slices that it was not told of at once, if it is time to.
pub(crate) fn tell_late_slices(session: &Session) -> Telling {
    let telling = session.slices.look(wire::monotonic_ns());
    if telling == Telling::Now {
        session.page.raise_channel_generation();
        session.groups_changed.store(true, SeqCst);
    }
    telling
}

/// A new daemon knows none of a session's channels, and its page counts none: so it does not take the session for frozen
/// before it has heard of them. Should it be frozen already, so are they, or they are frozen here.
pub(crate) fn begin_again(session: &Session) {
    let of = |group: &Group| group.scheduled;
    if chosen(of).iter().all(|group| whose::belongs(session, group) == Some(false)) {
        return;
    }
    session.page.raise_channel_generation();
    let frozen = session.page.frozen_wholly();
    if follow_page_from(session, of, frozen) && !frozen {
        session.page.note_frozen_wholly();
    }
}

/// A program can have work on the GPU now that never asked for a driver here: it opened one by its path, or has one of its
/// own. It cannot be taken in, and nobody would learn why.
fn mention_other_ways() {
    static SAID: OnceNotice = OnceNotice::new();
    if settings::socket().is_some() && !init::has_begun() {
        SAID.notice(format_args!(
            "this program uses the GPU past rota, because it did not open its driver as libcuda.so.1: it takes no turns, \
             and its memory counts for no job"
        ));
    }
}

/// Freezes groups that have just come to life, if the tenant is frozen.
fn follow_page(session: &Session, of: impl Fn(&Group) -> bool) {
    follow_page_from(session, of, false);
}

/// Has groups be as the page says: they are frozen, or not. The daemon may thaw or freeze the tenant meanwhile without knowing
/// of them, so the page is read again after each step. Says whether they are frozen in the end.
fn follow_page_from(session: &Session, of: impl Fn(&Group) -> bool, mut frozen: bool) -> bool {
    if session.page.holds_launches() {
        return false;
    }
    let mut done = true;
    for _ in 0..FOLLOW_MAX {
        if session.page.frozen() == frozen {
            return frozen && done;
        }
        frozen = !frozen;
        if frozen {
            session.page.note_freeze();
        } else {
            session.page.begin_thaw();
        }
        done = switch(&sets(session, &of), frozen);
    }
    false
}

/// Thaws everything of a session: for when there is no daemon that could.
pub(crate) fn thaw_all(session: &Session) {
    let sets = sets(session, |group| group.scheduled);
    let times = session.page.begin_thaw();
    if (0..times).all(|_| switch(&sets, false)) {
        session.page.end_thaw(times);
    }
}

/// Gives the compute groups of a session their own time slice back.
pub(crate) fn restore_slices(session: &Session, slice: Micros) {
    for group in own(session, |group| group.scheduled && group.engine == Engine::Compute) {
        if let Some(address) = group.address() {
            let _ = complain(control(group.file).set_time_slice(address, slice));
        }
    }
}

/// Groups of a session.
fn own(session: &Session, of: impl Fn(&Group) -> bool) -> Vec<Group> {
    let mut groups = chosen(of);
    groups.retain(|group| whose::belongs(session, group) == Some(true));
    groups
}

fn sets(session: &Session, of: impl Fn(&Group) -> bool) -> Vec<(RawFd, ChannelSet)> {
    channels::channel_sets(&own(session, of)).0
}

/// Freezes or thaws. False if the driver refused some of it.
fn switch(sets: &[(RawFd, ChannelSet)], frozen: bool) -> bool {
    let mut done = true;
    for (file, set) in sets {
        let control = control(*file);
        done &= complain(if frozen { control.freeze(set) } else { control.thaw(set) });
    }
    done
}

fn control(file: RawFd) -> RmControl<'static, fn(RawFd, std::ffi::c_ulong, *mut std::ffi::c_void) -> i32> {
    // SAFETY: the driver library has it open: its client lives. Were it closed, the control would fail.
    RmControl::through(unsafe { BorrowedFd::borrow_raw(file) }, ioctl::call_next)
}

/// Whether it was done; if not, it is said.
fn complain(result: Result<(), ControlError>) -> bool {
    static FAILED: OnceNotice = OnceNotice::new();
    let done = result.inspect_err(|error| FAILED.notice(format_args!("{error}")));
    done.is_ok()
}
