//! Graphs, their executable form, and capture.

use serde::{Deserialize, Serialize};

use crate::ids::*;
use crate::stream::{CaptureMode, StreamRef};
use crate::work::Work;

/// What a node does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodeWork {
    /// Nothing.
    Empty,
    /// A copy, memset, launch, host call, event record or event wait, in this context.
    Work {
        /// The context it runs in.
        context: ContextId,
        /// What.
        work: Work,
    },
    /// Another graph, copied when added.
    Child(GraphId),
}

/// Requests about graphs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GraphRequest {
    /// `cuStreamBeginCapture`.
    BeginCapture {
        /// The current context.
        context: ContextId,
        /// Which.
        stream: StreamRef,
        /// How.
        mode: CaptureMode,
    },
    /// `cuStreamEndCapture`. Answered by [`Graph`](crate::Answer::Graph).
    EndCapture {
        /// The current context.
        context: ContextId,
        /// Which.
        stream: StreamRef,
    },
    /// `cuStreamIsCapturing`, `cuStreamGetCaptureInfo`. Answered by [`Capture`](crate::Answer::Capture).
    CaptureFacts {
        /// The current context.
        context: ContextId,
        /// Which.
        stream: StreamRef,
    },
    /// `cuStreamUpdateCaptureDependencies`.
    SetCaptureDependencies {
        /// The current context.
        context: ContextId,
        /// Which.
        stream: StreamRef,
        /// The nodes.
        nodes: Vec<NodeId>,
        /// In place of those it has; otherwise beside them.
        replace: bool,
    },
    /// Answered by [`Graph`](crate::Answer::Graph).
    Create,
    /// A copy. Answered by [`Graph`](crate::Answer::Graph).
    Clone(GraphId),
    /// Ends one.
    Destroy(GraphId),
    /// Adds a node. Answered by [`Node`](crate::Answer::Node).
    Add {
        /// To which.
        graph: GraphId,
        /// After these.
        dependencies: Vec<NodeId>,
        /// What it does.
        work: NodeWork,
    },
    /// Takes a node away, with its edges.
    Remove(NodeId),
    /// Adds edges: from, to.
    AddEdges {
        /// To which.
        graph: GraphId,
        /// The edges.
        edges: Vec<(NodeId, NodeId)>,
    },
    /// Takes edges away.
    RemoveEdges {
        /// From which.
        graph: GraphId,
        /// The edges.
        edges: Vec<(NodeId, NodeId)>,
    },
    /// Answered by [`Nodes`](crate::Answer::Nodes).
    Nodes(GraphId),
    /// Nodes without dependencies. Answered by [`Nodes`](crate::Answer::Nodes).
    Roots(GraphId),
    /// Answered by [`Edges`](crate::Answer::Edges).
    Edges(GraphId),
    /// What a node does. Answered by [`NodeWork`](crate::Answer::NodeWork).
    Work(NodeId),
    /// Changes what a node does, to something of the same kind.
    SetWork {
        /// Which.
        node: NodeId,
        /// What.
        work: NodeWork,
    },
    /// The node of a clone that was made from this one. Answered by [`Node`](crate::Answer::Node).
    FindInClone {
        /// The node in the original.
        node: NodeId,
        /// The clone.
        clone: GraphId,
    },
    /// Answered by [`GraphExec`](crate::Answer::GraphExec).
    Instantiate {
        /// Of which.
        graph: GraphId,
        /// As `cuGraphInstantiateWithFlags` takes them.
        flags: u64,
    },
    /// Changes what a node does in an executable graph.
    SetExecWork {
        /// Where.
        exec: GraphExecId,
        /// The node in the graph it was made from.
        node: NodeId,
        /// What.
        work: NodeWork,
    },
    /// `cuGraphExecUpdate`: takes all parameters from a graph of the same shape; refused with
    /// GRAPH_EXEC_UPDATE_FAILURE otherwise.
    Update {
        /// What.
        exec: GraphExecId,
        /// From.
        graph: GraphId,
    },
    /// Runs it in the order of a stream.
    Launch {
        /// The current context.
        context: ContextId,
        /// Which.
        exec: GraphExecId,
        /// In the order of this stream.
        stream: StreamRef,
    },
    /// Ends one.
    DestroyExec(GraphExecId),
}
