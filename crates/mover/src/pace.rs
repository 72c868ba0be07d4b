//! How fast copies go, and what does it: lanes on which copies may wait.
//!
//! **Gently**, while somebody latency-critical has work: copies are cut into short pieces, and a lane has one of them under way
//! at a time; the next is started when somebody looks and finds it done. So a copy of somebody else waits for some 40 us at
//! most, and between two pieces the bus is free for as long as a look takes to come. Otherwise everything goes to the device at
//! once.
//!
//! Marks are numbered here, as one may be set behind copies that the device does not have yet.

use crate::device::{Device, DeviceError, Lane, Mark};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A short piece: 40 us of the bus.
pub(crate) const PIECE_BYTES: u64 = 2 << 20;

/// The longest single copy.
pub(crate) const COPY_BYTES_MAX: u64 = 16 << 20;

/// How long single copies out are, and how much of them is started ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    /// Of each, usually.
    pub(crate) usual_bytes: u64,
    /// Of each, where copies in fall behind. Between two copies of a lane the other one has the bus for itself, and the shorter they
    /// are, the more often that is: with these out, copies in are a twentieth faster than with long ones, and those out as much
    /// slower.
    pub(crate) short_bytes: u64,
    /// Of all that are started. What is started stays as long as it was: 20 ms, for which nobody can change his mind, but also need
    /// not be there.
    pub(crate) ahead_bytes: u64,
}

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths { usual_bytes: COPY_BYTES_MAX, short_bytes: 4 << 20, ahead_bytes: 1 << 30 }
    }
}

/// The pieces of a copy, none longer than that: offset and size of each.
pub(crate) fn pieces(bytes: u64, longest: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes).step_by(longest as usize).map(move |at| (at, longest.min(bytes - at)))
}

/// Failures that are remembered for marks that nobody has looked at.
const FAILURES_MAX: usize = 64;

/// Says how fast copies go, from any thread. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Pace(Arc<AtomicBool>);

impl Pace {
    /// Somebody is here whose copies must not wait, or is not.
    pub fn be_gentle(&self, yes: bool) {
        self.0.store(yes, Ordering::Relaxed);
    }

    /// Whether copies go gently.
    pub fn is_gentle(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A device whose copies may wait. All calls mean what they mean there.
#[derive(Debug)]
pub(crate) struct Paced<D: Device> {
    device: D,
    pace: Pace,
    out: Line<D::Target>,
    into: Line<D::Target>,
}

/// What waits on a lane, and what the device has of it.
#[derive(Debug)]
struct Line<T> {
    waiting: VecDeque<Item<T>>,
    marks_set: u64,
    marks_passed: u64,
    /// Marks that the device has, each with its own.
    started: VecDeque<(u64, Mark)>,
    /// Behind the one piece that is under way.
    piece: Option<Mark>,
    /// Marks, from the first to the last, before which something could not be started.
    failures: VecDeque<(u64, u64, DeviceError)>,
    /// The last mark of those that are remembered no more. Nobody can tell any more which ones up to it have passed.
    forgotten: Option<(u64, DeviceError)>,
}

#[derive(Debug)]
enum Item<T> {
    Copy(Copy<T>),
    Zero { target: T, offset: u64, bytes: u64 },
    Mark(u64),
}

/// The host's side is an address, as whoever starts it answers for it until a mark behind it has passed.
#[derive(Debug)]
struct Copy<T> {
    target: T,
    offset: u64,
    host: usize,
    bytes: u64,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Line {
            waiting: VecDeque::new(),
            marks_set: 0,
            marks_passed: 0,
            started: VecDeque::new(),
            piece: None,
            failures: VecDeque::new(),
            forgotten: None,
        }
    }
}

impl<T> Line<T> {
    /// Nothing that waits here happens any more, and the marks behind it do not pass.
    fn fail(&mut self, error: DeviceError) {
        let marks = self.waiting.drain(..).filter_map(|item| match item {
            Item::Mark(number) => Some(number),
            _ => None,
        });
        let Some(first) = marks.min() else { return };
        self.failures.push_back((first, self.marks_set, error));
        if self.failures.len() > FAILURES_MAX
            && let Some((_, last, error)) = self.failures.pop_front()
        {
            self.forgotten = Some((last, error));
        }
    }

    fn failure(&self, number: u64) -> Option<&DeviceError> {
        let failed = |(first, last, _): &&(u64, u64, DeviceError)| (*first..=*last).contains(&number);
        let forgotten = self.forgotten.as_ref().filter(|(last, _)| number <= *last).map(|(_, error)| error);
        self.failures.iter().find(failed).map(|(_, _, error)| error).or(forgotten)
    }
}

impl<D: Device> Paced<D> {
    pub(crate) fn new(device: D) -> Paced<D> {
        Paced { device, pace: Pace::default(), out: Line::default(), into: Line::default() }
    }

    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    pub(crate) fn device(&self) -> &D {
        &self.device
    }

    /// The device itself: not for copies and marks.
    pub(crate) fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Starts a copy between a memory and the host, on a lane of copies. Where that fails, so does all that has no mark behind
    /// it yet: there may be several before the last one of a handle, and none of them could tell.
    ///
    /// # Safety
    /// As for [`Device::copy_out`] and [`Device::copy_in`].
    pub(crate) unsafe fn copy(
        &mut self,
        lane: Lane,
        memory: &D::Memory,
        offset: u64,
        host: *mut u8,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        let target = self.device.target(memory);
        let is_gentle = self.pace.is_gentle();
        let (device, line) = self.split(lane);
        if !is_gentle && line.waiting.is_empty() {
            // SAFETY: as promised for this.
            return unsafe { start(device, lane, &Copy { target, offset, host: host as usize, bytes }) };
        }
        for (at, length) in pieces(bytes, PIECE_BYTES) {
            let (target, host) = (target.clone(), host as usize + at as usize);
            line.waiting.push_back(Item::Copy(Copy { target, offset: offset + at, host, bytes: length }));
        }
        self.pump(lane, is_gentle)
    }

    /// As [`Device::zero`].
    pub(crate) fn zero(&mut self, memory: &D::Memory, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let target = self.device.target(memory);
        if self.into.waiting.is_empty() {
            return self.device.zero(&target, offset, bytes);
        }
        self.into.waiting.push_back(Item::Zero { target, offset, bytes });
        Ok(())
    }

    /// As [`Device::mark`], for lanes of copies.
    pub(crate) fn mark(&mut self, lane: Lane) -> Result<Mark, DeviceError> {
        let (device, line) = self.split(lane);
        let number = line.marks_set + 1;
        match line.waiting.is_empty() {
            true => line.started.push_back((number, device.mark(lane)?)),
            false => line.waiting.push_back(Item::Mark(number)),
        }
        line.marks_set = number;
        Ok(Mark { lane, number })
    }

    /// As [`Device::passed`]; and goes on with what waits.
    pub(crate) fn passed(&mut self, mark: Mark) -> Result<bool, DeviceError> {
        if mark.lane == Lane::Hash {
            return self.device.passed(mark);
        }
        let is_gentle = self.pace.is_gentle();
        // The marks behind what fails tell.
        let _ = self.pump(mark.lane, is_gentle);
        let (device, line) = self.split(mark.lane);
        if let Some(error) = line.failure(mark.number) {
            return Err(error.clone());
        }
        if mark.number <= line.marks_passed {
            return Ok(true);
        }
        let Some(&(number, its)) = line.started.iter().find(|(number, _)| *number >= mark.number) else {
            return Ok(false);
        };
        if !device.passed(its)? {
            return Ok(false);
        }
        line.marks_passed = number;
        line.started.retain(|(other, _)| *other > number);
        Ok(true)
    }

    /// As [`Device::drain`]: what waits is started first.
    pub(crate) fn drain(&mut self) -> Result<(), DeviceError> {
        let _ = (self.pump(Lane::Out, false), self.pump(Lane::In, false));
        self.device.drain()
    }

    fn split(&mut self, lane: Lane) -> (&mut D, &mut Line<D::Target>) {
        match lane {
            Lane::Out => (&mut self.device, &mut self.out),
            Lane::In => (&mut self.device, &mut self.into),
            Lane::Hash => unreachable!("nothing is copied there"),
        }
    }

    /// Starts what waits: one piece if none is under way, or everything. After a failure nothing waits any more.
    fn pump(&mut self, lane: Lane, is_gentle: bool) -> Result<(), DeviceError> {
        let (device, line) = self.split(lane);
        while !line.waiting.is_empty() {
            // An error shows at the mark behind the piece, too.
            if is_gentle && line.piece.is_some_and(|piece| device.passed(piece) == Ok(false)) {
                break;
            }
            line.piece = None;
            let Some(item) = line.waiting.pop_front() else { break };
            if let Err(error) = start_item(device, lane, line, item, is_gentle) {
                line.fail(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }
}

fn start_item<D: Device>(
    device: &mut D,
    lane: Lane,
    line: &mut Line<D::Target>,
    item: Item<D::Target>,
    is_gentle: bool,
) -> Result<(), DeviceError> {
    match item {
        Item::Copy(copy) => {
            // SAFETY: whoever handed it in has promised that all of it is valid until a mark behind it has passed, which
            // none has: it would wait behind this.
            unsafe { start(device, lane, &copy) }?;
            if is_gentle {
                line.piece = Some(device.mark(lane)?);
            }
        }
        Item::Zero { target, offset, bytes } => device.zero(&target, offset, bytes)?,
        Item::Mark(number) => match device.mark(lane) {
            Ok(its) => line.started.push_back((number, its)),
            Err(error) => {
                line.waiting.push_front(Item::Mark(number));
                return Err(error);
            }
        },
    }
    Ok(())
}

/// # Safety
/// As for [`Device::copy_out`] and [`Device::copy_in`].
unsafe fn start<D: Device>(device: &mut D, lane: Lane, copy: &Copy<D::Target>) -> Result<(), DeviceError> {
    let host = copy.host as *mut u8;
    // SAFETY: as promised for this.
    unsafe {
        match lane {
            Lane::Out => device.copy_out(&copy.target, copy.offset, host, copy.bytes),
            Lane::In => device.copy_in(&copy.target, copy.offset, host, copy.bytes),
            Lane::Hash => unreachable!("nothing is copied there"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda::CUresult;

    #[test]
    fn pieces_of_a_copy_cover_all_of_it() {
        assert_eq!(pieces(0, 4).count(), 0);
        assert_eq!(pieces(4, 4).collect::<Vec<_>>(), [(0, 4)]);
        assert_eq!(pieces(9, 4).collect::<Vec<_>>(), [(0, 4), (4, 4), (8, 1)]);
    }

    #[test]
    fn a_mark_that_failed_never_passes_however_many_fail_after_it() {
        let mut line = Line::<()>::default();
        let error = DeviceError::Call { call: "cuEventRecord", code: CUresult::OUT_OF_MEMORY };
        for _ in 0..3 * FAILURES_MAX {
            // One that passes, and one that does not.
            line.marks_set += 2;
            line.waiting.push_back(Item::Mark(line.marks_set));
            line.fail(error.clone());
        }
        assert_eq!(line.failures.len(), FAILURES_MAX);
        for failed in (2..=line.marks_set).step_by(2) {
            assert_eq!(line.failure(failed), Some(&error), "{failed}");
        }
        assert_eq!(line.failure(line.marks_set - 1), None, "it is remembered that this one passed");
        assert_eq!(line.failure(line.marks_set + 1), None);
    }
}
