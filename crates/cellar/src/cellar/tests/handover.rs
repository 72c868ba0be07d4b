//! Another process goes on with file, key and tickets.

use super::*;
use crate::TicketError;

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
    let cellar = reopened(&settings(LIMIT), &disk, key, tickets.clone()).expect("the tickets are true");
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
    let cellar = reopened(&settings(LIMIT), &disk, key, all).expect("the tickets are true");
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
    let cellar = reopened(&settings(LIMIT), &disk, key, Vec::new()).expect("no tickets");
    let second = cellar.put(block(0), &noise(0, BYTES)).expect("free");
    assert_eq!(first.extents(), second.extents());
    assert_ne!(first.version, second.version);
    assert_ne!(sealed, disk.bytes(second.extents()[0].offset, 4096));
}

#[test]
fn tickets_that_cannot_be_true_are_refused() {
    let (cellar, disk) = cellar(LIMIT);
    let [a, b] = [0, 1].map(|at| cellar.put(block(at), &noise(at.into(), BYTES)).expect("free"));
    let open = |tickets: Vec<Ticket>, limit| reopened(&settings(limit), &disk, copy(cellar.key()), tickets);
    let why = |opened: Result<Cellar, OpenError>| match opened {
        Err(OpenError::Ticket(TicketError::Impossible { why, .. })) => why,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was taken"),
    };
    assert!(why(open(vec![a.clone(), a.clone()], LIMIT)).contains("same version"));
    let mut over_a = b.clone();
    over_a.sealed.as_mut().expect("sealed").extents = a.extents().to_vec();
    assert!(why(open(vec![a.clone(), over_a], LIMIT)).contains("another's"));
    assert!(why(open(vec![a.clone(), b.clone()], 2 * GRANULE_BYTES)).contains("beyond the limit"));
    assert!(open(vec![a, b], LIMIT).is_ok());
}

#[test]
fn another_key_opens_nothing() {
    let (cellar, disk) = cellar(LIMIT);
    let ticket = cellar.put(block(0), &noise(0, BYTES)).expect("free");
    drop(cellar);
    let key = Key::random().expect("random");
    let cellar = reopened(&settings(LIMIT), &disk, key, vec![ticket.clone()]).expect("it looks true");
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
