//! Opening the GPUs that are to be shared, and NVML.

use anyhow::{Context as _, anyhow};
use cuda::{Driver, Library};
use mover::cuda_device::Which;
use mover::{CudaDevice, Device as _};
use nvml::Nvml;
use rota_daemon::config::Gpus;
use rota_daemon::fitness::{self, mps};
use rota_daemon::virtual_machine::VirtualMachine;
use std::sync::Arc;

/// Those that are named, in that order, each fit to be shared.
pub(crate) fn open(gpus: &Gpus, machine: Option<&VirtualMachine>) -> anyhow::Result<Vec<CudaDevice>> {
    // Before the driver is touched: it would make this process a client of MPS.
    if machine.is_none() {
        mps::none_listens()?;
    }
    let library = Library::find(None).map_err(|cause| {
        anyhow!(
            "needs NVIDIA's driver: {cause}\nhint: without a GPU, `rotad --vgpu DIR` shares a virtual one"
        )
    })?;
    let driver = Arc::new(Driver::load(library)?);
    let wanted = match gpus {
        Gpus::These(these) => these.clone(),
        Gpus::All => (0..CudaDevice::count(&driver)?).map(Which::Index).collect(),
    };
    anyhow::ensure!(!wanted.is_empty(), "the driver is here, but there is no GPU");
    let nvml = find_nvml();
    let mut devices: Vec<CudaDevice> = Vec::new();
    for which in &wanted {
        let one = Gpus::These(vec![which.clone()]);
        let setting = fitness::look(&driver, nvml.as_ref(), which);
        let setting = setting.with_context(|| format!("cannot use GPU {one}"))?;
        fitness::check(&setting, nvml.as_ref())?;
        let device =
            CudaDevice::open(driver.clone(), which).with_context(|| format!("cannot use GPU {one}"))?;
        if let Some(machine) = machine {
            machine.has(device.uuid())?;
        }
        let known = devices.iter().any(|other| other.uuid() == device.uuid());
        anyhow::ensure!(!known, "{} is named twice, by its index and by its UUID", device.uuid());
        devices.push(device);
    }
    Ok(devices)
}

/// NVML, if it is there: without it contexts count as what they took at first, and other programs are not seen.
pub(crate) fn find_nvml() -> Option<Nvml> {
    let found = Nvml::find(None);
    if let Err(cause) = &found {
        tracing::warn!("memory of programs outside of rota will not be seen: {cause}");
    }
    found.ok()
}
