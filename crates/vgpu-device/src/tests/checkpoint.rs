use cuda::CUresult;
use cuda::types::CUprocessState;
use vgpu_messages::checkpoint::CheckpointStep;
use vgpu_messages::memory::MemoryRequest;
use vgpu_messages::request::ContextRequest;
use vgpu_messages::stream::StreamRef;
use vgpu_messages::*;

use super::world::*;

const PID: i32 = 10;
const LOCK: CheckpointStep = CheckpointStep::Lock { timeout_nanos: 5 * MS };

/// A program with memory that is all 7, and one that checkpoints it.
fn two() -> (World, Program, Program, u64) {
    let mut world = World::new(round_spec());
    let (program, other) = (world.program(PID, 0), world.program(11, 0));
    let at = world.alloc(&program, 4 * MIB);
    world.submit(&program, StreamRef::Legacy, memset(at, 7, 4 * MIB)).unwrap();
    world.synchronize(&program).unwrap();
    (world, program, other, at)
}

fn step(world: &mut World, by: &Program, step: CheckpointStep) -> Reply {
    world.ask(by.connection, Request::Checkpoint { pid: PID, step })
}

fn state(world: &mut World, by: &Program) -> CUprocessState {
    match step(world, by, CheckpointStep::State) {
        Ok(Answer::Number(number)) => CUprocessState(number as u32),
        other => panic!("{other:?}"),
    }
}

fn listed(world: &mut World, by: &Program) -> Option<u64> {
    match world.ask(by.connection, Request::Figures(DeviceId(0))) {
        Ok(Answer::Figures(figures)) => {
            figures.processes.iter().find(|it| it.pid == PID).map(|it| it.memory_bytes)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_checkpointed_process_has_nothing_on_the_gpu_and_comes_back_as_it_was() {
    let (mut world, program, other, at) = two();
    let (before, own) = (world.used(0), listed(&mut world, &other).expect("it is there"));
    step(&mut world, &other, LOCK).unwrap();
    step(&mut world, &other, CheckpointStep::Out).unwrap();
    assert_eq!(state(&mut world, &other), CUprocessState::CHECKPOINTED);
    assert_eq!((listed(&mut world, &other), world.used(0)), (None, before - own));
    step(&mut world, &other, CheckpointStep::In).unwrap();
    assert_eq!(state(&mut world, &other), CUprocessState::LOCKED);
    step(&mut world, &other, CheckpointStep::Unlock).unwrap();
    assert_eq!((listed(&mut world, &other), world.used(0)), (Some(own), before));
    assert_eq!(world.raw(&program, at, 4 << 20), vec![7; 4 << 20]);
}

#[test]
fn calls_of_a_locked_process_wait_until_it_is_unlocked() {
    let (mut world, program, other, _) = two();
    step(&mut world, &other, LOCK).unwrap();
    let check = Request::Context(ContextRequest::Check(program.context));
    assert_eq!(world.try_ask(program.connection, check), None);
    world.pass(5 * MS);
    assert_eq!(world.taken(program.connection), None, "its call went on");
    step(&mut world, &other, CheckpointStep::Unlock).unwrap();
    assert_eq!(world.taken(program.connection), Some(Ok(Answer::Done)));
    world.synchronize(&program).unwrap();
    assert_eq!(world.machine.take_misuse(), []);
}

#[test]
fn work_for_a_locked_process_waits_too_and_is_written_down() {
    let (mut world, program, other, at) = two();
    step(&mut world, &other, LOCK).unwrap();
    let work = world.work(&program, StreamRef::Legacy, memset(at, 8, MIB));
    assert_eq!(world.try_ask(program.connection, work), None);
    let misuse = world.machine.take_misuse();
    assert!(matches!(&misuse[..], [one] if one.pid == PID && one.what.contains("about work")), "{misuse:?}");
    step(&mut world, &other, CheckpointStep::Unlock).unwrap();
    assert!(matches!(world.taken(program.connection), Some(Ok(_))));
}

#[test]
fn who_is_at_work_is_not_locked_and_steps_have_an_order() {
    let (mut world, program, other, at) = two();
    let kernel = world.kernel(&program, "increment", &[at, MIB / 2, u64::MAX / MIB, 0]);
    world.submit(&program, StreamRef::Legacy, kernel).unwrap();
    let refused = step(&mut world, &other, LOCK);
    assert_eq!((code(refused), state(&mut world, &other)), (CUresult::NOT_READY, CUprocessState::RUNNING));
    for wrong in [CheckpointStep::Out, CheckpointStep::In, CheckpointStep::Unlock] {
        assert_eq!(code(step(&mut world, &other, wrong)), CUresult::ILLEGAL_STATE);
    }
    let unknown = Request::Checkpoint { pid: 99, step: CheckpointStep::State };
    assert_eq!(code(world.ask(other.connection, unknown)), CUresult::INVALID_VALUE);
}

#[test]
fn of_who_is_frozen_only_locking_is_answered() {
    let (mut world, program, other, _) = two();
    world.freeze(&program);
    step(&mut world, &other, LOCK).unwrap();
    world.thaw(&program);
    for (next, then) in [
        (CheckpointStep::Out, CUprocessState::CHECKPOINTED),
        (CheckpointStep::In, CUprocessState::LOCKED),
        (CheckpointStep::Unlock, CUprocessState::RUNNING),
    ] {
        let before = state(&mut world, &other);
        world.freeze(&program);
        // Whoever asks waits for ever, so it is a process of its own.
        let asks = world.program(12, 0);
        let request = Request::Checkpoint { pid: PID, step: next };
        assert_eq!(world.try_ask(asks.connection, request), None, "{next:?}");
        world.pass(5 * MS);
        assert_eq!((world.taken(asks.connection), state(&mut world, &other)), (None, before), "{next:?}");
        world.thaw(&program);
        assert_eq!((world.taken(asks.connection), state(&mut world, &other)), (None, before), "{next:?}");
        step(&mut world, &other, next).unwrap();
        assert_eq!(state(&mut world, &other), then);
    }
}

#[test]
fn without_room_it_stays_out_and_its_end_gives_nothing_back_twice() {
    let (mut world, program, other, _) = two();
    step(&mut world, &other, LOCK).unwrap();
    step(&mut world, &other, CheckpointStep::Out).unwrap();
    let rest = world.machine.spec().memory.0 - world.used(0);
    world.create(&other, rest / (2 * MIB) * (2 * MIB));
    let used = world.used(0);
    assert_eq!(code(step(&mut world, &other, CheckpointStep::In)), CUresult::OUT_OF_MEMORY);
    assert_eq!((state(&mut world, &other), world.used(0)), (CUprocessState::CHECKPOINTED, used));
    world.kill(&program);
    world.machine.closed(program.file);
    world.pass(50 * MS);
    assert_eq!(world.used(0), used);
}

/// What the first step that touches memory says of a process that is locked for it, and unlocked again if it stays.
fn refused(world: &mut World, by: &Program) -> Option<CUresult> {
    step(world, by, LOCK).unwrap();
    let out = step(world, by, CheckpointStep::Out);
    let refused = out.is_err().then(|| code(out));
    if refused.is_some() {
        step(world, by, CheckpointStep::Unlock).unwrap();
    }
    refused
}

fn passed_on(world: &mut World, from: &Program, handle: HandleId, to: &Program) -> HandleId {
    let (_, file) = world.ask_with(from.connection, Request::Memory(MemoryRequest::Export(handle)), None);
    let (reply, _) = world.ask_with(to.connection, Request::Memory(MemoryRequest::Import), file);
    world.machine.closed(file.unwrap());
    match reply {
        Ok(Answer::Handle(handle)) => handle,
        other => panic!("{other:?}"),
    }
}

#[test]
fn memory_that_two_processes_have_keeps_both_and_what_one_has_let_go_of_keeps_the_other() {
    for maker in [PID, 11] {
        let (mut world, program, other, _) = two();
        let (from, to) = if maker == PID { (program, other.clone()) } else { (other.clone(), program) };
        let made = world.create(&from, 2 * MIB);
        let taken = passed_on(&mut world, &from, made, &to);
        assert_eq!(refused(&mut world, &other), Some(CUresult::NOT_SUPPORTED), "{maker}: both have it");
        world.memory(&from, MemoryRequest::Release(made)).unwrap();
        // Its maker has nothing of it any more; the other has what is not its own.
        let keeps = (maker != PID).then_some(CUresult::NOT_SUPPORTED);
        assert_eq!(refused(&mut world, &other), keeps, "{maker}");
        if keeps.is_some() {
            world.memory(&to, MemoryRequest::Release(taken)).unwrap();
            assert_eq!(refused(&mut world, &other), None, "it is gone");
        }
    }
}

#[test]
fn who_has_opened_anothers_memory_stays() {
    let (mut world, program, other, _) = two();
    let theirs = world.alloc(&other, 2 * MIB);
    let Ok(Answer::Number(token)) = world.memory(&other, MemoryRequest::IpcExport(Address(theirs))) else {
        panic!()
    };
    let opened = world.memory(&program, MemoryRequest::IpcOpen { context: program.context, token });
    let Ok(Answer::Address(opened)) = opened else { panic!("{opened:?}") };
    assert_eq!(refused(&mut world, &other), Some(CUresult::NOT_SUPPORTED));
    world.memory(&program, MemoryRequest::IpcClose(opened)).unwrap();
    assert_eq!(refused(&mut world, &other), None);
}
