//! A daemon that has something to hear all the time: what is due is done all the same.

use crate::requests::{MS, beside_work, hint};
use crate::world::{PATIENCE, await_that};
use rota_daemon::daemon::Input;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// So many questions are always left to answer.
const BACKLOG: usize = 2_000;

/// A hint is heard after those, and is for later still.
const AHEAD: u64 = 500 * MS;

#[test]
fn a_hint_is_honoured_while_there_is_always_something_to_answer() {
    let (world, service, work) = beside_work();
    let before = work.page().freeze_generation();
    let (inputs, enough) = (world.inputs.clone(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (answer, answers) = mpsc::channel();
            let (mut open, end) = (0, Instant::now() + 2 * PATIENCE);
            while !enough.load(Relaxed) && Instant::now() < end {
                for _ in open..BACKLOG {
                    let _ = inputs.send(Input::Look(answer.clone()));
                }
                open = BACKLOG - answers.try_iter().count().min(BACKLOG);
            }
        });
        let mut again = Instant::now();
        await_that("best-effort work goes while there is more to answer", || {
            // One that the machine was too slow for is not the last.
            if Instant::now() >= again {
                hint(&service, AHEAD);
                again = Instant::now() + 2 * Duration::from_nanos(AHEAD);
            }
            let gone = work.page().freeze_generation() > before;
            enough.store(gone, Relaxed);
            gone
        });
    });
}
