//! The whole daemon without a GPU: the main loop, the executor, the mover and real sockets, with a device in plain
//! memory, a stand-in for the resource manager, and tenants that check every byte of their memory in every turn.
//!
//! - `world`: a daemon for one test, and what can be seen of it from outside.
//! - `engine`: what the control files lead to. It runs a tenant's kernels, or does not.
//! - `tenant`: a program as the daemon sees it; `process`: the same in a process of its own, to be killed.
//!
//! Nothing here waits for a fixed time: whatever is awaited is looked for until [`world::PATIENCE`] is over.

mod engine;
mod process;
mod tenant;
mod world;

mod checkpoints;
mod contexts;
mod deaths;
mod deep;
mod documented;
mod door;
mod flood;
mod frees;
mod growth;
mod jobs;
mod lateness;
mod lies;
mod mustering;
mod numbers;
mod oversize;
mod passing;
mod pins;
mod publications;
mod refusals;
mod rejoining;
mod requests;
mod reserve;
mod sharing;
mod sights;
mod statistics;
mod stopping;
mod strangers;
mod unshown;
