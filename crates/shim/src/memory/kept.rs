//! Memory that the driver makes and that rota cannot move: managed memory, arrays, memory of graphs and of pools that are
//! the driver's. It is counted: against the job's limit, and in what the program is told is free. What is freed comes back.
//!
//! The daemon books in blocks. Something of a block or more is booked by itself; what is smaller shares blocks.
//!
//! - [`managed`]: `cuMemAllocManaged`. [`arrays`]: arrays and mipmaps.
//! - [`watched`]: what the driver takes and gives back by itself, which is looked at from time to time.

mod arrays;
pub(crate) mod managed;
pub(crate) mod watched;

use std::collections::HashMap;

use cuda::CUresult;
use cuda::types::CUcontext;
use wire::{BLOCK_BYTES, HandleId, SizedHandle, ToDaemon};

use super::allocation;
use crate::grants::Answer;
use crate::notice::OnceNotice;
use crate::session::{self, Session};

/// What something is that the driver made, with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Made {
    Managed(u64),
    Array(u64),
    Mipmap(u64),
}

/// How something is booked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Booking {
    /// By itself.
    Own(HandleId, u64),
    /// Together with others.
    Small(u64),
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    made: HashMap<Made, (CUcontext, Booking)>,
    /// The blocks that small ones share.
    blocks: Vec<HandleId>,
    small_bytes: u64,
    /// What is booked in all.
    bytes: u64,
}

impl Kept {
    /// Books something small in the blocks that are there. False if they are full.
    fn take_small(&mut self, bytes: u64) -> bool {
        let fits = self.small_bytes + bytes <= self.blocks.len() as u64 * BLOCK_BYTES;
        if fits {
            self.small_bytes += bytes;
        }
        fits
    }

    /// Something small is gone: returns the blocks that nobody needs any more.
    fn give_small(&mut self, bytes: u64) -> Vec<HandleId> {
        self.small_bytes = self.small_bytes.saturating_sub(bytes);
        let needed = self.small_bytes.div_ceil(BLOCK_BYTES) as usize;
        let spare = self.blocks.split_off(needed.min(self.blocks.len()));
        self.bytes -= spare.len() as u64 * BLOCK_BYTES;
        spare
    }
}

/// Has the daemon count memory that stays. The calling thread must hold no lock. None if there is no daemon that counts.
fn book(session: &Session, bytes: u64) -> Option<Result<HandleId, CUresult>> {
    static DENIED: OnceNotice = OnceNotice::new();
    let (grant, answer) = session.ask_to_keep(bytes);
    match answer {
        Answer::Granted => {
            let handle = session.new_handle();
            // In the order of the books: a free that comes later is told later.
            let mut kept = session.kept();
            kept.bytes += bytes;
            session.table().set_kept_bytes(kept.bytes);
            session.say(ToDaemon::Kept { grant, handle: SizedHandle { handle, bytes } });
            drop(kept);
            session.wake_agent();
            Some(Ok(handle))
        }
        Answer::Denied(reason) => {
            DENIED.notice(format_args!("no memory that stays on the GPU for this program: {reason}"));
            Some(Err(CUresult::OUT_OF_MEMORY))
        }
        Answer::Ended => None,
    }
}

/// Counts so much memory. The calling thread must hold no lock.
fn keep(session: &Session, bytes: u64) -> Option<Result<Booking, CUresult>> {
    if bytes >= BLOCK_BYTES {
        // Such memory cannot be there: the driver says so.
        let bytes = bytes.checked_next_multiple_of(BLOCK_BYTES)?;
        return Some(book(session, bytes)?.map(|handle| Booking::Own(handle, bytes)));
    }
    while !session.kept().take_small(bytes) {
        match book(session, BLOCK_BYTES)? {
            Ok(handle) => session.kept().blocks.push(handle),
            Err(code) => return Some(Err(code)),
        }
    }
    Some(Ok(Booking::Small(bytes)))
}

/// It is gone.
fn let_go(session: &Session, booking: Booking) {
    let mut kept = session.kept();
    match booking {
        Booking::Own(handle, bytes) => {
            kept.bytes -= bytes;
            session.say_freed(handle);
        }
        Booking::Small(bytes) => {
            for handle in kept.give_small(bytes) {
                session.say_freed(handle);
            }
        }
    }
    session.table().set_kept_bytes(kept.bytes);
    drop(kept);
    session.wake_agent();
}

/// The session, if memory of the current context counts.
fn counting() -> Option<(&'static Session, CUcontext)> {
    let session = session::here().ok()??;
    if session.has_ended() {
        return None;
    }
    let context = allocation::current(session)?;
    allocation::serves(session, context).then_some((session, context))
}

/// Something is there, and counted.
fn note(session: &Session, made: Made, context: CUcontext, booking: Booking) {
    let before = session.kept().made.insert(made, (context, booking));
    if let Some((_, booking)) = before {
        // The driver gave the same name out again: the first one went on a way that was not seen.
        let_go(session, booking);
    }
}

/// Something is not there any more. Nothing happens if it was not counted.
fn forget(made: Made) {
    for session in session::all() {
        let gone = session.kept().made.remove(&made);
        if let Some((_, booking)) = gone {
            let_go(session, booking);
        }
    }
}

/// A context is gone, and what was in it.
pub(crate) fn context_ended(session: &Session, context: CUcontext) {
    let mut gone = Vec::new();
    session.kept().made.retain(|_, (owner, booking)| {
        let stays = *owner != context;
        if !stays {
            gone.push(*booking);
        }
        stays
    });
    gone.into_iter().for_each(|booking| let_go(session, booking));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ones_share_blocks_and_give_them_back() {
        let mut kept = Kept::default();
        assert!(!kept.take_small(1));
        for handle in 1..=2 {
            kept.blocks.push(HandleId(handle));
            kept.bytes += BLOCK_BYTES;
        }
        assert!(kept.take_small(BLOCK_BYTES - 1));
        assert!(kept.take_small(BLOCK_BYTES));
        assert!(kept.take_small(1));
        assert!(!kept.take_small(1));
        assert_eq!(kept.give_small(BLOCK_BYTES - 1), []);
        assert_eq!(kept.give_small(1), [HandleId(2)]);
        assert_eq!(kept.give_small(BLOCK_BYTES), [HandleId(1)]);
        assert_eq!((kept.bytes, kept.small_bytes), (0, 0));
    }
}
