//! Memory that another program had, which the daemon hands on.

use std::os::fd::{AsFd as _, OwnedFd};

use crate::bench::*;
use rustix::process::{Pid, Resource, Rlimit};
use wire::{FromDaemon, SizedHandle, ToDaemon};

/// Memory that may be passed.
const LARGE: u64 = 64 << 20;
/// What the kernel calls the files of this test.
const FRAME: &str = "memfd:frame";

/// Memory of this size that begins with a word.
fn frame(bytes: u64, word: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("frame", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    rustix::io::pwrite(&file, &word.to_le_bytes(), 0).unwrap();
    file
}

/// How many files of a process stand for such memory.
fn frames_of(pid: u32) -> usize {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    names.filter(|name| name.to_string_lossy().contains(FRAME)).count()
}

fn unmap(daemon: &Daemon, handle: SizedHandle) {
    daemon.send(FromDaemon::Unmap { handles: vec![handle.handle] });
    assert_eq!(daemon.next().0, ToDaemon::Unmapped { handles: vec![handle.handle] });
}

fn take(daemon: &Daemon, handle: SizedHandle, file: &OwnedFd) -> ToDaemon {
    let order = FromDaemon::Take { handles: vec![handle.handle] };
    daemon.connection.send(&order, &[file.as_fd()]).unwrap();
    daemon.next().0
}

/// A program with memory of another, and the file of that.
fn taken(bench: &Bench) -> (Program, Daemon, u64, SizedHandle, OwnedFd) {
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, handle, _) = daemon.serve(&mut program, LARGE);
    unmap(&daemon, handle);
    let file = frame(LARGE, 0x77);
    assert_eq!(take(&daemon, handle, &file), ToDaemon::Taken { handles: vec![handle.handle] });
    assert_eq!(program.ask(&format!("read {address:x}")), "77");
    (program, daemon, address, handle, file)
}

#[test]
fn memory_of_another_lies_under_the_address_until_it_leaves() {
    let bench = Bench::new();
    let (mut program, daemon, address, handle, file) = taken(&bench);
    let pid = program.child.id();
    program.ask(&format!("write {address:x} 88"));
    assert_eq!(word(&file), 0x88, "it is that very memory");
    assert_eq!(daemon.page.unseen_bytes(), LARGE, "NVML counts it for nobody");
    assert_eq!(frames_of(pid), 2, "the driver's and the one that is kept");
    unmap(&daemon, handle);
    assert_eq!((frames_of(pid), daemon.page.unseen_bytes()), (0, 0));
    // And as ever.
    daemon.send(FromDaemon::Create { handles: vec![handle.handle] });
    let (message, files) = daemon.next();
    assert_eq!(message, ToDaemon::Created { handles: vec![handle.handle] });
    rustix::io::pwrite(&files[0], &0x99u64.to_le_bytes(), 0).unwrap();
    assert_eq!(program.ask(&format!("read {address:x}")), "99");
    unmap(&daemon, handle);
    take(&daemon, handle, &file);
    assert_eq!(program.ask(&format!("free {address:x}")), "0");
    assert_eq!(daemon.next().0, freed(handle));
    wait_for(|| frames_of(pid) == 0);
    assert_eq!(bench.stderr(), "");
}

#[test]
fn the_next_daemon_is_shown_what_was_taken_from_the_last() {
    let bench = Bench::new();
    let (mut program, daemon, address, handle, file) = taken(&bench);
    drop(daemon);
    let (daemon, survivor) = Daemon::take_over(wire::SharedPage::create(2).unwrap(), &bench.listen());
    let shown: Vec<_> = survivor.here.iter().map(|(handle, file)| (*handle, word(file))).collect();
    assert_eq!((shown, survivor.passable), (vec![(handle, 0x77)], vec![handle.handle]));
    wait_for(|| daemon.page.unseen_bytes() == LARGE);
    rustix::io::pwrite(&file, &0x55u64.to_le_bytes(), 0).unwrap();
    assert_eq!(program.ask(&format!("read {address:x}")), "55");
    unmap(&daemon, handle);
    assert_eq!(frames_of(program.child.id()), 0);
}

#[test]
fn a_forked_child_keeps_none_of_it() {
    let bench = Bench::new();
    let (mut program, _daemon, ..) = taken(&bench);
    let child: u32 = program.ask("fork-stays").parse().unwrap();
    // What the driver has open is its own matter.
    assert_eq!(frames_of(child), frames_of(program.child.id()) - 1);
    rustix::process::kill_process(Pid::from_raw(child as i32).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
}

#[test]
fn what_cannot_be_taken_is_said_and_created_then() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (small, few, _) = daemon.serve(&mut program, 100);
    let (_, large, _) = daemon.serve(&mut program, LARGE);
    let failed = |handle: SizedHandle| ToDaemon::Failed {
        handles: vec![handle.handle],
        code: cuda::CUresult::OPERATING_SYSTEM.0,
        call: "Take".to_owned(),
    };
    // It is small, it is here, it has no file.
    for handle in [few, large] {
        assert_eq!(take(&daemon, handle, &frame(handle.bytes, 1)), failed(handle));
    }
    unmap(&daemon, large);
    daemon.send(FromDaemon::Take { handles: vec![large.handle] });
    assert_eq!(daemon.next().0, failed(large));
    // Nor can a program that has no room for another file. It goes on.
    let pid = Pid::from_raw(program.child.id() as i32).unwrap();
    let few_files = Rlimit { current: Some(3), ..rustix::process::getrlimit(Resource::Nofile) };
    let before = rustix::process::prlimit(Some(pid), Resource::Nofile, few_files).unwrap();
    assert_eq!(take(&daemon, large, &frame(LARGE, 1)), failed(large));
    rustix::process::prlimit(Some(pid), Resource::Nofile, before).unwrap();
    daemon.send(FromDaemon::Create { handles: vec![large.handle] });
    assert_eq!(daemon.next().0, ToDaemon::Created { handles: vec![large.handle] });
    assert_eq!(program.ask(&format!("copy {small:x} 11")), "0");
    let gone = SizedHandle { handle: wire::HandleId(999), bytes: LARGE };
    let freed = ToDaemon::Failed { handles: vec![gone.handle], code: 0, call: "freed".to_owned() };
    assert_eq!(take(&daemon, gone, &frame(LARGE, 1)), freed);
}

#[test]
fn only_large_plain_memory_that_nobody_else_has_is_passable() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let mut allocated = |bytes: u64| {
        program.tell(&format!("alloc {bytes:x}"));
        daemon.grant(bytes);
        let address = program.allocated();
        let (message, _) = daemon.next();
        let ToDaemon::Allocated { handle, passable, .. } = message else { panic!("{message:?}") };
        (address, handle, passable)
    };
    assert!(!allocated(100).2, "it is small");
    let (ours, handle, passable) = allocated(LARGE);
    assert!(passable);
    program.tell(&format!("call cuMemGetHandleForAddressRange 0 {ours:x} 64 1"));
    let (ToDaemon::Pin { request, .. }, _) = daemon.next() else { panic!("it is to be pinned") };
    daemon.send(FromDaemon::Denied { grant: request, reason: "full".into() });
    assert_eq!(program.answer(), "801");
    unmap(&daemon, handle);
    let refused = take(&daemon, handle, &frame(LARGE, 1));
    assert!(matches!(refused, ToDaemon::Failed { .. }), "others might have had it: {refused:?}");
}
