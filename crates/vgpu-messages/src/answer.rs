//! What is answered.

use serde::{Deserialize, Serialize};

use crate::device::DeviceDescription;
use crate::figures::Figures;
use crate::graph::NodeWork;
use crate::ids::*;
use crate::memory::{Access, PointerFacts};
use crate::module::Entry;
use crate::stream::{CaptureFacts, CaptureMode, StreamFacts};

/// A driver result code, as `CUresult` numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code(pub u32);

impl From<cuda::CUresult> for Code {
    fn from(code: cuda::CUresult) -> Self {
        Self(code.0)
    }
}

impl From<Code> for cuda::CUresult {
    fn from(code: Code) -> Self {
        Self(code.0)
    }
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What the driver function returns.
    pub code: Code,
    /// What to tell the program's user on stderr, once: only where the code alone would leave one puzzled.
    pub notice: Option<String>,
}

impl From<cuda::CUresult> for Refusal {
    fn from(code: cuda::CUresult) -> Self {
        Self { code: code.into(), notice: None }
    }
}

/// What comes back for each [`crate::Request`], on the same connection.
pub type Reply = Result<Answer, Refusal>;

/// A request that was done. Each request's documentation says which one it gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Done; nothing to tell.
    Done,
    /// The session, and the machine.
    Welcome {
        /// To be named by the other threads of the process.
        session: SessionId,
        /// The device's process, which has to be allowed to read and write this one's memory.
        device_pid: i32,
        /// All GPUs of the machine.
        devices: Vec<DeviceDescription>,
    },
    /// A file is attached.
    File,
    /// An RM call went through, in the driver's sense: the status is in the argument.
    Ioctl {
        /// The argument as the device left it.
        argument: Vec<u8>,
        /// The parameters as the device left them.
        parameters: Vec<u8>,
    },
    /// The attached file is no control file of this device: the call belongs to somebody else.
    NotAControlFile,
    /// A new context.
    Context(ContextId),
    /// An address.
    Address(Address),
    /// An address and the pitch of its rows.
    Pitched {
        /// Where it begins.
        address: Address,
        /// Bytes from row to row.
        pitch_bytes: u64,
    },
    /// Bytes free and in all.
    Memory {
        /// Free.
        free_bytes: u64,
        /// In all.
        total_bytes: u64,
    },
    /// A range.
    Range {
        /// Where it begins.
        base: Address,
        /// Its size.
        bytes: u64,
    },
    /// What is known of an address.
    Pointer(PointerFacts),
    /// A physical allocation.
    Handle(HandleId),
    /// A number: a size, flags, an attribute.
    Number(u64),
    /// What a device may do with a mapping.
    Access(Access),
    /// What a physical allocation is.
    HandleProperties(crate::memory::HandleProperties),
    /// A pool.
    Pool(PoolId),
    /// A new stream.
    Stream(StreamId),
    /// What is known of a stream.
    StreamFacts(StreamFacts),
    /// A new event.
    Event(EventId),
    /// The time between two events.
    Elapsed {
        /// In nanoseconds of device time.
        nanos: u64,
    },
    /// The mode that was in force before.
    CaptureMode(CaptureMode),
    /// Whether a stream is being captured.
    Capture(CaptureFacts),
    /// A new graph.
    Graph(GraphId),
    /// A new node.
    Node(NodeId),
    /// Nodes.
    Nodes(Vec<NodeId>),
    /// Edges: from, to.
    Edges(Vec<(NodeId, NodeId)>),
    /// What a node does.
    NodeWork(NodeWork),
    /// A new executable graph.
    GraphExec(GraphExecId),
    /// A loaded module.
    Module {
        /// The module.
        module: ModuleId,
        /// Its entries.
        entries: Vec<Entry>,
        /// Its variables: name, address, size.
        variables: Vec<(String, Address, u64)>,
    },
    /// What a GPU is doing.
    Figures(Figures),
}

/// What the device sends by itself, only on a connection that asked for [`crate::Request::ServeCallbacks`].
/// Each is answered with [`crate::Request::CallbackDone`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// To be named when it is done.
    pub id: CallbackId,
    /// What to call.
    pub call: crate::work::HostCall,
    /// The state of the stream, for callbacks of `cuStreamAddCallback`.
    pub status: Code,
}
