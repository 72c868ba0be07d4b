//! One program of the demo: a worker, and what it said last.

use anyhow::Context as _;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// A worker that was started.
pub(super) struct Program {
    pub(super) name: String,
    pub(super) begun: Instant,
    /// How many turns it had when it was last seen in the daemon's listing.
    pub(super) turns: Option<u64>,
    child: Child,
    said: Arc<Mutex<Said>>,
    hearing: Option<JoinHandle<()>>,
    over: Option<(Instant, ExitStatus)>,
}

/// What a worker says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) steps: u64,
    /// Pieces of its memory, counted in each step, that did not hold what they have to.
    pub(super) wrong: u64,
    /// It came to its end by itself.
    pub(super) ended: bool,
}

impl Program {
    pub(super) fn start(name: &str, mut command: Command) -> anyhow::Result<Self> {
        let begun = Instant::now();
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let said = Arc::<Mutex<Said>>::default();
        let hearing = child.stdout.take().map(|out| {
            let said = said.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if let Some(heard) = heard(&line) {
                        *said.lock().unwrap_or_else(PoisonError::into_inner) = heard;
                    }
                }
            })
        });
        Ok(Self { name: name.into(), begun, turns: None, child, said, hearing, over: None })
    }

    /// What it said last; once it is over, all of it has been heard.
    pub(super) fn said(&self) -> Said {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When it ended and how, if it has.
    pub(super) fn over(&mut self) -> anyhow::Result<Option<(Instant, ExitStatus)>> {
        if self.over.is_none()
            && let Some(status) = self.child.try_wait().context("cannot wait for a program")?
        {
            self.over = Some((Instant::now(), status));
            // Nobody writes any more, so this ends.
            let _ = self.hearing.take().map(JoinHandle::join);
        }
        Ok(self.over)
    }

    /// Ends it, wherever it is.
    pub(super) fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn heard(line: &str) -> Option<Said> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let number = |key: &str| line.get(key).and_then(serde_json::Value::as_u64);
    Some(Said { steps: number("steps")?, wrong: number("wrong")?, ended: line.get("ended").is_some() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_heard_to_its_end() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            r#"echo '{"steps":1,"wrong":0}'; echo noise; echo '{"ended":true,"steps":2,"wrong":3}'"#,
        ]);
        let mut program = Program::start("ada", command).unwrap();
        let (_, status) = loop {
            if let Some(over) = program.over().unwrap() {
                break over;
            }
            std::thread::yield_now();
        };
        assert!(status.success());
        assert_eq!(program.said(), Said { steps: 2, wrong: 3, ended: true });
    }
}
