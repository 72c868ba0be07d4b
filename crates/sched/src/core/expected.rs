//! Who was sent to a GPU and has not come yet. Programs take a while from their start to their first call, and whoever is
//! placed meanwhile must not be sent to the same GPU because it looks empty.
//!
//! It is a guess: a program may never come, or come elsewhere. So it counts for placement only, and not for long.

use super::Core;
use crate::{Bytes, GpuId, JobId, Span, Time};

/// How long somebody who was sent to a GPU may take: programs that load much before their first call do.
const WITHIN: Span = Span::from_secs(60);

/// As many are remembered; of more, the first are forgotten.
const EXPECTED_MAX: usize = 4_096;

/// Someone who was sent to a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Expected {
    job: JobId,
    gpu: GpuId,
    /// What it will have there, its context included, as far as is known.
    bytes: Bytes,
    /// After that it is not expected any more.
    pub(super) until: Time,
}

impl Core {
    /// A job was sent to these.
    pub(super) fn expect(&mut self, job: JobId, gpus: &[GpuId], bytes: Bytes) {
        self.forget_late();
        let until = self.now + WITHIN;
        self.expected.extend(gpus.iter().map(|&gpu| Expected { job, gpu, bytes, until }));
        let surplus = self.expected.len().saturating_sub(EXPECTED_MAX);
        self.expected.drain(..surplus);
    }

    /// Someone of a job came to a GPU.
    pub(super) fn came(&mut self, job: JobId, gpu: GpuId) {
        let first = self.expected.iter().position(|expected| (expected.job, expected.gpu) == (job, gpu));
        if let Some(first) = first {
            self.expected.remove(first);
        }
    }

    /// Nobody of a job comes any more.
    pub(super) fn expect_none_of(&mut self, job: JobId) {
        self.expected.retain(|expected| expected.job != job);
    }

    /// How many are on their way to a GPU, and what they will have there.
    pub(super) fn expected_on(&self, gpu: GpuId) -> (u32, Bytes) {
        let coming = self.expected.iter().filter(|expected| expected.gpu == gpu && expected.until > self.now);
        coming.fold((0, Bytes::ZERO), |(count, sum), expected| (count + 1, sum + expected.bytes))
    }

    /// Those who should have come long ago are not expected any more.
    pub(super) fn forget_late(&mut self) {
        let now = self.now;
        self.expected.retain(|expected| expected.until > now);
    }
}
