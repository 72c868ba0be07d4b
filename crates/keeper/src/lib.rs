//! The keeper: the process that holds the arena's memory and the index of what is away in it, and does nothing else.
//!
//! The worker (all of CUDA, all decisions) may be killed at any instant. What it had moved out is still here: the
//! memory, because the keeper holds its memfds, and the knowledge of whose it is, because every step was recorded here
//! before the next one was taken. The next worker connects, maps the same memory and asks what was recorded.
//!
//! - [`message`]: what worker and keeper say to each other; [`names`]: what things are called in it.
//! - [`index`]: what is where. Pure: no file, no clock, no thread. [`space`]: which parts of the arena are free; [`zeros`]:
//!   blocks that need none of it.
//! - [`part`]: the arena as it is asked for; [`segment`]: the memory, piece by piece; `preparation` makes it ready in the
//!   background, if `host_memory` has room.
//! - `kept_cellar`: what another worker needs to go on with the cellar, besides the tickets in the index.
//! - [`keeper`]: requests become changes of the index; [`server`] reads them off the socket.
//! - [`trust`]: which users' processes may be workers and keepers.
//! - [`process`]: a process that is a keeper, as `rota-keeper` is.
//! - [`client`]: the worker's side. [`in_process`]: a keeper without a process of its own.
//!
//! ## The order that keeps every byte
//! 1. *Out*: revoke the tenant's page and freeze it, reserve, copy, **record out**, and only then ask the tenant to unmap.
//!    Until it is recorded, the device's bytes are the valid ones, and a reservation whose worker is gone is dropped. What
//!    the tenant wrote after its copy would be lost by recording it: so it is frozen before, and its page, which no
//!    worker's death changes, tells it that it may not go on.
//! 2. *In*: have the tenant create memory, copy, **record in**, and only then commit the tenant's page and thaw it. Until it
//!    is recorded the arena's bytes are the valid ones, whatever lies on the device; once the tenant runs, they are old.
//!    A worker that dies in between leaves a frozen tenant whose bytes are on the device: the next one commits.
//!
//! 3. *To the cellar*: put all blocks, **keep their tickets**, **sink**, and only then use the arena space for others. *Back*:
//!    reserve, fetch all blocks, **rise**, and only then discard the blocks.
//!
//! So the keeper's word decides: what is away is in the arena, or in the cellar, everything else is on the device.
//!
//! ## It must not end by accident
//! With it every byte that is away is lost. So no signal ends it while something is away, nobody has to read its log, the
//! arena is no larger than the host's memory, and there is no CUDA in it, one thread that changes anything, no `unwrap`, no
//! index and no plain arithmetic on what comes from outside (denied below), and a bound on everything it stores: an
//! entry of the index has at least a block of the arena, or a ticket, and of both there are only so many.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

pub mod client;
mod host_memory;
pub mod in_process;
pub mod index;
pub mod keeper;
mod kept_cellar;
pub mod message;
pub mod names;
pub mod part;
mod preparation;
pub mod process;
pub mod segment;
pub mod server;
pub mod space;
pub mod trust;
pub mod zeros;

pub use client::{Client, ClientError, Patience, View, ViewError};
pub use host_memory::{HostMemoryError, check_fits, usual_arena_bytes};
pub use in_process::{InProcess, InProcessError};
pub use keeper::{Keeper, KeeperError};
pub use message::{
    Answer, BlockFact, End, Extent, In, Lack, Out, Outcome, Place, Progress, Recorded, Refusal, Request,
    Reservation, Wanted, Welcome,
};
pub use names::{HandleKey, HashSeed, Node, Process, TenantNumber};
pub use part::{Part, PartError};
pub use server::Server;

/// The unit of arena space: sizes of handles are multiples of it.
pub const BLOCK_BYTES: u64 = wire::BLOCK_BYTES;

/// The step in which memory is made ready and handed over. A device registers it in steps of this size, because larger
/// ones hold the driver's lock for too long.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// The most segments an arena may have: 4 TiB. Each is an open file here.
pub const SEGMENTS_MAX: u32 = 1 << 16;
