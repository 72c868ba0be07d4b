//! Programs that an earlier worker was about to put away, had put away, or was about to bring back: they say so when they come
//! back, as their threads keep out of the driver since.

use super::{Daemon, Stay, Told, Way, steps};
use crate::checkpoints::Standing;
use sched::{Event, TenantId};

impl Daemon {
    /// Such a one is here. Nobody knows how it stands, so nothing may be asked of it: its job is paused, and goes on when all of it
    /// is back, unless people have paused it.
    pub(in crate::daemon) fn find_deep(&mut self, tenant: TenantId) {
        let Some(job) = self.jobs.of(tenant) else { return };
        if self.setup.checkpoints.is_none() {
            let why = "there is no driver that could say how it stands".to_owned();
            self.deep.stays.insert(tenant, Stay::Unsure(why));
        }
        self.on_a_thread(tenant, Way::Out, true, steps::find);
        if !self.jobs.get(job).is_some_and(|job| job.paused) {
            self.step(Event::Pause(job));
            self.resume_when_back(job);
        }
    }

    pub(super) fn is_found(&mut self, told: Told) {
        let Told { tenant, became, took, steps, .. } = told;
        let paused = self.jobs.of(tenant).filter(|&job| self.jobs.get(job).is_some_and(|job| job.paused));
        if let Some(job) = paused {
            // It was to give up its context, or had.
            self.set_deep(job, true);
        }
        match became {
            // That one has not begun, or was done.
            Ok(Standing::Running) => self.is_back(tenant),
            Ok(Standing::Out) => {
                let mut fields = self.put_away(tenant, took, &steps);
                fields["found"] = true.into();
                self.note("deep", tenant, fields);
            }
            Ok(Standing::Locked) if paused.is_some() => self.go(tenant, Way::Out),
            Ok(Standing::Locked | Standing::Failed) => {
                self.is_unsure(tenant, "an earlier worker has left it in the middle".into());
            }
            Err(failure) => self.is_unsure(tenant, failure.why()),
        }
    }
}
