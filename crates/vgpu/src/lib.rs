//! The CUDA driver of the virtual GPU: `libcuda.so.1` for programs on a machine without one.
//!
//! Every function of the driver is exported. What a program asks becomes a request to the device, `vgpud`, which
//! holds all state and all bytes; here are only the interface's forms, the current contexts of threads, and host memory.
//! Functions that are not there answer `CUDA_ERROR_NOT_SUPPORTED` by decision: `not_supported.txt`.
//!
//! | module | subject |
//! |---|---|
//! | `session` | the connection to the device, and how the device is started |
//! | `rm`, `ioctl` | what contexts are made of, and the calls on control files |
//! | `driver`, `device`, `context` | the driver, its devices, its contexts |
//! | `checkpoint` | what other processes have on the devices, put away |
//! | `memory`, `copy`, `memset` | memory of all kinds |
//! | `stream`, `event`, `callbacks`, `graph` | order |
//! | `module`, `launch` | kernels |
//! | `argument`, `handle`, `types`, `guard`, `notice` | the forms of the interface |
//! | [`not_supported`], `exports` | every symbol |

#![allow(non_snake_case)] // The driver's names.

mod argument;
mod callbacks;
mod checkpoint;
mod context;
mod copy;
mod device;
mod driver;
mod event;
mod exports;
mod graph;
mod guard;
mod handle;
mod ioctl;
mod launch;
mod memory;
mod memset;
mod module;
pub mod not_supported;
mod notice;
mod rm;
mod session;
mod stream;
mod waits;
