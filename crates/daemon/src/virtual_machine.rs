//! A GPU in software instead of a real one: how the daemon gets on its machine, and how it notices that the machine is gone.
//!
//! Everything else is as with a real GPU: the driver library is another, and it answers `ioctl`, for which it has to be in
//! front of the C library's. Only the loader can put it there, so the daemon begins anew with it.

use rustix::event::{PollFd, PollFlags};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use thiserror::Error;
use vgpu_messages::enter::{EnterError, Library};
use vgpu_messages::spec::SpecError;
use vgpu_messages::{Directory, Spec};
use wire::{Connection, WireError};

/// Why the virtual machine cannot be used.
#[derive(Debug, Error)]
pub enum VirtualMachineError {
    /// The folder cannot be used.
    #[error("cannot use the folder {0} for a virtual machine: {1}")]
    Folder(PathBuf, std::io::Error),
    /// Its name could not be told to others.
    #[error("the folder {} of a virtual machine has a name that is not text; choose another", .0.display())]
    NotText(PathBuf),
    /// The description cannot be used.
    #[error("the virtual machine in {0} cannot be made: {1}")]
    Spec(PathBuf, SpecError),
    /// Parts are missing.
    #[error(transparent)]
    Enter(#[from] EnterError),
    /// The daemon cannot begin anew.
    #[error("cannot begin anew on the virtual machine: {0}")]
    Begin(std::io::Error),
    /// The GPU that was found is another.
    #[error("{gpu} is no GPU of the virtual machine in {folder}")]
    Stranger {
        /// What was found.
        gpu: String,
        /// The machine.
        folder: PathBuf,
    },
    /// The device is gone before anything began.
    #[error("the device of the virtual machine in {0} is gone: {1}; its log is vgpud.log there")]
    Gone(PathBuf, WireError),
}

/// A virtual machine that this process is on.
#[derive(Clone, Debug)]
pub struct VirtualMachine {
    directory: Directory,
    folder: String,
    spec: Spec,
}

impl VirtualMachine {
    /// Puts this process on the machine in `folder`, which is made if it is missing. Returns in a process that is on it:
    /// another would begin anew as such a one.
    pub fn enter(folder: &Path) -> Result<Self, VirtualMachineError> {
        let unusable = |error| VirtualMachineError::Folder(folder.into(), error);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unusable)?;
        let path = folder.canonicalize().map_err(unusable)?;
        let text = path.to_str().ok_or_else(|| VirtualMachineError::NotText(path.clone()))?.to_owned();
        let directory = Directory::new(&path);
        let spec = Spec::load(&directory, |name| std::env::var(name).ok())
            .map_err(|error| VirtualMachineError::Spec(path.clone(), error))?;
        let library = Library::find()?;
        if library.is_entered(&path) {
            return Ok(Self { directory, folder: text, spec });
        }
        // Also if another has its name by now.
        let mut anew = Command::new("/proc/self/exe");
        let mut words = std::env::args_os();
        if let Some(name) = words.next() {
            anew.arg0(name);
        }
        anew.args(words);
        anew.envs(library.environment(&path, std::env::var_os("LD_PRELOAD").as_deref()));
        Err(VirtualMachineError::Begin(anew.exec()))
    }

    /// What the GPUs of the machine in `folder` have together, whether it is there already or not.
    pub fn memory_bytes(folder: &Path) -> Result<u64, VirtualMachineError> {
        let spec = Spec::load(&Directory::new(folder), |name| std::env::var(name).ok())
            .map_err(|error| VirtualMachineError::Spec(folder.into(), error))?;
        Ok(spec.memory.0.saturating_mul(u64::from(spec.gpus)))
    }

    /// Its folder.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// What a context takes of a GPU's memory.
    pub fn context_bytes(&self) -> u64 {
        self.spec.context_memory.0
    }

    /// Makes sure that a GPU is one of this machine's: nothing may quietly run on another kind than was asked for.
    pub fn has(&self, gpu: &str) -> Result<(), VirtualMachineError> {
        let mut uuids =
            self.spec.devices().into_iter().map(|device| cuda::types::CUuuid { bytes: device.uuid });
        match uuids.any(|uuid| uuid.to_string() == gpu) {
            true => Ok(()),
            false => {
                Err(VirtualMachineError::Stranger { gpu: gpu.into(), folder: self.folder.clone().into() })
            }
        }
    }

    /// The life of the machine's device, to wait for its end.
    pub fn life(&self) -> Result<Life, VirtualMachineError> {
        let line = Connection::connect(&self.directory.socket())
            .map_err(|error| VirtualMachineError::Gone(self.folder.clone().into(), error))?;
        Ok(Life { line, log: self.directory.log() })
    }
}

/// A connection on which nothing is ever said: it ends with the device.
#[derive(Debug)]
pub struct Life {
    line: Connection,
    log: PathBuf,
}

impl Life {
    /// Waits for the end, and says that it came.
    pub fn over(self) -> String {
        let mut end = [PollFd::new(&self.line, PollFlags::empty())];
        while let Ok(0) | Err(rustix::io::Errno::INTR) = rustix::event::poll(&mut end, None) {}
        format!("the virtual GPU is gone: vgpud ended; its log is {}", self.log.display())
    }
}
