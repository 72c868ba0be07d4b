//! The project's kernels compute what they say, in any shape.

use std::sync::atomic::{AtomicU64, Ordering};

use cuda::types::CUstream;

use super::{Check, check};
use crate::bench::Bench;
use crate::kernels::{
    ADD, CHECKSUM, Checksum, FILL, HEARTBEAT, INCREMENT, Kernel, PEER_CAME, PEER_LATE, REWRITE, SPIN,
    TOUCH_RANDOM, WAIT_FOR_PEER, rewritten, touch,
};

/// Shapes from one thread to more threads than words.
const SHAPES: [(u32, u32); 4] = [(1, 1), (3, 33), (8, 128), (64, 1024)];
/// Words that no shape divides.
const COUNT: u64 = 10_007;

/// Runs a kernel in every shape on the same input and says whether each gave the expected words.
fn in_every_shape(
    b: &Bench,
    kernel: Kernel,
    input: &[u64],
    expected: &[u64],
    parameters: impl Fn(u64) -> Vec<u64>,
) {
    let memory = b.alloc(input.len() * 8);
    let bytes: Vec<u8> = input.iter().flat_map(|word| word.to_le_bytes()).collect();
    for shape in SHAPES {
        b.write(memory, &bytes);
        let parameters = parameters(memory.0);
        b.expect("launch", b.launch_function(b.function(kernel), shape, CUstream::NULL, &parameters));
        b.synchronize();
        b.say(if b.read_words(memory, expected.len()) == expected { "right" } else { "wrong" });
    }
    b.free(memory);
}

fn words(seed: u64, count: u64) -> Vec<u64> {
    (0..count).map(|index| rewritten(0, seed, 0, index)).collect()
}

pub(super) const CHECKS: &[Check] = &[
    check("fill", "right right right right", |b| {
        let mut expected = vec![0x0123_4567_89ab_cdef; COUNT as usize];
        expected.push(0);
        in_every_shape(b, FILL, &[0; COUNT as usize + 1], &expected, |m| {
            vec![m, COUNT, 0x0123_4567_89ab_cdef]
        });
    }),
    check("rewrite", "right right right right", |b| {
        let expected: Vec<u64> = (0..COUNT).map(|index| rewritten(17, u64::MAX - 3, 5, index)).collect();
        in_every_shape(b, REWRITE, &[0; COUNT as usize], &expected, |m| vec![m, COUNT, 17, u64::MAX - 3, 5]);
    }),
    check("add", "right right right right", |b| {
        let input = words(1, 2 * COUNT);
        let (left, right) = input.split_at(COUNT as usize);
        let expected: Vec<u64> = left.iter().zip(right).map(|(l, r)| l.wrapping_add(*r)).collect();
        in_every_shape(b, ADD, &input, &expected, |m| vec![m, m, m + COUNT * 8, COUNT]);
    }),
    check("increment", "right right right right", |b| {
        let input = words(2, COUNT);
        let expected: Vec<u64> = input.iter().map(|word| word.wrapping_add(13)).collect();
        in_every_shape(b, INCREMENT, &input, &expected, |m| vec![m, COUNT, 13, 0]);
    }),
    check("increment with a heartbeat", "heart=25 word=25", |b| {
        let (memory, heart) = (b.alloc_with(&[0; 800]), b.pinned(8));
        b.run(INCREMENT, CUstream::NULL, &[memory.0, 100, 25, heart.as_ptr().expose_provenance() as u64]);
        b.synchronize();
        // SAFETY: eight bytes of pinned memory, aligned to a page.
        let beats = unsafe { AtomicU64::from_ptr(heart.as_mut_ptr().cast()) }.load(Ordering::SeqCst);
        b.value("heart", beats);
        b.value("word", b.read_words(memory, 100)[99]);
        b.free(memory);
        b.end_pinned(heart);
    }),
    check("checksum", "right right right right", |b| {
        let mut input = words(3, COUNT);
        let sum = Checksum::of(input.iter().copied());
        input.extend([0, 0]);
        let mut expected = input.clone();
        expected[COUNT as usize] = sum.plain;
        expected[COUNT as usize + 1] = sum.mixed;
        in_every_shape(b, CHECKSUM, &input, &expected, |m| vec![m, COUNT, m + COUNT * 8]);
    }),
    check("touch_random", "right right right right", |b| {
        let input = words(4, 1000);
        let mut expected = input.clone();
        for (index, value) in (0..COUNT).filter_map(|t| touch(1000, 99, t)) {
            let word = &mut expected[index as usize];
            *word = word.wrapping_add(value);
        }
        in_every_shape(b, TOUCH_RANDOM, &input, &expected, |m| vec![m, 1000, 99, COUNT]);
    }),
    check("nothing to do", "ok ok ok ok ok ok right=true", |b| {
        let memory = b.alloc_with(&[7; 64]);
        b.code(b.launch(FILL, CUstream::NULL, &[memory.0, 0, 1]));
        b.code(b.launch(REWRITE, CUstream::NULL, &[memory.0, 0, 1, 1, 1]));
        b.code(b.launch(INCREMENT, CUstream::NULL, &[memory.0, 8, 0, memory.0]));
        b.code(b.launch(CHECKSUM, CUstream::NULL, &[memory.0, 0, memory.0]));
        b.code(b.launch(TOUCH_RANDOM, CUstream::NULL, &[memory.0, 0, 1, 100]));
        b.code(b.cu.cuCtxSynchronize());
        b.value("right", b.read(memory, 64) == [7; 64]);
        b.free(memory);
    }),
    check("spin", "ok ok ok", |b| {
        b.code(b.launch(SPIN, CUstream::NULL, &[1000, u64::MAX]));
        b.code(b.launch(SPIN, CUstream::NULL, &[u64::MAX, 1_000_000]));
        b.code(b.cu.cuCtxSynchronize());
    }),
    check("wait_for_peer", "outcomes=1,2,2", |b| {
        let memory = b.alloc_with(&[0; 32]);
        b.run(WAIT_FOR_PEER, CUstream::NULL, &[memory.0, 0, 0, memory.0 + 8]);
        b.run(WAIT_FOR_PEER, CUstream::NULL, &[memory.0, 5, 0, memory.0 + 16]);
        b.run(WAIT_FOR_PEER, CUstream::NULL, &[memory.0, 5, 1_000_000, memory.0 + 24]);
        b.synchronize();
        let outcomes = b.read_words(memory, 4);
        assert_eq!((PEER_CAME, PEER_LATE), (1, 2));
        b.value("outcomes", format!("{},{},{}", outcomes[1], outcomes[2], outcomes[3]));
        b.free(memory);
    }),
    check("heartbeat", "limited=1000 stopped=0", |b| {
        let memory = b.alloc_with(&[0; 16]);
        b.run(HEARTBEAT, CUstream::NULL, &[memory.0, memory.0 + 8, 1000]);
        b.value("limited", b.read_words(memory, 1)[0]);
        b.write(memory, &[0, 0, 0, 0, 0, 0, 0, 0, 1]);
        b.run(HEARTBEAT, CUstream::NULL, &[memory.0, memory.0 + 8, 1000]);
        b.value("stopped", b.read_words(memory, 1)[0]);
        b.free(memory);
    }),
];
