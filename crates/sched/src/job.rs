//! Jobs and users: whose terms hold for a tenant.

use crate::Bytes;
use crate::{Class, GpuId, JobId, TenantId, Terms};
use std::collections::{BTreeMap, BTreeSet};

/// How far the members of a gang have come together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Gang {
    /// Each by itself, all frozen or on their way to it.
    #[default]
    Apart,
    /// It holds some of its GPUs and waits for the next one, in the order of GPUs.
    Gathering,
    /// It holds all its GPUs: its members run together.
    Together,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    pub(crate) terms: Terms,
    /// The class that holds: the highest among those who share memory with it.
    pub(crate) class: Class,
    pub(crate) paused: bool,
    pub(crate) members: BTreeSet<TenantId>,
    /// Jobs whose tenants share memory with this one's.
    pub(crate) linked: BTreeSet<JobId>,
    pub(crate) gang: Gang,
    /// The GPUs it holds as a gang, in order.
    pub(crate) holds: Vec<GpuId>,
    /// What it is on each GPU where it is.
    pub(crate) here: BTreeMap<GpuId, JobHere>,
}

/// A job as one GPU sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct JobHere {
    /// Best-effort tenants of it that want turns.
    pub(crate) active: u32,
    /// All its tenants have here, contexts included.
    pub(crate) bytes: Bytes,
    /// How many contexts that is.
    pub(crate) contexts: u32,
}

impl Job {
    pub(crate) fn here(&self, gpu: GpuId) -> JobHere {
        self.here.get(&gpu).copied().unwrap_or_default()
    }

    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            class: terms.class,
            terms,
            paused: false,
            members: BTreeSet::new(),
            linked: BTreeSet::new(),
            gang: Gang::Apart,
            holds: Vec::new(),
            here: BTreeMap::new(),
        }
    }
}
