//! Jobs: the tenants of one user that gave the same name.

use sched::{JobId, TenantId};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    numbers: BTreeMap<(u32, String), JobId>,
    members: BTreeMap<JobId, BTreeSet<TenantId>>,
    given_out: u64,
}

impl Jobs {
    /// A tenant comes. Says which job it is of, and whether that begins with it.
    pub(super) fn join(&mut self, uid: u32, name: &str, tenant: TenantId) -> (JobId, bool) {
        let key = (uid, name.to_owned());
        let known = self.numbers.get(&key).copied();
        let job = known.unwrap_or_else(|| {
            self.given_out += 1;
            self.numbers.insert(key, JobId(self.given_out));
            JobId(self.given_out)
        });
        self.members.entry(job).or_default().insert(tenant);
        (job, known.is_none())
    }

    /// A tenant goes. Says which job is over with it, if one is.
    pub(super) fn leave(&mut self, tenant: TenantId) -> Option<JobId> {
        let (&job, members) = self.members.iter_mut().find(|(_, members)| members.contains(&tenant))?;
        members.remove(&tenant);
        if !members.is_empty() {
            return None;
        }
        self.members.remove(&job);
        self.numbers.retain(|_, &mut number| number != job);
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_begins_with_its_first_tenant_and_ends_with_its_last() {
        let mut jobs = Jobs::default();
        assert_eq!(jobs.join(1000, "a", TenantId(1)), (JobId(1), true));
        assert_eq!(jobs.join(1000, "a", TenantId(2)), (JobId(1), false));
        assert_eq!(jobs.join(1001, "a", TenantId(3)), (JobId(2), true), "another user's");
        assert_eq!(jobs.leave(TenantId(1)), None);
        assert_eq!(jobs.leave(TenantId(2)), Some(JobId(1)));
        assert_eq!(jobs.leave(TenantId(2)), None);
        assert_eq!(jobs.join(1000, "a", TenantId(4)), (JobId(3), true), "a number is never used twice");
    }
}
