//! Stream-ordered memory: `cuMemAllocAsync`, `cuMemFreeAsync` and the pools they are from.
//!
//! The program's pools are the driver's, as names; the memory is rota's, out of the same heap as all other, so it moves. The
//! driver's pools stay empty but for what rota leaves to it: memory of graphs (allocations and frees while a stream is
//! captured), pools that are shared with other processes or devices, and everything with `ROTA_POOLS=native`. That memory
//! does not move.
//!
//! - [`reuse`]: who may have memory next that was freed in a stream; pure.
//! - [`accounts`]: what the program is told about its pools; pure.
//! - [`ordered`]: allocating and freeing in streams. [`attributes`]: the calls about pools. [`waits`]: what ends work.
//!
//! Two things are not as in the driver's own pools. A stream never waits for another by itself to get its memory: more is asked
//! for instead, and only if there is none, the calling thread waits. And a program that only ever waits for events has what it
//! freed counted as in use until it next allocates or frees in a stream.

mod accounts;
mod attributes;
mod ordered;
mod reuse;
mod waits;

pub(crate) use accounts::Accounts;
pub(crate) use ordered::{begins_capture, wait_for_frees};
pub(crate) use reuse::{Reuse, Stream};
pub(crate) use waits::{for_context, for_stream, stream_ends};
