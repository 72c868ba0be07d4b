//! Requests become changes of the index, and answers. No sockets here: [`crate::server`] has those.

use crate::host_memory::{self, HostMemoryError};
use crate::index::{Index, ticket_bytes};
use crate::kept_cellar::KeptCellar;
use crate::message::{
    Answer, BATCH_MAX, End, Extent, FACTS_MAX, Outcome, Progress, RESERVED_BLOCKS_MAX, Refusal, Request,
    Reservation, SEGMENTS_PER_ANSWER_MAX, TICKETS_BYTES_MAX, VERSION, Wanted, Welcome,
};
use crate::names::{HashSeed, Node, Process};
use crate::part::Part;
use crate::preparation::{News, Next, Preparation};
use crate::segment::{Pages, Segment};
use crate::{BLOCK_BYTES, SEGMENTS_MAX};
use rustix::process::{Resource, getrlimit};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Files that are left for sockets. A keeper that nobody can connect to would be of no use to the next worker.
const FILES_SPARE: u64 = 64;

/// Why there is no keeper.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// A part of the arena, or the size of segments, is nothing or not whole blocks.
    #[error(
        "an arena cannot have a part or a segment of {bytes} bytes: a multiple of 2 MiB is needed, and not zero"
    )]
    BadSize {
        /// What was asked for.
        bytes: u64,
    },
    /// More than there can be.
    #[error("an arena cannot have {segments} segments; the most are {SEGMENTS_MAX}")]
    TooLarge {
        /// What was asked for.
        segments: u64,
    },
    /// Every segment is an open file.
    #[error(
        "an arena of {segments} segments needs as many open files and {FILES_SPARE} more, and the limit is {limit}: raise \
         it, or ask for less"
    )]
    TooManyFiles {
        /// What was asked for.
        segments: u64,
        /// The limit of open files.
        limit: u64,
    },
    /// The host has too little memory.
    #[error(transparent)]
    HostMemory(#[from] HostMemoryError),
    /// The system gives no threads.
    #[error("cannot start to make memory ready: {0}")]
    Threads(#[from] std::io::Error),
}

/// What follows an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The next request.
    GoOn,
    /// The end of the connection. Its reservations are settled.
    HangUp,
    /// The end of the keeper.
    End,
}

/// What is answered.
#[derive(Debug)]
pub struct Reply<'a> {
    /// The words.
    pub answer: Answer,
    /// The files that go with them.
    pub files: Vec<BorrowedFd<'a>>,
    /// What follows.
    pub then: Then,
}

impl Reply<'_> {
    fn of(answer: Answer) -> Self {
        Reply { answer, files: Vec::new(), then: Then::GoOn }
    }
}

/// Where each segment is to be, and near to which node.
type Plan = Vec<(Extent, Option<Node>)>;

/// The arena and the index of what is in it.
#[derive(Debug)]
pub struct Keeper {
    index: Index,
    /// In the order they became ready.
    segments: Vec<Segment>,
    preparation: Preparation,
    process: Process,
    /// How many segments there will be.
    planned: u32,
    wanted_bytes: u64,
    segment_bytes: u64,
    growing: bool,
    stopped: Option<String>,
    seed: Option<HashSeed>,
    cellar: Option<KeptCellar>,
}

impl Keeper {
    /// Starts to make an arena of these parts ready, in segments of this size, with pages behind all of it.
    pub fn start(parts: &[Part], segment_bytes: u64) -> Result<Keeper, KeeperError> {
        Self::start_with(parts, segment_bytes, Pages::AtOnce)
    }

    /// The same, with pages as is said.
    pub(crate) fn start_with(
        parts: &[Part],
        segment_bytes: u64,
        pages: Pages,
    ) -> Result<Keeper, KeeperError> {
        for bytes in parts.iter().map(|part| part.bytes).chain([segment_bytes]) {
            if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
                return Err(KeeperError::BadSize { bytes });
            }
        }
        let segments =
            parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes.div_ceil(segment_bytes)));
        if segments == 0 || segments > u64::from(SEGMENTS_MAX) {
            return Err(KeeperError::TooLarge { segments });
        }
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if segments > limit.saturating_sub(FILES_SPARE) {
            return Err(KeeperError::TooManyFiles { segments, limit });
        }
        let wanted_bytes = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes));
        host_memory::check_fits(wanted_bytes)?;
        let plan = plan(parts, segment_bytes);
        Ok(Keeper {
            index: Index::new(segment_bytes),
            segments: Vec::new(),
            planned: u32::try_from(plan.len()).unwrap_or(u32::MAX),
            preparation: Preparation::start(plan, pages)?,
            process: Process::this(),
            wanted_bytes,
            segment_bytes,
            growing: true,
            stopped: None,
            seed: None,
            cellar: None,
        })
    }

    /// Readable when more of the arena may be ready.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.preparation.bell()
    }

    /// Takes up what has become ready.
    pub fn take_up(&mut self) {
        self.preparation.hush();
        while self.growing {
            match self.preparation.next() {
                Next::News(News::Ready(segment)) => self.add(segment),
                Next::News(News::Stopped(why)) => {
                    tracing::warn!(why, "the arena stays smaller than wanted");
                    self.stopped = Some(why);
                }
                Next::Nothing => return,
                Next::Ended => {
                    self.growing = false;
                    let ready_bytes = self.index.progress().ready_bytes;
                    tracing::info!(ready_bytes, "the arena is ready");
                }
            }
        }
    }

    fn add(&mut self, segment: Segment) {
        let view = segment.view();
        if self.index.add_segment(Extent { offset: view.offset, bytes: view.bytes }, view.node) {
            self.segments.push(segment);
        } else {
            tracing::error!(offset = view.offset, "a segment does not fit into the arena, and is left out");
        }
    }

    /// Does what is asked, and says what became of it. The answer is made when everything is done: whoever hears it may
    /// rely on it.
    pub fn answer(&mut self, request: Request) -> Reply<'_> {
        self.answer_with(request, Vec::new())
    }

    /// The same, with the files that the request has brought.
    pub fn answer_with(&mut self, request: Request, files: Vec<OwnedFd>) -> Reply<'_> {
        if !is_within_bounds(&request) || (!files.is_empty() && request != Request::KeepCellar) {
            return Keeper::refuse(Refusal::OutOfOrder);
        }
        let index = &mut self.index;
        let answer = match request {
            Request::Hello { version: VERSION } => Answer::Welcome(self.welcome()),
            Request::Hello { .. } => return Keeper::refuse(Refusal::Version { keeper: VERSION }),
            Request::Introduce { tenant, process } => Answer::Outcome(index.introduce(tenant, process)),
            Request::Reserve { near, wanted } => {
                let reservations = wanted.into_iter().map(|wanted| index.reserve(wanted, near));
                Answer::Reserved(reservations.collect::<Vec<Reservation>>())
            }
            Request::Cancel { keys } => outcomes(keys, |key| index.cancel(key)),
            Request::RecordOut { handles } => outcomes(handles, |out| index.record_out(out)),
            Request::RecordIn { handles } => outcomes(handles, |back| index.record_in(back)),
            Request::Free { keys } => outcomes(keys, |key| index.free(key)),
            Request::DropClean { bytes, keep } => Answer::Freed { bytes: index.drop_clean(bytes, keep) },
            Request::Died { tenant } => Answer::Freed { bytes: index.died(tenant) },
            Request::Reclaim => Answer::Freed { bytes: index.reclaim() },
            Request::Progress => Answer::Progress(self.progress()),
            Request::Segments { known } => return self.hand_over(known),
            Request::Tenants { after } => Answer::Tenants(index.tenants(after)),
            Request::Recorded { tenant, after } => Answer::Recorded(index.recorded(tenant, after)),
            Request::Leave { end } => return self.leave(end),
            Request::KeepSeed { seed } => Answer::Outcome(self.keep_seed(seed)),
            Request::KeepCellar => Answer::Outcome(self.keep_cellar(files)),
            Request::Cellar => return self.hand_over_cellar(),
            Request::KeepTickets { .. } | Request::Sink { .. } if self.cellar.is_none() => {
                return Keeper::refuse(Refusal::OutOfOrder);
            }
            Request::KeepTickets { key, first, tickets } => {
                Answer::Outcome(index.keep_tickets(key, first, tickets))
            }
            Request::Sink { keys } => outcomes(keys, |key| index.sink(key)),
            Request::Rise { keys } => outcomes(keys, |key| index.rise(key)),
            Request::Tickets { key, first } => Answer::Tickets(index.tickets(key, first)),
        };
        Reply::of(answer)
    }

    /// The worker went without a word, and something of it may be under way.
    pub fn lose_worker(&mut self) {
        self.index.orphan_reservations();
    }

    /// Drops tenants whose processes have ended. There must be no worker, as nothing of them may be under way.
    pub fn forget_the_dead(&mut self) {
        let mut after = None;
        loop {
            let page = self.index.tenants(after);
            let Some(&(last, _)) = page.last() else { return };
            after = Some(last);
            for (tenant, process) in page.into_iter().filter(|(_, process)| process.has_ended()) {
                let freed_bytes = self.index.died(tenant);
                tracing::info!(%tenant, pid = process.pid, freed_bytes, "a tenant without a worker has ended");
            }
        }
    }

    /// What is away.
    pub fn away_bytes(&self) -> u64 {
        self.index.away_bytes()
    }

    /// How far the arena is.
    pub fn progress(&self) -> Progress {
        Progress {
            wanted_bytes: self.wanted_bytes,
            segments: u32::try_from(self.segments.len()).unwrap_or(u32::MAX),
            growing: self.growing,
            stopped: self.stopped.clone(),
            ..self.index.progress()
        }
    }

    fn refuse(refusal: Refusal) -> Reply<'static> {
        Reply { answer: Answer::Refused(refusal), files: Vec::new(), then: Then::HangUp }
    }

    fn welcome(&self) -> Welcome {
        Welcome {
            version: VERSION,
            keeper: self.process,
            segments: self.planned,
            segment_bytes: self.segment_bytes,
            highest_tenant: self.index.highest_tenant(),
            seed: self.seed.clone(),
        }
    }

    fn keep_seed(&mut self, seed: HashSeed) -> Outcome {
        match &self.seed {
            None => {
                self.seed = Some(seed);
                Outcome::Done
            }
            Some(kept) if *kept == seed => Outcome::AlreadySo,
            Some(_) => Outcome::OtherSeed,
        }
    }

    fn keep_cellar(&mut self, files: Vec<OwnedFd>) -> Outcome {
        match (KeptCellar::of(files), &self.cellar) {
            (Some(new), Some(kept)) if kept.is_same(&new) => Outcome::AlreadySo,
            (None, _) | (_, Some(_)) => Outcome::BadCellar,
            (new @ Some(_), None) => {
                self.cellar = new;
                Outcome::Done
            }
        }
    }

    fn hand_over_cellar(&self) -> Reply<'_> {
        let files = self.cellar.as_ref().map_or(Vec::new(), KeptCellar::files);
        Reply { answer: Answer::Cellar { kept: !files.is_empty() }, files, then: Then::GoOn }
    }

    fn hand_over(&self, known: u32) -> Reply<'_> {
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let next = || self.segments.iter().skip(known).take(SEGMENTS_PER_ANSWER_MAX);
        let answer = Answer::Segments(next().map(Segment::view).collect());
        Reply { answer, files: next().map(Segment::file).collect(), then: Then::GoOn }
    }

    fn leave(&mut self, end: End) -> Reply<'_> {
        self.index.drop_reservations();
        let away_bytes = self.index.away_bytes();
        let ends = match end {
            End::Stay => false,
            End::IfNothingAway => away_bytes == 0,
            End::Forced => true,
        };
        let then = if ends { Then::End } else { Then::HangUp };
        Reply { answer: Answer::Left { ends, away_bytes }, files: Vec::new(), then }
    }
}

fn outcomes<T>(items: Vec<T>, each: impl FnMut(T) -> Outcome) -> Answer {
    Answer::Outcomes(items.into_iter().map(each).collect())
}

/// Where each segment is to be. Those of a part follow each other; the last of it may be shorter.
fn plan(parts: &[Part], segment_bytes: u64) -> Plan {
    let mut plan = Vec::new();
    let mut offset = 0u64;
    for part in parts {
        let mut left = part.bytes;
        while left > 0 {
            let bytes = left.min(segment_bytes);
            plan.push((Extent { offset, bytes }, part.node));
            left = left.saturating_sub(bytes);
            offset = offset.saturating_add(segment_bytes);
        }
    }
    plan
}

/// Is there no more in it than may be, so that the answer fits into a message?
fn is_within_bounds(request: &Request) -> bool {
    match request {
        Request::Reserve { wanted, .. } => {
            let blocks = |sum: u64, wanted: &Wanted| sum.saturating_add(wanted.bytes / BLOCK_BYTES);
            wanted.len() <= BATCH_MAX && wanted.iter().fold(0, blocks) <= RESERVED_BLOCKS_MAX
        }
        Request::RecordOut { handles } => {
            let facts = handles.iter().fold(0usize, |sum, out| sum.saturating_add(out.facts.len()));
            handles.len() <= BATCH_MAX && facts <= FACTS_MAX
        }
        Request::RecordIn { handles } => handles.len() <= BATCH_MAX,
        Request::Cancel { keys }
        | Request::Free { keys }
        | Request::Sink { keys }
        | Request::Rise { keys } => keys.len() <= BATCH_MAX,
        Request::KeepTickets { tickets, .. } => ticket_bytes(tickets) <= TICKETS_BYTES_MAX,
        Request::KeepSeed { seed } => seed.has_a_right_size(),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
