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
    /// The one in the kernel, behind `/dev/nvidiactl`; or that of a virtual GPU, whose library, preloaded, answers `ioctl`.
    pub const SYSTEM: Self = Self { ioctl: SYSTEM_IOCTL, owns: is_control };
}

fn is_control(file: BorrowedFd<'_>) -> bool {
    is_nvidiactl(file) || (is_on_virtual_gpu() && is_socket(file))
}

/// Whether the daemon was started on a virtual GPU.
fn is_on_virtual_gpu() -> bool {
    std::env::var_os("ROTA_VGPU").is_some_and(|directory| !directory.is_empty())
}

/// A virtual GPU's control files are sockets. On another socket a control fails at once, as nobody knows it.
fn is_socket(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(file).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket)
}

fn is_nvidiactl(file: BorrowedFd<'_>) -> bool {
    const MAJOR: u32 = 195;
    const MINOR: u32 = 255;
    rustix::fs::fstat(file).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice
            && (rustix::fs::major(found.st_rdev), rustix::fs::minor(found.st_rdev)) == (MAJOR, MINOR)
    })
}
