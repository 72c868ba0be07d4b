//! Streams, events, values and callbacks: what comes after what, and how long it takes.

use cuda::CUresult;
use vgpu_messages::memory::MemoryRequest;
use vgpu_messages::quantity::Rate;
use vgpu_messages::stream::{EventRequest, StreamRef, StreamRequest};
use vgpu_messages::work::{HostCall, Work};
use vgpu_messages::*;

use super::world::*;

fn one() -> (World, Program) {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    (world, program)
}

fn event(world: &mut World, program: &Program, flags: u32) -> EventId {
    let create = EventRequest::Create { context: program.context, flags };
    match world.ask(program.connection, Request::Event(create)) {
        Ok(Answer::Event(event)) => event,
        other => panic!("{other:?}"),
    }
}

fn elapsed(world: &mut World, program: &Program, start: EventId, end: EventId) -> Reply {
    world.ask(program.connection, Request::Event(EventRequest::Elapsed { start, end }))
}

fn query(world: &mut World, program: &Program, stream: StreamRef) -> CUresult {
    let query = StreamRequest::Query { context: program.context, stream };
    code(world.ask(program.connection, Request::Stream(query)))
}

/// A kernel of so many microseconds.
fn spin(world: &mut World, program: &Program, stream: StreamRef, micros: u64) {
    let spin = world.kernel(program, "spin", &[micros, u64::MAX]);
    world.submit(program, stream, spin).unwrap();
}

#[test]
fn released_memory_is_cleared_before_anything_more_comes_in() {
    // 8 MiB at 4 bytes a nanosecond.
    for (is_in, busy_ns) in [(true, 8_000_000 + 2 * MIB), (false, 8_000_000)] {
        let clear_rate = Rate(4_000_000_000);
        let mut world = World::new(Spec { clear_rate, ..round_spec() });
        let program = world.program(10, 0);
        let [start, end] = [0; 2].map(|_| event(&mut world, &program, 0));
        let address = world.alloc(&program, 8 * MIB);
        let released = world.create(&program, 8 * MIB);
        world.register(&program, HOST, 8 * MIB).unwrap();
        world.submit(&program, StreamRef::Legacy, Work::Record(start)).unwrap();
        assert_eq!(world.memory(&program, MemoryRequest::Release(released)), Ok(Answer::Done));
        let copy =
            if is_in { to_device(HOST, address, 8_000_000) } else { to_host(address, HOST, 8_000_000) };
        world.submit(&program, StreamRef::Legacy, copy).unwrap();
        world.submit(&program, StreamRef::Legacy, Work::Record(end)).unwrap();
        world.synchronize(&program).unwrap();
        let Ok(Answer::Elapsed { nanos }) = elapsed(&mut world, &program, start, end) else { panic!() };
        assert_eq!(nanos, busy_ns);
    }
}

#[test]
fn times_are_those_of_the_device() {
    let (mut world, program) = one();
    let [start, end, never] = [0; 3].map(|_| event(&mut world, &program, 0));
    let address = world.alloc(&program, 8 * MIB);
    world.register(&program, HOST, 8 * MIB).unwrap();
    world.submit(&program, StreamRef::Legacy, Work::Record(start)).unwrap();
    world.submit(&program, StreamRef::Legacy, to_device(HOST, address, 8_000_000)).unwrap();
    spin(&mut world, &program, StreamRef::Legacy, 500);
    world.submit(&program, StreamRef::Legacy, memset(address, 1, 2_000_000)).unwrap();
    world.submit(&program, StreamRef::Legacy, Work::Record(end)).unwrap();
    assert_eq!(code(elapsed(&mut world, &program, start, end)), CUresult::NOT_READY);
    world.synchronize(&program).unwrap();
    // 8 ms of copy, the load of the context, 0.5 ms of kernel, 2 ms of memset.
    let Ok(Answer::Elapsed { nanos }) = elapsed(&mut world, &program, start, end) else { panic!() };
    assert_eq!(nanos, 8_000_000 + 30_000 + 500_000 + 2_000_000);
    assert_eq!(code(elapsed(&mut world, &program, start, never)), CUresult::INVALID_HANDLE);
    let untimed = event(&mut world, &program, 2);
    world.submit(&program, StreamRef::Legacy, Work::Record(untimed)).unwrap();
    assert_eq!(code(elapsed(&mut world, &program, start, untimed)), CUresult::INVALID_HANDLE);
}

#[test]
fn both_ways_at_once_are_slower_and_beside_compute() {
    let (mut world, program) = one();
    let (a, b) = (world.alloc(&program, 4 * MIB), world.alloc(&program, 4 * MIB));
    world.register(&program, HOST, 8 * MIB).unwrap();
    let [into, out, kernels] = [0; 3].map(|_| world.stream(&program, 1));
    let begin = world.machine.now();
    let kernel = world.kernel(&program, "spin", &[8000, u64::MAX]);
    world.submit(&program, into, to_device(HOST, a, 4_000_000)).unwrap();
    world.submit(&program, out, to_host(b, HOST + 4 * MIB, 2_000_000)).unwrap();
    world.submit(&program, kernels, kernel).unwrap();
    // Both at 0.5 GB/s for 4 ms: the smaller is done; the other has 2 MB left at 1 GB/s.
    world.pass(3_900_000);
    assert_eq!(query(&mut world, &program, out), CUresult::NOT_READY);
    world.pass(200_000);
    assert_eq!(
        (query(&mut world, &program, out), query(&mut world, &program, into)),
        (CUresult::SUCCESS, CUresult::NOT_READY)
    );
    world.pass(2_000_000);
    assert_eq!(query(&mut world, &program, into), CUresult::SUCCESS);
    world.synchronize(&program).unwrap();
    assert!(world.machine.now().since(begin).0 < 9 * MS, "the kernel ran meanwhile");
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let (mut world, program) = one();
    let (blocking, free) = (world.stream(&program, 0), world.stream(&program, 1));
    let word = world.alloc(&program, 8);
    world.submit(&program, StreamRef::Legacy, memset(word, 0, 8)).unwrap();
    world.synchronize(&program).unwrap();
    spin(&mut world, &program, blocking, 5000);
    let write = |value| Work::WriteValue { address: Address(word), value, wide: true };
    world.submit(&program, StreamRef::Legacy, write(1)).unwrap();
    spin(&mut world, &program, free, 1000);
    world.pass(2 * MS);
    assert_eq!(
        query(&mut world, &program, free),
        CUresult::SUCCESS,
        "a non-blocking stream waits for nobody"
    );
    assert_eq!(world.raw(&program, word, 8), [0; 8], "the legacy stream waits");
    spin(&mut world, &program, StreamRef::Legacy, 3000);
    world.submit(&program, blocking, write(2)).unwrap();
    world.submit(&program, StreamRef::PerThread, write(3)).unwrap();
    world.pass(4 * MS);
    assert_eq!(world.raw(&program, word, 1), [1], "blocking streams wait for the legacy stream");
    world.synchronize(&program).unwrap();
    assert!(world.raw(&program, word, 1)[0] >= 2);
}

#[test]
fn events_order_streams() {
    let (mut world, program) = one();
    let (a, b) = (world.stream(&program, 1), world.stream(&program, 1));
    let done = event(&mut world, &program, 0);
    let word = world.alloc(&program, 8);
    world.submit(&program, a, memset(word, 0, 8)).unwrap();
    spin(&mut world, &program, a, 4000);
    let write = |value| Work::WriteValue { address: Address(word), value, wide: true };
    world.submit(&program, a, write(1)).unwrap();
    world.submit(&program, a, Work::Record(done)).unwrap();
    world.submit(&program, b, Work::WaitEvent(done)).unwrap();
    let wait = Work::WaitValue { address: Address(word), value: 1, wide: true, flags: 1 };
    world.submit(&program, b, wait).unwrap();
    world.submit(&program, b, write(7)).unwrap();
    world.pass(3 * MS);
    assert_eq!(world.raw(&program, word, 8), [0; 8]);
    let synchronize = Request::Event(EventRequest::Synchronize(done));
    assert_eq!(world.try_ask(program.connection, synchronize), None, "it waits");
    world.pass(2 * MS);
    assert_eq!(world.taken(program.connection), Some(Ok(Answer::Done)));
    world.synchronize(&program).unwrap();
    assert_eq!(world.raw(&program, word, 8), 7u64.to_le_bytes());
    let never = event(&mut world, &program, 0);
    assert_eq!(world.ask(program.connection, Request::Event(EventRequest::Query(never))), Ok(Answer::Done));
}

#[test]
fn a_value_is_waited_for() {
    let (mut world, program) = one();
    world.register(&program, HOST, 4096).unwrap();
    let stream = world.stream(&program, 1);
    let wait = Work::WaitValue { address: Address(HOST), value: 5, wide: false, flags: 0 };
    world.submit(&program, stream, wait).unwrap();
    world.pass(10 * MS);
    assert_eq!(query(&mut world, &program, stream), CUresult::NOT_READY);
    world.poke(10, HOST, &6u32.to_le_bytes());
    world.pass(MS);
    assert_eq!(query(&mut world, &program, stream), CUresult::SUCCESS);
    let unknown = Work::WaitValue { address: Address(0x999_0000), value: 5, wide: false, flags: 0 };
    assert_eq!(code(world.submit(&program, stream, unknown)), CUresult::INVALID_VALUE);
}

#[test]
fn callbacks_hold_the_stream_until_they_return() {
    let (mut world, program) = one();
    let stream = world.stream(&program, 1);
    let call = |data| Work::Host(HostCall { function: 4, data, stream: None });
    world.submit(&program, stream, call(1)).unwrap();
    world.submit(&program, stream, call(2)).unwrap();
    world.pass(MS);
    assert_eq!(world.callbacks, [], "nobody serves them yet");
    let serve = world.connect(10, Some(program.session)).0;
    world.ask(serve, Request::ServeCallbacks).unwrap();
    world.pass(MS);
    assert_eq!(world.callbacks.len(), 1);
    let first = world.callbacks.pop().unwrap();
    assert_eq!(first.call.data, 1);
    world.machine.handle(serve, Request::CallbackDone(first.id), None);
    world.pass(MS);
    let second = world.callbacks.pop().unwrap();
    assert_eq!(second.call.data, 2);
    assert_eq!(query(&mut world, &program, stream), CUresult::NOT_READY);
    world.machine.handle(serve, Request::CallbackDone(second.id), None);
    assert_eq!(query(&mut world, &program, stream), CUresult::SUCCESS);
}

#[test]
fn kernels_of_one_program_run_at_the_same_time() {
    let (mut world, program) = one();
    let word = world.alloc(&program, 16);
    let (a, b) = (world.stream(&program, 1), world.stream(&program, 1));
    world.submit(&program, StreamRef::Legacy, memset(word, 0, 16)).unwrap();
    let wait = world.kernel(&program, "wait_for_peer", &[word, 9, u64::MAX, word + 8]);
    world.submit(&program, a, wait).unwrap();
    world.pass(MS);
    let fill = world.kernel(&program, "fill", &[word, 1, 9]);
    world.submit(&program, b, fill).unwrap();
    world.synchronize(&program).unwrap();
    assert_eq!(world.raw(&program, word + 8, 8), 1u64.to_le_bytes());
}

#[test]
fn heavy_kernels_of_one_program_share_the_engine() {
    let (mut world, program) = one();
    let memory = world.alloc(&program, 4 * MIB);
    let streams = [0; 2].map(|_| world.stream(&program, 1));
    let kernels = [0, 2 * MIB].map(|at| world.kernel(&program, "fill", &[memory + at, 250_000, 1]));
    let begin = world.machine.now();
    for (stream, kernel) in streams.iter().zip(kernels) {
        world.submit(&program, *stream, kernel).unwrap();
    }
    world.pass(3_900_000);
    assert_eq!(query(&mut world, &program, streams[0]), CUresult::NOT_READY);
    world.synchronize(&program).unwrap();
    assert!(world.machine.now().since(begin).0 >= 4 * MS, "two of 2 ms");
}

#[test]
fn a_full_queue_holds_the_program_up() {
    let (mut world, program) = one();
    let stream = world.stream(&program, 1);
    let launch = world.kernel(&program, "spin", &[1000, u64::MAX]);
    let mut held = None;
    for count in 0..2000 {
        let request = world.work(&program, stream, launch.clone());
        if world.try_ask(program.connection, request).is_none() {
            held = Some(count);
            break;
        }
    }
    assert_eq!(held, Some(1023));
    world.pass(2 * MS);
    assert_eq!(world.taken(program.connection), Some(Ok(Answer::Done)));
}

#[test]
fn pageable_copies_are_done_when_they_return() {
    let (mut world, program) = one();
    let address = world.alloc(&program, 4 * MIB);
    world.poke(10, HOST, &[3; 1000]);
    let small = world.work(&program, StreamRef::Legacy, to_device(HOST, address, 1000));
    assert_eq!(world.try_ask(program.connection, small), Some(Ok(Answer::Done)));
    world.poke(10, HOST, &[4; 1000]);
    let large = world.work(&program, StreamRef::Legacy, to_device(HOST, address + MIB, 1_000_000));
    assert_eq!(world.try_ask(program.connection, large), None, "too large to be taken at once");
    world.pass(2 * MS);
    assert_eq!(world.taken(program.connection), Some(Ok(Answer::Done)));
    assert_eq!(world.bytes(&program, address, 2), [3, 3], "as they were when asked");
    let back = world.work(&program, StreamRef::Legacy, to_host(address, HOST, 100));
    assert_eq!(world.try_ask(program.connection, back), None);
    world.pass(MS);
    assert_eq!(world.taken(program.connection), Some(Ok(Answer::Done)));
}

#[test]
fn the_heartbeat_beats_until_it_is_told_to_stop() {
    let (mut world, program) = one();
    world.register(&program, HOST, 4096).unwrap();
    let beat = world.kernel(&program, "heartbeat", &[HOST, HOST + 8, u64::MAX]);
    world.submit(&program, StreamRef::Legacy, beat).unwrap();
    world.pass(10 * MS);
    let first = world.peek_word(10, HOST);
    assert!((9_000..=10_000).contains(&first), "a million a second: {first}");
    world.freeze(&program);
    let frozen = world.peek_word(10, HOST);
    world.pass(10 * MS);
    assert_eq!(world.peek_word(10, HOST), frozen);
    world.thaw(&program);
    world.pass(MS);
    assert!(world.peek_word(10, HOST) > frozen);
    world.poke(10, HOST + 8, &[1]);
    assert_eq!(world.synchronize(&program), Ok(Answer::Done));
}
