//! Faults that were asked for, and how far they are counted.

use vgpu_messages::DeviceId;
use vgpu_messages::spec::Faults;

use crate::rm::{Called, Effect};

/// Faults in force.
#[derive(Debug)]
pub(crate) struct FaultState {
    faults: Faults,
    allocations: u64,
    copies: u64,
    controls: u64,
}

impl FaultState {
    /// Nothing is counted yet.
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, allocations: 0, copies: 0, controls: 0 }
    }

    fn concern(&self, pid: i32) -> bool {
        self.faults.pids.is_empty() || self.faults.pids.contains(&pid)
    }

    /// One more allocation: does it find no memory?
    pub(crate) fn allocation_fails(&mut self, pid: i32) -> bool {
        let Some(at) = self.faults.out_of_memory_at else { return false };
        if !self.concern(pid) {
            return false;
        }
        self.allocations += 1;
        self.allocations == at || self.faults.out_of_memory_stays && self.allocations > at
    }

    /// One more copy: how much longer does it take, and does it fail?
    pub(crate) fn copy(&mut self, pid: i32) -> (f64, bool) {
        if !self.concern(pid) {
            return (1.0, false);
        }
        let Some(fault) = &self.faults.copy else { return (1.0, false) };
        self.copies += 1;
        (fault.slower, fault.fails_at == Some(self.copies))
    }

    /// Does a kernel of this name never end?
    pub(crate) fn is_stuck(&self, pid: i32, kernel: &str) -> bool {
        self.concern(pid) && self.faults.stuck_kernel.as_deref() == Some(kernel)
    }

    /// Is this GPU lost?
    pub(crate) fn is_lost(&self, device: DeviceId, pid: i32) -> bool {
        self.concern(pid) && self.faults.lost_devices.contains(&device.0)
    }

    /// One more RM call: what goes wrong with it?
    pub(crate) fn control(&mut self, pid: i32, called: &mut Called, argument: &mut [u8]) {
        if !self.concern(pid) {
            return;
        }
        let Some(fault) = &self.faults.control else { return };
        if let Some(grip) = &called.grip
            && (grip.off && fault.freeze_does_nothing || !grip.off && fault.thaw_does_nothing)
        {
            called.grip = None;
        }
        if fault.slice_does_nothing {
            called.effects.retain(|effect| !matches!(effect, Effect::Slice { .. }));
        }
        self.controls += 1;
        if let Some(takes) = fault.takes
            && self.controls.is_multiple_of(fault.takes_every.max(1))
        {
            called.takes += takes;
        }
        if let Some(status) = fault.status
            && argument.len() == channels::rm::CONTROL_BYTES
        {
            argument[28..32].copy_from_slice(&status.to_le_bytes());
            called.grip = None;
            called.effects.clear();
        }
    }
}
