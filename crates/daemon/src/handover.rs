//! What one worker leaves to the next: jobs with their terms, and what the self-test found. It lies in a file in memory that
//! the supervisor holds, and has no meaning but to workers.
//!
//! A worker may die in the middle of a write, so there are two places, and a word that says which one counts.

use rustix::fs::MemfdFlags;
use rustix::io::{pread, pwrite};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use wire::{SelfTest, Terms};

/// The most that is kept: some ten thousand jobs.
const PLACE_BYTES: u64 = 4 << 20;
const PLACES: u64 = 2;
/// In front of the places: the number of the last write; in front of each, its length; behind them: who served.
const WORD_BYTES: u64 = 8;

/// What is left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Legacy {
    /// By GPU.
    pub tests: BTreeMap<String, Tested>,
    /// Those that are there.
    pub jobs: Vec<Job>,
}

/// What was found out about freezing on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tested {
    /// What the self-test found; None where launches are held back.
    pub found: Option<SelfTest>,
    /// What a context takes of the device that does nothing yet.
    pub residue_bytes: Option<u64>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Whose it is.
    pub uid: u32,
    /// What it is called.
    pub name: String,
    /// On which terms.
    pub terms: Terms,
    /// Does it stand still?
    pub paused: bool,
    /// Does it give up its contexts then?
    pub deep: bool,
    /// How long its programs wait at the door.
    pub timeout: Option<Duration>,
    /// The processes that began it.
    pub roots: Vec<keeper::Process>,
}

/// The file.
#[derive(Debug)]
pub struct Handover {
    file: OwnedFd,
    writes: u64,
}

impl Handover {
    /// An empty one.
    pub fn create() -> rustix::io::Result<Self> {
        let file = rustix::fs::memfd_create("rota-handover", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, place(PLACES) + WORD_BYTES)?;
        Ok(Self::from(file))
    }

    /// What was left last; nothing if nobody left anything that can be read.
    pub fn read(&mut self) -> Legacy {
        self.writes = self.word(0);
        let at = place(self.writes % PLACES);
        let length = self.word(at).min(PLACE_BYTES - WORD_BYTES);
        let mut text = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = pread(&self.file, &mut text[..], at + WORD_BYTES).unwrap_or(0);
        serde_json::from_slice(&text[..read]).unwrap_or_default()
    }

    /// Leaves this. What is too much is not left, which is said.
    pub fn write(&mut self, legacy: &Legacy) {
        let text = match serde_json::to_vec(legacy) {
            Ok(text) if (text.len() as u64) < PLACE_BYTES - WORD_BYTES => text,
            Ok(text) => {
                return tracing::warn!("{} bytes about jobs are too much for the next worker", text.len());
            }
            Err(cause) => return tracing::warn!("jobs cannot be left to the next worker: {cause}"),
        };
        let next = self.writes + 1;
        let at = place(next % PLACES);
        let written = pwrite(&self.file, &(text.len() as u64).to_le_bytes(), at)
            .and_then(|_| pwrite(&self.file, &text, at + WORD_BYTES))
            .and_then(|_| pwrite(&self.file, &next.to_le_bytes(), 0));
        match written {
            Ok(_) => self.writes = next,
            Err(cause) => tracing::warn!("jobs cannot be left to the next worker: {cause}"),
        }
    }

    /// The worker of this number serves.
    pub fn set_served(&self, worker: u64) {
        if let Err(cause) = pwrite(&self.file, &worker.to_le_bytes(), place(PLACES)) {
            tracing::warn!("the supervisor cannot be told that this worker serves: {cause}");
        }
    }

    /// The last worker that did; 0 if none has.
    pub fn served(&self) -> u64 {
        self.word(place(PLACES))
    }

    fn word(&self, at: u64) -> u64 {
        let mut word = [0; WORD_BYTES as usize];
        let _ = pread(&self.file, &mut word[..], at);
        u64::from_le_bytes(word)
    }
}

fn place(number: u64) -> u64 {
    WORD_BYTES + number * PLACE_BYTES
}

impl From<OwnedFd> for Handover {
    /// One that was inherited.
    fn from(file: OwnedFd) -> Self {
        Self { file, writes: 0 }
    }
}

impl AsFd for Handover {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn legacy(residue: u64) -> Legacy {
        let tested = Tested { found: None, residue_bytes: Some(residue) };
        Legacy { tests: [("GPU-1".to_owned(), tested)].into(), jobs: Vec::new() }
    }

    fn heir(of: &Handover) -> Handover {
        Handover::from(of.as_fd().try_clone_to_owned().unwrap())
    }

    #[test]
    fn the_next_one_finds_what_was_left_last() {
        let mut first = Handover::create().unwrap();
        assert_eq!((first.read(), first.served()), (Legacy::default(), 0));
        heir(&first).set_served(3);
        assert_eq!(first.served(), 3);
        for residue in 1..5 {
            first.write(&legacy(residue));
            let mut next = heir(&first);
            assert_eq!(next.read(), legacy(residue));
            next.write(&legacy(residue + 10));
            assert_eq!(first.read(), legacy(residue + 10));
        }
    }

    #[test]
    fn a_write_that_was_cut_off_leaves_what_was_there() {
        let mut first = Handover::create().unwrap();
        first.write(&legacy(1));
        // As far as a worker may come before it dies.
        pwrite(&first.file, b"\xff\xff\xff\xff\xff\xff\xff\xff{{{{", place(0)).unwrap();
        assert_eq!(heir(&first).read(), legacy(1));
        first.write(&legacy(2));
        assert_eq!(heir(&first).read(), legacy(2));
    }
}
