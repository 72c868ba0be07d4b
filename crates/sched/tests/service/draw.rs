//! Which programs meet: drawn from a seed.

use crate::machine::Machine;
use crate::program::{Deed, Process, Step};
use crate::random::Chance;
use sched::{Bytes, Class, JobId, Ratio, Settings, Span, TenantId, Terms, WhenFull};

/// The machine of a seed, with all that will come.
pub(crate) fn machine(seed: u64) -> Machine {
    let mut chance = Chance(seed);
    match seed % 4 {
        0 => steady(&mut chance),
        1 => loading(&mut chance),
        _ => mixed(&mut chance, seed % 16 == 6),
    }
}

fn settings(chance: &mut Chance) -> Settings {
    let gap_max = chance.of(&[5, 20, 60, 60]).expect("some");
    Settings {
        gap_max: Span::from_secs(gap_max),
        handle_max: Bytes::from_gib(4),
        prefetch: chance.percent(80),
        ..Settings::default()
    }
}

fn terms(chance: &mut Chance) -> Terms {
    Terms {
        weight: chance.of(&[1, 1, 1, 2, 4]).expect("some"),
        when_full: chance.of(&[WhenFull::Fail, WhenFull::Wait]).expect("some"),
        ..Terms::default()
    }
}

/// In so many pieces, which make up about so much.
fn pieces(chance: &mut Chance, bytes: Bytes, pause: impl Fn(&mut Chance) -> Option<Step>) -> Vec<Step> {
    let most = 1 << chance.below(7);
    let count = (1 + chance.below(most)).max(bytes.0.div_ceil(4 << 30));
    let piece = Bytes((bytes.0 / count).next_multiple_of(2 << 20));
    let mut steps = Vec::new();
    for _ in 0..count {
        steps.push(Step::Alloc(piece));
        steps.extend(pause(chance));
    }
    steps
}

/// Programs that do the same all the time.
fn steady(chance: &mut Chance) -> Machine {
    let count = 2 + chance.below(4);
    let gib = 16 + chance.below(24);
    let settings = settings(chance);
    let arena = Bytes::from_gib(400);
    let mut machine = Machine::new(settings, &[Bytes::from_gib(gib)], arena, Span::from_secs(600));
    machine.watch.steady = true;
    machine.watch.arena = arena;
    let largest = (gib - 4) / chance.of(&[1, 1, 2, 3]).expect("some");
    for id in 1..=count {
        let mut process = Process::new(id, terms(chance), 0);
        let bytes = chance.mib(largest << 9, largest << 10);
        process.steps.extend(pieces(chance, bytes, |_| None));
        let step = chance.of(&[10, 50, 200, 3_000]).expect("some");
        process.cycle = vec![Step::Work(Span::from_millis(step))];
        machine.add(process, chance.span(Span::from_secs(5)), Vec::new());
    }
    machine
}

/// Programs that take turns by moves, and then some that take their memory piece by piece beside them, again and again.
fn loading(chance: &mut Chance) -> Machine {
    let gib = 16 + chance.below(24);
    let settings = Settings { gap_max: Span::from_secs(60), ..settings(chance) };
    let arena = Bytes::from_gib(400);
    let mut machine = Machine::new(settings, &[Bytes::from_gib(gib)], arena, Span::from_secs(600));
    machine.watch.arena = arena;
    machine.measures = chance.percent(50);
    let usable = gib - 5;
    let busy = 1 + chance.below(3);
    // No two of them fit together, so each switch moves half of the GPU and more.
    let size = |chance: &mut Chance| chance.mib(usable * 620, usable << 10);
    for id in 1..=busy {
        let mut process = Process::new(id, terms(chance), 0);
        let bytes = size(chance);
        process.steps.extend(pieces(chance, bytes, |_| None));
        let work = Span::from_millis(chance.of(&[20, 300, 5_000]).expect("some"));
        let rest = chance.of(&[0, 0, 1, 30]).expect("some");
        process.cycle = vec![Step::Work(work)];
        process.cycle.extend((rest > 0).then(|| Step::Host(Span::from_millis(rest))));
        machine.add(process, chance.span(Span::from_secs(2)), Vec::new());
    }
    for id in busy + 1..=busy + 1 + chance.below(2) {
        let mut process = Process::new(id, terms(chance), 0);
        let bytes = size(chance);
        let longest = chance.of(&[5, 50, 100, 150, 250, 1_000]).expect("some");
        let works = chance.of(&[0, 0, 30, 100]).expect("some");
        let async_too = chance.percent(30);
        let between = |chance: &mut Chance| {
            let span = chance.span(Span::from_millis(longest));
            Some(match chance.percent(works) {
                true if async_too && chance.percent(50) => Step::Launch(span),
                true => Step::Work(span),
                false => Step::Host(span),
            })
        };
        let load = pieces(chance, bytes, between);
        let count = load.iter().filter(|step| matches!(step, Step::Alloc(_))).count();
        process.steps.extend(load.iter().copied());
        let work = Step::Work(Span::from_millis(1 + chance.below(3_000)));
        process.cycle = vec![work, Step::Host(chance.span(Span::from_secs(20)))];
        // All of it anew, or some of it.
        let again = chance.of(&[0, 1, count / 2, count]).expect("some");
        if again > 0 {
            process.cycle.push(Step::Free(again));
            process.cycle.extend(load.iter().take(2 * again));
        }
        let comes = Span::from_secs(30) + chance.span(Span::from_secs(60));
        let deeds = if chance.percent(30) { deeds(chance, &process.terms) } else { Vec::new() };
        machine.add(process, comes, deeds);
    }
    machine
}

fn pause(chance: &mut Chance, most: u64) -> Span {
    let most = chance.of(&[1, 10, 50, 200, 1_000, 5_000, 30_000]).expect("some").min(most);
    chance.span(Span::from_millis(most))
}

/// Programs of all kinds.
fn mixed(chance: &mut Chance, gang: bool) -> Machine {
    let most = if chance.percent(20) { 10 } else { 5 };
    let count = 2 + chance.below(most);
    let gib = 16 + chance.below(24);
    let settings = settings(chance);
    let fit = chance.of(&[1, 1, 2, 3]).expect("some");
    let largest = (gib - 4).saturating_sub(count / 2) / fit;
    let arena = match chance.below(6) {
        // Just enough, or too little.
        0 => Bytes::from_gib(largest * count),
        1 => Bytes::from_gib(largest * count / 2),
        _ => Bytes::from_gib(400),
    };
    let capacity = Bytes::from_gib(gib);
    let gpus = if gang { vec![capacity, capacity] } else { vec![capacity] };
    let mut machine = Machine::new(settings, &gpus, arena, Span::from_secs(400));
    machine.watch.arena = arena;
    machine.measures = chance.percent(70);
    for id in 1..=count {
        let gpu = if gang { chance.below(2) as u16 } else { 0 };
        let mut process = Process::new(id, terms(chance), gpu);
        let bytes = chance.mib(largest << 8, largest << 10);
        fill(chance, &mut process, bytes);
        process.reads = chance.percent(25);
        process.terms.compute_max =
            chance.percent(7).then(|| Ratio::from_percent(20 + 10 * chance.below(8) as u32));
        let comes = if chance.percent(60) { Span::from_secs(2) } else { Span::from_secs(120) };
        let comes = chance.span(comes);
        let deeds = deeds(chance, &process.terms);
        machine.add(process, comes, deeds);
    }
    if gang {
        let terms = Terms { gang: true, ..terms(chance) };
        let comes = chance.span(Span::from_secs(30));
        let ids = [TenantId(count + 1), TenantId(count + 2)];
        let bytes = chance.mib(largest << 8, largest << 10);
        let step = Span::from_millis(1 + chance.below(300));
        for (gpu, id) in (0u16..).zip(ids) {
            let mut process = Process::new(id.0, terms.clone(), gpu);
            process.job = JobId(count + 1);
            process.fellows = ids.into_iter().filter(|&other| other != id).collect();
            process.steps.extend(pieces(chance, bytes, |_| None));
            process.cycle = vec![Step::Work(step)];
            machine.add(process, comes, Vec::new());
        }
    }
    machine
}

/// What one program does.
fn fill(chance: &mut Chance, process: &mut Process, bytes: Bytes) {
    let between = pause(chance, 3_000);
    let works = chance.percent(30);
    let jitter = chance.percent(50);
    let mut steps = pieces(chance, bytes, |chance| match chance.below(if works { 2 } else { 1 }) {
        0 => Some(Step::Host(if jitter { chance.span(between) } else { between })),
        _ => Some(Step::Work(Span::from_millis(1 + chance.below(100)))),
    });
    let work = Span::from_millis(chance.of(&[4, 10, 30, 300, 2_000, 10_000]).expect("some"));
    let rest = pause(chance, 30_000);
    match chance.below(8) {
        // Busy all the time.
        0 | 1 => process.cycle = vec![Step::Work(work)],
        // With pauses.
        2 | 3 => process.cycle = vec![Step::Work(work), Step::Host(rest)],
        // Frees some and takes as much again.
        4 => {
            let some = Bytes((bytes.0 / 8).next_multiple_of(2 << 20).min(4 << 30));
            process.cycle = vec![
                Step::Work(work),
                Step::Alloc(some),
                Step::Work(work),
                Step::Host(rest),
                Step::Free(1),
                Step::Work(work),
            ];
        }
        // Asks for more while the GPU is busy, and grows for as long as it can.
        5 => {
            process.cycle = vec![
                Step::Launch(work),
                Step::Alloc(Bytes::from_mib(256 + 2 * chance.below(512))),
                Step::Work(work),
                Step::Host(rest),
            ];
        }
        // Does a while of work and is over, then the next of its kind would come.
        6 => {
            steps.extend([Step::Work(Span::from_secs(1 + chance.below(60))), Step::End]);
        }
        // Pins and unpins.
        _ => {
            process.cycle =
                vec![Step::Pin(true), Step::Work(work), Step::Host(rest), Step::Pin(false), Step::Work(work)];
        }
    }
    process.steps.extend(steps);
}

/// What people do to one program.
fn deeds(chance: &mut Chance, terms: &Terms) -> Vec<(Span, Deed)> {
    let mut deeds = Vec::new();
    let at = |chance: &mut Chance| Span::from_secs(5) + chance.span(Span::from_secs(300));
    match chance.below(13) {
        0 => {
            let begin = at(chance);
            deeds.push((begin, Deed::Pause));
            deeds.push((begin + chance.span(Span::from_secs(60)), Deed::Resume));
        }
        1 => deeds.push((at(chance), Deed::Kill)),
        2 => deeds
            .push((at(chance), Deed::Terms(Terms { weight: 1 + chance.below(4) as u32, ..terms.clone() }))),
        4 => {
            let begin = at(chance);
            deeds.push((begin, Deed::GivesWay(true)));
            deeds.push((begin + chance.span(Span::from_secs(60)), Deed::GivesWay(false)));
        }
        5 => {
            let begin = at(chance);
            deeds.push((begin, Deed::Unmanaged(chance.mib(64, 3_000))));
            deeds.push((begin + chance.span(Span::from_secs(60)), Deed::Unmanaged(Bytes::ZERO)));
        }
        6 => {
            let begin = at(chance);
            deeds.push((begin, Deed::Terms(Terms { reserve: true, ..terms.clone() })));
            deeds.push((begin + chance.span(Span::from_secs(60)), Deed::Terms(terms.clone())));
        }
        3 => {
            let begin = at(chance);
            let critical = Terms { class: Class::LatencyCritical, ..terms.clone() };
            deeds.push((begin, Deed::Terms(critical)));
            deeds.push((begin + chance.span(Span::from_secs(30)), Deed::Terms(terms.clone())));
        }
        _ => {}
    }
    deeds
}
