//! How long a switch takes, on a clock that only a model of the device and its tenants moves: what the order of things costs.

mod model;

use super::{A, B, Driven};
use crate::device::{Device as _, Registrar};
use crate::exchange::times::Doing;
use crate::exchange::{Outcome, Plan};
use crate::pace::Lengths;
use crate::test_keeper::{TestKeeper, process};
use crate::{BLOCK_BYTES, Domain, Mover};
use model::{Costs, EVEN, LAGGING, SCALE, TimedDevice, UNEVEN, a_file, keys};
use std::sync::mpsc::channel;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A switch from A to B, which have as many handles of these sizes in MiB, with so much room to begin with.
fn switch(costs: Costs, sizes: &[u64], room_mib: u64) -> Outcome {
    switch_of(costs, sizes, room_mib, false, Lengths::default())
}

/// The same of two that may trust each other, with copies out of these lengths.
fn switch_of(costs: Costs, sizes: &[u64], room_mib: u64, are_friends: bool, lengths: Lengths) -> Outcome {
    let blocks: Vec<u64> = sizes.iter().map(|mib| mib * MIB / SCALE / BLOCK_BYTES).collect();
    let all: u64 = blocks.iter().sum();
    let clock = Driven::default();
    let (sender, replies) = channel();
    let device = TimedDevice::new(costs, &clock, sender);
    let mut tenants = device.tenants();
    let keeper = TestKeeper::start(2 * all + 2, 64 * MIB / SCALE);
    let registrar: Box<dyn Registrar> = device.registrar();
    let mut mover = Mover::new(device, keeper.arena(registrar));
    mover.arena().wait_until_prepared();
    mover.request_bytes /= SCALE;
    mover.lengths = Lengths {
        usual_bytes: lengths.usual_bytes / SCALE,
        short_bytes: lengths.short_bytes / SCALE,
        ahead_bytes: lengths.ahead_bytes / SCALE,
    };
    mover.clock = clock.clock();
    for owner in [A, B] {
        mover.introduce(owner, process(owner)).expect("a new tenant");
    }
    if are_friends {
        mover.pass_from(32 * MIB / SCALE);
        for owner in [A, B] {
            mover.set_domain(owner, Some(Domain([1; 5])));
            keys(owner, blocks.len()).into_iter().for_each(|key| mover.may_pass(key));
        }
    }
    let deadline = Duration::from_secs(3);
    let adopt = |mover: &mut Mover<TimedDevice>, owner| {
        let keys = keys(owner, blocks.len());
        for (key, blocks) in keys.iter().zip(&blocks) {
            mover.adopt(*key, blocks * BLOCK_BYTES, a_file()).expect("a new handle");
        }
        keys
    };
    let into = adopt(&mut mover, B);
    let plan = Plan { out: into.clone(), into: Vec::new(), room_bytes: 0, deadline };
    assert_eq!(mover.exchange(plan, &mut tenants, &replies).failed, []);
    let out = adopt(&mut mover, A);
    let plan = Plan { out, into, room_bytes: room_mib * MIB / SCALE, deadline };
    let outcome = mover.exchange(plan, &mut tenants, &replies);
    assert_eq!((outcome.failed.len(), outcome.moved_out.len()), (0, blocks.len()));
    drop(mover);
    outcome
}

/// How much longer it took than copying so much both ways at once does.
fn more_than_copying(costs: Costs, sizes: &[u64], outcome: &Outcome) -> Duration {
    let bytes = (sizes.iter().sum::<u64>() * MIB) as f64;
    let took: Duration = outcome.times.out.values().sum();
    assert_eq!(took, outcome.times.into.values().sum(), "lanes account for all of the time");
    took.saturating_sub(Duration::from_secs_f64(bytes / costs.both[1]))
}

fn idle(outcome: &Outcome) -> Duration {
    let waits = outcome.times.into.iter().filter(|(doing, _)| !matches!(doing, Doing::Copying | Doing::Done));
    waits.map(|(_, took)| *took).sum()
}

const US: Duration = Duration::from_micros(1);

/// To unmap, to drop our import, to create, and to import: what lies between the end of a copy out and the copy into its room.
fn chain(costs: Costs) -> Duration {
    costs.unmap + costs.release + costs.create + costs.import + 4 * costs.message
}

#[test]
fn only_the_first_handle_holds_the_lane_in_up() {
    for costs in [EVEN, UNEVEN] {
        let sizes = [256; 12];
        let outcome = switch(costs, &sizes, 0);
        let first = Duration::from_secs_f64(256.0 * MIB as f64 / costs.alone[0]);
        let (waited, expected) = (idle(&outcome), first + chain(costs));
        assert!(waited <= expected + 500 * US, "{waited:?}, not {expected:?}: {:?}", outcome.times);
        assert!(waited >= first, "{waited:?} is less than the first copy takes: {:?}", outcome.times);
    }
    let (sizes, smaller) = ([256; 12], [64; 48]);
    let more = more_than_copying(EVEN, &sizes, &switch(EVEN, &sizes, 0));
    let less = more_than_copying(EVEN, &smaller, &switch(EVEN, &smaller, 0));
    assert!(
        more < 6500 * US && less + 2500 * US < more,
        "{more:?} with large handles, {less:?} with small ones"
    );
}

#[test]
fn with_room_for_a_handle_nothing_waits_for_what_leaves() {
    let sizes = [256; 12];
    let outcome = switch(EVEN, &sizes, 256);
    assert_eq!(outcome.times.into.get(&Doing::Room), None, "{:?}", outcome.times);
    let more = more_than_copying(EVEN, &sizes, &outcome);
    // The last import is dropped when nothing comes in any more.
    assert!(more < 2000 * US + EVEN.release, "{more:?}: {:?}", outcome.times);
}

#[test]
fn a_smaller_handle_comes_first_where_the_next_has_no_room() {
    let sizes = [vec![256; 11], vec![64; 4]].concat();
    let outcome = switch(EVEN, &sizes, 64);
    assert_eq!(outcome.moved_in[0].handle, 11, "that of 64 MiB");
    let more = more_than_copying(EVEN, &sizes, &outcome);
    assert!(more < 5500 * US, "{more:?}: {:?}", outcome.times);
}

#[test]
fn memory_that_is_passed_is_not_cleared_and_nobody_waits_for_it_to_be_made() {
    let sizes = [256; 12];
    // As measured beside copies out: 0.75 ms for a handle.
    let costs = Costs { clear: 3000 * US, ..EVEN };
    let strangers = switch(costs, &sizes, 0);
    let friends = switch_of(costs, &sizes, 0, true, Lengths::default());
    assert_eq!((strangers.passed_bytes, friends.passed_bytes), (0, friends.bytes_in));
    let [apart, together] = [&strangers, &friends].map(|outcome| more_than_copying(costs, &sizes, outcome));
    assert!(apart > 11_000 * US, "{apart:?}: {:?}", strangers.times);
    // The first copy out, the unmap behind it, and the last one to be taken.
    assert!(together < 7000 * US, "{together:?}: {:?}", friends.times);
    assert_eq!(friends.times.into.get(&Doing::Creating), None);
}

#[test]
fn copies_out_are_short_while_those_in_fall_behind() {
    let sizes = [128; 96];
    let lengths = Lengths::default();
    let never = Lengths { short_bytes: lengths.usual_bytes, ..lengths };
    let [alike, balanced] = [never, lengths].map(|lengths| switch_of(LAGGING, &sizes, 0, true, lengths));
    let done = |outcome: &Outcome| outcome.times.out.get(&Doing::Done).copied().unwrap_or_default();
    // The last handle that goes out is the last one that can come in.
    let last = Duration::from_secs_f64(128.0 * MIB as f64 / LAGGING.alone[1]);
    assert!(done(&alike) > last + 15_000 * US, "{:?}", alike.times);
    assert!(done(&balanced) < 2 * last + 1000 * US, "{:?}", balanced.times);
    let took = |outcome: &Outcome| outcome.times.into.values().sum::<Duration>();
    assert!(took(&balanced) + 5000 * US < took(&alike), "{:?}, not {:?}", took(&balanced), took(&alike));
}

#[test]
fn no_copy_out_is_short_where_what_comes_in_waits_for_it() {
    // Out is the slower way: whatever comes in has to wait for the room.
    let costs = Costs { both: [46.5e9, 50.5e9], both_briefly: [40.0e9, 54.0e9], ..EVEN };
    let sizes = [128; 48];
    let lengths = Lengths::default();
    let never = Lengths { short_bytes: lengths.usual_bytes, ..lengths };
    let took = [never, lengths].map(|lengths| {
        let outcome = switch_of(costs, &sizes, 0, true, lengths);
        outcome.times.out.values().sum::<Duration>()
    });
    assert!(took[1] < took[0] + 1000 * US, "{took:?}");
}
