//! Is a GPU fit to be shared? Asked before the daemon makes a context there, because some of what is wrong shows only as an
//! error without a reason later, or not at all.
//!
//! | obstacle | why it is one |
//! |---|---|
//! | compute mode | a GPU that one process may use cannot have the daemon and a program |
//! | MPS | its programs share one context, and so can only be frozen together |
//! | confidential computing | memory cannot be passed on between processes, so nothing can be moved |
//!
//! Whether freezing works is the self-test's question, not one of these.

pub mod mps;

use cuda::Driver;
use mover::cuda_device::{CudaDevice, Which};
use mover::device::DeviceError;
use nvml::{Device, Nvml};
use serde::Serialize;
use thiserror::Error;

/// How a GPU is set up, as far as that can be told without using it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its UUID.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Who may use it.
    pub compute_mode: ComputeMode,
    /// Is it divided into instances? None where NVML does not say.
    pub mig: Option<bool>,
    /// Processes that an MPS server runs there.
    pub mps_pids: Vec<u32>,
    /// All processes with a context there, and what they have on it.
    pub processes: Vec<Process>,
}

/// A process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its memory there, where that can be told.
    pub bytes: Option<u64>,
}

/// Who may use a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    /// Anybody.
    Default,
    /// One process at a time.
    Exclusive,
    /// Nobody.
    Prohibited,
}

/// Why a GPU cannot be shared.
#[derive(Debug, Error)]
pub enum Unfit {
    /// Only one process may use it.
    #[error(
        "{0} is in exclusive-process mode: only one process may use it, and the daemon is one already\n\
         hint: sudo nvidia-smi -i {0} -c DEFAULT"
    )]
    Exclusive(String),
    /// Nobody may use it.
    #[error("{0} is in prohibited mode: no process may use it\nhint: sudo nvidia-smi -i {0} -c DEFAULT")]
    Prohibited(String),
    /// An MPS server has programs there.
    #[error(
        "{gpu} is used through MPS by process {}: programs under MPS share one context, and cannot be frozen one by one\n\
         hint: end MPS with `echo quit | nvidia-cuda-mps-control`, or choose other GPUs with --gpus",
        pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
    )]
    Mps {
        /// The GPU.
        gpu: String,
        /// Its programs.
        pids: Vec<u32>,
    },
    /// An MPS daemon listens, and this process would become its client.
    #[error(transparent)]
    MpsDaemon(#[from] mps::Active),
    /// Memory is kept from other processes.
    #[error(
        "confidential computing is on: memory of one program cannot be passed to the daemon, so nothing could be moved\n\
         hint: turn it off for this machine, or use its GPUs without rota"
    )]
    Confidential,
    /// The driver does not say.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// How a GPU is set up.
pub fn look(driver: &Driver, nvml: Option<&Nvml>, which: &Which) -> Result<Setting, DeviceError> {
    let glance = CudaDevice::glance(driver, which)?;
    let known = nvml.and_then(|nvml| Some((nvml, nvml.device(&glance.uuid).ok()?)));
    Ok(Setting {
        compute_mode: match glance.compute_mode {
            0 => ComputeMode::Default,
            2 => ComputeMode::Prohibited,
            // 3, and 1 of older drivers, which meant a thread.
            _ => ComputeMode::Exclusive,
        },
        mig: known.and_then(|(nvml, device)| nvml.mig(device)),
        mps_pids: known.map(|(nvml, device)| nvml.mps_pids(device)).unwrap_or_default(),
        processes: known.map(|(nvml, device)| processes(nvml, device)).unwrap_or_default(),
        uuid: glance.uuid,
        name: glance.name,
    })
}

fn processes(nvml: &Nvml, device: Device) -> Vec<Process> {
    let told = nvml.processes(device).unwrap_or_default().into_iter();
    told.map(|(pid, bytes)| Process { pid, bytes: Some(bytes) }).collect()
}

/// Is it fit to be shared?
pub fn check(setting: &Setting, nvml: Option<&Nvml>) -> Result<(), Unfit> {
    let gpu = setting.uuid.clone();
    match setting.compute_mode {
        ComputeMode::Exclusive => return Err(Unfit::Exclusive(gpu)),
        ComputeMode::Prohibited => return Err(Unfit::Prohibited(gpu)),
        ComputeMode::Default => {}
    }
    if nvml.is_some_and(|nvml| nvml.confidential() == Some(true)) {
        return Err(Unfit::Confidential);
    }
    match setting.mps_pids.is_empty() {
        true => Ok(()),
        false => Err(Unfit::Mps { gpu, pids: setting.mps_pids.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(compute_mode: ComputeMode, mps_pids: Vec<u32>) -> Setting {
        let (uuid, name) = ("GPU-7".to_owned(), "a GPU".to_owned());
        Setting { uuid, name, compute_mode, mig: None, mps_pids, processes: vec![] }
    }

    #[test]
    fn each_obstacle_is_named_with_what_to_do() {
        let said = |mode, pids| check(&setting(mode, pids), None).unwrap_err().to_string();
        for (text, what, hint) in [
            (said(ComputeMode::Exclusive, vec![]), "exclusive-process", "nvidia-smi -i GPU-7 -c DEFAULT"),
            (said(ComputeMode::Prohibited, vec![]), "prohibited", "nvidia-smi -i GPU-7 -c DEFAULT"),
            (said(ComputeMode::Default, vec![3, 4]), "by process 3, 4", "echo quit"),
        ] {
            let (reason, advice) = text.split_once("\nhint: ").unwrap();
            assert!(
                reason.starts_with("GPU-7 is ") && reason.contains(what) && advice.contains(hint),
                "{text}"
            );
        }
        assert!(check(&setting(ComputeMode::Default, vec![]), None).is_ok());
    }
}
