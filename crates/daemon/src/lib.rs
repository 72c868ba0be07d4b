//! `rotad`: shares GPUs among the programs that come to its socket.
//!
//! ```text
//!  conversation (a thread per program) ──> daemon (main loop) ── Event ──> sched (pure core)
//!        │ channels, files                      │    ▲                         │
//!        │                                      │    └────────── Action ───────┘
//!        │                                      ├──> executor: switching (a thread a GPU: freeze, thaw, slices)
//!        └────────── grip <─────────────────────┴──> executor: memory (a thread a GPU: move, adopt, forget) ──> mover
//! ```
//!
//! Only the core decides, only [`executor`] touches the GPU, only [`conversation`] listens to programs.

pub mod arbiter;
pub mod checkpoints;
pub mod config;
pub mod conversation;
pub mod daemon;
pub mod events;
pub mod executable;
pub mod executor;
pub mod fitness;
pub mod grip;
pub mod handover;
pub mod machine;
pub mod names;
pub mod outgoing;
pub mod reasons;
pub mod resource_manager;
pub mod self_test;
pub mod standby;
pub mod virtual_machine;
