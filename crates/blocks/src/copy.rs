//! How places go to a GPU and sums come back: a kernel copies them, from and to pinned host memory.
//!
//! A copy engine would have them wait behind what is being moved, and what is being moved wait for them.

/// The kernel's name. Its parameters are a word each: to, from, how many words.
pub const ENTRY: &str = "copy_words";

/// The module that holds it: PTX that ends with a NUL, as the driver wants it.
pub const PTX: &str = concat!(include_str!("../../../kernels/copy_words.ptx"), "\0");

/// Threads of a block of threads. The kernel takes no other number.
pub const THREADS: u32 = 256;

/// The grid for so many words, along x. A grid is at least 1, also for none.
pub fn grid(words: usize) -> u32 {
    words.div_ceil(THREADS as usize).max(1) as u32
}
