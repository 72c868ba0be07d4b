//! Can these tests fail? Bugs are put into the daemon on purpose, one at a time, and each is found by what every test of whole
//! systems looks at: the bytes of programs, what the daemon reports, its books at the end, and what the virtual GPU notes.
//! Without a bug the same story ends well.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::stage::{Program, Setup, Stage, until};

/// Copies take so long that a program can be killed in the middle of one, and that what comes too early is seen.
const FAULTS: &str = "[copy]\nslower = 6.0\n";
/// When a program is killed after its memory began to come in. That takes a fifth of a second, one piece after the other.
const DEATHS: [Duration; 2] = [Duration::from_millis(80), Duration::from_millis(120)];
/// How often that is tried with a bug: nobody may be in the middle of a piece just then.
const ROUNDS: usize = 6;

struct Story {
    stage: Stage,
    programs: Vec<Program>,
    /// Errors are no find.
    goes_on: bool,
}

impl Story {
    /// Two programs that do not fit together.
    fn begin(bug: Option<&'static str>) -> Self {
        let setup = Setup { gpus: 1, gpu_mib: 48, arena_mib: 64, rotad: &["--turn", "40ms"] };
        let stage = Stage::planted(&setup, FAULTS, bug);
        let mut story = Self { stage, programs: Vec::new(), goes_on: false };
        story.bear();
        story.bear();
        // By now somebody has memory, so there is a mover.
        let is_planted = story.stage.log().contains("is planted");
        assert_eq!(
            is_planted,
            bug.is_some(),
            "rotad can be told of bugs if `cargo test --workspace` has built it"
        );
        story
    }

    fn bear(&mut self) {
        let seed = self.stage.count("joined").to_string();
        let memory = ["--mib", "24", "--piece-mib", "4", "--syncs", "--steps", "1000000"];
        let program = self.stage.worker(0, &seed, &[&memory[..], &["--seed", &seed]].concat());
        let before = self.stage.count("joined");
        self.programs.push(program);
        self.until("it is there", |story| story.stage.count("joined") > before);
    }

    /// Waits for something, and looks at everything meanwhile: a bug may stop the rest for ever.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        until(what, || {
            for program in &mut self.programs {
                program.said();
                assert_eq!(program.try_end(), None, "{} ended too early:\n{}", program.name, program.log());
            }
            if !self.goes_on {
                self.stage.met_no_error();
            }
            holds(self)
        });
    }

    fn all_go_on(&mut self) {
        let said: Vec<u64> = self.programs.iter().map(|program| program.said().steps).collect();
        self.until("all find every byte right twice more", |story| {
            story.programs.iter().zip(&said).all(|(program, before)| program.said().steps >= before + 2)
        });
    }

    /// One dies while its memory comes in, and another takes its place.
    fn one_dies(&mut self, after: Duration) {
        let pid = self.programs[0].pid();
        let before = self.stage.events().len();
        self.until("its memory comes in", |story| {
            let events = story.stage.events_from(before);
            events.iter().any(|event| event["event"] == "moving_in" && event["pid"] == pid)
        });
        std::thread::sleep(after);
        self.programs.remove(0).kill();
        self.bear();
    }
}

fn tell(bug: Option<&'static str>) {
    let mut story = Story::begin(bug);
    story.all_go_on();
    let rounds = if bug.is_some() { ROUNDS } else { 1 };
    for after in [DEATHS; ROUNDS].into_iter().take(rounds).flatten() {
        story.one_dies(after);
        story.all_go_on();
    }
    let Story { stage, mut programs, .. } = story;
    programs.iter_mut().for_each(Program::kill);
    stage.finish();
}

/// What every test of whole systems fails by.
const WRONG_BYTES: &str = "wrong: ";
const ERROR: &str = "the daemon met an error";
const BOOKS: &str = "the daemon's books do not add up";
/// The same as an error, which is in the log a little before it is in the events.
const LOST_SIGHT: &str = "the daemon lost sight of something";

/// A bug is found by one of these. What else may fail, such as a daemon that cannot be told of bugs, is no find.
fn is_found(bug: &'static str, by: &[&str]) {
    let told = catch_unwind(AssertUnwindSafe(|| tell(Some(bug))));
    let Err(cause) = told else { panic!("{bug} was not found") };
    let found = cause.downcast::<String>().map_or_else(|_| String::new(), |text| *text);
    assert!(by.iter().any(|words| found.contains(words)), "{bug} was not found, but: {found}");
}

#[test]
fn without_a_bug_the_story_ends_well() {
    tell(None);
}

#[test]
fn memory_that_is_unmapped_before_its_copy_has_ended_is_found() {
    // The virtual GPU ends the copy, and with it the daemon's context.
    is_found("UnmapBeforeCopyEnds", &[ERROR, BOOKS, WRONG_BYTES]);
}

#[test]
fn a_program_that_is_thawed_before_its_last_block_is_there_is_found() {
    is_found("ThawBeforeLastBlock", &[WRONG_BYTES, ERROR]);
}

#[test]
fn arena_space_that_is_freed_twice_when_a_program_dies_is_found() {
    // Space is freed by the name of what is in it, so what others got meanwhile stays theirs, and no byte is ever wrong.
    is_found("DoubleFree", &[BOOKS]);
}

#[test]
fn memory_that_is_let_go_of_twice_when_a_program_dies_is_found() {
    // The first time a copy is under way to it, which the virtual GPU ends; the second time it may be another's.
    is_found("DoubleRelease", &[ERROR, BOOKS, WRONG_BYTES]);
}

#[test]
fn a_completion_that_is_noticed_and_forgotten_is_found() {
    is_found("LostCompletion", &[ERROR, LOST_SIGHT]);
}

#[test]
fn a_completion_that_is_never_seen_is_found() {
    is_found("UnseenCompletion", &[ERROR]);
}

/// What was lost sight of is found again, each time: all go on, with all their bytes.
#[test]
fn nobody_stands_still_for_a_completion_that_is_forgotten() {
    let mut story = Story::begin(Some("LostCompletion"));
    story.goes_on = true;
    story.all_go_on();
    story.one_dies(DEATHS[0]);
    story.all_go_on();
    let errors = story.stage.events();
    let errors: Vec<_> = errors.iter().filter(|event| event["event"] == "error").collect();
    assert!(!errors.is_empty(), "each is told");
    let words = |event: &serde_json::Value| event["what"].as_str().unwrap_or_default().to_owned();
    for error in errors {
        assert!(words(error).contains("lost sight of"), "{error}");
    }
    let Story { stage, mut programs, .. } = story;
    programs.iter_mut().for_each(Program::kill);
    stage.finish_after_mistakes();
}
