//! A daemon that has something to hear all the time: what is due is done all the same.

use crate::requests::{MS, beside_work, hint};
use crate::world::await_that;
use rota_daemon::daemon::Input;
use std::sync::mpsc;

/// So many questions are always left to answer, which takes far longer than whoever asks them sleeps.
const BACKLOG: usize = 20_000;

/// A hint is heard after those, and is for later still.
const AHEAD: u64 = 3_000 * MS;

#[test]
fn a_hint_is_honoured_while_there_is_always_something_to_answer() {
    let (world, service, work) = beside_work();
    let (answer, answers) = mpsc::channel();
    let (mut open, before) = (0, work.page().freeze_generation());
    hint(&service, AHEAD);
    await_that("best-effort work goes while there is more to answer", || {
        while open < BACKLOG {
            world.inputs.send(Input::Look(answer.clone())).expect("the daemon is there");
            open += 1;
        }
        open -= answers.try_iter().count();
        work.page().freeze_generation() > before
    });
}
