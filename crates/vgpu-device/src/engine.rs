//! The engines of one GPU, paced by the device's clock: compute, and the bus each way.
//!
//! An engine is told of work, of freezes and slices; it says when something happens by itself ([`compute::Compute::next`])
//! and is carried to that instant, never past it. It knows nothing of streams, only of items that are ready.

pub mod bus;
pub mod compute;

use vgpu_messages::ContextId;

use crate::item::ItemId;
use crate::space::touch::Fault;

/// A channel group, by its RM client and handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// The client.
    pub client: u32,
    /// The group.
    pub handle: u32,
}

/// What came of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub item: ItemId,
    /// Of which context.
    pub context: ContextId,
    /// How.
    pub result: Result<(), Fault>,
}
