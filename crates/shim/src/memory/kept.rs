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

use std::collections::{BTreeMap, HashMap};

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

impl Made {
    fn managed_bytes(self, booking: Booking) -> u64 {
        match (self, booking) {
            (Self::Managed(_), Booking::Own(_, bytes) | Booking::Small(bytes)) => bytes,
            _ => 0,
        }
    }
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
    /// What is booked in all, by name.
    booked: BTreeMap<HandleId, u64>,
    /// And how much that is.
    bytes: u64,
    /// Managed memory, of which the driver counts nothing for this process.
    managed_bytes: u64,
}

impl Kept {
    /// All that a daemon counts.
    pub(crate) fn booked(&self) -> impl Iterator<Item = SizedHandle> {
        self.booked.iter().map(|(&handle, &bytes)| SizedHandle { handle, bytes })
    }

    /// Something is booked.
    fn enter(&mut self, handle: HandleId, bytes: u64) {
        self.booked.insert(handle, bytes);
        self.bytes += bytes;
    }

    /// Something is not booked any more.
    fn strike(&mut self, handle: HandleId) {
        self.bytes -= self.booked.remove(&handle).unwrap_or(0);
    }

    /// Notes what something is. Returns what had the same name: that went on a way that was not seen.
    fn insert(&mut self, made: Made, context: CUcontext, booking: Booking) -> Option<Booking> {
        let before = self.remove(made);
        self.managed_bytes += made.managed_bytes(booking);
        self.made.insert(made, (context, booking));
        before
    }

    fn remove(&mut self, made: Made) -> Option<Booking> {
        let (_, booking) = self.made.remove(&made)?;
        self.managed_bytes -= made.managed_bytes(booking);
        Some(booking)
    }

    /// Takes out what is in a context.
    fn remove_of(&mut self, context: CUcontext) -> Vec<Booking> {
        let of_it = self.made.iter().filter(|(_, (owner, _))| *owner == context).map(|(made, _)| *made);
        let gone: Vec<Made> = of_it.collect();
        gone.into_iter().filter_map(|made| self.remove(made)).collect()
    }

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
        spare.iter().for_each(|&handle| self.strike(handle));
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
            if !session.knows_grant(grant) {
                // There is another daemon meanwhile.
                drop(kept);
                return book(session, bytes);
            }
            kept.enter(handle, bytes);
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
        Answer::GrantedHost(_) => {
            // Not where it would be of use.
            session.say(ToDaemon::Returned { grant });
            session.wake_agent();
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
        Booking::Own(handle, _) => {
            kept.strike(handle);
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
    let mut kept = session.kept();
    let before = kept.insert(made, context, booking);
    session.table().set_managed_bytes(kept.managed_bytes);
    drop(kept);
    if let Some(booking) = before {
        let_go(session, booking);
    }
}

/// Something is not there any more. Nothing happens if it was not counted.
fn forget(made: Made) {
    for session in session::all() {
        let mut kept = session.kept();
        let gone = kept.remove(made);
        session.table().set_managed_bytes(kept.managed_bytes);
        drop(kept);
        if let Some(booking) = gone {
            let_go(session, booking);
        }
    }
}

/// A context is gone, and what was in it.
pub(crate) fn context_ended(session: &Session, context: CUcontext) {
    let mut kept = session.kept();
    let gone = kept.remove_of(context);
    session.table().set_managed_bytes(kept.managed_bytes);
    drop(kept);
    gone.into_iter().for_each(|booking| let_go(session, booking));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_memory_is_added_up_by_itself() {
        let mut kept = Kept::default();
        let (one, other) = (CUcontext::NULL, CUcontext(std::ptr::without_provenance_mut(8)));
        assert_eq!(kept.insert(Made::Managed(1), one, Booking::Small(10)), None);
        kept.insert(Made::Array(1), one, Booking::Small(5));
        kept.insert(Made::Managed(2), other, Booking::Own(HandleId(1), BLOCK_BYTES));
        assert_eq!(kept.managed_bytes, 10 + BLOCK_BYTES);
        assert_eq!(kept.insert(Made::Managed(1), one, Booking::Small(7)), Some(Booking::Small(10)));
        assert_eq!(kept.remove(Made::Managed(9)), None);
        assert_eq!(kept.managed_bytes, 7 + BLOCK_BYTES);
        assert_eq!(kept.remove_of(one).len(), 2);
        assert_eq!(kept.managed_bytes, BLOCK_BYTES);
        assert_eq!(kept.remove_of(other), [Booking::Own(HandleId(1), BLOCK_BYTES)]);
        assert_eq!((kept.managed_bytes, kept.made.len()), (0, 0));
    }

    #[test]
    fn small_ones_share_blocks_and_give_them_back() {
        let mut kept = Kept::default();
        assert!(!kept.take_small(1));
        for handle in 1..=2 {
            kept.blocks.push(HandleId(handle));
            kept.enter(HandleId(handle), BLOCK_BYTES);
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
