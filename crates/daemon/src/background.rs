//! `rotad --background`: starts the daemon apart from whoever asks, and returns when it can be reached, or says why it cannot.
//!
//! The daemon is no child of the program that wanted it, has no terminal, and writes to a log file. One of those who want a
//! daemon at the same moment starts it, the others wait for that.

use crate::socket_folder::is_ours;
use anyhow::{Context as _, bail};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wire::Connection;

/// The flag by which the daemon is started in the background.
pub(crate) const FLAG: &str = "--background";

/// The flag that the daemon then has.
pub(crate) const DETACHED: &str = "--detached";

/// How long the daemon may take: most of it goes into host memory being pinned.
const START_WITHIN: Duration = Duration::from_secs(120);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// A log that is longer is put aside.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// So many of the log's last lines are shown.
const LOG_LINES_SHOWN: usize = 12;

/// Starts a daemon that listens at `socket`, by this executable and its own arguments.
pub(crate) fn start(socket: &Path) -> anyhow::Result<()> {
    let folder = socket.parent().unwrap_or(Path::new("."));
    let lock = File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(folder.join("start.lock"))
        .with_context(|| format!("cannot make a lock in {}", folder.display()))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).context("cannot take the lock of the start")?;
    if Connection::connect(socket).is_ok() {
        return Ok(());
    }
    let path = log_file()?;
    let mut log = File::options()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        // A link there is not ours.
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path)
        .with_context(|| format!("cannot write the log {}", path.display()))?;
    let begin = log.seek(SeekFrom::End(0))?;
    let executable = std::env::current_exe().context("cannot tell where this executable is")?;
    let arguments = std::env::args_os().skip(1).map(|word| if word == FLAG { DETACHED.into() } else { word });
    let mut daemon = Command::new(&executable)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        .spawn()
        .with_context(|| format!("cannot start {}", executable.display()))?;
    let limit = Instant::now() + START_WITHIN;
    while Connection::connect(socket).is_err() {
        let why = match daemon.try_wait().context("cannot wait for the daemon")? {
            Some(status) => format!("the daemon ended at its start ({status})"),
            None if Instant::now() > limit => {
                let _ = daemon.kill();
                format!("the daemon was not ready within {START_WITHIN:?}")
            }
            None => {
                std::thread::sleep(LOOK);
                continue;
            }
        };
        bail!("{why}; the end of its log, {}:\n{}", path.display(), tail(&mut log, begin));
    }
    Ok(())
}

/// In the daemon itself: away from the terminal and the signals of whoever started it.
pub(crate) fn detach() {
    // It fails in a process that leads its session already, which is what is wanted.
    let _ = rustix::process::setsid();
}

/// In the daemon itself, when all files that it was told of are open: names in its flags and in the environment may be
/// relative to where it was started. It leaves that folder, which could not be unmounted otherwise.
pub(crate) fn leave_folder() {
    if let Err(cause) = std::env::set_current_dir("/") {
        tracing::warn!("cannot leave the folder that the daemon was started in: {cause}");
    }
}

/// Where the log is: `rota/rotad.log` in `$XDG_STATE_HOME`, else in `~/.local/state`; without a home in a folder for
/// temporary files, where others might have made it before us.
fn log_file() -> anyhow::Result<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state")));
    let user = rustix::process::geteuid().as_raw();
    let folder =
        state.map_or_else(|| std::env::temp_dir().join(format!("rota-{user}")), |state| state.join("rota"));
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .with_context(|| format!("cannot make the folder {} for the daemon's log", folder.display()))?;
    is_ours(&folder, "name another for the daemon's log with XDG_STATE_HOME")?;
    let path = folder.join("rotad.log");
    if std::fs::metadata(&path).is_ok_and(|file| file.len() > LOG_BYTES_MAX) {
        let _ = std::fs::rename(&path, folder.join("rotad.log.1"));
    }
    Ok(path)
}

/// The last lines that were written since `begin`.
fn tail(log: &mut File, begin: u64) -> String {
    let mut text = Vec::new();
    let read = log.seek(SeekFrom::Start(begin)).and_then(|_| log.read_to_end(&mut text));
    if let Err(cause) = read {
        return format!("  (it cannot be read: {cause})");
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}
