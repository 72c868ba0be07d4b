//! What the demo runs on: a folder, the virtual GPU in it, a daemon, and whoever was started; all of it ends with the demo.
//!
//! Sizes are a hundredth of programs of 12 GiB on 16 GiB. The bus is a 33rd of an H200's, so that a move takes a third of the
//! time it takes there, and turns, whose length follows from moves, are a third as long. Freezing and thawing take what they
//! take there. Kernels are far slower than a GPU's: the bytes that they and the bus carry are real, and a CPU carries them,
//! which should not have to be late.

use super::parts::Parts;
use super::program::Program;
use crate::daemon;
use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vgpu_messages::{Directory, enter, place};
use wire::Connection;

/// The GPU's memory.
pub(super) const GPU_MIB: u64 = 160;
/// The memory of each program: three quarters of it.
pub(super) const PROGRAM_MIB: u64 = 120;
/// What a context takes besides.
const CONTEXT_MIB: u64 = 4;
/// How much of a program's memory is one allocation.
const PIECE_MIB: u64 = 40;
/// What memory passes through kernels in a second, in MB.
const MEMORY_RATE_MB: u64 = 1000;
/// How often a step passes through all memory: it checks, rewrites, and checks again.
const PASSES: u64 = 3;
/// Turns are as long as moving makes worthwhile, but on a slow CPU not much longer than they should be: all programs are to
/// have some.
const TURN_MAX: &str = "2500ms";
/// How long the GPU or the daemon may take to be there.
const START_MAX: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
/// How long the daemon may take to end.
const ROTAD_ENDS_WITHIN: Duration = Duration::from_secs(5);
/// How many lines of each log are shown when something went wrong.
const LOG_LINES_MAX: usize = 12;
/// A daemon that was left behind, because the demo was killed, ends after this.
const IDLE_EXIT: &str = "60s";

/// Of rota's variables, those that say where its parts are. All others would lead programs elsewhere, or change what they are.
const INHERITED: [&str; 3] = [place::EXECUTABLE_VARIABLE, enter::LIBRARY_VARIABLE, "ROTA_SHIM"];

/// Whether what the demo starts has a variable of the demo's own.
fn is_inherited(variable: &str) -> bool {
    let is_rotas =
        variable.starts_with("ROTA_") || ["CUDA_VISIBLE_DEVICES", "LD_PRELOAD"].contains(&variable);
    !is_rotas || INHERITED.contains(&variable)
}

/// How long a pass takes, if the CPU keeps up.
const PASS_NS: u64 = (PROGRAM_MIB << 20) * 1000 / MEMORY_RATE_MB;

/// The steps that keep a program busy for so long, alone on the GPU.
pub(super) fn steps_in(time: Duration) -> u64 {
    (time.as_nanos() as u64 / (PASSES * PASS_NS)).max(1)
}

/// How long the GPU has to work for so many steps.
pub(super) fn time_of(steps: u64) -> Duration {
    Duration::from_nanos(steps.saturating_mul(PASSES * PASS_NS))
}

/// All of it.
pub(super) struct Stage<'a> {
    parts: &'a Parts,
    stopped: &'a AtomicBool,
    directory: Directory,
    vgpud: Option<Child>,
    /// Keeps the virtual GPU alive while nobody is on it.
    life: Option<Connection>,
    rotad: Option<Child>,
    pub(super) programs: Vec<Program>,
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.programs.iter_mut().for_each(Program::end);
        self.life = None;
        // Twice means at once. It takes its other processes with it, which a kill would not.
        if let Some(rotad) = &self.rotad {
            for _ in 0..2 {
                let _ = kill_process(Pid::from_child(rotad), Signal::TERM);
            }
        }
        if let Some(rotad) = &mut self.rotad {
            let limit = Instant::now() + ROTAD_ENDS_WITHIN;
            while matches!(rotad.try_wait(), Ok(None)) && Instant::now() < limit {
                std::thread::sleep(LOOK);
            }
        }
        for child in [&mut self.rotad, &mut self.vgpud].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(self.directory.path());
    }
}

impl<'a> Stage<'a> {
    /// With the virtual GPU running, and nobody on it.
    pub(super) fn set(parts: &'a Parts, stopped: &'a AtomicBool) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("rota-demo-{}", std::process::id()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let directory = Directory::new(folder);
        let mut stage =
            Self { parts, stopped, directory, vgpud: None, life: None, rotad: None, programs: Vec::new() };
        std::fs::write(stage.directory.spec(), description()).context("cannot describe the virtual GPU")?;
        let mut vgpud = stage.command(&parts.vgpud)?;
        vgpud.arg(stage.directory.path());
        stage.vgpud = Some(spawned(vgpud)?);
        let socket = stage.directory.socket();
        stage.life = Some(stage.awaited(
            "the virtual GPU",
            |stage| &mut stage.vgpud,
            || Connection::connect(&socket).ok(),
        )?);
        Ok(stage)
    }

    /// Puts the daemon on the GPU.
    pub(super) fn start_daemon(&mut self, programs: u32) -> anyhow::Result<()> {
        // What is in the user's own file is not for the demo.
        let config = self.folder().join("rotad.toml");
        let arena_mib = PROGRAM_MIB * u64::from(programs) + 2 * PIECE_MIB;
        let settings =
            format!("arena = \"{arena_mib}MiB\"\nturn_max = \"{TURN_MAX}\"\nidle_exit = \"{IDLE_EXIT}\"\n");
        std::fs::write(&config, settings).context("cannot configure the daemon")?;
        let mut rotad = self.command(&self.parts.rotad)?;
        rotad.arg("--config").arg(config).arg("--vgpu").arg(self.folder());
        rotad.arg("--socket").arg(self.socket()).arg("--events").arg(self.events());
        self.rotad = Some(spawned(rotad)?);
        let socket = self.socket();
        self.awaited("the daemon", |stage| &mut stage.rotad, || daemon::listing(&socket).ok())?;
        Ok(())
    }

    /// Starts a program on the GPU, past rota.
    pub(super) fn start_natively(&mut self, name: &str, work: &[String]) -> anyhow::Result<()> {
        let mut command = self.command(&self.parts.worker)?;
        command.args(work).envs(self.parts.library.environment(self.folder(), None));
        self.programs.push(Program::start(name, command)?);
        Ok(())
    }

    /// Starts a program under rota.
    pub(super) fn start_under_rota(&mut self, name: &str, work: &[String]) -> anyhow::Result<()> {
        let rota = std::env::current_exe().context("cannot tell where this executable is")?;
        let mut command = self.command(&rota)?;
        command.arg("--socket").arg(self.socket()).args(["run", "--vgpu", "-q", "--name", name, "--"]);
        command.arg(&self.parts.worker).args(work);
        self.programs.push(Program::start(name, command)?);
        Ok(())
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder().join("rota.sock")
    }

    /// Where the daemon writes what happens.
    pub(super) fn events(&self) -> PathBuf {
        self.folder().join("events.jsonl")
    }

    /// The end of what the daemon, the GPU and the programs said.
    pub(super) fn log(&self) -> String {
        let tail = |path: PathBuf| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n")
        };
        [self.folder().join("log"), self.directory.log()].map(tail).join("\n")
    }

    /// An error if somebody wants the demo to end.
    pub(super) fn go_on(&self) -> anyhow::Result<()> {
        ensure!(!self.stopped.load(Relaxed), "stopped");
        Ok(())
    }

    fn folder(&self) -> &Path {
        self.directory.path()
    }

    /// A process that is the demo's alone: Ctrl-C is for the demo, which ends it.
    fn command(&self, program: &Path) -> anyhow::Result<Command> {
        let path = self.folder().join("log");
        let log = File::options().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("cannot write to {}", path.display()))?;
        let mut command = Command::new(program);
        for (variable, _) in std::env::vars_os() {
            if variable.to_str().is_some_and(|variable| !is_inherited(variable)) {
                command.env_remove(variable);
            }
        }
        command.process_group(0).stdin(Stdio::null());
        command.stdout(log.try_clone().context("cannot share a log")?).stderr(log);
        Ok(command)
    }

    /// Waits until `ready` has something.
    fn awaited<T>(
        &mut self,
        what: &str,
        who: impl Fn(&mut Self) -> &mut Option<Child>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> anyhow::Result<T> {
        let limit = Instant::now() + START_MAX;
        loop {
            if let Some(found) = ready() {
                return Ok(found);
            }
            self.go_on()?;
            let ended = match who(self) {
                Some(child) => child.try_wait().with_context(|| format!("cannot wait for {what}"))?.is_some(),
                None => true,
            };
            if ended || Instant::now() > limit {
                bail!("{what} did not start\n{}", self.log());
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn spawned(mut command: Command) -> anyhow::Result<Child> {
    let program = command.get_program().to_owned();
    command.spawn().with_context(|| format!("cannot start {}", program.display()))
}

/// What a worker is told, but for the bytes that it is made of.
pub(super) fn work(steps: u64) -> Vec<String> {
    let words = [("--mib", PROGRAM_MIB), ("--piece-mib", PIECE_MIB), ("--steps", steps)];
    words.iter().flat_map(|(flag, value)| [String::from(*flag), value.to_string()]).collect()
}

/// The virtual GPU. On an H200 the bus has 55 GB/s, 46 each way at once, and a context takes 518 MiB.
fn description() -> String {
    format!(
        "memory = \"{GPU_MIB}MiB\"\n\
         context_memory = \"{CONTEXT_MIB}MiB\"\n\
         bus_in = \"1670MB/s\"\n\
         bus_out = \"1670MB/s\"\n\
         bus_both = \"1400MB/s\"\n\
         memory_rate = \"{MEMORY_RATE_MB}MB/s\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_virtual_gpu_can_be_made() {
        let spec = vgpu_messages::Spec::parse(&description()).unwrap();
        spec.check().unwrap();
        assert_eq!(spec.memory.0, GPU_MIB << 20);
    }

    #[test]
    fn of_rotas_variables_only_those_are_inherited_that_name_its_parts() {
        for variable in ["ROTA_SHIM", "ROTA_LIBVGPU", "ROTA_VGPUD", "PATH", "HOME"] {
            assert!(is_inherited(variable), "{variable}");
        }
        for variable in ["ROTA_HINTS", "ROTA_POOLS", "ROTA_VGPU", "ROTA_SOCKET", "LD_PRELOAD"] {
            assert!(!is_inherited(variable), "{variable}");
        }
    }

    #[test]
    fn one_program_fits_and_no_two_do() {
        // As the daemon counts: a context each, and two for itself.
        let room = GPU_MIB - (super::super::NAMES.len() as u64 + 2) * CONTEXT_MIB;
        assert!(PROGRAM_MIB <= room && 2 * PROGRAM_MIB > GPU_MIB);
        assert_eq!(steps_in(Duration::from_secs(5)), 13);
        assert_eq!(steps_in(Duration::ZERO), 1);
    }
}
