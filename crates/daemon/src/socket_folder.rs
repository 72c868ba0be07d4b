//! Where the socket and the log lie: folders in which nobody else can put other ones.

use anyhow::Context as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

/// The socket's folder: made if it is missing, and only used if nobody else could put another socket there.
pub(crate) fn make_folder_of(socket: &Path, everybody: bool) -> anyhow::Result<()> {
    let Some(folder) = socket.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    if !folder.is_dir() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(if everybody { 0o755 } else { 0o700 })
            .create(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    is_ours(folder, "name another with --socket")
}

/// Refuses a folder in which somebody else could put other files under our names.
pub(crate) fn is_ours(folder: &Path, otherwise: &str) -> anyhow::Result<()> {
    let found = std::fs::metadata(folder).with_context(|| format!("cannot look at {}", folder.display()))?;
    let sticky_or_own = found.mode() & 0o1000 != 0 || found.mode() & 0o022 == 0;
    let owner = rustix::process::geteuid().as_raw();
    anyhow::ensure!(
        sticky_or_own && [owner, 0].contains(&found.uid()),
        "the folder {} is writable by others or belongs to someone else; {otherwise}",
        folder.display()
    );
    Ok(())
}
