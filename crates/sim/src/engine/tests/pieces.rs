//! Programs that take their memory piece by piece, while those who compute take turns.

use super::*;

/// How long a program needs for 12 pieces of 1 GiB and a second of work, with so long between two pieces, beside others of 12 GiB
/// on 16 GiB; and what was moved in all.
fn loads(others: usize, pause: Span) -> (f64, Bytes) {
    let mut jobs: Vec<Job> = (0..others).map(|_| job("works", 12, steady(100))).collect();
    let mut loader = job("loads", 12, steady(1));
    loader.memory.pause = Some(pause);
    loader.arrives = Span::from_secs(60);
    jobs.push(loader);
    let record = run(&scenario(16, jobs));
    assert!(record.finished);
    let fate = &record.tenants[others];
    (seconds(fate.ended.expect("it is over").since(fate.arrived)), record.moved)
}

/// Each piece is had within the same turn, as long as the host takes no longer for one than a switch would. It took a turn of
/// the others for each piece when whoever only asked for memory counted as idle since before it asked: 29 s and 86 s.
#[test]
fn memory_that_is_taken_quickly_takes_one_turn() {
    for pause in [1, 10] {
        for (others, longest) in [(1, 9.0), (2, 9.0), (3, 12.0)] {
            let (took, moved) = loads(others, Span::from_millis(pause));
            assert!(took < longest, "{took} s beside {others}, {moved} moved");
        }
    }
    assert!(loads(2, Span::from_millis(100)).0 < 10.0);
}

/// Whoever takes long for each piece does not keep the GPU from others meanwhile.
#[test]
fn memory_that_is_taken_slowly_keeps_nobody_from_the_gpu() {
    let alone = run(&scenario(16, (0..2).map(|_| job("works", 12, steady(100))).collect()));
    let mut jobs: Vec<Job> = (0..2).map(|_| job("works", 12, steady(100))).collect();
    let mut loader = job("loads", 12, steady(1));
    (loader.memory.pause, loader.arrives) = (Some(Span::from_secs(3)), Span::from_secs(20));
    jobs.push(loader);
    let record = run(&scenario(16, jobs));
    assert!(record.finished);
    let longer = seconds(record.makespan) - seconds(alone.makespan);
    // A second of work, and two switches of 0.3 s for each of twelve pieces.
    assert!(longer < 10.0, "{longer} s");
}
