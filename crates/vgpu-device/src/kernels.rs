//! What runs on the compute engine: native equivalents of the kernels in `kernels/*.ptx`, memsets, copies on the device.
//!
//! Each is a step function: it is given device time, does what fits into it, and can be left alone at any step for as
//! long as one likes. Every touch is checked. A new kernel in `kernels/` needs a line in [`native`] and a type here.

mod chain;
mod hash;
mod pace;
mod rows;
mod waits;
mod words;

pub use chain::{Beat, NoOp, Spin, Stuck};
pub use pace::Pace;
pub use rows::{DeviceCopy, Set};

use std::fmt::Debug;

use vgpu_messages::Spec;
use vgpu_messages::quantity::Nanos;

use crate::space::touch::{Fault, Touch};

/// Whether a step was the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is more to do.
    More,
    /// It has ended.
    Done,
}

/// Something that runs on the compute engine.
pub trait Kernel: Debug {
    /// Runs for `time`, until `now` on the device's clock.
    fn run(&mut self, time: Nanos, now: Nanos, memory: &mut Touch<'_>) -> Result<Step, Fault>;

    /// The time it still takes if it has the engine for itself; None if that depends on others.
    fn remaining(&self, now: Nanos) -> Option<Nanos>;

    /// It uses the whole engine, and so runs slower beside others of its group. Otherwise it is a thread or so.
    fn is_heavy(&self) -> bool;

    /// The longest step that one should take at a time, to keep steps short for the CPU.
    fn longest_step(&self) -> Nanos;
}

/// How long a kernel takes that does nothing.
const WARM_UP: Nanos = Nanos(2_000);

/// Makes a kernel of its parameters.
type Maker = fn(&Arguments<'_>, &Spec) -> Box<dyn Kernel>;

/// The kernels that have a native equivalent, by name, with the number of 64-bit parameters each takes.
const NATIVE: [(&str, usize, Maker); 12] = [
    ("heartbeat", 3, |a, spec| Box::new(Beat::new(a.word(0), a.word(1), a.word(2), spec.compute_rate))),
    ("fill", 3, |a, spec| words::fill(a.word(0), a.word(1), a.word(2), spec.memory_rate)),
    ("rewrite", 5, |a, spec| {
        words::rewrite(a.word(0), a.word(1), a.word(2), a.word(3), a.word(4), spec.memory_rate)
    }),
    ("add", 4, |a, spec| words::add(a.word(0), a.word(1), a.word(2), a.word(3), spec.memory_rate)),
    ("checksum", 3, |a, spec| words::checksum(a.word(0), a.word(1), a.word(2), spec.memory_rate)),
    ("copy_words", 3, |a, spec| words::copy(a.word(0), a.word(1), a.word(2), spec.memory_rate)),
    ("hash_blocks", 4, |a, spec| {
        hash::hash_blocks(a.word(0), a.word(1), a.word(2), a.word(3), spec.memory_rate)
    }),
    ("increment", 4, |a, spec| words::increment(a.word(0), a.word(1), a.word(2), a.word(3), spec)),
    ("touch_random", 4, |a, spec| words::touch_random(a.word(0), a.word(1), a.word(2), a.word(3), spec)),
    ("spin", 2, |a, spec| Box::new(Spin::new(a.word(0), a.word(1), spec.compute_rate))),
    ("warm_up", 0, |_, _| Box::new(NoOp::new(WARM_UP))),
    ("wait_for_peer", 4, |a, _| {
        Box::new(waits::WaitForPeer::new(a.word(0), a.word(1), a.word(2), a.word(3)))
    }),
];

/// The native equivalent of an entry: by its name, if its parameters are those that are expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Native(usize);

/// Finds it.
pub fn native(name: &str, parameters: &[(u32, u32)]) -> Option<Native> {
    let index = NATIVE.iter().position(|(known, _, _)| *known == name)?;
    let as_expected = parameters.len() == NATIVE[index].1
        && parameters.iter().enumerate().all(|(at, &place)| place == (8 * at as u32, 8));
    as_expected.then_some(Native(index))
}

impl Native {
    /// A launch of it.
    pub fn start(self, parameters: &[u8], spec: &Spec) -> Box<dyn Kernel> {
        NATIVE[self.0].2(&Arguments(parameters), spec)
    }
}

/// Parameter bytes of a launch, all of them 64-bit words.
struct Arguments<'a>(&'a [u8]);

impl Arguments<'_> {
    fn word(&self, at: usize) -> u64 {
        // Their number was checked at launch.
        u64::from_le_bytes(self.0[8 * at..8 * at + 8].try_into().expect("eight bytes"))
    }
}
