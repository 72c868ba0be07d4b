//! The kernel that copies words, run by the interpreter.

use blocks::copy::{ENTRY, PTX, THREADS, grid};

use crate::interpreter::{Copies, Kernel, Memory};

const TO: u64 = 0x7f00_0000_0008;
const FROM: u64 = 0x1_0000;

#[test]
fn every_word_is_copied_and_nothing_beside() {
    let kernel = Kernel::parse(PTX.trim_end_matches('\0'));
    let from: Vec<u8> = (0..8 * 1000).map(|at| (at % 251) as u8).collect();
    for (words, more) in [(0, 0), (1, 0), (255, 0), (256, 0), (257, 0), (1000, 0), (600, 1)] {
        // The source ends where the copy does: reading on would panic.
        let mut memory = Memory(vec![(TO, vec![0xaa; from.len()]), (FROM, from[..8 * words].to_vec())]);
        kernel.launch(grid(words) + more, THREADS, &[TO, FROM, words as u64], &mut memory, Copies::Early);
        let (copied, beside) = memory.0[0].1.split_at(8 * words);
        assert!(copied == &from[..8 * words], "{words} words");
        assert!(beside.iter().all(|byte| *byte == 0xaa), "{words} words");
    }
}

#[test]
fn the_grid_is_as_long_as_needed() {
    assert_eq!([0, 1, 256, 257, 6 * 2048].map(grid), [1, 1, 1, 2, 48]);
}

#[test]
fn the_module_is_what_is_launched() {
    assert!(PTX.contains(&format!(".visible .entry {ENTRY}(")));
    assert!(PTX.contains(&format!(".reqntid {THREADS}, 1, 1")));
    assert!(PTX.ends_with('\0') && PTX.is_ascii());
}
