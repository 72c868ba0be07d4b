//! The arena becomes ready in the background, on several threads: putting pages behind a segment takes some 20 ms, and
//! whoever wants to move memory now has no time for that.

use crate::message::Extent;
use crate::names::Node;
use crate::segment::{Pages, Segment};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

/// Threads that put pages behind segments.
const THREADS_MAX: usize = 16;
/// Segments that may wait for being taken up.
const NEWS_MAX: usize = 64;

/// News from the background.
#[derive(Debug)]
pub(crate) enum News {
    /// This one is ready.
    Ready(Segment),
    /// No further segment comes, for this reason.
    Stopped(String),
}

/// What of it there is to know now.
#[derive(Debug)]
pub(crate) enum Next {
    News(News),
    /// Nothing yet.
    Nothing,
    /// Nothing, for ever.
    Ended,
}

/// The background work on an arena.
#[derive(Debug)]
pub(crate) struct Preparation {
    // None only while it is dropped.
    news: Option<Receiver<News>>,
    stop: Arc<AtomicBool>,
    bell: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Preparation {
    /// Starts to make these ready, with pages behind them as is said.
    pub(crate) fn start(plan: Vec<(Extent, Option<Node>)>, pages: Pages) -> std::io::Result<Preparation> {
        let (sender, news) = sync_channel(NEWS_MAX);
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stop = Arc::new(AtomicBool::new(false));
        let mut preparation = Preparation { news: Some(news), stop, bell, threads: Vec::new() };
        let (plan, next) = (Arc::new(plan), Arc::new(AtomicUsize::new(0)));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores.min(THREADS_MAX).min(plan.len()) {
            let toucher = Toucher {
                plan: Arc::clone(&plan),
                pages,
                next: Arc::clone(&next),
                stop: Arc::clone(&preparation.stop),
                bell: Arc::clone(&preparation.bell),
                news: sender.clone(),
            };
            let thread = std::thread::Builder::new().name("rota-touch".to_owned());
            preparation.threads.push(thread.spawn(move || toucher.run())?);
        }
        Ok(preparation)
    }

    /// Readable when there is news.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Makes the bell silent until there is more. To be called before the news is taken.
    pub(crate) fn hush(&self) {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
    }

    /// The next news.
    pub(crate) fn next(&self) -> Next {
        match self.news.as_ref().map(Receiver::try_recv) {
            Some(Ok(news)) => Next::News(news),
            Some(Err(TryRecvError::Empty)) => Next::Nothing,
            Some(Err(TryRecvError::Disconnected)) | None => Next::Ended,
        }
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Threads that wait for room in the channel end when its receiver is gone.
        self.news = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Toucher {
    plan: Arc<Vec<(Extent, Option<Node>)>>,
    pages: Pages,
    next: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    bell: Arc<OwnedFd>,
    news: SyncSender<News>,
}

impl Toucher {
    /// Takes segment after segment, and makes it ready.
    fn run(self) {
        while !self.stop.load(Ordering::Relaxed)
            && let Some(&(place, node)) = self.plan.get(self.next.fetch_add(1, Ordering::Relaxed))
        {
            let news = match Segment::make(place, node, self.pages) {
                Ok(segment) => News::Ready(segment),
                Err(error) => {
                    self.stop.store(true, Ordering::Relaxed);
                    News::Stopped(error.to_string())
                }
            };
            if self.news.send(news).is_err() {
                return;
            }
            ring(&self.bell);
        }
        // So that the end is noticed: only once nobody can send any more.
        let Toucher { news, bell, .. } = self;
        drop(news);
        ring(&bell);
    }
}

fn ring(bell: &OwnedFd) {
    // It fails only when the counter is full, and then it rings already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;
    use rustix::event::{PollFd, PollFlags};

    fn plan(sizes: &[u64]) -> Vec<(Extent, Option<Node>)> {
        let place = |(number, &bytes): (usize, &u64)| Extent { offset: number as u64 * BLOCK_BYTES, bytes };
        sizes.iter().enumerate().map(|at| (place(at), None)).collect()
    }

    /// All news, taken when the bell rings and at no other time.
    fn all_news(preparation: &Preparation) -> Vec<News> {
        let mut all = Vec::new();
        loop {
            let mut bell = [PollFd::from_borrowed_fd(preparation.bell(), PollFlags::IN)];
            rustix::event::poll(&mut bell, None).expect("it rings");
            preparation.hush();
            loop {
                match preparation.next() {
                    Next::News(news) => all.push(news),
                    Next::Nothing => break,
                    Next::Ended => return all,
                }
            }
        }
    }

    #[test]
    fn every_segment_comes_once_and_then_the_end() {
        let preparation = Preparation::start(plan(&[BLOCK_BYTES; 100]), Pages::AtOnce).expect("threads");
        let mut offsets: Vec<u64> = all_news(&preparation)
            .into_iter()
            .map(|news| match news {
                News::Ready(segment) => segment.view().offset / BLOCK_BYTES,
                News::Stopped(why) => panic!("{why}"),
            })
            .collect();
        offsets.sort_unstable();
        assert_eq!(offsets, (0..100).collect::<Vec<u64>>());
    }

    #[test]
    fn it_stops_at_the_first_that_cannot_be_had() {
        let mut sizes = [1 << 62; 200];
        sizes[..5].fill(BLOCK_BYTES);
        let news = all_news(&Preparation::start(plan(&sizes), Pages::AtOnce).expect("threads"));
        let stopped: Vec<&News> = news.iter().filter(|news| matches!(news, News::Stopped(_))).collect();
        // However threads are held up: none tries another one behind its own failure.
        assert!((1..=THREADS_MAX).contains(&stopped.len()), "{stopped:?}");
        assert!(news.len() <= 5 + THREADS_MAX, "the rest is not tried");
    }

    #[test]
    fn it_can_be_dropped_at_any_time_and_be_empty() {
        drop(Preparation::start(plan(&[BLOCK_BYTES; 200]), Pages::AtOnce).expect("threads"));
        assert!(matches!(
            Preparation::start(Vec::new(), Pages::AtOnce).expect("nothing").next(),
            Next::Ended
        ));
    }
}
