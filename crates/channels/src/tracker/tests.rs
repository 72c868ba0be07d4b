//! Tests of the tracker on made-up calls; recorded ones are replayed in `tests/replay.rs`.

use super::*;
use crate::ioctl::Bytes;
use proptest::prelude::*;
use std::collections::BTreeSet;

const CLASS_CLIENT: u32 = 0x41;
const CLASS_CHANNEL: u32 = 0xc86f;

fn call(file: RawFd, request: u32, words: &[u32], parameters: &[u8]) -> Call {
    let argument: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Call { file, request, argument: Bytes::first_of(&argument), parameters: Bytes::first_of(parameters) }
}

fn alloc_with(client: u32, parent: u32, handle: u32, class: u32, parameters: &[u32], status: u32) -> Call {
    let bytes: Vec<u8> = parameters.iter().flat_map(|word| word.to_le_bytes()).collect();
    call(5, 0xc020_462b, &[client, parent, handle, class, 1, 0, bytes.len() as u32, status], &bytes)
}

fn alloc(client: u32, parent: u32, handle: u32, class: u32) -> Call {
    alloc_with(client, parent, handle, class, &[], 0)
}

fn group(client: u32, parent: u32, handle: u32, engine: u32) -> Call {
    alloc_with(client, parent, handle, rm::CLASS_GROUP, &[0, 0, 0, engine], 0)
}

fn free(client: u32, handle: u32) -> Call {
    call(5, 0xc010_4629, &[client, 0, handle, 0], &[])
}

fn schedule(client: u32, object: u32, command: u32, enable: u8, status: u32) -> Call {
    call(5, 0xc020_462a, &[client, object, command, 0, 1, 0, 3, status], &[enable, 0, 0])
}

fn key(client: u32, handle: u32) -> GroupKey {
    GroupKey { file: 5, client, handle }
}

/// Client 1, device 2, subdevice 3, compute group 10 with channels 11 and 12, copy group 20 with channel 21.
fn one_context() -> Tracker {
    let mut tracker = Tracker::new();
    for call in [
        alloc(1, 0, 1, CLASS_CLIENT),
        alloc(1, 1, 2, rm::CLASS_DEVICE),
        alloc(1, 2, 3, rm::CLASS_SUBDEVICE),
        group(1, 2, 10, 1),
        alloc(1, 10, 11, CLASS_CHANNEL),
        alloc(1, 10, 12, CLASS_CHANNEL),
        group(1, 2, 20, 11),
        alloc(1, 20, 21, CLASS_CHANNEL),
    ] {
        tracker.observe(&call);
    }
    tracker
}

fn summary(tracker: &Tracker) -> Vec<(u32, Engine, Vec<u32>)> {
    tracker.groups().map(|group| (group.handle, group.engine, group.channels.clone())).collect()
}

#[test]
fn groups_have_engine_channels_and_subdevice() {
    let tracker = one_context();
    assert_eq!(summary(&tracker), [(10, Engine::Compute, vec![11, 12]), (20, Engine::Copy(2), vec![21])]);
    assert!(tracker.groups().all(|group| group.subdevice == Some(3) && group.device == 2));
    assert_eq!(tracker.channels(), 3);
}

#[test]
fn a_born_channel_names_its_group() {
    let mut tracker = one_context();
    let change = tracker.observe(&alloc(1, 20, 22, CLASS_CHANNEL));
    assert_eq!(change, Some(Change::Born { group: key(1, 20), channel: 22 }));
}

#[test]
fn scheduling_names_the_group() {
    let mut tracker = one_context();
    assert!(!tracker.group(key(1, 10)).unwrap().scheduled);
    let scheduled = Some(Change::Scheduled(key(1, 10)));
    assert_eq!(tracker.observe(&schedule(1, 10, rm::GROUP_SCHEDULE, 1, 0)), scheduled);
    assert!(tracker.group(key(1, 10)).unwrap().scheduled);
    assert_eq!(tracker.observe(&schedule(1, 12, rm::CHANNEL_SCHEDULE, 1, 0)), scheduled);
    assert_eq!(tracker.observe(&schedule(1, 10, rm::GROUP_SCHEDULE, 0, 0)), None, "not enabled");
    assert_eq!(tracker.observe(&schedule(1, 10, rm::GROUP_SCHEDULE, 1, 0x57)), None, "failed");
    assert_eq!(tracker.observe(&schedule(1, 99, rm::GROUP_SCHEDULE, 1, 0)), None, "unknown group");
    assert_eq!(tracker.observe(&schedule(2, 10, rm::GROUP_SCHEDULE, 1, 0)), None, "unknown client");
}

#[test]
fn failed_calls_change_nothing() {
    let mut tracker = one_context();
    let before = summary(&tracker);
    assert_eq!(tracker.observe(&alloc_with(1, 10, 13, CLASS_CHANNEL, &[], 0x1b)), None);
    let mut failed = free(1, 10);
    failed.argument = Bytes::first_of(&[&failed.argument[..12], &[0x57, 0, 0, 0]].concat());
    assert_eq!(tracker.observe(&failed), None);
    assert_eq!(summary(&tracker), before);
}

#[test]
fn a_free_takes_all_descendants() {
    let gone = |handle| {
        let mut tracker = one_context();
        let change = tracker.observe(&free(1, handle));
        (change, tracker.channels(), tracker.groups().count())
    };
    assert_eq!(gone(11), (Some(Change::Gone { channels: 1 }), 2, 2), "a channel");
    assert_eq!(gone(10), (Some(Change::Gone { channels: 2 }), 1, 1), "a group");
    assert_eq!(gone(2), (Some(Change::Gone { channels: 3 }), 0, 0), "the device");
    assert_eq!(gone(1), (Some(Change::Gone { channels: 3 }), 0, 0), "the client");
    assert_eq!(gone(77), (None, 3, 2), "memory, events and the like");
}

#[test]
fn a_freed_subdevice_is_replaced_by_another_of_the_same_device() {
    let mut tracker = one_context();
    assert_eq!(tracker.observe(&alloc(1, 2, 4, rm::CLASS_SUBDEVICE)), None);
    assert!(tracker.groups().all(|group| group.subdevice == Some(3)), "the first one is kept");
    assert_eq!(tracker.observe(&free(1, 3)), Some(Change::Gone { channels: 0 }));
    assert!(tracker.groups().all(|group| group.subdevice == Some(4)));
    tracker.observe(&free(1, 4));
    assert!(tracker.groups().all(|group| group.subdevice.is_none() && group.channel_set().is_none()));
    let reachable = Some(Change::Reachable { file: 5, client: 1, device: 2 });
    assert_eq!(tracker.observe(&alloc(1, 2, 6, rm::CLASS_SUBDEVICE)), reachable);
    assert!(tracker.groups().all(|group| group.subdevice == Some(6)));
}

#[test]
fn a_freed_device_takes_its_subdevices() {
    let mut tracker = one_context();
    tracker.observe(&free(1, 2));
    tracker.observe(&alloc(1, 1, 2, rm::CLASS_DEVICE));
    tracker.observe(&group(1, 2, 40, 1));
    assert_eq!(tracker.group(key(1, 40)).unwrap().subdevice, None);
}

#[test]
fn a_channel_outside_any_group_is_a_group_of_one() {
    let mut tracker = one_context();
    let change = tracker.observe(&alloc(1, 2, 30, CLASS_CHANNEL));
    assert_eq!(change, Some(Change::Born { group: key(1, 30), channel: 30 }));
    let lone = tracker.group(key(1, 30)).unwrap().clone();
    assert_eq!((lone.lone, lone.engine, lone.device, lone.subdevice), (true, Engine::Unknown, 2, Some(3)));
    assert_eq!(lone.address(), None);
    let change = tracker.observe(&schedule(1, 30, rm::CHANNEL_SCHEDULE, 1, 0));
    assert_eq!(change, Some(Change::Scheduled(key(1, 30))));
    assert_eq!(tracker.observe(&free(1, 30)), Some(Change::Gone { channels: 1 }));
    assert_eq!(tracker.group(key(1, 30)), None);
}

#[test]
fn clients_and_files_are_apart() {
    let mut tracker = one_context();
    let mut other_file = alloc(1, 10, 11, CLASS_CHANNEL);
    other_file.file = 6;
    tracker.observe(&other_file);
    tracker.observe(&alloc(9, 10, 11, CLASS_CHANNEL));
    assert_eq!(tracker.channels(), 5);
    assert_eq!(tracker.observe(&free(9, 10)), Some(Change::Gone { channels: 1 }), "client 9's alone");
    assert_eq!(tracker.group(key(1, 10)).unwrap().channels, [11, 12]);
    assert_eq!(tracker.forget_file(5), Some(Change::Gone { channels: 3 }));
    assert_eq!(tracker.channels(), 1);
    assert_eq!(tracker.forget_file(5), None);
}

#[test]
fn a_client_handle_given_out_again_starts_empty() {
    let mut tracker = one_context();
    assert_eq!(tracker.observe(&alloc(0, 0, 1, CLASS_CLIENT)), Some(Change::Gone { channels: 3 }));
    assert_eq!(tracker.groups().count(), 0);
    assert_eq!(tracker.observe(&alloc(0, 0, 8, CLASS_CLIENT)), None);
}

#[test]
fn a_handle_given_out_again_replaces_the_old_object() {
    let mut tracker = one_context();
    assert_eq!(tracker.observe(&group(1, 2, 10, 12)), Some(Change::Gone { channels: 2 }));
    assert_eq!(summary(&tracker), [(10, Engine::Copy(3), vec![]), (20, Engine::Copy(2), vec![21])]);
    tracker.observe(&alloc(1, 10, 21, CLASS_CHANNEL));
    assert_eq!(summary(&tracker), [(10, Engine::Copy(3), vec![21]), (20, Engine::Copy(2), vec![])]);
}

#[test]
fn bounds_hold_and_are_counted() {
    let mut tracker = Tracker::new();
    let channels = CHANNELS_MAX as u32;
    tracker.observe(&group(1, 2, 0x10_0000, 1));
    for channel in 0..channels + 7 {
        tracker.observe(&alloc(1, 0x10_0000, 0x20_0000 + channel, CLASS_CHANNEL));
    }
    assert_eq!((tracker.channels(), tracker.overlooked()), (CHANNELS_MAX, 7));

    let mut tracker = Tracker::new();
    for client in 0..CLIENTS_MAX as u32 + 3 {
        tracker.observe(&alloc(100 + client, 100 + client, 2, rm::CLASS_SUBDEVICE));
    }
    assert_eq!(tracker.overlooked(), 3);

    let mut tracker = Tracker::new();
    for handle in 0..OBJECTS_MAX as u32 + 2 {
        tracker.observe(&group(1, 2, 10 + handle, 1));
    }
    tracker.observe(&alloc(1, 10, 0x10_0000, CLASS_CHANNEL));
    assert_eq!(tracker.channels(), 1, "a channel that joins a group needs no further object");
    assert_eq!((tracker.groups().count(), tracker.overlooked()), (OBJECTS_MAX, 2));
}

/// What must hold whatever the calls were.
fn check(tracker: &Tracker) -> Result<(), TestCaseError> {
    let mut channels = 0;
    for (&(file, handle), client) in &tracker.clients {
        let mut seen = BTreeSet::new();
        prop_assert!(client.objects() > 0, "an empty client is dropped");
        for group in client.groups.values() {
            prop_assert_eq!((group.file, group.client), (file, handle));
            prop_assert!(!group.lone || group.channels == [group.handle]);
            for channel in &group.channels {
                prop_assert!(seen.insert(*channel), "channel {} is in two groups", channel);
                prop_assert!(group.lone || !client.groups.contains_key(channel));
            }
            match group.subdevice {
                Some(subdevice) => prop_assert_eq!(client.subdevices.get(&subdevice), Some(&group.device)),
                None => prop_assert!(!client.subdevices.values().any(|device| *device == group.device)),
            }
            channels += group.channels.len();
        }
    }
    prop_assert_eq!(channels, tracker.channels());
    Ok(())
}

fn any_call() -> impl Strategy<Value = Call> {
    let class = prop::sample::select(vec![
        CLASS_CLIENT,
        rm::CLASS_DEVICE,
        rm::CLASS_SUBDEVICE,
        rm::CLASS_GROUP,
        CLASS_CHANNEL,
        CLASS_CHANNEL,
        0x40,
    ]);
    let status = prop::sample::select(vec![0, 0, 0, 0x57]);
    // Few handles, so that they meet.
    prop_oneof![
        4 => (1..3u32, 1..12u32, 1..12u32, class, status)
            .prop_map(|(client, parent, handle, class, status)| {
                alloc_with(client, parent, handle, class, &[0, 0, 0, handle], status)
            }),
        2 => (1..3u32, 1..12u32).prop_map(|(client, handle)| free(client, handle)),
        1 => (1..3u32, 1..12u32, 0..2u8, any::<bool>()).prop_map(|(client, object, enable, channel)| {
            let command = if channel { rm::CHANNEL_SCHEDULE } else { rm::GROUP_SCHEDULE };
            schedule(client, object, command, enable, 0)
        }),
    ]
}

proptest! {
    #[test]
    fn any_sequence_keeps_parents_and_children_consistent(calls in prop::collection::vec(any_call(), 0..200)) {
        let mut tracker = Tracker::new();
        for call in &calls {
            let before = tracker.channels();
            let change = tracker.observe(call);
            check(&tracker)?;
            match change {
                Some(Change::Born { group, channel }) => {
                    let group = tracker.group(group).expect("a born channel's group exists");
                    prop_assert!(group.channels.contains(&channel));
                }
                Some(Change::Scheduled(group)) => prop_assert!(tracker.group(group).unwrap().scheduled),
                Some(Change::Gone { channels }) => prop_assert_eq!(tracker.channels() + channels, before),
                Some(Change::Reachable { .. } | Change::Sliced { .. }) => {}
                None => prop_assert_eq!(tracker.channels(), before),
            }
        }
        tracker.forget_file(5);
        prop_assert_eq!(tracker.channels(), 0);
        prop_assert_eq!(tracker.groups().count(), 0);
    }

    #[test]
    fn garbage_never_panics(
        garbage in prop::collection::vec((
            prop::sample::select(vec![0xc010_4629u32, 0xc020_462a, 0xc020_462b, 0xc030_462b, 0x4629]),
            prop::collection::vec(any::<u8>(), 0..64),
            prop::collection::vec(any::<u8>(), 0..64),
        ), 0..50)
    ) {
        let mut tracker = Tracker::new();
        for (request, argument, parameters) in garbage {
            let call = Call {
                file: 5,
                request,
                argument: Bytes::first_of(&argument),
                parameters: Bytes::first_of(&parameters),
            };
            tracker.observe(&call);
            check(&tracker)?;
        }
    }
}

#[test]
fn a_slice_that_a_program_gives_a_group_of_its_own_is_seen() {
    let sliced = |object: u32, us: u64, status: u32| {
        let words = [1, object, rm::GROUP_SET_TIMESLICE, 0, 1, 0, 8, status];
        one_context().observe(&call(5, 0xc020_462a, &words, &us.to_le_bytes()))
    };
    // Its first byte is 0.
    assert_eq!(sliced(10, 2048, 0), Some(Change::Sliced { group: key(1, 10), slice: Micros(2048) }));
    assert_eq!(sliced(11, 2048, 0), None, "a channel is no group");
    assert_eq!(sliced(99, 2048, 0), None);
    assert_eq!(sliced(10, 2048, 0x56), None, "refused");
}
