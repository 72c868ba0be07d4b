use channels::Engine;

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

/// A page, and the reports for it.
struct Bench {
    page: SharedPage,
    reported: Reported,
}

/// What a report says: generation, new files, and each group with its file.
type Said = (u64, Vec<u32>, Vec<(u32, u32)>);

impl Bench {
    /// With the page at this generation.
    fn at(generation: u64) -> Self {
        let page = SharedPage::create(1).unwrap();
        for _ in 0..generation {
            page.raise_channel_generation();
        }
        Self { page, reported: Reported::default() }
    }

    fn next(&mut self, groups: Vec<Group>) -> (Option<Said>, Again) {
        self.next_with(groups, false, copy)
    }

    fn next_with(
        &mut self,
        groups: Vec<Group>,
        overlooked: bool,
        duplicate: impl Fn(RawFd) -> Option<OwnedFd>,
    ) -> (Option<Said>, Again) {
        let (report, again) = self.reported.next_for(&self.page, || Seen { groups, overlooked }, duplicate);
        let said = report.map(|(message, files)| {
            let ToDaemon::Channels { generation, new_files, groups } = message else { panic!("{message:?}") };
            assert_eq!(new_files.len(), files.len());
            let groups = groups.iter().map(|group| (group.file.0, group.group)).collect();
            (generation, new_files.iter().map(|file| file.0).collect(), groups)
        });
        (said, again)
    }

    /// Whether the daemon, with a report of this generation as the last one, may freeze.
    fn is_complete(&self, generation: u64) -> bool {
        generation >= self.page.channel_generation()
    }
}

#[test]
fn a_file_is_sent_once_for_all_groups_of_its_client() {
    let mut bench = Bench::at(3);
    let groups = vec![group(5, 9, 100, Some(2)), group(5, 9, 200, Some(2))];
    let said = (3, vec![1], vec![(1, 100), (1, 200)]);
    assert_eq!(bench.next(groups.clone()), (Some(said), Again::No));
    bench.page.raise_channel_generation();
    assert_eq!(bench.next(groups.clone()).0, Some((4, vec![], vec![(1, 100), (1, 200)])));
    assert_eq!(bench.next(groups), (None, Again::No), "nothing new");
}

#[test]
fn a_file_number_with_another_client_is_another_file() {
    let mut bench = Bench::at(1);
    bench.next(vec![group(5, 9, 100, Some(2))]);
    let (said, _) = bench.next(vec![group(5, 10, 100, Some(2))]);
    assert_eq!(said, Some((1, vec![2], vec![(2, 100)])));
    let (said, _) = bench.next(vec![group(5, 9, 100, Some(2))]);
    assert_eq!(said.unwrap().1, [3], "forgotten when nothing used it");
}

#[test]
fn what_cannot_be_frozen_or_copied_is_left_out_and_that_is_said() {
    let mut bench = Bench::at(1);
    let whole = group(5, 9, 100, Some(2));
    let unreachable = group(6, 10, 200, None);
    let (said, again) = bench.next(vec![whole.clone(), unreachable]);
    assert_eq!(
        (said, again),
        (Some((0, vec![1], vec![(1, 100)])), Again::No),
        "not of the page's generation"
    );

    let lacking = group(6, 10, 200, Some(2));
    let only_first = |file| (file == 5).then(|| copy(file)).flatten();
    let (said, again) = bench.next_with(vec![whole.clone(), lacking.clone()], false, only_first);
    assert_eq!((said, again), (Some((0, vec![], vec![(1, 100)])), Again::Soon));
    let (said, again) = bench.next_with(vec![whole.clone(), lacking.clone()], false, only_first);
    assert_eq!((said, again), (None, Again::Soon), "the daemon is not told the same again and again");

    let (said, _) = bench.next_with(vec![whole.clone(), lacking.clone()], true, copy);
    assert_eq!(said.unwrap().0, 0, "there may be others");
    let (said, again) = bench.next(vec![whole, lacking]);
    assert_eq!((said, again), (Some((1, vec![], vec![(1, 100), (2, 200)])), Again::No));
}

#[test]
fn a_group_that_cannot_run_may_be_left_out() {
    let mut bench = Bench::at(1);
    let unscheduled = Group { scheduled: false, ..group(5, 9, 100, None) };
    let empty = Group { channels: Vec::new(), ..group(5, 9, 200, None) };
    assert_eq!(bench.next(vec![unscheduled, empty]), (Some((1, vec![], vec![])), Again::No));
}

#[test]
fn what_was_complete_and_no_longer_is_raises_the_page_once() {
    for (groups, overlooked) in [(vec![group(5, 9, 100, None)], false), (vec![], true)] {
        let mut bench = Bench::at(1);
        assert_eq!(bench.next(vec![group(5, 9, 100, Some(2))]).0.unwrap().0, 1);
        assert!(bench.is_complete(1));
        for _ in 0..3 {
            bench.next_with(groups.clone(), overlooked, copy);
            assert_eq!(bench.page.channel_generation(), 2);
        }
        let (said, _) = bench.next(vec![group(5, 9, 100, Some(3))]);
        assert_eq!(said, Some((2, vec![2], vec![(2, 100)])), "complete again");
        assert!(bench.is_complete(2));
    }
}

#[test]
fn channels_from_before_the_page_can_be_left_out_too() {
    let mut bench = Bench::at(0);
    let (said, again) = bench.next_with(vec![group(5, 9, 100, Some(2))], false, |_| None);
    assert_eq!((said, again), (Some((0, vec![], vec![])), Again::Soon));
    assert!(!bench.is_complete(0));
    let (said, _) = bench.next(vec![group(5, 9, 100, Some(2))]);
    assert!(bench.is_complete(said.unwrap().0));
}

#[test]
fn without_any_group_there_is_nothing_to_say() {
    let mut bench = Bench::at(0);
    assert_eq!(bench.next(vec![]), (None, Again::No));
    assert!(bench.is_complete(0));
}

#[test]
fn a_file_is_kept_only_for_what_is_reported() {
    let mut bench = Bench::at(1);
    bench.next(vec![group(5, 9, 100, Some(2))]);
    bench.next(vec![group(5, 9, 100, None)]);
    let (said, _) = bench.next(vec![group(5, 9, 100, Some(3))]);
    assert_eq!(said, Some((2, vec![2], vec![(2, 100)])), "the daemon has dropped the first");
}

#[test]
fn more_files_than_a_message_carries_take_several() {
    let mut bench = Bench::at(7);
    let groups: Vec<Group> =
        (0..FILES_MAX as u32 + 1).map(|client| group(5, client, 100 + client, Some(2))).collect();
    let (said, again) = bench.next(groups.clone());
    let (generation, new_files, _) = said.unwrap();
    assert_eq!(
        (generation, new_files.len(), again),
        (0, FILES_MAX, Again::AtOnce),
        "not yet of this generation"
    );
    let (said, again) = bench.next(groups);
    let (generation, new_files, groups) = said.unwrap();
    assert_eq!((generation, new_files.len(), groups.len(), again), (7, 1, FILES_MAX + 1, Again::No));
}

#[test]
fn what_cannot_run_yet_is_left_alone() {
    let mut bench = Bench::at(1);
    let young = Group { scheduled: false, ..group(5, 9, 200, Some(2)) };
    let groups = vec![group(5, 9, 100, Some(2)), young.clone()];
    assert_eq!(bench.next(groups).0, Some((1, vec![1], vec![(1, 100)])));
    assert!(bench.is_complete(1), "nothing else of it runs");
    bench.page.raise_channel_generation();
    let groups = vec![group(5, 9, 100, Some(2)), Group { scheduled: true, ..young }];
    assert_eq!(bench.next(groups).0, Some((2, vec![], vec![(1, 100), (1, 200)])));
}
