//! A directory for one virtual machine, and programs on it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::PART;

/// For things that must happen; long, because test machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One virtual machine.
pub(crate) struct Bench {
    folder: TempDir,
    /// More variables for its programs.
    variables: Vec<(&'static str, String)>,
}

impl Bench {
    pub(crate) fn new(spec: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vgpu.toml"), spec).unwrap();
        Self { folder, variables: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, part: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "part", "--nocapture", "--test-threads=1", "-q"])
            .env(PART, part)
            .env("ROTA_VGPU", self.path())
            .env("ROTA_VGPUD", device())
            .env("LD_PRELOAD", library())
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove("ROTA_DISABLE")
            .envs(self.variables.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// Plays a part to its end, and fails with it.
    pub(crate) fn play(&self, part: &str) -> Output {
        let output = self.command(part).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{part}:\n{}\n{}", text(&output.stdout), text(&output.stderr));
        output
    }

    /// Starts a part that goes on by itself.
    pub(crate) fn start(&self, part: &str) -> Child {
        self.command(part).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Misuse that the device has noted.
    pub(crate) fn misuse(&self) -> String {
        std::fs::read_to_string(self.path().join("misuse.log")).unwrap_or_default()
    }
}

/// The library, as the build left it.
pub(crate) fn library() -> PathBuf {
    newest("libvgpu.so")
}

/// The device's executable, as the build left it.
fn device() -> PathBuf {
    newest("vgpud")
}

/// A file that the build left, wherever it is newest.
pub(crate) fn newest(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let candidates = program.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    let built = candidates.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    built
        .max()
        .unwrap_or_else(|| panic!("{name} is not built: cargo build -p rota-vgpu -p rota-vgpu-device"))
        .1
}

/// Waits for something to come true.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
