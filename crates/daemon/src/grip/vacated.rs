//! Having the tenant's threads keep out of the driver, while that puts the tenant's context away or brings it back.

use super::{Grip, GripError};
use crate::outgoing::Outgoing;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use wire::FromDaemon;

/// How long a tenant's threads may take to leave the driver.
const VACATED_WITHIN: Duration = Duration::from_secs(3);

impl Grip {
    /// No thread of the tenant is inside of the driver, nor will be before it may.
    pub fn vacated(&self, number: u64) {
        self.lock().vacated = number;
        self.changed.notify_all();
    }

    /// Has the tenant's threads keep out of the driver, and waits until none is inside. Also after a failure they keep out, until
    /// [`Grip::reenter`].
    pub fn vacate(&self, tenant: &Outgoing) -> Result<(), GripError> {
        let deadline = Instant::now() + VACATED_WITHIN;
        let mut reported = self.lock();
        reported.vacating += 1;
        let number = reported.vacating;
        let _ = tenant.send(FromDaemon::Vacate { number });
        loop {
            if reported.gone {
                return Err(GripError::Gone);
            }
            if reported.vacated == number {
                return Ok(());
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Err(GripError::NotVacated(VACATED_WITHIN));
            };
            (reported, _) = self.changed.wait_timeout(reported, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the tenant's threads into the driver again.
    pub fn reenter(&self, tenant: &Outgoing) {
        let _ = tenant.send(FromDaemon::Reenter);
    }
}
