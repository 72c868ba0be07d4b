//! Where a virtual machine is: a directory with its description and its socket.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The environment variable that names the directory.
pub const VARIABLE: &str = "ROTA_VGPU";

/// The environment variable that names the device's executable, where it is not beside the library.
pub const EXECUTABLE_VARIABLE: &str = "ROTA_VGPUD";

/// The directory of one virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory(PathBuf);

impl Directory {
    /// The one that the environment names.
    pub fn from_environment() -> Option<Self> {
        std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(|path| Self(path.into()))
    }

    /// This one.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A number made of the path, for names that no two machines may share.
    pub fn identity(&self) -> [u8; 6] {
        let path = self.0.canonicalize().unwrap_or_else(|_| self.0.clone());
        // FNV-1a.
        let hash = path.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        std::array::from_fn(|at| hash.to_be_bytes()[at])
    }

    /// Where the device listens.
    pub fn socket(&self) -> PathBuf {
        self.0.join("vgpud.sock")
    }

    /// The machine's description; need not exist.
    pub fn spec(&self) -> PathBuf {
        self.0.join("vgpu.toml")
    }

    /// Faults asked for while the device runs; need not exist.
    pub fn faults(&self) -> PathBuf {
        self.0.join("faults.toml")
    }

    /// Locked by the device while it lives.
    pub fn device_lock(&self) -> PathBuf {
        self.0.join("vgpud.lock")
    }

    /// Locked by a client while it starts the device.
    pub fn start_lock(&self) -> PathBuf {
        self.0.join("start.lock")
    }

    /// What the device says.
    pub fn log(&self) -> PathBuf {
        self.0.join("vgpud.log")
    }

    /// Misuse that a real driver forgives: a line each.
    pub fn misuse(&self) -> PathBuf {
        self.0.join("misuse.log")
    }
}
