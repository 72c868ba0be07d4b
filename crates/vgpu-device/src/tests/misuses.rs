//! What a program must not do, and how it learns of it.

use cuda::CUresult;
use vgpu_messages::host::HostRequest;
use vgpu_messages::memory::{Access, Location, MemoryRequest};
use vgpu_messages::request::ContextRequest;
use vgpu_messages::stream::{EventRequest, StreamRef, StreamRequest};
use vgpu_messages::work::Work;
use vgpu_messages::*;

use super::world::*;

fn one() -> (World, Program) {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    (world, program)
}

fn fill(world: &mut World, program: &Program, address: u64, words: u64) -> CUresult {
    let kernel = world.kernel(program, "fill", &[address, words, 1]);
    world.submit(program, StreamRef::Legacy, kernel).unwrap();
    code(world.synchronize(program))
}

#[test]
fn an_illegal_address_is_sticky_and_ends_with_the_context() {
    let (mut world, program) = one();
    let held = world.alloc(&program, 4096);
    assert_eq!(fill(&mut world, &program, 0x1234_5678, 1), CUresult::ILLEGAL_ADDRESS);
    let again = world.memory(&program, MemoryRequest::Alloc { context: program.context, bytes: 1 });
    assert_eq!(code(again), CUresult::ILLEGAL_ADDRESS);
    assert_eq!(code(world.free(&program, held)), CUresult::ILLEGAL_ADDRESS);
    assert_eq!(code(world.synchronize(&program)), CUresult::ILLEGAL_ADDRESS);
    let destroy = Request::Context(ContextRequest::Destroy(program.context));
    assert_eq!(world.ask(program.connection, destroy.clone()), Ok(Answer::Done));
    assert_eq!(world.used(0), 0);
    assert_eq!(code(world.ask(program.connection, destroy)), CUresult::INVALID_CONTEXT);
    let Ok(Answer::Figures(figures)) = world.ask(program.connection, Request::Figures(DeviceId(0))) else {
        panic!()
    };
    assert_eq!(figures.errors, [31]);
}

#[test]
fn others_are_not_hurt() {
    let (mut world, program) = one();
    let other = world.program(11, 0);
    let address = world.alloc(&other, 8192);
    assert_eq!(fill(&mut world, &program, 8, 1), CUresult::ILLEGAL_ADDRESS);
    assert_eq!(fill(&mut world, &other, address, 1024), CUresult::SUCCESS);
}

#[test]
fn use_after_free_is_seen() {
    let (mut world, program) = one();
    let address = world.alloc(&program, 4096);
    assert_eq!(world.free(&program, address), Ok(Answer::Done));
    world.alloc(&program, 4096);
    assert_eq!(
        code(world.submit(&program, StreamRef::Legacy, memset(address, 0, 8))),
        CUresult::INVALID_VALUE
    );
    assert_eq!(fill(&mut world, &program, address, 1), CUresult::ILLEGAL_ADDRESS);
}

#[test]
fn past_the_end_is_seen_and_within_the_rounding_is_noted() {
    let (mut world, program) = one();
    let address = world.alloc(&program, 1000);
    assert_eq!(fill(&mut world, &program, address, 128), CUresult::SUCCESS, "1024 bytes are there");
    let misuse = world.machine.take_misuse();
    assert!(!misuse.is_empty() && misuse[0].pid == 10 && misuse[0].what.contains("1000 bytes"), "{misuse:?}");
    let copy = world.submit(&program, StreamRef::Legacy, memset(address, 0, 1001));
    assert_eq!(code(copy), CUresult::INVALID_VALUE, "copies and memsets are looked at more closely");
    assert_eq!(fill(&mut world, &program, address, 129), CUresult::ILLEGAL_ADDRESS);
}

#[test]
fn a_misaligned_word_is_seen() {
    let (mut world, program) = one();
    let address = world.alloc(&program, 4096);
    assert_eq!(fill(&mut world, &program, address + 4, 1), CUresult::MISALIGNED_ADDRESS);
}

#[test]
fn another_devices_memory_needs_permission() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let at = world.reserve(&program, 2 * MIB);
    let create = MemoryRequest::Create { bytes: 2 * MIB, properties: properties(DeviceId(1)) };
    let Ok(Answer::Handle(handle)) = world.memory(&program, create) else { panic!() };
    let access = vec![(Location::Device(DeviceId(1)), Access::ReadWrite)];
    let map = MemoryRequest::Map { address: Address(at), bytes: 2 * MIB, offset: 0, handle };
    world.memory(&program, map).unwrap();
    world
        .memory(&program, MemoryRequest::SetAccess { address: Address(at), bytes: 2 * MIB, access })
        .unwrap();
    assert_eq!(
        fill(&mut world, &program, at, 1),
        CUresult::ILLEGAL_ADDRESS,
        "mapped for the other device only"
    );
}

#[test]
fn read_only_memory_is_not_written() {
    let (mut world, program) = one();
    let at = world.reserve(&program, 2 * MIB);
    let handle = world.create(&program, 2 * MIB);
    world.map(&program, at, 2 * MIB, handle);
    let access = vec![(Location::Device(DeviceId(0)), Access::Read)];
    world
        .memory(&program, MemoryRequest::SetAccess { address: Address(at), bytes: 2 * MIB, access })
        .unwrap();
    assert_eq!(world.bytes(&program, at, 1).len(), 1);
    assert_eq!(fill(&mut world, &program, at, 1), CUresult::ILLEGAL_ADDRESS);
}

#[test]
fn unmapping_under_a_running_kernel_is_seen() {
    let (mut world, program) = one();
    let at = world.reserve(&program, 4 * MIB);
    let handle = world.create(&program, 4 * MIB);
    world.map(&program, at, 4 * MIB, handle);
    let kernel = world.kernel(&program, "increment", &[at, MIB / 2, 100, 0]);
    world.submit(&program, StreamRef::Legacy, kernel).unwrap();
    world.pass(MS);
    let unmap = MemoryRequest::Unmap { address: Address(at), bytes: 4 * MIB };
    assert_eq!(world.memory(&program, unmap), Ok(Answer::Done), "the driver does not wait");
    assert_eq!(code(world.synchronize(&program)), CUresult::ILLEGAL_ADDRESS);
}

#[test]
fn a_free_waits_for_the_work_and_is_noted_if_that_uses_it() {
    let (mut world, program) = one();
    let address = world.alloc(&program, MIB);
    let stream = world.stream(&program, 1);
    let kernel = world.kernel(&program, "increment", &[address, MIB / 8, 10, 0]);
    world.submit(&program, stream, kernel).unwrap();
    let begin = world.machine.now();
    assert_eq!(world.free(&program, address), Ok(Answer::Done));
    assert!(world.machine.now().since(begin).0 > 20 * MS, "ten rounds of 2 MiB");
    let misuse = world.machine.take_misuse();
    assert!(misuse.len() == 1 && misuse[0].what.contains("not done"), "{misuse:?}");
    // Other memory may go meanwhile.
    let (used, unused) = (world.alloc(&program, MIB), world.alloc(&program, MIB));
    let kernel = world.kernel(&program, "fill", &[used, MIB / 8, 10]);
    world.submit(&program, stream, kernel).unwrap();
    world.submit(&program, StreamRef::Legacy, memset(unused, 1, MIB)).unwrap();
    assert_eq!(world.free(&program, unused), Ok(Answer::Done));
    assert_eq!(world.machine.take_misuse(), [], "the default stream is in order with frees");
    assert_eq!(world.synchronize(&program), Ok(Answer::Done));
}

#[test]
fn dangling_streams_events_and_modules_are_known() {
    let (mut world, program) = one();
    let stream = world.stream(&program, 0);
    let destroy = Request::Stream(StreamRequest::Destroy { context: program.context, stream });
    assert_eq!(world.ask(program.connection, destroy.clone()), Ok(Answer::Done));
    assert_eq!(code(world.ask(program.connection, destroy)), CUresult::INVALID_HANDLE);
    let event = Request::Event(EventRequest::Query(EventId(123_456)));
    assert_eq!(code(world.ask(program.connection, event)), CUresult::INVALID_HANDLE);
    let kernel = world.kernel(&program, "fill", &[0, 0, 0]);
    world.machine.functions.clear();
    assert_eq!(code(world.submit(&program, StreamRef::Legacy, kernel)), CUresult::INVALID_HANDLE);
}

#[test]
fn another_processs_things_are_not_reached() {
    let (mut world, program) = one();
    let other = world.program(11, 0);
    let handle = world.create(&program, 2 * MIB);
    assert_eq!(code(world.memory(&other, MemoryRequest::Release(handle))), CUresult::INVALID_VALUE);
    let info = world.memory(&other, MemoryRequest::Info(program.context));
    assert_eq!(code(info), CUresult::INVALID_CONTEXT);
    let stream = world.stream(&program, 0);
    assert_eq!(
        code(world.submit(&other, stream, Work::Host(work::HostCall { function: 0, data: 0, stream: None }))),
        CUresult::INVALID_HANDLE
    );
}

#[test]
fn an_event_belongs_to_its_context() {
    let mut world = World::new(round_spec());
    let (program, other) = (world.program(10, 0), world.program(11, 0));
    let create = EventRequest::Create { context: other.context, flags: 0 };
    let Ok(Answer::Event(event)) = world.ask(other.connection, Request::Event(create)) else { panic!() };
    assert_eq!(
        code(world.submit(&program, StreamRef::Legacy, Work::Record(event))),
        CUresult::INVALID_HANDLE
    );
}

#[test]
fn host_memory_in_use_is_not_unregistered_quietly() {
    let (mut world, program) = one();
    let address = world.alloc(&program, 4 * MIB);
    world.register(&program, HOST, 4 * MIB).unwrap();
    world.submit(&program, StreamRef::Legacy, to_device(HOST, address, 4 * MIB)).unwrap();
    let unregister = Request::Host(HostRequest::Unregister { address: HOST, allocated: false });
    assert_eq!(world.ask(program.connection, unregister.clone()), Ok(Answer::Done));
    assert_eq!(world.machine.take_misuse().len(), 1);
    assert_eq!(code(world.ask(program.connection, unregister)), CUresult::HOST_MEMORY_NOT_REGISTERED);
}

#[test]
fn launches_out_of_bounds_are_refused() {
    let (mut world, program) = one();
    let Work::Launch(good) = world.kernel(&program, "spin", &[1, 1]) else { panic!() };
    let mut refused =
        |launch: work::Launch| code(world.submit(&program, StreamRef::Legacy, Work::Launch(launch)));
    for (grid, block) in
        [([0, 1, 1], [1, 1, 1]), ([1, 1, 1], [1025, 1, 1]), ([1, 1, 1], [32, 33, 1]), ([1, 65536, 1], [1; 3])]
    {
        assert_eq!(refused(work::Launch { grid, block, ..good.clone() }), CUresult::INVALID_VALUE);
    }
    assert_eq!(refused(work::Launch { parameters: vec![0; 8], ..good.clone() }), CUresult::INVALID_VALUE);
    assert_eq!(refused(work::Launch { shared_bytes: 50_000, ..good.clone() }), CUresult::INVALID_VALUE);
    assert_eq!(refused(good), CUresult::SUCCESS);
}

#[test]
fn unknown_kernels_fail_at_load_or_take_time() {
    let (mut world, program) = one();
    let text = ".version 7.0 .target sm_70 .entry gemm(.param .u64 a) { ret; }";
    let refusal = world.load(&program, text).unwrap_err();
    assert_eq!(CUresult::from(refusal.code), CUresult::NO_BINARY_FOR_GPU);
    assert!(refusal.notice.unwrap().contains("gemm"));
    assert_eq!(CUresult::from(world.load(&program, "rubbish").unwrap_err().code), CUresult::INVALID_IMAGE);
    let mut spec = round_spec();
    spec.unknown_kernels = spec::UnknownKernels::NoOp;
    let mut world = World::new(spec);
    let program = world.program(10, 0);
    let kernel = world.kernel(&program, "gemm", &[1]);
    let begin = world.machine.now();
    world.submit(&program, StreamRef::Legacy, kernel).unwrap();
    world.synchronize(&program).unwrap();
    assert!(world.machine.now().since(begin).0 >= 100_000);
}
