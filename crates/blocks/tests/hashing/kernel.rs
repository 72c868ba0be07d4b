//! The kernel, run by the interpreter, against the hash on the host.

use blocks::launch::{DeviceAddresses, Launch, PTX, THREADS};
use blocks::{BLOCK_BYTES, Block, Sums};

use crate::data::{key, random, zeros};
use crate::interpreter::{Copies, Kernel, Memory};

const AT: DeviceAddresses = DeviceAddresses { places: 0x1_0000, key: 0x10_0000, sums: 0x2_0008 };
const BLOCKS: u64 = 0x7f00_0000_0000;

/// A device with these blocks, in reverse and with holes between them; and the key.
fn device(seed: u64, blocks: &[Box<Block>]) -> Memory {
    let address = |at: usize| BLOCKS - at as u64 * 3 * BLOCK_BYTES as u64;
    let places = (0..blocks.len()).flat_map(|at| address(at).to_le_bytes()).collect();
    let mut memory = vec![
        (AT.places, places),
        (AT.key, key(seed).device().to_bytes()),
        (AT.sums, vec![0; blocks.len() * Sums::BYTES]),
    ];
    memory.extend(blocks.iter().enumerate().map(|(at, block)| (address(at), block.to_vec())));
    Memory(memory)
}

fn sums(memory: &Memory) -> Vec<Sums> {
    memory.0[2].1.as_chunks().0.iter().map(Sums::from_bytes).collect()
}

#[test]
fn the_kernel_computes_what_the_host_does() {
    let kernel = Kernel::parse(PTX.trim_end_matches('\0'));
    let mut sparse = zeros();
    sparse[BLOCK_BYTES - 1] = 0x80;
    let blocks = [random(1), sparse, zeros(), random(2)];
    let expected: Vec<Sums> = blocks.iter().map(|block| key(9).device().sums(block)).collect();
    for copies in [Copies::Early, Copies::Late] {
        let mut memory = device(9, &blocks);
        for launch in Launch::over(blocks.len(), 3) {
            kernel.launch(launch.grid(), THREADS, &launch.parameters(&AT), &mut memory, copies);
        }
        assert_eq!(sums(&memory), expected, "{copies:?}");
    }
}

#[test]
fn a_grid_that_is_too_large_does_nothing_more() {
    let kernel = Kernel::parse(PTX.trim_end_matches('\0'));
    let mut memory = device(3, &[random(4), random(5)]);
    let launch = Launch::over(1, 1).next().unwrap();
    kernel.launch(launch.grid() + 5, THREADS, &launch.parameters(&AT), &mut memory, Copies::Late);
    assert_eq!(sums(&memory), [key(3).device().sums(&random(4)), Sums::default()]);
}

/// Launches that do not hash each block of the list once: all of them would look as if it had gone well.
#[test]
fn a_launch_that_went_wrong_shows() {
    let kernel = Kernel::parse(PTX.trim_end_matches('\0'));
    let blocks = [zeros(), random(6)];
    let launch = Launch::over(2, 2).next().unwrap();
    let [places, _, at_key, at_sums] = launch.parameters(&AT);
    let run = |grid: u32, count: u64, memory: &mut Memory| {
        kernel.launch(grid, THREADS, &[places, count, at_key, at_sums], memory, Copies::Late);
    };
    let hashed = |memory: &Memory| {
        let sums = sums(memory);
        [0, 1].map(|block| key(8).finish(&sums[block]).is_ok_and(|hash| hash == key(8).hash(&blocks[block])))
    };
    // All of it, a grid that is too short by one, a count that is too low, and nothing at all.
    for (grid, count, expected) in
        [(16, 2, [true, true]), (15, 2, [true, false]), (16, 1, [true, false]), (0, 2, [false, false])]
    {
        let mut memory = device(8, &blocks);
        run(grid, count, &mut memory);
        assert_eq!(hashed(&memory), expected, "a grid of {grid} for {count}");
    }
    // Twice; and where something was.
    let mut memory = device(8, &blocks);
    run(16, 2, &mut memory);
    run(8, 2, &mut memory);
    assert_eq!(hashed(&memory), [false, true]);
    let mut memory = device(8, &blocks);
    memory.0[2].1[..Sums::BYTES].fill(0x11);
    run(16, 2, &mut memory);
    assert_eq!(hashed(&memory), [false, true]);
}
