//! `rotad`: shares one GPU among the programs that come to its socket.
//!
//! ```text
//!  conversation (a thread per program) ──> daemon (main loop) ── Event ──> turns (pure core)
//!        │ channels, files                      │    ▲                         │
//!        ▼                                      ▼    └────────── Action ───────┘
//!      grip (freeze, thaw) <────────────── executor (a thread: freeze, move, thaw) ──> mover
//! ```
//!
//! Only [`turns`] decides, only [`executor`] touches the GPU, only [`conversation`] listens to programs.

pub mod arbiter;
pub mod config;
pub mod conversation;
pub mod daemon;
pub mod events;
pub mod executor;
pub mod grip;
pub mod outgoing;
pub mod quantity;
pub mod resource_manager;
pub mod self_test;
pub mod turns;
