use cuda::CUresult;
use vgpu_messages::stream::StreamRef;
use vgpu_messages::*;

use super::world::*;

/// A program with something of everything.
fn full() -> (World, Program) {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let at = world.reserve(&program, 4 * MIB);
    let handle = world.create(&program, 4 * MIB);
    world.map(&program, at, 4 * MIB, handle);
    world.alloc(&program, 1000);
    world.register(&program, HOST, MIB).unwrap();
    let stream = world.stream(&program, 0);
    let kernel = world.kernel(&program, "increment", &[at, MIB / 2, u64::MAX / MIB, HOST]);
    world.submit(&program, stream, kernel).unwrap();
    world.submit(&program, stream, to_host(at, HOST, 4096)).unwrap();
    let pool = pool::PoolRequest::Alloc { context: program.context, stream, pool: None, bytes: 5000 };
    world.ask(program.connection, Request::Pool(pool)).unwrap();
    world.ask(program.connection, Request::Graph(graph::GraphRequest::Create)).unwrap();
    let begin = graph::GraphRequest::BeginCapture {
        context: program.context,
        stream: StreamRef::PerThread,
        mode: stream::CaptureMode::Global,
    };
    world.ask(program.connection, Request::Graph(begin)).unwrap();
    world.pass(MS);
    (world, program)
}

#[test]
fn a_dead_process_gives_everything_back_once_its_control_file_is_closed() {
    let (mut world, program) = full();
    world.kill(&program);
    assert_eq!(world.machine.items.count(), 0, "its work is over at once");
    let held = world.used(0);
    assert!(held > 8 * MIB);
    world.pass(5000 * MS);
    assert_eq!(world.used(0), held, "somebody still holds its control file");
    assert!(!world.machine.is_deserted());
    world.machine.closed(program.file);
    assert_eq!(world.used(0), held, "a teardown takes time");
    world.pass(6 * MS);
    assert!(world.machine.is_clean() && world.machine.is_deserted());
}

#[test]
fn whoever_saw_the_last_close_finds_the_memory_free() {
    let mut world = World::new(round_spec());
    let (other, program) = (world.program(10, 0), world.program(11, 0));
    let total = world.machine.spec().memory.0;
    let rest = total - world.used(0);
    world.create(&program, rest);
    let want = memory::MemoryRequest::Create { bytes: 2 * MIB, properties: properties(DeviceId(0)) };
    world.kill(&program);
    assert_eq!(code(world.memory(&other, want.clone())), CUresult::OUT_OF_MEMORY, "its file is open");
    world.machine.closed(program.file);
    world.memory(&other, want).unwrap();
    assert!(world.used(0) < 10 * MIB);
    world.pass(6 * MS);
}

#[test]
fn it_does_not_matter_in_which_order_it_ends() {
    let (mut world, program) = full();
    world.machine.closed(program.file);
    world.machine.disconnect(program.connection);
    world.pass(6 * MS);
    assert!(world.machine.is_clean() && world.machine.is_deserted());
    world.machine.died(program.pid);
}

#[test]
fn a_process_that_died_frozen_leaves_nothing() {
    let (mut world, program) = full();
    let rotad = world.program(99, 0);
    let channels = program.channels.clone();
    assert_eq!(world.grip_as(rotad.connection, &program, &channels, true), 0);
    world.kill(&program);
    assert_eq!(world.grip_as(rotad.connection, &program, &channels, false), 0, "the channels stay as well");
    world.machine.closed(program.file);
    world.pass(6 * MS);
    assert_eq!(world.used(0), 4 * MIB, "the other's context");
    assert_eq!(world.grip_as_gone(rotad.connection, &program), Ok(Answer::NotAControlFile));
}

#[test]
fn a_child_of_fork_holds_a_connection_but_keeps_nothing_alive() {
    let (mut world, program) = full();
    // The child has a copy of the connection, so it is not closed; the process is dead all the same.
    world.machine.died(program.pid);
    world.machine.closed(program.file);
    world.pass(6 * MS);
    assert!(world.machine.is_clean());
    let reply = world.ask(program.connection, Request::OpenControl);
    assert_eq!(code(reply), CUresult::NOT_INITIALIZED);
}

#[test]
fn a_child_cannot_join_its_parents_session() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let child = ConnectionId(777);
    world.machine.connect(child, 11);
    let hello = Request::Hello { version: VERSION, session: Some(program.session) };
    assert_eq!(code(world.ask(child, hello)), CUresult::INVALID_VALUE);
    let hello = Request::Hello { version: VERSION + 1, session: None };
    assert_eq!(code(world.ask(child, hello)), CUresult::SYSTEM_DRIVER_MISMATCH);
}

use crate::session::ConnectionId;

impl World {
    fn grip_as_gone(&mut self, asks: ConnectionId, program: &Program) -> Reply {
        let request = Request::Ioctl { request: 0xc020_462a, argument: vec![0; 32], parameters: vec![] };
        self.ask_with(asks, request, Some(program.file)).0
    }
}

/// It had all the memory there was, so that whatever is left of the dead is given back for it.
#[test]
fn what_a_process_asked_for_before_it_died_is_not_served_after() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let rest = world.machine.spec().memory.0 - world.used(0);
    world.create(&program, rest);
    world.machine.died(program.pid);
    world.machine.closed(program.file);
    let want = memory::MemoryRequest::Create { bytes: 2 * MIB, properties: properties(DeviceId(0)) };
    assert_eq!(code(world.memory(&program, want)), CUresult::NOT_INITIALIZED);
    world.pass(6 * MS);
    assert!(world.machine.is_clean());
}
