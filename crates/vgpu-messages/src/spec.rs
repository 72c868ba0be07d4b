//! The description of a virtual machine: `vgpu.toml`, every entry optional, and a few environment variables over it.

mod costs;
mod faults;

pub use costs::Costs;
pub use faults::{ControlFault, CopyFault, Faults, FaultsError};

use serde::Deserialize;
use std::path::{Path, PathBuf};

use crate::device::{ComputeMode, DeviceDescription};
use crate::ids::DeviceId;
use crate::place::Directory;
use crate::quantity::{Bytes, Nanos, Rate};

/// The most GPUs of a virtual machine.
pub const GPUS_MAX: u32 = 16;

/// Why a description cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file says what cannot be understood.
    #[error("{path}: {source}")]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What.
        source: Box<toml::de::Error>,
    },
    /// An environment variable says what cannot be understood.
    #[error("the environment variable {0} is `{1}`: {2}")]
    Environment(&'static str, String, String),
    /// A value is out of range.
    #[error("{0}")]
    OutOfRange(String),
}

/// A virtual machine. The defaults are a small and slow GPU that one CPU core can keep up with.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spec {
    /// How many GPUs: 1 to 16.
    pub gpus: u32,
    /// What each is called.
    pub name: String,
    /// Memory of each.
    pub memory: Bytes,
    /// What a context takes of it.
    pub context_memory: Bytes,
    /// Multiprocessors of each.
    pub multiprocessors: u32,
    /// Copies from the host, alone.
    pub bus_in: Rate,
    /// Copies to the host, alone.
    pub bus_out: Rate,
    /// Each way, while both are under way.
    pub bus_both: Rate,
    /// Clearing of memory that is released, with the engine that copies from the host.
    pub clear_rate: Rate,
    /// Copies of pageable host memory.
    pub bus_pageable: Rate,
    /// Memory that kernels, memsets and copies on the device touch.
    pub memory_rate: Rate,
    /// Copies from GPU to GPU.
    pub peer_rate: Rate,
    /// Rounds a second of a loop in a kernel (spin, heartbeat).
    pub compute_rate: Rate,
    /// Time; see there.
    pub costs: Costs,
    /// Which GPUs reach each other's memory.
    pub peers: Peers,
    /// Who may use them.
    pub compute_mode: ComputeMode,
    /// Programs are listed as those of an MPS server. They are not joined in one context: only the list is as there.
    pub mps: bool,
    /// Told as confidential computing. Nothing is kept from anybody: only the answer is as there.
    pub confidential: bool,
    /// How many NUMA nodes the GPUs are spread over.
    pub numa_nodes: u32,
    /// Device time passes this many times as fast as the clock.
    pub time_scale: f64,
    /// What happens to kernels without a native equivalent.
    pub unknown_kernels: UnknownKernels,
    /// How long a kernel without a native equivalent takes, if it is a no-op.
    pub unknown_kernel_time: Nanos,
    /// The device ends when it had no client for so long.
    pub linger: Nanos,
    /// Power at rest and at work, in milliwatts.
    pub power_milliwatts: (u32, u32),
    /// Faults from the start on; `faults.toml` takes their place while it exists.
    pub faults: Faults,
    /// What tells the GPUs of this machine from those of others: a part of their UUIDs. From the directory's path.
    #[serde(skip)]
    pub identity: [u8; 6],
}

/// Which GPUs reach each other's memory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peers {
    /// All.
    All,
    /// None.
    None,
    /// These pairs.
    Pairs(Vec<(u32, u32)>),
}

/// What happens to kernels without a native equivalent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownKernels {
    /// Their module is refused.
    Refuse,
    /// They take time and do nothing.
    NoOp,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            gpus: 1,
            name: "rota virtual GPU".into(),
            memory: Bytes(1 << 30),
            context_memory: Bytes(16 << 20),
            multiprocessors: 8,
            bus_in: Rate(1_000_000_000),
            bus_out: Rate(1_000_000_000),
            bus_both: Rate(800_000_000),
            // As many times the bus as on an H200, where 256 MiB take 0.35 ms.
            clear_rate: Rate(14_000_000_000),
            bus_pageable: Rate(500_000_000),
            memory_rate: Rate(2_000_000_000),
            peer_rate: Rate(1_000_000_000),
            compute_rate: Rate(10_000_000),
            costs: Costs::default(),
            peers: Peers::All,
            compute_mode: ComputeMode::Default,
            mps: false,
            confidential: false,
            numa_nodes: 1,
            time_scale: 1.0,
            unknown_kernels: UnknownKernels::Refuse,
            unknown_kernel_time: Nanos(100_000),
            linger: Nanos(2_000_000_000),
            power_milliwatts: (20_000, 100_000),
            faults: Faults::default(),
            identity: [0; 6],
        }
    }
}

impl Spec {
    /// From text.
    pub fn parse(text: &str) -> Result<Self, Box<toml::de::Error>> {
        toml::from_str(text).map_err(Box::new)
    }

    /// That of a directory, or the default where it has none; then what the environment says: `ROTA_VGPU_GPUS`,
    /// `ROTA_VGPU_MEMORY`, `ROTA_VGPU_TIME_SCALE`, `ROTA_VGPU_UNKNOWN_KERNELS`.
    pub fn load(
        directory: &Directory,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SpecError> {
        let mut spec = Self::read(&directory.spec())?;
        spec.apply(environment)?;
        spec.check()?;
        spec.identity = directory.identity();
        Ok(spec)
    }

    fn read(path: &Path) -> Result<Self, SpecError> {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                Self::parse(&text).map_err(|source| SpecError::Malformed { path: path.into(), source })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(SpecError::Unreadable { path: path.into(), source }),
        }
    }

    fn apply(&mut self, environment: impl Fn(&str) -> Option<String>) -> Result<(), SpecError> {
        fn take<T>(
            environment: &impl Fn(&str) -> Option<String>,
            name: &'static str,
            place: &mut T,
            parse: impl Fn(&str) -> Result<T, String>,
        ) -> Result<(), SpecError> {
            if let Some(text) = environment(name) {
                *place = parse(&text).map_err(|why| SpecError::Environment(name, text, why))?;
            }
            Ok(())
        }
        fn plain<T: std::str::FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
            text.parse().map_err(|error: T::Err| error.to_string())
        }
        take(&environment, "ROTA_VGPU_GPUS", &mut self.gpus, plain)?;
        take(&environment, "ROTA_VGPU_MEMORY", &mut self.memory, plain)?;
        take(&environment, "ROTA_VGPU_TIME_SCALE", &mut self.time_scale, plain)?;
        take(&environment, "ROTA_VGPU_UNKNOWN_KERNELS", &mut self.unknown_kernels, |text| match text {
            "refuse" => Ok(UnknownKernels::Refuse),
            "no-op" => Ok(UnknownKernels::NoOp),
            _ => Err("neither refuse nor no-op".into()),
        })
    }

    /// Whether a machine can be made of it.
    pub fn check(&self) -> Result<(), SpecError> {
        let out_of_range = |text: String| Err(SpecError::OutOfRange(text));
        if !(1..=GPUS_MAX).contains(&self.gpus) {
            return out_of_range(format!("gpus = {}: a virtual machine has 1 to {GPUS_MAX}", self.gpus));
        }
        if self.memory.0 < self.context_memory.0 {
            return out_of_range(format!(
                "memory of {} bytes: not enough for one context, which takes {}",
                self.memory.0, self.context_memory.0
            ));
        }
        if !(1e-3..=1e3).contains(&self.time_scale) {
            return out_of_range(format!("time_scale = {}: 0.001 to 1000 are possible", self.time_scale));
        }
        let (save, load) = (self.costs.switch_save, self.costs.switch_load);
        if !(0.0..=1.0).contains(&save) || !(0.0..=1.0).contains(&load) || save + load > 1.0 {
            return out_of_range(format!(
                "switch_save = {save} and switch_load = {load}: shares of one switch"
            ));
        }
        Ok(())
    }

    /// The GPUs.
    pub fn devices(&self) -> Vec<DeviceDescription> {
        (0..self.gpus)
            .map(|ordinal| DeviceDescription {
                device: DeviceId(ordinal),
                uuid: std::array::from_fn(|at| match at {
                    0..4 => b"rota"[at],
                    4..8 => b"vgpu"[at - 4],
                    8..14 => self.identity[at - 8],
                    14 => 0,
                    _ => ordinal as u8,
                }),
                name: self.name.clone(),
                memory_bytes: self.memory.0,
                compute_capability: (9, 0),
                multiprocessors: self.multiprocessors,
                pci: (0, 0x10 + ordinal, 0),
                numa_node: ordinal * self.numa_nodes.max(1) / self.gpus,
                peers: (0..self.gpus).filter(|&other| self.reaches(ordinal, other)).map(DeviceId).collect(),
                compute_mode: self.compute_mode,
                mps: self.mps,
                confidential: self.confidential,
            })
            .collect()
    }

    fn reaches(&self, from: u32, to: u32) -> bool {
        from != to
            && match &self.peers {
                Peers::All => true,
                Peers::None => false,
                Peers::Pairs(pairs) => pairs.contains(&(from, to)) || pairs.contains(&(to, from)),
            }
    }
}

#[cfg(test)]
mod tests;
