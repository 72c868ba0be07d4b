//! What people are told of programs that are to give up their contexts.

use super::steps::Why;
use super::{Daemon, Deep, Stay, Way};
use crate::daemon::jobs::Job;
use sched::{Hindrance, TenantId};
use wire::{NotBack, NotDeep};

impl Daemon {
    /// What to tell of a tenant of a paused job.
    pub(in crate::daemon) fn deep_words(&self, tenant: TenantId, job: &Job) -> Option<String> {
        let waits = || {
            let why = self.core.hinders_deep(tenant).filter(|_| job.deep && job.paused)?;
            Some(format!("its context stays on the GPU for now: {}", words(why)))
        };
        if self.not_back(tenant) == Some(NotBack::NoRoom) {
            return Some("it has nothing on the GPU, and waits until there is room for its context".into());
        }
        self.deep.said_of(tenant).or_else(waits)
    }
}

impl Daemon {
    /// Why somebody is not back whose job goes on.
    pub(in crate::daemon) fn not_back(&self, tenant: TenantId) -> Option<NotBack> {
        let stay = self.deep.stays.get(&tenant)?;
        self.jobs.of(tenant).filter(|job| self.deep.resuming.contains(job))?;
        match stay {
            Stay::Out { failed: None, .. } => Some(NotBack::NoRoom),
            Stay::Out { .. } | Stay::Unsure(_) => Some(NotBack::Failed),
            Stay::Going(_) | Stay::Refused(_) => None,
        }
    }

    /// Why the context of somebody is on the GPU still whose job is to give up its contexts.
    pub(in crate::daemon) fn not_deep(&self, tenant: TenantId) -> Option<NotDeep> {
        let job = self.jobs.of(tenant).and_then(|job| self.jobs.get(job))?;
        if !(job.deep && job.paused) {
            return None;
        }
        match self.deep.stays.get(&tenant) {
            Some(Stay::Out { .. }) => None,
            Some(Stay::Refused(why)) => Some(why.short),
            Some(Stay::Unsure(_)) => Some(NotDeep::Unknown),
            Some(Stay::Going(_)) => Some(NotDeep::Yet),
            None => match self.core.hinders_deep(tenant) {
                Some(Hindrance::NoContext) => None,
                Some(Hindrance::Reserved) => Some(NotDeep::Reserved),
                _ => Some(NotDeep::Yet),
            },
        }
    }
}

impl Deep {
    fn said_of(&self, tenant: TenantId) -> Option<String> {
        match self.stays.get(&tenant)? {
            Stay::Going(Way::Out) => Some("what is left of it on the GPU is being put away".into()),
            Stay::Going(Way::In) => Some("it is being brought back".into()),
            Stay::Out { failed: Some((_, why)), .. } => {
                Some(format!("it cannot be brought back, which is tried again: {why}"))
            }
            Stay::Out { .. } => Some(
                "it has nothing on the GPU; its calls of the driver wait until it is resumed, also those by which it would end"
                    .into(),
            ),
            Stay::Unsure(why) => Some(format!("what is on the GPU of it is not known: {why}")),
            Stay::Refused(Why { full, .. }) => {
                Some(format!("its context stays on the GPU: {full}; not tried again before it is resumed"))
            }
        }
    }
}

/// Why somebody's context stays.
pub(super) fn words(why: Hindrance) -> String {
    match why {
        Hindrance::NoContext => "it has none there yet".into(),
        Hindrance::Shared(bytes) => format!(
            "{bytes} of its memory cannot leave it, as other processes or devices may use them; what the driver \
             does with such memory is not known"
        ),
        Hindrance::Reserved => "its memory is reserved, and does not leave it".into(),
        Hindrance::NotOff => "it is still to be frozen".into(),
        Hindrance::Moving => "its memory is on its way".into(),
        Hindrance::Granted(bytes) => format!("it was promised {bytes} that it has not used yet"),
        Hindrance::Stuck(bytes) => {
            format!("{bytes} of its memory could not be moved out, which is tried again")
        }
        Hindrance::InLine(bytes) => {
            format!("{bytes} of its memory wait to be moved out, for other moves or for a place in the arena")
        }
        Hindrance::Untold => "whether all of its memory can move is not known yet".into(),
    }
}
