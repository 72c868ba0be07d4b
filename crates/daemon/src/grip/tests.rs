mod widening;

use super::*;
use channels::control::IoctlFn;
use rustix::fs::MemfdFlags;
use std::cell::Cell;
use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

static CALLS: AtomicU32 = AtomicU32::new(0);

/// Succeeds at everything: writes status 0 where the driver would.
fn willing(_: RawFd, _: c_ulong, argument: *mut c_void) -> c_int {
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the status of a control is the 32-bit word at byte 28.
    unsafe { argument.cast::<u32>().add(7).write(0) };
    0
}

/// Refuses everything.
fn unwilling(_: RawFd, _: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { argument.cast::<u32>().add(7).write(0x56) };
    0
}

fn with(ioctl: IoctlFn) -> ResourceManager {
    ResourceManager { ioctl, owns: |_| true }
}

fn group(file: u32, channels: Vec<u32>) -> ChannelGroup {
    ChannelGroup { file: FileId(file), client: 1, subdevice: 2, group: 3, engine: 1, channels }
}

fn file() -> OwnedFd {
    rustix::fs::memfd_create("control", MemfdFlags::CLOEXEC).unwrap()
}

#[test]
fn freezing_waits_for_channels_that_are_not_reported_yet() {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(willing));
    grip.page().raise_channel_generation();
    std::thread::scope(|scope| {
        let frozen = scope.spawn(|| grip.freeze(Scope::All));
        // A channel born now must freeze itself.
        while !grip.page().frozen() {
            assert!(!frozen.is_finished(), "the page never said so");
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!frozen.is_finished(), "froze without knowing the channels");
        grip.report(1, vec![FileId(1)], vec![group(1, vec![5, 6, 7])], vec![file()]).unwrap();
        assert_eq!(frozen.join().unwrap().unwrap(), 3);
    });
}

#[test]
fn a_report_that_never_comes_leaves_the_tenant_thawed() {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(willing));
    grip.page().raise_channel_generation();
    grip.report(1, vec![], vec![], vec![]).unwrap();
    grip.page().raise_channel_generation();
    assert!(matches!(grip.freeze(Scope::All), Err(GripError::NotReported { made: 2, reported: 1 })));
    assert!(!grip.page().frozen());
}

#[test]
fn a_refused_freeze_leaves_the_tenant_thawed() {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(unwilling));
    let _ = grip.report(0, vec![FileId(1)], vec![group(1, vec![5])], vec![file()]);
    assert!(matches!(grip.freeze(Scope::All), Err(GripError::Control(_))));
    assert!(!grip.page().frozen());
}

#[test]
fn a_thaw_waits_for_no_report_and_a_late_one_thaws_what_it_brings() {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(willing));
    grip.report(0, vec![FileId(1)], vec![group(1, vec![5])], vec![file()]).unwrap();
    grip.freeze(Scope::All).unwrap();
    grip.page().raise_channel_generation();
    assert_eq!(grip.thaw().unwrap(), 1);
    let before = CALLS.load(Ordering::Relaxed);
    grip.report(1, vec![], vec![group(1, vec![5]), group(1, vec![6])], vec![]).unwrap();
    assert!(CALLS.load(Ordering::Relaxed) > before, "the group that froze itself stays frozen");
}

#[test]
fn a_thaw_that_fails_leaves_the_tenant_frozen_or_says_that_it_could_not() {
    thread_local!(static REFUSALS: Cell<u32> = const { Cell::new(0) });
    /// Refuses as often as it was told to.
    fn moody(file: RawFd, request: c_ulong, argument: *mut c_void) -> c_int {
        let left = REFUSALS.get();
        REFUSALS.set(left.saturating_sub(1));
        if left > 0 { unwilling(file, request, argument) } else { willing(file, request, argument) }
    }
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(moody));
    grip.report(0, vec![FileId(1)], vec![group(1, vec![5])], vec![file()]).unwrap();
    grip.freeze(Scope::All).unwrap();
    REFUSALS.set(1);
    assert!(matches!(grip.thaw(), Err(GripError::Control(_))));
    assert!(grip.page().frozen(), "its memory may be moved");
    REFUSALS.set(100);
    assert!(matches!(grip.thaw(), Err(GripError::Loose(_))));
}

#[test]
fn a_context_that_is_being_destroyed_is_neither_put_out_nor_left_loose() {
    thread_local!(static GONE: Cell<bool> = const { Cell::new(false) });
    /// Finds no channel while there are more than one: the others are freed already.
    fn partly_gone(file: RawFd, request: c_ulong, argument: *mut c_void) -> c_int {
        if !GONE.get() {
            return willing(file, request, argument);
        }
        // SAFETY: as above: not found.
        unsafe { argument.cast::<u32>().add(7).write(0x57) };
        0
    }
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(partly_gone));
    grip.report(0, vec![FileId(1)], vec![group(1, vec![5, 6])], vec![file()]).unwrap();
    GONE.set(true);
    grip.report(0, vec![], vec![group(1, vec![5])], vec![]).expect("a report of what is left");
    grip.freeze(Scope::All).expect_err("nothing is found");
    grip.report(0, vec![], vec![], vec![]).unwrap();
    grip.page().raise_channel_generation();
    grip.report(1, vec![], vec![], vec![]).unwrap();
    assert_eq!(grip.freeze(Scope::All).unwrap(), 0, "and with the last report nothing is left to freeze");
}

#[test]
fn a_program_whose_channels_nobody_saw_is_not_called_frozen() {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(willing));
    assert!(matches!(grip.freeze(Scope::All), Err(GripError::NoChannels)));
    assert!(!grip.page().frozen());
}

#[test]
fn a_group_that_froze_itself_in_a_freeze_that_failed_is_thawed_with_its_report() {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(willing));
    let before = CALLS.load(Ordering::Relaxed);
    grip.report(0, vec![FileId(1)], vec![group(1, vec![5])], vec![file()]).unwrap();
    assert!(CALLS.load(Ordering::Relaxed) > before);
}

#[test]
fn reports_that_cannot_be_true_are_refused() {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(willing));
    assert!(matches!(grip.report(1, vec![FileId(1)], vec![], vec![]), Err(GripError::Malformed(_))));
    let strict = ResourceManager { ioctl: willing, ..ResourceManager::SYSTEM };
    let strange = Grip::new(SharedPage::create(1).unwrap(), strict);
    let other = strange.report(1, vec![FileId(1)], vec![group(1, vec![1])], vec![file()]);
    assert!(matches!(other, Err(GripError::Malformed(_))), "a file that is not the driver's");
    let unknown = grip.report(1, vec![], vec![group(9, vec![1])], vec![]);
    assert!(matches!(unknown, Err(GripError::UnknownFile(FileId(9)))));
}

#[test]
fn a_tenant_that_is_gone_cannot_be_frozen_and_holds_nobody_up() {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(willing));
    grip.page().raise_channel_generation();
    std::thread::scope(|scope| {
        let frozen = scope.spawn(|| grip.freeze(Scope::All));
        std::thread::sleep(Duration::from_millis(5));
        grip.close();
        assert!(matches!(frozen.join().unwrap(), Err(GripError::Gone)));
    });
}

/// What was sent: the control, the object, and the first word of its parameters.
type Sent = (u32, u32, u64);

thread_local!(static SENT: Cell<Vec<Sent>> = const { Cell::new(Vec::new()) });

/// Succeeds at everything and keeps what was sent; a time slice reads as 2000.
fn recording(file: RawFd, request: c_ulong, argument: *mut c_void) -> c_int {
    let words = argument.cast::<u32>();
    // SAFETY: of a control, the second word is the object and the third the command; the address of its parameters is at
    // byte 16. They begin with the word that says whether to freeze, or with the slice.
    let sent = unsafe {
        let parameters = argument.cast::<*mut u64>().add(2).read();
        if words.add(2).read() == channels::rm::GROUP_GET_TIMESLICE {
            parameters.write(2000);
        }
        (words.add(2).read(), words.add(1).read(), parameters.read())
    };
    let mut all = SENT.take();
    all.push(sent);
    SENT.set(all);
    willing(file, request, argument)
}

fn slices_sent() -> Vec<(u32, u64)> {
    let set = |(command, ..): &Sent| *command == channels::rm::GROUP_SET_TIMESLICE;
    SENT.take().into_iter().filter(set).map(|(_, group, slice)| (group, slice)).collect()
}

fn copy_group(file: u32, group: u32, channels: Vec<u32>) -> ChannelGroup {
    ChannelGroup { file: FileId(file), client: 1, subdevice: 2, group, engine: 9, channels }
}

#[test]
fn slices_are_set_for_compute_and_the_first_one_is_kept_to_go_back_to() {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(recording));
    let groups = vec![group(1, vec![5]), copy_group(1, 4, vec![6])];
    grip.report(0, vec![FileId(1)], groups.clone(), vec![file()]).unwrap();
    grip.set_slice(Slice::Own).unwrap();
    assert_eq!(slices_sent(), [], "it always had its own");
    assert_eq!(grip.set_slice(Slice::Shortest).unwrap(), 1);
    assert_eq!(grip.page().slice_us(), Some(2000));
    assert_eq!(grip.set_slice(Slice::Shortest).unwrap(), 0, "as it is");
    grip.set_slice(Slice::Long).unwrap();
    assert_eq!(slices_sent(), [(3, 1), (3, 20_000)]);
    // A group that is born later gets it, too.
    let mut more = groups;
    more.push(ChannelGroup { group: 7, ..group(1, vec![8]) });
    grip.report(0, vec![], more.clone(), vec![]).unwrap();
    assert_eq!(slices_sent(), [(3, 20_000), (7, 20_000)]);
    // The program has given itself another one, at the end of making a context, and says so by a report.
    grip.page().set_slice_us(3000);
    grip.report(1, vec![], more, vec![]).unwrap();
    assert_eq!(slices_sent(), [(3, 20_000), (7, 20_000)]);
    grip.page().set_slice_us(2000);
    grip.set_slice(Slice::Own).unwrap();
    assert_eq!(slices_sent(), [(3, 2000), (7, 2000)]);
    assert_eq!(grip.page().slice_us(), Some(2000), "a tenant that is left alone knows where to go back to");
}

#[test]
fn a_group_that_is_just_freed_keeps_no_other_from_its_slice() {
    /// Does not find the first group.
    fn without_the_first(file: RawFd, request: c_ulong, argument: *mut c_void) -> c_int {
        let done = recording(file, request, argument);
        let words = argument.cast::<u32>();
        // SAFETY: of a control, the second word is the object, and the status is the word at byte 28.
        unsafe {
            if words.add(1).read() == 3 {
                words.add(7).write(0x57);
            }
        }
        done
    }
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(without_the_first));
    let one = vec![group(1, vec![5])];
    grip.report(0, vec![FileId(1)], one.clone(), vec![file()]).unwrap();
    assert!(grip.set_slice(Slice::Long).is_err());
    SENT.take();
    let two = [one, vec![ChannelGroup { group: 7, ..group(1, vec![8]) }]].concat();
    grip.report(0, vec![], two, vec![]).unwrap();
    assert!(grip.set_slice(Slice::Critical).is_err());
    let sent = slices_sent();
    assert!(sent.contains(&(7, 10_000)), "{sent:?}");
    // Some have it and some have not: what they had is not what they have.
    assert!(grip.set_slice(Slice::Own).is_err());
    let sent = slices_sent();
    assert!(sent.contains(&(7, 2048)), "{sent:?}");
}

#[test]
fn two_contexts_of_a_program_never_both_have_the_shortest_slice() {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(recording));
    let one = vec![group(1, vec![5]), copy_group(1, 4, vec![6])];
    let mut two = one.clone();
    two.push(ChannelGroup { group: 7, ..group(1, vec![8]) });
    grip.report(0, vec![FileId(1)], two.clone(), vec![file()]).unwrap();
    grip.set_slice(Slice::Shortest).unwrap();
    assert_eq!(slices_sent(), [(3, 1_200), (7, 1_200)]);
    grip.report(0, vec![], one, vec![]).unwrap();
    assert_eq!(slices_sent(), [(3, 1)], "the other one is gone");
    grip.report(0, vec![], two, vec![]).unwrap();
    assert_eq!(slices_sent(), [(3, 1_200), (7, 1_200)], "it has one more again");
}

#[test]
fn a_freeze_of_compute_leaves_copies_running_until_all_is_frozen() {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(willing));
    let groups = vec![group(1, vec![5, 6]), copy_group(1, 4, vec![7, 8, 9])];
    grip.report(0, vec![FileId(1)], groups, vec![file()]).unwrap();
    assert_eq!(grip.freeze(Scope::Compute).unwrap(), 2);
    assert!(grip.page().frozen());
    assert_eq!(grip.freeze(Scope::All).unwrap(), 3, "what copies: the rest is frozen");
    assert_eq!(grip.thaw().unwrap(), 5);
    assert!(!grip.page().frozen());
}

#[test]
fn a_thaw_touches_what_was_frozen_and_what_froze_itself_meanwhile() {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(willing));
    let mut groups = vec![group(1, vec![5, 6]), copy_group(1, 4, vec![7, 8, 9])];
    grip.report(0, vec![FileId(1)], groups.clone(), vec![file()]).unwrap();
    assert_eq!(grip.thaw().unwrap(), 5, "an earlier worker may have frozen all");
    grip.freeze(Scope::Compute).unwrap();
    assert_eq!(grip.thaw().unwrap(), 2);
    grip.freeze(Scope::All).unwrap();
    grip.freeze(Scope::Compute).unwrap();
    assert_eq!(grip.thaw().unwrap(), 5, "the rest is frozen too");
    grip.freeze(Scope::Compute).unwrap();
    grip.report(0, vec![], groups.clone(), vec![]).unwrap();
    assert_eq!(grip.thaw().unwrap(), 2, "nothing came");
    grip.freeze(Scope::Compute).unwrap();
    groups.push(copy_group(1, 7, vec![10]));
    grip.report(0, vec![], groups, vec![]).unwrap();
    assert_eq!(grip.thaw().unwrap(), 6, "what was born meanwhile froze itself");
    grip.freeze(Scope::Compute).unwrap();
    assert_eq!(grip.thaw().unwrap(), 2);
}

#[test]
fn what_was_frozen_by_several_is_thawed_as_often() {
    thread_local!(static FROZEN: Cell<u32> = const { Cell::new(0) });
    /// Counts as the driver does.
    fn counting(file: RawFd, request: c_ulong, argument: *mut c_void) -> c_int {
        // SAFETY: the third word of a control is its command, and its parameters begin with whether to freeze.
        let freeze = unsafe { *argument.cast::<*const u8>().add(2).read() != 0 };
        FROZEN.set(if freeze { FROZEN.get() + 1 } else { FROZEN.get().saturating_sub(1) });
        willing(file, request, argument)
    }
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(counting));
    grip.report(0, vec![FileId(1)], vec![group(1, vec![5])], vec![file()]).unwrap();
    grip.freeze(Scope::Compute).unwrap();
    assert!(!grip.page().frozen_wholly());
    grip.freeze(Scope::All).unwrap();
    assert!(grip.page().frozen_wholly());
    // The tenant itself, or a worker before.
    grip.page().note_freeze();
    FROZEN.set(FROZEN.get() + 1);
    assert_eq!(FROZEN.get(), 2, "what computes was frozen already when the rest was");
    grip.thaw().unwrap();
    assert_eq!((FROZEN.get(), grip.page().frozen_wholly()), (0, false));
    grip.freeze(Scope::All).unwrap();
    assert_eq!((FROZEN.get(), grip.page().freezes()), (1, 1), "and not more often than that");
    // A report that comes in the middle of a thaw takes nothing away from it.
    grip.freeze(Scope::All).unwrap();
    grip.page().set_frozen(false);
    grip.report(0, vec![], vec![group(1, vec![5])], vec![]).unwrap();
    grip.thaw().unwrap();
    assert_eq!((FROZEN.get(), grip.page().freezes()), (0, 0));
    // What froze itself at birth, before a thaw that did not know of it, is frozen once more than others.
    grip.freeze(Scope::All).unwrap();
    grip.page().note_freeze();
    grip.thaw().unwrap();
    assert_eq!(grip.page().freezes(), 0);
    grip.page().set_frozen(true);
    FROZEN.set(1);
    grip.report(1, vec![], vec![group(1, vec![5, 6])], vec![]).unwrap();
    grip.freeze(Scope::All).unwrap();
    grip.thaw().unwrap();
    assert_eq!(FROZEN.get(), 0);
}

#[test]
fn a_freeze_that_fails_leaves_frozen_what_an_earlier_worker_froze() {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(unwilling));
    grip.page().set_frozen(true);
    let _ = grip.report(0, vec![FileId(1)], vec![group(1, vec![5])], vec![file()]);
    assert!(matches!(grip.freeze(Scope::All), Err(GripError::Control(_))));
    assert!(grip.page().frozen(), "its memory may be away");
}

#[test]
fn what_was_frozen_stays_so_when_more_cannot_be() {
    thread_local!(static REFUSALS: Cell<u32> = const { Cell::new(0) });
    /// Refuses as often as it was told to.
    fn moody(file: RawFd, request: c_ulong, argument: *mut c_void) -> c_int {
        let left = REFUSALS.get();
        REFUSALS.set(left.saturating_sub(1));
        if left > 0 { unwilling(file, request, argument) } else { recording(file, request, argument) }
    }
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(moody));
    let groups = vec![group(1, vec![5]), copy_group(1, 4, vec![7])];
    grip.report(0, vec![FileId(1)], groups, vec![file()]).unwrap();
    grip.freeze(Scope::Compute).unwrap();
    SENT.take();
    REFUSALS.set(1);
    assert!(matches!(grip.freeze(Scope::All), Err(GripError::Control(_))));
    assert!(grip.page().frozen(), "its compute channels are frozen still");
    let freezes = SENT.take().iter().filter(|(_, _, first)| first & 1 == 1).count();
    assert_eq!(freezes, 0, "what computes was not touched");
    REFUSALS.set(100);
    assert!(matches!(grip.freeze(Scope::All), Err(GripError::Control(_))), "it is known how it is");
    assert!(grip.page().frozen());
}

#[test]
fn launches_are_held_until_the_tenant_says_that_nothing_is_left() {
    let (daemon, tenant) = wire::Connection::pair().unwrap();
    let outgoing = Outgoing::start(std::sync::Arc::new(daemon)).unwrap();
    let page = SharedPage::create(1).unwrap();
    page.set_holds_launches();
    let grip = Grip::by_launches(page, with(unwilling), outgoing);
    grip.report(1, vec![FileId(1)], vec![group(1, vec![5, 6])], vec![file()]).unwrap();
    std::thread::scope(|scope| {
        let frozen = scope.spawn(|| grip.freeze(Scope::All));
        let (asked, _) = tenant.receive::<wire::FromDaemon>().unwrap();
        let generation = grip.page().freeze_generation();
        assert_eq!(asked, wire::FromDaemon::Drain { generation });
        assert!(grip.page().frozen());
        // Of an earlier time.
        grip.drained(generation - 1);
        assert!(!frozen.is_finished());
        grip.drained(generation);
        assert_eq!(frozen.join().unwrap().unwrap(), 2);
    });
    assert_eq!(grip.set_slice(Slice::Long).unwrap(), 0, "no control is used");
    assert_eq!(grip.thaw().unwrap(), 2);
    assert!(!grip.page().frozen());
}

#[test]
fn a_tenant_whose_work_does_not_end_stays_thawed() {
    let (daemon, _tenant) = wire::Connection::pair().unwrap();
    let outgoing = Outgoing::start(std::sync::Arc::new(daemon)).unwrap();
    let grip = Grip::by_launches(SharedPage::create(1).unwrap(), with(unwilling), outgoing);
    assert!(matches!(grip.freeze(Scope::All), Err(GripError::NotDrained(_))));
    assert!(!grip.page().frozen());
    grip.close();
    assert!(matches!(grip.freeze(Scope::All), Err(GripError::Gone)));
}
