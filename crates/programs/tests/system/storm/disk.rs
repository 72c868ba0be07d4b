//! A disk that goes wrong under the cellar. Its file has no name, but whoever has it open shows it to the kernel: its bytes can
//! be changed and cut off behind the worker's back, and the worker can be forbidden to write to more of it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::process::{Pid, Resource, Rlimit};

use super::{LUCK, Storm};

/// What the cellar hands out at once.
const GRANULE_BYTES: u64 = 64 << 10;

/// A process that writes too far gets a signal, which ends it unless it is ignored; then it gets an error. Whoever is started
/// from now on ignores it as well.
pub(super) fn survive_limits() {
    // SAFETY: no handler runs, and nothing here relies on being ended by this signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// From now on this process cannot write to files beyond so many bytes, or as far as it likes.
fn limit_writes(process: u32, bytes: Option<u64>) {
    let process = Pid::from_raw(process.cast_signed()).expect("a process");
    let maximum = rustix::process::getrlimit(Resource::Fsize).maximum;
    let limit = Rlimit { current: bytes.or(maximum), maximum };
    // It may be gone, and its limit with it.
    let _ = rustix::process::prlimit(Some(process), Resource::Fsize, limit);
}

/// The cellar's file, as the worker has it open.
fn file(worker: u32, folder: &Path) -> Option<File> {
    let open = std::fs::read_dir(format!("/proc/{worker}/fd")).ok()?;
    let mut paths = open.filter_map(|entry| Some(entry.ok()?.path()));
    let path = paths.find(|path| path.read_link().is_ok_and(|target| target.starts_with(folder)))?;
    File::options().write(true).open(path).ok()
}

/// Changes bytes of the granule that this number falls on.
fn change(file: &File, number: u64) {
    let granules = file.metadata().expect("it is open").len() / GRANULE_BYTES;
    if let Some(granule) = number.checked_rem(granules) {
        file.write_all_at(&[0xA5; 512], granule * GRANULE_BYTES).expect("a disk that works");
    }
}

impl Storm {
    pub(super) fn fill_disk(&mut self) -> bool {
        // Of what the cellar may have, and more than the daemon's file of events comes to have, which it writes to as well.
        let (worker, bytes) = (self.stage.status().worker_pid, (10 + self.chance.below(8)) << 20);
        limit_writes(worker, Some(bytes));
        let failed = self.meets_error(&["the disk of the cellar is full"]);
        limit_writes(worker, None);
        failed
    }

    pub(super) fn fail_a_read(&mut self) -> bool {
        let worker = self.stage.status().worker_pid;
        let Some(file) = file(worker, &self.cellar) else { return false };
        let bytes = file.metadata().expect("it is open").len();
        let left = bytes.min((2 + self.chance.below(4)) << 20);
        let before = self.told.errors_with(&["cannot read"]);
        let failed = self.has_luck(LUCK, |storm| {
            // Again and again, since what is written meanwhile makes it longer.
            file.set_len(left).expect("a disk that works");
            storm.told.errors_with(&["cannot read"]) > before
        });
        // It is as long as it was, whatever is in it now: no disk takes a part of a file away for good.
        let now = file.metadata().expect("it is open").len();
        file.set_len(now.max(bytes)).expect("a disk that works");
        failed
    }

    pub(super) fn change_bytes(&mut self) -> bool {
        let worker = self.stage.status().worker_pid;
        let Some(file) = file(worker, &self.cellar) else { return false };
        let before = self.told.errors_with(&["is lost"]);
        // Not all at once: others are to live.
        (0..16).any(|_| {
            change(&file, self.chance.below(u64::MAX));
            self.has_luck(LUCK / 16, |storm| storm.told.errors_with(&["is lost"]) > before)
        })
    }
}
