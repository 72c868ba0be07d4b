//! One keeper takes over from another: after an update, or from a store of files that outlives a service.
//!
//! What is handed on is what is written of the index, and the memory, one file for each segment. The name of the first
//! keeper goes with it, so that a worker does not take its successor for one that has lost everything.

use super::{Keeper, KeeperError, Plan};
use crate::index::{Contradiction, Index, Written};
use crate::message::SegmentView;
use crate::names::Process;
use crate::preparation::Preparation;
use crate::segment::{Segment, SegmentError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Version of what is written.
const VERSION: u32 = 1;

/// Why a keeper cannot take over.
#[derive(Debug, thiserror::Error)]
pub enum SuccessionError {
    /// It is not what a keeper writes.
    #[error("what the last keeper wrote cannot be read: {0}")]
    Unreadable(#[from] postcard::Error),
    /// Another version.
    #[error("the last keeper wrote version {written}, this one reads version {VERSION}")]
    Version {
        /// What was written.
        written: u32,
    },
    /// Too many files, or too few.
    #[error("{files} files came for {segments} segments")]
    Files {
        /// How many came.
        files: usize,
        /// How many should.
        segments: usize,
    },
    /// A file is not the segment that it should be.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The index makes no sense.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// The rest of the arena cannot be made ready.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
}

/// What a keeper leaves.
#[derive(Debug)]
pub struct Inheritance<'a> {
    /// What is written.
    pub written: Vec<u8>,
    /// The memory.
    pub files: Vec<BorrowedFd<'a>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Estate {
    keeper: Process,
    segment_bytes: u64,
    plan: Plan,
    /// One for each file, in the same order.
    segments: Vec<SegmentView>,
    index: Written,
}

impl Keeper {
    /// What a successor needs. No worker may be there, and nothing of it counts that changes later.
    pub fn bequeath(&self) -> Result<Inheritance<'_>, SuccessionError> {
        let estate = Estate {
            keeper: self.process,
            segment_bytes: self.segment_bytes,
            plan: self.plan.clone(),
            segments: self.segments.iter().map(Segment::view).collect(),
            index: self.index.write(),
        };
        // The version stays in front, whatever follows it.
        let mut written = postcard::to_stdvec(&VERSION)?;
        written = postcard::to_extend(&estate, written)?;
        Ok(Inheritance { written, files: self.segments.iter().map(Segment::file).collect() })
    }

    /// Takes over what another keeper left, and goes on to make the arena ready.
    pub fn inherit(written: &[u8], files: Vec<OwnedFd>) -> Result<Keeper, SuccessionError> {
        let (version, rest) = postcard::take_from_bytes::<u32>(written)?;
        if version != VERSION {
            return Err(SuccessionError::Version { written: version });
        }
        let estate: Estate = postcard::from_bytes(rest)?;
        if files.len() != estate.segments.len() {
            return Err(SuccessionError::Files { files: files.len(), segments: estate.segments.len() });
        }
        let index = Index::read(estate.index, estate.segment_bytes, estate.segments.iter().copied())?;
        let segments = files.into_iter().zip(&estate.segments);
        let segments: Vec<Segment> =
            segments.map(|(file, &view)| Segment::inherited(file, view)).collect::<Result<_, _>>()?;
        let ready: BTreeSet<u64> = estate.segments.iter().map(|segment| segment.offset).collect();
        let missing = estate.plan.iter().filter(|(place, _)| !ready.contains(&place.offset)).copied();
        let missing: Plan = missing.collect();
        Ok(Keeper {
            index,
            segments,
            preparation: Preparation::start(missing).map_err(KeeperError::Threads)?,
            process: estate.keeper,
            plan: estate.plan,
            segment_bytes: estate.segment_bytes,
            growing: true,
            stopped: None,
        })
    }
}
