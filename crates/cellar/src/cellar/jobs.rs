//! Jobs: work that is handed over, and asked for later. A job takes one of a fixed number of places from its submission
//! until somebody has polled it, so neither what waits nor what is done can pile up.

use super::error::{GetError, PutError};
use crate::{BlockId, Ticket};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Gets that are begun before a put that waits has its turn.
const GETS_IN_A_ROW_MAX: u32 = 8;

/// The longest that somebody waits at a time.
const PATIENCE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Where a block's bytes are while it is put. Nobody may change them until it comes back.
pub type Source = Box<dyn AsRef<[u8]> + Send>;
/// Where a block's bytes go.
pub type Destination = Box<dyn AsMut<[u8]> + Send>;

/// A job's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u64);

/// All places for jobs are taken. Poll, and try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cellar has {jobs} jobs under way, and takes no more before some are done and polled")]
pub struct Busy {
    /// How many there may be.
    pub jobs: usize,
}

/// A job that was not taken, with what was to be handed over.
pub struct Refused<T> {
    /// Why.
    pub busy: Busy,
    /// Source or destination.
    pub back: T,
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("busy", &self.busy).finish_non_exhaustive()
    }
}

/// A job that is done.
pub enum Done {
    /// A put.
    Put {
        /// Which job.
        job: JobId,
        /// Which block.
        block: BlockId,
        /// As it was handed over.
        source: Source,
        /// What came of it.
        result: Result<Ticket, PutError>,
    },
    /// A get.
    Get {
        /// Which job.
        job: JobId,
        /// As it was handed over. The block is still there.
        ticket: Ticket,
        /// As it was handed over, with the block in it unless it failed.
        into: Destination,
        /// What came of it.
        result: Result<(), GetError>,
    },
}

impl Done {
    /// Which job it was.
    pub fn job(&self) -> JobId {
        match self {
            Done::Put { job, .. } | Done::Get { job, .. } => *job,
        }
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Done::Put { job, block, result, .. } => {
                let mut put = f.debug_struct("Put");
                put.field("job", job).field("block", block).field("result", result).finish_non_exhaustive()
            }
            Done::Get { job, ticket, result, .. } => {
                let mut get = f.debug_struct("Get");
                get.field("job", job).field("ticket", ticket).field("result", result).finish_non_exhaustive()
            }
        }
    }
}

/// What a job is about.
pub(super) enum Work {
    Put { block: BlockId, source: Source },
    Get { ticket: Ticket, into: Destination },
}

/// When threads are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// When nothing waits any more.
    AfterAll,
    /// With what they have in their hands.
    Now,
}

/// All jobs of a cellar.
pub(super) struct Jobs {
    places: usize,
    state: Mutex<State>,
    submitted: Condvar,
    finished: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    gets: VecDeque<(JobId, Work)>,
    puts: VecDeque<(JobId, Work)>,
    gets_in_a_row: u32,
    done: VecDeque<Done>,
    /// All that are not polled yet: waiting, in a thread's hands, or done.
    count: usize,
    closing: Option<Closing>,
    /// Those who wait for one to be done.
    #[cfg(test)]
    waiting: usize,
}

impl Jobs {
    pub(super) fn new(places: usize) -> Jobs {
        Jobs { places, state: Mutex::default(), submitted: Condvar::new(), finished: Condvar::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.state().count
    }

    pub(super) fn submit(&self, work: Work) -> Result<JobId, (Busy, Work)> {
        let mut state = self.state();
        if state.count >= self.places {
            return Err((Busy { jobs: self.places }, work));
        }
        let job = JobId(state.next);
        state.next += 1;
        state.count += 1;
        let line = if matches!(work, Work::Get { .. }) { &mut state.gets } else { &mut state.puts };
        line.push_back((job, work));
        drop(state);
        self.submitted.notify_one();
        Ok(job)
    }

    /// The next job for a thread, which waits for one. None when it is to end.
    pub(super) fn next(&self) -> Option<(JobId, Work)> {
        let mut state = self.state();
        loop {
            if state.closing == Some(Closing::Now) {
                return None;
            }
            if let Some(next) = state.pop() {
                return Some(next);
            }
            if state.closing.is_some() {
                return None;
            }
            state = self.submitted.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn finish(&self, done: Done) {
        self.state().done.push_back(done);
        self.finished.notify_one();
    }

    pub(super) fn poll(&self) -> Option<Done> {
        self.take_done(&mut self.state())
    }

    pub(super) fn wait(&self, patience: Duration) -> Option<Done> {
        let until = Instant::now() + patience.min(PATIENCE_MAX);
        let mut state = self.state();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !state.done.is_empty() || state.count == 0 || left.is_zero() {
                return self.take_done(&mut state);
            }
            #[cfg(test)]
            (state.waiting += 1);
            state = self.finished.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            #[cfg(test)]
            (state.waiting -= 1);
        }
    }

    pub(super) fn close(&self, closing: Closing) {
        self.state().closing.get_or_insert(closing);
        self.submitted.notify_all();
    }

    /// Whether threads are to end.
    #[cfg(test)]
    pub(super) fn is_closing(&self) -> bool {
        self.state().closing.is_some()
    }

    fn take_done(&self, state: &mut State) -> Option<Done> {
        let done = state.done.pop_front()?;
        state.count -= 1;
        if state.count == 0 {
            // Others who wait have nothing to wait for any more.
            self.finished.notify_all();
        }
        Some(done)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn pop(&mut self) -> Option<(JobId, Work)> {
        let put_is_due = self.gets_in_a_row >= GETS_IN_A_ROW_MAX && !self.puts.is_empty();
        if !put_is_due && let Some(get) = self.gets.pop_front() {
            self.gets_in_a_row += 1;
            return Some(get);
        }
        self.gets_in_a_row = 0;
        self.puts.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cellar;

    fn put(index: u32) -> Work {
        Work::Put { block: BlockId { tenant: 0, handle: 0, index }, source: Box::new([1u8]) }
    }

    fn a_ticket() -> Ticket {
        let disk = Box::new(crate::disk::faulty::FaultyDisk::new(1 << 20));
        let settings = crate::Settings::new("/", 1 << 20);
        let key = crate::Key::random().expect("random");
        let cellar = Cellar::on_disk(&settings, disk, key).expect("open");
        cellar.put(BlockId { tenant: 0, handle: 0, index: 0 }, &[1; 10]).expect("put")
    }

    #[test]
    fn gets_go_first_but_puts_get_on() {
        let jobs = Jobs::new(100);
        let ticket = a_ticket();
        for index in 0..2 {
            jobs.submit(put(index)).map_err(|(busy, _)| busy).expect("free");
        }
        for _ in 0..20 {
            let get = Work::Get { ticket: ticket.clone(), into: Box::new([0u8; 10]) };
            jobs.submit(get).map_err(|(busy, _)| busy).expect("free");
        }
        jobs.close(Closing::AfterAll);
        let is_put = |(_, work)| matches!(work, Work::Put { .. });
        let order: Vec<bool> = std::iter::from_fn(|| jobs.next()).map(is_put).collect();
        let at: Vec<usize> = (0..order.len()).filter(|&at| order[at]).collect();
        assert_eq!((order.len(), at), (22, vec![8, 17]));
    }

    #[test]
    fn a_place_is_taken_until_the_job_is_polled() {
        let jobs = Jobs::new(2);
        let first = jobs.submit(put(0)).map_err(|(busy, _)| busy).expect("free");
        jobs.submit(put(1)).map_err(|(busy, _)| busy).expect("free");
        let (busy, work) = jobs.submit(put(2)).expect_err("both places are taken");
        assert_eq!(busy, Busy { jobs: 2 });
        assert!(matches!(work, Work::Put { block: BlockId { index: 2, .. }, .. }));
        let Some((job, Work::Put { block, source })) = jobs.next() else { panic!("there is a put") };
        assert_eq!(job, first);
        jobs.finish(Done::Put { job, block, source, result: Err(PutError::Panicked { block }) });
        assert!(jobs.submit(put(2)).is_err(), "it is done, but nobody has heard of it");
        assert_eq!(jobs.poll().map(|done| done.job()), Some(first));
        assert!(jobs.submit(put(2)).is_ok());
    }

    #[test]
    fn whoever_waits_for_what_another_took_is_woken() {
        let jobs = Jobs::new(2);
        jobs.submit(put(0)).map_err(|(busy, _)| busy).expect("free");
        let Some((job, Work::Put { block, source })) = jobs.next() else { panic!("there is a put") };
        let patience = Duration::from_secs(20);
        let start = Instant::now();
        let got = std::thread::scope(|scope| {
            let waiting = [(); 2].map(|()| scope.spawn(|| jobs.wait(patience).is_some()));
            while jobs.state().waiting < 2 && start.elapsed() < patience {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(jobs.state().waiting, 2, "both wait before there is anything");
            jobs.finish(Done::Put { job, block, source, result: Err(PutError::Panicked { block }) });
            waiting.map(|thread| u32::from(thread.join().expect("no panic")))
        });
        assert_eq!(got.iter().sum::<u32>(), 1);
        assert!(start.elapsed() < patience, "the other one waited to the end");
    }

    #[test]
    fn waiting_for_nothing_ends_at_once() {
        let jobs = Jobs::new(2);
        assert!(jobs.wait(Duration::MAX).is_none());
        jobs.submit(put(0)).map_err(|(busy, _)| busy).expect("free");
        assert!(jobs.wait(Duration::from_millis(5)).is_none(), "no thread works on it");
    }
}
