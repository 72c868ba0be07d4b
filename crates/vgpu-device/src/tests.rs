//! The device as programs meet it, without processes and with a clock of our own.

mod checkpoint;
mod death;
mod faults;
mod freeze;
mod graphs;
mod host_memory;
mod kernels;
mod memory;
mod misuses;
mod order;
mod peers;
mod pools;
mod random;
mod slices;
mod world;
