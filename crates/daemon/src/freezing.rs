//! How programs are stopped on each GPU: the self-test says whether freezing works, and what a context takes meanwhile.

use crate::log;
use anyhow::{anyhow, bail};
use mover::{CudaDevice, Device as _};
use nvml::Nvml;
use rota_daemon::config::{Config, Freeze};
use rota_daemon::events::nanos;
use rota_daemon::handover::Tested;
use rota_daemon::self_test::{self, SelfTestError};
use std::path::Path;
use wire::SelfTest;

const HINT: &str = "\nhint: choose other GPUs with --gpus; `rota doctor` looks for the cause";

/// What is lost where nothing can be frozen.
const PRICE: &str =
    "turns end only when kernels end, one that does not end keeps the GPU, and nothing is latency-critical";

/// Where launches are held back there is nothing to find.
const HELD_BACK: Tested = Tested { found: None, residue_bytes: None };

/// How programs are frozen on a GPU, and what the self-test says of that.
pub(crate) fn choose(
    device: &mut CudaDevice,
    config: &Config,
    nvml: Option<&Nvml>,
) -> anyhow::Result<Tested> {
    if config.freeze == Freeze::Launches {
        log::say(format_args!(
            "{} is shared by holding launches back, as `freeze` says: {PRICE}",
            device.uuid()
        ));
        return Ok(HELD_BACK);
    }
    match attempt(device, &config.socket, nvml)? {
        Ok(tested) => Ok(tested),
        Err(cause) if config.freeze == Freeze::Auto && cause.is_the_drivers() => {
            let what = unreliable(device, &cause);
            log::say(format_args!("warning: {what}; it is shared by holding launches back instead: {PRICE}"));
            Ok(HELD_BACK)
        }
        Err(cause) => bail!("{}{HINT}", unreliable(device, &cause)),
    }
}

/// The self-test, as people ask for it.
pub(crate) fn test(device: &mut CudaDevice, socket: &Path, nvml: Option<&Nvml>) -> anyhow::Result<Tested> {
    attempt(device, socket, nvml)?.map_err(|cause| anyhow!("{}{HINT}", unreliable(device, &cause)))
}

fn unreliable(device: &CudaDevice, cause: &SelfTestError) -> String {
    format!("freezing cannot be relied on with {}: {cause}", device.name())
}

/// Freezes and thaws a program of rota's own.
fn attempt(
    device: &mut CudaDevice,
    socket: &Path,
    nvml: Option<&Nvml>,
) -> anyhow::Result<Result<Tested, SelfTestError>> {
    let shim = wire::find_shim()?;
    let socket = socket.with_extension(format!("self-test-{}", std::process::id()));
    let uuid = device.uuid().to_owned();
    let free_before = device.capacity()?.free_bytes;
    let by_nvml = |pid| {
        let nvml = nvml?;
        let processes = nvml.device(&uuid).and_then(|device| nvml.processes(device)).ok()?;
        processes.into_iter().find(|&(listed, _)| listed == pid).map(|(_, bytes)| bytes)
    };
    // Others may come meanwhile and take memory too, so NVML's word is better.
    let by_difference = || Some(free_before.saturating_sub(device.capacity().ok()?.free_bytes));
    let measure = |pid| by_nvml(pid).or_else(by_difference).filter(|&bytes| bytes > 0);
    let report = self_test::run(&shim, &uuid, &socket, measure);
    let _ = std::fs::remove_file(&socket);
    Ok(report.map(|report| {
        log::say(format_args!(
            "self-test on {uuid}: a running kernel was frozen and thawed {} times, freeze at most {:.2} ms, thaw at most {:.2} ms",
            report.rounds,
            report.freeze_max.as_secs_f64() * 1e3,
            report.thaw_max.as_secs_f64() * 1e3
        ));
        let found = SelfTest {
            rounds: report.rounds,
            freeze_max_ns: nanos(report.freeze_max),
            thaw_max_ns: nanos(report.thaw_max),
        };
        let whole_blocks = |bytes: u64| bytes.next_multiple_of(wire::BLOCK_BYTES);
        Tested { found: Some(found), residue_bytes: report.residue_bytes.map(whole_blocks) }
    }))
}
