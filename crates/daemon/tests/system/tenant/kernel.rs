//! The kernel: checks and rewrites memory whenever the engine lets it.

use super::memory::{check, write};
use super::{Shared, lock};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

impl Shared {
    /// The kernel.
    pub(super) fn run(&self) {
        let mut checked_this_turn = false;
        while !self.ending.load(SeqCst) {
            match self.engine.run(|| self.step()) {
                Some(true) => {
                    let mut progress = lock(&self.progress);
                    progress.steps += 1;
                    progress.turns += u64::from(!checked_this_turn);
                    checked_this_turn = true;
                }
                Some(false) | None => checked_this_turn = false,
            }
            // The rest of the machine wants to run, too.
            std::thread::sleep(Duration::from_millis(6));
        }
    }

    /// One step, if there is a context for it.
    fn step(&self) -> bool {
        let context = lock(&self.context);
        if !*context {
            return false;
        }
        if !self.page.resident() {
            self.note_wrong("thawed before its memory was committed".into());
        }
        let mut pieces = lock(&self.pieces);
        for (handle, piece) in &*pieces {
            match &piece.file {
                None => self.note_wrong(format!("thawed while {handle} is away")),
                Some(file) => {
                    if let Err(block) = check(file, *handle, piece.written, piece.bytes) {
                        self.note_wrong(format!("block {block} of {handle} has wrong bytes"));
                    }
                }
            }
        }
        let steps = lock(&self.progress).steps as usize;
        let chosen = steps % pieces.len().max(1);
        if let Some((handle, piece)) = pieces.iter_mut().nth(chosen)
            && let Some(file) = &piece.file
        {
            piece.written += 1;
            write(file, *handle, piece.written, piece.bytes);
        }
        true
    }
}
