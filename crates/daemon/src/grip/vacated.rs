//! Having the tenant's threads keep out of the driver, while that puts the tenant's context away or brings it back.

use super::{Grip, GripError};
use crate::outgoing::Outgoing;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use wire::{FromDaemon, Occupant};

/// How long a tenant's threads may take to leave the driver.
const VACATED_WITHIN: Duration = Duration::from_secs(3);

/// Why a context has to stay.
pub(super) fn occupied(by: Occupant) -> &'static str {
    match by {
        Occupant::Work => {
            "the program has given the GPU work that nobody has waited for, so some of it may be there still"
        }
        Occupant::Foreign => FOREIGN,
    }
}

/// A program has memory of others.
pub const FOREIGN: &str =
    "it has memory of other processes open, and what the driver does with such memory is not known";

impl Grip {
    /// No thread of the tenant is inside of the driver, nor will be before it may. What its context has to stay for, if anything.
    pub fn vacated(&self, number: u64, by: Option<Occupant>) {
        self.lock().vacated = (number, by);
        self.changed.notify_all();
    }

    /// Has the tenant's threads keep out of the driver, and waits until none is inside, and nothing is left that its context has to
    /// stay for. Also after a failure they keep out, until [`Grip::reenter`].
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
            if reported.vacated.0 == number {
                return reported.vacated.1.map_or(Ok(()), |by| Err(GripError::Occupied(by)));
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
