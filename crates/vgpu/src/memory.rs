//! Memory of all kinds.
//!
//! - [`plain`]: `cuMemAlloc` and what belongs to it.
//! - [`space`]: addresses and physical memory apart (VMM), shared as files.
//! - [`pool`]: stream-ordered allocation.
//! - [`host`]: host memory that the device knows.
//! - [`managed`]: memory that both sides reach.
//! - [`pointer`]: what an address is.
//! - [`ipc`]: memory of other processes by name.

mod host;
mod ipc;
pub(crate) mod managed;
mod plain;
mod pointer;
mod pool;
mod space;

use cuda::types::{CUdevice, CUmemLocation, CUmemLocationType};
use vgpu_messages::memory::{Access, Location};

use crate::session::Session;

/// A place as the device knows it.
fn location(session: &Session, place: CUmemLocation) -> Location {
    match place.type_ {
        CUmemLocationType::DEVICE => match session.device(CUdevice(place.id)) {
            Ok(device) => Location::Device(device.device),
            Err(_) => Location::Other(place.type_.0, place.id),
        },
        CUmemLocationType::HOST | CUmemLocationType::HOST_NUMA | CUmemLocationType::HOST_NUMA_CURRENT => {
            Location::Host
        }
        _ => Location::Other(place.type_.0, place.id),
    }
}

/// A place as the program knows it.
fn place(session: &Session, location: Location) -> CUmemLocation {
    match location {
        Location::Device(device) => {
            CUmemLocation { type_: CUmemLocationType::DEVICE, id: session.ordinal(device).0 }
        }
        // Also if any of the host's was asked for.
        Location::Host => CUmemLocation { type_: CUmemLocationType::HOST_NUMA, id: 0 },
        Location::Other(kind, id) => CUmemLocation { type_: CUmemLocationType(kind), id },
    }
}

/// The flags of an access; None for those that are none.
fn access(flags: u32) -> Option<Access> {
    match flags {
        0 => Some(Access::None),
        1 => Some(Access::Read),
        3 => Some(Access::ReadWrite),
        _ => None,
    }
}

/// The driver's flags of an access.
fn access_flags(access: Access) -> u32 {
    match access {
        Access::None => 0,
        Access::Read => 1,
        Access::ReadWrite => 3,
    }
}
