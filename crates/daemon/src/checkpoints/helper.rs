//! The driver's steps, each in a process of its own: this executable again, which ends with the thread that started it.
//!
//! A step may hang, and some of the driver with it, which must not be that of the process that moves everybody's memory. One that
//! takes too long is killed, and with it what it waits for: so no step is done after it was given up, unless the driver
//! keeps even that process from ending. Then nothing else is asked about its program before it has.
//!
//! Just before it asks, it looks whether the program is the one that is meant: its number may be another's by then.

use super::{ByDriver, CheckpointError, Checkpoints, Standing, Step};
use crate::events::nanos;
use anyhow::Context as _;
use cuda::{CUresult, Driver, Library};
use keeper::Process;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The subcommand by which this executable asks the driver.
pub const VERB: &str = "checkpoint-step";
/// How long the driver may take: seconds are usual.
const WITHIN: Duration = Duration::from_secs(20);
/// How long a process that was killed may take to end before it is left to itself.
const END_WITHIN: Duration = Duration::from_secs(1);

/// What the driver is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// How a program stands.
    Standing,
    /// To take a step.
    Step(Step),
}

const WORDS: [(&str, Asked); 5] = [
    ("state", Asked::Standing),
    ("lock", Asked::Step(Step::Lock)),
    ("out", Asked::Step(Step::Out)),
    ("in", Asked::Step(Step::In)),
    ("unlock", Asked::Step(Step::Unlock)),
];

impl Asked {
    fn word(self) -> &'static str {
        WORDS.iter().find(|(_, asked)| *asked == self).map_or("state", |(word, _)| word)
    }

    fn call(self) -> &'static str {
        match self {
            Asked::Standing => super::GET_STATE,
            Asked::Step(step) => step.call(),
        }
    }
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = WORDS.iter().find(|(name, _)| *name == word);
        found
            .map(|(_, asked)| *asked)
            .ok_or_else(|| format!("{word} is nothing that the driver can be asked"))
    }
}

/// What the driver said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Stands(Standing),
    /// The step is done, and took so long.
    Done(Duration),
}

type Answer = Result<Said, CheckpointError>;

/// Asks the driver in this process, and prints the answer for the worker that started it, with which it ends.
pub fn answer(parent: u32, program: Process, asked: Asked) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot bind this process to its worker")?;
    let is_there = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    anyhow::ensure!(is_there == Some(parent), "the worker is gone");
    let driver = Driver::load(Library::find(None)?)?;
    // SAFETY: it takes no pointer.
    unsafe { (driver.cuInit)(0) }.ok().context("cuInit")?;
    let driver = ByDriver(Arc::new(driver));
    let answer = match asked {
        _ if !program.is_there() => Err(CheckpointError::Gone),
        Asked::Standing => driver.standing(program).map(Said::Stands),
        Asked::Step(step) => driver.take(program, step).map(Said::Done),
    };
    println!("{}", in_words(&answer));
    Ok(())
}

fn in_words(answer: &Answer) -> String {
    match answer {
        Ok(Said::Done(took)) => format!("done {}", nanos(*took)),
        Ok(Said::Stands(Standing::Running)) => "running".into(),
        Ok(Said::Stands(Standing::Locked)) => "locked".into(),
        Ok(Said::Stands(Standing::Out)) => "out".into(),
        Ok(Said::Stands(Standing::Failed)) => "failed".into(),
        Err(CheckpointError::Refused { code, .. }) => format!("refused {}", code.0),
        Err(CheckpointError::Unknown(state)) => format!("unknown {state}"),
        Err(CheckpointError::Gone) => "gone".into(),
        // The rest is the worker's own.
        Err(_) => "missing".into(),
    }
}

/// None if that is no answer.
fn understood(words: &str, asked: Asked) -> Option<Answer> {
    let (word, number) = words.trim_end().split_once(' ').unwrap_or((words.trim_end(), ""));
    let code = || number.parse::<u32>().ok();
    let call = asked.call();
    match (word, asked) {
        ("done", Asked::Step(_)) => Some(Ok(Said::Done(Duration::from_nanos(number.parse().ok()?)))),
        ("running", Asked::Standing) => Some(Ok(Said::Stands(Standing::Running))),
        ("locked", Asked::Standing) => Some(Ok(Said::Stands(Standing::Locked))),
        ("out", Asked::Standing) => Some(Ok(Said::Stands(Standing::Out))),
        ("failed", Asked::Standing) => Some(Ok(Said::Stands(Standing::Failed))),
        ("refused", _) => Some(Err(CheckpointError::Refused { call, code: CUresult(code()?) })),
        ("unknown", Asked::Standing) => Some(Err(CheckpointError::Unknown(code()?))),
        ("gone", _) => Some(Err(CheckpointError::Gone)),
        ("missing", _) => Some(Err(CheckpointError::NotThere)),
        _ => None,
    }
}

/// By processes that ask the driver.
#[derive(Debug)]
pub struct ByHelper {
    begin: fn(Process, Asked) -> Command,
    within: Duration,
    /// Killed, and not ended: about which program they asked.
    left: Mutex<Vec<(Process, Child)>>,
}

impl Default for ByHelper {
    fn default() -> Self {
        Self { begin: this_executable, within: WITHIN, left: Mutex::default() }
    }
}

fn this_executable(program: Process, asked: Asked) -> Command {
    // Also if another has its name by now.
    let mut command = Command::new("/proc/self/exe");
    command.arg(VERB).args(["--parent", &std::process::id().to_string()]);
    let (pid, start) = (program.pid.to_string(), program.start_ticks.to_string());
    command.args(["--pid", &pid, "--start", &start, asked.word()]);
    command
}

impl ByHelper {
    fn ask(&self, program: Process, asked: Asked) -> Answer {
        let call = asked.call();
        let unanswered = CheckpointError::Unanswered { call, seconds: self.within.as_secs() };
        if self.is_one_left(program) {
            return Err(unanswered);
        }
        let nobody =
            |cause: &dyn std::fmt::Display| CheckpointError::NoHelper { call, cause: cause.to_string() };
        let mut command = (self.begin)(program, asked);
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|cause| nobody(&cause))?;
        let life = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(life) => life,
            Err(cause) => {
                let _ = child.kill();
                let _ = child.wait();
                // It may have begun.
                return Err(CheckpointError::Silent { call, how: cause.to_string() });
            }
        };
        let ends = |within: Duration| {
            let mut one = [PollFd::new(&life, PollFlags::IN)];
            let within = Timespec::try_from(within).ok();
            loop {
                match rustix::event::poll(&mut one, within.as_ref()) {
                    Err(rustix::io::Errno::INTR) => {}
                    ended => return ended.is_ok_and(|count| count > 0),
                }
            }
        };
        if !ends(self.within) {
            let _ = child.kill();
            match ends(END_WITHIN) {
                true => drop(child.wait()),
                false => self.left().push((program, child)),
            }
            return Err(unanswered);
        }
        let mut words = String::new();
        let read = child.stdout.take().map(|mut said| said.read_to_string(&mut words));
        let status = child.wait();
        let answer = read.and_then(Result::ok).and_then(|_| understood(&words, asked));
        answer.unwrap_or_else(|| {
            let how = status.map_or_else(|cause| cause.to_string(), |status| status.to_string());
            Err(CheckpointError::Silent { call, how })
        })
    }

    /// Whether a process that asked about this program still has not ended, though it was killed.
    fn is_one_left(&self, program: Process) -> bool {
        let mut left = self.left();
        left.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
        left.iter().any(|(about, _)| *about == program)
    }

    fn left(&self) -> std::sync::MutexGuard<'_, Vec<(Process, Child)>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checkpoints for ByHelper {
    fn standing(&self, program: Process) -> Result<Standing, CheckpointError> {
        match self.ask(program, Asked::Standing)? {
            Said::Stands(standing) => Ok(standing),
            Said::Done(_) => unreachable!("no answer to this question"),
        }
    }

    fn take(&self, program: Process, step: Step) -> Result<Duration, CheckpointError> {
        match self.ask(program, Asked::Step(step))? {
            Said::Done(took) => Ok(took),
            Said::Stands(_) => unreachable!("no answer to this question"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const ONE: Process = Process { pid: 1, start_ticks: 1 };

    fn by(begin: fn(Process, Asked) -> Command, within: Duration) -> ByHelper {
        ByHelper { begin, within, left: Mutex::default() }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn answers_are_what_the_driver_said() {
        let code = CUresult::NOT_READY;
        let refused = |call| Err(CheckpointError::Refused { call, code });
        let lock = Asked::Step(Step::Lock);
        let took = Said::Done(Duration::from_nanos(70));
        let steps = [Ok(took), refused("cuCheckpointProcessLock"), Err(CheckpointError::NotThere)];
        let standings = [Standing::Running, Standing::Locked, Standing::Out, Standing::Failed];
        let looks = standings.map(|standing| Ok(Said::Stands(standing)));
        let more =
            [refused(super::super::GET_STATE), Err(CheckpointError::Unknown(7)), Err(CheckpointError::Gone)];
        let all = steps.map(|answer| (lock, answer)).into_iter();
        for (asked, answer) in
            all.chain(looks.into_iter().chain(more).map(|answer| (Asked::Standing, answer)))
        {
            assert_eq!(understood(&format!("{}\n", in_words(&answer)), asked), Some(answer));
        }
        let wrong =
            [(lock, "running"), (Asked::Standing, "done 1"), (lock, ""), (lock, "refused x"), (lock, "done")];
        for (asked, words) in wrong {
            assert_eq!(understood(words, asked), None, "{words}");
        }
        for (word, asked) in WORDS {
            assert_eq!((asked.word(), word.parse()), (word, Ok(asked)));
        }
    }

    #[test]
    fn one_that_answers_is_heard() {
        let helper = by(|_, _| shell("echo locked"), Duration::from_secs(20));
        assert_eq!(helper.standing(ONE), Ok(Standing::Locked));
    }

    #[test]
    fn one_that_hangs_is_killed_and_nothing_of_it_is_left() {
        let helper = by(|_, _| shell("exec sleep 600"), Duration::from_millis(100));
        let begin = Instant::now();
        let taken = helper.take(ONE, Step::Lock);
        let hung = CheckpointError::Unanswered { call: "cuCheckpointProcessLock", seconds: 0 };
        assert_eq!(taken, Err(hung));
        assert!(begin.elapsed() < Duration::from_secs(60));
        assert!(!helper.is_one_left(ONE) && helper.left().is_empty());
    }

    #[test]
    fn while_one_cannot_be_ended_nothing_else_is_asked_about_its_program() {
        let helper = by(|_, _| shell("echo running"), Duration::from_secs(20));
        let stays = Command::new("sleep").arg("600").spawn().unwrap();
        helper.left().push((ONE, stays));
        assert!(matches!(helper.standing(ONE), Err(CheckpointError::Unanswered { .. })));
        assert_eq!(helper.standing(Process { pid: 2, ..ONE }), Ok(Standing::Running));
        helper.left()[0].1.kill().unwrap();
        let begin = Instant::now();
        while helper.standing(ONE).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it has ended");
        }
        assert!(helper.left().is_empty());
    }

    #[test]
    fn one_that_dies_says_nothing_of_what_became_of_the_step() {
        let helper = by(|_, _| shell("kill -9 $$"), Duration::from_secs(20));
        assert!(matches!(helper.take(ONE, Step::Out), Err(CheckpointError::Silent { .. })));
        let helper = by(|_, _| Command::new("/nowhere/at/all"), Duration::from_secs(20));
        assert!(matches!(helper.take(ONE, Step::Out), Err(CheckpointError::NoHelper { .. })));
    }
}
