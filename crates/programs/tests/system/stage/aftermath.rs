//! What is said of a stage on which a test has failed. The last of it is what is most likely read, and kept where not all is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;
use wire::{Command, Connection, FromDaemon, ToDaemon, VERSION};

/// How long a daemon may take to say how it is.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// The last lines of what programs say, and of all else.
const LINES_OF_PROGRAMS: usize = 6;
const LINES: usize = 30;

/// How the daemon is, as long as it lives: what it answers, and what its threads do.
pub(super) fn of_daemon(socket: &Path, parts: &[Pid]) -> String {
    let ask = |question: &ToDaemon| match Connection::ask::<_, FromDaemon>(socket, question, ANSWER_WITHIN) {
        Ok(answer) => format!("{answer:?}\n"),
        Err(why) => format!("no answer: {why}\n"),
    };
    let list = ToDaemon::List { version: VERSION };
    let status = ToDaemon::Command { version: VERSION, command: Command::Status };
    let threads = parts.iter().flat_map(|&part| threads(part)).collect::<String>();
    format!("--- the daemon:\n{}{}{threads}", ask(&list), ask(&status))
}

/// What each thread of a process is called, is in, and has computed: whether it runs, waits, or turns round and round.
fn threads(process: Pid) -> Vec<String> {
    let tasks = PathBuf::from(format!("/proc/{}/task", process.as_raw_nonzero()));
    let Ok(tasks) = std::fs::read_dir(tasks) else { return Vec::new() };
    let line = |task: PathBuf| {
        let read = |name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_default();
        let (name, stat, call) = (read("comm"), read("stat"), read("syscall"));
        // Behind the name, which may have spaces: the state first, and the time in user mode as the twelfth.
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let (state, ticks) = (fields.next().unwrap_or_default(), fields.nth(10).unwrap_or_default());
        let call = call.split(' ').next().unwrap_or_default().trim_end();
        format!("{process:?} {}: state {state}, system call {call}, {ticks} ticks\n", name.trim_end())
    };
    tasks.filter_map(|task| Some(line(task.ok()?.path()))).collect()
}

/// The ends of all files: those of programs first, that of the daemon last.
pub(super) fn of_files(folder: &Path) -> String {
    let Ok(files) = std::fs::read_dir(folder) else { return String::new() };
    let mut files: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let rank = |name: &str| match name {
        "rotad.log" => 3,
        super::EVENTS => 2,
        "vgpud.log" => 1,
        _ => 0,
    };
    files.sort_by_key(|path| (rank(&name(path)), name(path)));
    let mut said = String::new();
    for path in files {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let most = if rank(&name(&path)) == 0 { LINES_OF_PROGRAMS } else { LINES };
        let lines: Vec<&str> = text.lines().collect();
        if !lines.is_empty() {
            let last = lines[lines.len().saturating_sub(most)..].join("\n");
            said.push_str(&format!("--- {}:\n{last}\n", name(&path)));
        }
    }
    said
}
