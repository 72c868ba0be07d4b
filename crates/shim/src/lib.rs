//! rota's `libcuda.so.1`: the library that stands between a program and the real driver, and makes it a tenant.
//!
//! What always holds:
//! - Every driver function is exported. Most go on to the real driver as they came, counted where they use the GPU.
//! - Nothing happens before the program's first CUDA call, and no thread is started before `cuInit` has succeeded.
//! - Without `ROTA_SOCKET`, or with `ROTA_DISABLE=1`, the library is a plain forwarder. So it is where the daemon does not take
//!   the program in, unless `ROTA_REQUIRED` is set, as by `rota run`: then `cuInit` fails.
//! - A panic never crosses into the program. A forked child starts clean.
//! - No lock is held while something waits for the GPU or for the daemon, so the agent can always serve.
//!
//! ```text
//!  program ─┬─ cuMemAlloc, cuMemFree, … ── memory ──┐ table, outbox, bell
//!           ├─ cuInit ── init ── session ───────────┤                    agent ══ socket, page ══ daemon
//!           ├─ ioctl ── groups (channel groups) ────┘ changed, bell
//!           └─ everything else ── forward ── real driver
//! ```
//!
//! | module | subject |
//! |---|---|
//! | `forward`, `proc_address` | every driver function, exported; `cuGetProcAddress`, which hands out this library's |
//! | `init`, `join` | `cuInit`; how a process becomes a tenant |
//! | `gpus` | the GPUs that the program sees, and on which of them it is a tenant |
//! | `session` | what a tenant has on one GPU; `grants` and `outbox` are parts of it, `transient` knows files on their way |
//! | `agent` | the thread that serves the daemon |
//! | `demand` | has this program work for the GPU? Launches, waits, events |
//! | `gate` | where calls wait that need memory under their addresses |
//! | `memory` | allocations that can be taken off the device and put back |
//! | `pool` | memory that is allocated and freed in the order of streams |
//! | `ipc` | memory that other processes open; `foreign`: whether there is any of others here |
//! | `sdk` | what programs say to rota themselves: requests, phases, terms |
//! | `ioctl`, `groups` | seeing, reporting and freezing channel groups |
//! | `fork`, `guard`, `notice`, `settings` | children, panics, lines for people, environment variables |

mod agent;
mod demand;
mod foreign;
mod fork;
mod forward;
mod gate;
mod gpus;
mod grants;
mod groups;
mod guard;
mod init;
mod ioctl;
mod ipc;
mod join;
mod memory;
mod notice;
mod outbox;
mod pool;
mod proc_address;
mod sdk;
mod session;
mod settings;
mod transient;

use forward::real::disabled;
// Has no names for us: it stands between us and the C library.
use older_glibc as _;
