use std::collections::{BTreeMap, BTreeSet};

use cuda::types::{CUdevice, CUmemLocation, CUmemLocationType};
use proptest::prelude::*;
use wire::BLOCK_BYTES;

use super::super::Home;
use super::*;

const START: u64 = 1 << 40;

fn created(handle: u64, sizes: &[u64]) -> Created {
    let kind = Kind::plain(CUdevice(0));
    let part = |(number, blocks): (u64, &u64)| Part {
        handle: HandleId(handle + number),
        mappings: Vec::new(),
        bytes: blocks * BLOCK_BYTES,
        kind,
        physical: None,
        home: Home::Device,
        file: None,
        exported: true,
        passable: false,
    };
    Created::new(kind, Making::Moving, GrantId(handle), (0..).zip(sizes).map(part).collect())
}

fn at(slot: u64) -> u64 {
    START + slot * BLOCK_BYTES
}

fn access(device: i32, flags: CUmemAccess_flags) -> CUmemAccessDesc {
    CUmemAccessDesc { location: CUmemLocation { type_: CUmemLocationType::DEVICE, id: device }, flags }
}

#[test]
fn numbers_look_like_nothing_of_the_drivers() {
    let mut all = Creations::default();
    let number = all.add(created(1, &[1]));
    assert!(is_number(number) && !is_number(0) && !is_number(number << 16));
    assert!(all.named(number).is_some() && all.named(number + 1).is_none());
}

#[test]
fn memory_is_there_as_long_as_its_number_or_a_mapping() {
    let mut all = Creations::default();
    let number = all.add(created(1, &[2, 1]));
    all.map(number, at(0), 7);
    assert!(all.release(number, 1));
    assert!(!all.release(number, 1), "the program does not have it any more");
    assert_eq!((all.named(number).is_none(), all.used_bytes()), (true, 3 * BLOCK_BYTES));
    assert_eq!(all.retain(at(2)), Some(number), "through an address inside");
    assert_eq!(all.retain(at(3)), None);
    let mapped = *all.around(at(1)).unwrap();
    assert_eq!((mapped.address, mapped.buffer), (at(0), 7));
    all.unmap(&mapped, 2);
    assert_eq!(all.used_bytes(), 3 * BLOCK_BYTES);
    assert!(all.release(number, 3));
    assert_eq!((all.used_bytes(), all.idle_bytes(), all.idle_since()), (0, 3 * BLOCK_BYTES, Some(3)));
}

#[test]
fn what_is_idle_serves_the_same_kind_and_size_only_and_goes_oldest_first() {
    let mut all = Creations::default();
    let plain = Kind::plain(CUdevice(0));
    let numbers: Vec<u64> = [1, 2, 2].map(|blocks| all.add(created(blocks, &[blocks]))).into();
    for (now, number) in (1..).zip(&numbers) {
        all.release(*number, now);
    }
    assert_eq!(all.take_idle(Kind::plain(CUdevice(1)), BLOCK_BYTES), None);
    assert_eq!(all.take_idle(plain, 3 * BLOCK_BYTES), None);
    assert_eq!(all.take_idle(plain, 2 * BLOCK_BYTES), Some(numbers[2]), "the last one first");
    assert!(all.named(numbers[2]).is_some());
    assert!(all.drop_idle(0, u64::MAX).is_empty());
    assert!(all.drop_idle(9, 0).is_empty());
    assert_eq!(all.drop_idle(9, 1).len(), 1);
    assert_eq!((all.idle_bytes(), all.idle_since()), (2 * BLOCK_BYTES, Some(2)));
}

#[test]
fn what_others_may_have_serves_nobody_and_goes_at_once() {
    let mut all = Creations::default();
    let (shared, plain) = (all.add(created(1, &[1])), all.add(created(2, &[1])));
    all.share(shared);
    all.release(plain, 5);
    all.release(shared, 6);
    let gone = all.drop_idle(0, u64::MAX);
    assert_eq!(gone.iter().map(|created| created.grant.0).collect::<Vec<_>>(), [1]);
    assert_eq!(all.take_idle(Kind::plain(CUdevice(0)), BLOCK_BYTES), Some(plain));
}

#[test]
fn what_was_shared_in_vain_moves_again_unless_somebody_else_shares_it() {
    let mut all = Creations::default();
    let number = all.add(created(1, &[1, 1]));
    assert!(!all.share(number) && all.share(number));
    assert!(all.unshare(number).is_empty() && all.stays(number), "the other one has it");
    assert_eq!(all.unshare(number), [HandleId(1), HandleId(2)]);
    assert!(!all.stays(number) && all.unshare(number).is_empty());
    // Also when the program has it by its mapping alone.
    all.map(number, at(0), 1);
    all.share(number);
    all.release(number, 0);
    assert_eq!(all.unshare(number).len(), 2);

    let kept = all.add(Created { making: Making::Kept, ..created(5, &[1]) });
    all.share(kept);
    assert!(all.unshare(kept).is_empty() && all.stays(kept), "it cannot move");
}

#[test]
fn access_is_remembered_for_each_device_and_mapping() {
    use CUmemAccess_flags as Flags;
    let mut all = Creations::default();
    let number = all.add(created(1, &[1, 1]));
    all.map(number, at(0), 1);
    all.map(number, at(4), 2);
    let [first, second] = [0, 4].map(|slot| *all.around(at(slot)).unwrap());
    all.set_access(&first, &[access(0, Flags::READWRITE), access(1, Flags::READ)]);
    all.set_access(&first, &[access(1, Flags::NONE), access(0, Flags::READ)]);
    all.set_access(&second, &[access(1, Flags::READWRITE)]);
    for (offset, part) in (0..).zip(&all.get(number).unwrap().parts) {
        let expected = [
            Mapping { address: at(offset), access: vec![access(0, Flags::READ)] },
            Mapping { address: at(4 + offset), access: vec![access(1, Flags::READWRITE)] },
        ];
        assert_eq!(part.mappings, expected);
    }
    all.unmap(&first, 1);
    all.map(number, at(0), 3);
    assert!(
        all.get(number).unwrap().parts[0].mappings[1].access.is_empty(),
        "a new mapping is open to nobody"
    );
}

#[test]
fn a_range_has_whole_mappings_or_none() {
    let mut all = Creations::default();
    let (one, two) = (all.add(created(1, &[2])), all.add(created(2, &[1])));
    all.map(one, at(2), 1);
    all.map(two, at(4), 2);
    let found = |slot, blocks: u64| {
        all.whole_in(at(slot), blocks * BLOCK_BYTES).map(|found| found.iter().map(|it| it.number).collect())
    };
    assert_eq!(found(0, 2), Ok(vec![]));
    assert_eq!(found(0, 8), Ok(vec![one, two]));
    assert_eq!(found(4, 1), Ok(vec![two]));
    for (slot, blocks) in [(2, 1), (3, 1), (3, 2), (0, 3), (1, 2)] {
        assert_eq!(found(slot, blocks), Err(CUresult::INVALID_VALUE), "{slot} {blocks}");
    }
    assert_eq!(all.touched_by(at(3), 2 * BLOCK_BYTES), [one, two]);
    assert_eq!(all.touched_by(at(3), 0), [one], "an address is enough");
    assert_eq!(all.whole_in(u64::MAX, u64::MAX), Ok(vec![]));
}

const SLOTS: u64 = 40;

#[derive(Clone, Debug)]
enum Deed {
    Create(Vec<u64>),
    Reuse(u64),
    Release(usize),
    Retain(u64),
    Map(usize, u64),
    Unmap(u64, u64),
    Open(u64, u64, u32),
    Drop(u64),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        3 => proptest::collection::vec(1..4_u64, 1..4).prop_map(Deed::Create),
        2 => (1..8_u64).prop_map(Deed::Reuse),
        5 => any::<usize>().prop_map(Deed::Release),
        1 => (0..SLOTS).prop_map(Deed::Retain),
        6 => (any::<usize>(), 0..SLOTS).prop_map(|(which, slot)| Deed::Map(which, slot)),
        5 => (0..SLOTS, 1..12_u64).prop_map(|(slot, blocks)| Deed::Unmap(slot, blocks)),
        3 => (0..SLOTS, 1..12_u64, 0..4_u32).prop_map(|(slot, blocks, flags)| Deed::Open(slot, blocks, flags)),
        1 => (0..50_u64).prop_map(Deed::Drop),
    ];
    proptest::collection::vec(deed, 1..200)
}

/// What has to be true, as plainly as it can be said.
#[derive(Default)]
struct Model {
    /// Size in blocks, references, and since when it is idle.
    all: BTreeMap<u64, (u64, u64, Option<u64>)>,
    /// Number and access of the mapping that starts in a slot.
    mapped: BTreeMap<u64, (u64, u32)>,
}

impl Model {
    fn bytes(&self, number: u64) -> u64 {
        self.all[&number].0
    }

    /// The mappings that touch some slots: where they start and end.
    fn touching(&self, slot: u64, blocks: u64) -> Vec<(u64, u64)> {
        let all = self.mapped.iter().map(|(start, (number, _))| (*start, start + self.bytes(*number)));
        all.filter(|(start, end)| *start < slot + blocks && *end > slot).collect()
    }

    fn settle(&mut self, now: u64) {
        let mapped: BTreeSet<u64> = self.mapped.values().map(|(number, _)| *number).collect();
        for (number, (_, references, idle)) in &mut self.all {
            let is_unused = *references == 0 && !mapped.contains(number);
            *idle = if is_unused { idle.or(Some(now)) } else { None };
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn it_is_as_a_plain_model_says(deeds in deeds()) {
        let (mut all, mut model) = (Creations::default(), Model::default());
        let mut handles = 0;
        for (now, deed) in (1..).zip(deeds) {
            match deed {
                Deed::Create(sizes) => {
                    handles += 10;
                    let number = all.add(created(handles, &sizes));
                    model.all.insert(number, (sizes.iter().sum(), 1, None));
                }
                Deed::Reuse(blocks) => {
                    let fits = model.all.values().any(|(size, _, idle)| *size == blocks && idle.is_some());
                    let found = all.take_idle(Kind::plain(CUdevice(0)), blocks * BLOCK_BYTES);
                    prop_assert_eq!(found.is_some(), fits);
                    if let Some(known) = found.and_then(|number| model.all.get_mut(&number)) {
                        prop_assert!(known.0 == blocks && known.2.is_some());
                        *known = (blocks, 1, None);
                    }
                }
                Deed::Release(which) if !model.all.is_empty() => {
                    let number = *model.all.keys().nth(which % model.all.len()).unwrap();
                    let known = model.all.get_mut(&number).unwrap();
                    prop_assert_eq!(all.release(number, now), known.1 > 0);
                    known.1 = known.1.saturating_sub(1);
                }
                Deed::Retain(slot) => {
                    let expected = model.touching(slot, 1).first().map(|(start, _)| model.mapped[start].0);
                    prop_assert_eq!(all.retain(at(slot) + 5), expected);
                    if let Some(known) = expected.and_then(|number| model.all.get_mut(&number)) {
                        known.1 += 1;
                    }
                }
                Deed::Map(which, slot) => {
                    let named: Vec<u64> =
                        model.all.iter().filter(|(_, known)| known.1 > 0).map(|(number, _)| *number).collect();
                    if named.is_empty() {
                        continue;
                    }
                    let number = named[which % named.len()];
                    // The driver refuses the others.
                    if model.touching(slot, model.bytes(number)).is_empty() {
                        all.map(number, at(slot), now);
                        model.mapped.insert(slot, (number, 0));
                    }
                }
                Deed::Unmap(slot, blocks) => {
                    let touched = model.touching(slot, blocks);
                    let found = all.whole_in(at(slot), blocks * BLOCK_BYTES);
                    let is_whole = touched.iter().all(|(start, end)| *start >= slot && *end <= slot + blocks);
                    prop_assert_eq!(found.is_ok(), is_whole);
                    for mapped in found.unwrap_or_default() {
                        all.unmap(&mapped, now);
                        prop_assert!(model.mapped.remove(&((mapped.address - START) / BLOCK_BYTES)).is_some());
                    }
                    prop_assert!(!is_whole || model.touching(slot, blocks).is_empty());
                }
                Deed::Open(slot, blocks, flags) => {
                    for mapped in all.whole_in(at(slot), blocks * BLOCK_BYTES).unwrap_or_default() {
                        all.set_access(&mapped, &[access(0, CUmemAccess_flags(flags))]);
                        model.mapped.get_mut(&((mapped.address - START) / BLOCK_BYTES)).unwrap().1 = flags;
                    }
                }
                Deed::Drop(age) => {
                    let since = now.saturating_sub(age);
                    let gone = all.drop_idle(since, u64::MAX).len();
                    let before = model.all.len();
                    model.all.retain(|_, (_, _, idle)| idle.is_none_or(|idle| idle > since));
                    prop_assert_eq!(gone, before - model.all.len());
                }
                Deed::Release(_) => {}
            }
            model.settle(now);
            let sum = |is_idle: bool| {
                let those = model.all.values().filter(|(_, _, idle)| idle.is_some() == is_idle);
                those.map(|(blocks, ..)| blocks * BLOCK_BYTES).sum::<u64>()
            };
            prop_assert_eq!((all.used_bytes(), all.idle_bytes()), (sum(false), sum(true)));
            for number in model.all.keys() {
                let mut offset = 0;
                for part in &all.get(*number).expect("it is there").parts {
                    let mut found: Vec<(u64, u32)> = part.mappings.iter().map(|mapping| {
                        (mapping.address, mapping.access.first().map_or(0, |access| access.flags.0))
                    }).collect();
                    found.sort_unstable();
                    let mine = model.mapped.iter().filter(|(_, (owner, _))| owner == number);
                    let expected: Vec<(u64, u32)> =
                        mine.map(|(slot, (_, flags))| (at(*slot) + offset, *flags)).collect();
                    prop_assert_eq!(found, expected);
                    offset += part.bytes;
                }
            }
        }
    }
}
