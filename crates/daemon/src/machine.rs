//! What is on the GPUs by NVML's word: once a second, on a thread of its own, because NVML takes milliseconds and the driver's
//! lock.
//!
//! NVML counts memory for the process that made it, until that one lets go; whoever imported it is not charged. So a
//! tenant's figure is its context and its handles on the device, and the daemon's own is its context, whatever it moves.

use crate::daemon::Input;
use nvml::{Device, Nvml, NvmlError};
use sched::{Bytes, GpuId, TenantId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(1);

/// Parents of a process that are looked for.
const ANCESTORS_MAX: usize = 64;

/// What the books say of a tenant before a look. What NVML says is of use only if they say the same after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Booked {
    /// Its process.
    pub pid: u32,
    /// Where it is.
    pub gpu: GpuId,
    /// Its handles on the device, as far as NVML counts them for it.
    pub resident: Bytes,
    /// What it may have made meanwhile, and not told.
    pub granted: Bytes,
}

/// What the books say of what lies still.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Everybody who has a context, and nothing under way.
    pub tenants: BTreeMap<TenantId, Booked>,
    /// All that is known of a GPU to be taken or kept, but by programs outside of rota, where nothing moves and nobody is
    /// expected back.
    pub taken: BTreeMap<GpuId, Bytes>,
}

/// What was seen on one GPU.
#[derive(Debug)]
pub struct Sight {
    /// Where.
    pub gpu: GpuId,
    /// Who is there; nobody where NVML has other numbers for processes than this system.
    pub processes: Vec<Process>,
    /// What is in use of it, whoever has it, where NVML tells.
    pub used: Option<Bytes>,
    /// What the books said before.
    pub books: Arc<Books>,
}

/// A process with memory on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Which.
    pub pid: u32,
    /// What it holds there.
    pub bytes: u64,
    /// The program's name.
    pub program: String,
    /// The processes that it descends from, its parent first.
    pub ancestors: Vec<u32>,
}

/// Looks at these GPUs for as long as somebody listens. Where NVML does not know this process by its number, it does so for
/// no other, and only what is in use in all is seen there.
pub fn watch(nvml: Nvml, uuids: &[String], inputs: Sender<Input>) {
    let mut devices = Vec::new();
    for (number, uuid) in (0..).map(GpuId).zip(uuids) {
        match nvml.device(uuid) {
            Ok(device) => devices.push((number, device)),
            Err(cause) => tracing::warn!("what is on {uuid} cannot be seen: {cause}"),
        }
    }
    crate::executor::spawn("machine", move || {
        let mut unseen = false;
        loop {
            std::thread::sleep(EVERY);
            let (answer, books) = mpsc::channel();
            let asked = inputs.send(Input::Look(answer));
            let (Ok(()), Ok(books)) = (asked, books.recv()) else { return };
            let books = Arc::new(books);
            for &(gpu, device) in &devices {
                let processes = match look(&nvml, device, &books) {
                    Ok(Some(processes)) => processes,
                    Ok(None) => {
                        if !std::mem::replace(&mut unseen, true) {
                            tracing::warn!(
                                "NVML lists processes by numbers that are not those of this system (a container?): \
                                 what programs outside of rota have is seen, but not who they are"
                            );
                        }
                        Vec::new()
                    }
                    Err(cause) => {
                        tracing::debug!("what is on GPU {gpu} cannot be seen: {cause}");
                        continue;
                    }
                };
                let used = nvml.memory(device).ok().map(|memory| Bytes(memory.used));
                let sight = Sight { gpu, processes, used, books: books.clone() };
                if inputs.send(Input::Sight(sight)).is_err() {
                    return;
                }
            }
        }
    });
}

/// Who is on a GPU; None if that cannot be told. Those whom the books do not know are looked at more closely.
fn look(nvml: &Nvml, device: Device, books: &Books) -> Result<Option<Vec<Process>>, NvmlError> {
    let listed = nvml.processes(device)?;
    let own = std::process::id();
    if !listed.iter().any(|&(pid, _)| pid == own) {
        return Ok(None);
    }
    let others = listed.into_iter().filter(|&(pid, _)| pid != own);
    let processes = others.map(|(pid, bytes)| {
        let known = books.tenants.values().any(|booked| booked.pid == pid);
        let (program, ancestors) = if known { Default::default() } else { (name_of(pid), ancestors_of(pid)) };
        Process { pid, bytes, program, ancestors }
    });
    Ok(Some(processes.collect()))
}

fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().into()
}

fn ancestors_of(pid: u32) -> Vec<u32> {
    let parents = std::iter::successors(parent_of(pid), |&pid| parent_of(pid));
    parents.take_while(|&pid| pid > 1).take(ANCESTORS_MAX).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_name_and_a_parent() {
        let own = std::process::id();
        assert!(!name_of(own).is_empty());
        assert_eq!(ancestors_of(own).first().copied(), Some(std::os::unix::process::parent_id()));
        assert_eq!((name_of(u32::MAX), ancestors_of(u32::MAX)), (String::new(), Vec::new()));
    }
}
