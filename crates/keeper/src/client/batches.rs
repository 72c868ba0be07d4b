//! Lists that are too long for one message, in pieces that are not.

use crate::BLOCK_BYTES;
use crate::message::{BATCH_MAX, FACTS_MAX, Out, RESERVED_BLOCKS_MAX, TICKETS_BYTES_MAX, Wanted};

/// By number alone.
pub(super) fn of_any<T>(items: &[T]) -> impl Iterator<Item = &[T]> {
    items.chunks(BATCH_MAX)
}

/// By number and blocks.
pub(super) fn of_wanted(wanted: &[Wanted]) -> impl Iterator<Item = &[Wanted]> {
    let blocks = |wanted: &Wanted| usize::try_from(wanted.bytes / BLOCK_BYTES).unwrap_or(usize::MAX);
    Batches { rest: wanted, weight: blocks, weight_max: RESERVED_BLOCKS_MAX as usize }
}

/// By number and facts.
pub(super) fn of_out(handles: &[Out]) -> impl Iterator<Item = &[Out]> {
    Batches { rest: handles, weight: |out: &Out| out.facts.len(), weight_max: FACTS_MAX }
}

/// By number and bytes.
pub(super) fn of_tickets(tickets: &[Vec<u8>]) -> impl Iterator<Item = &[Vec<u8>]> {
    Batches { rest: tickets, weight: |ticket: &Vec<u8>| ticket.len(), weight_max: TICKETS_BYTES_MAX }
}

/// The longest pieces, in order, that have no more items and no more weight than may be; at least one item each.
struct Batches<'a, T, W> {
    rest: &'a [T],
    weight: W,
    weight_max: usize,
}

impl<'a, T, W: Fn(&T) -> usize> Iterator for Batches<'a, T, W> {
    type Item = &'a [T];

    fn next(&mut self) -> Option<&'a [T]> {
        let mut sum = 0usize;
        let fitting = self.rest.iter().take(BATCH_MAX).take_while(|item| {
            sum = sum.saturating_add((self.weight)(item));
            sum <= self.weight_max
        });
        let count = fitting.count().max(1);
        let (batch, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{HandleKey, TenantNumber};

    fn wanted(blocks: u64) -> Wanted {
        let key = HandleKey { tenant: TenantNumber(1), handle: blocks };
        Wanted { key, bytes: blocks * BLOCK_BYTES }
    }

    #[test]
    fn pieces_are_as_long_as_they_may_be() {
        let lengths = |all: &[Wanted]| of_wanted(all).map(<[Wanted]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(&[]), []);
        assert_eq!(lengths(&[wanted(128); 48]), [32, 16]);
        assert_eq!(lengths(&[wanted(1); 130]), [64, 64, 2]);
        assert_eq!(lengths(&[wanted(u64::MAX / BLOCK_BYTES), wanted(1), wanted(2)]), [1, 2]);
    }
}
