//! Memory that the program creates and maps itself.

use std::time::Duration;

use crate::bench::*;
use wire::{BLOCK_BYTES, FromDaemon, HANDLE_BYTES_MAX, SizedHandle, ToDaemon};

/// As frameworks have it.
const BYTES: u64 = 20 << 20;
pub(crate) const FILES: u64 = 1;
const FABRIC: u64 = 8;
const RDMA: u64 = 0x100;

pub(crate) fn number(answer: &str) -> u64 {
    u64::from_str_radix(answer.strip_prefix("0 ").unwrap_or_else(|| panic!("{answer}")), 16).unwrap()
}

/// Creates memory with the daemon's help.
pub(crate) fn create(program: &mut Program, daemon: &Daemon, bytes: u64, kind: u64) -> (u64, SizedHandle) {
    program.tell(&format!("create {bytes:x} {kind:x}"));
    let wanted = daemon.grant(bytes);
    let created = number(&program.answer());
    let (message, files) = daemon.next();
    let ToDaemon::Allocated { grant, handle, .. } = message else { panic!("{message:?}") };
    assert_eq!((grant, files.len()), (wanted, 1));
    (created, handle)
}

pub(crate) fn map(program: &mut Program, created: u64, bytes: u64) -> u64 {
    let address = number(&program.ask(&format!("reserve {bytes:x}")));
    assert_eq!(program.ask(&format!("call cuMemMap {address:x} {bytes:x} 0 {created:x} 0")), "0");
    assert_eq!(program.ask(&format!("open {address:x} {bytes:x}")), "0");
    address
}

#[test]
fn it_moves_under_each_of_its_addresses() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[("FAKE_NOTES_ACCESS", "1")]);
    program.enter();
    let (created, handle) = create(&mut program, &daemon, BYTES, FILES | RDMA);
    assert_eq!(program.ask(&format!("kind {created:x}")), "0 101", "as it was asked for");
    let [one, two] = [(); 2].map(|()| map(&mut program, created, BYTES));
    program.ask(&format!("write {one:x} 1234"));
    assert_eq!(program.ask(&format!("read {two:x}")), "1234");

    daemon.send(FromDaemon::Unmap { handles: vec![handle.handle] });
    assert_eq!(daemon.next().0, ToDaemon::Unmapped { handles: vec![handle.handle] });
    // What needs no memory is answered at once; what does, when it is back.
    assert_eq!(number(&program.ask(&format!("retain {:x}", two + 5))), created);
    assert_eq!(program.ask(&format!("range {:x}", one + 5)), format!("0 {one:x} {BYTES:x}"));
    assert_eq!(program.ask(&format!("call cuMemAddressFree {one:x} {BYTES:x}")), "1", "it is mapped there");
    let third = number(&program.ask(&format!("reserve {BYTES:x}")));
    program.tell(&format!("call cuMemMap {third:x} {BYTES:x} 0 {created:x} 0"));
    // Time to map too early. Where that is not enough, the test still holds.
    std::thread::sleep(Duration::from_millis(30));
    daemon.send(FromDaemon::Create { handles: vec![handle.handle] });
    let (message, files) = daemon.next();
    assert_eq!(message, ToDaemon::Created { handles: vec![handle.handle] });
    assert_eq!(program.answer(), "0");
    rustix::io::pwrite(&files[0], &0x5678u64.to_le_bytes(), 0).unwrap();
    for address in [one, two, third] {
        assert_eq!(program.ask(&format!("read {address:x}")), "5678", "{address:x}");
    }
    assert_eq!(bench.log().iter().filter(|line| *line == "access").count(), 4, "two, and the same again");
    for address in [one, two, third] {
        assert_eq!(program.ask(&format!("call cuMemUnmap {address:x} {BYTES:x}")), "0");
        assert_eq!(program.ask(&format!("call cuMemAddressFree {address:x} {BYTES:x}")), "0");
    }
    assert_eq!(program.ask(&format!("call cuMemRelease {created:x}")), "0");
    assert_eq!(program.ask(&format!("call cuMemRelease {created:x}")), "0", "it was retained");
    assert_eq!(daemon.next().0, freed(handle), "after a while");
    assert_eq!(bench.stderr(), "");
}

#[test]
fn unmapped_and_released_while_away_it_never_comes_back() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (created, handle) = create(&mut program, &daemon, BYTES, 0);
    let address = map(&mut program, created, BYTES);
    let (other, ..) = daemon.serve(&mut program, 100);
    daemon.send(FromDaemon::Unmap { handles: vec![handle.handle] });
    assert_eq!(daemon.next().0, ToDaemon::Unmapped { handles: vec![handle.handle] });
    assert_eq!(program.ask(&format!("call cuMemRelease {created:x}")), "0");
    assert_eq!(program.ask(&format!("call cuMemUnmap {address:x} {:x}", BYTES / 2)), "1", "only whole");
    assert_eq!(program.ask(&format!("call cuMemUnmap {address:x} {BYTES:x}")), "0");
    assert_eq!(daemon.next().0, freed(handle));
    assert_eq!(program.ask(&format!("copy {other:x} 33")), "0", "nothing is away any more");
}

#[test]
fn loops_of_it_say_nothing_and_make_nothing() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let before = program.ask("info");
    let (mut created, handle) = create(&mut program, &daemon, BYTES, 0);
    let address = number(&program.ask(&format!("reserve {BYTES:x}")));
    for round in 0..50 {
        if round > 0 {
            created = number(&program.ask(&format!("create {BYTES:x} 0")));
        }
        assert_ne!(program.ask("info"), before);
        assert_eq!(program.ask(&format!("call cuMemMap {address:x} {BYTES:x} 0 {created:x} 0")), "0");
        assert_eq!(program.ask(&format!("call cuMemRelease {created:x}")), "0");
        assert_ne!(program.ask("info"), before, "it is mapped");
        assert_eq!(program.ask(&format!("call cuMemUnmap {address:x} {BYTES:x}")), "0");
        assert_eq!(program.ask("info"), before);
    }
    let made = || bench.log().iter().filter(|line| *line == "create").count();
    assert_eq!(made(), 1);
    // Another kind is other memory; what is kept goes before that is out of memory.
    program.tell(&format!("create {BYTES:x} {FILES:x}"));
    let (message, _) = daemon.next();
    let ToDaemon::Grow { grant, .. } = message else { panic!("{message:?}") };
    daemon.send(FromDaemon::Denied { grant, reason: "full".to_owned() });
    assert_eq!(daemon.next().0, freed(handle));
    daemon.grant(BYTES);
    number(&program.answer());
    assert_eq!((made(), bench.stderr().as_str()), (2, ""));
}

#[test]
fn large_memory_moves_in_parts_and_is_one_for_the_program() {
    const LARGE: u64 = 3 * HANDLE_BYTES_MAX;
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    program.tell(&format!("create {LARGE:x} 0"));
    daemon.grant(LARGE);
    let created = number(&program.answer());
    let parts: Vec<SizedHandle> = (0..3)
        .map(|_| match daemon.next().0 {
            ToDaemon::Allocated { handle, .. } => handle,
            other => panic!("{other:?}"),
        })
        .collect();
    let address = number(&program.ask(&format!("reserve {LARGE:x}")));
    let map =
        |bytes: u64, offset: u64| format!("call cuMemMap {address:x} {bytes:x} {offset:x} {created:x} 0");
    assert_eq!(program.ask(&map(HANDLE_BYTES_MAX, 0)), "801", "only whole");
    assert_eq!(program.ask(&map(LARGE, HANDLE_BYTES_MAX)), "801");
    assert_eq!(program.ask(&map(LARGE, 0)), "0");
    assert_eq!(program.ask(&format!("open {address:x} {HANDLE_BYTES_MAX:x}")), "1", "only whole");
    assert_eq!(program.ask(&format!("open {address:x} {LARGE:x}")), "0");
    let middle = address + HANDLE_BYTES_MAX;
    assert_eq!(program.ask(&format!("range {middle:x}")), format!("0 {address:x} {LARGE:x}"));
    assert_eq!(program.ask(&format!("attribute {middle:x} c")), format!("0 {LARGE:x}"));
    assert_eq!(program.ask(&format!("call cuMemUnmap {middle:x} {HANDLE_BYTES_MAX:x}")), "1", "only whole");
    assert_eq!(program.ask(&format!("export {created:x} 1")), "1 0", "that was not asked for");

    program.ask(&format!("write {middle:x} 11"));
    program.ask(&format!("write {:x} 22", middle - 8));
    daemon.send(FromDaemon::Unmap { handles: vec![parts[1].handle] });
    assert_eq!(daemon.next().0, ToDaemon::Unmapped { handles: vec![parts[1].handle] });
    assert_eq!(program.ask(&format!("read {:x}", middle - 8)), "22");
    daemon.send(FromDaemon::Create { handles: vec![parts[1].handle] });
    let (_, files) = daemon.next();
    rustix::io::pwrite(&files[0], &0x33u64.to_le_bytes(), 0).unwrap();
    assert_eq!(program.ask(&format!("read {middle:x}")), "33");
    assert_eq!(program.ask(&format!("call cuMemUnmap {address:x} {LARGE:x}")), "0");
    assert_eq!(program.ask(&format!("call cuMemRelease {created:x}")), "0");
    let handles = parts.iter().map(|part| part.handle).collect();
    assert_eq!(daemon.next().0, ToDaemon::Freed { handles });
}

#[test]
fn large_memory_that_could_be_shared_moves_in_parts_too() {
    const LARGE: u64 = 2 * HANDLE_BYTES_MAX;
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    program.tell(&format!("create {LARGE:x} {FILES:x}"));
    daemon.grant(LARGE);
    let created = number(&program.answer());
    for _ in 0..2 {
        let (message, files) = daemon.next();
        let ToDaemon::Allocated { handle, .. } = message else { panic!("{message:?}") };
        assert_eq!((handle.bytes, files.len()), (HANDLE_BYTES_MAX, 1));
    }
    for _ in 0..2 {
        assert_eq!(program.ask(&format!("export {created:x} {FILES:x}")), "801 0", "it is not one handle");
    }
    let said = bench.stderr();
    assert!(said.contains("ROTA_WHOLE_HANDLES=1") && said.lines().count() == 1, "{said}");
}

#[test]
fn of_what_fails_midway_nothing_is_left() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[("FAKE_CREATES_MAX", "2")]);
    program.enter();
    let before = program.ask("info");
    program.tell(&format!("create {:x} 0", 3 * HANDLE_BYTES_MAX));
    let grant = daemon.grant(3 * HANDLE_BYTES_MAX);
    assert_eq!(daemon.next().0, ToDaemon::Returned { grant });
    assert_eq!(program.answer(), "2 0");
    let count = |what: &str| bench.log().iter().filter(|line| *line == what).count();
    assert_eq!((count("create"), count("release")), (2, 2));
    assert_eq!(program.ask("info"), before);
}

#[test]
fn a_mapping_that_fails_midway_leaves_nothing() {
    const LARGE: u64 = 3 * HANDLE_BYTES_MAX;
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[("FAKE_MAP_FAILS", "3")]);
    program.enter();
    program.tell(&format!("create {LARGE:x} 0"));
    daemon.grant(LARGE);
    let created = number(&program.answer());
    let address = number(&program.ask(&format!("reserve {LARGE:x}")));
    let map = format!("call cuMemMap {address:x} {LARGE:x} 0 {created:x} 0");
    assert_eq!(program.ask(&map), "801");
    assert_eq!(program.ask(&format!("copy {address:x} 1")), "1", "nothing is mapped there");
    assert_eq!(program.ask(&format!("range {address:x}")), "1 0 0", "nor written down");
    assert_eq!(program.ask(&map), "0", "so it can be mapped there");
    assert_eq!(program.ask(&format!("copy {address:x} 1")), "0");
}

#[test]
fn memory_whose_second_mapping_fails_stays_away_until_it_works() {
    let bench = Bench::new();
    // The two of the program, and the second of the first attempt to bring it back.
    let (mut program, daemon) = bench.tenant(&[("FAKE_MAP_FAILS", "4")]);
    program.enter();
    let (created, handle) = create(&mut program, &daemon, BYTES, 0);
    let [one, two] = [(); 2].map(|()| map(&mut program, created, BYTES));
    daemon.send(FromDaemon::Unmap { handles: vec![handle.handle] });
    assert_eq!(daemon.next().0, ToDaemon::Unmapped { handles: vec![handle.handle] });
    daemon.send(FromDaemon::Create { handles: vec![handle.handle] });
    let failed = ToDaemon::Failed { handles: vec![handle.handle], code: 801, call: "cuMemMap".to_owned() };
    assert_eq!(daemon.next().0, failed);
    let count = |what: &str| bench.log().iter().filter(|line| *line == what).count();
    assert_eq!((count("create"), count("release")), (2, 2), "nothing is left of that");
    daemon.send(FromDaemon::Create { handles: vec![handle.handle] });
    let (message, files) = daemon.next();
    assert_eq!(message, ToDaemon::Created { handles: vec![handle.handle] });
    rustix::io::pwrite(&files[0], &0x99u64.to_le_bytes(), 0).unwrap();
    for address in [one, two] {
        assert_eq!(program.ask(&format!("read {address:x}")), "99");
    }
}

#[test]
fn what_is_handed_on_stays_and_is_not_used_again() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (created, handle) = create(&mut program, &daemon, BYTES, FILES);
    let address = map(&mut program, created, BYTES);
    program.ask(&format!("write {address:x} 77"));
    assert_eq!(program.ask(&format!("export {created:x} {FABRIC:x}")), "1 0", "that was not asked for");
    program.tell(&format!("export {created:x} {FILES:x}"));
    let (message, _) = daemon.next();
    let ToDaemon::Pin { request, handles } = message else { panic!("{message:?}") };
    assert_eq!(handles, [handle.handle]);
    daemon.send(FromDaemon::Pinned { request });
    assert_eq!(program.answer(), "0 77");
    assert_eq!(program.ask(&format!("export {created:x} {FILES:x}")), "0 77", "nobody need be asked again");
    assert_eq!(program.ask(&format!("call cuMemUnmap {address:x} {BYTES:x}")), "0");
    assert_eq!(program.ask(&format!("call cuMemRelease {created:x}")), "0");
    assert_eq!(daemon.next().0, freed(handle), "at once");
    create(&mut program, &daemon, BYTES, FILES);
}

#[test]
fn what_must_not_stay_is_not_handed_on() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (created, handle) = create(&mut program, &daemon, BYTES, FILES);
    program.tell(&format!("export {created:x} {FILES:x}"));
    let (message, _) = daemon.next();
    let ToDaemon::Pin { request, .. } = message else { panic!("{message:?}") };
    daemon.send(FromDaemon::Denied { grant: request, reason: "too much is".to_owned() });
    assert_eq!(program.answer(), "801 0");
    assert_eq!(bench.stderr(), "rota: memory cannot be shared: too much is\n");
    assert_eq!(program.ask(&format!("call cuMemRelease {created:x}")), "0");
    assert_eq!(daemon.next().0, freed(handle));
}

#[test]
fn what_the_driver_does_not_make_for_moving_is_counted_and_stays() {
    // This driver has no files for memory that it shares otherwise; and what is one handle is too large to move.
    let bench = Bench::new();
    let settings = [("FAKE_REFUSED_TYPES", "9"), ("ROTA_WHOLE_HANDLES", "1")];
    let (mut program, daemon) = bench.tenant(&settings);
    program.enter();
    let before = program.ask("info");
    program.tell(&format!("create {BLOCK_BYTES:x} {FABRIC:x}"));
    let grant = daemon.grant(BLOCK_BYTES);
    assert_eq!(daemon.next().0, ToDaemon::Returned { grant });
    for (bytes, kind) in [(BLOCK_BYTES, FABRIC), (2 * HANDLE_BYTES_MAX, FILES)] {
        if kind == FILES {
            program.tell(&format!("create {bytes:x} {kind:x}"));
        }
        let wanted = daemon.grant_to_keep(bytes);
        let created = number(&program.answer());
        let (message, files) = daemon.next();
        let ToDaemon::Kept { grant, handle } = message else { panic!("{message:?}") };
        assert_eq!((grant, handle.bytes, files.len()), (wanted, bytes, 0));
        assert_ne!(program.ask("info"), before);
        map(&mut program, created, bytes);
        if kind == FILES {
            assert_eq!(program.ask(&format!("export {created:x} {FILES:x}")), "0 0", "it stays in any case");
        }
        assert_eq!(program.ask(&format!("call cuMemRelease {created:x}")), "0");
    }
}

#[test]
fn for_rdma_it_stays_where_that_is_wanted() {
    let bench = Bench::new();
    // This driver makes none at all.
    let (mut program, daemon) = bench.tenant(&[("ROTA_RDMA", "1")]);
    program.enter();
    program.tell(&format!("create {BYTES:x} {RDMA:x}"));
    let grant = daemon.grant_to_keep(BYTES);
    assert_eq!(daemon.next().0, ToDaemon::Returned { grant });
    assert_eq!(program.answer(), "1 0", "it was asked for as the program wanted it");
    create(&mut program, &daemon, BYTES, 0);
}

#[test]
fn a_child_has_nothing_of_it() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (created, handle) = create(&mut program, &daemon, BYTES, 0);
    let address = map(&mut program, created, BYTES);
    program.ask(&format!("write {address:x} 1234"));
    assert_eq!(program.ask("fork"), "0");
    assert_eq!(program.ask(&format!("read {address:x}")), "1234");
    daemon.send(FromDaemon::Unmap { handles: vec![handle.handle] });
    assert_eq!(daemon.next().0, ToDaemon::Unmapped { handles: vec![handle.handle] }, "the parent serves on");
}
