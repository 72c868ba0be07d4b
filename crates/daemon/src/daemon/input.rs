//! What reaches the main loop.

use super::commands::Asked;
use super::deep::Told;
use super::publications::Publish;
use super::rejoining::{Applicant, Returner};
use crate::conversation::{Belonging, Taken};
use crate::executable::Seen;
use crate::executor::Done;
use crate::machine::{Books, Sight};
use sched::{Bytes, HandleId, JobId, Owned, RequestId, TenantId};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;
use wire::{Change, Connection, FromDaemon, HintSource, Listing, Token};

/// Someone who said hello.
#[derive(Debug)]
pub struct Newcomer {
    /// Its process, by the kernel's word.
    pub process: keeper::Process,
    /// Whose process.
    pub uid: u32,
    /// The file that it runs, by the kernel's word, if anything depends on it.
    pub executable: Seen,
    /// Whose memory it may have, by the kernel's word.
    pub domain: Option<Belonging>,
    /// Its job.
    pub job: String,
    /// The program's name.
    pub program: String,
    /// The GPUs that it sees, by UUID, in its own order.
    pub gpus: Vec<String>,
    /// How to speak to it.
    pub connection: Arc<Connection>,
    /// Gets what it is from now on; dropped if it is refused.
    pub answer: Sender<Taken>,
}

/// The memory of a handle.
#[derive(Debug)]
pub struct Shown {
    /// Stands for it.
    pub file: OwnedFd,
    /// The tenant says that nobody else has it.
    pub passable: bool,
}

/// What reaches the main loop.
#[derive(Debug)]
pub enum Input {
    /// A tenant wants in.
    Hello(Newcomer),
    /// Would somebody of an earlier worker be taken in? If not, the answer says why.
    MayRejoin(Box<Applicant>, Sender<Result<(), FromDaemon>>),
    /// A tenant of an earlier worker is here.
    Rejoin(Box<Returner>),
    /// Someone at the door went away.
    Deserted(Arc<Connection>),
    /// A tenant has this many channels now.
    Channels(TenantId, usize),
    /// A tenant that was idle has work, since this instant of the monotonic clock by its own word.
    Wants(TenantId, u64),
    /// A tenant has kernels at this instant of the monotonic clock, says whoever gives the hint.
    Hint(TenantId, u64, HintSource),
    /// A tenant has served a request.
    Served(TenantId),
    /// A tenant entered or left a phase in which it gives way.
    Phase(TenantId),
    /// A tenant asks for other terms for its job.
    Set(TenantId, RequestId, Box<Change>),
    /// A tenant asks for bytes.
    Grow(TenantId, RequestId, Bytes),
    /// A grant became a handle of so many bytes.
    Allocated(RequestId, Owned, Bytes, Shown),
    /// A grant is not used.
    Returned(TenantId, RequestId),
    /// Handles were freed.
    Freed(TenantId, Vec<HandleId>),
    /// Handles must stay on the device.
    Pin(TenantId, RequestId, Vec<HandleId>),
    /// Handles need not stay any more.
    Unpin(TenantId, Vec<HandleId>),
    /// Others may open this.
    Publish(TenantId, Publish),
    /// A tenant wants what another one published.
    Open(TenantId, RequestId, Token),
    /// It does not use that any more.
    CloseOpened(TenantId, Token),
    /// A tenant asks for bytes that will never move.
    Keep(TenantId, RequestId, Bytes),
    /// A grant became memory of so many bytes that never moves.
    Kept(RequestId, Owned, Bytes),
    /// A tenant asks for bytes of the host's memory.
    GrowHost(TenantId, RequestId, Bytes),
    /// What a grant has there became a handle of so many bytes.
    Hosted(RequestId, Owned, Bytes),
    /// A tenant of an earlier worker has these there.
    HostedBefore(TenantId, Vec<(HandleId, Bytes)>),
    /// A handle in the host's memory may change its home.
    HostShown(Owned, Bytes, OwnedFd),
    /// A handle that a tenant of an earlier worker came back with, and did not show then.
    Shown(Owned, Shown),
    /// A tenant of an earlier worker, known by its number, hung up without a word, and lives. True is answered if that is
    /// all, and it may come again; otherwise it is to be taken for gone.
    LetGo(TenantId, keeper::Process, Sender<bool>),
    /// A tenant is gone, seen at this instant.
    Left(TenantId, Instant),
    /// A tenant that hung up is still alive.
    Lingers(TenantId),
    /// Its process is gone and its control files are closed.
    Closed(TenantId),
    /// Who is there?
    List(Sender<Listing>),
    /// Something else that people want.
    Command(Asked),
    /// Which of these GPUs are shared, and how large are they for a job of a user?
    Survey {
        /// The user.
        uid: u32,
        /// The job's name.
        job: String,
        /// The GPUs, by UUID.
        gpus: Vec<String>,
        /// Gets the answer.
        answer: Sender<FromDaemon>,
    },
    /// A process that began a job is gone.
    RootGone(JobId, u32),
    /// The executor has finished something.
    Done(Done),
    /// End when the last tenant has left; said twice, at once.
    Stop,
    /// The GPU is gone, for this reason. End at once: nothing can be done for anybody.
    Lost(String),
    /// NVML is about to be asked: what do the books say?
    Look(Sender<Books>),
    /// What NVML says of a GPU.
    Sight(Sight),
    /// What became of a program that was to be put away, or brought back.
    Deep(Told),
}
