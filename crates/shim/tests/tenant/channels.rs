//! Channels: reported, frozen, or said to be missing.

use crate::bench::*;
use wire::ToDaemon;

#[test]
fn channels_are_reported_and_frozen_if_born_frozen() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    daemon.page.set_frozen(true);
    program.enter();
    assert_eq!(daemon.page.channel_generation(), 1);
    let files = loop {
        let (message, files) = daemon.receive();
        let ToDaemon::Channels { generation, new_files, groups } = message else { panic!("{message:?}") };
        assert_eq!(new_files.len(), files.len());
        if generation < 1 {
            continue;
        }
        let [group] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!((group.client, group.subdevice, group.group), (0xc1d0_0001, 3, 4));
        assert_eq!((group.engine, &group.channels[..]), (1, &[5][..]));
        break files;
    };
    drop(files);
    assert_eq!(bench.log(), ["freeze"]);

    // The daemon goes: slices first, then the thaw.
    daemon.page.set_slice_us(2048);
    drop(daemon.connection);
    wait_for(|| bench.stderr().contains("the daemon is gone"));
    assert_eq!(bench.log(), ["freeze", "slice", "thaw"]);
    assert!(!daemon.page.frozen());
    assert!(program.end().success());
}

#[test]
fn channels_that_cannot_be_handed_over_are_missing_until_they_can() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    wait_for(|| bench.agent_started());
    // The driver's own file takes the last number, and there is none for its copy.
    program.ask("fill 1");
    program.enter();
    assert_eq!(daemon.page.channel_generation(), 1);
    loop {
        let (message, _) = daemon.receive();
        let ToDaemon::Channels { generation, groups, .. } = message else { panic!("{message:?}") };
        assert_eq!((generation, groups.len()), (0, 0), "it would be frozen without its channels");
        // What is sent after all of the context's calls: the channel is scheduled by then.
        if !daemon.has_more() {
            break;
        }
    }
    program.ask("empty");
    loop {
        let (message, files) = daemon.receive();
        let ToDaemon::Channels { generation, groups, .. } = message else { panic!("{message:?}") };
        if generation == 1 {
            assert_eq!((groups.len(), files.len()), (1, 1));
            break;
        }
    }
}

#[test]
fn a_slice_that_the_driver_sets_behind_the_daemons_is_told_at_once() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[("OWN_SLICE", "2048")]);
    // The daemon has given it another one, as soon as it knew of the group.
    daemon.page.set_slice_us(1000);
    program.enter();
    assert_eq!(daemon.page.channel_generation(), 2, "one for the group, one for its slice");
    assert_eq!(daemon.page.slice_us(), Some(2048), "what it goes back to");
    loop {
        let (message, _) = daemon.receive();
        let ToDaemon::Channels { generation, groups, .. } = message else { panic!("{message:?}") };
        if generation == 2 {
            assert_eq!(groups.len(), 1);
            break;
        }
    }
    assert!(program.end().success());
}

#[test]
fn a_slice_that_the_driver_sets_before_the_daemon_has_is_nobodys_business() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[("OWN_SLICE", "2048")]);
    program.enter();
    assert_eq!((daemon.page.channel_generation(), daemon.page.slice_us()), (1, None));
    assert!(program.end().success());
}
