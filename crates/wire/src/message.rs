//! The messages, in the order a conversation has them.

use crate::{Answer, Class, Command, FileId, GrantId, HandleId, HintSource, Listing, TenantId, Token};
use serde::{Deserialize, Serialize};

/// A handle with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizedHandle {
    /// Which one.
    pub handle: HandleId,
    /// How large: a multiple of [`crate::BLOCK_BYTES`], at most [`crate::HANDLE_BYTES_MAX`] unless it is kept.
    pub bytes: u64,
}

/// Where a handle belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Home {
    /// On its device.
    Device,
    /// In the host's memory, mapped at an address of the device.
    Host,
}

/// A question for memory of a handle in another home. Whatever is said about that memory names it: with the number, so that what
/// is said late about one question is not taken for another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Whose memory.
    pub handle: HandleId,
    /// The daemon's name for this question, never used again on a connection.
    pub number: u64,
}

/// A channel group of a tenant, and all that is needed to freeze it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelGroup {
    /// The control file that its client was made with.
    pub file: FileId,
    /// The resource manager's client.
    pub client: u32,
    /// The subdevice that takes the control.
    pub subdevice: u32,
    /// The group's own handle, for its time slice.
    pub group: u32,
    /// The engine type: 1 is compute, 9 and up are copy engines.
    pub engine: u32,
    /// Its channels.
    pub channels: Vec<u32>,
}

/// A GPU that a program can be a tenant of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedGpu {
    /// Its UUID, as `GPU-…`.
    pub uuid: String,
    /// Its size as the daemon treats it.
    pub capacity_bytes: u64,
}

/// What a tenant or the command line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToDaemon {
    /// First word of a tenant. Answered by `Welcome` or `Refused`.
    Hello {
        /// [`crate::VERSION`] of the sender.
        version: u32,
        /// The job that this process belongs to.
        job: String,
        /// The program's name, for people.
        program: String,
        /// UUIDs of the GPUs that the program sees, in its own order.
        gpus: Vec<String>,
    },
    /// All channel groups of the tenant as of `generation`; replaces what was said before. Carries one file for each
    /// of `new_files`, in that order.
    Channels {
        /// The page's channel generation that this list covers.
        generation: u64,
        /// Control files that the daemon has not seen yet.
        new_files: Vec<FileId>,
        /// Every group there is now.
        groups: Vec<ChannelGroup>,
    },
    /// Asks for bytes on the device. Answered by `Granted`, perhaps much later, or `Denied`.
    Grow {
        /// The tenant's name for this request.
        grant: GrantId,
        /// How many bytes: a multiple of [`crate::BLOCK_BYTES`].
        bytes: u64,
    },
    /// A grant, or part of one, was used for this handle. Carries the handle's file.
    Allocated {
        /// The grant that covers it.
        grant: GrantId,
        /// What was made.
        handle: SizedHandle,
        /// Nobody else has this memory or will, and that of another tenant may be put in its place (`Take`): see `Pin` for the
        /// end of it.
        passable: bool,
    },
    /// A grant, or the rest of one, will not be used: the driver refused, or it was freed again.
    Returned {
        /// Which grant.
        grant: GrantId,
    },
    /// The tenant freed these; it holds nothing of them any more.
    Freed {
        /// Which ones.
        handles: Vec<HandleId>,
    },
    /// Done with `Unmap`: the tenant holds no memory for these any more.
    Unmapped {
        /// Which ones.
        handles: Vec<HandleId>,
    },
    /// Done with `Create`: new memory lies under the old addresses. Carries one file per handle, in that order.
    Created {
        /// Which ones.
        handles: Vec<HandleId>,
    },
    /// `Unmap`, `Create` or `Take` failed for these; they are as they were before.
    Failed {
        /// Which ones.
        handles: Vec<HandleId>,
        /// The CUDA error code.
        code: u32,
        /// The call that failed.
        call: String,
    },
    /// First and only word of the command line: who is there? Answered by `Listing`.
    List {
        /// [`crate::VERSION`] of the sender.
        version: u32,
    },
    /// First and only word of the command line: something else. Answered by `Answer`.
    Command {
        /// [`crate::VERSION`] of the sender.
        version: u32,
        /// What is wanted.
        command: Command,
    },
    /// A tenant that was idle and watched ([`crate::Page`]) has work for the GPU.
    Wants {
        /// Since this instant of the monotonic clock ([`crate::monotonic_ns`]).
        since_ns: u64,
    },
    /// From now on these must stay on the device. Answered by `Pinned` once they are there and nothing moves them any more,
    /// or by `Denied`. Counts: what was pinned twice is unpinned twice, or freed. Others may have them from now on, so they are
    /// not passable any more, also when they are unpinned.
    Pin {
        /// The tenant's name for this request, of those for bytes.
        request: GrantId,
        /// Which ones; at most [`crate::HANDLES_MAX`].
        handles: Vec<HandleId>,
    },
    /// These may be moved again, once they are no longer pinned by another `Pin`.
    Unpin {
        /// Which ones; at most [`crate::HANDLES_MAX`].
        handles: Vec<HandleId>,
    },
    /// A grant, or part of one, was used for memory of the driver's own, which no file stands for and which can never move.
    /// It ends by `Freed`.
    Kept {
        /// The grant that covers it.
        grant: GrantId,
        /// What was made, of any size.
        handle: SizedHandle,
    },
    /// Other processes of the same user may open these, which are pinned. Carries one file per handle, in that order. Several
    /// of these messages make one whole. The last is answered by `Published` or `Denied`.
    Publish {
        /// The tenant's name for this request, of those for bytes.
        request: GrantId,
        /// The name that others open it by.
        token: Token,
        /// Which ones, in the order of their addresses.
        handles: Vec<SizedHandle>,
        /// Is this the last of them?
        complete: bool,
    },
    /// Asks for what another tenant published. Answered by `Opened` or `Denied`.
    Open {
        /// The tenant's name for this request, of those for bytes.
        request: GrantId,
        /// What is wanted.
        token: Token,
    },
    /// What was opened is not mapped any more.
    Closed {
        /// What was opened, once for each `Opened`.
        token: Token,
    },
    /// Done with `Drain`: nothing of the tenant is on the GPU, and nothing comes before the thaw.
    Drained {
        /// The page's freeze generation that this is about.
        generation: u64,
    },
    /// First and only word of a program that sees several GPUs: which of them are shared? Answered by `Shared` or `Refused`.
    Survey {
        /// [`crate::VERSION`] of the sender.
        version: u32,
        /// The job that it belongs to.
        job: String,
        /// UUIDs of the GPUs that it sees.
        gpus: Vec<String>,
    },
    /// Asks for bytes on the device that will be `Kept`. Answered as `Grow`; also denied if others would not find room
    /// beside them.
    Keep {
        /// The tenant's name for this request.
        grant: GrantId,
        /// How many bytes: a multiple of [`crate::BLOCK_BYTES`].
        bytes: u64,
    },
    /// First word of a tenant whose daemon is gone: it is there with its context and its memory, of which `Has` tells next.
    /// Then answered by `Welcome`, `Lost` or `Refused`.
    Rejoin {
        /// [`crate::VERSION`] of the sender.
        version: u32,
        /// The name that it had.
        tenant: TenantId,
        /// The epoch of the daemon that it had.
        epoch: u64,
        /// The job that this process belongs to.
        job: String,
        /// The program's name, for people.
        program: String,
        /// UUID of the GPU that it was on.
        gpu: String,
        /// Whether all of its memory was on the device, by the page's word.
        resident: bool,
        /// Whether it is frozen.
        frozen: bool,
        /// Whether it has channels, and so will tell of them.
        channels: bool,
        /// Whether it is frozen by holding its launches back ([`crate::Page`]), which does not change while it lives.
        holds_launches: bool,
        /// On how many GPUs this process is a tenant: it says this word for each of them, and only gets on with all.
        sessions: u32,
        /// Whether its threads keep out of the driver (`FromDaemon::Vacate`), which no daemon has ended yet.
        vacated: bool,
    },
    /// Memory of a tenant that comes back. Carries one file for each of `here`, in that order. Several of these messages
    /// make one whole. What none of them names is there no more: the tenant has freed it.
    Has {
        /// Memory lies under these.
        here: Vec<SizedHandle>,
        /// Under these there is none.
        away: Vec<SizedHandle>,
        /// Memory lies under these as well, but no file comes with it: it must stay where it is, or cannot be shown just now.
        /// It cannot be moved before `Shown`.
        unshown: Vec<SizedHandle>,
        /// Those of them that are passable (`Allocated`).
        passable: Vec<HandleId>,
        /// Is this the last of them?
        complete: bool,
    },
    /// Asks for bytes of the host's memory, to be mapped at addresses of the device. Answered by `GrantedHost` or `Denied`.
    GrowHost {
        /// The tenant's name for this request.
        grant: GrantId,
        /// How many bytes: a multiple of [`crate::BLOCK_BYTES`].
        bytes: u64,
    },
    /// What a grant has in the host's memory, or part of it, was used for this. No file stands for it: it never moves. It
    /// ends by `Freed`.
    Hosted {
        /// The grant that covers it.
        grant: GrantId,
        /// What was made.
        handle: SizedHandle,
    },
    /// A tenant that came back (`Rejoin`) has these in the host's memory.
    HostedBefore {
        /// Which ones; at most [`crate::HANDLES_MAX`].
        handles: Vec<SizedHandle>,
    },
    /// Memory that a tenant came back with and did not show (`Has`) may be moved from now on. Carries its file.
    Shown {
        /// Which one.
        handle: HandleId,
        /// As in `Allocated`.
        passable: bool,
    },
    /// A request comes, whose kernels follow at about this instant.
    Hint {
        /// On the system's monotonic clock, so that it means the same whenever this is read.
        at_ns: u64,
        /// Who says so.
        source: HintSource,
    },
    /// A request was served: the page says how many are left, and whether there is work.
    Served,
    /// The tenant entered or left a phase in which it gives way, as the page says.
    Phase,
    /// Asks for other terms for the tenant's job. Answered by `Changed` or `Denied`.
    Set {
        /// The tenant's name for this request, of those for bytes.
        request: GrantId,
        /// Another class.
        class: Option<Class>,
        /// Another weight.
        weight: Option<u32>,
    },
    /// Done with `Vacate`: no thread of the program is inside of the driver with anything that uses the GPU.
    Vacated {
        /// Which order this is about.
        number: u64,
    },
    /// Done with `Take`: the memory of those files lies under these.
    Taken {
        /// Which ones.
        handles: Vec<HandleId>,
    },
    /// A handle in the host's memory may have another home: the daemon decides. Carries its file. Those that the program named
    /// are not shown.
    HostShown {
        /// Which one.
        handle: SizedHandle,
    },
    /// Done with `Prepare`: the tenant has memory for these in the other home, mapped nowhere. Carries one file per question, in
    /// that order.
    Prepared {
        /// Which ones.
        questions: Vec<Question>,
    },
    /// Done with `Exchange`: what was prepared lies under their addresses, and what lay there before is gone.
    Exchanged {
        /// Which ones.
        questions: Vec<Question>,
    },
    /// `Prepare` or `Exchange` failed for these; what lies under their addresses is what lay there before, and nothing is
    /// prepared for these questions any more.
    Stayed {
        /// Which ones.
        questions: Vec<Question>,
        /// The CUDA error code.
        code: u32,
        /// The call that failed.
        call: String,
    },
    /// The answer to `Vacate` of a program whose threads are out of the driver, but whose context has to stay. They keep out until
    /// `Reenter` all the same.
    Occupied {
        /// Which order this is about.
        number: u64,
        /// Why.
        by: Occupant,
    },
}

/// What a program has on the GPU that its context cannot be put away with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Occupant {
    /// Work that the driver was given, and that nobody has waited for: some of it may be on the GPU still.
    Work,
    /// Memory of other processes, which it has taken in.
    Foreign,
}

/// What the daemon says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromDaemon {
    /// A tenant is taken in. Carries the file of its [`crate::Page`].
    Welcome {
        /// Its name from now on.
        tenant: TenantId,
        /// UUID of the GPU that is shared, as `GPU-…`.
        gpu: String,
        /// The size of that GPU as the daemon treats it.
        capacity_bytes: u64,
    },
    /// Whoever asked is not taken in; the connection ends.
    Refused {
        /// Why, for people.
        reason: String,
    },
    /// The tenant may allocate now.
    Granted {
        /// Which request.
        grant: GrantId,
    },
    /// The tenant may not allocate: out of memory.
    Denied {
        /// Which request.
        grant: GrantId,
        /// Why, for people.
        reason: String,
    },
    /// Unmap these and release their memory; the tenant is frozen. Answered by `Unmapped` or `Failed`.
    Unmap {
        /// Which ones.
        handles: Vec<HandleId>,
    },
    /// Put new memory under these; the tenant is frozen. Answered by `Created` or `Failed`.
    Create {
        /// Which ones.
        handles: Vec<HandleId>,
    },
    /// Who is there.
    Listing(Listing),
    /// A tenant will be welcomed, but not yet. Said once, so that only silence is a reason to give up.
    Waiting {
        /// For what, for people.
        reason: String,
    },
    /// What became of a command.
    Answer(Box<Answer>),
    /// Done with `Pin`.
    Pinned {
        /// Which request.
        request: GrantId,
    },
    /// Done with `Publish`: others can open it from now on.
    Published {
        /// Which request.
        request: GrantId,
    },
    /// What was asked for with `Open`. Carries one file per size, in that order. Several of these messages make one whole.
    Opened {
        /// Which request.
        request: GrantId,
        /// The sizes of the handles, in the order of their addresses.
        sizes: Vec<u64>,
        /// Is this the last of them?
        complete: bool,
    },
    /// The tenant is frozen by holding its launches back ([`crate::Page`]): what was launched before is to end. Answered by
    /// `Drained`, or by nothing if it does not end before the thaw.
    Drain {
        /// The page's freeze generation that this is about.
        generation: u64,
    },
    /// A tenant has waited at the door for as long as its job is willing to: the program is to end.
    GaveUp {
        /// What it waited for, and how long, for people.
        reason: String,
    },
    /// These GPUs that a program sees are shared, and how large each is for its job.
    Shared {
        /// Some of those that were named.
        gpus: Vec<SharedGpu>,
    },
    /// Memory of a tenant that comes back is nowhere any more, or the daemon has given the tenant up: the program is to end.
    Lost {
        /// What is lost, and why, for people.
        reason: String,
    },
    /// The tenant may allocate now, but not all of it on the device.
    GrantedHost {
        /// Which request.
        grant: GrantId,
        /// How much of it has to be in the host's memory.
        host_bytes: u64,
    },
    /// The tenant is to look at its page ([`crate::Page`]): a request is about to come, and the GPU is free for it, so that its
    /// context is to be loaded by a launch; or it is about to be free.
    WarmUp,
    /// Done with `Set`.
    Changed {
        /// Which request.
        request: GrantId,
    },
    /// From now on no thread of the program may enter the driver with anything that uses the GPU, frozen or not, until
    /// `Reenter`, and whoever is the daemon then. Answered by `Vacated` when none is inside any more.
    Vacate {
        /// The daemon's name for this order.
        number: u64,
    },
    /// The program's threads may enter the driver again.
    Reenter,
    /// Put memory that another tenant had under these, which are passable; the tenant is frozen. Their own bytes are in it. Carries
    /// one file per handle, in that order. Answered by `Taken` or `Failed`.
    Take {
        /// Which ones.
        handles: Vec<HandleId>,
    },
    /// Make memory for these in another home, mapped nowhere, beside what they have. Answered by `Prepared` or `Stayed`, or not
    /// at all where `Discard` comes first. What was prepared for their handles before is not wanted any more.
    Prepare {
        /// Which ones.
        questions: Vec<Question>,
        /// Where.
        home: Home,
    },
    /// What was prepared for these has their bytes: it, and nothing that was prepared for another question, is to lie under their
    /// addresses; the tenant is frozen. Answered by `Exchanged` or `Stayed`.
    Exchange {
        /// Which ones.
        questions: Vec<Question>,
    },
    /// What was prepared for these, or is to be, is not wanted any more. Not answered.
    Discard {
        /// Which ones.
        questions: Vec<Question>,
    },
}
