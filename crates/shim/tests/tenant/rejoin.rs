//! A program whose daemon went, and that joins the next one.

use crate::bench::*;
use crate::created::{FILES, create, map};
use wire::{FromDaemon, SharedPage, SizedHandle, ToDaemon};

const BYTES: u64 = 64 << 20;
const GONE: &str = "the daemon is gone";

fn next_daemon(bench: &Bench) -> Daemon {
    Daemon::welcome_with(SharedPage::create(2).unwrap(), &bench.listen())
}

/// What the next daemon hears first of memory: the sizes that it is asked for, granted one by one.
fn granted(daemon: &Daemon, count: usize) -> Vec<(SizedHandle, std::os::fd::OwnedFd)> {
    let asked: Vec<_> = (0..count)
        .map(|_| match daemon.next().0 {
            ToDaemon::Grow { grant, bytes } => (grant, bytes),
            other => panic!("{other:?}"),
        })
        .collect();
    asked.iter().for_each(|(grant, _)| daemon.send(FromDaemon::Granted { grant: *grant }));
    asked
        .iter()
        .map(|(wanted, bytes)| {
            let (message, mut files) = daemon.next();
            let ToDaemon::Allocated { grant, handle } = message else { panic!("{message:?}") };
            assert_eq!((grant, handle.bytes), (*wanted, *bytes));
            (handle, files.remove(0))
        })
        .collect()
}

#[test]
fn it_joins_the_next_daemon_with_its_memory() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (plain, before, _) = daemon.serve(&mut program, BYTES);
    let (created, _) = create(&mut program, &daemon, BYTES, 0);
    let mapped = map(&mut program, created, BYTES);
    program.ask(&format!("write {plain:x} 11"));
    program.ask(&format!("write {mapped:x} 22"));
    daemon.page.set_frozen(true);
    drop(daemon);
    wait_for(|| bench.stderr().contains(GONE));
    // Natively meanwhile.
    program.tell("alloc 100");
    let native = program.allocated();

    let daemon = next_daemon(&bench);
    let known = granted(&daemon, 2);
    assert!(daemon.page.idle_since_ns().is_some(), "it has nothing to do");
    assert_eq!(known.iter().map(|(_, file)| word(file)).collect::<Vec<_>>(), [0x11, 0x22]);
    assert_eq!(known[0].0, before, "under its old name");

    // It moves, and takes more, as with the first.
    daemon.page.set_frozen(true);
    daemon.page.revoke_residency();
    let handles: Vec<_> = known.iter().map(|(handle, _)| handle.handle).collect();
    drop(known);
    daemon.send(FromDaemon::Unmap { handles: handles.clone() });
    assert_eq!(daemon.next().0, ToDaemon::Unmapped { handles: handles.clone() });
    daemon.send(FromDaemon::Create { handles: handles.clone() });
    let (message, files) = daemon.next();
    assert_eq!(message, ToDaemon::Created { handles });
    for (file, value) in files.iter().zip([0x33u64, 0x44]) {
        rustix::io::pwrite(file, &value.to_le_bytes(), 0).unwrap();
    }
    daemon.page.commit_residency(2);
    daemon.page.set_frozen(false);
    assert_eq!(program.ask(&format!("read {plain:x}")), "33");
    assert_eq!(program.ask(&format!("read {mapped:x}")), "44");
    daemon.serve(&mut program, BYTES);
    assert_eq!(program.ask(&format!("free {native:x}")), "0");
    assert_eq!(program.ask(&format!("free {plain:x}")), "0");
    assert_eq!(daemon.next().0, freed(before), "after a while");
    assert!(program.end().success());
}

#[test]
fn what_others_have_the_next_daemon_does_not_get_to_know() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let [before, after, free] = [(); 3].map(|()| create(&mut program, &daemon, BYTES, FILES).0);
    program.tell(&format!("export {before:x} {FILES:x}"));
    let (ToDaemon::Pin { request, .. }, _) = daemon.next() else { panic!("nothing is pinned") };
    daemon.send(FromDaemon::Pinned { request });
    assert_eq!(program.answer(), "0 0");
    drop(daemon);
    wait_for(|| bench.stderr().contains(GONE));
    assert_eq!(program.ask(&format!("export {after:x} {FILES:x}")), "0 0", "nothing moves without a daemon");

    let daemon = next_daemon(&bench);
    granted(&daemon, 1);
    assert!(!daemon.has_more());
    program.tell(&format!("export {free:x} {FILES:x}"));
    let (ToDaemon::Pin { request, .. }, _) = daemon.next() else { panic!("nothing is pinned") };
    daemon.send(FromDaemon::Pinned { request });
    assert_eq!(program.answer(), "0 0");
    for created in [before, after, free] {
        assert_eq!(program.ask(&format!("call cuMemRelease {created:x}")), "0");
    }
    assert!(program.end().success());
}

#[test]
fn what_is_denied_or_freed_before_it_is_granted_stays_as_it_is() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let [one, two] = [BYTES, 2 * BYTES].map(|bytes| daemon.serve(&mut program, bytes).0);
    program.ask(&format!("write {one:x} 11"));
    drop(daemon);
    wait_for(|| bench.stderr().contains(GONE));
    let daemon = next_daemon(&bench);
    let mut asked = [(); 2].map(|()| match daemon.next().0 {
        ToDaemon::Grow { grant, bytes } => (bytes, grant),
        other => panic!("{other:?}"),
    });
    asked.sort_unstable_by_key(|(bytes, _)| *bytes);
    let [(_, first), (_, second)] = asked;
    assert_eq!(program.ask(&format!("free {two:x}")), "0");
    assert_eq!(daemon.next().0, ToDaemon::Returned { grant: second }, "after a while");
    daemon.send(FromDaemon::Denied { grant: first, reason: "full".to_owned() });
    daemon.send(FromDaemon::Granted { grant: second });
    assert_eq!(daemon.next().0, ToDaemon::Returned { grant: second }, "nobody waits for it");
    assert_eq!(program.ask(&format!("read {one:x}")), "11");
    assert_eq!(program.ask(&format!("free {one:x}")), "0");
    assert!(program.end().success());
}

#[test]
fn its_channels_are_frozen_before_anything_can_move() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    drop(daemon);
    wait_for(|| bench.stderr().contains(GONE));
    // It has to freeze itself: this daemon took it for frozen before it knew of any channel.
    let page = SharedPage::create(2).unwrap();
    page.set_frozen(true);
    let daemon = Daemon::welcome_with(page, &bench.listen());
    loop {
        let (message, files) = daemon.receive();
        let ToDaemon::Channels { generation, groups, .. } = message else { panic!("{message:?}") };
        assert_eq!((groups.len(), files.len()), (1, 1));
        if generation > 0 {
            break;
        }
    }
    assert_eq!(daemon.page.channel_generation(), 1);
    assert_eq!(bench.log().last().map(String::as_str), Some("freeze"));
    daemon.page.set_frozen(false);
    assert!(program.end().success());
}

#[test]
fn it_does_not_come_back_to_one_that_hung_up_on_it() {
    let bench = Bench::new();
    let (program, daemon) = bench.tenant(&[]);
    drop(daemon);
    wait_for(|| bench.stderr().contains(GONE));
    let listener = bench.listen();
    assert!(Daemon::welcome(&listener).hung_up());
    assert!(program.end().success());
}
