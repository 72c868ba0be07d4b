//! The programs that the demo is made of: beside `rota` itself, as they were built or installed.

use anyhow::Context as _;
use std::path::{Path, PathBuf};
use vgpu_messages::enter::Library;
use vgpu_messages::place::EXECUTABLE_VARIABLE;

/// Where they are.
pub(super) struct Parts {
    pub(super) rotad: PathBuf,
    pub(super) vgpud: PathBuf,
    pub(super) worker: PathBuf,
    /// The virtual GPU's driver.
    pub(super) library: Library,
}

impl Parts {
    pub(super) fn find() -> anyhow::Result<Self> {
        let rota = std::env::current_exe().context("cannot tell where this executable is")?;
        let folder = rota.parent().unwrap_or(Path::new("/"));
        let find = |name: &str| {
            let path = folder.join(name);
            path.is_file().then_some(path).with_context(|| {
                format!(
                    "the demo needs {name}, which is not in {}\nhint: build all of it with `make build`",
                    folder.display()
                )
            })
        };
        // The daemon and `rota run` find these for themselves, and would say so in a log.
        wire::find_shim()?;
        let library = Library::find()?;
        let vgpud = match std::env::var_os(EXECUTABLE_VARIABLE).filter(|path| !path.is_empty()) {
            Some(chosen) => chosen.into(),
            None => find("vgpud")?,
        };
        Ok(Self { rotad: find("rotad")?, vgpud, worker: find("worker")?, library })
    }
}
