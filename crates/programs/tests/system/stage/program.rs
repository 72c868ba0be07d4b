//! One worker: its process, and what it says after each step.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::until;

/// What a worker said last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// Steps that it has done and checked.
    pub(crate) steps: u64,
    /// Pieces of memory that did not hold what they had to.
    pub(crate) wrong: u64,
    /// It came to its end.
    pub(crate) ended: bool,
}

/// See the module. Killed when dropped.
pub(crate) struct Program {
    pub(crate) name: String,
    child: Child,
    log: PathBuf,
    said: Arc<Mutex<Said>>,
}

impl Program {
    pub(super) fn start(name: &str, mut command: Command, log: &Path) -> Self {
        let errors = File::create(log).unwrap();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        let said = Arc::<Mutex<Said>>::default();
        let (out, shared) = (child.stdout.take().unwrap(), said.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
                let number = |key: &str| line[key].as_u64().unwrap_or_default();
                *shared.lock().unwrap_or_else(PoisonError::into_inner) =
                    Said { steps: number("steps"), wrong: number("wrong"), ended: line["ended"] == true };
            }
        });
        Self { name: name.into(), child, log: log.into(), said }
    }

    /// `rota run` becomes the program: it is the same process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it said last. None of its bytes may ever be wrong.
    pub(crate) fn said(&self) -> Said {
        let said = *self.said.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(said.wrong, 0, "{}: {said:?}", self.name);
        said
    }

    /// It does this many steps more, and finds every byte right.
    pub(crate) fn goes_on(&mut self, steps: u64) {
        let goal = self.said().steps + steps;
        until(&format!("{} does {steps} more steps", self.name), || {
            let ended = self.try_end();
            assert_eq!(ended, None, "{} ended too early", self.name);
            self.said().steps >= goal
        });
    }

    /// What it said on its standard error.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// How it ended, if it did.
    pub(crate) fn try_end(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Comes to its end by itself, with every byte right.
    pub(crate) fn ends_well(mut self) -> Said {
        let mut status = None;
        // On a busy machine its steps may take long: what it has to do is go on with them.
        while status.is_none() {
            let before = self.said();
            until(&format!("{} ends or does a step", self.name), || {
                status = self.try_end();
                status.is_some() || self.said() != before
            });
        }
        assert!(status.is_some_and(|status| status.success()), "{} ended: {status:?}", self.name);
        // Its last line may still be on its way through the pipe.
        until(&format!("{} says that it ended", self.name), || self.said().ended);
        self.said()
    }

    /// Kills it as nothing else can.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.said();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
