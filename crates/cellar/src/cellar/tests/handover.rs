//! Another process goes on with file, key and tickets.

use super::*;
use crate::{Extent, TicketError};

const LIMIT: u64 = 64 * GRANULE_BYTES;
const BYTES: usize = 100_000;

fn copy(key: &Key) -> Key {
    Key::from_bytes(key.bytes()).expect("a page can be locked")
}

/// What a keeper has after a process was killed: the key, the file, and tickets as bytes.
#[test]
fn tickets_are_all_that_is_needed() {
    let (cellar, disk) = cellar(LIMIT);
    let put =
        |at: u32| cellar.put(block(at), &noise_and_zeros(at.into(), BYTES, 2 + at as usize)).expect("free");
    let kept: Vec<Vec<u8>> = (0..8).map(|at| put(at).to_bytes()).collect();
    // Put, but nobody was told before the end: free space to the next one.
    let lost = put(8);
    let key = copy(cellar.key());
    drop(cellar);

    let tickets: Vec<Ticket> =
        kept.iter().map(|bytes| Ticket::from_bytes(bytes).expect("a ticket")).collect();
    let used: u64 = tickets.iter().map(Ticket::disk_bytes).sum();
    let cellar = reopened(&settings(LIMIT), &disk, key, tickets.clone());
    assert_eq!(cellar.statistics().free_bytes, LIMIT - used);
    assert!(matches!(get(&cellar, &lost), Err(GetError::Unknown { .. })));
    let new: Vec<Ticket> =
        (10..14).map(|at| cellar.put(block(at), &noise(at.into(), BYTES)).expect("free")).collect();
    for (at, ticket) in tickets.iter().enumerate() {
        assert_eq!(get(&cellar, ticket).expect("untouched"), noise_and_zeros(at as u64, BYTES, 2 + at));
    }
    // A third one has blocks of both.
    let key = copy(cellar.key());
    drop(cellar);
    let all = tickets.into_iter().chain(new.clone()).collect();
    let cellar = reopened(&settings(LIMIT), &disk, key, all);
    assert_eq!(get(&cellar, &new[3]).expect("untouched"), noise(13, BYTES));
    assert_eq!(cellar.tickets().len(), 12);
}

/// Both sealed their first block, in the same place: with the same nonce and key, one could be told from the other.
#[test]
fn a_successor_never_counts_where_another_did() {
    let (cellar, disk) = cellar(LIMIT);
    let first = cellar.put(block(0), &noise(0, BYTES)).expect("free");
    let sealed = disk.bytes(first.extents()[0].offset, 4096);
    let key = copy(cellar.key());
    drop(cellar);
    let cellar = reopened(&settings(LIMIT), &disk, key, Vec::new());
    let second = cellar.put(block(0), &noise(0, BYTES)).expect("free");
    assert_eq!(first.extents(), second.extents());
    assert_ne!(first.version, second.version);
    assert_ne!(sealed, disk.bytes(second.extents()[0].offset, 4096));
}

/// What is said about those that were set aside, by their blocks.
fn why(set_aside: &[SetAside]) -> Vec<(u32, &'static str)> {
    let why = |aside: &SetAside| match aside.why {
        TicketError::Impossible { why, .. } => (aside.ticket.block.index, why),
        TicketError::Malformed { .. } => panic!("{aside:?}"),
    };
    set_aside.iter().map(why).collect()
}

/// As a keeper has it that was not told of a discard: the stale ticket's place is another's. Whichever comes first, the
/// block that is there is kept, and so are all others.
#[test]
fn a_stale_ticket_costs_nobody_a_block() {
    let (cellar, disk) = cellar(LIMIT);
    let put = |at: u32| cellar.put(block(at), &noise(at.into(), BYTES)).expect("free");
    let (first, stale) = (put(0), put(1));
    assert!(cellar.discard(&stale));
    let (now, last) = (put(2), put(3));
    assert_eq!(now.extents(), stale.extents());
    let key = copy(cellar.key());
    drop(cellar);
    for tickets in [[&first, &stale, &now, &last], [&last, &now, &stale, &first]] {
        let TakenOver { cellar, set_aside } =
            taken_over(&settings(LIMIT), &disk, copy(&key), tickets.map(Clone::clone).into());
        assert_eq!(why(&set_aside), [(1, "its place or version is another's, and its block is not there")]);
        assert_eq!(set_aside[0].ticket, stale);
        for (ticket, seed) in [(&first, 0), (&now, 2), (&last, 3)] {
            assert_eq!(get(&cellar, ticket).expect("untouched"), noise(seed, BYTES));
        }
        assert!(matches!(get(&cellar, &stale), Err(GetError::Unknown { .. })));
        assert_eq!(cellar.statistics().disk_bytes, 3 * 2 * GRANULE_BYTES);
    }
}

#[test]
fn tickets_that_cannot_be_true_are_set_aside() {
    let (cellar, disk) = cellar(LIMIT);
    let [a, b] = [0, 1].map(|at| cellar.put(block(at), &noise(at.into(), BYTES)).expect("free"));
    let zero = cellar.put(block(2), &[0; 100]).expect("free");
    let with_extents = |ticket: &Ticket, extents: &[Extent]| {
        let mut other = ticket.clone();
        other.sealed.as_mut().expect("sealed").extents = extents.to_vec();
        other
    };
    let beyond = with_extents(&b, &[Extent { offset: LIMIT, bytes: 2 * GRANULE_BYTES }]);
    let across = with_extents(&b, &[Extent { offset: SEGMENT - GRANULE_BYTES, bytes: 2 * GRANULE_BYTES }]);
    let forged = Ticket { version: a.version, ..zero.clone() };
    let cases = [
        (vec![a.clone(), a.clone()], vec![(0, "there is another with the same version")]),
        (vec![zero.clone(), zero.clone()], vec![(2, "there is another with the same version")]),
        (
            vec![with_extents(&b, a.extents()), a.clone()],
            vec![(1, "its place or version is another's, and its block is not there")],
        ),
        (vec![forged, a.clone()], vec![(2, "there is another with the same version")]),
        (vec![a.clone(), beyond], vec![(1, "the file ends before it")]),
        (vec![a.clone(), across], vec![(1, "its place is another's, or none that is given out")]),
        (vec![a.clone(), Ticket { plain_bytes: 0, ..b.clone() }], vec![(1, "no block has this size")]),
        (vec![a.clone(), b, zero.clone()], vec![]),
    ];
    for (tickets, expected) in cases {
        let taken = taken_over(&settings(LIMIT), &disk, copy(cellar.key()), tickets.clone());
        assert_eq!(why(&taken.set_aside), expected);
        assert_eq!(taken.cellar.tickets().len(), tickets.len() - expected.len());
        if tickets.contains(&a) {
            assert_eq!(get(&taken.cellar, &a).expect("untouched"), noise(0, BYTES));
        }
    }
}

/// The limit was lowered below what there is: nothing is lost, and the file becomes smaller as blocks go.
#[test]
fn a_smaller_limit_only_keeps_the_file_from_growing() {
    let (cellar, disk) = cellar(LIMIT);
    let put = |cellar: &Cellar, at: u32| cellar.put(block(at), &noise(at.into(), 7 * GRANULE_BYTES as usize));
    let tickets: Vec<Ticket> = (0..8).map(|at| put(&cellar, at).expect("free")).collect();
    assert_eq!(cellar.statistics().file_bytes, 4 * SEGMENT);
    let key = copy(cellar.key());
    drop(cellar);
    // The last two segments are in use; the first two are not, and the new limit ends before them all.
    let (gone, kept) = tickets.split_at(4);
    let cellar = reopened(&settings(5 * GRANULE_BYTES), &disk, key, kept.to_vec());
    let statistics = cellar.statistics();
    assert_eq!((statistics.file_bytes, statistics.limit_bytes), (2 * SEGMENT, 5 * GRANULE_BYTES));
    assert_eq!((statistics.free_bytes, disk.allocated_bytes()), (4 * GRANULE_BYTES, 2 * SEGMENT));
    for (at, ticket) in kept.iter().enumerate() {
        assert_eq!(
            get(&cellar, ticket).expect("untouched"),
            noise(4 + at as u64, 7 * GRANULE_BYTES as usize)
        );
    }
    assert!(matches!(get(&cellar, &gone[0]), Err(GetError::Unknown { .. })));
    assert!(matches!(put(&cellar, 9), Err(PutError::Full { .. })));
    assert!(cellar.discard(&kept[0]) && cellar.discard(&kept[1]));
    assert_eq!(cellar.trim(), SEGMENT);
    assert_eq!(cellar.statistics().file_bytes, SEGMENT);
}

/// What lies behind the last block and behind the limit goes back to the disk as well.
#[test]
fn room_beyond_the_limit_goes_back() {
    let (cellar, disk) = cellar(LIMIT);
    for at in 0..8 {
        cellar.put(block(at), &noise(at.into(), 7 * GRANULE_BYTES as usize)).expect("free");
    }
    let key = copy(cellar.key());
    drop(cellar);
    assert_eq!(disk.allocated_bytes(), 4 * SEGMENT);
    let cellar = reopened(&settings(SEGMENT), &disk, key, Vec::new());
    assert_eq!((cellar.statistics().free_bytes, disk.allocated_bytes()), (SEGMENT, 0));
}

#[test]
fn another_key_opens_nothing() {
    let (cellar, disk) = cellar(LIMIT);
    let ticket = cellar.put(block(0), &noise(0, BYTES)).expect("free");
    drop(cellar);
    let key = Key::random().expect("random");
    let cellar = reopened(&settings(LIMIT), &disk, key, vec![ticket.clone()]);
    assert!(matches!(get(&cellar, &ticket), Err(GetError::Broken { .. })));
}

/// A disk in memory has no descriptor to hand on.
#[test]
fn what_cannot_be_taken_apart_stays_whole() {
    let (cellar, _disk) = cellar(LIMIT);
    let ticket = cellar.put(block(0), &noise(0, BYTES)).expect("free");
    let whole = cellar.into_parts().expect_err("there is no file");
    assert_eq!(get(&whole.cellar, &ticket).expect("untouched"), noise(0, BYTES));
    whole.cellar.submit_get(ticket, Box::new(vec![0; BYTES])).expect("its threads are there");
    assert!(matches!(whole.cellar.wait(Duration::from_secs(20)), Some(Done::Get { result: Ok(()), .. })));
}
