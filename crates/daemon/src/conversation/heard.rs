//! What a tenant says that was taken in: what each message must look like, and where it goes.

use super::{Ears, Ended, Taken, tell};
use crate::daemon::publications::Publish;
use crate::daemon::{Input, Shown};
use crate::names::{handles as in_core, owner};
use mover::{Question, Reply};
use sched::{Bytes, HandleId, Owned, RequestId};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use wire::{BLOCK_BYTES, Change, HANDLE_BYTES_MAX, HANDLES_MAX, SizedHandle, ToDaemon};

/// Passes on what a message says.
pub(super) fn hear(message: ToDaemon, files: Vec<OwnedFd>, ears: &Ears, taken: &Taken) -> Result<(), Ended> {
    let Taken { tenant, grip, replies } = taken;
    let tenant = *tenant;
    let owner = owner(tenant);
    let files_expected = match &message {
        ToDaemon::Channels { new_files, .. } => new_files.len(),
        ToDaemon::Allocated { .. } => 1,
        ToDaemon::Created { handles } => handles.len(),
        ToDaemon::Publish { handles, .. } => handles.len(),
        ToDaemon::Shown { .. } | ToDaemon::HostShown { .. } => 1,
        ToDaemon::Prepared { questions } => questions.len(),
        _ => 0,
    };
    if files.len() != files_expected {
        return Err(Ended::OutOfOrder("a message brought another number of files than it should"));
    }
    if !files.iter().all(closes_at_once) {
        return Err(Ended::OutOfOrder("a file that stands for no memory and no driver"));
    }
    let numbers = |handles: &[wire::HandleId]| handles.iter().map(|handle| handle.0).collect();
    match message {
        ToDaemon::Channels { generation, new_files, groups } => {
            let channels = grip.report(generation, new_files, groups, files)?;
            tell(ears, Input::Channels(tenant, channels))
        }
        ToDaemon::Allocated { grant, handle, passable } => {
            if handle.bytes == 0 || !handle.bytes.is_multiple_of(BLOCK_BYTES) {
                return Err(Ended::OutOfOrder("a handle's size is not a multiple of 2 MiB"));
            }
            if handle.bytes > HANDLE_BYTES_MAX {
                return Err(Ended::OutOfOrder("a handle is larger than 256 MiB"));
            }
            let owned = Owned { tenant, handle: HandleId(handle.handle.0) };
            let shown = Shown { file: only(files)?, passable };
            tell(ears, Input::Allocated(RequestId(grant.0), owned, Bytes(handle.bytes), shown))
        }
        ToDaemon::Grow { grant, bytes } => tell(ears, Input::Grow(tenant, RequestId(grant.0), Bytes(bytes))),
        ToDaemon::Returned { grant } => tell(ears, Input::Returned(tenant, RequestId(grant.0))),
        ToDaemon::Freed { handles } => {
            // Both ways: a move under way must know at once, and the books follow in order.
            answer(replies, Reply::Freed { owner, handles: numbers(&handles) })?;
            tell(ears, Input::Freed(tenant, in_core(&handles)))
        }
        ToDaemon::Unmapped { handles } => {
            answer(replies, Reply::Unmapped { owner, handles: numbers(&handles) })
        }
        ToDaemon::Created { handles } if handles.len() <= HANDLES_MAX => {
            answer(replies, Reply::Created { owner, handles: numbers(&handles), files })
        }
        ToDaemon::Created { .. } => Err(Ended::OutOfOrder("too many handles in one message")),
        ToDaemon::Taken { handles } => answer(replies, Reply::Taken { owner, handles: numbers(&handles) }),
        ToDaemon::Failed { handles, code, call } => {
            answer(replies, Reply::Failed { owner, handles: numbers(&handles), code, call })
        }
        ToDaemon::Prepared { questions } if questions.len() <= HANDLES_MAX => {
            answer(replies, Reply::Prepared { owner, questions: in_mover(&questions), files })
        }
        ToDaemon::Prepared { .. } => Err(Ended::OutOfOrder("too many handles in one message")),
        ToDaemon::Exchanged { questions } => {
            answer(replies, Reply::Exchanged { owner, questions: in_mover(&questions) })
        }
        ToDaemon::Stayed { questions, code, call } => {
            answer(replies, Reply::Stayed { owner, questions: in_mover(&questions), code, call })
        }
        ToDaemon::Wants { since_ns } => tell(ears, Input::Wants(tenant, since_ns)),
        ToDaemon::Hint { at_ns, source } => tell(ears, Input::Hint(tenant, at_ns, source)),
        ToDaemon::Served => tell(ears, Input::Served(tenant)),
        ToDaemon::Phase => tell(ears, Input::Phase(tenant)),
        ToDaemon::Set { request, class, weight } => {
            let change = Box::new(Change { class, weight, ..Change::default() });
            tell(ears, Input::Set(tenant, RequestId(request.0), change))
        }
        ToDaemon::Pin { handles, .. } | ToDaemon::Unpin { handles } if handles.len() > HANDLES_MAX => {
            Err(Ended::OutOfOrder("too many handles in one message"))
        }
        ToDaemon::Pin { request, handles } => {
            tell(ears, Input::Pin(tenant, RequestId(request.0), in_core(&handles)))
        }
        ToDaemon::Unpin { handles } => tell(ears, Input::Unpin(tenant, in_core(&handles))),
        ToDaemon::Keep { grant, bytes } => tell(ears, Input::Keep(tenant, RequestId(grant.0), Bytes(bytes))),
        ToDaemon::Kept { grant, handle } => {
            if handle.bytes == 0 || !handle.bytes.is_multiple_of(BLOCK_BYTES) {
                return Err(Ended::OutOfOrder("a handle's size is not a multiple of 2 MiB"));
            }
            let owned = Owned { tenant, handle: HandleId(handle.handle.0) };
            tell(ears, Input::Kept(RequestId(grant.0), owned, Bytes(handle.bytes)))
        }
        ToDaemon::GrowHost { grant, bytes } => {
            tell(ears, Input::GrowHost(tenant, RequestId(grant.0), Bytes(bytes)))
        }
        ToDaemon::Hosted { grant, handle } => {
            let (handle, bytes) = on_host(&handle)?;
            tell(ears, Input::Hosted(RequestId(grant.0), Owned { tenant, handle }, bytes))
        }
        ToDaemon::HostedBefore { handles } if handles.len() <= HANDLES_MAX => {
            let handles = handles.iter().map(on_host).collect::<Result<_, _>>()?;
            tell(ears, Input::HostedBefore(tenant, handles))
        }
        ToDaemon::HostedBefore { .. } => Err(Ended::OutOfOrder("too many handles in one message")),
        ToDaemon::HostShown { handle } => {
            let (handle, bytes) = on_host(&handle)?;
            tell(ears, Input::HostShown(Owned { tenant, handle }, bytes, only(files)?))
        }
        ToDaemon::Shown { handle, passable } => {
            let owned = Owned { tenant, handle: HandleId(handle.0) };
            tell(ears, Input::Shown(owned, Shown { file: only(files)?, passable }))
        }
        ToDaemon::Publish { handles, .. } if handles.is_empty() || handles.len() > HANDLES_MAX => {
            Err(Ended::OutOfOrder("no handles, or too many, in one message"))
        }
        ToDaemon::Publish { request, token, handles, complete } => {
            let request = RequestId(request.0);
            tell(ears, Input::Publish(tenant, Publish { request, token, handles, files, complete }))
        }
        ToDaemon::Open { request, token } => tell(ears, Input::Open(tenant, RequestId(request.0), token)),
        ToDaemon::Closed { token } => tell(ears, Input::CloseOpened(tenant, token)),
        ToDaemon::Drained { generation } => {
            grip.drained(generation);
            Ok(())
        }
        ToDaemon::Vacated { number } => {
            grip.vacated(number, None);
            Ok(())
        }
        ToDaemon::Occupied { number, by } => {
            grip.vacated(number, Some(by));
            Ok(())
        }
        ToDaemon::Hello { .. }
        | ToDaemon::List { .. }
        | ToDaemon::Command { .. }
        | ToDaemon::Rejoin { .. }
        | ToDaemon::Has { .. }
        | ToDaemon::Survey { .. } => Err(Ended::OutOfOrder("a greeting in the middle of a conversation")),
    }
}

fn in_mover(questions: &[wire::Question]) -> Vec<Question> {
    questions.iter().map(|it| Question { handle: it.handle.0, number: it.number }).collect()
}

/// A handle in the host's memory, if it can be one.
fn on_host(handle: &SizedHandle) -> Result<(HandleId, Bytes), Ended> {
    if handle.bytes == 0 || !handle.bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(Ended::OutOfOrder("a handle's size is not a multiple of 2 MiB"));
    }
    if handle.bytes > HANDLE_BYTES_MAX {
        return Err(Ended::OutOfOrder("a handle is larger than 256 MiB"));
    }
    Ok((HandleId(handle.handle.0), Bytes(handle.bytes)))
}

/// Whether the daemon can close a file without waiting for anybody: one that lies in a file system of the tenant's own making
/// is closed when that says so.
pub(super) fn closes_at_once(file: &OwnedFd) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const HUGETLBFS: i64 = 0x9584_58f6;
    let Ok(found) = rustix::fs::fstat(file) else { return false };
    let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
    let lies_somewhere = matches!(kind, rustix::fs::FileType::RegularFile | rustix::fs::FileType::Directory);
    !lies_somewhere
        || rustix::fs::fstatfs(file).is_ok_and(|system| [TMPFS, HUGETLBFS].contains(&system.f_type))
}

/// The file of a message that brings one.
fn only(files: Vec<OwnedFd>) -> Result<OwnedFd, Ended> {
    files.into_iter().next().ok_or(Ended::OutOfOrder("a message without its file"))
}

fn answer(replies: &Sender<Reply>, reply: Reply) -> Result<(), Ended> {
    replies.send(reply).map_err(|_| Ended::Stopping)
}
