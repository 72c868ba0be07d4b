use super::*;

fn group(file: RawFd, client: u32, handle: u32, subdevice: Option<u32>) -> Group {
    Group {
        file,
        client,
        device: 1,
        subdevice,
        handle,
        engine: Engine::Compute,
        channels: vec![handle + 1],
        scheduled: true,
        lone: false,
    }
}

/// Any file will do as a copy.
fn copy(_: RawFd) -> Option<OwnedFd> {
    Some(rustix::fs::memfd_create("copy", rustix::fs::MemfdFlags::CLOEXEC).unwrap())
}

fn parts(message: ToDaemon) -> (u64, Vec<u32>, Vec<(u32, u32)>) {
    let ToDaemon::Channels { generation, new_files, groups } = message else { panic!("{message:?}") };
    let groups = groups.iter().map(|group| (group.file.0, group.group)).collect();
    (generation, new_files.iter().map(|file| file.0).collect(), groups)
}

#[test]
fn a_file_is_sent_once_for_all_groups_of_its_client() {
    let mut reported = Reported::default();
    let groups = vec![group(5, 9, 100, Some(2)), group(5, 9, 200, Some(2))];
    let (message, files, more) = reported.report(3, groups.clone(), copy);
    assert_eq!(parts(message), (3, vec![1], vec![(1, 100), (1, 200)]));
    assert_eq!((files.len(), more), (1, false));
    let (message, files, _) = reported.report(4, groups, copy);
    assert_eq!(parts(message), (4, vec![], vec![(1, 100), (1, 200)]));
    assert!(files.is_empty());
}

#[test]
fn a_file_number_with_another_client_is_another_file() {
    let mut reported = Reported::default();
    reported.report(1, vec![group(5, 9, 100, Some(2))], copy);
    let (message, ..) = reported.report(1, vec![group(5, 10, 100, Some(2))], copy);
    assert_eq!(parts(message), (1, vec![2], vec![(2, 100)]));
    let (message, ..) = reported.report(1, vec![group(5, 9, 100, Some(2))], copy);
    assert_eq!(parts(message).1, [3], "forgotten when nothing used it");
}

#[test]
fn what_cannot_be_frozen_or_copied_is_left_out() {
    let mut reported = Reported::default();
    let (message, ..) = reported.report(1, vec![group(5, 9, 100, None)], copy);
    assert_eq!(parts(message), (1, vec![], vec![]));
    let (message, ..) = reported.report(1, vec![group(5, 9, 100, Some(2))], |_| None);
    assert_eq!(parts(message), (1, vec![], vec![]));
}

#[test]
fn a_file_is_kept_only_for_what_is_reported() {
    let mut reported = Reported::default();
    reported.report(1, vec![group(5, 9, 100, Some(2))], copy);
    reported.report(1, vec![group(5, 9, 100, None)], copy);
    let (message, ..) = reported.report(1, vec![group(5, 9, 100, Some(3))], copy);
    assert_eq!(parts(message), (1, vec![2], vec![(2, 100)]), "the daemon has dropped the first");
}

#[test]
fn more_files_than_a_message_carries_take_several() {
    let mut reported = Reported::default();
    let groups: Vec<Group> =
        (0..FILES_MAX as u32 + 1).map(|client| group(5, client, 100 + client, Some(2))).collect();
    let (message, files, more) = reported.report(7, groups.clone(), copy);
    assert_eq!((parts(message).0, files.len(), more), (0, FILES_MAX, true), "not yet of this generation");
    let (message, files, more) = reported.report(7, groups, copy);
    let (generation, _, groups) = parts(message);
    assert_eq!((generation, files.len(), groups.len(), more), (7, 1, FILES_MAX + 1, false));
}
