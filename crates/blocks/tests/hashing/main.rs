//! The hash of blocks: what it notices, and that the kernel computes the same.
//!
//! - [`properties`]: the hash against its definition, and what changes of a block do to it.
//! - [`kernel`]: `hash_blocks.ptx`, run by [`interpreter`], against the hash on the host.
//! - [`copy`]: `copy_words.ptx`, run by the same.
//! - [`proof`]: the steps of the proof, where every key can be tried.
//! - [`data`]: blocks and keys to test with.

mod copy;
mod data;
mod interpreter;
mod kernel;
mod proof;
mod properties;
