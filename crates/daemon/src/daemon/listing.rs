//! Who is there, for `rota ps`.

use super::Daemon;
use super::toll::SHOWN_MAX;
use crate::config::TENANTS_MAX;
use crate::names::on_wire;
use sched::{Described, GpuId, Outlook, Span, State, TenantId};
use std::collections::BTreeMap;
use wire::{Gpu, Listing, SCHEMA_VERSION, Tenant, TenantState};

/// So far is looked ahead for a list: turns wait for it meanwhile.
const AHEAD_STEPS_MAX: usize = 1_000;

impl Daemon {
    pub(super) fn listing(&self) -> Listing {
        self.listing_with(&self.outlook())
    }

    /// The same, where nobody asks what those who wait may expect.
    pub(super) fn bare_listing(&self) -> Listing {
        self.listing_with(&BTreeMap::new())
    }

    fn listing_with(&self, outlook: &BTreeMap<TenantId, Outlook>) -> Listing {
        let now = self.now();
        let place = |id: &TenantId| outlook.get(id).and_then(|outlook| outlook.place);
        let places = |id: &TenantId| outlook.get(id).map(|outlook| outlook.of);
        let forecast_ns = |id: &TenantId, waited: Span| {
            let forecast = outlook.get(id).and_then(|outlook| outlook.forecast);
            self.promises.worth_saying(*id, now, waited, forecast).map(|span| span.0)
        };
        let tenants = self.known.iter().filter_map(|(&tenant, known)| {
            let described = self.core.describe(tenant, now)?;
            Some(Tenant {
                tenant: on_wire(tenant),
                pid: known.link.who.pid,
                gpu: self.gpu(known.gpu).uuid.clone(),
                job: known.link.who.job.clone(),
                program: known.program.clone(),
                state: state(&described),
                resident_bytes: described.resident.0,
                away_bytes: described.away.0,
                turns: described.turns,
                waiting_ns: described.waiting.0,
                place: place(&tenant),
                places: places(&tenant),
                forecast_ns: forecast_ns(&tenant, described.waiting),
                host_bytes: described.host.0,
                hints: self.hints_of(tenant, &described),
                statistics: self.statistics_of(tenant).filter(|_| self.known.len() <= SHOWN_MAX),
                reserved: described.reserved,
                not_back: self.not_back(tenant),
                not_deep: self.not_deep(tenant),
            })
        });
        let at_door = self.arriving.iter().filter_map(|(&tenant, arriving)| {
            let described = self.core.describe(tenant, now)?;
            Some(Tenant {
                tenant: on_wire(tenant),
                pid: arriving.pid(),
                gpu: self.gpu(arriving.gpu()).uuid.clone(),
                job: arriving.job().into(),
                program: arriving.program().into(),
                state: state(&described),
                resident_bytes: 0,
                away_bytes: 0,
                turns: 0,
                waiting_ns: described.waiting.0,
                place: place(&tenant),
                places: places(&tenant),
                forecast_ns: forecast_ns(&tenant, described.waiting),
                host_bytes: 0,
                hints: None,
                statistics: None,
                reserved: described.reserved,
                not_back: None,
                not_deep: None,
            })
        });
        // As many as may come fit into one message; the rest of those at the door are not shown.
        let tenants = tenants.chain(at_door).take(TENANTS_MAX as usize).collect();
        Listing {
            schema_version: SCHEMA_VERSION,
            gpus: self.listed_gpus(),
            tenants,
            unmanaged: self.unmanaged(),
        }
    }

    /// What everybody who waits may expect: one look ahead for each GPU.
    pub(super) fn outlook(&self) -> BTreeMap<TenantId, Outlook> {
        let now = self.now();
        self.gpus().flat_map(|(gpu, _)| self.core.outlook(gpu, now, AHEAD_STEPS_MAX)).collect()
    }

    pub(super) fn listed_gpus(&self) -> Vec<Gpu> {
        self.gpus().map(|(number, _)| self.listed_gpu(number)).collect()
    }

    pub(super) fn listed_gpu(&self, number: GpuId) -> Gpu {
        let gpu = self.gpu(number);
        let (arena_used, arena) = self.core.arena();
        Gpu {
            uuid: gpu.uuid.clone(),
            name: gpu.name.clone(),
            capacity_bytes: gpu.capacity_bytes,
            used_bytes: self.core.gpu(number).map_or(0, |view| view.used.0),
            arena_bytes: arena.0,
            arena_used_bytes: arena_used.0,
            arena_clean_bytes: self.arena.kept_bytes(),
            vgpu: self.setup.vgpu.clone(),
            lc_mode_for_ns: self.lc_modes.of(number, self.now()).on_for_ns,
        }
    }
}

pub(super) fn state(described: &Described) -> TenantState {
    match described.state {
        State::Queued => TenantState::Queued,
        State::Joined => TenantState::Joined,
        State::Running => TenantState::Running,
        State::Moving => TenantState::Moving,
        State::Away => TenantState::Away,
        State::Paused => TenantState::Paused,
        State::Frozen => TenantState::Frozen,
    }
}
