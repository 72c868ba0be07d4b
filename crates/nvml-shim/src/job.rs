//! What the daemon says of this process's job. Asked each time: whoever looks at GPUs wants to know how things are now.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::path::PathBuf;
use std::time::Duration;

use nvml::Return;
use wire::{Answer, Command, Connection, FromDaemon, JobMemory, ToDaemon};

use crate::forward::real;

/// How long the daemon may take. NVML's own answers take milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// As long as a UUID can be, with its closing zero.
const UUID_BYTES: usize = 96;

/// A GPU, by the real library's handle.
pub(crate) type Device = *mut c_void;

/// A GPU as the job sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// What the job may have there.
    pub(crate) total: u64,
    /// What it has there.
    pub(crate) used: u64,
    /// Its processes there, with what each has.
    pub(crate) processes: Vec<(u32, u64)>,
}

/// The GPU as this process's job sees it; None if the real library is to answer.
pub(crate) fn seen(device: Device) -> Option<Seen> {
    let socket = variable("ROTA_SOCKET").filter(|_| !is_disabled())?;
    // As the shim has it: without a name, the job is that of all who have none.
    let job = variable("ROTA_JOB").map_or_else(|| "-".to_owned(), |job| job.to_string_lossy().into_owned());
    let gpu = uuid(device)?;
    let question = ToDaemon::Command { version: wire::VERSION, command: Command::Memory { job } };
    match Connection::ask(&PathBuf::from(socket), &question, ANSWER_WITHIN).ok()? {
        FromDaemon::Answer(answer) => match *answer {
            Answer::Memory(memory) => on(&gpu, &memory),
            _ => None,
        },
        _ => None,
    }
}

fn on(gpu: &str, memory: &JobMemory) -> Option<Seen> {
    let found = memory.gpus.iter().find(|it| it.gpu == gpu)?;
    let processes = memory.processes.iter().filter(|it| it.gpu == gpu);
    Some(Seen {
        total: found.limit_bytes,
        used: found.used_bytes,
        processes: processes.map(|it| (it.pid, it.bytes)).collect(),
    })
}

fn uuid(device: Device) -> Option<String> {
    type GetUuid = unsafe extern "C" fn(Device, *mut c_char, c_uint) -> Return;
    let mut text = [0 as c_char; UUID_BYTES];
    // SAFETY: the type is this symbol's.
    let get = unsafe { real::<GetUuid>(c"nvmlDeviceGetUUID") }.ok()?;
    // SAFETY: the program's handle, as it came, and as much room as is told.
    let code = unsafe { get(device, text.as_mut_ptr(), UUID_BYTES as c_uint) };
    if code != Return::SUCCESS {
        return None;
    }
    // SAFETY: a text that ends with a zero, by NVML's word; the array ends with one in any case.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    Some(text.to_string_lossy().into_owned())
}

fn is_disabled() -> bool {
    variable("ROTA_DISABLE").is_some_and(|value| value != "0")
}

/// A variable that is set to nothing counts as not set.
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{MemoryOnGpu, ProcessOnGpu};

    #[test]
    fn only_what_is_on_the_gpu_counts() {
        let on_gpu = |gpu: &str, used_bytes| MemoryOnGpu { gpu: gpu.into(), limit_bytes: 9, used_bytes };
        let process = |pid, gpu: &str, bytes| ProcessOnGpu { pid, gpu: gpu.into(), bytes };
        let memory = JobMemory {
            gpus: vec![on_gpu("a", 3), on_gpu("b", 4)],
            processes: vec![process(1, "a", 2), process(2, "b", 4), process(3, "a", 1)],
        };
        let expected = Seen { total: 9, used: 3, processes: vec![(1, 2), (3, 1)] };
        assert_eq!(on("a", &memory), Some(expected));
        assert_eq!(on("c", &memory), None, "it is not shared");
    }
}
