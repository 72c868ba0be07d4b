//! Names of things that both sides talk about.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A tenant, chosen by the daemon; never reused while the daemon lives.
    TenantId(u32)
}
id! {
    /// A physical allocation, chosen by the tenant that made it; never reused in that process.
    HandleId(u64)
}
id! {
    /// A request for bytes, chosen by the tenant that asks.
    GrantId(u64)
}
id! {
    /// A copy of one of the tenant's control files, chosen by the tenant.
    FileId(u32)
}
id! {
    /// Memory that a tenant lets other processes open: random, so that only those know it who were told.
    Token(u128)
}
