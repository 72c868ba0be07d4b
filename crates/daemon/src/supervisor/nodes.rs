//! Near to which NUMA nodes of the host the GPUs are, by the kernel's word: there is no driver in this process.

use keeper::Node;
use mover::cuda_device::Which;
use rota_daemon::config::{Config, Gpus};
use std::collections::BTreeSet;
use std::fs::{read_dir, read_to_string};
use std::path::Path;

/// Where the driver lists its GPUs, by their addresses on the bus.
const GPUS: &str = "proc/driver/nvidia/gpus";
/// Where the kernel says what is at such an address.
const DEVICES: &str = "sys/bus/pci/devices";
/// Where it has its nodes.
const NODES: &str = "sys/devices/system/node";

/// The nodes of the GPUs that are to be shared, each once. None where it makes no difference, or nobody can tell.
pub(super) fn of_gpus(config: &Config) -> Vec<Node> {
    match config.vgpu {
        // It is as near to one as to another.
        Some(_) => Vec::new(),
        None => find(Path::new("/"), &config.gpus),
    }
}

fn find(root: &Path, gpus: &Gpus) -> Vec<Node> {
    if names(&root.join(NODES)).filter_map(|name| number(name.strip_prefix("node")?)).count() < 2 {
        return Vec::new();
    }
    let listed = root.join(GPUS);
    let wanted = names(&listed).filter(|address| is_wanted(&listed.join(address), gpus));
    // In the kernel's own spelling of such addresses.
    let device = |address: String| root.join(DEVICES).join(address.to_lowercase()).join("numa_node");
    // -1 is a device that is near to none.
    let node = |address| number(read_to_string(device(address)).ok()?.trim());
    let nodes: BTreeSet<Node> = wanted.filter_map(node).map(Node).collect();
    nodes.into_iter().collect()
}

/// Whether a GPU may be among these. Indices are the driver's own order, which is not known here: with one of them, all may be.
fn is_wanted(gpu: &Path, gpus: &Gpus) -> bool {
    let Gpus::These(these) = gpus else { return true };
    let about = read_to_string(gpu.join("information")).unwrap_or_default();
    let uuid = about.lines().find_map(|line| line.strip_prefix("GPU UUID:")).map(str::trim);
    these.iter().any(|which| match which {
        Which::Index(_) => true,
        Which::Uuid(wanted) => uuid.is_none_or(|uuid| uuid == wanted),
    })
}

fn names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn write(root: &TempDir, path: &str, text: &str) {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A machine with so many nodes, and GPUs 0 to 2 on these.
    fn machine(nodes: u32, of_gpus: [&str; 3]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for node in 0..nodes {
            write(&root, &format!("{NODES}/node{node}/distance"), "10\n");
        }
        write(&root, &format!("{NODES}/online"), "0\n");
        for (gpu, node) in of_gpus.iter().enumerate() {
            write(
                &root,
                &format!("{GPUS}/0000:0{gpu}:00.0/information"),
                &format!("Model: x\nGPU UUID:\t GPU-{gpu}\n"),
            );
            write(&root, &format!("{DEVICES}/0000:0{gpu}:00.0/numa_node"), &format!("{node}\n"));
        }
        root
    }

    fn found(root: &TempDir, gpus: &str) -> Vec<u32> {
        find(root.path(), &gpus.parse().unwrap()).into_iter().map(|node| node.0).collect()
    }

    #[test]
    fn each_node_that_a_gpu_is_near_to_is_found_once() {
        let root = machine(2, ["1", "0", "1"]);
        assert_eq!(found(&root, "all"), [0, 1]);
        assert_eq!(found(&root, "GPU-0,GPU-2"), [1]);
        assert_eq!(found(&root, "GPU-1"), [0]);
        assert_eq!(found(&root, "GPU-1,0"), [0, 1], "an index may be any");
    }

    #[test]
    fn where_it_makes_no_difference_or_nobody_tells_there_is_none() {
        assert_eq!(found(&machine(1, ["0", "0", "0"]), "all"), [0; 0]);
        assert_eq!(found(&machine(2, ["-1", "-1", "-1"]), "all"), [0; 0]);
        assert_eq!(found(&machine(2, ["-1", "1", "-1"]), "all"), [1]);
        let root = tempfile::tempdir().unwrap();
        assert_eq!(found(&root, "all"), [0; 0]);
        let root = machine(2, ["1", "1", "1"]);
        std::fs::remove_file(root.path().join(GPUS).join("0000:01:00.0/information")).unwrap();
        assert_eq!(found(&root, "GPU-1"), [1], "what does not say its name may be it");
        std::fs::remove_dir_all(root.path().join(GPUS)).unwrap();
        assert_eq!(found(&root, "all"), [0; 0]);
    }
}
