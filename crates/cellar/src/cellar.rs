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
use crate::buffer::Buffer;
use crate::disk::{Disk, LocalFile};
use crate::seal::{Key, Sealer};
use crate::settings::Settings;
use crate::statistics::Statistics;
use crate::takeover::{Claims, Orphan, SetAside};
use crate::{BLOCK_BYTES_MAX, BlockId, Ticket};
use figures::Figures;
use jobs::{Jobs, Work};
use keep::{Bench, Keep};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use workers::Workers;

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
    /// The file, to which nobody writes any more.
    pub file: Orphan,
    /// Its key.
    pub key: Key,
    /// All blocks, in no order.
    pub tickets: Vec<Ticket>,
    /// Jobs whose end nobody had asked for. Blocks that they put are among the tickets.
    pub done: Vec<Done>,
}

/// A cellar that goes on with what another one left.
pub struct TakenOver {
    /// With all blocks but those of the tickets that were set aside.
    pub cellar: Cellar,
    /// Tickets that cannot be true. Their blocks are lost to this cellar, and their places free.
    pub set_aside: Vec<SetAside>,
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
        Cellar::on_disk(settings, Box::new(file), Key::random()?)
    }

    /// Goes on with the file and the key of another one, which is no more: see [`crate::takeover`] for its rules. What has
    /// no ticket is free space. A limit that is smaller than the file only keeps it from growing.
    ///
    /// Nothing is read, unless tickets contradict each other: one that does not belong to this file and key shows when
    /// its block is asked for.
    pub fn from_parts(
        settings: &Settings,
        file: Orphan,
        key: Key,
        tickets: impl IntoIterator<Item = Ticket>,
    ) -> Result<TakenOver, OpenError> {
        settings.check()?;
        let file = LocalFile::of_file(file.into_file(), &settings.folder, settings.accept)?;
        Cellar::take_over(settings, Box::new(file), key, tickets)
    }

    /// An empty one on a disk of another kind. The settings' folder does not matter then.
    pub fn on_disk(settings: &Settings, disk: Box<dyn Disk>, key: Key) -> Result<Cellar, OpenError> {
        Ok(Cellar::take_over(settings, disk, key, [])?.cellar)
    }

    /// As [`Cellar::from_parts`], on a disk of another kind: nobody else may write to it any more.
    pub fn take_over(
        settings: &Settings,
        disk: Box<dyn Disk>,
        key: Key,
        tickets: impl IntoIterator<Item = Ticket>,
    ) -> Result<TakenOver, OpenError> {
        settings.check()?;
        Cellar::start(settings, Figures::new(settings), disk, Sealer::new(key)?, tickets)
    }

    fn start(
        settings: &Settings,
        figures: Figures,
        disk: Box<dyn Disk>,
        sealer: Sealer,
        tickets: impl IntoIterator<Item = Ticket>,
    ) -> Result<TakenOver, OpenError> {
        let length_bytes = disk.length_bytes().map_err(OpenError::Length)?;
        let mut buffer = None;
        let claims = Claims::of(tickets, length_bytes);
        let (books, set_aside) =
            Books::with(settings.limit_bytes, settings.segment_bytes, claims, |ticket| {
                let buffer = buffer.get_or_insert_with(|| Buffer::new(BLOCK_BYTES_MAX));
                keep::is_there(&*disk, &sealer, buffer, ticket)
            });
        if let Some(first) = set_aside.first() {
            tracing::warn!(tickets = set_aside.len(), first = %first.why, "tickets of the cellar are set aside");
        }
        let keep = Keep::new(settings, disk, sealer, books, figures);
        keep.release_absent(length_bytes);
        let keep = Arc::new(keep);
        let jobs = Arc::new(Jobs::new(settings.jobs));
        let workers = Workers::start(settings.workers, &keep, &jobs)?;
        Ok(TakenOver { cellar: Cellar { keep, jobs, workers, spare: Mutex::new(None) }, set_aside })
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
    ///
    /// Whoever keeps tickets for a successor forgets this one first: once it is discarded, its place is another's.
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

    /// Gives room that nobody uses back to the disk, segment by segment, and says how much. Waits for the disk.
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
        Ok(Parts { file: Orphan::vouched_for(file), key: keep.into_key(), tickets, done })
    }

    fn bench(&self) -> std::io::Result<Bench> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        spare.map_or_else(Bench::new, Ok)
    }

    fn spare(&self, bench: Bench) {
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(bench);
    }
}
