//! A daemon of one's own, where there is none: `rotad --background` does it, and ends it when nobody has used it for a while.

use super::{AGAIN_AFTER, NobodyThere, Place, command, is_closed};
use crate::quantity::printable;
use anyhow::{Context as _, bail};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use wire::{Answer, Command, Connection};

/// Where a daemon is just ending, how often to try again.
const AGAIN_MAX: u32 = 10;

/// As [`command`]; where no daemon is and none was named, one is started.
pub(crate) fn command_or_start(
    place: &Place,
    wanted: &Command,
    vgpu: bool,
    quiet: bool,
) -> anyhow::Result<Answer> {
    let mut ending = 0;
    loop {
        let error = match command(&place.socket, wanted.clone()) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let closed = is_closed(&error);
        let starts = error.is::<NobodyThere>() && !place.chosen;
        if !(closed || starts) || ending == AGAIN_MAX {
            return Err(error);
        }
        if closed {
            // It was about to end when we came, or dies of the question: one that stays is not asked again.
            while !is_gone(&place.socket) {
                if ending == AGAIN_MAX {
                    return Err(error);
                }
                ending += 1;
                std::thread::sleep(AGAIN_AFTER);
            }
            continue;
        }
        match start(&place.socket, vgpu, quiet) {
            Ok(()) => ending += 1,
            Err(_) if ending > 0 => {
                // The last one has not given up everything yet.
                ending += 1;
                std::thread::sleep(AGAIN_AFTER);
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_gone(socket: &Path) -> bool {
    Connection::connect(socket).is_err()
}

fn start(socket: &Path, vgpu: bool, quiet: bool) -> anyhow::Result<()> {
    let rotad = rotad()?;
    if !quiet {
        let _ = writeln!(std::io::stderr(), "rota: no daemon is there: starting one");
    }
    let mut starter = Process::new(&rotad);
    starter.args(["--background", "--on-demand", "--socket"]).arg(socket);
    if vgpu && std::env::var_os("ROTA_VGPU").is_none_or(|folder| folder.is_empty()) {
        starter.arg("--vgpu").arg(socket.with_file_name("vgpu"));
    }
    // What is meant for the program is not meant for the daemon.
    starter.env_remove("CUDA_VISIBLE_DEVICES").stdin(Stdio::null()).stdout(Stdio::null());
    let output = starter.output().with_context(|| format!("cannot start {}", rotad.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<String> =
            said.lines().map(|line| printable(line.trim_start_matches("rotad: "))).collect();
        bail!(
            "no daemon is there, and none could be started: {}\n\
             hint: `rota doctor` looks for the cause; `rotad` starts one in the foreground",
            said.join("\n")
        );
    }
    Ok(())
}

/// Beside this executable, where it is installed; else wherever the shell would find it.
pub(crate) fn rotad() -> anyhow::Result<PathBuf> {
    let executable = std::env::current_exe().context("cannot tell where this executable is")?;
    let beside = executable.with_file_name("rotad");
    Ok(if beside.is_file() { beside } else { "rotad".into() })
}
