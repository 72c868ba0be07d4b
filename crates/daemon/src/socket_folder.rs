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
    let cannot_look = || format!("cannot look at {}", folder.display());
    let found = std::fs::metadata(folder).with_context(cannot_look)?;
    // Whoever made a link can have it lead elsewhere later.
    let named = std::fs::symlink_metadata(folder).with_context(cannot_look)?;
    let sticky_or_own = found.mode() & 0o1000 != 0 || found.mode() & 0o022 == 0;
    let owner = rustix::process::geteuid().as_raw();
    anyhow::ensure!(
        sticky_or_own && [found, named].iter().all(|folder| [owner, 0].contains(&folder.uid())),
        "the folder {} is writable by others or belongs to someone else; {otherwise}",
        folder.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

    /// Somebody else on this machine.
    const NOBODY: u32 = 65534;

    #[test]
    fn folders_that_others_can_change_are_refused() {
        let around = tempfile::tempdir().unwrap();
        let (folder, link) = (around.path().join("folder"), around.path().join("link"));
        make_folder_of(&folder.join("socket"), false).unwrap();
        symlink(&folder, &link).unwrap();
        is_ours(&link, "").unwrap();
        for (mode, is_right) in [(0o777, false), (0o1777, true), (0o770, false), (0o755, true)] {
            std::fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_ours(&folder, "").is_ok(), is_right, "{mode:o}");
        }
        // Only root can make a link of somebody else's.
        if rustix::process::geteuid().is_root() {
            lchown(&link, Some(NOBODY), None).unwrap();
            let refused = is_ours(&link, "name another").unwrap_err().to_string();
            assert!(refused.contains("name another"), "{refused}");
        }
    }
}
