//! On which GPU a channel group is, and so in which session.
//!
//! In a program that sees one GPU there is nothing to ask. In others the resource manager is asked once for each subdevice,
//! through the file that its client was made with. No lock is held while it answers.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use channels::Group;
use cuda::types::CUuuid;

use super::control;
use crate::demand::made_once;
use crate::gpus;
use crate::guard::lock;
use crate::notice::OnceNotice;
use crate::session::Session;

/// A subdevice of a client, made with a file.
type Subdevice = (RawFd, u32, u32);

/// Subdevices that are remembered. Programs have one a GPU.
const KNOWN_MAX: usize = 1024;

/// The GPU of each subdevice that was asked.
static KNOWN: AtomicPtr<Mutex<BTreeMap<Subdevice, CUuuid>>> = AtomicPtr::new(ptr::null_mut());

/// In a forked child: nothing is known.
pub(super) fn forget() {
    KNOWN.store(ptr::null_mut(), SeqCst);
}

/// Whether a group is on the GPU of a session; None if nobody can say, as it cannot be reached or the driver does not tell.
pub(super) fn belongs(session: &Session, group: &Group) -> Option<bool> {
    if gpus::is_sole() {
        return Some(true);
    }
    let subdevice = (group.file, group.client, group.subdevice?);
    let known = made_once(&KNOWN, Mutex::default);
    let found = lock(known).get(&subdevice).copied();
    let uuid = match found {
        Some(uuid) => uuid,
        None => {
            let uuid = ask(subdevice)?;
            let mut known = lock(known);
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(subdevice, uuid);
            uuid
        }
    };
    Some(uuid == session.uuid)
}

/// A client is gone with all it had, or a file: its numbers may come to mean others.
pub(super) fn forget_all_but(groups: &[Group]) {
    let known = KNOWN.load(SeqCst);
    // SAFETY: what is stored is never freed.
    if let Some(known) = unsafe { known.as_ref() } {
        let used = |(file, client, _): &Subdevice| {
            groups.iter().any(|group| (group.file, group.client) == (*file, *client))
        };
        lock(known).retain(|subdevice, _| used(subdevice));
    }
}

fn ask((file, client, subdevice): Subdevice) -> Option<CUuuid> {
    static FAILED: OnceNotice = OnceNotice::new();
    match control(file).uuid(client, subdevice) {
        Ok(bytes) => Some(CUuuid { bytes }),
        Err(error) => {
            FAILED.notice(format_args!("{error}; this program cannot be frozen, and keeps its GPUs"));
            None
        }
    }
}
