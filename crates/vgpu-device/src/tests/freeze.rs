use cuda::CUresult;
use vgpu_messages::memory::MemoryRequest;
use vgpu_messages::stream::{EventRequest, StreamRef};
use vgpu_messages::work::{HostCall, Work};
use vgpu_messages::*;

use super::world::*;

const WORDS: u64 = 1 << 20;

/// A program in the middle of everything: a kernel that rewrites 8 MiB again and again, a copy each way.
fn busy() -> (World, Program, [u64; 3]) {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let words = world.alloc(&program, 8 * WORDS);
    let (into, from) = (world.alloc(&program, 4 * MIB), world.alloc(&program, 4 * MIB));
    world.register(&program, HOST, 4 * MIB).unwrap();
    world.poke(10, HOST, &[0x11; 2 << 20]);
    let streams = [0; 3].map(|_| world.stream(&program, 1));
    world.submit(&program, StreamRef::Legacy, memset(words, 0, 8 * WORDS)).unwrap();
    world.synchronize(&program).unwrap();
    let kernel = world.kernel(&program, "increment", &[words, WORDS, 1000, HOST + 3 * MIB]);
    world.submit(&program, streams[0], kernel).unwrap();
    world.submit(&program, streams[1], to_device(HOST, into, 2 * MIB)).unwrap();
    world.submit(&program, streams[2], to_host(from, HOST + 2 * MIB, MIB)).unwrap();
    world.pass(MS / 2);
    (world, program, [words, into, from])
}

fn everything(world: &World, program: &Program, at: [u64; 3]) -> Vec<u8> {
    let mut all = world.raw(program, at[0], 8 * WORDS as usize);
    all.extend(world.raw(program, at[1], 4 << 20));
    all.extend(world.peek(10, HOST, HOST_BYTES as usize));
    all
}

#[test]
fn not_a_byte_changes_once_a_freeze_has_returned() {
    let (mut world, program, at) = busy();
    let begin = world.machine.now();
    world.freeze(&program);
    assert!(world.machine.now().since(begin).0 >= MS, "a freeze takes its time");
    let frozen = everything(&world, &program, at);
    world.pass(500 * MS);
    assert!(everything(&world, &program, at) == frozen, "something moved");
    world.thaw(&program);
    world.pass(MS);
    assert!(everything(&world, &program, at) != frozen, "nothing moves after the thaw");
}

#[test]
fn what_was_frozen_comes_out_right() {
    let (mut world, program, [words, into, _]) = busy();
    for _ in 0..20 {
        world.freeze(&program);
        world.pass(3 * MS);
        world.thaw(&program);
        world.pass(700_000);
    }
    // A thousand rounds of 16 MiB take 16.8 s.
    world.pass(17_000 * MS);
    world.synchronize(&program).unwrap();
    let bytes = world.raw(&program, words, 8 * WORDS as usize);
    assert!(bytes.chunks(8).all(|word| word == 1000u64.to_le_bytes()));
    assert_eq!(world.raw(&program, into, 2 << 20), vec![0x11; 2 << 20]);
    assert_eq!(world.peek_word(10, HOST + 3 * MIB), 1000);
}

#[test]
fn memory_can_be_taken_away_and_brought_back_while_frozen() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let at = world.reserve(&program, 4 * MIB);
    let first = world.create(&program, 4 * MIB);
    world.map(&program, at, 4 * MIB, first);
    world.submit(&program, StreamRef::Legacy, memset(at, 0, 4 * MIB)).unwrap();
    world.synchronize(&program).unwrap();
    let kernel = world.kernel(&program, "increment", &[at, MIB / 2, 10, 0]);
    world.submit(&program, StreamRef::Legacy, kernel).unwrap();
    world.pass(20 * MS);
    world.freeze(&program);
    let bytes = world.raw(&program, at, 4 << 20);
    let unmap = MemoryRequest::Unmap { address: Address(at), bytes: 4 * MIB };
    assert_eq!(world.memory(&program, unmap), Ok(Answer::Done));
    assert_eq!(world.memory(&program, MemoryRequest::Release(first)), Ok(Answer::Done));
    assert_eq!(world.used(0), 4 * MIB, "the context alone");
    // While it is away the driver refuses copies and takes launches.
    let away = world.submit(&program, StreamRef::Legacy, memset(at, 1, 16));
    assert_eq!(code(away), CUresult::INVALID_VALUE);
    let next = world.kernel(&program, "increment", &[at, MIB / 2, 5, 0]);
    assert_eq!(world.submit(&program, StreamRef::Legacy, next), Ok(Answer::Done));
    let second = world.create(&program, 4 * MIB);
    world.map(&program, at, 4 * MIB, second);
    let block = world.machine.block_of(program.session, second).unwrap();
    world.machine.store.physical.block_mut(block).write(0, &bytes);
    world.thaw(&program);
    assert_eq!(world.synchronize(&program), Ok(Answer::Done));
    assert!(world.raw(&program, at, 4 << 20).chunks(8).all(|word| word == 15u64.to_le_bytes()));
}

#[test]
fn a_thaw_with_memory_away_is_an_illegal_address() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let at = world.reserve(&program, 4 * MIB);
    let handle = world.create(&program, 4 * MIB);
    world.map(&program, at, 4 * MIB, handle);
    let kernel = world.kernel(&program, "fill", &[at, MIB / 2, 1]);
    world.submit(&program, StreamRef::Legacy, kernel).unwrap();
    world.freeze(&program);
    world.memory(&program, MemoryRequest::Unmap { address: Address(at), bytes: 4 * MIB }).unwrap();
    world.thaw(&program);
    assert_eq!(code(world.synchronize(&program)), CUresult::ILLEGAL_ADDRESS);
}

#[test]
fn a_part_of_the_channels_stops_nothing_and_compute_alone_leaves_copies() {
    let (mut world, program, at) = busy();
    let other = world.connect(10, Some(program.session)).0;
    let channels = program.channels.clone();
    assert_eq!(world.grip_as(other, &program, &channels[..7], true), 0);
    let before = world.raw(&program, at[0], 8 << 20);
    world.pass(MS / 2);
    assert!(world.raw(&program, at[0], 8 << 20) != before, "one of eight channels is left");
    assert_eq!(world.grip_as(other, &program, &channels[..8], true), 0);
    let (words, copied) = (world.raw(&program, at[0], 8 << 20), world.raw(&program, at[1], 4 << 20));
    world.pass(MS / 2);
    assert!(world.raw(&program, at[0], 8 << 20) == words, "compute is frozen");
    assert!(world.raw(&program, at[1], 4 << 20) != copied, "the copy goes on");
}

#[test]
fn marks_callbacks_and_values_are_frozen_too() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let address = world.alloc(&program, 4096);
    world.submit(&program, StreamRef::Legacy, memset(address, 0, 4096)).unwrap();
    world.synchronize(&program).unwrap();
    let create = EventRequest::Create { context: program.context, flags: 0 };
    let Ok(Answer::Event(event)) = world.ask(program.connection, Request::Event(create)) else { panic!() };
    let serve = world.connect(10, Some(program.session)).0;
    world.ask(serve, Request::ServeCallbacks).unwrap();
    world.freeze(&program);
    let call = HostCall { function: 1, data: 2, stream: None };
    world.submit(&program, StreamRef::Legacy, Work::Record(event)).unwrap();
    world.submit(&program, StreamRef::Legacy, Work::Host(call)).unwrap();
    let write = Work::WriteValue { address: Address(address), value: 5, wide: true };
    world.submit(&program, StreamRef::Legacy, write).unwrap();
    world.pass(100 * MS);
    let query = Request::Event(EventRequest::Query(event));
    assert_eq!(code(world.ask(program.connection, query.clone())), CUresult::NOT_READY);
    assert_eq!(world.callbacks, []);
    world.thaw(&program);
    world.pass(MS);
    assert_eq!(world.ask(program.connection, query), Ok(Answer::Done));
    assert_eq!(world.callbacks.len(), 1);
    assert_eq!(world.raw(&program, address, 8), [0; 8], "the callback has not returned");
    world.machine.handle(serve, Request::CallbackDone(world.callbacks[0].id), None);
    assert_eq!(world.synchronize(&program), Ok(Answer::Done));
    assert_eq!(world.raw(&program, address, 8), 5u64.to_le_bytes());
}

#[test]
fn only_the_file_of_a_client_reaches_it() {
    let mut world = World::new(round_spec());
    let (a, b) = (world.program(10, 0), world.program(11, 0));
    let channels = a.channels.clone();
    // By its own file it works, whoever asks.
    assert_eq!(world.grip_as(b.connection, &a, &channels, true), 0);
    let foreign = Program { file: b.file, ..a.clone() };
    assert_eq!(world.grip_as(b.connection, &foreign, &channels, false), 0x23);
    assert_eq!(world.grip_as(a.connection, &a, &[0xdead], true), 0x57);
    let request = Request::Ioctl { request: 0xc020_462a, argument: vec![0; 32], parameters: vec![] };
    assert_eq!(world.ask(a.connection, request), Ok(Answer::NotAControlFile));
}

#[test]
fn unscheduling_stops_nothing_until_the_group_is_preempted() {
    let (mut world, program, at) = busy();
    let other = world.connect(10, Some(program.session)).0;
    let mut parameters = vec![0; 536];
    (parameters[0], parameters[4], parameters[8]) = (1, 8, 1);
    for place in 0..8 {
        parameters[24 + 4 * place..28 + 4 * place].copy_from_slice(&program.client.to_le_bytes());
        parameters[280 + 4 * place..284 + 4 * place].copy_from_slice(&program.channels[place].to_le_bytes());
    }
    let moves = |world: &mut World| {
        let before = world.raw(&program, at[0], 8 << 20);
        world.pass(MS);
        world.raw(&program, at[0], 8 << 20) != before
    };
    let target = [program.client, program.subdevice, 0x2080_110b];
    assert_eq!(world.control(other, program.file, target, parameters).0, 0);
    assert!(moves(&mut world));
    let group = [program.client, program.groups[0], 0xa06c_0101];
    assert_eq!(world.control(other, program.file, group, vec![0, 0, 0]).0, 0);
    assert!(moves(&mut world), "taking a group off its schedule does nothing");
    let group = [program.client, program.groups[0], 0xa06c_0105];
    assert_eq!(world.control(other, program.file, group, vec![0; 8]).0, 0);
    assert!(!moves(&mut world));
}
