use cuda::types::CUmemGenericAllocationHandle;
use wire::{BLOCK_BYTES, Question};

use super::*;

fn context(number: usize) -> CUcontext {
    CUcontext(std::ptr::without_provenance_mut(number))
}

/// A range in parts of one block, whose first one has this number.
fn range(handle: u64, address: u64, blocks: u64) -> Range {
    let part = |number: u64| Part {
        handle: HandleId(handle + number),
        mappings: vec![Mapping::for_device(address + number * BLOCK_BYTES, CUdevice(0))],
        bytes: BLOCK_BYTES,
        kind: Kind::plain(CUdevice(0)),
        physical: Some(CUmemGenericAllocationHandle(handle + number)),
        home: Home::Device,
        file: None,
        exported: false,
        passable: false,
    };
    Range {
        block: Block { address, bytes: blocks * BLOCK_BYTES },
        device: CUdevice(0),
        grant: GrantId(handle),
        parts: (0..blocks).map(part).collect(),
    }
}

fn wanted(asked_bytes: u64) -> Wanted {
    Wanted { context: context(1), asked_bytes, pool: CUmemoryPool::NULL }
}

const LARGE: u64 = 40 << 20;

/// A table with a slab of one block, and a large range at 0x2000_0000.
fn table() -> Table {
    let mut table = Table::default();
    table.add(context(1), 1, range(1, 0x1000_0000, 1), 0);
    table.add(context(1), LARGE, range(100, 0x2000_0000, 20), 0);
    table
}

#[test]
fn an_address_inside_finds_its_allocation() {
    let mut table = table();
    assert_eq!(table.take(wanted(100)).unwrap().block.address, 0x1000_0000);
    assert_eq!(table.take(wanted(LARGE - 5)).unwrap().block.address, 0x2000_0000);
    let around = |address| table.around(address).map(|found| found.block.address);
    assert_eq!(around(0x0fff_ffff), None);
    assert_eq!(around(0x1000_0063), Some(0x1000_0000));
    assert_eq!(around(0x1000_0064), None, "past the size that was asked for");
    assert_eq!(around(0x2000_0000 + LARGE - 6), Some(0x2000_0000), "in its last part");
    assert_eq!(around(0x2000_0000 + LARGE - 5), None);
    assert!(table.claim(0x1000_0001).is_none(), "only a start can be freed");
    assert!(table.claim(0x2020_0000).is_none(), "a part cannot be freed by itself");
}

#[test]
fn two_threads_free_an_address_once() {
    let mut table = table();
    let address = table.take(wanted(100)).unwrap().block.address;
    assert!(table.claim(address).is_some());
    assert!(table.claim(address).is_none(), "another thread is at it");
    table.unclaim(address);
    let claimed = table.claim(address).unwrap();
    let gone = table.forget(address).unwrap();
    assert_eq!((claimed.block, table.used_bytes()), (gone.block, 0));
    assert!(table.claim(address).is_none());
    assert_ne!(table.take(wanted(100)).unwrap().block.address, address, "the device may still use it");
    table.give(&gone, 1);
    assert_eq!(table.take(wanted(100)).unwrap().block.address, address);
}

#[test]
fn numbers_of_buffers_never_come_again() {
    let mut table = table();
    let first = table.take(wanted(100)).unwrap();
    table.forget(first.block.address);
    table.give(&first, 1);
    let second = table.take(wanted(100)).unwrap();
    assert_eq!(first.block, second.block);
    assert_ne!(first.buffer, second.buffer);
}

#[test]
fn a_range_that_touches_memory_overlaps() {
    let mut table = Table::default();
    table.add(context(1), 1, range(1, 0x1000_0000, 1), 0);
    table.add(context(1), 1, range(2, 0x1040_0000, 1), 0);
    for (address, bytes) in [
        (0x1000_0000, 1),
        (0x1000_0000, 0),
        (0x101f_ffff, 1),
        (0x0fff_ffff, 2),
        (0x0fff_ffff, 0x1000_0000),
        (0x1030_0000, 0x0010_0001),
        (0, u64::MAX),
        (1, u64::MAX),
    ] {
        assert!(table.overlaps(address, bytes), "{address:x} {bytes:x}");
    }
    for (address, bytes) in [(0, 0), (0x0fff_ffff, 1), (0x1020_0000, 0x0020_0000), (0x1060_0000, u64::MAX)] {
        assert!(!table.overlaps(address, bytes), "{address:x} {bytes:x}");
    }
}

#[test]
fn the_gate_is_needed_while_any_part_is_away_or_being_unmapped() {
    let mut table = Table::default();
    assert!(!table.needs_gate());
    table.begin_unmapping();
    assert!(table.needs_gate(), "what is next may be unmapped at any moment");
    table.add(context(1), 1, range(1, 0x1000_0000, 2), 0);
    table.end_unmapping();
    assert!(!table.needs_gate());
    table.set_physical(HandleId(2), None);
    table.set_physical(HandleId(2), None);
    assert!(table.needs_gate());
    table.set_physical(HandleId(2), Some(CUmemGenericAllocationHandle(9)));
    assert!(!table.needs_gate());
    table.set_physical(HandleId(1), None);
    assert_eq!(table.drop_idle(0, u64::MAX).len(), 1);
    assert!(!table.needs_gate());
}

#[test]
fn exports_come_in_order_and_not_for_what_is_gone() {
    let mut table = Table::default();
    table.add(context(1), LARGE, range(1, 0x1000_0000, 2), 2);
    table.add(context(1), LARGE, range(3, 0x2000_0000, 2), 1);
    table.add(context(1), LARGE, range(5, 0x3000_0000, 1), 2);
    assert_eq!(table.drop_idle(1, u64::MAX).len(), 1);
    let mut next = || {
        let part = table.next_unexported()?;
        Some((table.grant(part.handle)?.0, part.handle.0))
    };
    assert_eq!([next(), next(), next(), next()], [Some((1, 1)), Some((1, 2)), Some((5, 5)), None]);
}

#[test]
fn a_context_is_left_and_entered_again_or_takes_its_memory_with_it() {
    let mut table = table();
    table.add(context(2), 1, range(200, 0x3000_0000, 1), 0);
    table.take(wanted(100)).unwrap();
    let other = table.take(Wanted { context: context(2), ..wanted(100) }).unwrap();
    let detached = table.detach(context(1));
    assert!(table.part(HandleId(1)).unwrap().0.is_null());
    assert_eq!(table.part(HandleId(200)).unwrap().0, context(2));
    assert!(!table.knows(context(1)) && table.take(wanted(100)).is_none());
    table.attach(&detached, context(2));
    assert_eq!(table.part(HandleId(1)).unwrap().0, context(2));
    assert!(table.take(Wanted { context: context(2), ..wanted(LARGE) }).is_some(), "two heaps serve it");

    let detached = table.detach(context(2));
    assert_eq!(detached.len(), 2);
    assert_eq!(table.end(context(2), &detached).len(), 3);
    assert_eq!((table.used_bytes(), table.idle_bytes()), (0, 0));
    assert!(table.forget(other.block.address).is_none());
    table.give(&other, 1);
    assert!(!table.overlaps(0, u64::MAX));
}

#[test]
fn a_part_that_changes_its_home_is_another_to_the_daemon_and_the_same_to_the_program() {
    let mut table = table();
    let start = 0x2000_0000;
    let parts = |table: &Table, address, bytes| {
        table.whole_parts_in(address, bytes).iter().map(|handle| handle.0).collect::<Vec<u64>>()
    };
    assert_eq!(parts(&table, start, LARGE).len(), 20);
    assert_eq!(parts(&table, start + 1, 3 * BLOCK_BYTES), [101, 102], "only what lies wholly inside");
    assert_eq!(parts(&table, start, BLOCK_BYTES - 1), []);
    table.set_physical(HandleId(101), None);
    assert!(table.needs_gate());
    table.rehome(HandleId(101), HandleId(900), Home::Named(0), CUmemGenericAllocationHandle(7));
    assert!(!table.needs_gate(), "memory lies there again");
    assert!(table.part(HandleId(101)).is_none() && table.is_in_a_range(HandleId(900)));
    let (_, part) = table.part(HandleId(900)).unwrap();
    assert_eq!(
        (part.mappings[0].address, part.physical),
        (start + BLOCK_BYTES, Some(CUmemGenericAllocationHandle(7)))
    );
    assert_eq!(parts(&table, start + 1, 3 * BLOCK_BYTES), [102], "it is there already");
    assert_eq!(table.hosted().map(|part| part.handle.0).collect::<Vec<_>>(), [900]);
    let survivors = table.survivors(|_| false).movable;
    assert!(survivors.len() == 20 && !survivors.contains(&HandleId(900)), "no daemon moves it");
    let exported: Vec<u64> =
        std::iter::from_fn(|| table.next_unexported()).map(|part| part.handle.0).collect();
    assert!(exported.len() == 20 && !exported.contains(&900) && !exported.contains(&101), "{exported:?}");
    let dropped = table.drop_idle(u64::MAX, u64::MAX);
    let freed = dropped.iter().flat_map(|dropped| &dropped.parts).filter(|part| part.exported);
    assert_eq!(freed.map(|part| part.handle.0).collect::<Vec<_>>(), [900], "it is freed by its new name");
}

fn question(handle: u64, number: u64) -> Question {
    Question { handle: HandleId(handle), number }
}

#[test]
fn what_is_prepared_for_a_part_is_used_once_or_let_go() {
    let mut table = table();
    let memory = CUmemGenericAllocationHandle;
    table.want_prepared(&[question(101, 1), question(102, 2)]);
    assert_eq!(table.next_to_prepare(), Some(question(101, 1)));
    assert_eq!(table.add_prepared(question(101, 1), Home::Host(0), memory(7)), None);
    assert_eq!(table.take_prepared(question(101, 1)), Some((Home::Host(0), memory(7))));
    assert_eq!(table.take_prepared(question(101, 1)), None);
    table.set_home(HandleId(101), Home::Host(0), memory(7));
    let (_, part) = table.part(HandleId(101)).unwrap();
    assert!(part.is_on_host() && part.physical == Some(memory(7)) && table.can_change_home(HandleId(101)));
    assert_eq!(table.take_prepared(question(102, 2)), None, "it was only wanted");
    assert_eq!(table.next_to_prepare(), None);
    // Of what the program frees, and of all when the daemon is gone.
    table.add_prepared(question(103, 3), Home::Host(0), memory(8));
    table.add_prepared(question(1, 4), Home::Host(0), memory(9));
    assert_eq!(table.take_unwanted(false), []);
    table.take(wanted(100)).unwrap();
    table.drop_idle(u64::MAX, u64::MAX);
    assert_eq!(table.take_unwanted(false), [memory(8)]);
    assert_eq!(table.take_unwanted(true), [memory(9)]);
    assert!(!table.can_change_home(HandleId(103)), "it is gone");
}

#[test]
fn what_was_prepared_for_another_question_is_not_used() {
    let mut table = table();
    let memory = CUmemGenericAllocationHandle;
    let (first, second, other) = (question(101, 1), question(101, 3), question(102, 2));
    table.add_prepared(first, Home::Device, memory(7));
    assert_eq!(table.take_prepared(second), None, "whatever is asked for it");
    // Asked anew, it goes; what is prepared for others stays.
    table.add_prepared(other, Home::Device, memory(8));
    assert_eq!(table.take_outdated(&[second]), [memory(7)]);
    table.add_prepared(second, Home::Device, memory(9));
    assert_eq!(table.take_prepared(first), None, "neither used nor let go for a question that is over");
    assert_eq!(table.take_prepared(second), Some((Home::Device, memory(9))));
    assert_eq!(table.take_prepared(other), Some((Home::Device, memory(8))));
    // The same of what is wanted, and not made yet.
    table.want_prepared(&[first, other]);
    assert_eq!(table.take_outdated(&[second]), []);
    table.want_prepared(&[second]);
    assert_eq!(table.take_prepared(first), None);
    assert_eq!([table.next_to_prepare(), table.next_to_prepare()], [Some(other), Some(second)]);
    assert_eq!(table.next_to_prepare(), None);
}

#[test]
fn what_the_program_named_or_has_no_memory_keeps_its_home() {
    let mut table = table();
    assert!(table.can_change_home(HandleId(101)));
    table.set_physical(HandleId(101), None);
    assert!(!table.can_change_home(HandleId(101)), "it is away");
    table.set_home(HandleId(102), Home::Named(0), CUmemGenericAllocationHandle(7));
    assert!(!table.can_change_home(HandleId(102)));
    table.set_home(HandleId(103), Home::Host(0), CUmemGenericAllocationHandle(8));
    table.begin_again(Told::default(), |_| false, || GrantId(1));
    let shown: Vec<u64> = std::iter::from_fn(|| table.next_unexported()).map(|part| part.handle.0).collect();
    assert_eq!(shown, [103], "a new daemon sees what may change");
}
