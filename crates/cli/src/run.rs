//! `rota run`: becomes the program, with the shim in it.
//!
//! rota does not stay behind as a parent: the program takes over this process, so the terminal, signals and the exit
//! code are its own, and the process number that people see is the tenant's.

mod program;

use crate::args::{JOB_NAME_BYTES_MAX, RunArgs};
use crate::daemon::{self, Place, start};
use crate::quantity::{printable, size};
use anyhow::{Context as _, anyhow, bail};
use clap::ArgMatches;
use program::Obstacle;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use vgpu_messages::enter::{self, Library};
use wire::quantity::Span;
use wire::{Answer, Gpu, JobRequest, Opened};

/// rota's own failure; as in `env` and `docker run`, above what programs commonly use.
pub(crate) const EXIT_ROTA: u8 = 125;
/// The program is there and cannot be executed.
const EXIT_NOT_EXECUTABLE: u8 = 126;
/// There is no such program.
const EXIT_NOT_FOUND: u8 = 127;

/// Why the program did not start.
pub(crate) struct Failure {
    pub(crate) error: anyhow::Error,
    pub(crate) exit_code: u8,
}

/// Becomes the program. Returns only if that fails.
pub(crate) fn run(args: &RunArgs, matches: &ArgMatches, place: &Place) -> Failure {
    let mut command = match prepare(args, matches, place) {
        Ok(command) => command,
        Err(error) => return Failure { error, exit_code: EXIT_ROTA },
    };
    let cause = command.exec();
    let exit_code = match cause.kind() {
        std::io::ErrorKind::NotFound => EXIT_NOT_FOUND,
        _ => EXIT_NOT_EXECUTABLE,
    };
    let program = command.get_program().display();
    Failure { error: anyhow!("cannot execute {program}: {cause}"), exit_code }
}

fn prepare(args: &RunArgs, matches: &ArgMatches, place: &Place) -> anyhow::Result<Command> {
    let (program, arguments) = args.command.split_first().context("no program was named")?;
    let socket = std::path::absolute(&place.socket)
        .with_context(|| format!("cannot tell the full path of {}", place.socket.display()))?;
    let place = Place { socket: socket.clone(), chosen: place.chosen };
    let shim = wire::find_shim()?;
    let obstacle = program::obstacle(program, &shim);
    if let Some(Obstacle::Never(reason)) = obstacle {
        bail!("{reason}");
    }
    let job = args.name.clone().unwrap_or_else(|| default_job(program, std::process::id()));
    let (mut asked, usual) = args.terms.changes(matches);
    asked.gang = args.gang.then_some(true);
    let gpus = args.gpus.clone().unwrap_or_default();
    let timeout_ns = args.timeout.map(Span::nanos);
    let request = wire::Command::Open(JobRequest { name: job.clone(), asked, usual, gpus, timeout_ns });
    let opened = match start::command_or_start(&place, &request, args.vgpu, args.quiet)? {
        Answer::Opened(opened) => opened,
        other => return Err(daemon::strange(&socket, &other)),
    };
    let gpu = opened.gpus.first().context("the daemon named no GPU for the program")?;
    let machine = machine(args.vgpu, gpu, &socket)?;
    // What was asked for in so many words counts, and else what is there.
    let chosen_gpu = std::env::var_os("CUDA_VISIBLE_DEVICES").filter(|_| args.gpus.is_none());

    if !args.quiet {
        let line = notice(&job, &opened, chosen_gpu.as_deref());
        let _ = writeln!(std::io::stderr(), "rota: {line}");
        if let Some(Obstacle::Past(obstacle)) = obstacle {
            let _ = writeln!(std::io::stderr(), "rota: {obstacle}");
        }
    }
    let mut command = Command::new(program);
    let mut preloaded = std::env::var_os("LD_PRELOAD");
    if let Some((library, folder)) = machine {
        let environment = library.environment(Path::new(folder), preloaded.as_deref());
        preloaded = environment.iter().find(|(name, _)| *name == "LD_PRELOAD").map(|(_, list)| list.clone());
        command.envs(environment);
    }
    let preloaded = wire::preload_nvml(&shim, preloaded);
    command
        .args(arguments)
        .env("LD_PRELOAD", wire::preload(&shim, preloaded))
        .env("ROTA_SOCKET", socket)
        .env("ROTA_JOB", job)
        .env("ROTA_REQUIRED", "1");
    // Programs on several GPUs share memory with each other.
    if (args.gang || opened.gpus.len() > 1) && std::env::var_os("ROTA_WHOLE_HANDLES").is_none() {
        command.env("ROTA_WHOLE_HANDLES", "1");
    }
    if chosen_gpu.is_none() {
        command.env("CUDA_VISIBLE_DEVICES", uuids(&opened).join(","));
    }
    Ok(command)
}

/// For a virtual GPU, its library and the folder of its machine. Nobody gets another kind of GPU than was asked for: what
/// a program computes on a virtual one may be nothing.
fn machine<'a>(wanted: bool, gpu: &'a Gpu, socket: &Path) -> anyhow::Result<Option<(Library, &'a str)>> {
    let (name, socket) = (printable(&gpu.name), socket.display());
    match (wanted, &gpu.vgpu) {
        (true, Some(folder)) => Ok(Some((Library::find()?, folder))),
        (true, None) => bail!(
            "--vgpu asks for a virtual GPU, and the daemon at {socket} shares a real one ({name})\n\
             hint: leave out --vgpu, or start another daemon with `rotad --vgpu DIR --socket PATH` and name its socket \
             with --socket"
        ),
        (false, Some(_)) => bail!(
            "the daemon at {socket} shares a virtual GPU ({name}), and nothing runs there unless it is asked for\n\
             hint: say `rota run --vgpu` if that is meant, or name the socket of another daemon with --socket"
        ),
        (false, None) => match enter::leads_to_library(|name| std::env::var_os(name)) {
            Some(variable) => bail!(
                "{variable} leads programs to a virtual GPU, and the daemon at {socket} shares a real one ({name})\n\
                 hint: unset {variable}"
            ),
            None => Ok(None),
        },
    }
}

/// The program's own name and the process number it will have.
fn default_job(program: &OsStr, pid: u32) -> String {
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let pid = format!("-{pid}");
    let mut job = printable(&name);
    job.truncate(job.floor_char_boundary(JOB_NAME_BYTES_MAX - pid.len()));
    job + &pid
}

fn notice(job: &str, opened: &Opened, chosen_gpu: Option<&OsStr>) -> String {
    let others = match opened.others {
        0 => "no other program there".into(),
        1 => "1 other program there".into(),
        more => format!("{more} other programs there"),
    };
    let chosen = match chosen_gpu {
        Some(chosen) if chosen != uuids(opened).join(",").as_str() => {
            format!("; CUDA_VISIBLE_DEVICES stays \"{}\"", printable(&chosen.to_string_lossy()))
        }
        _ => String::new(),
    };
    // The first group of a UUID is mostly enough to tell GPUs apart, and its beginning is accepted wherever a UUID is.
    let short = |groups: usize| {
        let groups =
            opened.gpus.iter().map(|gpu| gpu.uuid.split('-').take(groups).collect::<Vec<_>>().join("-"));
        groups.collect::<Vec<_>>()
    };
    let differ = |uuids: &Vec<String>| uuids.iter().collect::<BTreeSet<_>>().len() == uuids.len();
    let uuids = Some(short(2)).filter(differ).unwrap_or_else(|| short(usize::MAX));
    let gpus: Vec<String> = opened.gpus.iter().zip(&uuids).map(|(gpu, uuid)| named(gpu, uuid)).collect();
    format!("job {job} on {}, {others}{chosen}", gpus.join(" and "))
}

fn named(gpu: &Gpu, uuid: &str) -> String {
    format!(
        "{} ({}, {}{})",
        printable(uuid),
        printable(&gpu.name),
        size(gpu.capacity_bytes),
        if gpu.vgpu.is_some() { ", virtual" } else { "" }
    )
}

fn uuids(opened: &Opened) -> Vec<&str> {
    opened.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_after_its_program() {
        assert_eq!(default_job(OsStr::new("/usr/bin/python3"), 42), "python3-42");
        assert_eq!(default_job(OsStr::new("a\nb"), 1), "a?b-1");
        let long = default_job(OsStr::new(&"ä".repeat(JOB_NAME_BYTES_MAX)), 7);
        assert!(long.len() <= JOB_NAME_BYTES_MAX && long.ends_with("ä-7"), "{long}");
    }
}
