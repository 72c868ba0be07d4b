//! Handles that change their home, and looks at memory that is in use.

use super::*;
use crate::fake_device::mapping::Mapping;
use crate::{Home, Look, Question, Settled};

/// Memory of the host's, with a byte everywhere.
fn memory(blocks: u64, byte: u8) -> Mapping {
    let mapping = Mapping::new("home", blocks * BLOCK_BYTES).expect("a small memfd");
    fill(&mapping, byte);
    mapping
}

fn fill(mapping: &Mapping, byte: u8) {
    let bytes = mapping.bytes();
    // SAFETY: all of the mapping, and only this test's thread uses it now.
    unsafe { mapping.address(0, bytes).write_bytes(byte, bytes as usize) };
}

fn has(mapping: &Mapping, byte: u8) -> bool {
    let bytes = mapping.bytes();
    // SAFETY: as above.
    let all = unsafe { std::slice::from_raw_parts(mapping.address(0, bytes), bytes as usize) };
    all.iter().all(|found| *found == byte)
}

fn file(mapping: &Mapping) -> std::os::fd::OwnedFd {
    mapping.file().try_clone_to_owned().expect("a descriptor is free")
}

fn says(setup: &mut Setup, reply: Reply) {
    assert_eq!(setup.mover.late(reply, &mut setup.tenants), None);
}

fn prepared(setup: &mut Setup, owner: Owner, question: Question, mapping: &Mapping) {
    let files = vec![file(mapping)];
    says(setup, Reply::Prepared { owner, questions: vec![question], files });
}

fn asked(setup: &mut Setup, key: HandleKey, to: Home) -> Question {
    let question = setup.mover.begin_homing(key, to).expect("it is in the other home");
    assert_eq!(question.handle, key.handle);
    question
}

/// Takes a handle up to where its tenant is to exchange it.
fn exchange_begins(setup: &mut Setup, key: HandleKey, to: Home, mapping: &Mapping) -> Question {
    let question = asked(setup, key, to);
    assert!(setup.mover.awaits_memory(key.owner));
    prepared(setup, key.owner, question, mapping);
    assert!(!setup.mover.awaits_memory(key.owner));
    assert_eq!(setup.mover.fill(&[key], LONG), [key]);
    assert_eq!(setup.mover.begin_exchange(key), Some(question));
    assert_eq!(setup.mover.exchanging(key.owner).collect::<Vec<_>>(), [key]);
    question
}

fn exchanged(setup: &mut Setup, owner: Owner, question: Question) {
    says(setup, Reply::Exchanged { owner, questions: vec![question] });
}

fn stayed(setup: &mut Setup, owner: Owner, question: Question, code: u32) {
    says(setup, Reply::Stayed { owner, questions: vec![question], code, call: "cuMemMap".to_owned() });
}

fn imports(setup: &Setup) -> usize {
    setup.mover.device().imports().lock().unwrap().len()
}

#[test]
fn two_handles_change_places_with_all_their_bytes() {
    let mut setup = Setup::new(16, 16);
    let (cold, hot) = (key(A, 1), key(A, 2));
    let (device, host) = (memory(3, 0x11), memory(3, 0x22));
    setup.mover.adopt(cold, device.bytes(), file(&device)).unwrap();
    setup.mover.adopt_hosted(hot, host.bytes(), file(&host)).unwrap();
    let down = memory(3, 0xa5);
    let question = exchange_begins(&mut setup, cold, Home::Host, &down);
    assert!(has(&down, 0x11), "it is filled before anybody is asked to exchange it");
    exchanged(&mut setup, A, question);
    assert!(setup.mover.is_hosted(cold) && setup.mover.handle(cold).is_none());
    assert_eq!(imports(&setup), 2, "what lay under it is let go");
    let up = memory(3, 0xa5);
    let question = exchange_begins(&mut setup, hot, Home::Device, &up);
    assert!(has(&up, 0x22));
    exchanged(&mut setup, A, question);
    assert_eq!(setup.mover.handle(hot).map(|view| view.whereabouts), Some(Whereabouts::Device));
    assert!(!setup.mover.is_hosted(hot));
    let settled = [(cold, Settled::Moved(Home::Host)), (hot, Settled::Moved(Home::Device))];
    assert_eq!(setup.mover.take_settled(), settled);
    // It moves as any other from now on.
    assert!(setup.mover.begin_homing(hot, Home::Host).is_some());
    assert!(setup.mover.begin_homing(cold, Home::Host).is_none(), "it is there already");
    setup.mover.forget_owner(A);
    assert_eq!(imports(&setup), 0);
    assert!(setup.mover.device().violations().lock().unwrap().is_empty());
}

#[test]
fn one_that_stays_or_ends_in_the_middle_leaves_nothing() {
    let mut setup = Setup::new(16, 16);
    let (one, other) = (key(A, 1), key(A, 2));
    let memories = [memory(2, 1), memory(2, 2)];
    for (key, memory) in [one, other].into_iter().zip(&memories) {
        setup.mover.adopt(key, memory.bytes(), file(memory)).unwrap();
    }
    let first = memory(2, 0xa5);
    let question = exchange_begins(&mut setup, one, Home::Host, &first);
    stayed(&mut setup, A, question, 2);
    assert_eq!(setup.mover.take_settled(), [(one, Settled::Stayed)]);
    assert_eq!((imports(&setup), setup.mover.is_hosted(one)), (2, false));
    // Nobody waits for it any more.
    exchanged(&mut setup, A, question);
    assert!(setup.mover.take_settled().is_empty() && !setup.mover.is_hosted(one));
    let second = memory(2, 0xa5);
    exchange_begins(&mut setup, one, Home::Host, &second);
    says(&mut setup, Reply::Freed { owner: A, handles: vec![one.handle] });
    assert_eq!(setup.mover.exchanging(A).count(), 0);
    assert_eq!((imports(&setup), setup.mover.take_settled().len()), (1, 0));
    // Asked for, and given up before it was there.
    let question = asked(&mut setup, other, Home::Host);
    assert_eq!(setup.mover.give_up_homing(A), [question]);
    prepared(&mut setup, A, question, &memory(2, 0xa5));
    assert_eq!(imports(&setup), 1);
    let third = memory(2, 0xa5);
    exchange_begins(&mut setup, other, Home::Host, &third);
    assert!(setup.mover.give_up_homing(A).is_empty(), "what may be exchanged already is not given up");
    says(&mut setup, Reply::Gone { owner: A });
    assert_eq!((imports(&setup), setup.mover.take_settled().len()), (0, 0));
}

/// A handle in the host's memory.
fn one_on_host() -> (Setup, HandleKey) {
    let mut setup = Setup::new(16, 16);
    let (one, host) = (key(A, 1), memory(2, 7));
    setup.mover.adopt_hosted(one, host.bytes(), file(&host)).unwrap();
    (setup, one)
}

#[test]
fn a_late_answer_is_not_taken_for_that_to_another_question() {
    let (mut setup, one) = one_on_host();
    // It was stopped, and hears all three at once: asked, given up, asked again. It makes one memory, lets go of it, and makes
    // the other.
    let first = asked(&mut setup, one, Home::Device);
    assert_eq!(setup.mover.give_up_homing(A), [first]);
    let second = asked(&mut setup, one, Home::Device);
    let (dropped, kept) = (memory(2, 0xa5), memory(2, 0xa5));
    prepared(&mut setup, A, first, &dropped);
    assert_eq!(imports(&setup), 1, "nobody wants it any more");
    assert!(setup.mover.awaits_memory(A) && setup.mover.fill(&[one], LONG).is_empty());
    prepared(&mut setup, A, second, &kept);
    assert!(!setup.mover.awaits_memory(A));
    assert_eq!(setup.mover.fill(&[one], LONG), [one]);
    assert!(has(&kept, 7) && has(&dropped, 0xa5), "its bytes are where it looks for them");
    assert_eq!(setup.mover.begin_exchange(one), Some(second));
    // Nor is anything else that is said about the first one meant for the second.
    exchanged(&mut setup, A, first);
    stayed(&mut setup, A, first, 2);
    assert_eq!(setup.mover.exchanging(A).collect::<Vec<_>>(), [one]);
    exchanged(&mut setup, A, second);
    assert_eq!(setup.mover.take_settled(), [(one, Settled::Moved(Home::Device))]);
    assert_eq!((setup.mover.is_hosted(one), imports(&setup)), (false, 1));
}

#[test]
fn one_that_stays_by_a_late_answer_is_still_asked() {
    let (mut setup, one) = one_on_host();
    let first = asked(&mut setup, one, Home::Device);
    assert_eq!(setup.mover.give_up_homing(A), [first]);
    let second = asked(&mut setup, one, Home::Device);
    stayed(&mut setup, A, first, 0);
    assert!(setup.mover.awaits_memory(A));
    prepared(&mut setup, A, second, &memory(2, 0xa5));
    // What is there already is given up as well, and comes twice for nothing.
    assert_eq!((setup.mover.give_up_homing(A), imports(&setup)), (vec![second], 1));
    prepared(&mut setup, A, second, &memory(2, 0xa5));
    assert_eq!((setup.mover.give_up_homing(A), imports(&setup)), (vec![], 1));
}

#[test]
fn what_was_given_up_and_never_answered_can_be_asked_for_again() {
    let (mut setup, one) = one_on_host();
    // What is not made yet when it is given up is never answered.
    let first = asked(&mut setup, one, Home::Device);
    assert_eq!(setup.mover.give_up_homing(A), [first]);
    let question = exchange_begins(&mut setup, one, Home::Device, &memory(2, 0xa5));
    exchanged(&mut setup, A, question);
    assert!(!setup.mover.is_hosted(one) && setup.mover.handle(one).is_some());
}

#[test]
fn of_several_some_can_be_answered_late_and_others_not_at_all() {
    let mut setup = Setup::new(16, 16);
    let keys = [1, 2, 3].map(|handle| key(A, handle));
    let [one, other, gone] = keys;
    let memories = keys.map(|_| memory(1, 7));
    for (&key, memory) in keys.iter().zip(&memories) {
        setup.mover.adopt_hosted(key, memory.bytes(), file(memory)).unwrap();
    }
    let first = keys.map(|key| asked(&mut setup, key, Home::Device));
    assert_eq!(setup.mover.give_up_homing(A), first);
    let again = asked(&mut setup, one, Home::Device);
    // One message about all of them, and one of them has been freed.
    says(&mut setup, Reply::Freed { owner: A, handles: vec![gone.handle] });
    let made = [0xa1, 0xa2, 0xa3, 0xa4].map(|byte| memory(1, byte));
    let questions = [first[0], first[1], first[2], again].to_vec();
    says(&mut setup, Reply::Prepared { owner: A, questions, files: made.iter().map(file).collect() });
    assert_eq!(imports(&setup), 3, "two that are there, and what was made for the open question");
    assert_eq!(setup.mover.fill(&keys, LONG), [one]);
    assert!(has(&made[3], 7) && has(&made[0], 0xa1));
    assert_eq!(setup.mover.begin_exchange(one), Some(again));
    says(&mut setup, Reply::Exchanged { owner: A, questions: [first[0], first[1], again].to_vec() });
    assert_eq!(setup.mover.take_settled(), [(one, Settled::Moved(Home::Device))]);
    assert!(setup.mover.is_hosted(other));
    // What is freed is asked for no more; another one of its number is not it.
    setup.mover.adopt_hosted(gone, memories[2].bytes(), file(&memories[2])).unwrap();
    let anew = asked(&mut setup, gone, Home::Device);
    prepared(&mut setup, A, first[2], &made[2]);
    assert!(anew != first[2] && setup.mover.awaits_memory(A));
    says(&mut setup, Reply::Gone { owner: A });
    prepared(&mut setup, A, anew, &made[2]);
    assert_eq!(imports(&setup), 0);
}

#[test]
fn what_cannot_be_imported_is_given_up_so_that_its_tenant_lets_it_go() {
    let mut setup = Setup::new(16, 16);
    let (one, device, host) = (key(A, 1), memory(2, 7), memory(2, 0xa5));
    setup.mover.adopt(one, device.bytes(), file(&device)).unwrap();
    let question = asked(&mut setup, one, Home::Host);
    setup.mover.device_mut().fail(Operation::Import, 1);
    prepared(&mut setup, A, question, &host);
    assert!(!setup.mover.awaits_memory(A), "it has answered");
    assert!(setup.mover.fill(&[one], LONG).is_empty() && setup.mover.begin_exchange(one).is_none());
    assert_eq!(setup.mover.give_up_homing(A), [question]);
    assert_eq!(imports(&setup), 1);
    // Another time it may go better.
    exchange_begins(&mut setup, one, Home::Host, &host);
}

#[test]
fn what_may_be_exchanged_already_is_not_forgotten() {
    for to in [Home::Host, Home::Device] {
        let mut setup = Setup::new(16, 16);
        let (one, other) = (key(A, 1), key(A, 2));
        let (first, second) = (memory(2, 1), memory(2, 2));
        match to {
            Home::Host => setup.mover.adopt(one, first.bytes(), file(&first)).unwrap(),
            Home::Device => setup.mover.adopt_hosted(one, first.bytes(), file(&first)).unwrap(),
        }
        setup.mover.adopt_hosted(other, second.bytes(), file(&second)).unwrap();
        let question = exchange_begins(&mut setup, one, to, &memory(2, 0xa5));
        assert!(!setup.mover.forget_hosted(A), "its tenant may have left what lay under it");
        assert!(!setup.mover.is_hosted(other));
        assert_eq!(setup.mover.exchanging(A).collect::<Vec<_>>(), [one]);
        exchanged(&mut setup, A, question);
        assert_eq!(setup.mover.is_hosted(one), to == Home::Host);
        assert_eq!(setup.mover.handle(one).is_some(), to == Home::Device);
        let before = imports(&setup);
        assert!(setup.mover.forget_hosted(A), "{to:?}");
        assert_eq!(imports(&setup), before - usize::from(to == Home::Host));
        assert_eq!(setup.mover.take_settled(), [(one, Settled::Moved(to))], "it is told of all the same");
    }
}

#[test]
fn what_could_not_be_filled_is_not_exchanged() {
    for operation in [Operation::CopyBetween, Operation::Mark, Operation::Passed] {
        let mut setup = Setup::new(16, 16);
        let (one, device, host) = (key(A, 1), memory(2, 7), memory(2, 0xa5));
        setup.mover.adopt(one, device.bytes(), file(&device)).unwrap();
        let question = asked(&mut setup, one, Home::Host);
        prepared(&mut setup, A, question, &host);
        setup.mover.device_mut().fail(operation, 1);
        assert!(setup.mover.fill(&[one], LONG).is_empty(), "{operation:?}");
        assert!(setup.mover.begin_exchange(one).is_none(), "{operation:?}");
        assert_eq!(setup.mover.give_up_homing(A), [question]);
        assert_eq!(imports(&setup), 1);
        assert!(setup.mover.device().violations().lock().unwrap().is_empty(), "{operation:?}");
    }
}

#[test]
fn a_look_tells_what_has_changed_since_the_last() {
    let mut setup = Setup::new(64, 64);
    let (device, host) = (memory(4, 1), memory(4, 2));
    let (one, other) = (key(A, 1), key(A, 2));
    setup.mover.adopt(one, device.bytes(), file(&device)).unwrap();
    setup.mover.adopt_hosted(other, host.bytes(), file(&host)).unwrap();
    assert_eq!(setup.mover.look(A, LONG).unwrap(), [], "there is nothing to compare with");
    let look = |key, changed| Look { key, blocks: 4, changed };
    assert_eq!(setup.mover.look(A, LONG).unwrap(), [look(one, 0), look(other, 0)]);
    fill(&host, 3);
    // SAFETY: within the mapping, and only this test's thread uses it now.
    unsafe { device.address(2 * BLOCK_BYTES + 77, 1).write(9) };
    assert_eq!(setup.mover.look(A, LONG).unwrap(), [look(one, 1), look(other, 4)]);
    assert_eq!(setup.mover.look(A, LONG).unwrap(), [look(one, 0), look(other, 0)]);
    assert_eq!(setup.mover.look(B, LONG).unwrap(), []);
    assert_eq!(setup.mover.hosts().into_iter().collect::<Vec<_>>(), [A]);
}
