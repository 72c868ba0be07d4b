//! What devices are doing: memory, load, processes, power, energy, errors.

use std::ffi::c_uint;
use std::time::{SystemTime, UNIX_EPOCH};

use nvml::version;
use vgpu_messages::figures::{Figures, ProcessFigures};

use crate::session::figures;
use crate::types::{
    Device, Memory, MemoryV2, Out, Outcome, Process, ProcessSample, ProcessV1, Return, Utilization, nvml,
};

fn free_bytes(figures: &Figures) -> u64 {
    figures.memory_total_bytes.saturating_sub(figures.memory_used_bytes)
}

/// Fills a list as long as the program says; tells how long it should have been.
fn give<T>(
    device: Device,
    count: Out<c_uint>,
    places: Out<T>,
    one: impl Fn(&ProcessFigures) -> T,
) -> Outcome {
    let processes = figures(device)?.processes;
    let room = count.get()?;
    count.set(processes.len() as c_uint)?;
    if (room as usize) < processes.len() {
        return Err(Return::INSUFFICIENT_SIZE);
    }
    places.set_all(processes.iter().map(one))
}

fn listed(one: &ProcessFigures) -> Process {
    Process {
        pid: one.pid as c_uint,
        memory: one.memory_bytes,
        gpu_instance: c_uint::MAX,
        compute_instance: c_uint::MAX,
    }
}

nvml! {
    nvmlDeviceGetMemoryInfo(device: Device, info: Out<Memory>) {
        let figures = figures(device)?;
        let (total, used) = (figures.memory_total_bytes, figures.memory_used_bytes);
        info.set(Memory { total, free: free_bytes(&figures), used })
    }

    nvmlDeviceGetMemoryInfo_v2(device: Device, info: Out<MemoryV2>) {
        let version = version::<MemoryV2>(2);
        if info.get()?.version != version {
            return Err(Return::ARGUMENT_VERSION_MISMATCH);
        }
        let figures = figures(device)?;
        let (total, used) = (figures.memory_total_bytes, figures.memory_used_bytes);
        info.set(MemoryV2 { version, total, reserved: 0, free: free_bytes(&figures), used })
    }

    nvmlDeviceGetUtilizationRates(device: Device, rates: Out<Utilization>) {
        let figures = figures(device)?;
        rates.set(Utilization { gpu: figures.compute_busy_percent, memory: figures.copy_busy_percent })
    }

    nvmlDeviceGetComputeRunningProcesses(device: Device, count: Out<c_uint>, processes: Out<ProcessV1>) {
        give(device, count, processes, |one| ProcessV1 { pid: one.pid as c_uint, memory: one.memory_bytes })
    }

    nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3(
        device: Device,
        count: Out<c_uint>,
        processes: Out<Process>,
    ) {
        give(device, count, processes, listed)
    }

    nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDeviceGetMPSComputeRunningProcesses_v3(
        device: Device,
        count: Out<c_uint>,
        processes: Out<Process>,
    ) {
        if !crate::session::device(device)?.mps {
            figures(device)?;
            return count.set(0);
        }
        give(device, count, processes, listed)
    }

    nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3(
        device: Device,
        count: Out<c_uint>,
        _processes: Out<Process>,
    ) {
        figures(device)?;
        count.set(0)
    }

    nvmlDeviceGetProcessUtilization(
        device: Device,
        samples: Out<ProcessSample>,
        count: Out<c_uint>,
        _since: u64,
    ) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        give(device, count, samples, |one| ProcessSample {
            pid: one.pid as c_uint,
            time: now,
            compute: one.compute_busy_percent,
            memory: 0,
            encoder: 0,
            decoder: 0,
        })
    }

    nvmlDeviceGetPowerUsage(device: Device, milliwatts: Out<c_uint>) {
        milliwatts.set(figures(device)?.power_milliwatts)
    }

    nvmlDeviceGetTotalEnergyConsumption(device: Device, millijoules: Out<u64>) {
        millijoules.set(figures(device)?.energy_millijoules)
    }

    nvmlDeviceGetTemperature(device: Device, sensor: c_uint, degrees: Out<c_uint>) {
        if sensor != 0 {
            return Err(Return::INVALID_ARGUMENT);
        }
        degrees.set(figures(device)?.temperature)
    }

    nvmlDeviceGetTotalEccErrors(device: Device, _kind: c_uint, _counter: c_uint, errors: Out<u64>) {
        // Memory of the virtual GPU has none.
        figures(device)?;
        errors.set(0)
    }

    nvmlDeviceGetEccMode(device: Device, current: Out<c_uint>, pending: Out<c_uint>) {
        figures(device)?;
        current.set(1)?;
        pending.set(1)
    }
}
