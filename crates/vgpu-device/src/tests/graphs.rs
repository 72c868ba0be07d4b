use cuda::CUresult;
use vgpu_messages::graph::{GraphRequest, NodeWork};
use vgpu_messages::stream::{CaptureMode, CaptureStatus, EventRequest, StreamRef};
use vgpu_messages::work::{HostCall, Work};
use vgpu_messages::*;

use super::world::*;

fn ask(world: &mut World, program: &Program, request: GraphRequest) -> Reply {
    world.ask(program.connection, Request::Graph(request))
}

fn graph(reply: Reply) -> GraphId {
    match reply {
        Ok(Answer::Graph(graph)) => graph,
        other => panic!("{other:?}"),
    }
}

fn add(world: &mut World, program: &Program, graph: GraphId, after: &[NodeId], work: Work) -> NodeId {
    let work = NodeWork::Work { context: program.context, work };
    match ask(world, program, GraphRequest::Add { graph, dependencies: after.to_vec(), work }) {
        Ok(Answer::Node(node)) => node,
        other => panic!("{other:?}"),
    }
}

fn instantiate(world: &mut World, program: &Program, graph: GraphId) -> GraphExecId {
    match ask(world, program, GraphRequest::Instantiate { graph, flags: 0 }) {
        Ok(Answer::GraphExec(exec)) => exec,
        other => panic!("{other:?}"),
    }
}

fn begin(program: &Program, stream: StreamRef) -> GraphRequest {
    GraphRequest::BeginCapture { context: program.context, stream, mode: CaptureMode::Global }
}

fn end(program: &Program, stream: StreamRef) -> GraphRequest {
    GraphRequest::EndCapture { context: program.context, stream }
}

fn event(world: &mut World, program: &Program) -> EventId {
    let create = EventRequest::Create { context: program.context, flags: 0 };
    match world.ask(program.connection, Request::Event(create)) {
        Ok(Answer::Event(event)) => event,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nodes_run_in_order_each_time() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let memory = world.alloc(&program, 8 * 1000);
    let made = graph(ask(&mut world, &program, GraphRequest::Create));
    let up = world.kernel(&program, "increment", &[memory, 1000, 3, 0]);
    let first = add(&mut world, &program, made, &[], memset(memory, 0, 8000));
    let second = add(&mut world, &program, made, &[first], up);
    assert_eq!(ask(&mut world, &program, GraphRequest::Roots(made)), Ok(Answer::Nodes(vec![first])));
    assert_eq!(
        ask(&mut world, &program, GraphRequest::Edges(made)),
        Ok(Answer::Edges(vec![(first, second)]))
    );
    let exec = instantiate(&mut world, &program, made);
    let launch = GraphRequest::Launch { context: program.context, exec, stream: StreamRef::Legacy };
    for _ in 0..3 {
        ask(&mut world, &program, launch.clone()).unwrap();
    }
    world.synchronize(&program).unwrap();
    assert_eq!(world.raw(&program, memory, 8), 3u64.to_le_bytes());
    // Another number of rounds for the next time.
    let up = world.kernel(&program, "increment", &[memory, 1000, 7, 0]);
    let work = NodeWork::Work { context: program.context, work: up };
    ask(&mut world, &program, GraphRequest::SetExecWork { exec, node: second, work }).unwrap();
    ask(&mut world, &program, launch).unwrap();
    world.synchronize(&program).unwrap();
    assert_eq!(world.raw(&program, memory + 7992, 8), 7u64.to_le_bytes());
    let wrong = GraphRequest::SetExecWork { exec, node: second, work: NodeWork::Empty };
    assert_eq!(code(ask(&mut world, &program, wrong)), CUresult::INVALID_VALUE);
}

#[test]
fn streams_are_captured_with_their_forks_and_joins() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let memory = world.alloc(&program, 16);
    let (a, b) = (world.stream(&program, 1), world.stream(&program, 1));
    let (fork, join) = (event(&mut world, &program), event(&mut world, &program));
    let beats = world.kernel(&program, "increment", &[memory, 1, 1, 0]);
    ask(&mut world, &program, begin(&program, a)).unwrap();
    world.submit(&program, a, memset(memory, 0, 16)).unwrap();
    world.submit(&program, a, Work::Record(fork)).unwrap();
    world.submit(&program, b, Work::WaitEvent(fork)).unwrap();
    world.submit(&program, a, beats).unwrap();
    world.submit(&program, b, memset(memory + 8, 5, 8)).unwrap();
    let facts = GraphRequest::CaptureFacts { context: program.context, stream: b };
    let Ok(Answer::Capture(facts)) = ask(&mut world, &program, facts) else { panic!() };
    assert_eq!((facts.status, facts.dependencies.len()), (CaptureStatus::Active, 1));
    world.submit(&program, b, Work::Record(join)).unwrap();
    world.submit(&program, a, Work::WaitEvent(join)).unwrap();
    let query = Request::Event(EventRequest::Query(event(&mut world, &program)));
    assert_eq!(world.ask(program.connection, query), Ok(Answer::Done), "other events are free");
    let made = graph(ask(&mut world, &program, end(&program, a)));
    let Ok(Answer::Nodes(nodes)) = ask(&mut world, &program, GraphRequest::Nodes(made)) else { panic!() };
    assert_eq!(nodes.len(), 3);
    world.pass(10 * MS);
    assert_eq!(world.raw(&program, memory, 1), [crate::physical::POISON], "nothing has run");
    let exec = instantiate(&mut world, &program, made);
    ask(&mut world, &program, GraphRequest::Destroy(made)).unwrap();
    let launch = GraphRequest::Launch { context: program.context, exec, stream: a };
    ask(&mut world, &program, launch).unwrap();
    world.synchronize(&program).unwrap();
    assert_eq!(world.raw(&program, memory, 9), [1, 0, 0, 0, 0, 0, 0, 0, 5]);
}

#[test]
fn what_spoils_a_capture() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let memory = world.alloc(&program, 16);
    let (a, b) = (world.stream(&program, 0), world.stream(&program, 1));
    let mut spoilt = |what: &dyn Fn(&mut World) -> CUresult, expected: CUresult, at_end: CUresult| {
        ask(&mut world, &program, begin(&program, a)).unwrap();
        assert_eq!(what(&mut world), expected);
        assert_eq!(code(ask(&mut world, &program, end(&program, a))), at_end);
    };
    let invalidated = CUresult::STREAM_CAPTURE_INVALIDATED;
    spoilt(
        &|world| {
            code(world.memory(&program, memory::MemoryRequest::Alloc { context: program.context, bytes: 8 }))
        },
        CUresult::STREAM_CAPTURE_UNSUPPORTED,
        invalidated,
    );
    spoilt(&|world| code(world.synchronize(&program)), CUresult::STREAM_CAPTURE_UNSUPPORTED, invalidated);
    spoilt(
        &|world| code(world.submit(&program, StreamRef::Legacy, memset(memory, 0, 8))),
        CUresult::STREAM_CAPTURE_IMPLICIT,
        invalidated,
    );
    spoilt(
        &|world| {
            let event = event(world, &program);
            world.submit(&program, a, Work::Record(event)).unwrap();
            world.submit(&program, b, Work::WaitEvent(event)).unwrap();
            code(world.submit(&program, b, memset(memory, 0, 8)))
        },
        CUresult::SUCCESS,
        CUresult::STREAM_CAPTURE_UNJOINED,
    );
    assert_eq!(code(ask(&mut world, &program, end(&program, a))), CUresult::ILLEGAL_STATE);
    let legacy = ask(&mut world, &program, begin(&program, StreamRef::Legacy));
    assert_eq!(code(legacy), CUresult::STREAM_CAPTURE_UNSUPPORTED);
    // A thread in relaxed mode does as it likes.
    ask(&mut world, &program, begin(&program, a)).unwrap();
    let agent = world.connect(10, Some(program.session)).0;
    let relaxed = world.ask(agent, Request::ExchangeCaptureMode(CaptureMode::Relaxed));
    assert_eq!(relaxed, Ok(Answer::CaptureMode(CaptureMode::Global)));
    let alloc = Request::Memory(memory::MemoryRequest::Alloc { context: program.context, bytes: 8 });
    assert!(world.ask(agent, alloc).is_ok());
    assert_eq!(
        code(world.ask(agent, Request::Graph(end(&program, a)))),
        CUresult::STREAM_CAPTURE_WRONG_THREAD
    );
    let over = ask(&mut world, &program, end(&program, a));
    assert_eq!(code(over), CUresult::ILLEGAL_STATE, "the wrong thread ended it all the same");
}

#[test]
fn children_clones_and_updates() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let memory = world.alloc(&program, 16);
    let inner = graph(ask(&mut world, &program, GraphRequest::Create));
    let up = world.kernel(&program, "increment", &[memory, 2, 1, 0]);
    let one = add(&mut world, &program, inner, &[], up.clone());
    add(&mut world, &program, inner, &[one], up);
    let outer = graph(ask(&mut world, &program, GraphRequest::Create));
    let zero = add(&mut world, &program, outer, &[], memset(memory, 0, 16));
    let child = GraphRequest::Add { graph: outer, dependencies: vec![zero], work: NodeWork::Child(inner) };
    let Ok(Answer::Node(child)) = ask(&mut world, &program, child) else { panic!() };
    let last = add(&mut world, &program, outer, &[child], memset(memory + 8, 9, 1));
    ask(&mut world, &program, GraphRequest::Destroy(inner)).unwrap();
    let exec = instantiate(&mut world, &program, outer);
    let launch = GraphRequest::Launch { context: program.context, exec, stream: StreamRef::Legacy };
    ask(&mut world, &program, launch.clone()).unwrap();
    world.synchronize(&program).unwrap();
    assert_eq!((world.raw(&program, memory, 1), world.raw(&program, memory + 8, 1)), (vec![2], vec![9]));
    let clone = graph(ask(&mut world, &program, GraphRequest::Clone(outer)));
    let find = GraphRequest::FindInClone { node: last, clone };
    let Ok(Answer::Node(copy)) = ask(&mut world, &program, find) else { panic!() };
    let work = NodeWork::Work { context: program.context, work: memset(memory + 8, 4, 1) };
    ask(&mut world, &program, GraphRequest::SetWork { node: copy, work }).unwrap();
    ask(&mut world, &program, GraphRequest::Update { exec, graph: clone }).unwrap();
    ask(&mut world, &program, launch).unwrap();
    world.synchronize(&program).unwrap();
    assert_eq!(world.raw(&program, memory + 8, 1), [4]);
    ask(&mut world, &program, GraphRequest::Remove(copy)).unwrap();
    let update = ask(&mut world, &program, GraphRequest::Update { exec, graph: clone });
    assert_eq!(code(update), CUresult::GRAPH_EXEC_UPDATE_FAILURE);
    let circle = GraphRequest::AddEdges { graph: outer, edges: vec![(last, zero)] };
    ask(&mut world, &program, circle).unwrap();
    let instantiated = ask(&mut world, &program, GraphRequest::Instantiate { graph: outer, flags: 0 });
    assert_eq!(code(instantiated), CUresult::INVALID_VALUE, "a circle");
}

#[test]
fn graphs_call_back_and_record() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let serve = world.connect(10, Some(program.session)).0;
    world.ask(serve, Request::ServeCallbacks).unwrap();
    let done = event(&mut world, &program);
    let made = graph(ask(&mut world, &program, GraphRequest::Create));
    let call =
        add(&mut world, &program, made, &[], Work::Host(HostCall { function: 1, data: 2, stream: None }));
    add(&mut world, &program, made, &[call], Work::Record(done));
    let exec = instantiate(&mut world, &program, made);
    ask(
        &mut world,
        &program,
        GraphRequest::Launch { context: program.context, exec, stream: StreamRef::PerThread },
    )
    .unwrap();
    world.pass(MS);
    let query = Request::Event(EventRequest::Query(done));
    assert_eq!(code(world.ask(program.connection, query.clone())), CUresult::NOT_READY);
    world.machine.handle(serve, Request::CallbackDone(world.callbacks[0].id), None);
    assert_eq!(world.ask(program.connection, query), Ok(Answer::Done));
}

#[test]
fn a_graph_waits_for_memory_that_is_away() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let at = world.reserve(&program, 2 * MIB);
    let handle = world.create(&program, 2 * MIB);
    world.map(&program, at, 2 * MIB, handle);
    let made = graph(ask(&mut world, &program, GraphRequest::Create));
    add(&mut world, &program, made, &[], memset(at, 6, 100));
    let exec = instantiate(&mut world, &program, made);
    world.freeze(&program);
    let unmap = memory::MemoryRequest::Unmap { address: Address(at), bytes: 2 * MIB };
    world.memory(&program, unmap).unwrap();
    let again = ask(&mut world, &program, GraphRequest::Instantiate { graph: made, flags: 0 });
    assert_eq!(code(again), CUresult::INVALID_VALUE);
    let launch = GraphRequest::Launch { context: program.context, exec, stream: StreamRef::Legacy };
    assert_eq!(ask(&mut world, &program, launch), Ok(Answer::Done));
    world.map(&program, at, 2 * MIB, handle);
    world.thaw(&program);
    assert_eq!(world.synchronize(&program), Ok(Answer::Done));
    assert_eq!(world.raw(&program, at, 2), [6, 6]);
}

#[test]
fn two_launches_of_one_do_not_overlap_and_of_two_do() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let streams = [0; 3].map(|_| world.stream(&program, 1));
    let spin = world.kernel(&program, "spin", &[5000, u64::MAX]);
    let made = graph(ask(&mut world, &program, GraphRequest::Create));
    add(&mut world, &program, made, &[], spin);
    let execs = [0; 2].map(|_| instantiate(&mut world, &program, made));
    for (stream, exec) in streams.into_iter().zip([execs[0], execs[0], execs[1]]) {
        ask(&mut world, &program, GraphRequest::Launch { context: program.context, exec, stream }).unwrap();
    }
    world.pass(6 * MS);
    let done = streams.map(|stream| {
        let query = stream::StreamRequest::Query { context: program.context, stream };
        code(world.ask(program.connection, Request::Stream(query))) == CUresult::SUCCESS
    });
    assert_eq!(done, [true, false, true]);
}
