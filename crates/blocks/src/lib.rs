//! The hash of blocks: which blocks of a handle differ from their copy in the arena, and which are all zero.
//!
//! - [`seed`]: 32 random bytes, of which everything else follows. [`key`]: what they expand to.
//! - [`hash`]: the hash itself, on the host. [`launch`]: the same on a GPU, by `hash_blocks.ptx`.
//! - [`copy`]: what else that needs of a GPU, by `copy_words.ptx`.
//! - [`changed`]: what to do with each block, by its hash then and now.
//!
//! A block whose hash is the same as that of its copy is taken for the same block: **two different blocks with one
//! hash lose a tenant's data**. So the hash is not one that is merely known to behave well; for this one it is
//! proved how seldom that happens. And because zero blocks are not stored at all, they are told exactly, by looking
//! at every word, and not by their hash. Nothing here calls a GPU, has a clock, or decides what is hashed when.
//!
//! # What is computed
//! A block has 32 parts of 64 KiB (16384 words `w` of 32 bits). Each is hashed four times, to 64 bits, by the same
//! key `k`, which is moved on by 1024 words from one pass to the next (a part has 16 rows of 1024 words; the key
//! has 19):
//!
//! ```text
//! N[part][p] = sum over even i of (w[i] + k[i + 1024 p] mod 2^32) * (w[i+1] + k[i+1 + 1024 p] mod 2^32)   mod 2^64
//! ```
//!
//! These 128 sums, as 256 words `v` of 32 bits, are then hashed to four times 32 bits, by keys of 64 bits:
//!
//! ```text
//! H[j] = (c[j] + sum over n of v[n] * m[n][j]   mod 2^64) / 2^32
//! ```
//!
//! The first is known as NH with a Toeplitz key (from UMAC), the second as multilinear hashing. `k`, `m` and `c`
//! are 84 KiB of ChaCha20's output for the seed.
//!
//! # Two different blocks have the same hash with a probability of at most 2^-127
//! Over the choice of the key, whatever the two blocks are, as long as whoever made them does not know the key.
//!
//! **First level: two different parts have the same four sums with a probability of at most 2^-128.** Words i and
//! i+1 with an even i are a pair. Pairs that are the same in both parts add the same to both sums. Let the pair at l
//! be the last in which the parts differ, say in its first word, and look at pass p. There that pair has the key
//! words `k[l + 1024 p]` and `K = k[l+1 + 1024 p]`. Other pairs that differ come before it, so they do not have K in
//! this pass, and nothing that differs has it in an earlier one. Fix all words of the key before K: that decides the
//! earlier passes, and the two sums of this one are equal only if
//!
//! ```text
//! a * (y + K mod 2^32) - b * (z + K mod 2^32) = d   mod 2^64,   a, b, y, z, d fixed
//! ```
//!
//! a and b differ: they are two different words plus the same key word. At most one K does that. Suppose two did, K
//! and K + e, 0 < e < 2^32. From one to the other each bracket grows by e, or by e - 2^32 where it wraps.
//! - If both do the same, `(a - b) * e` or `(a - b) * (e - 2^32)` is 0 mod 2^64. But it is not 0, and its size is below
//!   2^64.
//! - If only the second wraps, `a * e + b * (2^32 - e)` is 0 mod 2^64; if only the first, the same with a and b
//!   exchanged. But it is above 0, because a and b are not both 0, and below 2^32 * 2^32.
//!
//! So each pass has at most one K in 2^32, whatever came of the passes before it. If the pair differs in its second
//! word only, exchange the roles of its words: `k[l + 1024 p]` has not been used before either.
//!
//! **Second level: two different lists of words have the same four H with a probability of 2^-128.** Let them differ
//! in word n, by d, and take one j. Fix all its keys but c and the m of that word. The two sums differ by D, which is
//! `d * m` plus something fixed. d is an odd number times 2^t with t < 32, so D is uniform over all numbers with
//! certain lower t bits; so its upper half is uniform, whatever its lower half is. c makes one of the sums uniform and
//! independent of D. The upper halves of the sums are equal if that of D is 0, or -1 where the lower halves borrow: one
//! value in 2^32. Each j has keys of its own.
//!
//! Two blocks that differ, differ in some part. Either that part's sums are the same, or lists that differ have the
//! same H: 2^-128 + 2^-128. A GPU of 141 GB that is hashed completely once a second for a hundred years does 2^48
//! comparisons.
//!
//! What is proved holds for a random key. Here the key comes out of ChaCha20: whoever finds blocks that collide
//! more often than that has told its output from random numbers. It is not a signature: programs never see hashes,
//! and whoever knows the seed can make blocks that collide, so the seed stays inside the daemon.

pub mod changed;
pub mod copy;
pub mod hash;
pub mod key;
pub mod launch;
pub mod seed;

pub use changed::{Changed, ChangedError};
pub use hash::{BlockHash, Sums, SumsError};
pub use key::{DeviceKey, Key, KeyError};
pub use launch::{DeviceAddresses, Launch};
pub use seed::{Seed, SeedError};

/// A block: the unit of hashing.
pub const BLOCK_BYTES: usize = 2 << 20;

/// The bytes of a block.
pub type Block = [u8; BLOCK_BYTES];

/// What one block of threads hashes of a block: every fourth row of it belongs to the same part.
pub const STRIP_BYTES: usize = BLOCK_BYTES / STRIPS;

/// The bytes of a strip.
pub type Strip = [u8; STRIP_BYTES];

/// How many strips a block has.
pub const STRIPS: usize = 8;

/// Parts of a strip.
const STRIP_PARTS: usize = 4;
/// Rows of a part.
const PART_ROWS: usize = 16;
/// Pairs of 32-bit words in a row, each as one word of 64 bits.
const ROW_PAIRS: usize = 512;
/// How often a part is hashed.
const PASSES: usize = 4;
/// Words of 32 bits that a hash has.
const OUTPUTS: usize = 4;
/// Words of the second level's key for one part.
const PART_MIXERS: usize = PASSES * 2 * OUTPUTS;
