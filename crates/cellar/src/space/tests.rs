use super::*;
use proptest::prelude::*;

const G: u64 = GRANULE_BYTES;
const SEGMENT: u64 = 8 * G;

/// A space of which this much is present.
fn grown(limit: u64, present: u64) -> Space {
    let mut space = Space::new(limit, SEGMENT, 0);
    while space.present_bytes() < present {
        let segment = space.next_absent().expect("within the limit");
        space.add(segment);
    }
    space
}

#[test]
fn nothing_is_there_before_it_grows() {
    let mut space = Space::new(20 * G + 1, SEGMENT, 0);
    assert_eq!((space.limit_bytes(), space.free_bytes(), space.present_bytes()), (20 * G, 20 * G, 0));
    assert_eq!(space.take(1), None);
    let segment = space.next_absent().expect("all is absent");
    assert_eq!(segment, Extent { offset: 0, bytes: SEGMENT });
    space.add(segment);
    assert_eq!(space.take(1), Some(vec![Extent { offset: 0, bytes: G }]));
    assert_eq!((space.free_bytes(), space.present_bytes()), (19 * G, SEGMENT));
}

#[test]
fn the_last_segment_ends_at_the_limit() {
    let mut space = grown(20 * G, 16 * G);
    let last = space.next_absent().expect("one is left");
    assert_eq!(last, Extent { offset: 16 * G, bytes: 4 * G });
    space.add(last);
    assert_eq!(space.next_absent(), None);
    assert_eq!(space.take(20 * G).map(|runs| runs.len()), Some(3), "a run ends where its segment ends");
    assert_eq!(space.free_bytes(), 0);
}

#[test]
fn the_shortest_run_that_fits_is_preferred() {
    let mut space = grown(16 * G, 16 * G);
    let first = space.take(6 * G).expect("free");
    assert_eq!(space.take(2 * G), Some(vec![Extent { offset: 6 * G, bytes: 2 * G }]));
    space.give_back(&first);
    assert_eq!(space.take(8 * G).map(|runs| runs.len()), Some(1));
}

#[test]
fn a_free_segment_can_go_back_to_the_disk() {
    let mut space = grown(16 * G, 16 * G);
    let kept = space.take(G).expect("free");
    let segment = space.withdraw_free().expect("one is wholly free");
    assert_eq!(segment, Extent { offset: SEGMENT, bytes: SEGMENT });
    assert_eq!(space.withdraw_free(), None, "the other is in use");
    assert_eq!(space.take(8 * G), None, "nobody gets it meanwhile");
    space.set_absent(segment);
    assert_eq!((space.present_bytes(), space.free_bytes()), (SEGMENT, 15 * G));
    assert_eq!(space.next_absent(), Some(segment));
    space.give_back(&kept);
}

#[test]
#[should_panic(expected = "given back twice")]
fn giving_back_twice_is_noticed() {
    let mut space = grown(16 * G, 16 * G);
    let runs = space.take(2 * G).expect("free");
    space.give_back(&runs);
    space.give_back(&runs);
}

#[test]
fn only_free_whole_granules_are_taken_exactly() {
    let mut space = Space::new(16 * G, SEGMENT, 0);
    let refused = [
        Extent { offset: 1, bytes: G },
        Extent { offset: 0, bytes: G + 1 },
        Extent { offset: 0, bytes: 0 },
        Extent { offset: 16 * G, bytes: G },
        Extent { offset: 7 * G, bytes: 2 * G },
        Extent { offset: u64::MAX - G + 1, bytes: G },
    ];
    for run in refused {
        assert!(!space.take_exactly(&[run]), "{run:?}");
    }
    assert_eq!(space.present_bytes(), 0);
    assert!(space.take_exactly(&[Extent { offset: 2 * G, bytes: 3 * G }]));
    assert!(!space.take_exactly(&[Extent { offset: 4 * G, bytes: G }]));
    assert!(!space.take_exactly(&[Extent { offset: G, bytes: 2 * G }]));
    assert!(space.take_exactly(&[Extent { offset: G, bytes: G }]));
    assert!(space.take_exactly(&[Extent { offset: 5 * G, bytes: 3 * G }]));
    assert_eq!(space.free_bytes(), 9 * G);
    assert_eq!(space.take(G), Some(vec![Extent { offset: 0, bytes: G }]));
}

#[test]
fn runs_are_taken_all_or_none() {
    let mut space = Space::new(16 * G, SEGMENT, 0);
    let run = |granule: u64| Extent { offset: granule * G, bytes: G };
    assert!(space.take_exactly(&[run(3)]));
    assert!(!space.take_exactly(&[run(1), run(9), run(3)]));
    assert!(!space.take_exactly(&[run(1), run(1)]));
    assert_eq!(space.free_bytes(), 15 * G);
    assert!(space.take_exactly(&[run(9), run(1)]));
    assert_eq!(space.free_bytes(), 13 * G);
}

/// The file holds something in its fifth segment, and may have two and a half now.
#[test]
fn beyond_the_limit_nothing_grows_until_it_is_smaller() {
    let mut space = Space::new(20 * G, SEGMENT, 4 * SEGMENT + G);
    let far = Extent { offset: 4 * SEGMENT, bytes: G };
    let near = [0, 1].map(|segment| Extent { offset: segment * SEGMENT, bytes: G });
    assert!(space.take_exactly(&[far]) && space.take_exactly(&near));
    assert_eq!((space.limit_bytes(), space.present_bytes()), (20 * G, 3 * SEGMENT));
    assert_eq!((space.next_absent(), space.free_bytes()), (None, 21 * G), "what is present can be used");
    space.give_back(&near[1..]);
    let segment = space.withdraw_free().expect("the second one");
    space.set_absent(segment);
    // Two are left, and half a one more would be allowed: that is none.
    assert_eq!((space.next_absent(), space.free_bytes()), (None, 14 * G));
    space.give_back(&[far]);
    let segment = space.withdraw_free().expect("the far one");
    space.set_absent(segment);
    assert_eq!(space.next_absent(), Some(Extent { offset: SEGMENT, bytes: SEGMENT }));
    assert_eq!(space.free_bytes(), 7 * G + SEGMENT);
}

#[derive(Clone, Debug)]
enum Step {
    Take(u64),
    GiveBack(prop::sample::Index),
    Grow,
    Shrink,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u64..12).prop_map(Step::Take),
        3 => any::<prop::sample::Index>().prop_map(Step::GiveBack),
        2 => Just(Step::Grow),
        1 => Just(Step::Shrink),
    ]
}

proptest! {
    #[test]
    fn granules_are_taken_once_and_all_come_back(
        granules in 1u64..40,
        steps in prop::collection::vec(step(), 0..150),
    ) {
        let mut space = Space::new(granules * G, SEGMENT, 0);
        let mut held: Vec<Vec<Extent>> = Vec::new();
        for step in steps {
            match step {
                Step::Take(wanted) => {
                    let taken_bytes: u64 = held.iter().flatten().map(|run| run.bytes).sum();
                    let present_free = space.present_bytes() - taken_bytes;
                    let taken = space.take(wanted * G - 1);
                    prop_assert_eq!(taken.is_some(), wanted * G <= present_free);
                    if let Some(runs) = taken {
                        prop_assert_eq!(runs.iter().map(|run| run.bytes).sum::<u64>(), wanted * G);
                        held.push(runs);
                    }
                }
                Step::GiveBack(_) if held.is_empty() => {}
                Step::GiveBack(which) => {
                    let runs = held.swap_remove(which.index(held.len()));
                    space.give_back(&runs);
                }
                Step::Grow => {
                    if let Some(segment) = space.next_absent() {
                        space.add(segment);
                    }
                }
                Step::Shrink => {
                    if let Some(segment) = space.withdraw_free() {
                        space.set_absent(segment);
                    }
                }
            }
            let mut runs: Vec<Extent> = held.iter().flatten().copied().collect();
            runs.sort();
            for pair in runs.windows(2) {
                prop_assert!(pair[0].offset + pair[0].bytes <= pair[1].offset);
            }
            let absent = space.all_absent();
            for run in &runs {
                prop_assert!(run.offset + run.bytes <= granules * G);
                prop_assert_eq!(run.offset / SEGMENT, (run.offset + run.bytes - 1) / SEGMENT);
                prop_assert!(absent.iter().all(|gone| gone.offset / SEGMENT != run.offset / SEGMENT));
            }
            let taken: u64 = runs.iter().map(|run| run.bytes).sum();
            prop_assert_eq!(taken + space.free_bytes(), granules * G);
            prop_assert_eq!(space.by_offset.len(), space.by_length.len());
        }
        // Whoever knows only what is held comes to the same free space.
        let mut rebuilt = Space::new(granules * G, SEGMENT, 0);
        for run in held.iter().flatten() {
            prop_assert!(rebuilt.take_exactly(&[*run]));
        }
        prop_assert_eq!(rebuilt.free_bytes(), space.free_bytes());
        for runs in held {
            space.give_back(&runs);
        }
        while let Some(segment) = space.withdraw_free() {
            space.set_absent(segment);
        }
        prop_assert_eq!((space.present_bytes(), space.by_offset.len()), (0, 0));
    }
}
