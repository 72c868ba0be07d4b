//! Jobs on the whole: nothing waits that must not, nothing is lost.

use super::*;
use std::collections::HashMap;
use std::time::Instant;

const LIMIT: u64 = 256 * GRANULE_BYTES;
const BYTES: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_disk_that_stands_still_holds_up_nobody() {
    let (cellar, disk) = cellar(LIMIT);
    let there = cellar.put(block(99), &noise(99, BYTES)).expect("free");
    let hold = disk.hold();
    let mut accepted = 0;
    let refused = loop {
        match cellar.submit_put(block(accepted), Box::new(noise(accepted.into(), BYTES))) {
            Ok(_) => accepted += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!((accepted, refused.busy), (8, Busy { jobs: 8 }));
    assert_eq!((*refused.back).as_ref(), noise(8, BYTES), "what was refused comes back");
    assert!(cellar.submit_get(there.clone(), Box::new(vec![0; BYTES])).is_err());
    assert!(cellar.poll().is_none());
    assert_eq!(cellar.statistics().jobs, 8);
    assert!(cellar.discard(&there));
    drop(hold);
    let done: Vec<Done> = std::iter::from_fn(|| cellar.wait(PATIENCE)).collect();
    assert_eq!((done.len(), cellar.statistics().jobs), (8, 0));
    for done in done {
        let Done::Put { block, result, .. } = done else { panic!("{done:?}") };
        let ticket = result.expect("the disk is well");
        assert_eq!(get(&cellar, &ticket).expect("written"), noise(block.index.into(), BYTES));
    }
}

#[test]
fn every_job_comes_back_once() {
    let (cellar, _disk) = cellar(LIMIT);
    let mut waiting = HashMap::new();
    let mut tickets = HashMap::new();
    let mut next = 0;
    let mut polled = 0;
    while polled < 200 {
        if next < 200 {
            // Every third is a get, of a block that nobody else has asked for.
            let there = tickets.keys().next().copied().filter(|_| next % 3 == 0);
            let ticket = there.and_then(|block| tickets.remove(&block));
            let submitted = match ticket.clone() {
                Some(ticket) => cellar.submit_get(ticket, Box::new(vec![0; BYTES])).ok(),
                None => cellar.submit_put(block(next), Box::new(noise(next.into(), BYTES))).ok(),
            };
            if submitted.is_none() {
                tickets.extend(ticket.map(|ticket| (ticket.block(), ticket)));
            }
            if let Some(job) = submitted {
                assert!(waiting.insert(job, next).is_none(), "a number comes once");
                next += 1;
                continue;
            }
        }
        let done = cellar.wait(PATIENCE).expect("some job is under way");
        polled += 1;
        waiting.remove(&done.job()).expect("it was submitted, and not polled before");
        match done {
            Done::Put { block, result, .. } => {
                tickets.insert(block, result.expect("there is room"));
            }
            Done::Get { ticket, mut into, result, .. } => {
                result.expect("nothing is broken");
                assert_eq!((*into).as_mut(), noise(ticket.block().index.into(), BYTES));
                assert!(cellar.discard(&ticket));
            }
        }
    }
    assert!(waiting.is_empty() && cellar.poll().is_none());
    assert_eq!(cellar.statistics().blocks, tickets.len() as u64);
}

#[test]
fn a_block_that_is_discarded_while_it_is_read_is_read_to_its_end() {
    let (cellar, disk) = cellar(2 * GRANULE_BYTES);
    let ticket = cellar.put(block(0), &noise(0, BYTES)).expect("free");
    let hold = disk.hold();
    cellar.submit_get(ticket.clone(), Box::new(vec![0; BYTES])).expect("free");
    // Only a block that a thread has begun to read is held by it.
    let until = Instant::now() + PATIENCE;
    while cellar.keep.books().is_unread(&ticket) {
        assert!(Instant::now() < until, "nobody begins to read");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(cellar.discard(&ticket));
    assert_eq!(cellar.statistics().free_bytes, 0, "nobody may write there yet");
    assert!(matches!(get(&cellar, &ticket), Err(GetError::Unknown { .. })));
    drop(hold);
    let Some(Done::Get { mut into, result, .. }) = cellar.wait(PATIENCE) else { panic!("it is under way") };
    result.expect("it was held when it was begun");
    assert_eq!((*into).as_mut(), noise(0, BYTES));
    assert_eq!(cellar.statistics().free_bytes, 2 * GRANULE_BYTES);
}

#[test]
fn dropping_forgets_what_nobody_has_begun() {
    let (cellar, disk) = cellar(LIMIT);
    let hold = disk.hold();
    for at in 0..8 {
        cellar.submit_put(block(at), Box::new(noise(at.into(), BYTES))).expect("free");
    }
    let jobs = Arc::clone(&cellar.jobs);
    let release = std::thread::spawn(move || {
        let until = Instant::now() + PATIENCE;
        while !jobs.is_closing() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(hold);
    });
    drop(cellar);
    release.join().expect("no panic");
    assert!(disk.calls(crate::disk::faulty::On::Write) <= 2, "one for each thread");
}

#[test]
fn blocking_calls_from_many_threads_do_not_meet() {
    let (cellar, _disk) = cellar(LIMIT);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let cellar = &cellar;
            scope.spawn(move || {
                for round in 0..20 {
                    let seed = u64::from(thread * 100 + round);
                    let bytes = noise_and_zeros(seed, 150_000, (round % 17) as usize);
                    let ticket = cellar.put(block(thread), &bytes).expect("room for all");
                    assert_eq!(get(cellar, &ticket).expect("nothing is broken"), bytes);
                    assert!(cellar.discard(&ticket));
                }
            });
        }
    });
    assert_eq!(cellar.statistics().free_bytes, LIMIT);
}
