//! The hash against its definition, and what any change of a block does to it.

use std::collections::HashMap;

use blocks::{BLOCK_BYTES, Block, BlockHash, Key, STRIP_BYTES, STRIPS, Seed, Sums, SumsError};
use proptest::prelude::*;

use crate::data::{block, key, mix, random, zeros};

/// The head of `hash_blocks.ptx`, word by word.
fn by_definition(key: &[u8], block: &Block) -> Sums {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[4 * at..4 * at + 4].try_into().unwrap());
    let mixer = |at: usize| u64::from_le_bytes(key[77824 + 8 * at..][..8].try_into().unwrap());
    let mut sums = Sums::default();
    for part in 0..32 {
        let of_part = |i: usize| {
            let row = part / 4 * 64 + i / 1024 * 4 + part % 4;
            word(block, row * 1024 + i % 1024)
        };
        for pass in 0..4 {
            let mut sum = 0u64;
            for i in (0..16384).step_by(2) {
                let x = of_part(i).wrapping_add(word(key, i + 1024 * pass));
                let y = of_part(i + 1).wrapping_add(word(key, i + 1 + 1024 * pass));
                sum = sum.wrapping_add(u64::from(x) * u64::from(y));
            }
            for j in 0..4 {
                let mixers = [0, 1].map(|half| mixer(((part * 4 + pass) * 2 + half) * 4 + j));
                let low = (sum % (1 << 32)).wrapping_mul(mixers[0]);
                let high = (sum >> 32).wrapping_mul(mixers[1]);
                sums.mixed[j] = sums.mixed[j].wrapping_add(low).wrapping_add(high);
            }
        }
    }
    let (strips, _) = block.as_chunks::<STRIP_BYTES>();
    sums.strips = strips.len() as u32;
    sums.any = strips.iter().filter(|strip| strip.iter().any(|byte| *byte != 0)).count() as u32;
    sums
}

#[test]
fn the_sums_are_those_of_the_definition() {
    let device = key(1).device().clone();
    let bytes = device.to_bytes();
    let mut sparse = zeros();
    sparse[BLOCK_BYTES - 1] = 0x80;
    for (name, block) in
        [("zeros", zeros()), ("sparse", sparse), ("ones", block(|_| u64::MAX)), ("random", random(1))]
    {
        let sums = device.sums(&block);
        assert_eq!(sums, by_definition(&bytes, &block), "{name}");
        assert_eq!(Sums::from_bytes(&sums.to_bytes()), sums);
    }
}

/// Hashes are kept while daemons of other versions come and go.
#[test]
fn hashes_stay_what_they_are() {
    let key = Key::new(&Seed::from_bytes(std::array::from_fn(|at| at as u8)));
    let counting = block(|at| at as u64);
    assert_eq!(
        key.hash(&counting),
        BlockHash { bits: 0xf94f_2583_f1e2_3e3a_7182_5968_72ad_df71, zero: false }
    );
    assert_eq!(key.hash(&zeros()), BlockHash { bits: 0x093d_de9f_ac42_8550_aa79_3697_41d8_8bd1, zero: true });
}

#[test]
fn blocks_that_have_the_same_words_elsewhere_differ() {
    let key = key(2);
    let original = random(2);
    let hash = key.hash(&original);
    let swapped = |one: usize, other: usize, bytes: usize| {
        let mut block = original.clone();
        let (head, tail) = block.split_at_mut(other);
        head[one..one + bytes].swap_with_slice(&mut tail[..bytes]);
        block
    };
    // Words of a pair, pairs, what two threads have, rows of a part and of two parts, strips, halves.
    for (one, other, bytes) in [
        (0, 4, 4),
        (0, 8, 8),
        (64, 96, 16),
        (0, 16384, 4096),
        (0, 4096, 4096),
        (0, 65536, 65536),
        (262144, 524288, 262144),
        (0, BLOCK_BYTES / 2, BLOCK_BYTES / 2),
    ] {
        assert_ne!(key.hash(&swapped(one, other, bytes)), hash, "{bytes} bytes at {one} and {other}");
    }
    for shift in [1, 4, 8, 4096, 16384, 65536] {
        let mut block = original.clone();
        block.rotate_right(shift);
        assert_ne!(key.hash(&block), hash, "moved on by {shift}");
    }
}

#[test]
fn seeds_give_hashes_of_their_own() {
    let block = random(3);
    let hashes: std::collections::HashSet<u128> = (0..50).map(|seed| key(seed).hash(&block).bits).collect();
    assert_eq!(hashes.len(), 50);
}

#[test]
fn zero_is_exact() {
    let key = key(4);
    assert!(key.hash(&zeros()).zero);
    for bit in 0..8 * 64 {
        // Each bit of every lane, at places all over the block.
        let mut block = zeros();
        block[(bit * 4111 * 8) % BLOCK_BYTES] = 1 << (bit % 8);
        assert!(!key.hash(&block).zero, "{bit}");
    }
}

/// A block that no launch reached would be a zero block, of which nothing is copied.
#[test]
fn only_a_block_that_was_hashed_once_has_a_hash() {
    let key = key(6);
    let wrong = |sums: &Sums, strips, any| {
        assert_eq!(key.finish(sums), Err(SumsError::Strips { strips, any }), "{sums:?}");
    };
    wrong(&Sums::default(), 0, 0);
    let whole = key.device().sums(&random(6));
    let mut sums = Sums::default();
    for (strip, bytes) in random(6).as_chunks::<STRIP_BYTES>().0.iter().enumerate() {
        wrong(&sums, strip as u32, strip as u32);
        sums.include(&key.device().strip(strip, bytes));
    }
    assert_eq!((sums, key.finish(&sums)), (whole, Ok(key.hash(&random(6)))));
    sums.include(&whole);
    wrong(&sums, 16, 16);
    wrong(&Sums { any: 9, ..whole }, 8, 9);
    wrong(&Sums::from_bytes(&[0xff; Sums::BYTES]), u32::MAX, u32::MAX);
}

/// Pairs of equal numbers among `numbers`.
fn pairs(numbers: impl Iterator<Item = u16>) -> f64 {
    let mut counts: HashMap<u16, u64> = HashMap::new();
    numbers.for_each(|number| *counts.entry(number).or_default() += 1);
    counts.values().map(|count| (count * (count - 1) / 2) as f64).sum()
}

/// Of each sixteen bits of the hash: as many collide as would among random numbers.
#[test]
fn collisions_of_a_few_bits_are_as_many_as_chance_makes() {
    const BLOCKS: usize = 1500;
    let key = key(5);
    let mut nearly_same = random(5);
    let hashes: Vec<u128> = (0..BLOCKS)
        .map(|at| {
            // One word counts, at a place that differs.
            nearly_same[at % 64 * 32768..][..4].copy_from_slice(&(at as u32).to_le_bytes());
            key.hash(&nearly_same).bits
        })
        .collect();
    let expected = (BLOCKS * (BLOCKS - 1) / 2) as f64 / 65536.0;
    let mut all = 0.0;
    for window in 0..8 {
        let found = pairs(hashes.iter().map(|bits| (bits >> (16 * window)) as u16));
        assert!((found - expected).abs() < 6.0 * expected.sqrt(), "bits from {}: {found}", 16 * window);
        all += found;
    }
    let expected = 8.0 * expected;
    assert!((all - expected).abs() < 5.0 * expected.sqrt(), "{all} instead of {expected}");
}

/// What is promised is over seeds, for any two blocks: two that differ in very little, of eight bits, by 2000 seeds.
#[test]
fn two_blocks_collide_by_as_few_seeds_as_promised() {
    const SEEDS: u64 = 2000;
    let changes: [(&str, &[(usize, u8)]); 4] = [
        ("the lowest bit", &[(0, 1)]),
        ("the highest bit", &[(BLOCK_BYTES - 1, 0x80)]),
        ("a bit that moved to the other word of its pair", &[(100, 1), (104, 1)]),
        ("the same in two rows", &[(4096 + 8, 0x80), (16384 + 4096 + 8, 0x80)]),
    ];
    for (name, places) in changes {
        let one = zeros();
        let mut other = zeros();
        for (at, value) in places {
            other[*at] = *value;
        }
        let mut equal = [0u64; 16];
        for seed in 0..SEEDS {
            let key = key(seed);
            // Strips that are the same add the same: only the one that differs has to be looked at.
            let strip = places[0].0 / STRIP_BYTES;
            let of_strip = |block: &Block| Sums {
                strips: STRIPS as u32,
                ..key.device().strip(strip, &block.as_chunks().0[strip])
            };
            let [one, other] = [&one, &other].map(|block| key.finish(&of_strip(block)).unwrap().bits);
            for (place, equal) in equal.iter_mut().enumerate() {
                *equal += u64::from((one ^ other) >> (8 * place) & 0xff == 0);
            }
        }
        // 7.8 expected in each, standard deviation 2.8.
        assert!(equal.iter().all(|count| *count < 25), "{name}: {equal:?}");
        assert!((60..=200).contains(&equal.iter().sum::<u64>()), "{name}: {equal:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_flipped_bit_shows(seed: u64, content: u8, bit in 0..BLOCK_BYTES * 8) {
        let key = key(seed);
        let original = match content % 4 {
            0 => zeros(),
            1 => block(|_| u64::MAX),
            _ => random(seed),
        };
        let mut flipped = original.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let [before, after] = [&original, &flipped].map(|block| key.hash(block));
        prop_assert_ne!(before.bits, after.bits);
        // Every 32 bits of it notice, but for one in four thousand millions.
        for output in 0..4 {
            prop_assert_ne!((before.bits >> (32 * output)) as u32, (after.bits >> (32 * output)) as u32);
        }
    }

    #[test]
    fn any_byte_that_is_not_zero_is_seen(at in 0..BLOCK_BYTES, value in 1u8..) {
        let mut block = zeros();
        block[at] = value;
        prop_assert!(!key(mix(at as u64)).hash(&block).zero);
    }
}
