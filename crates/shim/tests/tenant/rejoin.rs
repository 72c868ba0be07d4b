//! A program whose daemon went, and that joins the next one.

use std::time::Duration;

use crate::bench::*;
use crate::created::{FILES, create, map};
use wire::{FromDaemon, HANDLE_BYTES_MAX, SharedPage, SizedHandle, ToDaemon};

const BYTES: u64 = 64 << 20;
const GONE: &str = "the daemon is gone";

fn next_daemon(bench: &Bench) -> (Daemon, Survivor) {
    Daemon::take_over(SharedPage::create(2).unwrap(), &bench.listen())
}

/// A page as a program gets it whose memory is not all there.
fn away_page(epoch: u64) -> SharedPage {
    let page = SharedPage::create(epoch).unwrap();
    page.set_frozen(true);
    page.revoke_residency();
    page
}

/// The next daemon does not take the program in, for ever.
fn give_up<'a>(bench: &Bench, reason: &'a str) -> &'a str {
    let connection = bench.listen().accept().unwrap();
    let (rejoin, _) = connection.receive::<ToDaemon>().unwrap();
    assert!(matches!(rejoin, ToDaemon::Rejoin { .. }), "{rejoin:?}");
    connection.send(&FromDaemon::Lost { reason: reason.to_owned() }, &[]).unwrap();
    reason
}

/// Has these moved out and back with other values, as a daemon does.
fn move_out_and_in(daemon: &Daemon, handles: &[SizedHandle], values: &[u64]) {
    let handles: Vec<_> = handles.iter().map(|handle| handle.handle).collect();
    daemon.page.set_frozen(true);
    daemon.page.revoke_residency();
    daemon.send(FromDaemon::Unmap { handles: handles.clone() });
    assert_eq!(daemon.next().0, ToDaemon::Unmapped { handles: handles.clone() });
    bring_in(daemon, handles, values);
}

fn bring_in(daemon: &Daemon, handles: Vec<wire::HandleId>, values: &[u64]) {
    daemon.send(FromDaemon::Create { handles: handles.clone() });
    let (message, files) = daemon.next();
    assert_eq!(message, ToDaemon::Created { handles });
    for (file, value) in files.iter().zip(values) {
        rustix::io::pwrite(file, &value.to_le_bytes(), 0).unwrap();
    }
    daemon.page.commit_residency(2);
    daemon.page.set_frozen(false);
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

    let (daemon, survivor) = next_daemon(&bench);
    assert_eq!((survivor.epoch, survivor.resident, survivor.frozen), (1, true, false));
    assert!(survivor.away.is_empty());
    wait_for(|| daemon.page.idle_since_ns().is_some());
    let known = &survivor.here;
    assert_eq!(known.iter().map(|(_, file)| word(file)).collect::<Vec<_>>(), [0x11, 0x22]);
    assert_eq!(known[0].0, before, "under its old name");

    // It moves, and takes more, as with the first.
    let handles: Vec<_> = survivor.here.into_iter().map(|(handle, _)| handle).collect();
    move_out_and_in(&daemon, &handles, &[0x33, 0x44]);
    assert_eq!(program.ask(&format!("read {plain:x}")), "33");
    assert_eq!(program.ask(&format!("read {mapped:x}")), "44");
    daemon.serve(&mut program, BYTES);
    assert_eq!(program.ask(&format!("free {native:x}")), "0");
    assert_eq!(program.ask(&format!("free {plain:x}")), "0");
    assert_eq!(daemon.next().0, freed(before), "after a while");
    assert!(program.end().success());
}

#[test]
fn one_whose_memory_is_away_waits_frozen_and_comes_back_with_all_of_it() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let [(away, first), (here, second)] = [(); 2].map(|()| {
        let (address, handle, _) = daemon.serve(&mut program, BYTES);
        (address, handle)
    });
    program.ask(&format!("write {here:x} 22"));
    daemon.page.set_frozen(true);
    daemon.page.revoke_residency();
    daemon.send(FromDaemon::Unmap { handles: vec![first.handle] });
    daemon.next();
    let thaws = || bench.log().iter().filter(|line| *line == "thaw").count();
    let before = thaws();
    // A thread waits for more, and goes on waiting.
    program.tell(&format!("alloc {BYTES:x}"));
    let (message, _) = daemon.next();
    assert!(matches!(message, ToDaemon::Grow { .. }), "{message:?}");
    drop(daemon);
    wait_for(|| bench.stderr().contains("it waits for the next one"));
    std::thread::sleep(Duration::from_millis(300));

    let (daemon, survivor) = Daemon::take_over(away_page(2), &bench.listen());
    assert_eq!((survivor.resident, survivor.frozen), (false, true));
    assert_eq!(survivor.away, [first]);
    assert_eq!(
        survivor.here.iter().map(|(handle, file)| (*handle, word(file))).collect::<Vec<_>>(),
        [(second, 0x22)]
    );
    assert_eq!(thaws(), before, "it was let go without its memory");
    daemon.grant(BYTES);
    program.allocated();
    let (message, _) = daemon.next();
    assert!(matches!(message, ToDaemon::Allocated { .. }), "{message:?}");
    bring_in(&daemon, vec![first.handle], &[0x77]);
    assert_eq!(program.ask(&format!("read {away:x}")), "77");
    assert_eq!(program.ask(&format!("read {here:x}")), "22");
    assert!(program.end().success());
}

#[test]
fn one_whose_memory_is_away_leaves_nothing_out_that_cannot_be_shown_for_a_while() {
    let bench = Bench::new();
    let failing = bench.path("exports-fail");
    let (mut program, daemon) = bench.tenant(&[("FAKE_EXPORTS_FAIL", failing.to_str().unwrap())]);
    program.enter();
    let mut served = [(); 2].map(|()| daemon.serve(&mut program, BYTES));
    // They are told of by address.
    served.sort_by_key(|(address, ..)| *address);
    let [away, here] = served.map(|(_, handle, _)| handle);
    daemon.page.set_frozen(true);
    daemon.page.revoke_residency();
    daemon.send(FromDaemon::Unmap { handles: vec![away.handle] });
    daemon.next();
    std::fs::write(&failing, "").unwrap();
    drop(daemon);

    let listener = bench.listen();
    let daemon = Daemon { connection: listener.accept().unwrap(), page: away_page(2) };
    daemon.receive();
    daemon.send(FromDaemon::Waiting { reason: "its memory".to_owned() });
    let told = |here: &[SizedHandle], away: &[SizedHandle], complete| ToDaemon::Has {
        here: here.to_vec(),
        away: away.to_vec(),
        unshown: Vec::new(),
        passable: here.iter().chain(away).map(|sized| sized.handle).collect(),
        complete,
    };
    assert_eq!(daemon.receive().0, told(&[], &[away], false), "its files leave before they fill the room");
    assert!(!daemon.has_more(), "what cannot be shown counts as freed");
    std::fs::remove_file(&failing).unwrap();
    let (message, files) = daemon.receive();
    assert_eq!((message, files.len()), (told(&[here], &[], false), 1));
    assert_eq!(daemon.receive().0, told(&[], &[], true));
    program.child.kill().unwrap();
    program.child.wait().unwrap();
}

#[test]
fn what_cannot_be_shown_is_named_all_the_same_and_shown_later() {
    let bench = Bench::new();
    let failing = bench.path("exports-fail");
    let (mut program, daemon) = bench.tenant(&[("FAKE_EXPORTS_FAIL", failing.to_str().unwrap())]);
    program.enter();
    let [(first, freed_handle), (_, handle)] = [(); 2].map(|()| {
        let (address, handle, _) = daemon.serve(&mut program, BYTES);
        (address, handle)
    });
    std::fs::write(&failing, "").unwrap();
    drop(daemon);
    wait_for(|| bench.stderr().contains(GONE));

    let (daemon, survivor) = next_daemon(&bench);
    assert!(survivor.here.is_empty() && survivor.away.is_empty(), "{:?}", survivor.here);
    let mut unshown = survivor.unshown;
    unshown.sort_unstable_by_key(|sized| sized.handle.0);
    assert_eq!(unshown, [freed_handle, handle]);
    // It is known by its name, also when it goes.
    assert_eq!(program.ask(&format!("free {first:x}")), "0");
    assert_eq!(daemon.next().0, freed(freed_handle));
    std::fs::remove_file(&failing).unwrap();
    let (message, files) = daemon.next();
    assert_eq!((message, files.len()), (ToDaemon::Shown { handle: handle.handle, passable: true }, 1));
    move_out_and_in(&daemon, &[handle], &[0x55]);
    assert!(program.end().success());
}

#[test]
fn memory_that_was_granted_by_another_daemon_is_asked_for_again() {
    for is_denied in [false, true] {
        let bench = Bench::new();
        let waits = bench.path("create-waits");
        let (mut program, daemon) = bench.tenant(&[("FAKE_CREATE_WAITS", waits.to_str().unwrap())]);
        program.enter();
        std::fs::write(&waits, "").unwrap();
        program.tell(&format!("alloc {BYTES:x}"));
        let old = daemon.grant(BYTES);
        wait_for(|| bench.log().iter().any(|line| line == "creating"));
        drop(daemon);
        let (daemon, survivor) = next_daemon(&bench);
        assert!(survivor.here.is_empty() && survivor.unshown.is_empty());
        let (message, _) = daemon.receive();
        assert!(matches!(message, ToDaemon::Channels { .. }), "it is back: {message:?}");
        std::fs::remove_file(&waits).unwrap();
        if is_denied {
            let (message, _) = daemon.next();
            let ToDaemon::Grow { grant, .. } = message else { panic!("{message:?}") };
            daemon.send(FromDaemon::Denied { grant, reason: "full".to_owned() });
            assert_eq!(program.answer(), "2 0", "out of memory");
            assert!(bench.log().iter().any(|line| line == "release"), "it is let go");
        } else {
            let new = daemon.grant(BYTES);
            assert_ne!(new, old);
            program.allocated();
            let (message, _) = daemon.next();
            assert!(matches!(message, ToDaemon::Allocated { grant, .. } if grant == new), "{message:?}");
        }
        assert!(program.end().success());
    }
}

#[test]
fn what_never_moves_counts_with_the_next_daemon_too() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[("ROTA_WHOLE_HANDLES", "1")]);
    program.enter();
    let bytes = 2 * HANDLE_BYTES_MAX;
    let [(_, first), (_, gone), (number, last)] = [(); 3].map(|()| {
        program.tell(&format!("create {bytes:x} {FILES:x}"));
        daemon.grant_to_keep(bytes);
        let created = program.answer();
        let (message, _) = daemon.next();
        let ToDaemon::Kept { handle, .. } = message else { panic!("{message:?}") };
        (created.strip_prefix("0 ").unwrap().to_owned(), handle)
    });
    drop(daemon);
    wait_for(|| bench.stderr().contains(GONE));
    let (daemon, survivor) = next_daemon(&bench);
    let mut unshown = survivor.unshown;
    unshown.sort_unstable_by_key(|sized| sized.handle.0);
    assert_eq!(unshown, [first, gone, last]);
    assert!(survivor.here.is_empty() && survivor.away.is_empty());
    assert_eq!(program.ask(&format!("call cuMemRelease {number}")), "0");
    assert_eq!(daemon.next().0, freed(last));
    assert!(program.end().success());
}

#[test]
fn a_child_that_is_forked_meanwhile_keeps_nothing_of_it() {
    let bench = Bench::new();
    let failing = bench.path("exports-fail");
    let (mut program, daemon) = bench.tenant(&[("FAKE_EXPORTS_FAIL", failing.to_str().unwrap())]);
    program.enter();
    let mut served = [(); 2].map(|()| daemon.serve(&mut program, BYTES));
    // They are told of by address: the other one is what cannot be shown.
    served.sort_by_key(|(address, ..)| *address);
    let [(_, away, _), _] = served;
    daemon.page.set_frozen(true);
    daemon.page.revoke_residency();
    daemon.send(FromDaemon::Unmap { handles: vec![away.handle] });
    daemon.next();
    std::fs::write(&failing, "").unwrap();
    drop(daemon);
    let listener = bench.listen();
    let daemon = Daemon { connection: listener.accept().unwrap(), page: away_page(2) };
    daemon.receive();
    daemon.send(FromDaemon::Waiting { reason: "its memory".to_owned() });
    // It tells of its memory as long as some of it cannot be shown.
    daemon.receive();
    let child = program.ask("fork-stays");
    // Its parent may say so before it has begun.
    wait_for(|| {
        let files = std::fs::read_dir(format!("/proc/{child}/fd")).unwrap();
        let mut open = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        open.all(|link| !link.to_string_lossy().starts_with("socket:"))
    });
    let child = rustix::process::Pid::from_raw(child.parse().unwrap()).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    program.child.kill().unwrap();
    program.child.wait().unwrap();
}

#[test]
fn one_whose_memory_is_lost_ends_and_says_so() {
    for patience in ["600", "0"] {
        let bench = Bench::new();
        let (mut program, daemon) = bench.tenant(&[("ROTA_WAIT_FOR_DAEMON", patience)]);
        program.enter();
        let (_, handle, _) = daemon.serve(&mut program, BYTES);
        daemon.page.set_frozen(true);
        daemon.page.revoke_residency();
        daemon.send(FromDaemon::Unmap { handles: vec![handle.handle] });
        daemon.next();
        drop(daemon);
        let why = if patience == "0" {
            "no daemon took this program in within 0ns"
        } else {
            give_up(&bench, "its keeper is gone")
        };
        assert_eq!(program.child.wait().unwrap().code(), Some(125));
        let said = bench.stderr();
        assert!(said.contains(why) && said.contains("cannot go on"), "{said}");
    }
}

#[test]
fn what_is_freed_while_it_comes_back_is_told() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, handle, _) = daemon.serve(&mut program, BYTES);
    drop(daemon);
    wait_for(|| bench.stderr().contains(GONE));
    let listener = bench.listen();
    let daemon = Daemon { connection: listener.accept().unwrap(), page: SharedPage::create(2).unwrap() };
    daemon.receive();
    daemon.send(FromDaemon::Waiting { reason: "its memory".to_owned() });
    let has = daemon.receive().0;
    assert!(matches!(&has, ToDaemon::Has { here, .. } if *here == [handle]), "{has:?}");
    assert_eq!(program.ask(&format!("free {address:x}")), "0");
    daemon.receive();
    // Freed memory is kept for a while, and gone by then.
    std::thread::sleep(Duration::from_millis(1500));
    let (gpu, capacity_bytes) = (GPU.to_owned(), CAPACITY_BYTES);
    let welcome = FromDaemon::Welcome { tenant: wire::TenantId(9), gpu, capacity_bytes };
    daemon.connection.send(&welcome, &[daemon.page.file()]).unwrap();
    assert_eq!(daemon.next().0, freed(handle));
    assert!(program.end().success());
}

#[test]
fn a_daemon_that_is_replaced_at_once_is_not_missed() {
    let bench = Bench::new();
    let held = bench.listen();
    let mut program = bench.start(&[]);
    program.tell("init");
    let daemon = Daemon::welcome(&held);
    assert_eq!(program.answer(), "0");
    program.enter();
    daemon.serve(&mut program, BYTES);
    // Asked of one that goes before it answers: the next one is asked.
    program.tell(&format!("alloc {BYTES:x}"));
    let (message, _) = daemon.next();
    assert!(matches!(message, ToDaemon::Grow { .. }), "{message:?}");
    drop(daemon);
    let (daemon, survivor) = Daemon::take_over(SharedPage::create(2).unwrap(), &held);
    assert_eq!((survivor.here.len(), survivor.away.len()), (1, 0));
    daemon.grant(BYTES);
    program.allocated();
    assert!(!bench.stderr().contains(GONE), "{}", bench.stderr());
    assert!(program.end().success());
}

#[test]
fn what_others_have_the_next_daemon_knows_and_cannot_move() {
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

    let (daemon, survivor) = next_daemon(&bench);
    assert_eq!((survivor.here.len(), survivor.unshown.len()), (1, 2));
    let (ToDaemon::Pin { mut handles, .. }, _) = daemon.next() else { panic!("nothing is pinned") };
    handles.sort_unstable_by_key(|handle| handle.0);
    let mut staying: Vec<_> = survivor.unshown.iter().map(|sized| sized.handle).collect();
    staying.sort_unstable_by_key(|handle| handle.0);
    assert_eq!(handles, staying);
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
fn what_one_daemon_did_not_answer_the_next_one_publishes() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let [(name, _), (shared, handle)] = [(); 2].map(|()| {
        let (address, handle, _) = daemon.serve(&mut program, BYTES);
        (address, handle)
    });
    program.tell(&format!("call cuIpcGetMemHandle {name:x} {shared:x}"));
    let (ToDaemon::Pin { request, .. }, _) = daemon.next() else { panic!("nothing is pinned") };
    daemon.send(FromDaemon::Pinned { request });
    let (ToDaemon::Publish { token: first, .. }, _) = daemon.next() else { panic!("nothing is published") };
    let listener = bench.listen();
    drop(daemon);
    let (daemon, survivor) = Daemon::take_over(SharedPage::create(2).unwrap(), &listener);
    assert_eq!(survivor.unshown, [handle], "it is pinned");
    let (ToDaemon::Pin { .. }, _) = daemon.next() else { panic!("nothing is pinned") };
    let (message, files) = daemon.next();
    let ToDaemon::Publish { request, token, handles, complete: true } = message else {
        panic!("{message:?}")
    };
    assert_eq!((token, handles, files.len()), (first, vec![handle], 1));
    daemon.send(FromDaemon::Published { request });
    assert_eq!(program.answer(), "0");
    while daemon.has_more() {
        let (message, _) = daemon.receive();
        assert!(matches!(message, ToDaemon::Channels { .. }), "it is published once: {message:?}");
    }
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
    let (daemon, _) = Daemon::take_over(page, &bench.listen());
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
fn it_does_not_come_back_to_one_that_gave_it_up() {
    let bench = Bench::new();
    let (program, daemon) = bench.tenant(&[]);
    drop(daemon);
    wait_for(|| bench.stderr().contains(GONE));
    give_up(&bench, "it lied");
    wait_for(|| bench.stderr().contains("it lied; running on without rota"));
    assert!(program.end().success());
}
