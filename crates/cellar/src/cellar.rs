//! The cellar itself.

mod error;
mod figures;
mod jobs;
mod keep;
#[cfg(test)]
mod tests;
mod workers;

pub use error::{GetError, OpenError, PutError};
pub use jobs::{Busy, Destination, Done, JobId, Refused, Source};

use crate::books::Books;
use crate::disk::{Disk, LocalFile};
use crate::seal::{Key, Sealer};
use crate::settings::Settings;
use crate::statistics::Statistics;
use crate::{BlockId, Ticket};
use figures::Figures;
use jobs::{Jobs, Work};
use keep::{Bench, Keep};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use workers::Workers;

/// The step by which the file grows and shrinks.
const SEGMENT_BYTES: u64 = 64 << 20;

/// Blocks on a disk. Everything takes `&self`, from any thread.
///
/// [`Cellar::put`] and [`Cellar::get`] do their work in the calling thread. Whoever must not wait for a disk uses
/// [`Cellar::submit_put`], [`Cellar::submit_get`] and [`Cellar::poll`]: none of these waits for anything.
///
/// Dropping it waits for jobs that a thread has begun, and forgets the others.
pub struct Cellar {
    keep: Arc<Keep>,
    jobs: Arc<Jobs>,
    workers: Workers,
    /// What a blocking call needs, if nobody else uses it now.
    spare: Mutex<Option<Bench>>,
}

/// A cellar taken apart: what another process needs to go on with it.
#[derive(Debug)]
pub struct Parts {
    /// The file.
    pub file: OwnedFd,
    /// Its key.
    pub key: Key,
    /// All blocks, in no order.
    pub tickets: Vec<Ticket>,
    /// Jobs whose end nobody had asked for. Blocks that they put are among the tickets.
    pub done: Vec<Done>,
}

/// A cellar that could not be taken apart, as it was.
#[derive(thiserror::Error)]
#[error("cannot hand the cellar's file on: {why}")]
pub struct NotParted {
    /// With all of its blocks.
    pub cellar: Box<Cellar>,
    /// The kernel's error.
    #[source]
    pub why: std::io::Error,
}

impl fmt::Debug for NotParted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotParted").field("why", &self.why).finish_non_exhaustive()
    }
}

impl Cellar {
    /// Makes an empty one, with a new file and a new key.
    pub fn open(settings: &Settings) -> Result<Cellar, OpenError> {
        settings.check()?;
        let file = LocalFile::create(&settings.folder, settings.accept)?;
        Cellar::on_disk(settings, Box::new(file), Key::random()?, [])
    }

    /// Goes on with the file and the key of another one, which is no more. What has no ticket is free space.
    ///
    /// Nothing is read: a ticket that does not belong to this file and key shows when its block is asked for.
    pub fn from_parts(
        settings: &Settings,
        file: OwnedFd,
        key: Key,
        tickets: impl IntoIterator<Item = Ticket>,
    ) -> Result<Cellar, OpenError> {
        settings.check()?;
        let file = LocalFile::of_file(file, &settings.folder, settings.accept)?;
        Cellar::on_disk(settings, Box::new(file), key, tickets)
    }

    /// The same on a disk of another kind. The settings' folder does not matter then.
    pub fn on_disk(
        settings: &Settings,
        disk: Box<dyn Disk>,
        key: Key,
        tickets: impl IntoIterator<Item = Ticket>,
    ) -> Result<Cellar, OpenError> {
        settings.check()?;
        let segment_bytes = SEGMENT_BYTES.min(settings.limit_bytes);
        let books = Books::with(settings.limit_bytes, segment_bytes, tickets)?;
        let figures = Figures::new(settings);
        Cellar::start(settings, Keep::new(settings, disk, Sealer::new(key)?, books, figures))
    }

    fn start(settings: &Settings, keep: Keep) -> Result<Cellar, OpenError> {
        keep.release_absent();
        let keep = Arc::new(keep);
        let jobs = Arc::new(Jobs::new(settings.jobs));
        let workers = Workers::start(settings.workers, &keep, &jobs)?;
        Ok(Cellar { keep, jobs, workers, spare: Mutex::new(None) })
    }

    /// Puts a block there, of 1 byte to 2 MiB. On an error everything is as it was.
    pub fn put(&self, block: BlockId, bytes: &[u8]) -> Result<Ticket, PutError> {
        let mut bench = self.bench().map_err(|why| PutError::NoMemory { block, why })?;
        let ticket = self.keep.put(&mut bench, block, bytes);
        self.spare(bench);
        ticket
    }

    /// Gets a block back. The block stays there until it is discarded. On an error nothing is written into `into`.
    pub fn get(&self, ticket: &Ticket, into: &mut [u8]) -> Result<(), GetError> {
        let mut bench = self.bench().map_err(|why| GetError::NoMemory { block: ticket.block, why })?;
        let got = self.keep.get(&mut bench, ticket, into);
        self.spare(bench);
        got
    }

    /// Forgets a block; its space is free for others, once nobody reads it any more. False if it is not here: then it was
    /// discarded before, or belongs to another cellar. Never waits.
    pub fn discard(&self, ticket: &Ticket) -> bool {
        self.keep.books().discard(ticket)
    }

    /// Has a block put by one of the cellar's threads. The source comes back with the result.
    pub fn submit_put(&self, block: BlockId, source: Source) -> Result<JobId, Refused<Source>> {
        self.jobs.submit(Work::Put { block, source }).map_err(|(busy, work)| match work {
            Work::Put { source, .. } => Refused { busy, back: source },
            Work::Get { .. } => unreachable!("what is refused is what was submitted"),
        })
    }

    /// Has a block fetched by one of the cellar's threads. Gets go before puts: somebody's turn waits for them.
    pub fn submit_get(&self, ticket: Ticket, into: Destination) -> Result<JobId, Refused<Destination>> {
        self.jobs.submit(Work::Get { ticket, into }).map_err(|(busy, work)| match work {
            Work::Get { into, .. } => Refused { busy, back: into },
            Work::Put { .. } => unreachable!("what is refused is what was submitted"),
        })
    }

    /// A job that is done, if there is one. Each job comes once, in no order. Never waits.
    pub fn poll(&self) -> Option<Done> {
        self.jobs.poll()
    }

    /// The same, and waits for one so long, if any is under way.
    pub fn wait(&self, patience: Duration) -> Option<Done> {
        self.jobs.wait(patience)
    }

    /// Gives room that nobody uses back to the disk, in steps of 64 MiB, and says how much. Waits for the disk.
    pub fn trim(&self) -> u64 {
        self.keep.trim()
    }

    /// The figures as of now.
    pub fn statistics(&self) -> Statistics {
        Statistics { jobs: self.jobs.count(), ..self.keep.statistics() }
    }

    /// All blocks that are here, in no order.
    pub fn tickets(&self) -> Vec<Ticket> {
        self.keep.books().tickets()
    }

    /// The file, for whoever is to go on with it when this process dies.
    pub fn file(&self) -> std::io::Result<OwnedFd> {
        self.keep.disk().duplicate()
    }

    /// The key, for whoever is to go on with the file when this process dies.
    pub fn key(&self) -> &Key {
        self.keep.key()
    }

    /// Ends all jobs, and takes the cellar apart. If there is no descriptor left for that, it stays as it is.
    pub fn into_parts(self) -> Result<Parts, NotParted> {
        let file = match self.file() {
            Ok(file) => file,
            Err(why) => return Err(NotParted { cellar: Box::new(self), why }),
        };
        let Cellar { keep, jobs, workers, spare } = self;
        jobs.close(jobs::Closing::AfterAll);
        drop((workers, spare));
        let tickets = keep.books().tickets();
        let done = std::iter::from_fn(|| jobs.poll()).collect();
        let keep = Arc::into_inner(keep).expect("the threads are gone, and had the only other ones");
        Ok(Parts { file, key: keep.into_key(), tickets, done })
    }

    fn bench(&self) -> std::io::Result<Bench> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        spare.map_or_else(Bench::new, Ok)
    }

    fn spare(&self, bench: Bench) {
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(bench);
    }
}
