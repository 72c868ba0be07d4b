//! Freezing without the driver: the tenant holds its launches back, and says when what it launched before is over. Kernels
//! that take longer than that may are not interrupted: then the tenant stays thawed, and it is tried again later.

use super::{Grip, GripError};
use crate::outgoing::Outgoing;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use wire::FromDaemon;

/// How long a tenant's work may take to end.
const DRAINED_WITHIN: Duration = Duration::from_secs(2);

impl Grip {
    /// The tenant has nothing on the GPU, and lets nothing on before its thaw.
    pub fn drained(&self, generation: u64) {
        self.lock().drained = generation;
        self.changed.notify_all();
    }

    /// Has the tenant hold its launches back, and waits until nothing is left of those before. Returns how many channels it
    /// has. A failure leaves the tenant thawed.
    pub(super) fn drain(&self, tenant: &Outgoing) -> Result<usize, GripError> {
        let deadline = Instant::now() + DRAINED_WITHIN;
        self.page.set_frozen(true);
        let generation = self.page.freeze_generation();
        let _ = tenant.send(FromDaemon::Drain { generation });
        let mut reported = self.lock();
        loop {
            let left = deadline.checked_duration_since(Instant::now());
            let failed = match left {
                _ if reported.gone => GripError::Gone,
                _ if reported.drained == generation => return Ok(reported.channels()),
                Some(left) => {
                    let waited = self.changed.wait_timeout(reported, left);
                    (reported, _) = waited.unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                None => GripError::NotDrained(DRAINED_WITHIN),
            };
            drop(reported);
            self.page.set_frozen(false);
            self.page.wake_held();
            return Err(failed);
        }
    }

    /// Lets the tenant's launches go on.
    pub(super) fn release(&self) -> Result<usize, GripError> {
        let reported = self.lock();
        if reported.gone {
            return Err(GripError::Gone);
        }
        self.page.set_frozen(false);
        self.page.wake_held();
        Ok(reported.channels())
    }
}
