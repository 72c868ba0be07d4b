//! Who is there, for `rota ps`.

use super::{Daemon, GPU};
use crate::names::on_wire;
use sched::{Described, State};
use wire::{Gpu, Listing, SCHEMA_VERSION, Tenant, TenantState};

impl Daemon {
    pub(super) fn listing(&self) -> Listing {
        let now = self.now();
        let tenants = self.known.iter().filter_map(|(&tenant, known)| {
            let described = self.core.describe(tenant, now)?;
            Some(Tenant {
                tenant: on_wire(tenant),
                pid: known.link.who.pid,
                job: known.link.who.job.clone(),
                program: known.program.clone(),
                state: state(&described),
                resident_bytes: described.resident.0,
                away_bytes: described.away.0,
                turns: described.turns,
                waiting_ns: described.waiting.0,
            })
        });
        let (arena_used, arena) = self.core.arena();
        let gpu = Gpu {
            uuid: self.setup.uuid.clone(),
            name: self.setup.name.clone(),
            capacity_bytes: self.setup.rules.capacity_bytes,
            used_bytes: self.core.gpu(GPU).map_or(0, |view| view.used.0),
            arena_bytes: arena.0,
            arena_used_bytes: arena_used.0,
            vgpu: self.setup.vgpu.clone(),
        };
        Listing { schema_version: SCHEMA_VERSION, gpus: vec![gpu], tenants: tenants.collect() }
    }
}

fn state(described: &Described) -> TenantState {
    match described.state {
        State::Queued | State::Joined => TenantState::Joined,
        State::Running => TenantState::Running,
        State::Moving => TenantState::Moving,
        State::Away => TenantState::Away,
        State::Paused if described.away.0 > 0 => TenantState::Away,
        State::Frozen | State::Paused => TenantState::Frozen,
    }
}
