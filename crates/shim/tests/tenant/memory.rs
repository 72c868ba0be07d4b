//! Memory: it moves under its addresses, and the program notices nothing.

use std::time::Duration;

use crate::bench::*;
use wire::{BLOCK_BYTES, FromDaemon, HandleId, PART_BYTES_MAX, ToDaemon};

/// Memory that has a range of its own.
const LARGE: u64 = 64 << 20;

#[test]
fn small_memory_shares_a_handle_and_loops_say_nothing() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (first, handle, file) = daemon.serve(&mut program, 100);
    program.tell("alloc 3e8");
    let second = program.allocated();
    assert_eq!((second % 512, second & !(BLOCK_BYTES - 1)), (0, first & !(BLOCK_BYTES - 1)));
    program.ask(&format!("write {second:x} 1234"));
    let mut bytes = [0; 8];
    rustix::io::pread(&file, &mut bytes, second - first).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), 0x1234, "the daemon's copy has both");
    for _ in 0..100 {
        program.tell("alloc 100");
        let again = program.allocated();
        assert_eq!(program.ask(&format!("free {again:x}")), "0");
    }
    program.tell("alloc ffe00");
    let third = program.allocated();
    program.tell("alloc ffe00");
    let grant = daemon.grant(BLOCK_BYTES);
    let fourth = program.allocated();
    let (message, _) = daemon.next();
    assert!(matches!(message, ToDaemon::Allocated { grant: other, .. } if other == grant), "{message:?}");
    assert_eq!(bench.log(), ["create", "create"], "and the driver made two handles in all");
    for address in [first, second, third, fourth] {
        assert_eq!(program.ask(&format!("free {address:x}")), "0");
    }
    // After a while, and not always both at once.
    let mut freed = Vec::new();
    while freed.len() < 2 {
        let (message, _) = daemon.next();
        let ToDaemon::Freed { handles } = message else { panic!("{message:?}") };
        freed.extend(handles);
    }
    assert!(freed.contains(&handle.handle), "{freed:?}");
}

#[test]
fn a_freed_range_is_there_for_the_next_and_free_by_the_count() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let before = program.ask("info");
    let (first, handle, _) = daemon.serve(&mut program, LARGE);
    assert_eq!(program.ask(&format!("free {first:x}")), "0");
    assert_eq!(program.ask("info"), before);
    assert_eq!(program.ask(&format!("range {first:x}")), "500 0 0");
    assert_eq!(program.ask(&format!("attribute {first:x} 2")), "1 0");
    program.tell(&format!("alloc {LARGE:x}"));
    assert_eq!(program.allocated(), first);
    assert_eq!(bench.log(), ["create"]);
    assert_eq!(program.ask(&format!("free {first:x}")), "0");
    // What is not used goes before a request is out of memory.
    program.tell(&format!("alloc {:x}", 4 * LARGE));
    let (message, _) = daemon.next();
    let ToDaemon::Grow { grant, .. } = message else { panic!("{message:?}") };
    daemon.send(FromDaemon::Denied { grant, reason: "full".to_owned() });
    assert_eq!(daemon.next().0, freed(handle));
    daemon.grant(4 * LARGE);
    program.allocated();
    assert_eq!(bench.stderr(), "", "nobody was out of memory");
}

#[test]
fn a_slab_that_is_denied_becomes_as_small_as_can_be() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    for _ in 0..4 {
        daemon.serve(&mut program, 30 << 20);
    }
    program.tell("alloc 400000");
    let (message, _) = daemon.next();
    let ToDaemon::Grow { grant, bytes } = message else { panic!("{message:?}") };
    assert_eq!(bytes, 28 << 20);
    daemon.send(FromDaemon::Denied { grant, reason: "full".to_owned() });
    daemon.grant(4 << 20);
    program.allocated();
    assert_eq!(bench.stderr(), "");
}

#[test]
fn pitched_memory_moves_like_any_other() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    program.tell("pitch 201 a");
    daemon.grant(BLOCK_BYTES);
    let answer = program.answer();
    let [code, address, pitch] = answer.split(' ').collect::<Vec<_>>()[..] else { panic!("{answer}") };
    assert_eq!((code, pitch), ("0", "400"));
    assert_eq!(program.ask(&format!("range {address}")), format!("0 {address} 2800"));
    let (message, _) = daemon.next();
    let ToDaemon::Allocated { handle, .. } = message else { panic!("{message:?}") };
    assert_eq!(program.ask(&format!("free {address}")), "0");
    assert_eq!(daemon.next().0, freed(handle));
}

#[test]
fn memory_leaves_and_comes_back_under_the_same_address() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, handle, file) = daemon.serve(&mut program, 3_000_000);
    program.ask(&format!("write {address:x} 1234"));
    assert_eq!(word(&file), 0x1234, "the daemon's copy is the same memory");

    daemon.send(FromDaemon::Unmap { handles: vec![handle.handle, HandleId(999)] });
    let done = vec![handle.handle, HandleId(999)];
    assert_eq!(
        daemon.next().0,
        ToDaemon::Unmapped { handles: done },
        "an unknown handle is one that is freed"
    );
    assert_eq!(bench.log().iter().filter(|line| *line == "release").count(), 1);

    // A question about memory that is away is answered when it is back.
    program.tell(&format!("attribute {address:x} 9"));
    // Time to ask too early. Where that is not enough, the test still holds.
    std::thread::sleep(Duration::from_millis(50));
    daemon.send(FromDaemon::Create { handles: vec![HandleId(999), handle.handle] });
    let gone = ToDaemon::Failed { handles: vec![HandleId(999)], code: 0, call: "freed".to_owned() };
    assert_eq!(daemon.next().0, gone);
    let (message, files) = daemon.next();
    assert_eq!(message, ToDaemon::Created { handles: vec![handle.handle] });
    assert_eq!(program.answer(), "0 0");
    rustix::io::pwrite(&files[0], &0x5678u64.to_le_bytes(), 0).unwrap();
    assert_eq!(program.ask(&format!("read {address:x}")), "5678");

    assert_eq!(program.ask(&format!("free {address:x}")), "0");
    assert_eq!(daemon.next().0, freed(handle));
    assert!(bench.log().iter().any(|line| line == "address free"));
    assert!(bench.agent_started(), "outside of captures");
    assert!(program.end().success());
    assert_eq!(bench.stderr(), "");
}

#[test]
fn a_large_allocation_moves_in_parts() {
    const ASKED: u64 = 2 * PART_BYTES_MAX + 1;
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    program.tell(&format!("alloc {ASKED:x}"));
    let wanted = daemon.grant(ASKED);
    let address = program.allocated();
    let parts: Vec<_> = (0..3)
        .map(|_| {
            let (message, files) = daemon.next();
            let ToDaemon::Allocated { grant, handle, .. } = message else { panic!("{message:?}") };
            assert_eq!((grant, files.len()), (wanted, 1));
            handle
        })
        .collect();
    assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), ASKED.next_multiple_of(BLOCK_BYTES));
    assert!(parts.iter().all(|part| part.bytes <= PART_BYTES_MAX));
    assert_eq!(program.ask(&format!("range {:x}", address + ASKED - 1)), format!("0 {address:x} {ASKED:x}"));

    // The middle one goes and comes back; its neighbours stay as they are.
    let middle = address + parts[0].bytes;
    let end = middle + parts[1].bytes;
    for (place, value) in [(middle - 8, 0xa), (middle, 0xb), (end - 8, 0xc), (end, 0xd)] {
        program.ask(&format!("write {place:x} {value:x}"));
    }
    daemon.send(FromDaemon::Unmap { handles: vec![parts[1].handle] });
    assert_eq!(daemon.next().0, ToDaemon::Unmapped { handles: vec![parts[1].handle] });
    assert_eq!(program.ask(&format!("read {:x}", middle - 8)), "a");
    assert_eq!(program.ask(&format!("read {end:x}")), "d");
    daemon.send(FromDaemon::Create { handles: vec![parts[1].handle] });
    let (message, files) = daemon.next();
    assert_eq!(message, ToDaemon::Created { handles: vec![parts[1].handle] });
    rustix::io::pwrite(&files[0], &0x5678u64.to_le_bytes(), 0).unwrap();
    assert_eq!(program.ask(&format!("read {middle:x}")), "5678");

    assert_eq!(program.ask(&format!("free {address:x}")), "0");
    let handles = parts.iter().map(|part| part.handle).collect();
    assert_eq!(daemon.next().0, ToDaemon::Freed { handles });
    assert_eq!(bench.log().iter().filter(|line| *line == "release").count(), 4);
    assert_eq!(bench.log().iter().filter(|line| *line == "address free").count(), 1);
}

#[test]
fn of_an_allocation_that_fails_midway_nothing_is_left() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[("FAKE_CREATES_MAX", "2")]);
    program.enter();
    program.tell(&format!("alloc {:x}", 3 * PART_BYTES_MAX));
    let grant = daemon.grant(3 * PART_BYTES_MAX);
    assert_eq!(daemon.next().0, ToDaemon::Returned { grant });
    assert_eq!(program.answer(), "2 0");
    let count = |what: &str| bench.log().iter().filter(|line| *line == what).count();
    assert_eq!((count("create"), count("release"), count("address free")), (2, 2, 1));
}

#[test]
fn the_program_sees_its_own_sizes() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, ..) = daemon.serve(&mut program, 1000);
    let inside = address + 999;
    assert_eq!(program.ask(&format!("range {inside:x}")), format!("0 {address:x} 3e8"));
    assert_eq!(program.ask(&format!("range {:x}", address + 1000)), "500 0 0", "past its end");
    assert_eq!(program.ask(&format!("attribute {inside:x} b")), format!("0 {address:x}"));
    assert_eq!(program.ask(&format!("attribute {inside:x} c")), "0 3e8");
    let free = CAPACITY_BYTES - 1024;
    assert_eq!(program.ask("info"), format!("0 {free:x} {CAPACITY_BYTES:x}"));
    // Of its job: a limit, others, and its context.
    let limit: u64 = 2 << 30;
    daemon.page.set_memory(limit, 5 << 20, 3 << 20);
    let free = limit - (8 << 20) - 1024;
    assert_eq!(program.ask("info"), format!("0 {free:x} {limit:x}"));
    assert_eq!(daemon.page.used_bytes(), 1024, "the daemon is told what it has");
}

#[test]
fn a_denied_request_is_out_of_memory_and_a_refused_one_is_returned() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[("FAKE_CREATE_BYTES_MAX", "2097152")]);
    program.enter();
    program.tell("alloc 100");
    let (message, _) = daemon.next();
    let ToDaemon::Grow { grant, .. } = message else { panic!("{message:?}") };
    daemon.send(FromDaemon::Denied { grant, reason: "the job's limit is 1 GiB".to_owned() });
    assert_eq!(program.answer(), "2 0");

    program.tell("alloc 400000");
    let grant = daemon.grant(4 << 20);
    assert_eq!(daemon.next().0, ToDaemon::Returned { grant });
    assert_eq!(program.answer(), "2 0");
    assert_eq!(program.ask("alloc 0"), "1 0", "the driver's own answer");
    assert_eq!(bench.stderr(), "rota: no memory for this program: the job's limit is 1 GiB\n");
}

#[test]
fn a_free_during_a_capture_fails_as_natively_and_spoils_nothing() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, handle, _) = daemon.serve(&mut program, 100);
    assert_eq!(program.ask("call cuStreamBeginCapture_v2 10 9"), "1", "that is no capture");
    assert_eq!(program.ask("call cuStreamBeginCapture_v2 10 0"), "0");
    assert_eq!(program.ask(&format!("free {address:x}")), "900");
    assert_eq!(program.ask("alloc 100"), "900 0");
    assert!(!bench.log().iter().any(|line| line == "address free" || line == "capture spoilt"));
    assert_eq!(program.ask("call cuStreamEndCapture 10 0"), "0");
    assert_eq!(program.ask(&format!("free {address:x}")), "0");
    assert_eq!(daemon.next().0, freed(handle));
}

#[test]
fn copies_wait_while_memory_is_away_and_arrive_with_all_their_arguments() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, handle, _) = daemon.serve(&mut program, LARGE);
    let order = |order: FromDaemon| {
        daemon.send(order);
        daemon.next()
    };
    for (command, answer, value) in [("copy", "0", 0x11), ("copy-batch", "0 1", 0x22)] {
        order(FromDaemon::Unmap { handles: vec![handle.handle] });
        program.tell(&format!("{command} {address:x} {value:x}"));
        // Time to copy too early. Where that is not enough, the test still holds.
        std::thread::sleep(Duration::from_millis(30));
        let (_, files) = order(FromDaemon::Create { handles: vec![handle.handle] });
        assert_eq!(program.answer(), answer);
        assert_eq!(word(&files[0]), value);
    }
    // Freeing the last allocation that is away lets others' copies go on, as soon as it is not kept any more.
    let (other, ..) = daemon.serve(&mut program, 2 * LARGE);
    order(FromDaemon::Unmap { handles: vec![handle.handle] });
    assert_eq!(program.ask(&format!("free {address:x}")), "0");
    assert_eq!(program.ask(&format!("copy {other:x} 33")), "0");
}

#[test]
fn an_order_that_takes_nothing_away_holds_nobody_up() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, ..) = daemon.serve(&mut program, 100);
    daemon.send(FromDaemon::Unmap { handles: vec![HandleId(999)] });
    assert_eq!(daemon.next().0, ToDaemon::Unmapped { handles: vec![HandleId(999)] });
    assert_eq!(program.ask(&format!("copy {address:x} 11")), "0");
}

#[test]
fn second_references_to_memory_that_moves_are_refused() {
    const SYNC_MEMOPS: u32 = 6;
    const BUFFER_ID: u32 = 7;
    const P2P_TOKENS: u32 = 5;
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (ours, handle, _) = daemon.serve(&mut program, 100);
    let past_its_end = ours + 100;
    let foreign = u64::from_str_radix(&program.ask("foreign"), 16).unwrap();
    for (address, refused) in [(ours, "801"), (past_its_end, "801"), (foreign, "0")] {
        for call in [
            format!("call cuMemRetainAllocationHandle 0 {address:x}"),
            format!("call cuMulticastBindAddr 0 0 {address:x} 1000"),
            format!("call cuPointerSetAttribute 0 {BUFFER_ID:x} {address:x}"),
            format!("attributes {address:x} {P2P_TOKENS:x}"),
        ] {
            assert_eq!(program.ask(&call), refused, "{call}");
        }
        assert_eq!(program.ask(&format!("call cuPointerSetAttribute 0 {SYNC_MEMOPS:x} {address:x}")), "0");
        assert_eq!(program.ask(&format!("attributes {address:x} {BUFFER_ID:x}")), "0");
    }
    let before_ours = format!("call cuMemGetHandleForAddressRange 0 {:x} 2", ours - 1);
    assert_eq!(program.ask(&before_ours).as_str(), "801", "a part of the range is rota's");
    // Nobody moves it any more once it is freed.
    assert_eq!(program.ask(&format!("free {ours:x}")), "0");
    assert_eq!(daemon.next().0, freed(handle));
    assert_eq!(program.ask(&format!("call cuMulticastBindAddr 0 0 {ours:x} 1000")), "0");
}

#[test]
fn what_other_devices_get_at_is_pinned_before_they_do() {
    const P2P_TOKENS: u32 = 5;
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (ours, handle, _) = daemon.serve(&mut program, 100);
    let calls = [
        format!("call cuMemGetHandleForAddressRange 0 {ours:x} 64 1"),
        format!("attribute {ours:x} {P2P_TOKENS:x}"),
    ];
    for call in &calls {
        program.tell(call);
        let (ToDaemon::Pin { request, handles }, _) = daemon.next() else { panic!("{call}") };
        assert_eq!(handles, [handle.handle]);
        daemon.send(FromDaemon::Pinned { request });
        assert_eq!(program.answer().split(' ').next(), Some("0"), "{call}");
    }
    for call in &calls {
        program.tell(call);
        let (ToDaemon::Pin { request, .. }, _) = daemon.next() else { panic!("{call}") };
        daemon.send(FromDaemon::Denied { grant: request, reason: "full".into() });
        assert_eq!(program.answer().split(' ').next(), Some("801"), "{call}");
    }
    assert!(bench.stderr().contains("RDMA"), "{}", bench.stderr());
    // Without the daemon nothing moves.
    drop(daemon);
    wait_for(|| bench.stderr().contains("running on without rota"));
    assert_eq!(program.ask(&calls[0]), "0");
}
