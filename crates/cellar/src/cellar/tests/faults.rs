//! Disks that are full, broken or slow, and threads that panic: everything is as it was before.

use super::*;
use crate::disk::faulty::{Fault, On};
use std::io::ErrorKind;

const LIMIT: u64 = 64 * GRANULE_BYTES;
const BYTES: usize = 3 << 16;

/// What a failed put must not change.
fn books(cellar: &Cellar) -> (u64, u64, u64) {
    let statistics = cellar.statistics();
    (statistics.blocks, statistics.disk_bytes, statistics.free_bytes)
}

#[test]
fn a_full_disk_is_said_and_changes_nothing() {
    let (cellar, disk) = cellar(LIMIT);
    disk.set_capacity(SEGMENT);
    let kept = cellar.put(block(0), &noise(0, 10 * GRANULE_BYTES as usize)).expect("the first segment fits");
    let before = books(&cellar);
    let full = cellar.put(block(1), &noise(1, 10 * GRANULE_BYTES as usize)).expect_err("no second one");
    assert!(full.is_full());
    let PutError::DiskFull { needed_bytes, available_bytes, .. } = full else { panic!("{full}") };
    assert_eq!((needed_bytes, available_bytes), (10 * GRANULE_BYTES, 0));
    assert_eq!(books(&cellar), before);
    assert_eq!(cellar.statistics().totals.puts_failed, 1);
    assert_eq!(get(&cellar, &kept).expect("untouched"), noise(0, 10 * GRANULE_BYTES as usize));
    // What still fits does, and with room on the disk the rest does, too.
    cellar.put(block(2), &noise(2, 6 * GRANULE_BYTES as usize)).expect("there is so much left");
    disk.set_capacity(2 * SEGMENT);
    cellar.put(block(1), &noise(1, 10 * GRANULE_BYTES as usize)).expect("the disk has room again");
}

#[test]
fn room_for_others_is_left_alone() {
    let settings = Settings { leave_bytes: 5 * SEGMENT, ..settings(LIMIT) };
    let (cellar, disk) = cellar_with(&settings);
    disk.set_capacity(6 * SEGMENT - 1);
    let full =
        cellar.put(block(0), &noise(0, 1000)).expect_err("less than what is left to others would be left");
    assert!(matches!(full, PutError::DiskFull { leave_bytes, .. } if leave_bytes == 5 * SEGMENT), "{full}");
    assert_eq!(disk.calls(On::Allocate), 0);
    disk.set_capacity(6 * SEGMENT);
    cellar.put(block(0), &noise(0, 1000)).expect("just enough");
}

/// Where nothing can be allocated ahead, a full disk shows in the middle of a write.
#[test]
fn every_error_of_a_write_gives_the_space_back() {
    for (code, is_full) in [
        (libc::ENOSPC, true),
        (libc::EDQUOT, true),
        (libc::EFBIG, true),
        (libc::EIO, false),
        (libc::EROFS, false),
    ] {
        let (cellar, disk) = cellar(LIMIT);
        let kept = cellar.put(block(0), &noise(0, BYTES)).expect("free");
        let before = books(&cellar);
        // The first part of it is written, the second is not.
        disk.fail(On::Write, 0, Fault::Short(8192));
        disk.fail(On::Write, 1, Fault::Error(code));
        let failed = cellar.put(block(1), &noise(1, BYTES)).expect_err("the disk fails");
        assert_eq!(failed.is_full(), is_full, "{failed}");
        if !is_full {
            assert!(matches!(&failed, PutError::Disk { block: BlockId { index: 1, .. }, .. }), "{failed}");
        }
        assert_eq!(books(&cellar), before, "{code}");
        assert_eq!(get(&cellar, &kept).expect("untouched"), noise(0, BYTES));
        let again = cellar.put(block(1), &noise(1, BYTES)).expect("the disk is well again");
        assert_eq!(get(&cellar, &again).expect("written"), noise(1, BYTES));
    }
}

#[test]
fn a_disk_that_does_not_read_loses_nothing() {
    let (cellar, disk) = cellar(LIMIT);
    let ticket = cellar.put(block(0), &noise(0, BYTES)).expect("free");
    disk.fail(On::Read, 0, Fault::Error(libc::EIO));
    let failed = get(&cellar, &ticket);
    assert!(matches!(failed, Err(GetError::Disk { block: BlockId { index: 0, .. }, .. })), "{failed:?}");
    disk.fail(On::Read, 0, Fault::Short(0));
    let Err(GetError::Disk { why, .. }) = get(&cellar, &ticket) else { panic!("the file ends") };
    assert_eq!(why.kind(), ErrorKind::UnexpectedEof);
    disk.fail(On::Read, 0, Fault::Short(4096));
    assert_eq!(get(&cellar, &ticket).expect("short reads go on"), noise(0, BYTES));
}

#[test]
fn the_file_does_not_grow_for_what_cannot_fit() {
    let (cellar, disk) = cellar(2 * SEGMENT);
    cellar.put(block(0), &noise(0, 8 * GRANULE_BYTES as usize)).expect("free");
    let full =
        cellar.put(block(1), &noise(1, 25 * GRANULE_BYTES as usize)).expect_err("24 granules are free");
    assert!(matches!(full, PutError::Full { free_bytes, .. } if free_bytes == 24 * GRANULE_BYTES), "{full}");
    assert_eq!(disk.allocated_bytes(), SEGMENT);
}

#[test]
fn an_allocation_that_fails_is_undone() {
    let (cellar, disk) = cellar(LIMIT);
    disk.fail(On::Allocate, 0, Fault::Error(libc::EIO));
    let failed = cellar.put(block(0), &noise(0, BYTES));
    assert!(matches!(failed, Err(PutError::Disk { .. })), "{failed:?}");
    assert_eq!((cellar.statistics().file_bytes, disk.allocated_bytes()), (0, 0));
    cellar.put(block(0), &noise(0, BYTES)).expect("the disk is well again");
}

#[test]
fn a_panic_ends_a_job_and_not_its_thread() {
    let settings = Settings { workers: 1, ..settings(LIMIT) };
    let (cellar, disk) = cellar_with(&settings);
    let ticket = cellar.put(block(0), &noise(0, BYTES)).expect("free");
    let before = books(&cellar);
    for _ in 0..3 {
        disk.fail(On::Write, 0, Fault::Panic);
        cellar.submit_put(block(1), Box::new(noise(1, BYTES))).expect("free");
        let done = cellar.wait(Duration::from_secs(60));
        let Some(Done::Put { source, result, .. }) = done else { panic!("{done:?}") };
        assert!(matches!(result, Err(PutError::Panicked { block: BlockId { index: 1, .. } })), "{result:?}");
        assert_eq!((*source).as_ref(), noise(1, BYTES));
        assert_eq!(books(&cellar), before);

        disk.fail(On::Read, 0, Fault::Panic);
        cellar.submit_get(ticket.clone(), Box::new(vec![0; BYTES])).expect("free");
        let done = cellar.wait(Duration::from_secs(60));
        let Some(Done::Get { result, .. }) = done else { panic!("{done:?}") };
        assert!(matches!(result, Err(GetError::Panicked { .. })), "{result:?}");
    }
    // The thread is there, nobody counts as reading, and the disk's time has an end.
    cellar.submit_get(ticket.clone(), Box::new(vec![0; BYTES])).expect("free");
    let done = cellar.wait(Duration::from_secs(60));
    assert!(matches!(done, Some(Done::Get { result: Ok(()), .. })), "{done:?}");
    assert!(cellar.keep.figures().is_idle());
    assert!(cellar.discard(&ticket));
    assert_eq!(cellar.statistics().free_bytes, LIMIT);
}

/// A source whose owner's code panics.
struct Trap;

impl AsRef<[u8]> for Trap {
    fn as_ref(&self) -> &[u8] {
        panic!("as it was told");
    }
}

#[test]
fn a_source_that_panics_harms_nobody() {
    let (cellar, _disk) = cellar(LIMIT);
    cellar.submit_put(block(0), Box::new(Trap)).expect("free");
    let done = cellar.wait(Duration::from_secs(60));
    assert!(matches!(done, Some(Done::Put { result: Err(PutError::Panicked { .. }), .. })), "{done:?}");
    cellar.put(block(0), &noise(0, BYTES)).expect("free");
}
