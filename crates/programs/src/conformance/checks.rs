//! The checks, one file a family.

mod capture;
mod context;
mod copies;
mod device;
mod during_capture;
mod errors;
mod events;
mod fork;
mod graphs;
mod host;
mod init;
mod kernels;
mod launch;
mod mapping;
mod memory;
mod memset;
mod modules;
mod order;
mod pointers;
mod pools;
mod procaddress;
mod sharing;
mod sticky;
mod streams;
mod vmm;

pub(super) use sharing::in_child;

use super::{Check, Family, alone, bare, check};

macro_rules! families {
    ($($family:ident),* $(,)?) => {
        /// Every family, in the order in which they run.
        pub(crate) const FAMILIES: &[Family] =
            &[$(Family { name: stringify!($family), checks: $family::CHECKS }),*];
    };
}

families! {
    init, device, errors, procaddress, context, memory, pointers, copies, memset, host, vmm, mapping, sharing, pools, streams, order,
    events, modules, launch, kernels, graphs, capture, during_capture, sticky, fork,
}
