//! Freezes of what computes that become freezes of all, on a driver that counts each channel's.

use super::*;
use std::cell::RefCell;

thread_local! {
    /// How often each channel is frozen.
    static COUNTS: RefCell<BTreeMap<u32, u32>> = const { RefCell::new(BTreeMap::new()) };
    /// A channel that cannot be frozen.
    static STUBBORN: Cell<Option<u32>> = const { Cell::new(None) };
    /// How often the driver was asked to thaw, and to freeze what computes.
    static THAWS: Cell<u32> = const { Cell::new(0) };
    static INTERRUPTIONS: Cell<u32> = const { Cell::new(0) };
}

/// Freezes and thaws as the driver does: channel by channel, each as often thawed as frozen. A set with one that cannot be
/// frozen is refused.
fn counting(_: RawFd, _: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: of a control, the third word is the command and its parameters' address is at byte 16. Those of a freeze are the
    // flag, the number of channels, and from byte 280 on the channels. The status is the word at byte 28.
    unsafe {
        let (words, parameters) = (argument.cast::<u32>(), argument.cast::<*const u32>().add(2).read());
        words.add(7).write(0);
        if words.add(2).read() != channels::rm::FIFO_DISABLE_CHANNELS {
            return 0;
        }
        let (freeze, count) = (parameters.read() != 0, parameters.add(1).read() as usize);
        let set = std::slice::from_raw_parts(parameters.add(70), count);
        THAWS.set(THAWS.get() + u32::from(!freeze));
        INTERRUPTIONS.set(INTERRUPTIONS.get() + u32::from(freeze && set.contains(&5)));
        if freeze && set.iter().any(|&channel| STUBBORN.get() == Some(channel)) {
            words.add(7).write(0x56);
            return 0;
        }
        COUNTS.with_borrow_mut(|counts| {
            for channel in set {
                let frozen = counts.entry(*channel).or_default();
                *frozen = if freeze { *frozen + 1 } else { frozen.saturating_sub(1) };
            }
        });
    }
    0
}

fn frozen() -> Vec<u32> {
    COUNTS.with_borrow(|counts| counts.iter().filter(|(_, count)| **count > 0).map(|(&id, _)| id).collect())
}

/// One context: 5 computes, and 7 copies, which another client has.
fn context() -> Vec<ChannelGroup> {
    vec![group(1, vec![5]), ChannelGroup { client: 9, ..copy_group(1, 4, vec![7]) }]
}

fn grip() -> Grip {
    let grip = Grip::new(SharedPage::create(1).unwrap(), with(counting));
    grip.page().raise_channel_generation();
    grip.report(1, vec![FileId(1)], context(), vec![file()]).unwrap();
    grip
}

#[test]
fn what_was_frozen_in_two_steps_runs_after_one_thaw_and_is_off_until_then() {
    let grip = grip();
    for _ in 0..3 {
        grip.freeze(Scope::Compute).unwrap();
        assert_eq!((frozen(), grip.page().frozen_wholly()), (vec![5], false));
        grip.freeze(Scope::All).unwrap();
        assert_eq!((frozen(), grip.page().frozen_wholly()), (vec![5, 7], true));
        grip.thaw().unwrap();
        assert_eq!((frozen(), grip.page().freezes()), (vec![], 0));
    }
}

/// How often the driver is asked to thaw.
fn calls_to_thaw(grip: &Grip) -> u32 {
    THAWS.set(0);
    grip.thaw().unwrap();
    THAWS.get()
}

#[test]
fn what_computes_is_not_interrupted_when_the_rest_goes() {
    let grip = grip();
    grip.freeze(Scope::Compute).unwrap();
    INTERRUPTIONS.set(0);
    assert_eq!(grip.freeze(Scope::All).unwrap(), 1);
    assert_eq!(INTERRUPTIONS.get(), 0, "others compute");
    assert_eq!(calls_to_thaw(&grip), 2, "of each client's channels once");
    assert_eq!(frozen(), [0; 0]);
}

/// A page of another worker that takes the place of this one's.
fn page_of_next(last: &Grip) -> SharedPage {
    let next = SharedPage::create(2).unwrap();
    let tenant = SharedPage::open(last.page().file().try_clone_to_owned().unwrap()).unwrap();
    tenant.renew(SharedPage::open(next.file().try_clone_to_owned().unwrap()).unwrap()).unwrap();
    next.set_frozen(true);
    next
}

#[test]
fn what_cannot_be_frozen_wholly_for_as_long_as_one_likes_still_runs_after_one_thaw() {
    for another_worker in [false, true] {
        STUBBORN.set(None);
        let mut grip = grip();
        grip.freeze(Scope::Compute).unwrap();
        STUBBORN.set(Some(7));
        for _ in 0..200 {
            grip.freeze(Scope::All).unwrap_err();
            assert_eq!((frozen(), grip.page().frozen_wholly()), (vec![5], false), "it does not compute");
        }
        STUBBORN.set(None);
        if another_worker {
            grip = Grip::new(page_of_next(&grip), with(counting));
            grip.page().raise_channel_generation();
            grip.report(1, vec![FileId(1)], context(), vec![file()]).unwrap();
        }
        let thaws = calls_to_thaw(&grip);
        assert!(thaws <= 4, "{thaws} calls of the driver");
        assert_eq!((frozen(), grip.page().freezes()), (vec![], 0));
        grip.freeze(Scope::All).unwrap();
        grip.thaw().unwrap();
        assert_eq!(frozen(), [0; 0]);
    }
}

#[test]
fn what_came_since_and_cannot_be_frozen_adds_nothing_to_a_thaw_either() {
    let grip = grip();
    grip.freeze(Scope::Compute).unwrap();
    born_while_frozen(&grip);
    STUBBORN.set(Some(7));
    for _ in 0..200 {
        grip.freeze(Scope::All).unwrap_err();
        assert!(frozen().contains(&5), "it does not compute: {:?}", frozen());
    }
    STUBBORN.set(None);
    let thaws = calls_to_thaw(&grip);
    assert!(thaws <= 4, "{thaws} calls of the driver");
    assert_eq!((frozen(), grip.page().freezes()), (vec![], 0));
}

#[test]
fn one_that_does_not_report_what_it_has_made_stays_as_it_is() {
    let grip = grip();
    grip.freeze(Scope::Compute).unwrap();
    born_while_frozen(&grip);
    grip.page().raise_channel_generation();
    THAWS.set(0);
    let cause = grip.freeze(Scope::All).unwrap_err();
    assert!(matches!(cause, GripError::NotReported { .. }), "{cause}");
    assert_eq!((frozen(), THAWS.get()), (vec![5, 11], 0), "it does not compute meanwhile");
}

/// The tenant makes a channel that copies, freezes it at birth, and says so.
fn born_while_frozen(grip: &Grip) {
    grip.page().raise_channel_generation();
    grip.page().note_freeze();
    COUNTS.with_borrow_mut(|counts| counts.insert(11, 1));
    let groups = [context(), vec![copy_group(1, 8, vec![11])]].concat();
    grip.report(2, vec![], groups, vec![]).unwrap();
}

#[test]
fn channels_made_between_the_two_steps_are_off_with_the_rest_and_run_with_it() {
    let grip = grip();
    grip.freeze(Scope::Compute).unwrap();
    born_while_frozen(&grip);
    assert_eq!(frozen(), [5, 11]);
    grip.freeze(Scope::All).unwrap();
    assert_eq!((frozen(), grip.page().frozen_wholly()), (vec![5, 7, 11], true));
    grip.thaw().unwrap();
    assert_eq!((frozen(), grip.page().freezes()), (vec![], 0));
}

#[test]
fn the_next_worker_thaws_what_the_last_one_froze_in_part_or_in_whole() {
    for scopes in [&[Scope::Compute][..], &[Scope::Compute, Scope::All]] {
        let last = grip();
        for &scope in scopes {
            last.freeze(scope).unwrap();
        }
        // The page of the next one takes the place of that of the last, and the tenant, being frozen in part, freezes the rest.
        let next = page_of_next(&last);
        if !next.frozen_wholly() {
            next.note_freeze();
            COUNTS.with_borrow_mut(|counts| [5, 7].map(|channel| *counts.entry(channel).or_default() += 1));
            next.note_frozen_wholly();
        }
        assert_eq!(frozen(), [5, 7]);
        let next = Grip::new(next, with(counting));
        next.page().raise_channel_generation();
        next.report(1, vec![FileId(1)], context(), vec![file()]).unwrap();
        next.thaw().unwrap();
        assert_eq!(frozen(), [0; 0], "{scopes:?}");
    }
}

#[test]
fn whoever_is_waited_for_by_nobody_waits_for_no_report() {
    let grip = grip();
    grip.freeze(Scope::Compute).unwrap();
    grip.page().raise_channel_generation();
    let (over, is_over) = std::sync::mpsc::channel();
    let widened = std::thread::scope(|scope| {
        let grip = &grip;
        scope.spawn(move || {
            // In time for whoever waits.
            if is_over.recv_timeout(REPORT_WITHIN / 2).is_err() {
                grip.report(2, vec![], context(), vec![]).unwrap();
            }
        });
        let widened = grip.freeze_rest_at_once();
        let _ = over.send(());
        widened
    });
    assert!(matches!(&widened, Err(cause) if cause.is_for_a_report()), "{widened:?}");
    assert_eq!((frozen(), grip.page().frozen_wholly()), (vec![5], false));
    grip.report(2, vec![], context(), vec![]).unwrap();
    grip.freeze_rest_at_once().unwrap();
    assert_eq!((frozen(), grip.page().frozen_wholly()), (vec![5, 7], true));
    grip.thaw().unwrap();
    assert_eq!((frozen(), grip.page().freezes()), (vec![], 0));
}
