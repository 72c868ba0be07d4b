//! The steps of the proof in the crate's documentation, with words so short that every key can be tried.

use crate::data::mix;

/// First level, one pass: of all K, at most one makes the sums of two parts equal.
#[test]
fn at_most_one_key_word_makes_two_sums_equal() {
    const BITS: u64 = 4;
    let (words, ring) = (1 << BITS, (1 << (2 * BITS)) - 1);
    for a in 0..words {
        for b in (0..words).filter(|b| *b != a) {
            for (y, z) in (0..words).flat_map(|y| (0..words).map(move |z| (y, z))) {
                let mut seen = vec![false; ring as usize + 1];
                for key in 0..words {
                    let left: u64 = a * ((y + key) % words);
                    let difference = left.wrapping_sub(b * ((z + key) % words)) & ring;
                    assert!(!seen[difference as usize], "a {a}, b {b}, y {y}, z {z}: {difference} twice");
                    seen[difference as usize] = true;
                }
            }
        }
    }
}

/// First level, two passes over a part of two rows of a pair each: words of 3 bits, a key of 6 words.
#[test]
fn passes_count_as_if_their_keys_were_independent() {
    const BITS: u64 = 3;
    const MASK: u64 = (1 << BITS) - 1;
    let sum = |part: [u64; 4], key: u64, pass: u64| {
        let word = |i: u64| (part[i as usize] + (key >> (BITS * (i + 2 * pass)))) & MASK;
        (word(0) * word(1) + word(2) * word(3)) & ((1 << (2 * BITS)) - 1)
    };
    let part = |number: u64| [0, 1, 2, 3].map(|i| number >> (BITS * i) & MASK);
    let mut most = 0;
    for pair in 0..60 {
        let [one, other] = [2 * pair, 2 * pair + 1].map(|number| part(mix(number)));
        if one == other {
            continue;
        }
        let keys = 1 << (6 * BITS);
        let collide = |key: &u64| (0..2).all(|pass| sum(one, *key, pass) == sum(other, *key, pass));
        let collisions = (0..keys).filter(collide).count() as u64;
        assert!(collisions <= keys >> (2 * BITS), "{one:?} and {other:?}: {collisions} of {keys}");
        most = most.max(collisions);
    }
    assert!(most > 0, "no key ever made two parts collide: what was tried?");
}

/// Second level: words of 4 bits, keys of 8, of which the upper half is kept. Exactly one key in 2^4.
#[test]
fn upper_halves_are_equal_as_seldom_as_those_of_random_numbers() {
    for (one, other) in (0..16_u8).flat_map(|one| (0..one).map(move |other| (one, other))) {
        for rest in [0, 7, 200_u8] {
            let upper = |word: u8, fixed: u8, m: u8, c: u8| {
                c.wrapping_add(word.wrapping_mul(m)).wrapping_add(fixed) >> 4
            };
            let keys = (0..=255).flat_map(|m| (0..=255).map(move |c| (m, c)));
            let equal = keys.filter(|(m, c)| upper(one, 0, *m, *c) == upper(other, rest, *m, *c)).count();
            assert_eq!(equal, 256 * 256 / 16, "{one} and {other}, {rest} apart in what is fixed");
        }
    }
}
