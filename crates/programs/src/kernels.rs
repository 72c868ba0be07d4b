//! The project's kernels: their PTX, and what each computes, in Rust.
//!
//! The PTX files in `kernels/` are the truth for a real GPU; the head of each says in pseudo-code what it computes. The
//! functions here say the same in Rust, word by word, so that a program can check results without a second GPU, and so that a
//! virtual GPU can do the same work. They are pure: parameters and an index in, a word out. All arithmetic is modulo 2^64.

/// One kernel of the project.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Kernel {
    /// The name of its entry point.
    pub entry: &'static str,
    /// The module that holds it, as PTX text that ends with a NUL, as the driver wants it.
    pub ptx: &'static str,
    /// How many 64-bit parameters it takes.
    pub parameters: usize,
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $constant:ident = $entry:literal, $parameters:literal;)*) => {
        $(
            $(#[$doc])*
            pub const $constant: Kernel = Kernel {
                entry: $entry,
                ptx: concat!(include_str!(concat!("../../../kernels/", $entry, ".ptx")), "\0"),
                parameters: $parameters,
            };
        )*

        /// Every kernel of the project's programs.
        pub const ALL: &[Kernel] = &[$($constant),*];
    };
}

kernels! {
    /// `add(sums, left, right, count)`: [`added`].
    ADD = "add", 4;
    /// `checksum(words, count, sums)`: [`Checksum`].
    CHECKSUM = "checksum", 3;
    /// `fill(words, count, value)`: every word is `value`.
    FILL = "fill", 3;
    /// `heartbeat(counter, stop, limit)`: counts until it is told to stop.
    HEARTBEAT = "heartbeat", 3;
    /// `increment(words, count, rounds, heartbeat)`: [`incremented`], in as many rounds over all words.
    INCREMENT = "increment", 4;
    /// `rewrite(words, count, first, seed, step)`: [`rewritten`].
    REWRITE = "rewrite", 5;
    /// `spin(rounds, nanoseconds)`: nothing, for so long.
    SPIN = "spin", 2;
    /// `touch_random(words, count, seed, touches)`: [`touch`] for each touch.
    TOUCH_RANDOM = "touch_random", 4;
    /// `wait_for_peer(word, value, nanoseconds, outcome)`: [`PEER_CAME`] or [`PEER_LATE`].
    WAIT_FOR_PEER = "wait_for_peer", 4;
}

/// `warm_up()`: nothing. The shim's, which loads a program's context by it, and so not among those that a driver was asked about:
/// the answers of a real one are kept, and name how many kernels of programs it loaded.
pub const WARM_UP: Kernel = Kernel {
    entry: "warm_up",
    ptx: concat!(include_str!("../../../kernels/warm_up.ptx"), "\0"),
    parameters: 0,
};

/// `hash_blocks(places, count, key, sums)`: `blocks::DeviceKey::sums` of each block. The memory server's, not a program's.
pub const HASH_BLOCKS: Kernel =
    Kernel { entry: blocks::launch::ENTRY, ptx: blocks::launch::PTX, parameters: 4 };

/// The outcome of `wait_for_peer`: the value came.
pub const PEER_CAME: u64 = 1;
/// The outcome of `wait_for_peer`: the value did not come in time.
pub const PEER_LATE: u64 = 2;

/// An odd number without pattern (2^64 divided by the golden ratio): steps of it visit all words evenly.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads every bit of `x` over all bits of the result; each `x` has its own result.
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The `index`-th word of a stream of words without pattern, named by a key.
const fn stream(key: u64, index: u64) -> u64 {
    mix(key.wrapping_add(GOLDEN.wrapping_mul(index.wrapping_add(1))))
}

/// What `rewrite(_, _, first, seed, step)` stores as word `index`.
pub const fn rewritten(first: u64, seed: u64, step: u64, index: u64) -> u64 {
    stream(rewrite_key(seed, step), first.wrapping_add(index))
}

/// What names the words of `rewrite(_, _, _, seed, step)`.
const fn rewrite_key(seed: u64, step: u64) -> u64 {
    mix(seed.wrapping_add(GOLDEN.wrapping_mul(step)))
}

/// What `add` stores for two words.
pub const fn added(left: u64, right: u64) -> u64 {
    left.wrapping_add(right)
}

/// What `increment` makes of a word.
pub const fn incremented(word: u64, rounds: u64) -> u64 {
    word.wrapping_add(rounds)
}

/// What `touch_random(_, count, seed, _)` does as touch number `touch`: the word it touches and what it adds to it.
/// None for no words.
pub const fn touch(count: u64, seed: u64, touch: u64) -> Option<(u64, u64)> {
    if count == 0 {
        return None;
    }
    let x = stream(seed, touch);
    let index = ((x as u128 * count as u128) >> 64) as u64;
    Some((index, mix(x)))
}

/// What `checksum` stores: two sums over words, in any order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Checksum {
    /// The sum of all words.
    pub plain: u64,
    /// The exclusive or of all words, each mixed with its place.
    pub mixed: u64,
}

impl Checksum {
    /// Takes word number `index` in.
    pub const fn with(self, index: u64, word: u64) -> Checksum {
        let mixed = stream(word, index);
        Checksum { plain: self.plain.wrapping_add(word), mixed: self.mixed ^ mixed }
    }

    /// The checksum of words in their order.
    pub fn of(words: impl IntoIterator<Item = u64>) -> Checksum {
        words.into_iter().zip(0..).fold(Checksum::default(), |sum, (word, index)| sum.with(index, word))
    }

    /// The checksum of what `rewrite` stores in `count` words.
    pub fn of_rewritten(count: u64, first: u64, seed: u64, step: u64) -> Checksum {
        // By hand: whole-system tests compute it of all memory in every step, and little optimised a chain of iterators takes
        // twice as long.
        let key = rewrite_key(seed, step);
        let (mut sum, mut index) = (Checksum::default(), 0);
        while index < count {
            sum = sum.with(index, stream(key, first.wrapping_add(index)));
            index += 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_file_holds_one_entry_of_its_name_and_parameters() {
        for kernel in ALL.iter().chain([&HASH_BLOCKS, &WARM_UP]) {
            let entries: Vec<&str> = kernel.ptx.split(".visible .entry ").skip(1).collect();
            assert_eq!(entries.len(), 1, "{}", kernel.entry);
            let (head, _) = entries[0].split_once('{').expect("an entry has a body");
            let (name, parameters) = head.split_once('(').expect("an entry has parameters");
            assert_eq!(name, kernel.entry);
            assert_eq!(parameters.matches(".param .u64").count(), kernel.parameters, "{name}");
            assert_eq!(parameters.matches(".param").count(), kernel.parameters, "{name}: only words");
            assert!(kernel.ptx.ends_with('\0'), "{name}");
        }
    }

    #[test]
    fn every_file_is_a_kernel() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels");
        let files: HashSet<String> = std::fs::read_dir(folder)
            .expect("the kernels' folder")
            .map(|file| file.expect("an entry of the folder").file_name().to_string_lossy().into_owned())
            .collect();
        let known = ALL.iter().chain([&HASH_BLOCKS, &WARM_UP]);
        let known: HashSet<String> = known.map(|kernel| format!("{}.ptx", kernel.entry)).collect();
        assert_eq!(files, known);
    }

    /// The first outputs of the generator known as splitmix64 for the seed 1234567.
    #[test]
    fn words_are_those_of_a_known_generator() {
        let words: Vec<u64> = (0..3).map(|index| stream(1_234_567, index)).collect();
        assert_eq!(words, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn a_whole_in_pieces_has_the_words_of_the_whole() {
        let whole: Vec<u64> = (0..100).map(|index| rewritten(0, 7, 3, index)).collect();
        let piece: Vec<u64> = (0..40).map(|index| rewritten(60, 7, 3, index)).collect();
        assert_eq!(whole[60..], piece);
        let distinct: HashSet<u64> = whole.iter().copied().collect();
        assert_eq!(distinct.len(), whole.len());
        assert!((0..100).all(|index| rewritten(0, 7, 4, index) != whole[index as usize]));
    }

    #[test]
    fn the_checksum_of_what_is_rewritten_is_that_of_its_words() {
        for (count, first) in [(0, 0), (1, 0), (100, 17), (100, u64::MAX - 3)] {
            let words = (0..count).map(|index| rewritten(first, 7, 3, index));
            assert_eq!(
                Checksum::of_rewritten(count, first, 7, 3),
                Checksum::of(words),
                "{count} from {first}"
            );
        }
    }

    #[test]
    fn a_checksum_sees_a_change_and_an_exchange() {
        let words = [5, 6, 7, 8];
        let sum = Checksum::of(words);
        assert_eq!(sum.plain, 26);
        assert_ne!(Checksum::of([5, 6, 7, 9]), sum);
        let exchanged = Checksum::of([6, 5, 7, 8]);
        assert_eq!(exchanged.plain, sum.plain);
        assert_ne!(exchanged.mixed, sum.mixed);
        let backwards =
            (0..4).rev().fold(Checksum::default(), |sum, index| sum.with(index, words[index as usize]));
        assert_eq!(backwards, sum, "any order of adding");
    }

    #[test]
    fn touches_stay_within_the_words() {
        assert_eq!(touch(0, 1, 1), None);
        let places: HashSet<u64> = (0..1000).map(|t| touch(10, 42, t).expect("there are words").0).collect();
        assert_eq!(places, (0..10).collect());
    }
}
