//! NVML of the virtual GPU: `libnvidia-ml.so.1` for programs that look at GPUs.
//!
//! What is asked is asked of the device, `vgpud`, each time; nothing is kept but the connection. Functions about what a
//! virtual GPU does not have are not exported, as in an older driver: whoever looks for them finds that out.
//!
//! | module | subject |
//! |---|---|
//! | `session` | the connection to the device |
//! | `system` | the library itself: start, end, versions, texts of codes |
//! | `device` | which devices there are, and what they are |
//! | `figures` | what they are doing: memory, load, processes, power, errors |
//! | `events` | waiting for errors |
//! | `types` | layouts and codes |

#![allow(non_snake_case)] // NVML's names.

mod device;
mod events;
mod figures;
mod session;
mod system;
mod types;
