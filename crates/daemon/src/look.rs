//! `rotad look`: how the GPUs of this machine are set up, as JSON for `rota doctor`. Makes no context, and changes nothing.

use anyhow::Context as _;
use cuda::{Driver, Library};
use mover::CudaDevice;
use mover::cuda_device::Which;
use nvml::Nvml;
use rota_daemon::fitness::{self, Setting, mps};
use serde::Serialize;

/// All that was seen.
#[derive(Serialize)]
struct Seen {
    schema_version: u32,
    /// An MPS daemon that listens; then nothing else is looked at, because looking would make this its client.
    mps_daemon: Option<String>,
    driver_version: Option<String>,
    /// None where NVML does not say.
    confidential: Option<bool>,
    /// Does NVML answer? Else what only it knows is not here.
    nvml: bool,
    gpus: Vec<Setting>,
}

/// Looks, and prints.
pub(crate) fn look(is_virtual: bool) -> anyhow::Result<()> {
    let mut seen = Seen {
        schema_version: wire::SCHEMA_VERSION,
        mps_daemon: None,
        driver_version: None,
        confidential: None,
        nvml: false,
        gpus: Vec::new(),
    };
    match mps::none_listens() {
        Err(active) if !is_virtual => seen.mps_daemon = Some(active.to_string()),
        _ => fill(&mut seen)?,
    }
    println!("{}", serde_json::to_string(&seen).context("cannot write what was seen as JSON")?);
    Ok(())
}

fn fill(seen: &mut Seen) -> anyhow::Result<()> {
    let driver = Driver::load(Library::find(None)?)?;
    let nvml = Nvml::find(None).ok();
    seen.nvml = nvml.is_some();
    seen.driver_version = nvml.as_ref().and_then(Nvml::driver_version);
    seen.confidential = nvml.as_ref().and_then(Nvml::confidential);
    for index in 0..CudaDevice::count(&driver)? {
        seen.gpus.push(fitness::look(&driver, nvml.as_ref(), &Which::Index(index))?);
    }
    Ok(())
}
