//! `rota cdi generate`: a file that tells container engines what a container needs to share GPUs: the shim, the daemon's socket,
//! and the environment that leads programs to them.
//!
//! The form is the Container Device Interface's, <https://github.com/cncf-tags/container-device-interface>. The GPUs
//! themselves, and the driver's files, come from NVIDIA's own such file: rota adds to that and replaces nothing.

use crate::args::GenerateArgs;
use crate::daemon::{NobodyThere, Place};
use crate::{describe, print, status};
use anyhow::{Context as _, bail};
use serde::Serialize;
use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use vgpu_messages::enter::Library;
use wire::Status;

/// The oldest version of the form that has all that is used here: names of devices that begin with a digit.
const VERSION: &str = "0.5.0";

/// What devices are asked for by, as in `rota.dev/gpu=all`.
const KIND: &str = "rota.dev/gpu";

/// Where the libraries are in a container.
const LIBRARIES: &str = "/opt/rota/lib";

/// Where the socket's folder is in a container.
const SOCKET_FOLDER: &str = "/run/rota";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    cdi_version: &'static str,
    kind: &'static str,
    devices: Vec<Device>,
    container_edits: Edits,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: Edits,
}

#[derive(Debug, Default, Serialize)]
struct Edits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<Mount>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: String,
    container_path: String,
    options: [&'static str; 4],
}

/// Writes the file.
pub(crate) fn generate(args: &GenerateArgs, place: &Place) -> anyhow::Result<()> {
    let status = match status::ask(&place.socket) {
        Ok(status) => Some(status),
        Err(error) if error.is::<NobodyThere>() => {
            let _ = writeln!(
                std::io::stderr(),
                "rota: no daemon is there to say which GPUs it shares: the file has `all`, and no GPU by itself"
            );
            None
        }
        Err(error) => return Err(error),
    };
    let text = describe::as_json(&file(place, status.as_ref())?)?;
    match args.output.as_deref() {
        None => print(&text),
        Some(path) if path == Path::new("-") => print(&text),
        Some(path) => std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display())),
    }
}

fn file(place: &Place, status: Option<&Status>) -> anyhow::Result<File> {
    let socket = std::path::absolute(&place.socket)
        .with_context(|| format!("cannot tell the full path of {}", place.socket.display()))?;
    let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
        bail!("{} is no path of a socket", socket.display());
    };
    let mut edits = Edits::default();
    let mut preloaded = Vec::new();
    let shim = wire::find_shim()?;
    preloaded.push(edits.library(&shim)?);
    if let Some(nvml) = wire::find_nvml_shim(&shim) {
        preloaded.push(edits.library(&nvml)?);
    }
    // The folder, not the socket: a daemon that is started again makes a new one.
    edits.mount(folder, Path::new(SOCKET_FOLDER), ["ro", "nosuid", "nodev", "bind"])?;
    if let Some(machine) = virtual_machine(status) {
        let virtual_driver = Library::find()?;
        let library = edits.library(virtual_driver.path())?;
        if let Some(nvml) = virtual_driver.nvml() {
            let nvml = edits.library(&nvml)?;
            edits.set("ROTA_NVML", nvml)?;
        }
        edits.set("ROTA_DRIVER", &library)?;
        edits.set("ROTA_VGPU", machine)?;
        edits.mount(Path::new(machine), Path::new(machine), ["rw", "nosuid", "nodev", "bind"])?;
        preloaded.push(library);
    }
    edits.set("LD_PRELOAD", preloaded.join(":"))?;
    edits.set("ROTA_SOCKET", Path::new(SOCKET_FOLDER).join(name))?;
    Ok(File { cdi_version: VERSION, kind: KIND, devices: devices(status), container_edits: edits })
}

/// All of them, and each by its number and by its UUID, as NVIDIA's file has them.
fn devices(status: Option<&Status>) -> Vec<Device> {
    // Whoever asks for a shared GPU does not want to run past everybody.
    let required = || "ROTA_REQUIRED=1".to_owned();
    let device =
        |name: &str, env| Device { name: name.into(), container_edits: Edits { env, mounts: vec![] } };
    let mut devices = vec![device("all", vec![required()])];
    for (index, gpu) in status.iter().flat_map(|status| status.gpus.iter().enumerate()) {
        let env = || vec![required(), format!("CUDA_VISIBLE_DEVICES={}", gpu.uuid)];
        devices.push(device(&index.to_string(), env()));
        devices.push(device(&gpu.uuid, env()));
    }
    devices
}

fn virtual_machine(status: Option<&Status>) -> Option<&str> {
    status?.gpus.iter().find_map(|gpu| gpu.vgpu.as_deref())
}

impl Edits {
    /// Brings a library in, and says where it is then.
    fn library(&mut self, file: &Path) -> anyhow::Result<String> {
        let name = file.file_name().unwrap_or(OsStr::new("library"));
        let inside = Path::new(LIBRARIES).join(name);
        self.mount(file, &inside, ["ro", "nosuid", "nodev", "bind"])?;
        text(&inside)
    }

    fn mount(&mut self, host: &Path, inside: &Path, options: [&'static str; 4]) -> anyhow::Result<()> {
        let host = host.canonicalize().unwrap_or_else(|_| PathBuf::from(host));
        self.mounts.push(Mount { host_path: text(&host)?, container_path: text(inside)?, options });
        Ok(())
    }

    fn set(&mut self, name: &str, value: impl AsRef<Path>) -> anyhow::Result<()> {
        self.env.push(format!("{name}={}", text(value.as_ref())?));
        Ok(())
    }
}

/// A path as text, which is all that the file can have.
fn text(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().with_context(|| format!("{} is a name that is not text", path.display()))?;
    Ok(text.to_owned())
}
