//! Names of things. They are given out by whoever drives the core; the core never makes one up, except for [`OpId`].

use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($number:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// A GPU, in the order in which gangs take them.
    GpuId(u16);
    /// Who owns jobs.
    UserId(u32);
    /// The process tree of one `rota run`. Counted up from small numbers, never used twice.
    JobId(u64);
    /// One process on one GPU. A process that uses several GPUs is several tenants of one gang. Counted up from small
    /// numbers, never used twice.
    TenantId(u64);
    /// A physical allocation of a tenant, by the tenant's own count.
    HandleId(u64);
    /// A tenant's request for memory, by the tenant's own count.
    RequestId(u64);
    /// A question where to go.
    TicketId(u64);
    /// An action that ends in a completion. Given out by the core, never used twice.
    OpId(u64);
}

/// A handle of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owned {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub handle: HandleId,
}
