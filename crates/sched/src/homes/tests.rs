//! What changes places, and what does not.

use super::*;

const GIB: Bytes = Bytes::from_gib(1);

fn mib(mib: u64) -> Bytes {
    Bytes::from_mib(mib)
}

fn sighting(handle: u64, changed: u16) -> Sighting {
    Sighting { handle: HandleId(handle), blocks: 8, changed }
}

fn memory(handles: &[(u64, Bytes)]) -> BTreeMap<HandleId, Bytes> {
    handles.iter().map(|&(handle, bytes)| (HandleId(handle), bytes)).collect()
}

/// After so many looks: 1 changes and lies on the host, 2 is quiet and lies on the device.
fn seen(looks: u32) -> Homes {
    let mut homes = Homes::default();
    for _ in 0..looks {
        homes.see(&sighting(1, 8));
        homes.see(&sighting(2, 0));
    }
    homes
}

fn planned(homes: &Homes, now: Time) -> Swap {
    homes.plan(now, &memory(&[(2, mib(256))]), &memory(&[(1, mib(256))]), GIB, Bytes::ZERO)
}

#[test]
fn what_changes_comes_up_for_what_does_not() {
    assert_eq!(planned(&seen(2), Time::ZERO), Swap::default(), "two looks are none");
    let swap = planned(&seen(3), Time::ZERO);
    assert_eq!(swap.down, [(HandleId(2), mib(256))]);
    assert_eq!(swap.up, [(HandleId(1), mib(256))]);
}

#[test]
fn what_changes_too_little_or_no_more_stays() {
    let mut little = Homes::default();
    for look in 0..40 {
        little.see(&sighting(1, u16::from(look % 8 == 7)));
        little.see(&sighting(2, 0));
    }
    assert_eq!(planned(&little, Time::ZERO), Swap::default(), "an eighth in every eighth look");
    let mut ended = seen(10);
    ended.see(&sighting(1, 0));
    assert_eq!(planned(&ended, Time::ZERO), Swap::default(), "it has just stopped");
    let mut both = seen(10);
    both.see(&sighting(2, 1));
    assert_eq!(planned(&both, Time::ZERO), Swap::default(), "both change");
}

#[test]
fn whoever_has_changed_places_rests_and_longer_each_time() {
    let mut homes = seen(3);
    let mut now = Time::ZERO;
    for rest in [30, 60, 120] {
        homes.has_moved(HandleId(1), mib(256), now);
        homes.has_moved(HandleId(2), mib(256), now);
        for _ in 0..5 {
            homes.see(&sighting(1, 8));
            homes.see(&sighting(2, 0));
        }
        now = now + Span::from_secs(rest - 1);
        assert_eq!(planned(&homes, now), Swap::default());
        now = now + Span::from_secs(1);
        assert_eq!(planned(&homes, now).up.len(), 1);
    }
}

#[test]
fn the_one_goes_that_is_as_large_and_quiet_for_longest() {
    let mut homes = seen(3);
    for (handle, looks) in [(3, 9), (4, 5), (5, 6), (6, 20)] {
        for _ in 0..looks {
            homes.see(&sighting(handle, 0));
        }
    }
    let device = memory(&[(2, mib(256)), (3, mib(300)), (4, mib(256)), (5, mib(256)), (6, mib(128))]);
    let swap = homes.plan(Time::ZERO, &device, &memory(&[(1, mib(256))]), GIB, Bytes::ZERO);
    assert_eq!(
        swap.down,
        [(HandleId(5), mib(256))],
        "not the larger one, nor one that makes too little room"
    );
}

#[test]
fn what_changes_comes_alone_where_there_is_room() {
    let mut homes = seen(3);
    for _ in 0..3 {
        homes.see(&sighting(3, 8));
        homes.see(&sighting(4, 4));
        homes.see(&sighting(5, 0));
    }
    let device = memory(&[(2, mib(256))]);
    let host = memory(&[(1, mib(256)), (3, mib(128)), (4, mib(64)), (5, mib(16))]);
    let plan = |homes: &Homes, free| homes.plan(Time::ZERO, &device, &host, GIB, free);
    let alone = |swap: Swap| {
        assert_eq!(swap.down, []);
        swap.up.into_iter().map(|(handle, _)| handle.0).collect::<Vec<_>>()
    };
    assert_eq!(alone(plan(&homes, mib(448))), [1, 3, 4], "not what does not change");
    assert_eq!(alone(plan(&homes, mib(255))), [3, 4], "what fits, and nothing goes for it");
    assert_eq!(plan(&homes, mib(63)).down.len(), 1, "nothing fits");
    homes.has_stayed(HandleId(1), Time::ZERO);
    assert_eq!(alone(plan(&homes, mib(448))), [3, 4], "what could not come rests");
    let large = memory(&[(1, Bytes::from_gib(2)), (3, Bytes::from_gib(2))]);
    let swap = homes.plan(Time::ZERO + REST, &device, &large, GIB, Bytes::from_gib(8));
    assert_eq!(swap.up, [(HandleId(1), Bytes::from_gib(2))], "no more than a GiB unless it is one");
}

#[test]
fn what_was_prepared_lapses() {
    let mut homes = seen(3);
    homes.stage = Stage::Prepared(planned(&homes, Time::ZERO), Time(5));
    assert!(!homes.has_lapsed(Time(5)));
    assert!(homes.has_lapsed(Time(5) + PREPARED_MAX));
}

/// Whatever was seen: nothing twice, pairs that fit, no more than there is room for, and at a time no more than a GiB.
#[test]
fn every_plan_keeps_its_bounds() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    // xorshift64*.
    let mut below = |end: u64| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    };
    let (mut pairs, mut alone) = (0, 0);
    for _ in 0..2_000 {
        let mut homes = Homes::default();
        let temper: Vec<u64> = (0..24).map(|_| below(3)).collect();
        for _ in 0..below(400) {
            let handle = below(24);
            let changed = match temper[handle as usize] {
                0 => 0,
                1 => 8,
                _ => below(9),
            };
            homes.see(&sighting(handle, changed as u16));
        }
        let mut of = |handles: std::ops::Range<u64>| -> BTreeMap<HandleId, Bytes> {
            handles.map(|handle| (HandleId(handle), mib(1 + below(256)))).collect()
        };
        let (device, host) = (of(0..12), of(12..24));
        let room = mib(below(2048));
        let free = mib(below(2) * below(1024));
        let swap = homes.plan(Time::ZERO, &device, &host, room, free);
        if swap.down.is_empty() {
            assert!(swap.up_sum() <= free.min(PASS_MAX));
            assert!(
                swap.up.iter().all(|(up, bytes)| host.get(up) == Some(bytes) && homes.heat[up].quiet == 0)
            );
            alone += swap.up.len();
            continue;
        }
        assert_eq!(swap.down.len(), swap.up.len());
        assert!(swap.down_sum() <= room && swap.up_sum() <= swap.down_sum());
        assert!(swap.down_sum() <= PASS_MAX || swap.down.len() == 1);
        let names: BTreeSet<HandleId> = swap.down.iter().chain(&swap.up).map(|&(handle, _)| handle).collect();
        assert_eq!(names.len(), swap.down.len() + swap.up.len(), "each once");
        for ((down, down_bytes), (up, up_bytes)) in swap.down.iter().zip(&swap.up) {
            assert_eq!((device.get(down), host.get(up)), (Some(down_bytes), Some(up_bytes)));
            assert!(down_bytes >= up_bytes && down_bytes.0 <= 2 * up_bytes.0);
            assert!(homes.heat[down].quiet >= LOOKS_MIN && homes.heat[up].quiet == 0);
            pairs += 1;
        }
    }
    assert!(pairs > 500 && alone > 500, "{pairs} pairs and {alone} alone in all");
}
