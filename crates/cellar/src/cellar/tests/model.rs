//! Random lives of a small cellar beside a map that knows every byte.

use super::*;
use crate::BLOCK_BYTES_MAX;
use proptest::prelude::*;

const LIMIT: u64 = 41 * GRANULE_BYTES;

#[derive(Clone, Debug)]
enum Step {
    /// Size, how much of it is noise, and a seed.
    Put(usize, usize, u64),
    Get(prop::sample::Index),
    Discard(prop::sample::Index),
    Trim,
    /// The process ends, and another one goes on with what was kept.
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let granule = GRANULE_BYTES as usize;
    let bytes = prop_oneof![
        1 => Just(1usize),
        2 => 1usize..3 * granule,
        4 => (1usize..12).prop_map(move |granules| granules * granule),
        1 => Just(BLOCK_BYTES_MAX),
    ];
    prop_oneof![
        6 => (bytes, 0usize..=16, any::<u64>()).prop_map(|(bytes, noisy, seed)| Step::Put(bytes, noisy, seed >> 1)),
        4 => any::<prop::sample::Index>().prop_map(Step::Get),
        5 => any::<prop::sample::Index>().prop_map(Step::Discard),
        1 => Just(Step::Trim),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_block_is_what_was_put(steps in prop::collection::vec(step(), 1..80)) {
        let settings = settings(LIMIT);
        let (mut cellar, disk) = cellar_with(&settings);
        let mut held: Vec<(Ticket, Vec<u8>)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put(bytes, noisy, seed) => {
                    let bytes = noise_and_zeros(seed, bytes, noisy);
                    let used: u64 = held.iter().map(|(ticket, _)| ticket.disk_bytes()).sum();
                    match cellar.put(block(number as u32), &bytes) {
                        Ok(ticket) => {
                            prop_assert_eq!(ticket.check(), Ok(()));
                            prop_assert!(ticket.disk_bytes() <= (bytes.len() as u64).next_multiple_of(GRANULE_BYTES));
                            let kept = Ticket::from_bytes(&ticket.to_bytes());
                            prop_assert_eq!(kept.as_ref(), Ok(&ticket));
                            held.push((ticket, bytes));
                        }
                        // Full only if it really is: scattered space is space.
                        Err(PutError::Full { needed_bytes, free_bytes, .. }) => {
                            prop_assert_eq!(free_bytes, LIMIT - used);
                            prop_assert!(needed_bytes > free_bytes);
                        }
                        Err(error) => prop_assert!(false, "{error}"),
                    }
                }
                Step::Get(which) if !held.is_empty() => {
                    let (ticket, bytes) = &held[which.index(held.len())];
                    prop_assert_eq!(&get(&cellar, ticket).expect("nothing is broken"), bytes);
                }
                Step::Discard(which) if !held.is_empty() => {
                    let (ticket, _) = held.swap_remove(which.index(held.len()));
                    prop_assert!(cellar.discard(&ticket));
                    prop_assert!(!cellar.discard(&ticket));
                    let gone = get(&cellar, &ticket);
                    prop_assert!(matches!(gone, Err(GetError::Unknown { .. })), "{gone:?}");
                }
                Step::Trim => {
                    cellar.trim();
                }
                Step::Reopen => {
                    let key = Key::from_bytes(cellar.key().bytes()).expect("locked");
                    drop(cellar);
                    let tickets = held.iter().map(|(ticket, _)| ticket.clone()).collect();
                    cellar = reopened(&settings, &disk, key, tickets);
                }
                Step::Get(_) | Step::Discard(_) => {}
            }
            let statistics = cellar.statistics();
            let plain: u64 = held.iter().map(|(_, bytes)| bytes.len() as u64).sum();
            let used: u64 = held.iter().map(|(ticket, _)| ticket.disk_bytes()).sum();
            prop_assert_eq!(statistics.blocks, held.len() as u64);
            prop_assert_eq!((statistics.plain_bytes, statistics.disk_bytes), (plain, used));
            prop_assert_eq!(statistics.free_bytes, LIMIT - used);
            prop_assert!(used <= statistics.file_bytes && statistics.file_bytes <= LIMIT);
        }
        for (ticket, bytes) in &held {
            prop_assert_eq!(&get(&cellar, ticket).expect("nothing is broken"), bytes);
            prop_assert!(cellar.discard(ticket));
        }
        cellar.trim();
        let statistics = cellar.statistics();
        prop_assert_eq!((statistics.free_bytes, statistics.file_bytes), (LIMIT, 0));
        prop_assert_eq!(disk.allocated_bytes(), 0);
    }
}

#[test]
fn scattered_space_is_space() {
    let (cellar, _disk) = cellar(32 * GRANULE_BYTES);
    let granule = GRANULE_BYTES as usize;
    let tickets: Vec<Ticket> =
        (0..32).map(|at| cellar.put(block(at), &noise(at.into(), granule)).expect("free")).collect();
    let one_more = cellar.put(block(99), &noise(99, 1));
    assert!(matches!(one_more, Err(PutError::Full { free_bytes: 0, .. })), "{one_more:?}");
    for ticket in tickets.iter().step_by(2) {
        assert!(cellar.discard(ticket));
    }
    let bytes = noise(100, 16 * granule);
    let scattered = cellar.put(block(100), &bytes).expect("half of it is free");
    assert_eq!(scattered.extents().len(), 16);
    assert_eq!(get(&cellar, &scattered).expect("nothing is broken"), bytes);
    for (at, ticket) in tickets.iter().enumerate().skip(1).step_by(2) {
        assert_eq!(get(&cellar, ticket).expect("nothing is broken"), noise(at as u64, granule));
    }
}

#[test]
fn what_can_be_packed_takes_less() {
    let (cellar, disk) = cellar(64 * GRANULE_BYTES);
    let zeros = cellar.put(block(0), &vec![0; BLOCK_BYTES_MAX]).expect("free");
    let half = cellar.put(block(1), &noise_and_zeros(1, BLOCK_BYTES_MAX, 8)).expect("free");
    let noise = cellar.put(block(2), &noise(2, BLOCK_BYTES_MAX)).expect("free");
    let tiny = cellar.put(block(3), &noise_and_zeros(3, BLOCK_BYTES_MAX, 1)).expect("free");
    assert_eq!(zeros.disk_bytes(), 0);
    assert!((16..20).contains(&(half.disk_bytes() / GRANULE_BYTES)), "{half:?}");
    assert_eq!(noise.disk_bytes(), BLOCK_BYTES_MAX as u64);
    assert!(tiny.disk_bytes() <= 4 * GRANULE_BYTES, "{tiny:?}");
    assert_eq!(get(&cellar, &zeros).expect("no disk is needed"), vec![0; BLOCK_BYTES_MAX]);
    let totals = cellar.statistics().totals;
    assert_eq!((totals.zero_blocks, totals.plain_blocks, totals.packed_blocks), (1, 1, 2));
    assert_eq!(totals.put_bytes, 4 * BLOCK_BYTES_MAX as u64);
    assert!(totals.written_bytes < 2 * BLOCK_BYTES_MAX as u64);
    assert!(cellar.statistics().ratio().expect("there are blocks") < 0.45);
    // What is on the disk is not what was put.
    let plain = super::noise(2, BLOCK_BYTES_MAX);
    let on_disk = disk.bytes(noise.extents()[0].offset, 4096);
    assert_ne!(on_disk, plain[..4096]);
}

#[test]
fn what_is_decided_by_is_measured() {
    let disk = FaultyDisk::new(512 * GRANULE_BYTES);
    let key = Key::random().expect("random");
    let cellar = Cellar::on_disk(&settings(512 * GRANULE_BYTES), Box::new(disk), key).expect("threads");
    let known = || {
        let figures = cellar.keep.figures().conditions();
        [figures.write.is_some(), figures.read.is_some(), figures.seal.is_some(), figures.share.is_some()]
    };
    assert_eq!(known(), [false; 4]);
    for at in 0..8 {
        let ticket = cellar.put(block(at), &noise(at.into(), BLOCK_BYTES_MAX)).expect("free");
        get(&cellar, &ticket).expect("nothing is broken");
    }
    assert_eq!(known(), [true; 4]);
}

/// By measured figures alone: at first nothing is known, and then that the disk is far slower than packing.
#[test]
fn on_a_slow_disk_blocks_are_packed() {
    let disk = FaultyDisk::new(512 * GRANULE_BYTES);
    let key = Key::random().expect("random");
    let cellar =
        Cellar::on_disk(&settings(512 * GRANULE_BYTES), Box::new(disk.clone()), key).expect("threads");
    let bytes = noise_and_zeros(7, BLOCK_BYTES_MAX, 4);
    // A machine that is busy with others may not find it worth its while before the disk is slower still.
    let is_packed = (0..60).any(|at| {
        disk.set_delay(Duration::from_millis(100 << (at / 16)));
        let ticket = cellar.put(block(at), &bytes).expect("free");
        let is_packed = cellar.statistics().totals.packed_blocks > 0;
        assert!(!is_packed || get(&cellar, &ticket).expect("nothing is broken") == bytes);
        assert!(cellar.discard(&ticket));
        is_packed
    });
    let totals = cellar.statistics().totals;
    assert!(is_packed && totals.plain_blocks > 0, "{totals:?}");
}

#[test]
fn sizes_that_no_block_has_are_refused() {
    let (cellar, _disk) = cellar(64 * GRANULE_BYTES);
    for bytes in [0, BLOCK_BYTES_MAX + 1] {
        let put = cellar.put(block(0), &vec![1; bytes]);
        assert!(matches!(put, Err(PutError::Size { .. })), "{put:?}");
    }
    let ticket = cellar.put(block(0), &[1, 2, 3]).expect("free");
    for bytes in [0, 2, 4] {
        let got = cellar.get(&ticket, &mut vec![0; bytes]);
        assert!(matches!(got, Err(GetError::Size { bytes: 3, .. })), "{got:?}");
    }
}
