//! The files that the system is made of, as the build left them.

use std::path::PathBuf;
use std::process::Command;

/// A program of this package that checks its own bytes.
pub(crate) const WORKER: &str = env!("CARGO_BIN_EXE_worker");

/// A program of this package that does what it is told.
pub(crate) const PUPPET: &str = env!("CARGO_BIN_EXE_puppet");

/// A program of this package on all GPUs that it sees.
pub(crate) const SPREAD: &str = env!("CARGO_BIN_EXE_spread");

/// One of two processes whose kernels wait for each other.
pub(crate) const MEETING: &str = env!("CARGO_BIN_EXE_meeting");

/// A file of another package: beside the tests or one folder above, wherever it is newest.
pub(crate) fn newest(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("the path of this test is known");
    let candidates = program.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    let built = candidates.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    built.max().unwrap_or_else(|| panic!("{name} is not built: run `cargo build --workspace` first")).1
}

/// Puts a command on the virtual machine of a directory, as if that had the only GPUs there are.
pub(crate) fn on_virtual_gpu(command: &mut Command, directory: &std::path::Path) {
    let driver = newest("libvgpu.so");
    with_parts(command);
    command.env("ROTA_VGPU", directory).env("ROTA_DRIVER", &driver).env("LD_PRELOAD", &driver);
}

/// Tells a command where the parts are that it may start or load, and nothing else: `rotad` and `rota run` take it from there.
pub(crate) fn with_parts(command: &mut Command) {
    for variable in [
        "ROTA_VGPU",
        "ROTA_DRIVER",
        "LD_PRELOAD",
        "CUDA_VISIBLE_DEVICES",
        "ROTA_DISABLE",
        "ROTA_SOCKET",
        "ROTA_JOB",
    ] {
        command.env_remove(variable);
    }
    command
        .env("ROTA_VGPUD", newest("vgpud"))
        .env("ROTA_LIBVGPU", newest("libvgpu.so"))
        .env("ROTA_SHIM", newest("librota_shim.so"))
        .env("XDG_CONFIG_HOME", "/nowhere")
        .env("RUST_BACKTRACE", "0");
}
