//! `rota demo`: real programs take turns on a virtual GPU, for machines without a real one.
//!
//! Everything is real but the GPU: the daemon, the shim, and workers that rewrite and check every byte they have. All of
//! it lives in a temporary folder and ends with the demo.

mod parts;
mod timeline;

use crate::args::DemoArgs;
use crate::columns::{Side, fitting, terminal_width};
use crate::{daemon, print};
use anyhow::{Context as _, bail, ensure};
use parts::Parts;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use timeline::Timeline;

/// The virtual GPU, small and slow enough for one CPU core.
const GPU_MIB: u64 = 512;
/// Each worker has so much memory: together they never fit.
const WORKER_MIB: u64 = 256;
/// How long the daemon may take to be there.
const START_MAX: Duration = Duration::from_secs(20);
/// How long workers may take longer than they were told to work: they wait for their turns.
const END_MAX: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// One worker, and what it said last.
struct Worker {
    name: String,
    child: Child,
    said: Arc<Mutex<Said>>,
}

#[derive(Clone, Copy, Default)]
struct Said {
    steps: u64,
    wrong: u64,
    ended: bool,
}

/// Ends what it started.
struct Stage {
    folder: PathBuf,
    rotad: Option<Child>,
    workers: Vec<Worker>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let workers = self.workers.iter_mut().map(|worker| &mut worker.child);
        for child in workers.chain(&mut self.rotad) {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs it, and prints what happened.
pub(crate) fn demo(args: &DemoArgs) -> anyhow::Result<()> {
    let parts = Parts::find()?;
    let stopped = Arc::<AtomicBool>::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stopped.clone()).context("cannot wait for signals")?;
    }
    let mut stage = Stage { folder: folder()?, rotad: None, workers: Vec::new() };
    let live = std::io::stdout().is_terminal();
    let what = format!(
        "{} programs of {WORKER_MIB} MiB on a virtual GPU of {GPU_MIB} MiB, {} s of work each.\n",
        args.programs, args.seconds
    );
    print(&(what + "Each rewrites all its memory in every step and checks every byte.\n\n"))?;
    start(&mut stage, &parts, args, &stopped)?;
    let socket = stage.folder.join("rota.sock");
    let end = Instant::now() + Duration::from_secs(args.seconds) * args.programs + END_MAX;
    let mut lines = 0;
    while !stage.workers.iter_mut().all(|worker| matches!(worker.child.try_wait(), Ok(Some(_)))) {
        ensure!(!stopped.load(Relaxed), "stopped");
        if Instant::now() > end {
            bail!("the programs do not come to an end\n{}", log_of(&stage.folder));
        }
        if live && let Ok(listing) = daemon::listing(&socket) {
            let table = now(&stage.workers, &listing);
            // Over the last one.
            let up = if lines > 0 { format!("\x1b[{lines}A\x1b[J") } else { String::new() };
            lines = table.lines().count();
            print(&(up + &table))?;
        }
        std::thread::sleep(LOOK);
    }
    ensure!(!stopped.load(Relaxed), "stopped");
    let events =
        std::fs::read_to_string(stage.folder.join("events.jsonl")).context("the daemon left no events")?;
    let timeline = Timeline::of(&events);
    let width = terminal_width().unwrap_or(100);
    let up = if lines > 0 { format!("\x1b[{lines}A\x1b[J") } else { String::new() };
    print(&(up + &timeline.draw(width) + "\n" + &summary(&stage.workers, &timeline)))?;
    for worker in &mut stage.workers {
        let status = worker.child.wait().context("cannot wait for a program")?;
        ensure!(status.success(), "{} ended with {status}\n{}", worker.name, log_of(&stage.folder));
    }
    Ok(())
}

fn folder() -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt as _;
    let folder = std::env::temp_dir().join(format!("rota-demo-{}", std::process::id()));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn start(stage: &mut Stage, parts: &Parts, args: &DemoArgs, stopped: &AtomicBool) -> anyhow::Result<()> {
    let folder = stage.folder.clone();
    std::fs::write(folder.join("vgpu.toml"), format!("memory = \"{GPU_MIB}MiB\"\n"))
        .context("cannot describe the virtual GPU")?;
    let log = || File::options().create(true).append(true).open(folder.join("log"));
    let socket = folder.join("rota.sock");
    let alone = |command: &mut Command| {
        // Ctrl-C is for the demo, which ends them.
        command.env_remove("CUDA_VISIBLE_DEVICES").process_group(0);
    };
    let mut rotad = Command::new(&parts.rotad);
    alone(&mut rotad);
    rotad
        .arg("--vgpu")
        .arg(&folder)
        .arg("--socket")
        .arg(&socket)
        .args(["--turn", "1s", "--arena", &format!("{}MiB", WORKER_MIB * u64::from(args.programs))])
        .arg("--events")
        .arg(folder.join("events.jsonl"))
        .stdin(Stdio::null())
        .stdout(log()?)
        .stderr(log()?);
    let started = rotad.spawn().with_context(|| format!("cannot start {}", parts.rotad.display()))?;
    let started = stage.rotad.insert(started);
    let limit = Instant::now() + START_MAX;
    while daemon::listing(&socket).is_err() {
        ensure!(!stopped.load(Relaxed), "stopped");
        let ended = started.try_wait().context("cannot wait for the daemon")?;
        if ended.is_some() || Instant::now() > limit {
            bail!("the daemon did not start\n{}", log_of(&stage.folder));
        }
        std::thread::sleep(LOOK / 4);
    }
    let rota = std::env::current_exe().context("cannot tell where this executable is")?;
    for (number, name) in NAMES.iter().cycle().take(args.programs as usize).enumerate() {
        let name = if number < NAMES.len() { (*name).to_owned() } else { format!("{name}-{number}") };
        let mut command = Command::new(&rota);
        alone(&mut command);
        command
            .arg("--socket")
            .arg(&socket)
            .args(["run", "--vgpu", "-q", "--name", &name, "--"])
            .arg(&parts.worker)
            .args(["--mib", &WORKER_MIB.to_string(), "--piece-mib", "32"])
            .args(["--seconds", &args.seconds.to_string(), "--seed", &(number + 1).to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log()?);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", rota.display()))?;
        let said = Arc::<Mutex<Said>>::default();
        if let Some(out) = child.stdout.take() {
            let said = said.clone();
            std::thread::spawn(move || {
                BufReader::new(out).lines().map_while(Result::ok).for_each(|line| hear(&line, &said));
            });
        }
        stage.workers.push(Worker { name, child, said });
    }
    Ok(())
}

/// Who comes on stage, in this order.
const NAMES: [&str; 6] = ["ada", "bea", "cyd", "dan", "eve", "fay"];

fn hear(line: &str, said: &Mutex<Said>) {
    let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { return };
    let number = |key: &str| line.get(key).and_then(serde_json::Value::as_u64).unwrap_or_default();
    *said.lock().unwrap_or_else(PoisonError::into_inner) =
        Said { steps: number("steps"), wrong: number("wrong"), ended: line.get("ended").is_some() };
}

impl Worker {
    fn said(&self) -> Said {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How everybody stands.
fn now(workers: &[Worker], listing: &wire::Listing) -> String {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let mut rows =
        vec![["PROGRAM", "STATE", "ON THE GPU", "AWAY", "TURNS", "STEPS", "WRONG"].map(str::to_owned)];
    for worker in workers {
        let said = worker.said();
        let tenant = listing.tenants.iter().find(|tenant| tenant.job == worker.name);
        let state = match tenant {
            Some(tenant) => tenant.state.to_string(),
            None if said.ended => "done".into(),
            None => "starting".into(),
        };
        let of = |what: fn(&wire::Tenant) -> u64| {
            tenant.map_or_else(|| "-".to_owned(), |tenant| mib(what(tenant)))
        };
        rows.push([
            worker.name.clone(),
            state,
            of(|tenant| tenant.resident_bytes),
            of(|tenant| tenant.away_bytes),
            tenant.map_or_else(|| "-".to_owned(), |tenant| tenant.turns.to_string()),
            said.steps.to_string(),
            said.wrong.to_string(),
        ]);
    }
    let sides = [Side::Left, Side::Left, Side::Right, Side::Right, Side::Right, Side::Right, Side::Right];
    fitting(&sides, &rows, terminal_width())
}

fn summary(workers: &[Worker], timeline: &Timeline) -> String {
    let said: Vec<Said> = workers.iter().map(Worker::said).collect();
    format!(
        "{} steps, {} wrong bytes found, {} turns, {} MiB moved in {} moves.\n",
        said.iter().map(|said| said.steps).sum::<u64>(),
        match said.iter().map(|said| said.wrong).sum::<u64>() {
            0 => "no".to_owned(),
            wrong => wrong.to_string(),
        },
        timeline.turns,
        timeline.moved_bytes >> 20,
        timeline.moves,
    )
}

/// The end of what the daemon and the programs said.
fn log_of(folder: &Path) -> String {
    let tail = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    };
    let _ = std::io::stderr().flush();
    ["log", "vgpud.log"].map(|name| tail(&folder.join(name))).join("\n")
}
