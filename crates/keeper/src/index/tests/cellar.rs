//! Handles that sink and rise.

use super::*;
use crate::message::{TICKET_BYTES_MAX, TICKETS_BYTES_MAX};

fn tickets(of: std::ops::Range<u8>) -> Vec<Vec<u8>> {
    of.map(|ticket| vec![ticket; 70]).collect()
}

fn away(index: &mut Index, handle: u64, blocks: u64) -> Vec<Extent> {
    let space = extents(index, handle, blocks);
    assert_eq!(index.record_out(out(handle, blocks as usize)), Outcome::Done);
    space
}

fn in_cellar(index: &mut Index, handle: u64, blocks: u8) {
    away(index, handle, u64::from(blocks));
    assert_eq!(index.keep_tickets(key(handle), 0, tickets(0..blocks)), Outcome::Done);
    assert_eq!(index.sink(key(handle)), Outcome::Done);
    check(index);
}

#[test]
fn its_space_is_free_when_all_tickets_are_kept_and_not_before() {
    let mut index = index(1);
    let space = away(&mut index, 1, 4);
    let free_bytes = index.progress().free_bytes;
    assert_eq!(index.sink(key(1)), Outcome::NotInCellar);
    assert_eq!(index.keep_tickets(key(1), 0, tickets(0..3)), Outcome::Done);
    assert_eq!(index.sink(key(1)), Outcome::NotInCellar);
    assert_eq!(index.recorded(TENANT, None)[0].place, Place::Away);
    assert_eq!(index.recorded(TENANT, None)[0].extents, space);
    assert!(index.tickets(key(1), 0).is_empty(), "it is not there yet");
    assert_eq!(index.keep_tickets(key(1), 3, tickets(3..4)), Outcome::Done);
    assert_eq!(index.progress().free_bytes, free_bytes);
    assert_eq!([index.sink(key(1)), index.sink(key(1))], [Outcome::Done, Outcome::AlreadySo]);
    check(&index);
    let progress = index.progress();
    assert_eq!((progress.free_bytes, progress.away_bytes), (SEGMENT, 0));
    assert_eq!((progress.cellar_bytes, index.away_bytes()), (4 * BLOCK_BYTES, 4 * BLOCK_BYTES));
    let Recorded { place, extents, facts, .. } = index.recorded(TENANT, None).remove(0);
    assert_eq!((place, extents, facts.len()), (Place::Cellar, vec![], 4), "its facts are known still");
    assert_eq!((index.tickets(key(1), 0), index.tickets(key(1), 3)), (tickets(0..4), tickets(3..4)));
    assert!(index.tickets(key(1), 4).is_empty());
}

#[test]
fn it_rises_to_the_space_that_was_reserved_and_its_tickets_are_forgotten() {
    let mut index = index(1);
    in_cellar(&mut index, 1, 3);
    assert_eq!(index.rise(key(1)), Outcome::NotReserved);
    assert_eq!(index.record_in(back(1, true)), Outcome::NotAway, "it is not even in the arena");
    assert_eq!(index.record_out(out(1, 3)), Outcome::NotReserved);
    let landing = extents(&mut index, 1, 3);
    assert_eq!(extents(&mut index, 1, 3), landing, "asked twice");
    check(&index);
    assert_eq!(index.recorded(TENANT, None)[0].place, Place::Cellar);
    assert_eq!([index.rise(key(1)), index.rise(key(1))], [Outcome::Done, Outcome::AlreadySo]);
    check(&index);
    let Recorded { place, extents, facts, .. } = index.recorded(TENANT, None).remove(0);
    assert_eq!((place, extents, facts.len()), (Place::Away, landing, 3));
    assert!(index.tickets(key(1), 0).is_empty());
    assert_eq!(index.record_in(back(1, true)), Outcome::Done);
    check(&index);
}

#[test]
fn what_was_under_way_is_dropped_with_the_worker() {
    let mut index = index(1);
    in_cellar(&mut index, 1, 3);
    away(&mut index, 2, 2);
    index.keep_tickets(key(2), 0, tickets(0..2));
    extents(&mut index, 1, 3);
    index.orphan_reservations();
    check(&index);
    assert_eq!(index.progress().orphaned_bytes, 3 * BLOCK_BYTES);
    assert_eq!(index.sink(key(2)), Outcome::NotInCellar, "the next worker does not know those");
    assert_eq!(index.rise(key(1)), Outcome::NotReserved);
    assert_eq!(index.tickets(key(1), 0), tickets(0..3), "it is there as before");
    assert_eq!(index.reclaim(), 3 * BLOCK_BYTES);
    extents(&mut index, 1, 3);
    index.drop_reservations();
    check(&index);
    assert_eq!(index.progress().free_bytes, SEGMENT - 2 * BLOCK_BYTES);
    assert_eq!(index.cancel(key(1)), Outcome::AlreadySo);
    extents(&mut index, 1, 3);
    assert_eq!(index.cancel(key(1)), Outcome::Done);
    check(&index);
}

#[test]
fn freed_or_dead_it_is_gone_with_its_tickets() {
    let mut index = index(1);
    in_cellar(&mut index, 1, 3);
    in_cellar(&mut index, 2, 2);
    in_cellar(&mut index, 3, 2);
    extents(&mut index, 2, 2);
    assert_eq!(index.free(key(1)), Outcome::Done);
    check(&index);
    assert_eq!(index.free(key(2)), Outcome::Done);
    check(&index);
    index.died(TENANT);
    check(&index);
    assert_eq!((index.away_bytes(), index.progress().free_bytes), (0, SEGMENT));
    assert_eq!(index.tickets.counted(), (0, 0));
}

#[test]
fn tickets_that_cannot_be_are_refused_and_those_before_stay() {
    let mut index = index(1);
    assert_eq!(index.keep_tickets(key(1), 0, tickets(0..1)), Outcome::NotAway);
    extents(&mut index, 1, 2);
    assert_eq!(index.keep_tickets(key(1), 0, tickets(0..1)), Outcome::NotAway, "it is only reserved");
    index.record_out(out(1, 0));
    assert_eq!(index.keep_tickets(key(1), 0, tickets(0..1)), Outcome::Done);
    for (first, wrong) in [
        (0, tickets(0..3)),
        (2, tickets(0..1)),
        (u32::MAX, tickets(0..1)),
        (1, vec![Vec::new()]),
        (1, vec![vec![0; TICKET_BYTES_MAX + 1]]),
    ] {
        assert_eq!(index.keep_tickets(key(1), first, wrong), Outcome::BadTickets);
        check(&index);
    }
    assert_eq!(index.keep_tickets(key(1), 1, tickets(1..2)), Outcome::Done);
    assert_eq!(index.keep_tickets(key(1), 0, tickets(5..7)), Outcome::Done, "said again, from the first");
    assert_eq!(index.sink(key(1)), Outcome::Done);
    assert_eq!(index.tickets(key(1), 0), tickets(5..7));
    assert_eq!(index.keep_tickets(key(1), 0, tickets(0..2)), Outcome::AlreadySo);
    assert_eq!(index.tickets(key(1), 0), tickets(5..7));
}

#[test]
fn a_handle_of_the_longest_tickets_is_told_in_pages() {
    let mut index = index(4);
    away(&mut index, 1, 128);
    let longest = vec![vec![9; TICKET_BYTES_MAX]; 128];
    for (at, page) in longest.chunks(TICKETS_BYTES_MAX / TICKET_BYTES_MAX).enumerate() {
        let first = (at * TICKETS_BYTES_MAX / TICKET_BYTES_MAX) as u32;
        assert_eq!(index.keep_tickets(key(1), first, page.to_vec()), Outcome::Done);
    }
    assert_eq!(index.sink(key(1)), Outcome::Done);
    let mut all = Vec::new();
    loop {
        let page = index.tickets(key(1), all.len() as u32);
        if page.is_empty() {
            break;
        }
        assert!(crate::index::ticket_bytes(&page) <= TICKETS_BYTES_MAX);
        all.extend(page);
    }
    assert_eq!(all, longest);
}

#[test]
fn zero_blocks_have_no_place_before_it_sinks_nor_once_it_has_risen() {
    let mut index = index(1);
    extents(&mut index, 1, 4);
    let mut zeros = out(1, 4);
    [1, 2].into_iter().for_each(|block: usize| zeros.facts[block].zero = true);
    assert_eq!(index.record_out(zeros), Outcome::Done);
    check(&index);
    assert_eq!(index.progress().zero_bytes, 2 * BLOCK_BYTES);
    assert_eq!(index.keep_tickets(key(1), 0, tickets(0..4)), Outcome::Done);
    assert_eq!(index.sink(key(1)), Outcome::Done);
    check(&index);
    assert_eq!((index.progress().zero_bytes, index.progress().free_bytes), (0, SEGMENT));
    assert_eq!(extents(&mut index, 1, 4).iter().map(|run| run.bytes).sum::<u64>(), 4 * BLOCK_BYTES);
    assert_eq!(index.rise(key(1)), Outcome::Done);
    check(&index);
    assert_eq!(index.progress().zero_bytes, 2 * BLOCK_BYTES);
}
