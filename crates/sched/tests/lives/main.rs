//! Lives of a core in a world that knows the truth.
//!
//! - [`properties`]: random ones. [`matrix`]: ones in which every event comes in every state.

extern crate rota_sched as sched;

mod matrix;
mod properties;
#[path = "../world/mod.rs"]
mod world;
