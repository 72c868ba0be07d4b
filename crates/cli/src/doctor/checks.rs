//! All checks, in the order in which one depends on the other, and those of rota's own parts. None of them changes anything;
//! where no daemon is, freezing is tried with a program of rota's own.

use super::{Check, Verdict, gpu, host};
use crate::daemon::{self, NobodyThere, Place};
use crate::elf::{self, Elf};
use crate::quantity::{size, user};
use crate::status;
use std::path::Path;
use std::process::{Command, Stdio};
use wire::quantity::Bytes;
use wire::{Answer, Listing, Status};

/// What the daemon tells, as far as it answers.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) status: Option<Status>,
    listing: Option<Listing>,
    /// What a program's context takes, as in the daemon's settings.
    residue: Option<String>,
    /// Whether programs of all users may come, as there.
    pub(super) everybody: bool,
}

impl Known {
    fn of(socket: &Path, status: Option<Status>) -> Self {
        let asked = status.is_some();
        let settings = || match daemon::command(socket, wire::Command::Settings) {
            Ok(Answer::Settings(settings)) => settings,
            _ => Vec::new(),
        };
        let settings = if asked { settings() } else { Vec::new() };
        let value =
            |key: &str| settings.iter().find(|setting| setting.key == key).map(|setting| &setting.value);
        Self {
            status,
            listing: asked.then(|| daemon::listing(socket).ok()).flatten(),
            residue: value("residue").cloned(),
            everybody: value("everybody").is_some_and(|value| value == "true"),
        }
    }

    /// The folder of the virtual machine whose GPUs the daemon shares.
    pub(super) fn virtual_machine(&self) -> Option<&str> {
        self.status.as_ref()?.gpus.iter().find_map(|gpu| gpu.vgpu.as_deref())
    }

    /// The daemon and its tenants.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        let tenants = self.listing.iter().flat_map(|listing| listing.tenants.iter().map(|tenant| tenant.pid));
        self.status.iter().map(|status| status.worker_pid).chain(tenants)
    }
}

/// Every check.
pub(super) fn all(place: &Place) -> Vec<Check> {
    let (daemon, status) = daemon(place);
    let known = Known::of(&place.socket, status);
    let mut checks = gpu::checks(&known);
    checks.extend(libraries());
    checks.push(daemon);
    let fit = checks.iter().all(|check| check.verdict != Verdict::Fail);
    checks.push(gpu::freezing(&known, fit));
    checks.extend(residue(&known));
    checks.extend(host::checks(&known));
    checks
}

fn check(name: &'static str, verdict: Verdict, found: impl Into<String>) -> Check {
    Check { name, verdict, found: found.into(), hint: None }
}

pub(super) fn pass(name: &'static str, found: impl Into<String>) -> Check {
    check(name, Verdict::Pass, found)
}

pub(super) fn skip(name: &'static str, found: impl Into<String>) -> Check {
    check(name, Verdict::Skip, found)
}

pub(super) fn warn(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Check {
    Check { hint: Some(hint.into()), ..check(name, Verdict::Warn, found) }
}

pub(super) fn fail(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Check {
    Check { hint: Some(hint.into()), ..check(name, Verdict::Fail, found) }
}

/// The shim, and what stands in front of NVML beside it.
fn libraries() -> Vec<Check> {
    let found = match wire::find_shim() {
        Ok(found) => found,
        Err(error) => {
            let text = error.to_string();
            let (what, hint) =
                text.split_once("\nhint: ").unwrap_or((&text, "build all of it with `make build`"));
            return vec![fail("shim", what.replace("\n ", ";"), hint)];
        }
    };
    let nvml = match wire::find_nvml_shim(&found) {
        Some(nvml) => library("NVML shim", &nvml),
        None => warn(
            "NVML shim",
            format!("none is beside {}: programs that ask NVML see the whole GPU", found.display()),
            "put librota_nvml.so beside the shim",
        ),
    };
    vec![library("shim", &found), nvml]
}

fn library(name: &'static str, file: &Path) -> Check {
    let shown = file.display();
    if let Err(cause) = std::fs::File::open(file) {
        return fail(name, format!("{shown} cannot be read: {cause}"), "mend its permissions");
    }
    let needs = Elf::read(file).and_then(|library| library.glibc_needed());
    let needs =
        needs.map_or(String::new(), |(major, minor)| format!(", for glibc {major}.{minor} and later"));
    match loads(file) {
        Ok(()) => pass(name, format!("{shown}{needs}")),
        Err(said) => fail(
            name,
            format!("{shown}{needs}, is not loaded{}: {said}", here()),
            "build all of it for this machine with `make build`",
        ),
    }
}

/// Has the loader put a library into a program, this one; it complains on stderr and goes on without.
fn loads(library: &Path) -> Result<(), String> {
    let executable = std::env::current_exe().map_err(|cause| cause.to_string())?;
    let tried =
        Command::new(executable).arg("--version").env("LD_PRELOAD", library).stdin(Stdio::null()).output();
    let output = tried.map_err(|cause| cause.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() && said.is_empty() {
        true => Ok(()),
        false if said.trim().is_empty() => Err(format!("the program with it ended ({})", output.status)),
        false => Err(said.trim().replace('\n', " ")),
    }
}

/// The C library of this machine.
fn here() -> String {
    let loader = std::env::current_exe().ok().and_then(|me| Elf::read(&me)?.loader());
    let there = loader.and_then(|loader| elf::glibc_of(&loader));
    there.map_or(String::new(), |(major, minor)| format!(" with glibc {major}.{minor}"))
}

fn daemon(place: &Place) -> (Check, Option<Status>) {
    let socket = place.socket.display();
    match status::ask(&place.socket) {
        Ok(status) if status.version != env!("CARGO_PKG_VERSION") => {
            let ours = env!("CARGO_PKG_VERSION");
            let found = format!("at {socket}, of version {}, and this is {ours}", status.version);
            (
                warn("daemon", found, "start it again with the `rotad` that belongs to this `rota`"),
                Some(status),
            )
        }
        Ok(status) => {
            let found = format!(
                "at {socket}, version {}, process {} of {}, with worker {}",
                status.version,
                status.pid,
                user(status.uid),
                status.worker_pid
            );
            let check = match status.keeper_pid {
                Some(keeper) => pass("daemon", format!("{found} and keeper {keeper}")),
                None => warn(
                    "daemon",
                    format!("{found}, and no keeper: memory that is away is lost with the worker"),
                    "see the daemon's log, and start it again when no program is there",
                ),
            };
            (check, Some(status))
        }
        Err(error) if error.is::<NobodyThere>() && !place.chosen => {
            (skip("daemon", format!("none at {socket}; `rota run` starts one")), None)
        }
        Err(error) => {
            let text = format!("{error:#}");
            let (what, hint) = text.split_once("\nhint: ").unwrap_or((&text, "start one with `rotad &`"));
            (fail("daemon", what, hint), None)
        }
    }
}

/// What stays on the GPU of a program that is away.
fn residue(known: &Known) -> Option<Check> {
    let status = known.status.as_ref()?;
    let residue = known.residue.as_deref()?;
    let largest = status.gpus.iter().map(|gpu| gpu.capacity_bytes).max()?;
    let fits = residue.parse::<Bytes>().map_or(0, |bytes| largest / bytes.0.max(1));
    Some(pass(
        "residue",
        format!("{residue} of each program stay on the GPU: at most {fits} fit on one of {}", size(largest)),
    ))
}
