//! How gently memory is moved, and registered with the driver, beside somebody latency-critical, and who writes events then.

use super::Daemon;
use sched::GpuId;

impl Daemon {
    /// Says what holds now. Registering waits for nobody's work: it keeps the driver's lock, which the first request would meet.
    pub(super) fn set_pace(&self) {
        if self.arena.is_growing() {
            self.arena.be_gentle(self.jobs.have_critical());
        }
        let mut any = false;
        for (gpu, executor) in (0..).map(GpuId).zip(&self.executors) {
            let critical = self.core.is_critical(gpu);
            executor.pace.be_gentle(critical);
            any |= critical;
        }
        self.events.write_aside(any);
    }
}
