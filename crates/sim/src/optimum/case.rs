//! What had to be where when: pieces of memory, and steps that need some of them.

use super::packing::Interval;
use super::{OptimumError, PIECES_MAX, STEPS_MAX};
use sched::Bytes;
use std::collections::BTreeMap;

/// A piece of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PieceId(usize);

/// Where a piece is when it begins to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Began {
    /// It is made on the device at the first step that needs it: that costs nothing.
    New,
    /// It is on the device, and may stay there or go.
    Resident,
    /// It is in the arena, and has to come in.
    Away,
}

/// Memory that moves as a whole.
#[derive(Clone, Debug)]
struct Piece {
    bytes: Bytes,
    rewritten: bool,
    began: Began,
    /// The first step that it counts at.
    since: usize,
    /// The steps that need it, in order.
    uses: Vec<usize>,
    /// The first step that it does not count at any more, once it is gone.
    gone: Option<usize>,
}

/// Who needed what when, on one device. Things happen in the order in which they are told.
#[derive(Clone, Debug, Default)]
pub struct Case {
    pieces: Vec<Piece>,
    /// The room there is at each step, for all pieces together.
    rooms: Vec<Bytes>,
    /// Pieces are sums of smaller ones that nobody knows.
    in_parts: bool,
}

impl Case {
    /// A case where any part of a piece may move without the rest.
    pub fn in_parts() -> Self {
        Self { in_parts: true, ..Self::default() }
    }

    /// A piece is there from the next step on. If it is `rewritten`, no copy in the arena is good for long.
    pub fn piece(&mut self, bytes: Bytes, rewritten: bool, began: Began) -> Result<PieceId, OptimumError> {
        if self.pieces.len() >= PIECES_MAX {
            return Err(OptimumError::TooManyPieces);
        }
        let since = self.rooms.len();
        self.pieces.push(Piece { bytes, rewritten, began, since, uses: Vec::new(), gone: None });
        Ok(PieceId(self.pieces.len() - 1))
    }

    /// A piece is freed, wherever it is: nothing has to be moved for that.
    pub fn free_piece(&mut self, piece: PieceId) {
        let now = self.rooms.len();
        self.pieces[piece.0].gone.get_or_insert(now);
    }

    /// Somebody needs these on the device now, with so much room for all pieces. What is gone is needed by nobody.
    pub fn step(
        &mut self,
        room: Bytes,
        needs: impl IntoIterator<Item = PieceId>,
    ) -> Result<(), OptimumError> {
        let now = self.rooms.len();
        if now >= STEPS_MAX {
            return Err(OptimumError::TooManySteps);
        }
        self.rooms.push(room);
        for piece in needs {
            let piece = &mut self.pieces[piece.0];
            if piece.gone.is_none() && piece.uses.last() != Some(&now) {
                piece.uses.push(now);
            }
        }
        Ok(())
    }

    /// How many steps there are.
    pub fn steps(&self) -> usize {
        self.rooms.len()
    }

    /// What everything that moves is a multiple of.
    pub(super) fn unit(&self) -> u64 {
        if self.in_parts {
            return 1;
        }
        self.pieces.iter().fold(0, |unit, piece| common_divisor(unit, piece.bytes.0)).max(1)
    }

    /// Are all pieces one unit, and rewritten? Then what is kept can be counted in pieces.
    pub(super) fn is_even(&self, unit: u64) -> bool {
        !self.in_parts && self.pieces.iter().all(|piece| piece.bytes.0 == unit && piece.rewritten)
    }

    /// What each step leaves for pieces that it does not need, in whole units: those fill no less.
    pub(super) fn free(&self, unit: u64) -> Result<Vec<u64>, OptimumError> {
        let mut needs = vec![Bytes::ZERO; self.rooms.len()];
        for piece in &self.pieces {
            for &step in &piece.uses {
                needs[step] += piece.bytes;
            }
        }
        let fits = |(step, (&room, &needs)): (usize, (&Bytes, &Bytes))| match needs > room {
            true => Err(OptimumError::DoesNotFit { step, needs, room }),
            false => Ok((room - needs).0 / unit),
        };
        self.rooms.iter().zip(&needs).enumerate().map(fits).collect()
    }

    /// All that may be kept or not, alike ones together.
    pub(super) fn intervals(&self, unit: u64) -> Vec<Interval> {
        let mut widths: BTreeMap<(usize, usize, u32), u64> = BTreeMap::new();
        for piece in &self.pieces {
            for (from, to, cost) in piece.spans(self.rooms.len()) {
                if from < to && cost > 0 {
                    *widths.entry((from, to, cost)).or_default() += piece.bytes.0 / unit;
                }
            }
        }
        widths.into_iter().map(|((from, to, cost), width)| Interval { from, to, cost, width }).collect()
    }

    /// What is moved in any case: what is away comes in for the first step that needs it.
    pub(super) fn unavoidable(&self) -> u128 {
        let comes_in = |piece: &&Piece| piece.began == Began::Away && !piece.uses.is_empty();
        self.pieces.iter().filter(comes_in).map(|piece| u128::from(piece.bytes.0)).sum()
    }
}

impl Piece {
    /// The steps between those that need it, from the first up to before the last, and how often it is copied if it is
    /// not kept over them.
    fn spans(&self, steps: usize) -> Vec<(usize, usize, u32)> {
        let out = u32::from(self.rewritten);
        let end = self.gone.unwrap_or(steps);
        let mut spans = Vec::new();
        let mut after = (self.began == Began::Resident).then_some(self.since);
        for &step in &self.uses {
            spans.extend(after.map(|from| (from, step, out + 1)));
            after = Some(step + 1);
        }
        spans.extend(after.map(|from| (from, end, out)));
        spans
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
