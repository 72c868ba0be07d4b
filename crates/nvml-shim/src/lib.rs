//! rota's `libnvidia-ml.so.1`: what a program of a job sees when it looks at GPUs.
//!
//! It stands in front of NVIDIA's own, preloaded by `rota run`, and passes every call on. A few are answered from what the
//! daemon says of the job: how much memory there is, how much of it is used, and which processes are there. So `nvidia-smi` and
//! frameworks that look that way see the GPU that `cuMemGetInfo` tells of: one with the size of the job's limit, and nobody
//! else on it.
//!
//! | module | subject |
//! |---|---|
//! | `forward` | every function, exported, and the real library |
//! | `job` | what the daemon says of this process's job |
//! | `memory` | how much memory there is |
//! | `processes` | who is there |
//!
//! Without `ROTA_SOCKET`, with `ROTA_DISABLE=1`, of a GPU that is not shared, and where the daemon does not answer, it is a plain
//! forwarder. No panic leaves it.

#![allow(non_snake_case)] // NVML's names.

mod forward;
mod job;
mod memory;
mod processes;

// Has no names for us: it stands between us and the C library.
use older_glibc as _;
