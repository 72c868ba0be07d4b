//! The project's own CUDA programs: what tests, the conformance suite and demonstrations run on a GPU.
//!
//! - [`kernels`]: the kernels, with what each computes in Rust.
//! - [`conformance`]: what a driver answers, call by call.
//! - [`random`]: random calls by a seed, and a hash of all answers.
//! - [`misuse`]: a dozen misuses, and whether a driver catches them.
//! - [`worker`]: keeps a GPU busy and checks every byte.
//! - [`hasher`]: the hash of blocks, on a GPU and on the host.
//! - [`spread`]: the same on all GPUs that it sees, which read each other's memory. [`meeting`]: kernels of two processes
//!   that wait for each other.
//! - [`puppet`]: does what it is told, a line at a time.
//! - [`api`] and `bench`: what they call the driver with.
//!
//! The programs know nothing of rota: they open `libcuda.so.1` as any program does, and run the same on a real driver,
//! on a virtual GPU, and as a tenant.

pub mod api;
mod bench;
pub mod conformance;
pub mod hasher;
pub mod kernels;
pub mod meeting;
pub mod misuse;
pub mod puppet;
pub mod random;
pub mod spread;
pub mod worker;
