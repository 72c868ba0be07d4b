//! Names of things on the virtual machine.
//!
//! Ids are never zero and never used twice in the life of one `vgpud`, so a dangling one is always recognised.

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u64);
    )*};
}

ids! {
    /// One process's session with the device.
    SessionId;
    /// A context.
    ContextId;
    /// A stream that a program made.
    StreamId;
    /// An event.
    EventId;
    /// A physical allocation (`CUmemGenericAllocationHandle`).
    HandleId;
    /// A memory pool.
    PoolId;
    /// A loaded module.
    ModuleId;
    /// An entry of a module, in its context.
    FunctionId;
    /// A graph.
    GraphId;
    /// A node of a graph, or of an executable graph: nodes keep their id when instantiated.
    NodeId;
    /// An executable graph.
    GraphExecId;
    /// One host callback that is due.
    CallbackId;
}

/// A GPU, by its ordinal on the virtual machine (before any choice by `CUDA_VISIBLE_DEVICES`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId(pub u32);

/// An address that the device understands: of device memory, or of a host range that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address(pub u64);
