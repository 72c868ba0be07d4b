use cuda::CUresult;
use vgpu_messages::pool::PoolRequest;
use vgpu_messages::stream::StreamRef;
use vgpu_messages::*;

use super::world::*;

fn ask(world: &mut World, program: &Program, request: PoolRequest) -> Reply {
    world.ask(program.connection, Request::Pool(request))
}

fn alloc(world: &mut World, program: &Program, stream: StreamRef, bytes: u64) -> u64 {
    let request = PoolRequest::Alloc { context: program.context, stream, pool: None, bytes };
    match ask(world, program, request) {
        Ok(Answer::Address(address)) => address.0,
        other => panic!("{other:?}"),
    }
}

fn free(program: &Program, stream: StreamRef, address: u64) -> PoolRequest {
    PoolRequest::Free { context: program.context, stream, address: Address(address) }
}

#[test]
fn memory_goes_back_in_the_order_of_its_stream() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let stream = world.stream(&program, 1);
    let address = alloc(&mut world, &program, stream, MIB);
    let kernel = world.kernel(&program, "increment", &[address, MIB / 8, 2, 0]);
    world.submit(&program, stream, memset(address, 0, MIB)).unwrap();
    world.submit(&program, stream, kernel).unwrap();
    assert_eq!(ask(&mut world, &program, free(&program, stream, address)), Ok(Answer::Done));
    let twice = ask(&mut world, &program, free(&program, stream, address));
    assert_eq!(code(twice), CUresult::INVALID_VALUE);
    assert_eq!(world.used(0), 5 * MIB, "the kernel still runs");
    world.pass(10 * MS);
    assert_eq!(world.used(0), 5 * MIB, "the pool keeps it");
    world.synchronize(&program).unwrap();
    assert_eq!(world.used(0), 4 * MIB, "until the next synchronisation");
    let kernel = world.kernel(&program, "fill", &[address, 1, 0]);
    world.submit(&program, stream, kernel).unwrap();
    assert_eq!(code(world.synchronize(&program)), CUresult::ILLEGAL_ADDRESS, "a use after the free");
}

#[test]
fn a_pool_keeps_as_much_as_it_is_told_to() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let Ok(Answer::Pool(pool)) = ask(&mut world, &program, PoolRequest::Current(DeviceId(0))) else {
        panic!()
    };
    let set = PoolRequest::SetAttribute { pool, attribute: 4, value: 2 * MIB };
    ask(&mut world, &program, set).unwrap();
    let held: Vec<u64> = (0..4).map(|_| alloc(&mut world, &program, StreamRef::Legacy, MIB)).collect();
    let get = |world: &mut World, attribute| match ask(
        world,
        &program,
        PoolRequest::GetAttribute { pool, attribute },
    ) {
        Ok(Answer::Number(number)) => number,
        other => panic!("{other:?}"),
    };
    assert_eq!((get(&mut world, 5), get(&mut world, 7)), (4 * MIB, 4 * MIB));
    for address in held {
        ask(&mut world, &program, free(&program, StreamRef::Legacy, address)).unwrap();
    }
    world.pass(MS);
    assert_eq!((get(&mut world, 5), get(&mut world, 7), get(&mut world, 8)), (4 * MIB, 0, 4 * MIB));
    world.synchronize(&program).unwrap();
    assert_eq!((get(&mut world, 5), world.used(0)), (2 * MIB, 6 * MIB));
    alloc(&mut world, &program, StreamRef::Legacy, MIB);
    assert_eq!(world.used(0), 6 * MIB, "from what it keeps");
    let trim = PoolRequest::Trim { pool, keep_bytes: 0 };
    ask(&mut world, &program, trim).unwrap();
    assert_eq!(world.used(0), 5 * MIB);
}

#[test]
fn a_pool_is_bounded_and_the_default_one_stays() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let location = memory::Location::Device(DeviceId(0));
    let create = PoolRequest::Create { location, handle_types: 0, bytes_max: 2 * MIB };
    let Ok(Answer::Pool(pool)) = ask(&mut world, &program, create) else { panic!() };
    let from = |bytes| PoolRequest::Alloc {
        context: program.context,
        stream: StreamRef::Legacy,
        pool: Some(pool),
        bytes,
    };
    let Ok(Answer::Address(address)) = ask(&mut world, &program, from(MIB)) else { panic!() };
    assert_eq!(code(ask(&mut world, &program, from(2 * MIB))), CUresult::OUT_OF_MEMORY);
    assert_eq!(ask(&mut world, &program, from(0)), Ok(Answer::Address(Address(0))));
    assert_eq!(
        code(ask(&mut world, &program, PoolRequest::Destroy(pool))),
        CUresult::INVALID_VALUE,
        "in use"
    );
    // A plain free takes it as well.
    assert_eq!(world.free(&program, address.0), Ok(Answer::Done));
    assert_eq!(ask(&mut world, &program, PoolRequest::Destroy(pool)), Ok(Answer::Done));
    assert_eq!(world.used(0), 4 * MIB);
    let Ok(Answer::Pool(default)) = ask(&mut world, &program, PoolRequest::Default(DeviceId(0))) else {
        panic!()
    };
    assert_eq!(code(ask(&mut world, &program, PoolRequest::Destroy(default))), CUresult::INVALID_VALUE);
}
