use cuda::CUresult;
use vgpu_messages::memory::{Access, Location, MemoryRequest, PointerKind};
use vgpu_messages::stream::StreamRef;
use vgpu_messages::*;

use super::world::*;
use crate::physical::POISON;

#[test]
fn every_byte_is_in_the_books_and_comes_back() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    assert_eq!(world.used(0), 4 * MIB, "a context");
    let plain = world.alloc(&program, 1000);
    assert_eq!(world.used(0), 4 * MIB + 1024, "rounded to 512 bytes");
    let handle = world.create(&program, 8 * MIB);
    assert_eq!(world.used(0), 12 * MIB + 1024);
    let info = world.memory(&program, MemoryRequest::Info(program.context));
    let total_bytes = 64 * MIB;
    assert_eq!(info, Ok(Answer::Memory { free_bytes: 52 * MIB - 1024, total_bytes }));
    let too_much = MemoryRequest::Create { bytes: 54 * MIB, properties: properties(DeviceId(0)) };
    assert_eq!(code(world.memory(&program, too_much)), CUresult::OUT_OF_MEMORY);
    assert_eq!(world.free(&program, plain), Ok(Answer::Done));
    assert_eq!(code(world.free(&program, plain)), CUresult::INVALID_VALUE, "twice");
    let address = world.reserve(&program, 8 * MIB);
    world.map(&program, address, 8 * MIB, handle);
    assert_eq!(world.memory(&program, MemoryRequest::Release(handle)), Ok(Answer::Done));
    assert_eq!(world.used(0), 12 * MIB, "still mapped");
    assert_eq!(code(world.memory(&program, MemoryRequest::Release(handle))), CUresult::INVALID_VALUE);
    let unreserve = MemoryRequest::Unreserve { address: Address(address), bytes: 8 * MIB };
    assert_eq!(code(world.memory(&program, unreserve.clone())), CUresult::INVALID_VALUE, "in use");
    let unmap = MemoryRequest::Unmap { address: Address(address), bytes: 8 * MIB };
    assert_eq!(world.memory(&program, unmap), Ok(Answer::Done));
    assert_eq!(world.memory(&program, unreserve), Ok(Answer::Done));
    assert_eq!(world.used(0), 4 * MIB);
    assert_eq!(world.machine.take_misuse(), []);
}

#[test]
fn bytes_go_in_and_out_and_new_memory_is_poisoned() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let address = world.alloc(&program, 300_000);
    assert_eq!(world.bytes(&program, address, 16), [POISON; 16]);
    let text: Vec<u8> = (0..200_000u32).map(|at| (at * 7) as u8).collect();
    world.poke(10, HOST, &text);
    assert_eq!(
        world.submit(&program, StreamRef::Legacy, to_device(HOST, address + 50_000, 200_000)),
        Ok(Answer::Done)
    );
    assert_eq!(world.bytes(&program, address + 50_000, 200_000), text);
    assert_eq!(world.bytes(&program, address + 49_999, 1), [POISON]);
}

#[test]
fn shapes_of_rows_are_copied_as_asked() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let address = world.alloc(&program, 4096);
    world.submit(&program, StreamRef::Legacy, memset(address, 0, 4096)).unwrap();
    world.poke(10, HOST, &(0..64).collect::<Vec<u8>>());
    let copy = work::Copy {
        source: work::Place::Host(HOST),
        target: work::Place::Device(address),
        width_bytes: 3,
        height: 2,
        depth: 2,
        source_pitch: 8,
        source_slice: 32,
        target_pitch: 16,
        target_slice: 64,
    };
    assert_eq!(world.submit(&program, StreamRef::Legacy, work::Work::Copy(copy)), Ok(Answer::Done));
    let bytes = world.bytes(&program, address, 96);
    for (at, first) in [(0, 0), (16, 8), (64, 32), (80, 40)] {
        assert_eq!(bytes[at..at + 4], [first, first + 1, first + 2, 0]);
    }
    let bad = work::Copy { target_pitch: 2, ..copy };
    assert_eq!(
        code(world.submit(&program, StreamRef::Legacy, work::Work::Copy(bad))),
        CUresult::INVALID_VALUE
    );
    let words = work::Memset {
        address: Address(address),
        value: 0x0102_0304,
        element_bytes: 4,
        width: 2,
        height: 2,
        pitch: 32,
    };
    world.submit(&program, StreamRef::Legacy, work::Work::Memset(words)).unwrap();
    let bytes = world.bytes(&program, address, 48);
    assert_eq!((&bytes[..8], &bytes[32..40]), (&[4, 3, 2, 1, 4, 3, 2, 1][..], &[4, 3, 2, 1, 4, 3, 2, 1][..]));
}

#[test]
fn elements_are_whole_wherever_their_memory_is_cut() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let address = world.alloc(&program, MIB);
    for (element_bytes, value) in [(1, 0x07), (2, 0x0908), (4, 0x0d0c_0b0a_u32)] {
        let (width, pitch) = (100_000 / u64::from(element_bytes), 150_004);
        world.submit(&program, StreamRef::Legacy, memset(address, 0, MIB)).unwrap();
        let at = Address(address + 4);
        let set = work::Memset { address: at, value, element_bytes, width, height: 3, pitch };
        world.submit(&program, StreamRef::Legacy, work::Work::Memset(set)).unwrap();
        let bytes = world.bytes(&program, address, MIB);
        let row = value.to_le_bytes()[..element_bytes as usize].repeat(width as usize);
        let mut expected = vec![0; MIB as usize];
        for start in (0..3).map(|row| 4 + row * pitch as usize) {
            expected[start..start + row.len()].copy_from_slice(&row);
        }
        assert!(bytes == expected, "elements of {element_bytes} bytes");
    }
}

#[test]
fn mappings_are_whole_or_nothing() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let at = world.reserve(&program, 16 * MIB);
    let (one, two) = (world.create(&program, 4 * MIB), world.create(&program, 4 * MIB));
    world.map(&program, at, 4 * MIB, one);
    let map = |address: u64, bytes, handle| MemoryRequest::Map {
        address: Address(address),
        bytes,
        offset: 0,
        handle,
    };
    for (what, request) in [
        ("over another", map(at + 2 * MIB, 4 * MIB, two)),
        ("outside", map(at + 14 * MIB, 4 * MIB, two)),
        ("not a whole block", map(at + 4 * MIB, MIB, two)),
        ("a part", MemoryRequest::Unmap { address: Address(at), bytes: 2 * MIB }),
    ] {
        assert_eq!(code(world.memory(&program, request)), CUresult::INVALID_VALUE, "{what}");
    }
    let nothing = MemoryRequest::Unmap { address: Address(at + 8 * MIB), bytes: 2 * MIB };
    assert_eq!(world.memory(&program, nothing), Ok(Answer::Done), "nothing is there");
    for bytes in [2 * MIB, 6 * MIB] {
        let reply = world.memory(&program, map(at + 4 * MIB, bytes, two));
        assert_eq!(code(reply), CUresult::NOT_SUPPORTED, "a handle is mapped whole");
    }
    world.map(&program, at + 4 * MIB, 4 * MIB, two);
    let access = |location| MemoryRequest::GetAccess { address: Address(at), location };
    let own = Location::Device(DeviceId(0));
    assert_eq!(world.memory(&program, access(own)), Ok(Answer::Access(Access::ReadWrite)));
    let other = Location::Device(DeviceId(1));
    assert_eq!(world.memory(&program, access(other)), Ok(Answer::Access(Access::None)));
    let both = MemoryRequest::Unmap { address: Address(at), bytes: 8 * MIB };
    assert_eq!(world.memory(&program, both), Ok(Answer::Done), "two together");
    let retained = MemoryRequest::Retain(Address(at));
    assert_eq!(code(world.memory(&program, retained)), CUresult::INVALID_VALUE);
}

#[test]
fn memory_is_shared_by_file_and_lives_as_long_as_anybody_has_it() {
    let mut world = World::new(round_spec());
    let (a, b) = (world.program(10, 0), world.program(11, 0));
    let handle = world.create(&a, 4 * MIB);
    let at = world.reserve(&a, 4 * MIB);
    world.map(&a, at, 4 * MIB, handle);
    world.submit(&a, StreamRef::Legacy, memset(at, 7, 100)).unwrap();
    world.synchronize(&a).unwrap();
    let (_, file) = world.ask_with(a.connection, Request::Memory(MemoryRequest::Export(handle)), None);
    let (reply, _) = world.ask_with(b.connection, Request::Memory(MemoryRequest::Import), file);
    let Ok(Answer::Handle(imported)) = reply else { panic!("{reply:?}") };
    let there = world.reserve(&b, 4 * MIB);
    world.map(&b, there, 4 * MIB, imported);
    let again = world.ask_with(b.connection, Request::Memory(MemoryRequest::Export(imported)), None);
    assert_eq!(code(again.0), CUresult::INVALID_VALUE, "what was imported cannot be exported");
    let Ok(Answer::HandleProperties(properties)) = world.memory(&b, MemoryRequest::Properties(imported))
    else {
        panic!("it has properties");
    };
    assert_eq!(properties.handle_types, 0);
    assert_eq!(world.bytes(&b, there, 101)[99..], [7, POISON]);
    let base = world.used(0);
    world.kill(&a);
    world.machine.closed(a.file);
    world.pass(10 * MS);
    assert_eq!(world.used(0), base - 4 * MIB, "only its context");
    world.machine.closed(file.unwrap());
    assert_eq!(world.memory(&b, MemoryRequest::Release(imported)), Ok(Answer::Done));
    assert_eq!(world.bytes(&b, there, 1), [7]);
    let unmap = MemoryRequest::Unmap { address: Address(there), bytes: 4 * MIB };
    assert_eq!(world.memory(&b, unmap), Ok(Answer::Done));
    assert_eq!(world.used(0), base - 8 * MIB);
    let (reply, _) = world.ask_with(b.connection, Request::Memory(MemoryRequest::Import), Some(b.file));
    assert_eq!(code(reply), CUresult::UNKNOWN, "no exported file");
}

#[test]
fn pointers_are_described() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 1);
    let address = world.alloc(&program, 1000);
    let facts = |world: &mut World, at: u64| match world.memory(&program, MemoryRequest::Pointer(Address(at)))
    {
        Ok(Answer::Pointer(facts)) => facts,
        other => panic!("{other:?}"),
    };
    let plain = facts(&mut world, address + 999);
    assert_eq!(
        (plain.kind, plain.device, plain.context),
        (PointerKind::Device, Some(DeviceId(1)), Some(program.context))
    );
    assert_eq!((plain.range_start, plain.range_bytes), (address, 1000));
    assert_eq!(facts(&mut world, 0x55).kind, PointerKind::Unknown);
    let reserved = world.reserve(&program, 2 * MIB);
    assert_eq!(facts(&mut world, reserved).kind, PointerKind::Reserved);
    let range = MemoryRequest::AddressRange { context: program.context, address: Address(reserved) };
    assert_eq!(code(world.memory(&program, range)), CUresult::NOT_FOUND);
    world.register(&program, HOST, 4096).unwrap();
    assert_eq!(facts(&mut world, HOST + 5).kind, PointerKind::Host);
    assert_eq!(code(world.register(&program, HOST + 4000, 4096)), CUresult::HOST_MEMORY_ALREADY_REGISTERED);
}

#[test]
fn plain_memory_is_shared_by_ipc_handle() {
    let mut world = World::new(round_spec());
    let (a, b) = (world.program(10, 0), world.program(11, 0));
    let address = world.alloc(&a, 4096);
    world.submit(&a, StreamRef::Legacy, memset(address, 9, 4096)).unwrap();
    world.synchronize(&a).unwrap();
    let Ok(Answer::Number(token)) = world.memory(&a, MemoryRequest::IpcExport(Address(address))) else {
        panic!()
    };
    let open = MemoryRequest::IpcOpen { context: b.context, token };
    let Ok(Answer::Address(there)) = world.memory(&b, open) else { panic!() };
    assert_eq!(world.bytes(&b, there.0, 2), [9, 9]);
    assert_eq!(code(world.free(&b, there.0)), CUresult::INVALID_VALUE, "closed, not freed");
    assert_eq!(world.memory(&b, MemoryRequest::IpcClose(there)), Ok(Answer::Done));
}
