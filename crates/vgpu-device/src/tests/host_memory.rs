//! The host's memory at addresses of the device.

use cuda::CUresult;
use vgpu_messages::memory::{HandleProperties, Location, MemoryRequest};
use vgpu_messages::stream::StreamRef;
use vgpu_messages::*;

use super::world::*;

const BYTES: u64 = 8 * MIB;

/// Memory of a program at addresses of its own: on the host, or on its device.
fn mapped(world: &mut World, program: &Program, location: Location) -> (u64, HandleId) {
    let properties = HandleProperties { location, ..properties(DeviceId(0)) };
    let create = MemoryRequest::Create { bytes: BYTES, properties };
    let Ok(Answer::Handle(handle)) = world.memory(program, create) else { panic!("no memory") };
    let address = world.reserve(program, BYTES);
    world.map(program, address, BYTES, handle);
    (address, handle)
}

/// How long a kernel takes that fills it, in steps of half a millisecond.
fn filled(world: &mut World, program: &Program, address: u64) -> u64 {
    let kernel = world.kernel(program, "fill", &[address, BYTES / 8, 0x0123_4567_89ab_cdef]);
    let began = world.machine.now();
    world.submit(program, StreamRef::Legacy, kernel).unwrap();
    world.synchronize(program).unwrap();
    world.machine.now().since(began).0
}

#[test]
fn it_takes_nothing_of_the_device_and_has_every_byte() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let before = world.used(0);
    let all: Vec<(u64, HandleId)> = (0..10).map(|_| mapped(&mut world, &program, Location::Host)).collect();
    assert_eq!(world.used(0), before, "80 MiB on a GPU of 64 MiB");
    for &(address, _) in &all {
        filled(&mut world, &program, address);
        let last = world.bytes(&program, address + BYTES - 8, 8);
        assert_eq!(last, 0x0123_4567_89ab_cdef_u64.to_le_bytes());
    }
    world.kill(&program);
    world.pass(100 * MS);
    assert_eq!(world.machine.take_misuse(), []);
}

#[test]
fn kernels_wait_for_the_bus() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let (device, _) = mapped(&mut world, &program, Location::Device(DeviceId(0)));
    let (host, _) = mapped(&mut world, &program, Location::Host);
    let alone = filled(&mut world, &program, device);
    let over_bus = filled(&mut world, &program, host);
    // Memory and bus have the same speed here: the same again for the bus.
    let expected = BYTES..BYTES + 2 * MS;
    assert!(expected.contains(&(over_bus - alone)), "{alone} ns there, {over_bus} ns over the bus");
    assert!(filled(&mut world, &program, device) < alone + MS, "the next one owes nothing");
}

#[test]
fn without_access_a_kernel_faults_there_as_anywhere() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let (address, handle) = mapped(&mut world, &program, Location::Host);
    let unmap = MemoryRequest::Unmap { address: Address(address), bytes: BYTES };
    world.memory(&program, unmap).unwrap();
    let map = MemoryRequest::Map { address: Address(address), bytes: BYTES, offset: 0, handle };
    world.memory(&program, map).unwrap();
    let kernel = world.kernel(&program, "fill", &[address, 1, 1]);
    world.submit(&program, StreamRef::Legacy, kernel).unwrap();
    assert_eq!(code(world.synchronize(&program)), CUresult::ILLEGAL_ADDRESS);
}
