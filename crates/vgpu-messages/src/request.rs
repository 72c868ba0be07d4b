//! Everything a program can ask of the device, by family.
//!
//! One request at a time on a connection; its [`Reply`](crate::Reply) comes when the driver function may return. A
//! request that has to wait (synchronise, a blocking copy) is answered late, and other connections go on meanwhile.

use serde::{Deserialize, Serialize};

use crate::checkpoint::CheckpointStep;
use crate::graph::GraphRequest;
use crate::host::HostRequest;
use crate::ids::*;
use crate::memory::MemoryRequest;
use crate::module::ModuleRequest;
use crate::pool::PoolRequest;
use crate::stream::{CaptureMode, EventRequest, StreamRequest};
use crate::work::WorkRequest;

/// One request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// The first on each connection. Answered by [`Welcome`](crate::Answer::Welcome).
    Hello {
        /// [`crate::VERSION`].
        version: u32,
        /// None on the first connection of a process; what it was told, on those of further threads. The process is
        /// known by the connection's credentials; a child after fork begins with None.
        session: Option<SessionId>,
    },
    /// A new control file (`/dev/nvidiactl`), attached to the answer [`File`](crate::Answer::File). A process's memory,
    /// contexts and channels live until every copy of its control files is closed, in whatever process.
    OpenControl,
    /// An RM call, with the file that it was made on attached. Answered by [`Ioctl`](crate::Answer::Ioctl), or
    /// [`NotAControlFile`](crate::Answer::NotAControlFile).
    Ioctl {
        /// The request number.
        request: u32,
        /// The argument, as long as the request says (unwrapped, if it came in an XFER).
        argument: Vec<u8>,
        /// The parameters that the argument points to, as long as it says.
        parameters: Vec<u8>,
    },
    /// Contexts.
    Context(ContextRequest),
    /// Device memory.
    Memory(MemoryRequest),
    /// Host memory that the device knows.
    Host(HostRequest),
    /// Stream-ordered allocation.
    Pool(PoolRequest),
    /// Streams.
    Stream(StreamRequest),
    /// Events.
    Event(EventRequest),
    /// Work for a stream.
    Work(WorkRequest),
    /// Graphs, and capture.
    Graph(GraphRequest),
    /// Modules.
    Module(ModuleRequest),
    /// Sets how this thread's (this connection's) calls behave while some stream is being captured. Answered by
    /// [`CaptureMode`](crate::Answer::CaptureMode): the one before. A connection begins with global.
    ExchangeCaptureMode(CaptureMode),
    /// From now on this connection serves the process's host callbacks: it receives [`Callback`](crate::Callback)s and
    /// sends [`CallbackDone`](Request::CallbackDone), nothing else. Answered by [`Done`](crate::Answer::Done).
    ServeCallbacks,
    /// A callback returned. Not answered.
    CallbackDone(CallbackId),
    /// What a GPU is doing. Answered by [`Figures`](crate::Answer::Figures). Needs no context.
    Figures(DeviceId),
    /// A step of the driver's checkpoint of a process. Answered by [`Done`](crate::Answer::Done), if that is not said otherwise.
    Checkpoint {
        /// Which process.
        pid: i32,
        /// The step.
        step: CheckpointStep,
    },
}

/// Contexts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContextRequest {
    /// Makes a context on channel groups that were allocated by RM calls before. Costs device memory and time.
    /// Answered by [`Context`](crate::Answer::Context).
    Create {
        /// On which GPU.
        device: DeviceId,
        /// The RM client of the groups: one of this process.
        client: u32,
        /// Its compute group.
        compute_group: u32,
        /// Its copy groups: the first for copies to the device, the second for those from it.
        copy_groups: Vec<u32>,
        /// As `cuCtxCreate` takes them.
        flags: u32,
    },
    /// Ends a context: waits for its work, gives back its memory, streams, events, modules. The client frees the RM
    /// objects afterwards. Works on a context with a sticky error.
    Destroy(ContextId),
    /// Answered when all work of the context is done.
    Synchronize(ContextId),
    /// Whether the context is usable: [`Done`](crate::Answer::Done), or its sticky error.
    Check(ContextId),
    /// The context may reach memory of another GPU from now on.
    EnablePeer {
        /// Which.
        context: ContextId,
        /// A context on the other GPU.
        peer: ContextId,
    },
    /// The reverse.
    DisablePeer {
        /// Which.
        context: ContextId,
        /// A context on the other GPU.
        peer: ContextId,
    },
}
