//! Everything goes wrong at once, in one history of real processes: programs that do not fit together, an arena that is always
//! full and a disk that at times is, programs that stand still or are killed in every phase of their way off the GPU and back,
//! workers that are killed, and copies, writes and reads that fail. No byte of a program is ever wrong; nobody ends who was
//! not killed or told why; and when all are gone nothing is left.
//!
//! `ROTA_SEED` chooses what happens, in which order, how long after each other, and what each program is like: the same each
//! time. It does not choose when the machine lets whom run: real processes are never twice at the same step, so who is in a
//! phase when a victim is looked for, and which bytes are on the disk when it fails, may be others the next time.
//! `crates/mover/src/exchange/tests/history.rs` has histories that are the same to the last step.

mod chance;
mod deed;
mod disk;
mod told;

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::stage::{Program, Setup, Stage, until};
use chance::{Chance, Reminder, Seed};
use deed::Deed;
use told::{Phase, Told};

const PROGRAMS: usize = 5;
/// Those that come when there is too little room.
const EXTRA: usize = 2;
/// Of GPU, arena and cellar. The programs have 30 to 40 MiB, of which 16 find room on the GPU beside their contexts and the
/// daemon's own memory: what is away is more than the arena, and no more than the three quarters of arena and cellar from which
/// on nobody is let in. With two more programs it would be more than all.
const MEMORY_MIB: [u64; 3] = [44, 10, 22];
/// Freezes and moves in one storm.
const EVENTS_MIN: u64 = 1_000;
/// It takes twenty seconds on a machine that has little else to do.
const LENGTH_MAX: Duration = Duration::from_secs(300);
/// For how long a program stands still.
const STILL: Duration = Duration::from_millis(100);
/// How long something is waited for that needs luck. Without it, it is tried again later.
const LUCK: Duration = Duration::from_secs(3);
/// How many times as long copies take while somebody is to die in one.
const SLOWER: u64 = 4;

struct Storm {
    stage: Stage,
    cellar: PathBuf,
    seed: Seed,
    /// For what happens now.
    chance: Chance,
    programs: Vec<Program>,
    born: u64,
    /// What those did who are gone, with every byte looked at.
    steps: u64,
    told: Told,
}

impl Storm {
    fn bear(&mut self) -> Program {
        self.born += 1;
        let mut chance = self.seed.of_program(self.born);
        let numbers = [4 + chance.below(3), 2 * (1 + chance.below(2)), chance.below(8)];
        let [mib, piece, kernel] = numbers.map(|number| number.to_string());
        let name = self.born.to_string();
        let mut words = vec!["--mib", &mib, "--piece-mib", &piece, "--kernel-ms", &kernel];
        words.extend(["--seed", &name, "--steps", "1000000", "--copies"]);
        if self.born.is_multiple_of(3) {
            words.push("--segments");
        }
        // Moves of the others take long, since copies that wait are waited for.
        if chance.below(16) > 0 {
            words.push("--syncs");
        }
        self.stage.worker(0, &name, &words)
    }

    /// All who are there are well. Others come for those who had to end.
    fn look(&mut self) {
        for index in 0..self.programs.len() {
            let program = &mut self.programs[index];
            program.said();
            let Some(ended) = program.try_end() else { continue };
            self.told.hear(&self.stage);
            let program = &self.programs[index];
            // What a program has that was put out and has not ended yet is known only to the worker that did that: after its
            // death another program may find less memory than the next worker thinks that there is.
            let is_excused = self.told.excuses(&program.name) || program.log().contains("OUT_OF_MEMORY");
            assert!(is_excused, "{} ended, {ended}, and was not told why:\n{}", program.name, program.log());
            self.replace(index);
        }
        self.told.hear(&self.stage);
    }

    fn replace(&mut self, index: usize) {
        self.steps += self.programs[index].said().steps;
        self.programs[index] = self.bear();
    }

    /// Waits for something, as long as that is worth it, and sees that all are well.
    fn has_luck(&mut self, within: Duration, mut holds: impl FnMut(&mut Self) -> bool) -> bool {
        let limit = Instant::now() + within;
        while Instant::now() < limit {
            self.look();
            if holds(self) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Did it happen?
    fn happens(&mut self, deed: Deed) -> bool {
        match deed {
            Deed::Death(phase) => self.hunt(phase),
            Deed::Standstill => self.stop(),
            Deed::Kill => self.kill_worker(),
            Deed::FailedCopy => self.fail_a_copy(),
            Deed::FullDisk => self.fill_disk(),
            Deed::FailedRead => self.fail_a_read(),
            Deed::ChangedBytes => self.change_bytes(),
            Deed::Crowd => self.crowd(),
        }
    }

    /// Kills a program in this phase. It counts if the phase was not over when the signal was sent.
    fn hunt(&mut self, phase: Phase) -> bool {
        let is_short = matches!(phase, Phase::MovingOut | Phase::MovingIn);
        if is_short {
            self.set_faults(&format!("[copy]\nslower = {SLOWER}.0\n"));
        }
        let (mut victim, first) = (None, self.chance.below(PROGRAMS as u64) as usize);
        let found = self.has_luck(LUCK, |storm| {
            let mut all = (0..PROGRAMS).map(|number| (first + number) % PROGRAMS);
            victim = all.find(|&index| storm.told.phase(&storm.programs[index].name) == Some(phase));
            let Some(index) = victim else { return false };
            signal(&storm.programs[index], Signal::KILL);
            let name = storm.programs[index].name.clone();
            storm.told.hear(&storm.stage);
            let hit = storm.told.phase(&name) == Some(phase);
            storm.programs[index].kill();
            storm.replace(index);
            hit
        });
        if is_short {
            self.clear_faults();
        }
        found
    }

    fn stop(&mut self) -> bool {
        let whom = self.chance.below(PROGRAMS as u64) as usize;
        signal(&self.programs[whom], Signal::STOP);
        std::thread::sleep(STILL);
        signal(&self.programs[whom], Signal::CONT);
        true
    }

    fn kill_worker(&mut self) -> bool {
        let before = self.stage.status();
        self.stage.kill_worker();
        until("another worker serves", || self.stage.status().worker_pid != before.worker_pid);
        true
    }

    /// Faults of the GPU that only the worker meets.
    fn set_faults(&self, faults: &str) {
        let faults = format!("pids = [{}]\n{faults}", self.stage.status().worker_pid);
        std::fs::write(self.stage.path("faults.toml"), faults).expect("a folder that can be written to");
    }

    fn clear_faults(&self) {
        std::fs::remove_file(self.stage.path("faults.toml")).expect("it is there");
    }

    /// Waits until something goes wrong whose description has one of these words.
    fn meets_error(&mut self, words: &[&str]) -> bool {
        self.told.hear(&self.stage);
        let before = self.told.errors_with(words);
        self.has_luck(LUCK, |storm| storm.told.errors_with(words) > before)
    }

    fn fail_a_copy(&mut self) -> bool {
        let nth = 1 + self.chance.below(8);
        let before = self.stage.status();
        self.set_faults(&format!("[copy]\nfails_at = {nth}\n"));
        let failed = self.meets_error(&["the copy out failed", "the copy in failed"]);
        self.clear_faults();
        if failed {
            until("another worker serves", || self.stage.status().worker_pid != before.worker_pid);
        }
        failed
    }

    fn crowd(&mut self) -> bool {
        let extra = [(); EXTRA].map(|()| self.bear());
        let denied = self.meets_error(&["together", "nearly full"]);
        drop(extra);
        denied
    }

    /// Everybody who is left finds every byte right once more, or is told why not. Whatever went wrong, nothing of it was a mistake
    /// of the daemon's own.
    fn settle(&mut self) {
        self.stage.made_no_mistake();
        let steps: Vec<(String, u64)> =
            self.programs.iter().map(|program| (program.name.clone(), program.said().steps)).collect();
        until("everybody does one more step", || {
            self.look();
            let left = |name: &String| self.programs.iter().find(|program| program.name == *name);
            steps.iter().all(|(name, before)| left(name).is_none_or(|program| program.said().steps > *before))
        });
    }
}

fn signal(program: &Program, signal: Signal) {
    let pid = Pid::from_raw(program.pid().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("it was not waited for");
}

fn storm(seed: u64, bug: Option<&'static str>) {
    let begin = Instant::now();
    let seed = Seed(seed);
    let _reminder = Reminder(seed);
    disk::survive_limits();
    let folder = tempfile::tempdir().expect("a folder");
    let cellar = folder.path().canonicalize().expect("it is there");
    let [gpu_mib, arena_mib, cellar_mib] = MEMORY_MIB;
    let limit = format!("{cellar_mib}MiB");
    let path = cellar.to_str().expect("plain letters");
    let rotad = ["--turn", "4ms", "--turn-jitter", "0.9", "--cellar", path, "--cellar-limit", &limit];
    let stage = Stage::planted(&Setup { gpus: 1, gpu_mib, arena_mib, rotad: &rotad }, "", bug);
    let chance = seed.of_deed(0);
    let (programs, told) = (Vec::new(), Told::default());
    let mut storm = Storm { stage, cellar, seed, chance, programs, born: 0, steps: 0, told };
    for _ in 0..PROGRAMS {
        let program = storm.bear();
        storm.programs.push(program);
    }
    let mut happened = BTreeMap::<Deed, u32>::new();
    let (mut deck, mut number) = (Vec::new(), 0);
    while storm.told.freezes + storm.told.moves < EVENTS_MIN || happened.len() < Deed::ALL.len() {
        assert!(begin.elapsed() < LENGTH_MAX, "too little happens: {happened:?}, {:?}", storm.told);
        number += 1;
        storm.chance = seed.of_deed(number);
        let next = Instant::now() + Duration::from_millis(storm.chance.below(200));
        while Instant::now() < next {
            std::thread::sleep(Duration::from_millis(10));
            storm.look();
        }
        if deck.is_empty() {
            // Nobody is left behind for good, whatever has happened so far.
            storm.settle();
            deck.extend(Deed::ALL);
        }
        let deed = deck.swap_remove(storm.chance.below(deck.len() as u64) as usize);
        if storm.happens(deed) {
            *happened.entry(deed).or_default() += 1;
        }
    }
    storm.settle();
    let Storm { stage, programs, told, steps, .. } = storm;
    let steps = steps + programs.iter().map(|program| program.said().steps).sum::<u64>();
    drop(programs);
    let Told { freezes, moves, sunk_bytes, .. } = told;
    println!(
        "seed {}, {:?}: {steps} steps, {freezes} freezes, {moves} moves, {} MiB to the disk, {happened:?}",
        seed.0,
        begin.elapsed(),
        sunk_bytes >> 20,
    );
    assert!(sunk_bytes > 0, "the arena was never full");
    assert!(steps > 0, "nobody looked at its bytes");
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0, "the file has no name");
    stage.finish_after_errors();
}

#[test]
fn a_storm_of_a_thousand_events() {
    storm(Seed::chosen(), None);
}

/// Can it fail? With a bug in the daemon a storm ends with this. Where, the machine's timing decides: a history that is the same to
/// the last step is told by `crates/mover/src/exchange/tests/history.rs`.
fn is_found(bug: &'static str, by: &str) {
    let told = catch_unwind(|| storm(Seed::chosen(), Some(bug)));
    let Err(cause) = told else { panic!("{bug} was not found") };
    let found = cause.downcast::<String>().map_or_else(|_| String::new(), |text| *text);
    assert!(found.contains(by), "{bug} was not found, but: {found}");
}

#[test]
fn a_storm_finds_bytes_that_are_not_there_yet() {
    is_found("ThawBeforeLastBlock", "wrong: ");
}

#[test]
fn a_storm_finds_what_the_daemon_lost_sight_of() {
    is_found("LostCompletion", "the daemon lost sight of something");
}

#[test]
#[ignore = "takes minutes: make soak"]
fn a_storm_after_the_other() {
    (0..10).for_each(|number| storm(Seed::chosen() + number, None));
}
