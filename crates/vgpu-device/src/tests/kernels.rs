//! Each kernel against its definition at the top of its PTX, and every PTX in `kernels/` against what is known here.

use blocks::{BlockHash, Key, Seed, Sums};
use cuda::CUresult;
use vgpu_messages::stream::StreamRef;
use vgpu_messages::*;

use super::world::*;
use crate::{kernels, ptx};

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Runs kernels, one after the other, frozen now and then, over two rows of words and two sums; what is there then.
fn run(before: [&[u64]; 2], kernels: &dyn Fn([u64; 3]) -> Vec<(&'static str, Vec<u64>)>) -> [Vec<u64>; 3] {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let rows = [before[0], before[1], &[0, 0]].map(|words| {
        let at = world.alloc(&program, 8 * words.len().max(1) as u64);
        world.poke(10, HOST, &bytes(words));
        world.submit(&program, StreamRef::Legacy, to_device(HOST, at, 8 * words.len() as u64)).unwrap();
        world.synchronize(&program).unwrap();
        (at, words.len())
    });
    for (name, parameters) in kernels(rows.map(|row| row.0)) {
        let kernel = world.kernel(&program, name, &parameters);
        world.submit(&program, StreamRef::Legacy, kernel).unwrap();
        for _ in 0..3 {
            world.pass(200_000);
            world.freeze(&program);
            world.thaw(&program);
        }
        world.synchronize(&program).unwrap();
    }
    assert_eq!(world.machine.take_misuse(), []);
    rows.map(|(at, words)| words_of(&world.raw(&program, at, 8 * words)))
}

const BLOCK_WORDS: usize = blocks::BLOCK_BYTES / 8;

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

fn numbers(seed: u64, count: u64) -> Vec<u64> {
    (0..count).map(|at| mix(seed + at)).collect()
}

#[test]
fn every_kernel_of_the_project_is_known() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "ptx") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for entry in ptx::parse(&text).unwrap().entries {
            let known = kernels::native(&entry.name, &entry.parameters);
            assert!(known.is_some(), "{} of {} has no native equivalent", entry.name, path.display());
            count += 1;
        }
    }
    assert!(count >= 12);
}

#[test]
fn fill_and_add() {
    let (left, right) = (numbers(1, 100_001), numbers(2, 100_001));
    let [filled, ..] = run([&left, &right], &|[a, _, _]| vec![("fill", vec![a + 8, 99_999, 77])]);
    assert_eq!((filled[0], filled[100_000]), (left[0], left[100_000]));
    assert!(filled[1..100_000].iter().all(|word| *word == 77));
    let [sums, ..] = run([&left, &right], &|[a, b, _]| vec![("add", vec![a, a, b, 100_001])]);
    assert!(sums.iter().zip(left.iter().zip(&right)).all(|(sum, (a, b))| *sum == a.wrapping_add(*b)));
}

#[test]
fn rewrite_and_checksum() {
    let [words, _, sums] = run([&numbers(1, 50_000), &[]], &|[a, _, sums]| {
        vec![("rewrite", vec![a, 50_000, 123, 45, 6]), ("checksum", vec![a, 50_000, sums])]
    });
    let key = mix(45u64.wrapping_add(GOLDEN.wrapping_mul(6)));
    let (mut plain, mut mixed) = (0u64, 0u64);
    for (i, word) in words.iter().enumerate() {
        assert_eq!(*word, mix(key.wrapping_add(GOLDEN.wrapping_mul(123 + i as u64 + 1))));
        plain = plain.wrapping_add(*word);
        mixed ^= mix(word.wrapping_add(GOLDEN.wrapping_mul(i as u64 + 1)));
    }
    assert_eq!(sums, [plain, mixed]);
}

#[test]
fn a_word_half_of_which_was_asked_for_is_one_word() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let (at, sums) = (world.alloc(&program, 100), world.alloc(&program, 16));
    world.submit(&program, StreamRef::Legacy, memset(sums, 0, 16)).unwrap();
    for (name, parameters) in [
        ("rewrite", vec![at, 16, 0, 45, 6]),
        ("increment", vec![at, 16, 3, 0]),
        ("checksum", vec![at, 16, sums]),
    ] {
        let kernel = world.kernel(&program, name, &parameters);
        world.submit(&program, StreamRef::Legacy, kernel).unwrap();
        world.synchronize(&program).unwrap();
        assert!(!world.machine.take_misuse().is_empty(), "{name} goes behind what was asked for");
    }
    let key = mix(45u64.wrapping_add(GOLDEN.wrapping_mul(6)));
    let expected = (1..=16).map(|place| mix(key.wrapping_add(GOLDEN.wrapping_mul(place))).wrapping_add(3));
    let expected: Vec<u64> = expected.collect();
    assert_eq!(words_of(&world.raw(&program, at, 128)), expected);
    let plain = expected.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
    let salted = expected.iter().zip(1..).map(|(word, place)| word.wrapping_add(GOLDEN.wrapping_mul(place)));
    let mixed = salted.map(mix).fold(0, |sum, word| sum ^ word);
    assert_eq!(words_of(&world.raw(&program, sums, 16)), [plain, mixed]);
}

#[test]
fn increment_and_its_heartbeat() {
    let before = numbers(3, 30_000);
    let [words, _, sums] = run([&before, &[]], &|[a, _, sums]| vec![("increment", vec![a, 30_000, 5, sums])]);
    assert!(words.iter().zip(&before).all(|(now, before)| *now == before.wrapping_add(5)));
    assert_eq!(sums, [5, 0]);
    let [words, _, sums] = run([&before, &[]], &|[a, _, sums]| {
        vec![("increment", vec![a, 30_000, 0, sums]), ("increment", vec![a, 0, 9, sums + 8])]
    });
    assert_eq!((words, sums), (before, vec![0, 9]));
}

#[test]
fn touch_random_and_nothing_to_touch() {
    let before = numbers(4, 1000);
    let [words, ..] = run([&before, &[]], &|[a, _, _]| {
        vec![("touch_random", vec![a, 1000, 42, 5000]), ("touch_random", vec![a, 0, 42, 5000])]
    });
    let mut expected = before;
    for t in 0..5000u64 {
        let x = mix(42u64.wrapping_add(GOLDEN.wrapping_mul(t + 1)));
        let i = ((u128::from(x) * 1000) >> 64) as usize;
        expected[i] = expected[i].wrapping_add(mix(x));
    }
    assert_eq!(words, expected);
}

#[test]
fn copy_words_copies_on_the_device() {
    let before = numbers(6, 30_000);
    let [from, to, _] = run([&before, &numbers(7, 30_000)], &|[a, b, _]| {
        vec![("copy_words", vec![b + 8, a + 16, 29_998]), ("copy_words", vec![b, a, 0])]
    });
    assert_eq!(from, before);
    assert_eq!([to[0], to[29_999]], [mix(7), mix(7 + 29_999)], "nothing beside");
    assert!(to[1..29_999] == before[2..]);
}

#[test]
fn copy_words_reaches_the_memory_of_its_host_that_is_registered() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    let at = world.alloc(&program, 4096);
    let [from, to] = [HOST, HOST + 8192];
    let bytes: Vec<u8> = numbers(8, 512).iter().flat_map(|word| word.to_le_bytes()).collect();
    world.poke(10, from, &bytes);
    for host in [from, to] {
        world.register(&program, host, 4096).unwrap();
    }
    for parameters in [[at, from, 512], [to, at, 512]] {
        let kernel = world.kernel(&program, "copy_words", &parameters);
        world.submit(&program, StreamRef::Legacy, kernel).unwrap();
    }
    world.synchronize(&program).unwrap();
    assert!(world.peek(10, to, 4096) == bytes);
    assert_eq!(world.peek(10, to + 4096, 4096), vec![0; 4096], "nothing beside");
    assert_eq!(world.machine.take_misuse(), []);
}

#[test]
fn copy_words_reaches_nothing_else() {
    const REGISTERED: u64 = HOST + 8192;
    // To, from, words: each with 4096 bytes on the device at 0, and as many of the host's that are registered.
    for ((to, from, words), expected) in [
        ((0, REGISTERED, 512), CUresult::SUCCESS),
        ((0, REGISTERED, 513), CUresult::ILLEGAL_ADDRESS),
        ((REGISTERED + 8, 0, 512), CUresult::ILLEGAL_ADDRESS),
        ((0, HOST, 1), CUresult::ILLEGAL_ADDRESS),
        ((HOST, 0, 1), CUresult::ILLEGAL_ADDRESS),
        ((0, REGISTERED + 4, 1), CUresult::MISALIGNED_ADDRESS),
        ((REGISTERED + 4, 0, 1), CUresult::MISALIGNED_ADDRESS),
        ((4, REGISTERED, 1), CUresult::MISALIGNED_ADDRESS),
    ] {
        let mut world = World::new(round_spec());
        let [program, other] = [10, 20].map(|pid| world.program(pid, 0));
        let at = world.alloc(&program, 4096);
        world.register(&program, REGISTERED, 4096).unwrap();
        // Another process may register what it likes.
        world.register(&other, HOST, 4096).unwrap();
        let place = |address: u64| if address < HOST { at + address } else { address };
        let kernel = world.kernel(&program, "copy_words", &[place(to), place(from), words]);
        world.submit(&program, StreamRef::Legacy, kernel).unwrap();
        assert_eq!(code(world.synchronize(&program)), expected, "{words} from {from:#x} to {to:#x}");
    }
}

#[test]
fn hash_blocks_hashes_blocks_wherever_they_lie() {
    let key = Key::new(&Seed::from_bytes([7; 32]));
    let mut words = numbers(5, 4 * BLOCK_WORDS as u64);
    words[BLOCK_WORDS..2 * BLOCK_WORDS].fill(0);
    words[2 * BLOCK_WORDS..3 * BLOCK_WORDS - 1].fill(0);
    let of_device: Vec<u64> = words_of(&key.device().to_bytes());
    // Behind the key: places of the blocks, not in order and without the first, then their sums.
    let (places, sums) = (of_device.len(), of_device.len() + 3);
    let mut other = of_device;
    other.resize(sums + 3 * Sums::BYTES / 8, 0);
    let [_, other, _] = run([&words, &other], &|[a, b, _]| {
        let fill = |at: usize, block: usize| {
            ("fill", vec![b + 8 * at as u64, 1, a + (block * blocks::BLOCK_BYTES) as u64])
        };
        let hash = ("hash_blocks", vec![b + 8 * places as u64, 3, b, b + 8 * sums as u64]);
        vec![fill(places, 3), fill(places + 1, 1), fill(places + 2, 2), hash]
    });
    let found: Vec<BlockHash> = other[sums..]
        .chunks(Sums::BYTES / 8)
        .map(|sums| {
            let bytes: Vec<u8> = sums.iter().flat_map(|word| word.to_le_bytes()).collect();
            key.finish(&Sums::from_bytes(bytes[..].try_into().unwrap())).unwrap()
        })
        .collect();
    let expected = [3, 1, 2].map(|block| {
        let words = &words[block * BLOCK_WORDS..(block + 1) * BLOCK_WORDS];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        key.hash(bytes[..].try_into().unwrap())
    });
    assert_eq!(found, expected);
    assert_eq!(found.iter().map(|hash| hash.zero).collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn waiting_ends_with_the_value_or_the_time() {
    let [.., sums] = run([&[5], &[]], &|[a, _, sums]| {
        vec![("wait_for_peer", vec![a, 5, 0, sums]), ("wait_for_peer", vec![a, 6, 1_000_000, sums + 8])]
    });
    assert_eq!(sums, [1, 2]);
}

#[test]
fn a_spin_ends_by_rounds_of_its_own_time_or_by_the_clock() {
    let mut world = World::new(round_spec());
    let program = world.program(10, 0);
    for (parameters, frozen_counts) in [([3000, u64::MAX], false), ([u64::MAX, 3_000_000], true)] {
        let kernel = world.kernel(&program, "spin", &parameters);
        let begin = world.machine.now();
        world.submit(&program, StreamRef::Legacy, kernel).unwrap();
        world.pass(MS);
        world.freeze(&program);
        world.pass(10 * MS);
        world.thaw(&program);
        assert_eq!(world.synchronize(&program), Ok(Answer::Done));
        let took = world.machine.now().since(begin).0;
        assert_eq!(took < 13 * MS, frozen_counts, "{parameters:?}: {took}");
    }
}
