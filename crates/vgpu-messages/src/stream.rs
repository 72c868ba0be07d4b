//! Streams, events and the state of captures.

use serde::{Deserialize, Serialize};

use crate::ids::*;

/// A stream as a program names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StreamRef {
    /// The legacy default stream: 0 in functions without a suffix, and `CU_STREAM_LEGACY`.
    Legacy,
    /// The calling thread's (the connection's) default stream: 0 in `_ptsz` and `_ptds` functions, and
    /// `CU_STREAM_PER_THREAD`.
    PerThread,
    /// One that the program made.
    Made(StreamId),
}

/// Requests about streams. The context is the current one; it names the default streams, and must be usable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamRequest {
    /// Makes one. Answered by [`Stream`](crate::Answer::Stream).
    Create {
        /// In which context.
        context: ContextId,
        /// 1: does not wait for the legacy stream.
        flags: u32,
        /// Kept, and without effect.
        priority: i32,
    },
    /// Ends one; its work goes on to its end.
    Destroy {
        /// The current context.
        context: ContextId,
        /// Which.
        stream: StreamRef,
    },
    /// Whether its work is done: [`Done`](crate::Answer::Done), or refused with NOT_READY or the sticky error.
    Query {
        /// The current context.
        context: ContextId,
        /// Which.
        stream: StreamRef,
    },
    /// Answered when its work is done.
    Synchronize {
        /// The current context.
        context: ContextId,
        /// Which.
        stream: StreamRef,
    },
    /// Answered by [`StreamFacts`](crate::Answer::StreamFacts).
    Facts {
        /// The current context.
        context: ContextId,
        /// Which.
        stream: StreamRef,
    },
}

/// What is known of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamFacts {
    /// Its context.
    pub context: ContextId,
    /// Its flags.
    pub flags: u32,
    /// Its priority.
    pub priority: i32,
    /// `cuStreamGetId`: unique on the machine.
    pub number: u64,
}

/// Requests about events. Recording and waiting are [work](crate::work::Work).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventRequest {
    /// Makes one. Answered by [`Event`](crate::Answer::Event).
    Create {
        /// In which context.
        context: ContextId,
        /// As `cuEventCreate` takes them: 2 keeps no time.
        flags: u32,
    },
    /// Ends one.
    Destroy(EventId),
    /// Whether what was recorded is done: [`Done`](crate::Answer::Done), or refused with NOT_READY.
    Query(EventId),
    /// Answered when what was recorded is done.
    Synchronize(EventId),
    /// The time between two. Answered by [`Elapsed`](crate::Answer::Elapsed), or refused with NOT_READY.
    Elapsed {
        /// From.
        start: EventId,
        /// To.
        end: EventId,
    },
}

/// How a thread's calls behave while some stream is being captured; and the mode of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CaptureMode {
    /// Unsafe calls are refused during any capture in this mode.
    #[default]
    Global,
    /// Unsafe calls are refused during this thread's captures.
    ThreadLocal,
    /// Nothing is refused.
    Relaxed,
}

/// Whether a stream is being captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CaptureStatus {
    /// No.
    None,
    /// Yes.
    Active,
    /// It was spoilt, and has to be ended.
    Invalidated,
}

/// The state of a stream's capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureFacts {
    /// Whether.
    pub status: CaptureStatus,
    /// Unique to the capture; 0 when there is none.
    pub id: u64,
    /// The graph being captured into.
    pub graph: Option<GraphId>,
    /// The nodes that the next one would depend on.
    pub dependencies: Vec<NodeId>,
}
