//! Kernels over rows of 64-bit words. They share one shape: so many places, each done once, in order.

use std::fmt::Debug;
use std::ops::Range;

use vgpu_messages::Spec;
use vgpu_messages::quantity::{Nanos, Rate};

use super::{Kernel, Pace, Step};
use crate::space::touch::{Fault, Touch, aligned};

/// Words that are read or written in one go.
const BATCH_WORDS: u64 = 8192;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The mixing function of `rewrite.ptx`.
#[inline]
pub(super) fn mix(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What is done with places.
pub(super) trait Places: Debug {
    /// Does these places: at most [`BATCH_WORDS`].
    fn places(&mut self, range: Range<u64>, memory: &mut Touch<'_>) -> Result<(), Fault>;
    /// After all of them.
    fn finish(&mut self, _memory: &mut Touch<'_>) -> Result<(), Fault> {
        Ok(())
    }
}

/// A kernel over places.
#[derive(Debug)]
pub(super) struct Over<P> {
    pace: Pace,
    unit: u64,
    done: u64,
    count: u64,
    places: P,
}

impl<P: Places + 'static> Over<P> {
    /// `unit`: the bytes that each place touches.
    pub(super) fn boxed(count: u64, unit: u64, rate: Rate, places: P) -> Box<dyn Kernel> {
        let pace = Pace::new(count.saturating_mul(unit), rate);
        Box::new(Self { pace, unit, done: 0, count, places })
    }
}

impl<P: Places> Kernel for Over<P> {
    fn run(&mut self, time: Nanos, _now: Nanos, memory: &mut Touch<'_>) -> Result<Step, Fault> {
        let due = self.pace.advance(time).end;
        let over = self.pace.is_over();
        let end = if over { self.count } else { (due / self.unit).min(self.count) };
        while self.done < end {
            let next = end.min(self.done + BATCH_WORDS);
            self.places.places(self.done..next, memory)?;
            self.done = next;
        }
        if !over {
            return Ok(Step::More);
        }
        self.places.finish(memory)?;
        Ok(Step::Done)
    }

    fn remaining(&self, _now: Nanos) -> Option<Nanos> {
        Some(self.pace.remaining())
    }

    fn is_heavy(&self) -> bool {
        true
    }

    fn longest_step(&self) -> Nanos {
        self.pace.longest_step()
    }
}

fn at(base: u64, index: u64) -> Result<u64, Fault> {
    let address = base.wrapping_add(index.wrapping_mul(8));
    aligned(address).map(|()| address)
}

fn load(memory: &mut Touch<'_>, base: u64, range: &Range<u64>) -> Result<Vec<u64>, Fault> {
    let mut words = Vec::with_capacity((range.end - range.start) as usize);
    look(memory, base, range, |_, piece| words.extend(words_of(piece)))?;
    Ok(words)
}

fn words_of(words: &[[u8; 8]]) -> impl Iterator<Item = u64> + '_ {
    words.iter().map(|word| u64::from_le_bytes(*word))
}

/// Shows words in memory, many at a time: each piece with the place of its first.
fn look(
    memory: &mut Touch<'_>,
    base: u64,
    range: &Range<u64>,
    mut at_words: impl FnMut(u64, &[[u8; 8]]),
) -> Result<(), Fault> {
    // A word that two pieces share.
    let mut split = Vec::with_capacity(8);
    memory.look(at(base, range.start)?, 8 * (range.end - range.start), |before, piece| {
        let place = range.start + before / 8;
        let missing = (8 - split.len()) % 8;
        let (first, piece) = piece.split_at(missing.min(piece.len()));
        split.extend_from_slice(first);
        if split.len() == 8 {
            at_words(place, split.as_chunks().0);
            split.clear();
        }
        let (whole, last) = piece.as_chunks();
        if !whole.is_empty() {
            at_words(range.start + before.div_ceil(8), whole);
        }
        split.extend_from_slice(last);
    })
}

fn store(
    memory: &mut Touch<'_>,
    base: u64,
    range: &Range<u64>,
    value: impl Fn(u64) -> u64,
) -> Result<(), Fault> {
    memory.fill(at(base, range.start)?, 8 * (range.end - range.start), |before, piece| {
        if before % 8 != 0 || piece.len() % 8 != 0 {
            // A word that two pieces share.
            for (place, byte) in (before..).zip(piece) {
                *byte = value(range.start + place / 8).to_le_bytes()[(place % 8) as usize];
            }
            return;
        }
        // Word by word, not byte by byte: tests of whole systems spend much of their time here.
        for (word, place) in piece.as_chunks_mut::<8>().0.iter_mut().zip(range.start + before / 8..) {
            *word = value(place).to_le_bytes();
        }
    })
}

#[derive(Debug)]
struct Rewrite {
    words: u64,
    key: u64,
}

impl Places for Rewrite {
    fn places(&mut self, range: Range<u64>, memory: &mut Touch<'_>) -> Result<(), Fault> {
        let key = self.key;
        store(memory, self.words, &range, |i| mix(key.wrapping_add(GOLDEN.wrapping_mul(i.wrapping_add(1)))))
    }
}

pub(super) fn rewrite(
    words: u64,
    count: u64,
    first: u64,
    seed: u64,
    step: u64,
    rate: Rate,
) -> Box<dyn Kernel> {
    let key = mix(seed.wrapping_add(GOLDEN.wrapping_mul(step))).wrapping_add(GOLDEN.wrapping_mul(first));
    Over::boxed(count, 8, rate, Rewrite { words, key })
}

#[derive(Debug)]
struct Fill {
    words: u64,
    value: u64,
}

impl Places for Fill {
    fn places(&mut self, range: Range<u64>, memory: &mut Touch<'_>) -> Result<(), Fault> {
        let value = self.value;
        store(memory, self.words, &range, |_| value)
    }
}

pub(super) fn fill(words: u64, count: u64, value: u64, rate: Rate) -> Box<dyn Kernel> {
    Over::boxed(count, 8, rate, Fill { words, value })
}

#[derive(Debug)]
struct Add {
    sums: u64,
    left: u64,
    right: u64,
}

impl Places for Add {
    fn places(&mut self, range: Range<u64>, memory: &mut Touch<'_>) -> Result<(), Fault> {
        let left = load(memory, self.left, &range)?;
        let right = load(memory, self.right, &range)?;
        let place = |i: u64| (i - range.start) as usize;
        store(memory, self.sums, &range, |i| left[place(i)].wrapping_add(right[place(i)]))
    }
}

pub(super) fn add(sums: u64, left: u64, right: u64, count: u64, rate: Rate) -> Box<dyn Kernel> {
    Over::boxed(count, 24, rate, Add { sums, left, right })
}

#[derive(Debug)]
struct Copy {
    to: u64,
    from: u64,
}

impl Places for Copy {
    fn places(&mut self, range: Range<u64>, memory: &mut Touch<'_>) -> Result<(), Fault> {
        let words = load(memory, self.from, &range)?;
        store(memory, self.to, &range, |i| words[(i - range.start) as usize])
    }
}

pub(super) fn copy(to: u64, from: u64, count: u64, rate: Rate) -> Box<dyn Kernel> {
    Over::boxed(count, 16, rate, Copy { to, from })
}

#[derive(Debug)]
struct Checksum {
    words: u64,
    sums: u64,
    any: bool,
    plain: u64,
    mixed: u64,
}

impl Places for Checksum {
    fn places(&mut self, range: Range<u64>, memory: &mut Touch<'_>) -> Result<(), Fault> {
        let (mut plain, mut mixed) = (0u64, 0);
        look(memory, self.words, &range, |place, words| {
            let mut salt = GOLDEN.wrapping_mul(place.wrapping_add(1));
            for word in words_of(words) {
                plain = plain.wrapping_add(word);
                mixed ^= mix(word.wrapping_add(salt));
                salt = salt.wrapping_add(GOLDEN);
            }
        })?;
        self.plain = self.plain.wrapping_add(plain);
        self.mixed ^= mixed;
        self.any = true;
        Ok(())
    }

    fn finish(&mut self, memory: &mut Touch<'_>) -> Result<(), Fault> {
        if !self.any {
            return Ok(());
        }
        let (first, second) = (memory.word(self.sums)?, memory.word(self.sums.wrapping_add(8))?);
        memory.set_word(self.sums, first.wrapping_add(self.plain))?;
        memory.set_word(self.sums.wrapping_add(8), second ^ self.mixed)
    }
}

pub(super) fn checksum(words: u64, count: u64, sums: u64, rate: Rate) -> Box<dyn Kernel> {
    Over::boxed(count, 8, rate, Checksum { words, sums, any: false, plain: 0, mixed: 0 })
}

#[derive(Debug)]
struct TouchRandom {
    words: u64,
    count: u64,
    seed: u64,
}

impl Places for TouchRandom {
    fn places(&mut self, range: Range<u64>, memory: &mut Touch<'_>) -> Result<(), Fault> {
        for t in range {
            let x = mix(self.seed.wrapping_add(GOLDEN.wrapping_mul(t + 1)));
            let i = ((u128::from(x) * u128::from(self.count)) >> 64) as u64;
            let address = at(self.words, i)?;
            let word = memory.word(address)?;
            memory.set_word(address, word.wrapping_add(mix(x)))?;
        }
        Ok(())
    }
}

/// A touch costs a sector each way.
const TOUCH_BYTES: u64 = 64;

pub(super) fn touch_random(words: u64, count: u64, seed: u64, touches: u64, spec: &Spec) -> Box<dyn Kernel> {
    let touches = if count == 0 { 0 } else { touches };
    Over::boxed(touches, TOUCH_BYTES, spec.memory_rate, TouchRandom { words, count, seed })
}

/// Place `p` of all rounds together is word `p % count` in round `p / count`.
#[derive(Debug)]
struct Increment {
    words: u64,
    count: u64,
    heartbeat: u64,
}

impl Places for Increment {
    fn places(&mut self, range: Range<u64>, memory: &mut Touch<'_>) -> Result<(), Fault> {
        let mut place = range.start;
        while place < range.end {
            let (round, first) = (place / self.count, place % self.count);
            let words = first..self.count.min(first + (range.end - place));
            let before = load(memory, self.words, &words)?;
            store(memory, self.words, &words, |i| before[(i - words.start) as usize].wrapping_add(1))?;
            if words.end == self.count && self.heartbeat != 0 {
                memory.set_word(self.heartbeat, round + 1)?;
            }
            place += words.end - words.start;
        }
        Ok(())
    }
}

/// No words: only the heartbeat goes up.
#[derive(Debug)]
struct EmptyRounds {
    heartbeat: u64,
}

impl Places for EmptyRounds {
    fn places(&mut self, range: Range<u64>, memory: &mut Touch<'_>) -> Result<(), Fault> {
        if self.heartbeat == 0 { Ok(()) } else { memory.set_word(self.heartbeat, range.end) }
    }
}

pub(super) fn increment(words: u64, count: u64, rounds: u64, heartbeat: u64, spec: &Spec) -> Box<dyn Kernel> {
    if count == 0 {
        return Over::boxed(rounds, 1, spec.compute_rate, EmptyRounds { heartbeat });
    }
    Over::boxed(count.saturating_mul(rounds), 16, spec.memory_rate, Increment { words, count, heartbeat })
}
