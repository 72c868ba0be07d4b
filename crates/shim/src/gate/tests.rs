use super::*;
use std::cell::Cell;
use std::time::Instant;

const SETTLE_NS: u64 = SETTLE.as_nanos() as u64;
/// For what must happen; long, because test machines are slow.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn calls_wait_while_it_is_closed() {
    let gate = Gate::default();
    gate.close();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| gate.pass(|| CUresult::SUCCESS));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        gate.open();
        assert_eq!(waiting.join().unwrap(), CUresult::SUCCESS);
    });
}

#[test]
fn a_call_waits_at_whichever_of_several_is_closed_and_is_inside_none_meanwhile() {
    for closed in 0..2 {
        let gates = [Gate::default(), Gate::default()];
        gates[closed].close();
        let is_inside = || gates.iter().any(|gate| gate.is_anyone_busy(0, now_ns()));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| Gate::pass_several(gates.iter(), || CUresult::SUCCESS));
            std::thread::sleep(Duration::from_millis(20));
            // It may just be looking whether the gates are open.
            let end = Instant::now() + PATIENCE;
            while is_inside() && Instant::now() < end {
                std::thread::yield_now();
            }
            let seen = (waiting.is_finished(), is_inside());
            gates[closed].open();
            assert_eq!(waiting.join().unwrap(), CUresult::SUCCESS);
            assert_eq!(seen, (false, false), "it waits, and outside");
        });
    }
}

#[test]
fn a_call_that_was_caught_by_either_of_several_is_made_again() {
    let gates = [Gate::default(), Gate::default()];
    let calls = Cell::new(0);
    let caught = Gate::pass_several(gates.iter(), || {
        calls.set(calls.get() + 1);
        if calls.get() == 1 {
            gates[1].close();
            gates[1].open();
            return CUresult::INVALID_VALUE;
        }
        CUresult::SUCCESS
    });
    assert_eq!((caught, calls.get()), (CUresult::SUCCESS, 2));
}

#[test]
fn closing_waits_for_a_call_but_not_for_ever() {
    let gate = Gate::default();
    let inside = AtomicBool::new(false);
    let done = AtomicBool::new(false);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            gate.pass(|| {
                inside.store(true, SeqCst);
                while !done.load(SeqCst) {
                    std::thread::yield_now();
                }
                CUresult::SUCCESS
            })
        });
        while !inside.load(SeqCst) {
            std::thread::yield_now();
        }
        gate.close();
        let took = begin.elapsed();
        done.store(true, SeqCst);
        assert!(took >= SETTLE / 2, "closed over a call that had only begun");
    });
    assert!(!gate.is_anyone_busy(0, now_ns()), "the next closing would wait for nobody");
}

#[test]
fn a_call_that_was_caught_in_between_is_made_again_and_no_other() {
    let gate = Gate::default();
    let calls = Cell::new(0);
    let caught = gate.pass(|| {
        calls.set(calls.get() + 1);
        if calls.get() == 1 {
            gate.close();
            gate.open();
            return CUresult::INVALID_VALUE;
        }
        CUresult::SUCCESS
    });
    assert_eq!((caught, calls.get()), (CUresult::SUCCESS, 2));

    calls.set(0);
    let wrong = gate.pass(|| {
        calls.set(calls.get() + 1);
        CUresult::INVALID_VALUE
    });
    assert_eq!((wrong, calls.get()), (CUresult::INVALID_VALUE, 1), "a mistake of the program's own");
}

const GRACE_NS: u64 = GRACE.as_nanos() as u64;

#[test]
fn only_calls_that_have_just_come_in_are_waited_for_long() {
    let gate = Gate::default();
    let before = now_ns();
    assert!(!gate.is_anyone_busy(0, before), "nobody is inside");
    let result = gate.pass(|| {
        assert!(gate.is_anyone_busy(GRACE_NS, before));
        // A closing that begins when the call has been inside for long, as one does that waits for a frozen GPU.
        let later = now_ns() + SETTLE_NS;
        assert!(!gate.is_anyone_busy(GRACE_NS, later), "it has looked up its addresses long ago");
        assert!(gate.is_anyone_busy(0, later), "or it was stopped before it could, and needs a moment");
        CUresult::SUCCESS
    });
    assert_eq!(result, CUresult::SUCCESS);
    assert!(!gate.is_anyone_busy(0, now_ns()), "it went out");
}

#[test]
fn closing_never_waits_for_longer_than_a_call_may_take() {
    let (gate, before) = (Gate::default(), now_ns());
    let _inside = gate.enter();
    assert!(gate.is_anyone_busy(SETTLE_NS - 1, before));
    assert!(!gate.is_anyone_busy(SETTLE_NS, before));
}

#[test]
fn calls_beyond_the_slots_are_counted_all_the_same() {
    let gate = Gate::default();
    let inside: Vec<_> = (0..SLOTS + 2).map(|_| gate.enter()).collect();
    assert_eq!(gate.crowd.load(SeqCst), 2);
    let later = now_ns() + SETTLE_NS;
    assert!(gate.is_anyone_busy(GRACE_NS, later), "how old they are is not known");
    drop(inside);
    assert!(!gate.is_anyone_busy(GRACE_NS, later));
    assert!(gate.inside.iter().all(|slot| slot.0.load(SeqCst) == 0));
}
