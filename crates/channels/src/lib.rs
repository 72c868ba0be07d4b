//! The resource manager's (RM) side of a tenant: its channels.
//!
//! A tenant's CUDA library allocates channel groups and channels through `ioctl`. This crate recognises them in
//! that traffic, freezes and thaws them mid-kernel, sets their time slices, and tests by behaviour whether
//! freezing works on this driver.
//!
//! ```text
//!  ioctl returns ── ioctl::capture ──> Call ── Tracker::observe ──> Change (a channel was born, a group scheduled …)
//!                        │                          │
//!                   trace (a text file)             └─ groups() ── channel_sets ──> ChannelSet ── Control ──> driver
//! ```
//!
//! | module | subject | unsafe |
//! |---|---|---|
//! | [`rm`] | numbers and layouts of RM calls, as pure parsing | no |
//! | [`ioctl`] | copying one RM call out of the calling program's memory | yes |
//! | [`trace`] | recorded calls as text | no |
//! | [`tracker`] | which groups and channels exist | no |
//! | [`control`] | freeze, thaw, time slices | one call |
//! | [`selftest`] | whether freezing works, judged by a heartbeat | no |
//!
//! What may not live here: decisions (who is frozen, and when), threads, messages to the daemon, CUDA calls.

pub mod control;
pub mod ioctl;
pub mod rm;
pub mod selftest;
pub mod trace;
pub mod tracker;

pub use control::{ChannelSet, Control, ControlError, GroupAddress, Micros, RmControl, channel_sets};
pub use ioctl::{Call, capture, capture_any};
pub use tracker::{Change, Engine, Group, GroupKey, Tracker};

/// The heartbeat kernel of the self-test, as PTX: `heartbeat(counter, stop, limit)`.
///
/// One thread adds one to the 64-bit word at `counter` again and again, until the 64-bit word at `stop` is not zero
/// or `limit` rounds are done. Both words should be in pinned host memory.
pub const HEARTBEAT_PTX: &str = include_str!("../../../kernels/heartbeat.ptx");

#[cfg(test)]
mod tests {
    #[test]
    fn heartbeat_ptx_is_text_the_driver_can_take() {
        let ptx = super::HEARTBEAT_PTX;
        assert!(ptx.is_ascii());
        assert!(!ptx.contains('\0'), "the driver reads the text up to its first zero byte");
        assert!(ptx.contains(".visible .entry heartbeat("));
        assert!(ptx.contains(".target sm_70"));
    }
}
