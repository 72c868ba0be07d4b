//! A program that does what a test tells it, line by line, under `rota run`.

use rustix::event::{PollFd, PollFlags};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::parts::PUPPET;
use crate::stage::Stage;

/// See the module. Killed when dropped.
pub(crate) struct Puppet {
    child: Child,
    log: PathBuf,
    /// None when there are no more.
    lines: Option<ChildStdin>,
    /// Readable when it has answered.
    answered: OwnedFd,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Puppet {
    /// Starts one, by these words before its own name, and waits until it has its context.
    pub(crate) fn start(stage: &Stage, name: &str, before: &[&str]) -> Self {
        Self::start_with(stage, name, &[], before)
    }

    /// The same, with more options for `rota run`.
    pub(crate) fn start_with(stage: &Stage, name: &str, options: &[&str], before: &[&str]) -> Self {
        let mut command = stage.under_rota_with(0, name, options);
        command.args(before).arg(PUPPET);
        Self::by(stage, name, command)
    }

    /// Starts one by this command, and waits until it has its context.
    pub(crate) fn by(stage: &Stage, name: &str, command: Command) -> Self {
        let mut puppet = Self::only_start(stage, name, command);
        puppet.is_ready();
        puppet
    }

    /// Starts one by a command that its own name is still to be added to, and waits for nothing.
    pub(crate) fn spawn(stage: &Stage, name: &str, mut command: Command) -> Self {
        command.arg(PUPPET);
        Self::only_start(stage, name, command)
    }

    fn only_start(stage: &Stage, name: &str, mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let log = stage.path(&format!("puppet.log-{name}"));
        command.stderr(File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let lines = child.stdin.take();
        let out = child.stdout.take().unwrap();
        let answered = out.as_fd().try_clone_to_owned().unwrap();
        let answers = BufReader::new(out).lines();
        Self { child, log, lines, answered, answers }
    }

    /// Waits until one that was only started has its context.
    pub(crate) fn is_ready(&mut self) {
        assert_eq!(self.hears(), "ready");
    }

    /// `rota run` becomes the program: it is the same process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it as nothing else can.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn hears(&mut self) -> String {
        self.answers.next().expect("the program is there").unwrap()
    }

    /// Has it begin something.
    pub(crate) fn begin(&mut self, line: &str) {
        writeln!(self.lines.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Has it done what was begun? Only one thing may be under way.
    pub(crate) fn has_answered(&self) -> bool {
        let mut one = [PollFd::new(&self.answered, PollFlags::IN)];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut one, Some(&at_once)).unwrap() > 0
    }

    /// Waits until it has done what was begun first.
    pub(crate) fn has_done(&mut self, line: &str) {
        let answer = self.hears();
        assert!(answer.starts_with(line), "{answer} instead of {line}");
    }

    /// Has it do something, and hears what it has to say of that.
    pub(crate) fn says(&mut self, line: &str) -> String {
        self.begin(line);
        let answer = self.hears();
        let rest = answer.strip_prefix(line).unwrap_or_else(|| panic!("{answer} instead of {line}"));
        rest.trim_start().split_once(' ').map_or("", |(_, said)| said).to_owned()
    }

    /// Has it do something, and waits for that.
    pub(crate) fn does(&mut self, line: &str) {
        self.begin(line);
        self.has_done(line);
    }

    /// Has it ended by itself?
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// With which code, if it did.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap()?.code()
    }

    /// What it said on its standard error.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// There is no more to do: it ends in peace.
    pub(crate) fn end(mut self) {
        self.lines = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
