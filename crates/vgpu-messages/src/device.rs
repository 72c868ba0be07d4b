//! What a virtual GPU is.

use serde::{Deserialize, Serialize};

use crate::ids::DeviceId;

/// Who may use a GPU, with the driver's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    /// Anybody.
    Default = 0,
    /// Nobody.
    Prohibited = 2,
    /// One process at a time.
    ExclusiveProcess = 3,
}

/// A GPU as `cuDevice*` and NVML describe it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceDescription {
    /// Its ordinal.
    pub device: DeviceId,
    /// Its UUID; the same for the same ordinal in every run.
    pub uuid: [u8; 16],
    /// Its name.
    pub name: String,
    /// All its memory.
    pub memory_bytes: u64,
    /// Major and minor.
    pub compute_capability: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// PCI domain, bus, device.
    pub pci: (u32, u32, u32),
    /// The NUMA node it is near to.
    pub numa_node: u32,
    /// GPUs whose memory it can reach.
    pub peers: Vec<DeviceId>,
    /// Who may use it.
    pub compute_mode: ComputeMode,
    /// Its programs are listed as those of an MPS server.
    pub mps: bool,
    /// Its memory is kept from the host.
    pub confidential: bool,
}
