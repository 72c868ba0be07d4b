//! Programs of different priorities that all have work all the time.

use crate::parts::WORKER;
use crate::stage::{Setup, Stage};

const LEVELS: [&str; 5] = ["realtime", "high", "normal", "low", "idle"];

/// All of them fit. The lowest come last, so that they begin beside all others, and pause often for that.
#[test]
fn under_ageing_all_begin_and_get_on_however_low_they_are() {
    let rotad = ["--policy", "priority", "--ageing", "250ms"];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 128, arena_mib: 64, rotad: &rotad });
    let mut programs = LEVELS.map(|level| {
        let mut command = stage.under_rota_with(0, level, &["--priority", level]);
        command.arg(WORKER).args("--mib 4 --piece-mib 4 --steps 1000000 --kernel-ms 2".split(' '));
        let mut program = stage.start(level, command);
        program.goes_on(1);
        program
    });
    for program in programs.iter_mut().rev() {
        program.goes_on(1);
    }
    let turns = |level| {
        let begun =
            |event: &&std::rc::Rc<serde_json::Value>| event["event"] == "turn_begin" && event["job"] == level;
        stage.events().iter().filter(begun).count()
    };
    let had = LEVELS.map(turns);
    assert!(had[0] > had[4], "the highest comes oftener than the lowest: {had:?}");
    drop(programs);
    stage.finish();
}
