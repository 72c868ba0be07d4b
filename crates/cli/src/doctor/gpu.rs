//! Checks of the driver and the GPUs. What only the driver knows is asked by `rotad look`, so that this program needs none.

use super::checks::{Known, fail, pass, skip, warn};
use super::{Check, Verdict};
use crate::daemon::start::rotad;
use crate::quantity::size;
use crate::status;
use serde::Deserialize;
use std::path::Path;
use std::process::{Command, Stdio};
use wire::SelfTest;

/// Programs that are named at most.
const NAMED_MAX: usize = 6;

/// What `rotad look` prints.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Look {
    mps_daemon: Option<String>,
    confidential: Option<bool>,
    nvml: bool,
    gpus: Vec<Gpu>,
}

#[derive(Debug, Deserialize)]
struct Gpu {
    uuid: String,
    name: String,
    compute_mode: String,
    mig: Option<bool>,
    mps_pids: Vec<u32>,
    processes: Vec<Process>,
}

#[derive(Debug, Deserialize)]
struct Process {
    pid: u32,
    bytes: Option<u64>,
}

/// All checks of this kind.
pub(super) fn checks(known: &Known) -> Vec<Check> {
    let driver = driver(known);
    if driver.verdict == Verdict::Fail {
        return vec![driver];
    }
    let look = match look(known) {
        Ok(look) => look,
        Err(reason) => {
            let (what, hint) = reason.split_once("\nhint: ").unwrap_or((&reason, "see `rotad self-test`"));
            return vec![driver, fail("GPUs", what.replace('\n', " "), hint)];
        }
    };
    let mut checks = vec![driver];
    // Where MPS listens nothing else is looked at.
    if look.mps_daemon.is_none() {
        checks.extend([gpus(&look), compute_mode(&look)]);
    }
    checks.push(mps(&look));
    if look.mps_daemon.is_none() {
        checks.extend([confidential(&look), mig(&look), outside(&look, known)]);
    }
    checks
}

/// Asks `rotad` how the GPUs are set up.
fn look(known: &Known) -> Result<Look, String> {
    let output = ask(known, &["look"])?;
    serde_json::from_slice(&output)
        .map_err(|error| format!("`rotad look` said what cannot be understood: {error}"))
}

/// What `rotad` prints, or why it failed.
fn ask(known: &Known, words: &[&str]) -> Result<Vec<u8>, String> {
    let rotad = rotad().map_err(|error| format!("{error:#}"))?;
    let mut command = Command::new(&rotad);
    command.args(words).stdin(Stdio::null()).env_remove("CUDA_VISIBLE_DEVICES");
    if let Some(folder) = known.virtual_machine() {
        command.arg("--vgpu").arg(folder);
    }
    let output = command.output().map_err(|cause| {
        format!("cannot start {}: {cause}\nhint: put `rotad` beside `rota`", rotad.display())
    })?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(said.trim_end().trim_start_matches("rotad: ").to_owned())
        }
    }
}

fn driver(known: &Known) -> Check {
    const VERSION: &str = "/proc/driver/nvidia/version";
    if known.virtual_machine().is_some() {
        return skip("driver", "the daemon shares a virtual GPU, which needs none");
    }
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

fn gpus(look: &Look) -> Check {
    let names: Vec<&str> = look.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    match names.is_empty() {
        true => fail("GPUs", "none is there", "see `nvidia-smi -L` and `lspci | grep -i nvidia`"),
        false => pass("GPUs", format!("{}: {}", names.len(), names.join(", "))),
    }
}

fn compute_mode(look: &Look) -> Check {
    const NAME: &str = "compute mode";
    match look.gpus.iter().find(|gpu| gpu.compute_mode != "default") {
        None => pass(NAME, "every GPU may be shared"),
        Some(gpu) => fail(
            NAME,
            format!("{} is in {} mode: it cannot be shared", gpu.uuid, gpu.compute_mode),
            format!("sudo nvidia-smi -i {} -c DEFAULT", gpu.uuid),
        ),
    }
}

fn mps(look: &Look) -> Check {
    if let Some(active) = &look.mps_daemon {
        let (what, hint) =
            active.split_once("\nhint: ").unwrap_or((active, "echo quit | nvidia-cuda-mps-control"));
        return fail("MPS", what, hint);
    }
    match look.gpus.iter().find(|gpu| !gpu.mps_pids.is_empty()) {
        None => pass("MPS", "not active"),
        Some(gpu) => fail(
            "MPS",
            format!(
                "{} programs use {} through MPS, and cannot be frozen one by one",
                gpu.mps_pids.len(),
                gpu.uuid
            ),
            "echo quit | nvidia-cuda-mps-control",
        ),
    }
}

fn confidential(look: &Look) -> Check {
    const NAME: &str = "confidential";
    match look.confidential {
        Some(false) => pass(NAME, "confidential computing is off"),
        Some(true) => fail(
            NAME,
            "confidential computing is on: memory of one program cannot be passed to the daemon, so nothing can be moved",
            "turn it off for this machine, or use its GPUs without rota",
        ),
        // Drivers that know nothing of it cannot have it on.
        None if look.nvml => pass(NAME, "the driver knows no confidential computing"),
        None => skip(NAME, "NVML cannot be asked"),
    }
}

fn mig(look: &Look) -> Check {
    let divided: Vec<&str> =
        look.gpus.iter().filter(|gpu| gpu.mig == Some(true)).map(|gpu| gpu.uuid.as_str()).collect();
    match divided.is_empty() {
        true if look.nvml => pass("MIG", "no GPU is divided into instances"),
        true => skip("MIG", "NVML cannot be asked"),
        false => warn(
            "MIG",
            format!("divided into instances: {}", divided.join(", ")),
            "each instance is a GPU to programs, and sharing one was never tried; `rotad self-test` tells whether freezing works",
        ),
    }
}

/// Programs that use the GPU and are not the daemon's.
fn outside(look: &Look, known: &Known) -> Check {
    const NAME: &str = "outside";
    if !look.nvml {
        return skip(NAME, "NVML cannot be asked who uses the GPUs");
    }
    let ours = |pid: u32| known.pids().any(|known| known == pid);
    let others: Vec<&Process> =
        look.gpus.iter().flat_map(|gpu| &gpu.processes).filter(|one| !ours(one.pid)).collect();
    if others.is_empty() {
        return pass(NAME, "no program uses a GPU outside of rota");
    }
    let named: Vec<String> = others.iter().take(NAMED_MAX).map(|process| named(process)).collect();
    let more = match others.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    warn(
        NAME,
        format!("use a GPU outside of rota: {}{more}", named.join(", ")),
        "their memory is not moved, and they take no turns: start them with `rota run`",
    )
}

fn named(process: &Process) -> String {
    let Process { pid, bytes } = process;
    let name =
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm")).unwrap_or_default();
    let name = if name.trim().is_empty() { String::new() } else { format!(" {}", name.trim()) };
    bytes.map_or(format!("{pid}{name}"), |bytes| format!("{pid}{name} ({})", size(bytes)))
}

/// Does freezing work? The daemon has tried at its start; without one it is tried now.
pub(super) fn freezing(known: &Known, fit_so_far: bool) -> Check {
    const NAME: &str = "freezing";
    if let Some(status) = &known.status {
        return match &status.self_test {
            Some(found) => pass(NAME, status::self_test(found)),
            None => warn(
                NAME,
                status::HELD_BACK,
                "`rotad self-test` says why the driver cannot, unless the setting `freeze` is `launches`",
            ),
        };
    }
    if !fit_so_far {
        return skip(NAME, "not tried, because of what failed above");
    }
    let tried = ask(known, &["self-test", "--json"]).and_then(|output| {
        serde_json::from_slice::<SelfTest>(&output)
            .map_err(|error| format!("it said what cannot be understood: {error}"))
    });
    match tried {
        Ok(found) => pass(NAME, status::self_test(&found)),
        Err(reason) => {
            // What the test said on its way comes first.
            let last = reason.rsplit_once("rotad: ").map_or(reason.as_str(), |(_, last)| last);
            let (what, hint) =
                last.split_once("\nhint: ").unwrap_or((last, "`rotad self-test` shows all of it"));
            fail(NAME, what.replace('\n', " "), hint)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn seen(changes: &[(&str, Value)]) -> Look {
        let mut look = json!({
            "mps_daemon": null, "driver_version": "580", "confidential": false, "nvml": true,
            "gpus": [{
                "uuid": "GPU-7", "name": "a GPU", "compute_mode": "default", "mig": false, "mps_pids": [],
                "processes": [{ "pid": u32::MAX, "bytes": 1 << 30 }]
            }]
        });
        for (place, value) in changes {
            *look.pointer_mut(place).unwrap() = value.clone();
        }
        serde_json::from_value(look).unwrap()
    }

    /// The check passes as things are, and not with this change.
    fn differs(check: impl Fn(&Look) -> Check, place: &str, value: Value, verdict: Verdict, says: &str) {
        assert_eq!(check(&seen(&[])).verdict, Verdict::Pass, "{place}");
        let found = check(&seen(&[(place, value)]));
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.found.contains(says), "{found:?}");
        assert!(found.hint.is_some() || verdict == Verdict::Skip, "{found:?}");
    }

    #[test]
    fn each_obstacle_is_found() {
        use Verdict::{Fail, Skip, Warn};
        differs(gpus, "/gpus", json!([]), Fail, "none is there");
        differs(compute_mode, "/gpus/0/compute_mode", json!("exclusive"), Fail, "GPU-7 is in exclusive mode");
        differs(mps, "/gpus/0/mps_pids", json!([1, 2]), Fail, "2 programs use GPU-7 through MPS");
        differs(mps, "/mps_daemon", json!("one listens\nhint: end it"), Fail, "one listens");
        differs(confidential, "/confidential", json!(true), Fail, "confidential computing is on");
        differs(mig, "/gpus/0/mig", json!(true), Warn, "divided into instances: GPU-7");
        differs(mig, "/nvml", json!(false), Skip, "NVML cannot be asked");
    }

    #[test]
    fn programs_outside_of_rota_are_named() {
        let found = outside(&seen(&[]), &Known::default());
        assert_eq!(found.verdict, Verdict::Warn);
        assert_eq!(found.found, format!("use a GPU outside of rota: {} (1.0 GiB)", u32::MAX));
        let many: Vec<Value> = (0..8).map(|_| json!({ "pid": u32::MAX, "bytes": null })).collect();
        let found = outside(&seen(&[("/gpus/0/processes", json!(many))]), &Known::default());
        assert!(found.found.ends_with("4294967295 and 2 more"), "{}", found.found);
        assert_eq!(
            outside(&seen(&[("/gpus/0/processes", json!([]))]), &Known::default()).verdict,
            Verdict::Pass
        );
    }
}
