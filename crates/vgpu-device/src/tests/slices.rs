use vgpu_messages::stream::StreamRef;
use vgpu_messages::{Answer, ContextId};

use super::world::*;

/// Programs that keep the GPU busy with one long kernel each: rounds of a spin at a million a second.
fn spinning(slices: &[u64]) -> (World, Vec<Program>) {
    let mut world = World::new(round_spec());
    let programs: Vec<Program> = (0..slices.len()).map(|at| world.program(10 + at as i32, 0)).collect();
    for (program, slice) in programs.iter().zip(slices) {
        world.set_slice(program, *slice);
    }
    for program in &programs {
        let spin = world.kernel(program, "spin", &[u64::MAX, u64::MAX]);
        assert_eq!(world.submit(program, StreamRef::Legacy, spin), Ok(Answer::Done));
    }
    (world, programs)
}

fn busy(world: &World, program: &Program) -> u64 {
    let context = &world.machine.contexts[&program.context];
    world.machine.gpus[0].compute.busy(Some(context.compute)).0
}

/// The share of the GPU that each had over a second.
fn shares(world: &mut World, programs: &[Program]) -> Vec<f64> {
    world.pass(100 * MS);
    let before: Vec<u64> = programs.iter().map(|program| busy(world, program)).collect();
    world.pass(1000 * MS);
    programs
        .iter()
        .zip(before)
        .map(|(program, before)| (busy(world, program) - before) as f64 / 1e9)
        .collect()
}

fn near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 0.01 * expected.max(0.05), "{value} is not {expected}");
}

#[test]
fn alone_there_is_no_switch() {
    let (mut world, programs) = spinning(&[2000]);
    near(shares(&mut world, &programs)[0], 1.0);
}

#[test]
fn a_switch_costs_what_it_is_said_to() {
    // A switch saves and loads for 60 us, and restores for 40 us within the slice of 2 ms.
    let (mut world, programs) = spinning(&[2000, 2000]);
    for share in shares(&mut world, &programs) {
        near(share, 1960.0 / (2.0 * 2060.0));
    }
    let (mut world, programs) = spinning(&[20_000, 20_000]);
    near(shares(&mut world, &programs).iter().sum(), 19_960.0 / 20_060.0);
}

#[test]
fn slices_are_shares() {
    let (mut world, programs) = spinning(&[6000, 2000, 1000]);
    let shares = shares(&mut world, &programs);
    near(shares[0] / shares[1], 5960.0 / 1960.0);
    near(shares[1] / shares[2], 1960.0 / 960.0);
}

#[test]
fn slices_shorter_than_a_restore_get_nowhere_until_one_is_longer() {
    let (mut world, programs) = spinning(&[40, 40]);
    assert_eq!(shares(&mut world, &programs), [0.0, 0.0]);
    assert!(world.machine.gpus[0].compute.is_livelocked());
    world.set_slice(&programs[0], 2000);
    let shares = shares(&mut world, &programs);
    assert!(shares[0] > 0.9 && shares[1] == 0.0, "{shares:?}");
}

#[test]
fn the_other_gpu_is_another_engine() {
    let mut world = World::new(round_spec());
    let (a, b) = (world.program(10, 0), world.program(11, 1));
    for program in [&a, &b] {
        let spin = world.kernel(program, "spin", &[u64::MAX, u64::MAX]);
        world.submit(program, StreamRef::Legacy, spin).unwrap();
    }
    world.pass(10 * MS);
    let of = |id: ContextId, gpu: usize| {
        let context = &world.machine.contexts[&id];
        world.machine.gpus[gpu].compute.busy(Some(context.compute)).0
    };
    assert!(of(a.context, 0) > 9 * MS && of(b.context, 1) > 9 * MS);
}

#[test]
fn a_frozen_program_costs_the_other_nothing() {
    let (mut world, programs) = spinning(&[2000, 2000]);
    world.freeze(&programs[1]);
    let shares = shares(&mut world, &programs);
    near(shares[0], 1.0);
    assert_eq!(shares[1], 0.0);
}
