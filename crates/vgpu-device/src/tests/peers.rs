//! Several GPUs in one process.

use cuda::CUresult;
use vgpu_messages::request::ContextRequest;
use vgpu_messages::stream::StreamRef;
use vgpu_messages::work::{Copy, Place, Work};
use vgpu_messages::*;

use super::world::*;

fn two() -> (World, Program, Program) {
    let mut world = World::new(round_spec());
    let zero = world.program(10, 0);
    let one = world.second(&zero, 1);
    (world, zero, one)
}

#[test]
fn copies_go_from_gpu_to_gpu_without_permission() {
    let (mut world, zero, one) = two();
    let (from, to) = (world.alloc(&zero, MIB), world.alloc(&one, MIB));
    world.submit(&zero, StreamRef::Legacy, memset(from, 3, MIB)).unwrap();
    let begin = world.machine.now();
    let copy = Copy::line(Place::Device(from), Place::Device(to), MIB);
    world.submit(&zero, StreamRef::Legacy, Work::Copy(copy)).unwrap();
    world.synchronize(&zero).unwrap();
    assert!(world.machine.now().since(begin).0 >= MS, "a mebibyte takes its time");
    assert_eq!(world.raw(&one, to, MIB as usize), vec![3; MIB as usize]);
    assert_eq!(world.used(1), 5 * MIB);
}

#[test]
fn kernels_reach_another_gpu_only_once_that_is_enabled() {
    let (mut world, zero, one) = two();
    let there = world.alloc(&one, 4096);
    let enable = ContextRequest::EnablePeer { context: zero.context, peer: one.context };
    let disable = ContextRequest::DisablePeer { context: zero.context, peer: one.context };
    let ask = |world: &mut World, request: &ContextRequest| {
        code(world.ask(zero.connection, Request::Context(request.clone())))
    };
    assert_eq!(ask(&mut world, &disable), CUresult::PEER_ACCESS_NOT_ENABLED);
    assert_eq!(ask(&mut world, &enable), CUresult::SUCCESS);
    assert_eq!(ask(&mut world, &enable), CUresult::PEER_ACCESS_ALREADY_ENABLED);
    let fill = world.kernel(&zero, "fill", &[there, 512, 7]);
    world.submit(&zero, StreamRef::Legacy, fill.clone()).unwrap();
    assert_eq!(world.synchronize(&zero), Ok(Answer::Done));
    assert_eq!(world.raw(&one, there, 1), [7]);
    assert_eq!(ask(&mut world, &disable), CUresult::SUCCESS);
    world.submit(&zero, StreamRef::Legacy, fill).unwrap();
    assert_eq!(code(world.synchronize(&zero)), CUresult::ILLEGAL_ADDRESS);
}

#[test]
fn a_function_and_a_stream_belong_to_their_context() {
    let (mut world, zero, one) = two();
    let fill = world.kernel(&zero, "fill", &[0, 0, 0]);
    assert_eq!(code(world.submit(&one, StreamRef::Legacy, fill.clone())), CUresult::INVALID_HANDLE);
    let stream = world.stream(&one, 0);
    assert_eq!(code(world.submit(&zero, stream, fill)), CUresult::INVALID_HANDLE);
}
