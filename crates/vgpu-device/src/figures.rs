//! What NVML tells of a GPU.

use cuda::CUresult;
use vgpu_messages::figures::{Figures, ProcessFigures};
use vgpu_messages::quantity::Nanos;
use vgpu_messages::{Answer, DeviceId};

use crate::machine::{Handled, Machine};

/// The window of utilisation.
const WINDOW: Nanos = Nanos(1_000_000_000);
/// The most errors that are kept.
const ERRORS_MAX: usize = 64;

/// Measures one GPU as time passes.
#[derive(Debug)]
pub(crate) struct Meter {
    power_milliwatts: (u32, u32),
    window: Nanos,
    compute_at_window: Nanos,
    copies_at_window: Nanos,
    compute: Nanos,
    copies: Nanos,
    now: Nanos,
    percent: (u32, u32),
    errors: Vec<u32>,
}

impl Meter {
    pub(crate) fn new(power_milliwatts: (u32, u32)) -> Self {
        Self {
            power_milliwatts,
            window: Nanos::ZERO,
            compute_at_window: Nanos::ZERO,
            copies_at_window: Nanos::ZERO,
            compute: Nanos::ZERO,
            copies: Nanos::ZERO,
            now: Nanos::ZERO,
            percent: (0, 0),
            errors: Vec::new(),
        }
    }

    /// It is `now`, and so much time was spent with kernels and with copies in all.
    pub(crate) fn pass(&mut self, now: Nanos, compute: Nanos, copies: Nanos) {
        (self.now, self.compute, self.copies) = (now, compute, copies);
        let length = now.since(self.window);
        if length >= WINDOW {
            let percent = |from: Nanos, to: Nanos| (to.since(from).0 * 100 / length.0.max(1)).min(100) as u32;
            self.percent = (percent(self.compute_at_window, compute), percent(self.copies_at_window, copies));
            (self.window, self.compute_at_window, self.copies_at_window) = (now, compute, copies);
        }
    }

    /// A context ended by an error.
    pub(crate) fn error(&mut self, xid: u32) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(xid);
        }
    }

    /// Milliwatts now, and millijoules so far.
    fn power(&self) -> (u32, u64) {
        let (idle, busy) = self.power_milliwatts;
        let more = u64::from(busy.saturating_sub(idle));
        let now = idle + (more * u64::from(self.percent.0) / 100) as u32;
        let joules =
            |power: u64, time: Nanos| (u128::from(power) * u128::from(time.0) / 1_000_000_000) as u64;
        (now, joules(u64::from(idle), self.now) + joules(more, self.compute))
    }
}

impl Machine {
    pub(crate) fn figures(&self, device: DeviceId) -> Handled {
        let gpu = self.gpus.get(device.0 as usize).ok_or(CUresult::INVALID_DEVICE)?;
        let (used, total) = self.store.physical.used(device);
        let (power_milliwatts, energy_millijoules) = gpu.meter.power();
        let mut processes: Vec<ProcessFigures> = Vec::new();
        for (id, session) in &self.sessions {
            let own = || self.contexts.values().filter(|it| it.session == *id && it.device == device);
            let contexts = own().filter(|it| !it.out).count() as u64;
            let memory = self.store.physical.owned(device, *id) + contexts * self.spec.context_memory.0;
            if contexts == 0 && memory == 0 {
                continue;
            }
            let busy: u64 = own().map(|it| gpu.compute.busy(Some(it.compute)).0).sum();
            let share = busy * 100 / gpu.compute.busy(None).0.max(1);
            let compute_busy_percent = (share * u64::from(gpu.meter.percent.0) / 100) as u32;
            processes.push(ProcessFigures { pid: session.pid, memory_bytes: memory, compute_busy_percent });
        }
        let figures = Figures {
            memory_total_bytes: total,
            memory_used_bytes: used,
            compute_busy_percent: gpu.meter.percent.0,
            copy_busy_percent: gpu.meter.percent.1,
            processes,
            power_milliwatts,
            energy_millijoules,
            errors: gpu.meter.errors.clone(),
            lost: self.faults.is_lost(device, 0),
            temperature: 35 + gpu.meter.percent.0 / 4,
        };
        Ok(Answer::Figures(figures).into())
    }
}
