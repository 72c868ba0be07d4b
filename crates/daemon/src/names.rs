//! The same thing has a name in the core, on the wire and in the mover. Here one becomes the other.

use mover::{HandleKey, Owner};
use sched::{HandleId, Owned, TenantId};

/// The most tenants that one daemon ever numbers: as many as the core takes, which the wire's 32 bits are enough for.
pub const TENANT_NUMBER_MAX: u64 = sched::NUMBER_MAX;

/// A tenant, as the wire knows it.
pub fn on_wire(tenant: TenantId) -> wire::TenantId {
    wire::TenantId(number(tenant))
}

/// A tenant, as the mover knows it.
pub fn owner(tenant: TenantId) -> Owner {
    Owner(number(tenant))
}

/// A tenant of the mover's, as the core knows it.
pub fn tenant(owner: Owner) -> TenantId {
    TenantId(u64::from(owner.0))
}

/// A handle, as the mover knows it.
pub fn key(owned: Owned) -> HandleKey {
    HandleKey { owner: owner(owned.tenant), handle: owned.handle.0 }
}

/// A handle of the mover's, as the core knows it.
pub fn owned(key: HandleKey) -> Owned {
    Owned { tenant: tenant(key.owner), handle: HandleId(key.handle) }
}

/// Handles that a tenant named, as the core knows them.
pub fn handles(named: &[wire::HandleId]) -> Vec<HandleId> {
    named.iter().map(|handle| HandleId(handle.0)).collect()
}

fn number(tenant: TenantId) -> u32 {
    u32::try_from(tenant.0).expect("the daemon gives out numbers up to TENANT_NUMBER_MAX")
}
