//! Does an MPS daemon listen here? Then every program of CUDA becomes its client, this one too, without being asked.

use std::path::{Path, PathBuf};
use thiserror::Error;

/// The folder that its pipes are in, where nobody says otherwise.
const FOLDER: &str = "/tmp/nvidia-mps";

/// The environment variable that says otherwise.
const VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// An MPS daemon listens.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "an MPS daemon{} listens in {}: programs under MPS share one context, and cannot be frozen one by one\n\
     hint: end it with `echo quit | nvidia-cuda-mps-control`, then start this again",
    pid.map_or(String::new(), |pid| format!(" (process {pid})")),
    folder.display()
)]
pub struct Active {
    /// Where.
    pub folder: PathBuf,
    /// Its process, where that is known.
    pub pid: Option<u32>,
}

/// Whether one listens where this process would look for it.
pub fn none_listens() -> Result<(), Active> {
    let named = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
    listens(&named.map_or(FOLDER.into(), PathBuf::from)).map_or(Ok(()), Err)
}

/// The control pipe outlives a daemon that was killed; what that one wrote down about itself tells.
fn listens(folder: &Path) -> Option<Active> {
    if !folder.join("control").exists() {
        return None;
    }
    let written = std::fs::read_to_string(folder.join("nvidia-cuda-mps-control.pid")).ok();
    let pid = written.and_then(|text| text.trim().parse::<u32>().ok());
    match pid {
        Some(pid) if !Path::new("/proc").join(pid.to_string()).exists() => None,
        pid => Some(Active { folder: folder.into(), pid }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_seen_and_one_that_is_gone_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(listens(folder.path()), None);
        write("control", "");
        assert_eq!(listens(folder.path()).unwrap().pid, None);
        let me = std::process::id();
        write("nvidia-cuda-mps-control.pid", &format!("{me}\n"));
        let active = listens(folder.path()).unwrap();
        assert_eq!(active.pid, Some(me));
        let text = active.to_string();
        assert!(text.starts_with(&format!("an MPS daemon (process {me}) listens in ")), "{text}");
        assert!(text.contains("\nhint: end it with"), "{text}");
        // No process has this number.
        write("nvidia-cuda-mps-control.pid", &u32::MAX.to_string());
        assert_eq!(listens(folder.path()), None);
    }
}
