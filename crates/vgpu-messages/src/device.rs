//! What a virtual GPU is.

use serde::{Deserialize, Serialize};

use crate::ids::DeviceId;

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
}
