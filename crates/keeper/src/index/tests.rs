//! Each request in each state of a handle, and the books after it.

mod cellar;

use super::*;
use crate::message::{PAGE_BYTES_MAX, Place, Recorded};

const SEGMENT: u64 = 32 * BLOCK_BYTES;
const TENANT: TenantNumber = TenantNumber(3);
const PROCESS: Process = Process { pid: 100, start_ticks: 5 };

fn key(handle: u64) -> HandleKey {
    HandleKey { tenant: TENANT, handle }
}

fn index(segments: u64) -> Index {
    let mut index = Index::new(SEGMENT);
    for number in 0..segments {
        assert!(index.add_segment(Extent { offset: number * SEGMENT, bytes: SEGMENT }, None));
    }
    assert_eq!(index.introduce(TENANT, PROCESS), Outcome::Done);
    index
}

fn reserve(index: &mut Index, handle: u64, blocks: u64) -> Reservation {
    index.reserve(Wanted { key: key(handle), bytes: blocks * BLOCK_BYTES }, None)
}

fn extents(index: &mut Index, handle: u64, blocks: u64) -> Vec<Extent> {
    match reserve(index, handle, blocks) {
        Reservation::Space { extents, .. } => extents,
        other => panic!("no space: {other:?}"),
    }
}

fn out(handle: u64, facts: usize) -> Out {
    Out { key: key(handle), facts: vec![BlockFact { hash: [handle as u8; 16], zero: false }; facts] }
}

fn back(handle: u64, keep_clean: bool) -> In {
    In { key: key(handle), keep_clean }
}

/// What blocks that are not zero need, and one of those that are if all are.
fn stored_bytes(entry: &Entry) -> u64 {
    let zeros = entry.facts.iter().filter(|fact| fact.zero).count() as u64;
    (entry.bytes - zeros * BLOCK_BYTES).max(BLOCK_BYTES)
}

/// The books are the sum of the entries, and all space is somebody's.
fn check(index: &Index) {
    let mut sums = Sums { orphaned: index.orphaned.iter().map(Extents::bytes).sum(), ..Sums::default() };
    for entry in index.entries.values() {
        match entry.state {
            State::Cellar => {
                assert!([0, entry.bytes].contains(&entry.extents.bytes()));
                assert_eq!(entry.tickets.len() as u64, entry.bytes / BLOCK_BYTES);
                sums.reserved += entry.extents.bytes();
            }
            State::Away => assert_eq!(entry.extents.bytes(), stored_bytes(entry)),
            State::Clean(_) => {
                assert_eq!((entry.extents.bytes(), entry.tickets.len()), (stored_bytes(entry), 0));
            }
            State::Reserved => {
                assert_eq!((entry.extents.bytes(), entry.tickets.len()), (entry.bytes, 0));
            }
        }
        sums.count(entry);
    }
    let tickets: Vec<&Box<[u8]>> = index.entries.values().flat_map(|entry| &entry.tickets).collect();
    assert_eq!(index.tickets.counted(), (tickets.len(), tickets.iter().map(|ticket| ticket.len()).sum()));
    assert_eq!(index.sums, sums);
    let clean = index.entries.values().filter(|entry| matches!(entry.state, State::Clean(_))).count();
    assert_eq!(index.clean.len(), clean);
    let extents = index.entries.values().map(|entry| &entry.extents).chain(&index.orphaned);
    let taken: u64 = extents.map(Extents::bytes).sum();
    assert_eq!(taken + index.space.free_bytes(), index.space.ready_bytes());
}

#[test]
fn a_handle_goes_out_and_comes_back() {
    let mut index = index(1);
    let space = extents(&mut index, 1, 4);
    assert_eq!(index.recorded(TENANT, None), [], "what is reserved is not away");
    assert_eq!(index.record_out(out(1, 4)), Outcome::Done);
    let away = index.recorded(TENANT, None);
    let facts = out(1, 4).facts;
    let expected =
        Recorded { handle: 1, bytes: 4 * BLOCK_BYTES, place: Place::Away, extents: space.clone(), facts };
    assert_eq!(away, [expected]);
    assert_eq!(index.record_in(back(1, true)), Outcome::Done);
    assert_eq!(index.recorded(TENANT, None)[0].place, Place::Clean);
    check(&index);
    assert_eq!(index.record_in(back(1, false)), Outcome::Done, "the copy is not clean any more");
    assert_eq!(index.recorded(TENANT, None), []);
    assert_eq!(index.progress().free_bytes, SEGMENT);
}

#[test]
fn asking_twice_changes_nothing() {
    let mut index = index(1);
    assert_eq!(index.introduce(TENANT, PROCESS), Outcome::AlreadySo);
    let first = extents(&mut index, 1, 4);
    assert_eq!(extents(&mut index, 1, 4), first);
    assert_eq!(index.record_out(out(1, 0)), Outcome::Done);
    assert_eq!(index.record_out(out(1, 0)), Outcome::AlreadySo);
    assert_eq!(index.record_in(back(1, true)), Outcome::Done);
    assert_eq!(index.record_in(back(1, true)), Outcome::AlreadySo);
    assert_eq!(index.cancel(key(1)), Outcome::AlreadySo, "a clean copy is no reservation");
    assert_eq!(index.record_in(back(1, false)), Outcome::Done);
    assert_eq!(index.record_in(back(1, false)), Outcome::AlreadySo);
    assert_eq!(index.free(key(1)), Outcome::AlreadySo);
    assert_eq!((index.died(TENANT), index.died(TENANT)), (0, 0));
    check(&index);
}

#[test]
fn what_is_out_of_order_changes_nothing() {
    let mut index = index(1);
    assert_eq!(index.record_out(out(1, 0)), Outcome::NotReserved);
    let space = extents(&mut index, 1, 2);
    assert_eq!(index.record_in(back(1, true)), Outcome::NotAway);
    assert_eq!(index.record_out(out(1, 3)), Outcome::WrongFacts);
    assert_eq!(reserve(&mut index, 1, 3), Reservation::Refused(Outcome::WrongSize));
    assert_eq!(extents(&mut index, 1, 2), space);
    assert_eq!(index.record_out(out(1, 2)), Outcome::Done);
    assert_eq!(reserve(&mut index, 1, 2), Reservation::Refused(Outcome::IsAway));
    assert_eq!(index.cancel(key(1)), Outcome::IsAway);
    assert_eq!(index.recorded(TENANT, None)[0].place, Place::Away);
    for bytes in [0, 1, BLOCK_BYTES + 1, (HANDLE_BLOCKS_MAX + 1) * BLOCK_BYTES, u64::MAX] {
        let refused = index.reserve(Wanted { key: key(9), bytes }, None);
        assert_eq!(refused, Reservation::Refused(Outcome::WrongSize), "{bytes}");
    }
    let stranger = HandleKey { tenant: TenantNumber(8), handle: 1 };
    let refused = index.reserve(Wanted { key: stranger, bytes: BLOCK_BYTES }, None);
    assert_eq!(refused, Reservation::Refused(Outcome::UnknownTenant));
    assert_eq!(index.introduce(TENANT, Process { pid: 100, start_ticks: 6 }), Outcome::OtherProcess);
    check(&index);
}

#[test]
fn a_reservation_of_a_dead_worker_is_nobodys_until_reclaimed() {
    let mut index = index(1);
    extents(&mut index, 1, 20);
    index.record_out(out(1, 0));
    extents(&mut index, 2, 12);
    index.orphan_reservations();
    check(&index);
    assert_eq!(index.record_out(out(2, 0)), Outcome::NotReserved);
    let missing_bytes = 12 * BLOCK_BYTES;
    let lack = Lack { missing_bytes, free_bytes: 0, clean_bytes: 0, orphaned_bytes: 12 * BLOCK_BYTES };
    assert_eq!(reserve(&mut index, 2, 12), Reservation::NoSpace(lack));
    assert_eq!((index.reclaim(), index.reclaim()), (12 * BLOCK_BYTES, 0));
    extents(&mut index, 2, 12);
    assert_eq!(index.recorded(TENANT, None).len(), 1, "what is away stays");
    check(&index);
}

#[test]
fn a_worker_that_leaves_gives_its_reservations_back() {
    let mut index = index(1);
    extents(&mut index, 1, 20);
    index.record_out(out(1, 0));
    extents(&mut index, 2, 12);
    index.drop_reservations();
    check(&index);
    assert_eq!(index.progress().free_bytes, 12 * BLOCK_BYTES);
    assert_eq!(index.away_bytes(), 20 * BLOCK_BYTES);
}

#[test]
fn a_clean_copy_is_used_again_and_counts_for_nothing_meanwhile() {
    let mut index = index(1);
    let space = extents(&mut index, 1, 4);
    index.record_out(out(1, 4));
    index.record_in(back(1, true));
    let again = reserve(&mut index, 1, 4);
    assert_eq!(again, Reservation::Space { extents: space, reused: true });
    assert_eq!(index.recorded(TENANT, None), [], "it may be half overwritten");
    assert_eq!(index.drop_clean(u64::MAX, None), 0, "it is being written");
    index.orphan_reservations();
    assert_eq!(index.recorded(TENANT, None), []);
    check(&index);
}

#[test]
fn the_unwritten_place_of_a_zero_block_never_comes_to_count() {
    let fact = |hash, zero| BlockFact { hash: [hash; 16], zero };
    let facts = |facts: &[BlockFact]| Out { key: key(1), facts: facts.to_vec() };
    let mut index = index(1);
    extents(&mut index, 1, 2);
    assert_eq!(index.record_out(facts(&[fact(1, false), fact(0, true)])), Outcome::Done);
    assert_eq!(index.record_in(back(1, true)), Outcome::Done);
    assert!(matches!(reserve(&mut index, 1, 2), Reservation::Space { reused: true, .. }));
    for wrong in [&[][..], &[fact(1, false), fact(0, false)]] {
        assert_eq!(index.record_out(facts(wrong)), Outcome::WrongFacts, "{wrong:?}");
        // Asked twice, it is said to be no clean copy's place; but the worker may have acted on the first answer.
        assert!(matches!(reserve(&mut index, 1, 2), Reservation::Space { reused: false, .. }));
    }
    assert_eq!(index.recorded(TENANT, None), [], "it is still reserved");
    // Not zero any more, and so written; and one that has become zero.
    assert_eq!(index.record_out(facts(&[fact(0, true), fact(2, false)])), Outcome::Done);
    index.record_in(back(1, true));
    reserve(&mut index, 1, 2);
    // Whoever has no facts takes another place, and writes all of it.
    assert_eq!(index.cancel(key(1)), Outcome::Done);
    extents(&mut index, 1, 2);
    assert_eq!(index.record_out(facts(&[])), Outcome::Done);
    check(&index);
}

#[test]
fn the_oldest_clean_copies_go_first_and_nothing_else() {
    let mut index = index(1);
    for handle in [5, 1, 3, 2] {
        extents(&mut index, handle, 4);
        index.record_out(out(handle, 0));
    }
    for handle in [5, 1, 3] {
        index.record_in(back(handle, true));
    }
    assert_eq!(index.drop_clean(5 * BLOCK_BYTES, None), 8 * BLOCK_BYTES);
    let left: Vec<u64> = index.recorded(TENANT, None).iter().map(|recorded| recorded.handle).collect();
    assert_eq!(left, [2, 3]);
    assert_eq!(index.drop_clean(u64::MAX, Some(key(3))), 0, "it is to stay");
    assert_eq!(index.drop_clean(u64::MAX, Some(key(2))), 4 * BLOCK_BYTES);
    assert_eq!(index.away_bytes(), 4 * BLOCK_BYTES);
    check(&index);
}

#[test]
fn a_dead_tenant_leaves_nothing_and_others_all() {
    let mut index = index(1);
    let other = TenantNumber(2);
    index.introduce(other, PROCESS);
    for tenant in [TENANT, other] {
        for handle in 1..=3 {
            let key = HandleKey { tenant, handle };
            index.reserve(Wanted { key, bytes: BLOCK_BYTES }, None);
            if handle > 1 {
                index.record_out(Out { key, facts: Vec::new() });
            }
            if handle > 2 {
                index.record_in(In { key, keep_clean: true });
            }
        }
    }
    assert_eq!(index.died(TENANT), 3 * BLOCK_BYTES);
    assert_eq!(index.tenants(None), [(other, PROCESS)]);
    assert_eq!(index.recorded(other, None).len(), 2);
    assert_eq!(index.highest_tenant(), Some(TENANT), "numbers are not used twice");
    check(&index);
}

#[test]
fn pages_fit_into_a_message_and_miss_nothing() {
    let mut index = index(101);
    let mut handles: Vec<u64> = (0..200).chain([u64::MAX]).collect();
    for &handle in &handles {
        extents(&mut index, handle, 16);
        index.record_out(out(handle, 16));
    }
    let (mut after, mut listed, mut pages) = (None, Vec::new(), 0);
    loop {
        let page = index.recorded(TENANT, after);
        let Some(last) = page.last() else { break };
        assert!(postcard::to_stdvec(&page).expect("it can be written").len() <= PAGE_BYTES_MAX);
        after = Some(last.handle);
        listed.extend(page.iter().map(|recorded| recorded.handle));
        pages += 1;
    }
    handles.sort_unstable();
    assert_eq!(listed, handles);
    assert!(pages > 1, "{pages}");
}

#[test]
fn there_is_a_most_of_tenants() {
    let mut index = Index::new(SEGMENT);
    for number in 0..TENANTS_MAX as u32 {
        assert_eq!(index.introduce(TenantNumber(number), PROCESS), Outcome::Done);
    }
    assert_eq!(index.introduce(TenantNumber(u32::MAX), PROCESS), Outcome::TooManyTenants);
    let (mut after, mut count) = (None, 0);
    while let Some(&(last, _)) = index.tenants(after).last() {
        count += index.tenants(after).len();
        after = Some(last);
    }
    assert_eq!(count, TENANTS_MAX);
}
