//! The same with two pages, of a process on two GPUs: a launch looks at the first only, and all others at both.

use super::{END, START, Side};
use std::collections::HashSet;

/// Everything that is shared, as plain numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    begun: u8,
    taken: u8,
    done: u8,
    /// What the GPUs have: kernels that nobody waited for.
    running: u8,
    pages: [Page; 2],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Page {
    idle: bool,
    watched: bool,
    told: u8,
    daemon_says_idle: bool,
}

/// `wake_all`, from step `first` on: two steps a page.
fn wake_all(world: &mut World, side: &mut Side, first: u8, then: u8) {
    let (number, step) = ((side.at - first) / 2, (side.at - first) % 2);
    let page = &mut world.pages[usize::from(number)];
    let next = if number == 0 { first + 2 } else { then };
    match step {
        0 => side.at = if std::mem::take(&mut page.idle) { side.at + 1 } else { next },
        _ => {
            page.told += u8::from(std::mem::take(&mut page.watched));
            side.at = next;
        }
    }
}

/// A launch: count, look at the first page, perhaps wake both, hand over.
fn launcher(world: &mut World, side: &mut Side) {
    match side.at {
        0 => {
            world.begun += 1;
            side.at = 1;
        }
        1 => side.at = if world.pages[0].idle { 2 } else { 6 },
        2..=5 => wake_all(world, side, 2, 6),
        6 => {
            world.running += 1;
            side.at = 7;
        }
        _ => {
            world.taken += 1;
            side.at = END;
        }
    }
}

/// A wait, and the conclusion that nothing is left. `rested` is the side's second number.
fn waiter(world: &mut World, side: &mut Side) {
    let at_rest = world.done == world.begun;
    match side.at {
        0 => {
            side.taken = world.taken;
            side.at = 1;
        }
        1 => {
            world.running = 0;
            side.at = 2;
        }
        2 => {
            world.done = world.done.max(side.taken);
            // From here on it says whether a page was changed.
            side.taken = 0;
            side.at = 3;
        }
        3 => side.at = if world.pages[0].idle { 4 } else { 5 },
        4 => side.at = if world.pages[1].idle { END } else { 5 },
        5 => {
            side.number = world.begun;
            side.at = if at_rest { 6 } else { END };
        }
        6 | 7 => {
            let page = &mut world.pages[usize::from(side.at - 6)];
            side.taken |= u8::from(!std::mem::replace(&mut page.idle, true));
            side.at += 1;
        }
        8 => side.at = if side.taken == 0 || (at_rest && world.begun == side.number) { END } else { 9 },
        _ => wake_all(world, side, 9, END),
    }
}

/// The daemon looks at one page: watch, look, perhaps take for idle.
fn daemon<const PAGE: usize>(world: &mut World, side: &mut Side) {
    let page = &mut world.pages[PAGE];
    match side.at {
        0 => {
            page.watched = true;
            side.at = 1;
        }
        1 => side.at = if page.idle { 2 } else { 3 },
        2 => {
            page.daemon_says_idle = true;
            side.at = END;
        }
        _ => {
            page.watched = false;
            side.at = END;
        }
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
        let going: Vec<usize> = (0..sides.len()).filter(|&index| places[index].at != END).collect();
        for &index in &going {
            let (mut world, mut places) = (world.clone(), places.clone());
            sides[index](&mut world, &mut places[index]);
            open.push((world, places));
        }
        if going.is_empty() {
            ends += 1;
            let is_wrong = |page: &Page| page.idle || page.daemon_says_idle && page.told == 0;
            if world.running > 0 && world.pages.iter().any(is_wrong) {
                wrong = Some(world);
            }
        }
    }
    (ends, wrong)
}

fn idle() -> World {
    let page = Page { idle: true, ..Page::default() };
    World { begun: 1, taken: 1, done: 1, pages: [page.clone(), page], ..World::default() }
}

#[test]
fn nobody_with_work_is_taken_for_idle_on_either_gpu() {
    let at_work = World { begun: 1, taken: 1, running: 1, ..World::default() };
    let cases: [(&[Step], World); 5] = [
        (&[launcher, daemon::<0>, daemon::<1>], idle()),
        (&[launcher, launcher, daemon::<1>], idle()),
        (&[launcher, waiter, daemon::<1>], at_work.clone()),
        (&[launcher, waiter, daemon::<0>], idle()),
        (&[launcher, waiter, waiter, daemon::<1>], at_work),
    ];
    for (sides, start) in cases {
        let (ends, wrong) = explore(sides, start);
        assert!(ends >= 3, "{ends}");
        assert_eq!(wrong, None);
    }
}

#[test]
fn the_exploration_finds_a_wait_that_looks_at_the_first_page_only() {
    /// Takes back its word only if the first page has it still.
    fn hasty(world: &mut World, side: &mut Side) {
        match side.at {
            9 if !world.pages[0].idle => side.at = END,
            _ => waiter(world, side),
        }
    }
    let at_work = World { begun: 1, taken: 1, running: 1, ..World::default() };
    assert!(explore(&[launcher, hasty], at_work).1.is_some());
}
