//! Two threads of a program and the daemon, in every order that their steps can have.
//!
//! The steps are those of the code: each is one sequentially consistent access. What must hold at the end of every order: if
//! the daemon takes the program for idle, there is no work, or it was told.

mod pages;

use super::slots::{Slots, StreamKey};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use wire::SharedPage;

/// Everything that is shared, as plain numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    begun: u8,
    taken: u8,
    done: u8,
    idle: bool,
    watched: bool,
    /// Messages on their way.
    told: u8,
    /// What the GPU has: kernels that nobody waited for.
    running: u8,
    daemon_says_idle: bool,
}

/// A side in the middle of something: where it is, and what it remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Side {
    at: u8,
    number: u8,
    taken: u8,
}

const START: Side = Side { at: 0, number: 0, taken: 0 };
const END: u8 = 99;

/// `stir`, from step `first` on: take the idleness back; look whether anybody watches; tell.
fn stir(world: &mut World, side: &mut Side, first: u8, then: u8) {
    match side.at - first {
        0 => {
            let was = std::mem::take(&mut world.idle);
            side.at = if was { first + 1 } else { then };
        }
        1 => {
            if std::mem::take(&mut world.watched) {
                world.told += 1;
            }
            side.at = then;
        }
        _ => unreachable!(),
    }
}

/// A launch: count, look at the page, perhaps wake, hand over.
fn launcher(world: &mut World, side: &mut Side) {
    match side.at {
        0 => {
            world.begun += 1;
            side.at = 1;
        }
        1 => side.at = if world.idle { 2 } else { 4 },
        2 | 3 => stir(world, side, 2, 4),
        4 => {
            world.running += 1;
            side.at = 5;
        }
        5 => {
            world.taken += 1;
            side.at = END;
        }
        _ => unreachable!(),
    }
}

/// A wait for the stream, and the conclusion that nothing is left.
fn waiter(world: &mut World, side: &mut Side) {
    match side.at {
        0 => {
            side.taken = world.taken;
            side.at = 1;
        }
        1 => {
            // The driver returns when all is done that it had taken.
            world.running = 0;
            side.at = 2;
        }
        2 => {
            world.done = world.done.max(side.taken);
            side.at = 3;
        }
        3 => {
            side.number = world.begun;
            side.at = if world.done == world.begun { 4 } else { END };
        }
        4 => {
            // Somebody else may have said it.
            side.at = if world.idle { END } else { 5 };
            world.idle = true;
        }
        5 => side.at = if world.done == world.begun && world.begun == side.number { END } else { 6 },
        6 | 7 => stir(world, side, 6, END),
        _ => unreachable!(),
    }
}

/// The daemon: watch, look, perhaps take for idle; and hear what it is told.
fn daemon(world: &mut World, side: &mut Side) {
    match side.at {
        0 => {
            world.watched = true;
            side.at = 1;
        }
        1 => side.at = if world.idle { 2 } else { 3 },
        2 => {
            world.daemon_says_idle = true;
            side.at = END;
        }
        3 => {
            world.watched = false;
            side.at = END;
        }
        _ => unreachable!(),
    }
}

type Step = fn(&mut World, &mut Side);

/// Walks through all orders; returns how many ends there are, and one that is wrong.
fn explore(sides: &[Step], start: World) -> (usize, Option<World>) {
    let mut seen = HashSet::new();
    let mut open = vec![(start, vec![START; sides.len()])];
    let (mut ends, mut wrong) = (0, None);
    while let Some((world, places)) = open.pop() {
        if !seen.insert((world.clone(), places.clone())) {
            continue;
        }
        let mut over = true;
        for (index, step) in sides.iter().enumerate().filter(|(index, _)| places[*index].at != END) {
            over = false;
            let (mut world, mut places) = (world.clone(), places.clone());
            step(&mut world, &mut places[index]);
            open.push((world, places));
        }
        if over {
            ends += 1;
            let frozen_for_ever = world.daemon_says_idle && world.running > 0 && world.told == 0;
            let forgotten = world.idle && world.running > 0;
            if frozen_for_ever || forgotten {
                wrong = Some(world);
            }
        }
    }
    (ends, wrong)
}

fn at_work() -> World {
    World { begun: 1, taken: 1, running: 1, ..World::default() }
}

#[test]
fn nobody_with_work_is_taken_for_idle_in_any_order() {
    let idle = World { begun: 1, taken: 1, done: 1, idle: true, ..World::default() };
    let cases: [(&[Step], World); 5] = [
        (&[launcher, daemon], idle.clone()),
        (&[launcher, launcher, daemon], idle.clone()),
        (&[launcher, waiter, daemon], at_work()),
        (&[launcher, waiter, daemon], idle),
        (&[launcher, waiter, waiter, daemon], at_work()),
    ];
    for (sides, start) in cases {
        let (ends, wrong) = explore(sides, start);
        assert!(ends >= 3, "{ends}");
        assert_eq!(wrong, None);
    }
}

#[test]
fn the_exploration_finds_mistakes() {
    /// Counts only after it looked at the page.
    fn late(world: &mut World, side: &mut Side) {
        match side.at {
            0 => side.at = if world.idle { 2 } else { 1 },
            1 => {
                world.begun += 1;
                side.at = 4;
            }
            2 | 3 => stir(world, side, 2, 1),
            _ => launcher(world, side),
        }
    }
    /// Looks before it watches.
    fn hasty(world: &mut World, side: &mut Side) {
        match side.at {
            0 => side.at = if world.idle { 1 } else { END },
            1 => {
                world.watched = true;
                side.at = 2;
            }
            _ => daemon(world, side),
        }
    }
    /// Does not count again after it said that nothing is left.
    fn sure(world: &mut World, side: &mut Side) {
        match side.at {
            4 => {
                world.idle = true;
                side.at = END;
            }
            _ => waiter(world, side),
        }
    }
    /// Takes what is begun for handed over.
    fn credulous(world: &mut World, side: &mut Side) {
        match side.at {
            0 => {
                side.taken = world.begun;
                side.at = 1;
            }
            _ => waiter(world, side),
        }
    }
    let idle = World { begun: 1, taken: 1, done: 1, idle: true, ..World::default() };
    assert!(explore(&[late, waiter, daemon], at_work()).1.is_some());
    assert!(explore(&[launcher, hasty], idle).1.is_some());
    assert!(explore(&[launcher, sure, daemon], at_work()).1.is_some());
    assert!(explore(&[launcher, credulous, daemon], at_work()).1.is_some());
}

/// The real code, by real threads: one launches and waits, over and over; another plays the daemon.
#[test]
fn a_daemon_that_watches_hears_of_all_work() {
    const LAUNCHES: u64 = 20_000;
    let slots = Slots::new();
    let page = SharedPage::create(1).unwrap();
    let (told, over, missed) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    // Work of which nobody has waited for the end.
    let running = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for key in 1..=2 {
            let (slots, page, told, running) = (&slots, &page, &told, &running);
            let over = &over;
            scope.spawn(move || {
                let stir = || {
                    if page.idle_since_ns().is_some() && page.wake(1) {
                        told.fetch_add(1, SeqCst);
                    }
                };
                for _ in 0..LAUNCHES {
                    let slot = slots.claim(StreamKey(key));
                    slot.begin();
                    stir();
                    running.fetch_add(1, SeqCst);
                    slot.take();
                    let taken = slot.taken();
                    running.fetch_sub(1, SeqCst);
                    slot.finish(taken);
                    let Some(begun) = slots.at_rest() else { continue };
                    if page.rest(1) && slots.at_rest() != Some(begun) {
                        stir();
                    }
                }
                over.store(true, SeqCst);
            });
        }
        scope.spawn(|| {
            while !over.load(SeqCst) {
                let before = told.load(SeqCst);
                if !page.is_idle_when_watched() {
                    continue;
                }
                // Taken for idle. From here on, work without a word is a mistake; a word may take a moment.
                let mut looks = 0;
                while told.load(SeqCst) == before && looks < 10_000 {
                    looks += 1;
                    if running.load(SeqCst) > 0
                        && page.idle_since_ns().is_some()
                        && told.load(SeqCst) == before
                    {
                        std::thread::yield_now();
                        if looks == 9_999 {
                            missed.fetch_add(1, SeqCst);
                        }
                    }
                }
            }
        });
    });
    assert_eq!(missed.load(SeqCst), 0);
    assert!(slots.at_rest().is_some());
    assert!(page.idle_since_ns().is_some(), "all is done, and the page says so");
}
