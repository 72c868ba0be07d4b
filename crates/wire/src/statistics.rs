//! What a tenant went through: how long its requests took, how soon it had the GPU, and what taking turns cost it.

use serde::{Deserialize, Serialize};

/// How long several things took. Quantiles are exact to 1.6%.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Half of them took this long at most.
    pub p50_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
    /// All of them.
    pub max_ns: u64,
}

/// How long the requests of a latency-critical tenant took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTimes {
    /// The program says itself when requests begin and end. Otherwise one is taken to be what comes between two pauses of a
    /// millisecond: from its first work for the GPU until somebody has waited for all of it.
    pub by_program: bool,
    /// How long they took.
    pub times: Times,
    /// How many took longer than their SLO.
    pub slo_missed: u64,
}

/// What a tenant went through, since the worker that shares its GPU began to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Its requests, also those before a worker that died; none where none has ended, or it is not latency-critical.
    pub requests: Option<RequestTimes>,
    /// How soon it had the GPU: from when others began to be taken off for its hint, or, where it was off itself, from its
    /// first work after a pause, until that was over.
    pub granted: Option<Times>,
    /// How often it was taken off the GPU.
    pub freezes: u64,
    /// For how long it was off with work to do.
    pub frozen_ns: u64,
    /// How long taking it off and putting it on took: GPU time that it lost, and nobody had.
    pub switching_ns: u64,
    /// How long moves took that its memory was in.
    pub moving_ns: u64,
    /// The phase in which it gives way, by the program's own name for it.
    pub phase: Option<String>,
}
