//! The checks. Each looks at one thing and changes nothing.

use super::{Check, Verdict};
use crate::daemon::{NobodyThere, Place};
use crate::quantity::{size, user};
use crate::status;
use rustix::process::Resource;
use std::path::Path;
use std::process::{Command, Stdio};
use wire::Status;

/// Host memory below this leaves no arena worth having.
const HOST_MEMORY_MIN: u64 = 4 << 30;

/// Every check, in the order in which one depends on the other.
pub(super) fn all(place: &Place) -> Vec<Check> {
    let (daemon, status) = daemon(place);
    let on_virtual = status.as_ref().is_some_and(|status| status.gpus.iter().any(|gpu| gpu.vgpu.is_some()));
    let mut checks = match on_virtual {
        true => vec![skip("driver", "the daemon shares a virtual GPU, which needs none")],
        false => match driver() {
            missing @ Check { verdict: Verdict::Fail, .. } => vec![missing],
            found => vec![found, gpus(), compute_mode(), mps()],
        },
    };
    checks.extend([shim(), daemon]);
    checks.extend(status.as_ref().map(freezing));
    checks.extend([host_memory(), memlock(), container(), switched_off()]);
    checks
}

fn check(name: &'static str, verdict: Verdict, found: impl Into<String>) -> Check {
    Check { name, verdict, found: found.into(), hint: None }
}

fn pass(name: &'static str, found: impl Into<String>) -> Check {
    check(name, Verdict::Pass, found)
}

fn skip(name: &'static str, found: impl Into<String>) -> Check {
    check(name, Verdict::Skip, found)
}

fn warn(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Check {
    Check { hint: Some(hint.into()), ..check(name, Verdict::Warn, found) }
}

fn fail(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Check {
    Check { hint: Some(hint.into()), ..check(name, Verdict::Fail, found) }
}

fn driver() -> Check {
    const VERSION: &str = "/proc/driver/nvidia/version";
    let Ok(text) = std::fs::read_to_string(VERSION) else {
        let hint =
            "install NVIDIA's driver; without a GPU, `rota run --vgpu` and `rota demo` use a virtual one";
        return fail("driver", format!("none is loaded: there is no {VERSION}"), hint);
    };
    let line = text.lines().next().unwrap_or_default();
    // As in "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build …".
    let words: Vec<&str> = line.split_whitespace().collect();
    let version =
        words.iter().find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()));
    let version = version.copied().unwrap_or("of an unknown version");
    match line.contains("Open Kernel Module") {
        true => pass("driver", format!("{version}, with the open kernel module")),
        false => warn(
            "driver",
            format!("{version}, with the closed kernel module"),
            "freezing was measured with the open one; `rotad self-test` tells whether it works with this one",
        ),
    }
}

fn gpus() -> Check {
    let models: Vec<String> = std::fs::read_dir("/proc/driver/nvidia/gpus")
        .into_iter()
        .flatten()
        .filter_map(|gpu| std::fs::read_to_string(gpu.ok()?.path().join("information")).ok())
        .map(|text| {
            let model = text.lines().find_map(|line| line.strip_prefix("Model:"));
            model.unwrap_or("a GPU of an unknown kind").trim().to_owned()
        })
        .collect();
    match models.is_empty() {
        true => fail("GPUs", "none is there", "see `nvidia-smi -L` and `lspci | grep -i nvidia`"),
        false => pass("GPUs", format!("{}: {}", models.len(), models.join(", "))),
    }
}

fn compute_mode() -> Check {
    const NAME: &str = "compute mode";
    let asked = Command::new("nvidia-smi")
        .args(["--query-gpu=compute_mode", "--format=csv,noheader"])
        .stdin(Stdio::null())
        .output();
    let Some(output) = asked.ok().filter(|output| output.status.success()) else {
        return skip(NAME, "nvidia-smi cannot be asked");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().find(|line| line.trim() != "Default") {
        None => pass(NAME, "every GPU may be shared"),
        Some(mode) => fail(
            NAME,
            format!("{}: only one process may use that GPU", mode.trim()),
            "sudo nvidia-smi -c DEFAULT",
        ),
    }
}

fn mps() -> Check {
    let folder = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").filter(|folder| !folder.is_empty());
    let folder = folder.unwrap_or_else(|| "/tmp/nvidia-mps".into());
    match Path::new(&folder).join("control").exists() {
        false => pass("MPS", "no MPS daemon is there"),
        true => warn(
            "MPS",
            format!(
                "an MPS daemon listens in {}: its programs share one context, which rota cannot tell apart",
                Path::new(&folder).display()
            ),
            "echo quit | nvidia-cuda-mps-control",
        ),
    }
}

fn shim() -> Check {
    let found = match wire::find_shim() {
        Ok(found) => found,
        Err(error) => {
            let text = error.to_string();
            let (what, hint) =
                text.split_once("\nhint: ").unwrap_or((&text, "build all of it with `make build`"));
            return fail("shim", what.replace("\n ", ";"), hint);
        }
    };
    match std::fs::File::open(&found) {
        Ok(_) => pass("shim", found.display().to_string()),
        Err(cause) => {
            fail("shim", format!("{} cannot be read: {cause}", found.display()), "mend its permissions")
        }
    }
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
            let found = format!("at {socket}, process {} of {}", status.pid, user(status.uid));
            (pass("daemon", found), Some(status))
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

fn freezing(status: &Status) -> Check {
    match &status.self_test {
        Some(found) => pass("freezing", status::self_test(found)),
        None => warn(
            "freezing",
            status::HELD_BACK,
            "`rotad self-test` says why the driver cannot, unless the setting `freeze` is `launches`",
        ),
    }
}

fn host_memory() -> Check {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib =
        line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    match kib.map(|kib| kib << 10) {
        None => skip("host memory", "the system does not say how much is free"),
        Some(bytes) if bytes < HOST_MEMORY_MIN => warn(
            "host memory",
            format!("{} are free: little room for what is away", size(bytes)),
            "free some, or name a size with `rotad --arena`",
        ),
        Some(bytes) => pass("host memory", format!("{} are free; half of it becomes the arena", size(bytes))),
    }
}

fn memlock() -> Check {
    match rustix::process::getrlimit(Resource::Memlock).current {
        None => pass("memlock", "no limit"),
        // The driver pins the arena itself, past this limit; others, such as RDMA, go by it.
        Some(bytes) => {
            pass("memlock", format!("{}; the arena is pinned by the driver and not counted", size(bytes)))
        }
    }
}

fn container() -> Check {
    let cgroup = std::fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    let marks = ["/.dockerenv", "/run/.containerenv"].iter().any(|path| Path::new(path).exists());
    let inside =
        marks || ["docker", "containerd", "kubepods", "lxc"].iter().any(|name| cgroup.contains(name));
    match inside {
        false => pass("container", "not in one"),
        true => warn(
            "container",
            "this is one: a daemon in here does not know of programs outside",
            "run `rotad` on the host, and share its socket's folder and process numbers with the container",
        ),
    }
}

fn switched_off() -> Check {
    match std::env::var("ROTA_DISABLE") {
        Ok(value) if !["", "0"].contains(&value.as_str()) => warn(
            "environment",
            "ROTA_DISABLE is set: programs run as if rota were not there",
            "unset ROTA_DISABLE",
        ),
        _ => pass("environment", "nothing switches the shim off"),
    }
}
