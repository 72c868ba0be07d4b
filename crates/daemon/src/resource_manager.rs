//! The way to the driver's resource manager, as a value, so that tests can have their own.

use channels::control::{IoctlFn, SYSTEM_IOCTL};
use rustix::fs::FileType;
use std::os::fd::BorrowedFd;

/// How the driver's resource manager is reached. Tests have their own.
#[derive(Clone, Copy, Debug)]
pub struct ResourceManager {
    /// Sends a control.
    pub ioctl: IoctlFn,
    /// Is this one of its control files? Others are not touched: a control could block for ever on them.
    pub owns: fn(BorrowedFd<'_>) -> bool,
}

impl ResourceManager {
    /// The one in the kernel, behind `/dev/nvidiactl`.
    pub const SYSTEM: Self = Self { ioctl: SYSTEM_IOCTL, owns: is_nvidiactl };
}

fn is_nvidiactl(file: BorrowedFd<'_>) -> bool {
    const MAJOR: u32 = 195;
    const MINOR: u32 = 255;
    rustix::fs::fstat(file).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice
            && (rustix::fs::major(found.st_rdev), rustix::fs::minor(found.st_rdev)) == (MAJOR, MINOR)
    })
}
