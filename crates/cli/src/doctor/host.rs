//! Checks of the machine around the GPUs.

use super::Check;
use super::checks::{Known, pass, skip, warn};
use crate::quantity::{size, user};
use rustix::process::Resource;
use std::path::Path;

/// Host memory below this leaves no arena worth having.
const HOST_MEMORY_MIN: u64 = 4 << 30;

/// All checks of this kind.
pub(super) fn checks(known: &Known) -> Vec<Check> {
    vec![host_memory(known), memlock(), rights(known), container(), switched_off()]
}

fn host_memory(known: &Known) -> Check {
    // One for all GPUs.
    let arena = known.status.as_ref().and_then(|status| status.gpus.first()).map(|gpu| gpu.arena_bytes);
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib =
        line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    match (kib.map(|kib| kib << 10), arena) {
        (Some(bytes), Some(arena)) => {
            pass("host memory", format!("the arena has {}; {} are free", size(arena), size(bytes)))
        }
        (None, _) => skip("host memory", "the system does not say how much is free"),
        (Some(bytes), None) if bytes < HOST_MEMORY_MIN => warn(
            "host memory",
            format!("{} are free: little room for what is away", size(bytes)),
            "free some, or name a size with `rotad --arena`",
        ),
        (Some(bytes), None) => {
            pass("host memory", format!("{} are free; half of it becomes the arena", size(bytes)))
        }
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

/// What is lost without root.
fn rights(known: &Known) -> Check {
    let uid = known.status.as_ref().map_or_else(|| rustix::process::geteuid().as_raw(), |status| status.uid);
    let daemon = if known.status.is_some() { "the daemon is" } else { "a daemon would be" };
    match uid {
        0 if known.everybody => pass("rights", "the daemon is root's, and shares between all users"),
        0 if known.status.is_some() => {
            pass("rights", "the daemon is root's; `everybody` is not set, so only root's programs may come")
        }
        0 => pass("rights", format!("{daemon} root's: with `everybody` it shares between all users")),
        uid => pass(
            "rights",
            format!(
                "{daemon} of {}, not root's: programs of other users use the GPU unseen by it, and its limits on files \
                 and locked memory are those of that user",
                user(uid)
            ),
        ),
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
            "run `rotad` on the host, and bring its socket and the shim in with `rota cdi generate`",
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
