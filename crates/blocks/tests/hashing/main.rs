//! The hash of blocks: what it notices, and that the kernel computes the same.
//!
//! - [`properties`]: the hash against its definition, and what changes of a block do to it.
//! - [`kernel`]: `hash_blocks.ptx`, run by [`interpreter`], against the hash on the host.
//! - [`data`]: blocks and keys to test with.

mod data;
mod interpreter;
mod kernel;
mod properties;
