//! Whatever happens to the bytes on the disk, nobody gets wrong ones.

use super::*;
use crate::buffer::UNIT_BYTES;
use proptest::prelude::*;

/// The offsets in the file of all bytes that were written for a block.
fn written(ticket: &Ticket) -> Vec<u64> {
    let sealed = ticket.sealed.as_ref().expect("it is on the disk");
    let bytes = (sealed.packed_bytes as usize).next_multiple_of(UNIT_BYTES);
    sealed.extents.iter().flat_map(|run| run.offset..run.offset + run.bytes).take(bytes).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn any_change_of_any_byte_is_noticed(
        bytes in 1usize..200_000,
        noisy in 1usize..=16,
        at in any::<prop::sample::Index>(),
        change in 1u8..=255,
    ) {
        let (cellar, disk) = cellar(64 * GRANULE_BYTES);
        let plain = noise_and_zeros(7, bytes, noisy);
        prop_assume!(plain.iter().any(|&byte| byte != 0));
        let others: Vec<Ticket> = (1..4).map(|at| cellar.put(block(at), &noise(at.into(), 5000)).expect("free")).collect();
        let ticket = cellar.put(block(0), &plain).expect("free");
        let written = written(&ticket);
        let offset = written[at.index(written.len())] as usize;
        disk.tamper(|disk| disk[offset] ^= change);
        let got = get(&cellar, &ticket);
        prop_assert!(matches!(got, Err(GetError::Broken { block: BlockId { index: 0, .. }, .. })), "{got:?}");
        // Others are whole, and the block is there again once the disk is right.
        for (at, other) in others.iter().enumerate() {
            prop_assert_eq!(get(&cellar, other).expect("untouched"), noise(at as u64 + 1, 5000));
        }
        disk.tamper(|disk| disk[offset] ^= change);
        prop_assert_eq!(get(&cellar, &ticket).expect("as it was"), plain);
    }
}

#[test]
fn the_error_names_the_block() {
    let (cellar, disk) = cellar(64 * GRANULE_BYTES);
    let ticket = cellar.put(block(5), &noise(5, 10_000)).expect("free");
    disk.tamper(|disk| disk.fill(0));
    let message = get(&cellar, &ticket).expect_err("all is gone").to_string();
    assert!(message.contains("block 5 of handle 2 of tenant 1") && message.contains("lost"), "{message}");
    assert_eq!(cellar.statistics().totals.gets_failed, 1);
}

#[test]
fn swapped_blocks_are_refused() {
    let (cellar, disk) = cellar(64 * GRANULE_BYTES);
    let [a, b] = [0, 1].map(|at| cellar.put(block(at), &noise(at.into(), 10_000)).expect("free"));
    let [from_a, from_b] = [&a, &b].map(|ticket| ticket.extents()[0].offset as usize);
    disk.tamper(|disk| {
        for at in 0..10_000usize.next_multiple_of(UNIT_BYTES) {
            disk.swap(from_a + at, from_b + at);
        }
    });
    for ticket in [&a, &b] {
        assert!(matches!(get(&cellar, ticket), Err(GetError::Broken { .. })));
    }
    // Also where the ticket says that it is there: the place is vouched for.
    let mut moved = a.clone();
    moved.sealed.as_mut().expect("sealed").extents = b.extents().to_vec();
    let key = Key::from_bytes(cellar.key().bytes()).expect("locked");
    drop(cellar);
    let cellar = reopened(&settings(64 * GRANULE_BYTES), &disk, key, vec![moved.clone()]);
    assert!(matches!(get(&cellar, &moved), Err(GetError::Broken { .. })));
}

#[test]
fn an_older_version_in_the_same_place_is_refused() {
    let (cellar, disk) = cellar(64 * GRANULE_BYTES);
    let old = cellar.put(block(0), &noise(0, 10_000)).expect("free");
    let offset = old.extents()[0].offset;
    let old_bytes = disk.bytes(offset, GRANULE_BYTES as usize);
    assert!(cellar.discard(&old));
    let new = cellar.put(block(0), &noise(1, 10_000)).expect("free");
    assert_eq!(new.extents()[0].offset, offset, "space is used again");
    disk.tamper(|disk| disk[offset as usize..][..old_bytes.len()].copy_from_slice(&old_bytes));
    assert!(matches!(get(&cellar, &new), Err(GetError::Broken { .. })));
}

#[test]
fn a_ticket_that_was_changed_is_not_known() {
    let (cellar, _disk) = cellar(64 * GRANULE_BYTES);
    let ticket = cellar.put(block(0), &noise(0, 10_000)).expect("free");
    let other = Ticket { block: block(1), ..ticket.clone() };
    assert!(matches!(get(&cellar, &other), Err(GetError::Unknown { .. })));
    assert!(!cellar.discard(&other));
    assert!(cellar.discard(&ticket));
}
