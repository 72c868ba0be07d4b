//! Which pieces of whose memory are on the device, and which of them was used longest ago.

use std::collections::BTreeMap;

/// The device's memory, in pieces.
pub(super) struct Pages {
    room: usize,
    /// By when they were used last, the longest ago first.
    by_use: BTreeMap<u64, (usize, usize)>,
    owners: Vec<Owner>,
    clock: u64,
}

#[derive(Default)]
struct Owner {
    pieces: Vec<Piece>,
    there: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Untouched,
    There { used: u64 },
    Out,
}

/// What it took to use a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// Nothing.
    There,
    /// Nothing: it is new, and there was room.
    New,
    /// Faults.
    Fetched {
        /// It came back from the host.
        was_out: bool,
        /// Another one had to go.
        pushed_out: bool,
    },
}

impl Pages {
    pub(super) fn new(owners: usize, room: usize) -> Self {
        let owners = (0..owners).map(|_| Owner::default()).collect();
        Self { room: room.max(1), by_use: BTreeMap::new(), owners, clock: 0 }
    }

    /// The owner has this many pieces from now on, if it had fewer.
    pub(super) fn grow(&mut self, owner: usize, pieces: usize) {
        let owner = &mut self.owners[owner];
        if owner.pieces.len() < pieces {
            owner.pieces.resize(pieces, Piece::Untouched);
        }
    }

    pub(super) fn all_there(&self, owner: usize) -> bool {
        let Owner { pieces, there } = &self.owners[owner];
        *there == pieces.len()
    }

    pub(super) fn touch(&mut self, owner: usize, piece: usize) -> Touched {
        let before = self.owners[owner].pieces[piece];
        if let Piece::There { used } = before {
            self.by_use.remove(&used);
            self.put(owner, piece);
            return Touched::There;
        }
        let pushed_out = self.by_use.len() >= self.room;
        if pushed_out {
            self.push_out();
        }
        self.put(owner, piece);
        self.owners[owner].there += 1;
        let was_out = before == Piece::Out;
        if was_out || pushed_out { Touched::Fetched { was_out, pushed_out } } else { Touched::New }
    }

    /// The owner went over all it has there, in order.
    pub(super) fn used_all(&mut self, owner: usize) {
        for piece in 0..self.owners[owner].pieces.len() {
            if let Piece::There { used } = self.owners[owner].pieces[piece] {
                self.by_use.remove(&used);
                self.put(owner, piece);
            }
        }
    }

    /// The owner is gone.
    pub(super) fn forget(&mut self, owner: usize) {
        self.by_use.retain(|_, (whose, _)| *whose != owner);
        self.owners[owner] = Owner::default();
    }

    fn put(&mut self, owner: usize, piece: usize) {
        self.clock += 1;
        self.by_use.insert(self.clock, (owner, piece));
        self.owners[owner].pieces[piece] = Piece::There { used: self.clock };
    }

    fn push_out(&mut self) {
        if let Some((_, (owner, piece))) = self.by_use.pop_first() {
            self.owners[owner].pieces[piece] = Piece::Out;
            self.owners[owner].there -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_used_longest_ago_goes() {
        let mut pages = Pages::new(2, 3);
        pages.grow(0, 2);
        pages.grow(1, 2);
        assert_eq!([pages.touch(0, 0), pages.touch(0, 1), pages.touch(1, 0)], [Touched::New; 3]);
        assert_eq!(pages.touch(0, 0), Touched::There);
        assert!(pages.all_there(0) && !pages.all_there(1));
        // 0/1 is the oldest now.
        assert_eq!(pages.touch(1, 1), Touched::Fetched { was_out: false, pushed_out: true });
        assert!(!pages.all_there(0) && pages.all_there(1));
        assert_eq!(pages.touch(0, 1), Touched::Fetched { was_out: true, pushed_out: true });
        assert_eq!(pages.touch(0, 0), Touched::There);
    }

    #[test]
    fn whoever_goes_leaves_room() {
        let mut pages = Pages::new(2, 2);
        pages.grow(0, 2);
        pages.grow(1, 1);
        pages.touch(0, 0);
        pages.touch(0, 1);
        pages.forget(0);
        assert_eq!(pages.touch(1, 0), Touched::New);
    }
}
