//! What becomes of a request: an answer now, or one that waits for work or time.

use cuda::CUresult;
use vgpu_messages::quantity::Nanos;
use vgpu_messages::{Answer, Callback, ContextId, Refusal, Reply, StreamId};

use crate::item::ItemId;
use crate::rm::{FileKey, Grip};
use crate::session::ConnectionId;

/// What a family's handler returns.
pub type Handled = Result<Outcome, Refusal>;

/// What becomes of a request that was not refused.
#[derive(Debug)]
pub enum Outcome {
    /// Answered now.
    Answer(Answer),
    /// Answered now, with a file of this number.
    File(FileKey, FileKind),
    /// When these items are done; refused if the context has an error then.
    After {
        /// Which.
        items: Vec<ItemId>,
        /// Whose.
        context: ContextId,
        /// What then.
        then: Then,
    },
    /// When a stream has room for more.
    WithRoom(StreamId, Answer),
    /// When so much time has passed.
    In(Nanos, Then),
    /// Never.
    Silent,
}

/// What is done when a wait is over.
#[derive(Debug)]
pub enum Then {
    /// Only the answer.
    Answer(Answer),
    /// Memory of `cuMemAlloc` goes.
    Free(vgpu_messages::SessionId, u64),
    /// A context goes.
    DestroyContext(ContextId),
    /// A host range goes.
    Unregister(vgpu_messages::SessionId, u64),
    /// Channels are taken off or put back.
    Grip(Grip, Answer),
    /// A process is locked, if it is at rest by now.
    Lock(vgpu_messages::SessionId),
}

/// A kind of file that the device gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A control file.
    Control,
    /// An exported handle.
    Export,
}

/// Something to be sent.
#[derive(Debug)]
pub enum Outgoing {
    /// A reply, maybe with a file that is to be made.
    Reply(ConnectionId, Reply, Option<(FileKey, FileKind)>),
    /// A callback.
    Callback(ConnectionId, Callback),
}

/// A refusal with a word to the program's user.
pub fn refuse(code: CUresult, notice: String) -> Refusal {
    Refusal { code: code.into(), notice: Some(notice) }
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}
