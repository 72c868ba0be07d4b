use cuda::CUresult;
use vgpu_messages::memory::MemoryRequest;
use vgpu_messages::spec::Spec;
use vgpu_messages::stream::StreamRef;
use vgpu_messages::*;

use super::world::*;

fn with(faults: &str) -> (World, Program) {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    world.machine.set_faults(Spec::parse(&format!("[faults]\n{faults}")).unwrap().faults);
    (world, program)
}

fn create(world: &mut World, program: &Program) -> CUresult {
    let properties = properties(DeviceId(0));
    code(world.memory(program, MemoryRequest::Create { bytes: 2 * MIB, properties }))
}

#[test]
fn no_memory_at_the_third_time() {
    let (mut world, program) = with("out_of_memory_at = 3");
    let codes = [0; 4].map(|_| create(&mut world, &program));
    assert_eq!(codes, [CUresult::SUCCESS, CUresult::SUCCESS, CUresult::OUT_OF_MEMORY, CUresult::SUCCESS]);
    let (mut world, program) = with("out_of_memory_at = 2\nout_of_memory_stays = true\npids = [11]");
    assert_eq!(
        [0; 3].map(|_| create(&mut world, &program)),
        [CUresult::SUCCESS; 3],
        "another process's fault"
    );
}

#[test]
fn a_copy_is_slow_and_a_copy_fails() {
    let (mut world, program) = with("copy = { slower = 5.0 }");
    let address = world.alloc(&program, 4 * MIB);
    world.register(&program, HOST, 4 * MIB).unwrap();
    let begin = world.machine.now();
    world.submit(&program, StreamRef::Legacy, to_device(HOST, address, 1_000_000)).unwrap();
    world.synchronize(&program).unwrap();
    assert!(world.machine.now().since(begin).0 >= 5 * MS);
    let (mut world, program) = with("copy = { fails_at = 1 }");
    let address = world.alloc(&program, 4 * MIB);
    world.submit(&program, StreamRef::Legacy, to_device(HOST, address, 1000)).unwrap();
    assert_eq!(code(world.synchronize(&program)), CUresult::LAUNCH_FAILED);
}

#[test]
fn a_kernel_is_stuck_and_can_be_frozen_and_killed() {
    let (mut world, program) = with("stuck_kernel = 'spin'");
    let kernel = world.kernel(&program, "spin", &[1, 1]);
    world.submit(&program, StreamRef::Legacy, kernel).unwrap();
    let synchronize = Request::Context(request::ContextRequest::Synchronize(program.context));
    assert_eq!(world.try_ask(program.connection, synchronize), None);
    world.pass(1000 * MS);
    assert_eq!(world.taken(program.connection), None);
    world.freeze(&program);
    world.kill(&program);
    world.machine.closed(program.file);
    world.pass(10 * MS);
    assert!(world.machine.is_clean());
}

#[test]
fn a_lost_device_is_lost_to_all() {
    let (mut world, program) = with("");
    let other = world.program(11, 1);
    world.machine.set_faults(Spec::parse("faults = { lost_devices = [0] }").unwrap().faults);
    assert_eq!(code(world.synchronize(&program)), CUresult::UNKNOWN);
    assert_eq!(world.synchronize(&other), Ok(Answer::Done));
    let Ok(Answer::Figures(figures)) = world.ask(other.connection, Request::Figures(DeviceId(0))) else {
        panic!()
    };
    assert!(figures.lost && figures.errors == [79]);
}

#[test]
fn controls_lie_and_take_long() {
    let (mut world, program) = with("control = { freeze_does_nothing = true, takes = '20ms' }");
    let address = world.alloc(&program, MIB);
    let kernel = world.kernel(&program, "increment", &[address, MIB / 8, 1 << 40, 0]);
    world.submit(&program, StreamRef::Legacy, kernel).unwrap();
    let begin = world.machine.now();
    world.freeze(&program);
    assert!(world.machine.now().since(begin).0 >= 20 * MS);
    let before = world.raw(&program, address, 1 << 20);
    world.pass(5 * MS);
    assert!(world.raw(&program, address, 1 << 20) != before, "success, and no effect");
    world.machine.set_faults(Spec::parse("faults = { control = { status = 0x65 } }").unwrap().faults);
    let channels = program.channels.clone();
    let other = world.connect(10, Some(program.session)).0;
    assert_eq!(world.grip_as(other, &program, &channels, true), 0x65);
}

#[test]
fn figures_tell_what_happens() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    world.create(&program, 8 * MIB);
    let figures = |world: &mut World| match world.ask(program.connection, Request::Figures(DeviceId(0))) {
        Ok(Answer::Figures(figures)) => figures,
        other => panic!("{other:?}"),
    };
    world.pass(2000 * MS);
    let idle = figures(&mut world);
    assert_eq!((idle.memory_used_bytes, idle.compute_busy_percent), (12 * MIB, 0));
    assert_eq!((idle.processes.len(), idle.processes[0].memory_bytes), (1, 12 * MIB));
    assert_eq!(idle.power_milliwatts, 20_000);
    let kernel = world.kernel(&program, "spin", &[u64::MAX, u64::MAX]);
    world.submit(&program, StreamRef::Legacy, kernel).unwrap();
    world.pass(3000 * MS);
    let busy = figures(&mut world);
    assert!(busy.compute_busy_percent >= 99 && busy.power_milliwatts > 95_000, "{busy:?}");
    let joules = busy.energy_millijoules - idle.energy_millijoules;
    assert!((290_000..=305_000).contains(&joules), "three seconds at 100 W: {joules}");
}
