//! Making the arena's memory ready in the background: several threads put pages behind segments, one registers them.
//!
//! Registering holds a lock of the driver for its time, hence small steps, one after the other.

use super::mapping::Mapping;
use super::space::Extent;
use crate::device::Registrar;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;

/// Threads that put pages behind segments.
const TOUCHERS_MAX: usize = 16;
/// Segments that may wait, with pages, for being registered.
const TOUCHED_AHEAD_MAX: usize = 16;

/// News from the background.
#[derive(Debug)]
pub(super) enum News {
    /// This segment can be used.
    Ready(Extent),
    /// No further segment comes, for this reason.
    Stopped(String),
}

/// The background work on an arena.
#[derive(Debug)]
pub(super) struct Preparation {
    news: Receiver<News>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Registered>>,
}

/// What is registered, and with what.
struct Registered {
    registrar: Box<dyn Registrar>,
    segments: Vec<Extent>,
}

impl Preparation {
    /// Starts it.
    pub(super) fn start(
        mapping: Arc<Mapping>,
        segment_bytes: u64,
        registrar: Box<dyn Registrar>,
    ) -> std::io::Result<Preparation> {
        let (sender, news) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stop_too = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("rota-arena".to_owned())
            .spawn(move || prepare(&mapping, segment_bytes, registrar, &stop_too, &sender))?;
        Ok(Preparation { news, stop, thread: Some(thread) })
    }

    /// The next news, if there is any now; `Err` once nothing more will come.
    pub(super) fn next(&self) -> Result<Option<News>, Ended> {
        match self.news.try_recv() {
            Ok(news) => Ok(Some(news)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Ended),
        }
    }

    /// Waits for news; None once nothing more will come.
    pub(super) fn wait(&self) -> Option<News> {
        self.news.recv().ok()
    }

    /// Stops, and unregisters everything. No copy may be under way.
    pub(super) fn undo(&mut self, mapping: &Mapping) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(Ok(mut registered)) = self.thread.take().map(JoinHandle::join) else { return };
        for segment in registered.segments {
            let start = mapping.address(segment.offset, segment.bytes);
            // SAFETY: it was registered by this registrar, and the caller says that no copy is under way.
            if let Err(error) = unsafe { registered.registrar.unregister(start) } {
                tracing::warn!(%error, offset = segment.offset, "cannot unregister a segment of the arena");
            }
        }
    }
}

/// All segments are ready, or there was a reason to stop.
#[derive(Debug)]
pub(super) struct Ended;

type Touched = (Extent, Result<(), rustix::io::Errno>);

fn prepare(
    mapping: &Mapping,
    segment_bytes: u64,
    registrar: Box<dyn Registrar>,
    stop: &AtomicBool,
    news: &Sender<News>,
) -> Registered {
    let next = AtomicU64::new(0);
    let mut registered = Registered { registrar, segments: Vec::new() };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(TOUCHERS_MAX);
    let (sender, touched) = sync_channel(TOUCHED_AHEAD_MAX);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (next, sender) = (&next, sender.clone());
            scope.spawn(move || touch(mapping, segment_bytes, next, stop, &sender));
        }
        drop(sender);
        let why = register(mapping, &mut registered, &touched, stop, news);
        if let Some(why) = why {
            stop.store(true, Ordering::Relaxed);
            let ready_bytes: u64 = registered.segments.iter().map(|segment| segment.bytes).sum();
            tracing::warn!(
                why,
                ready_bytes,
                wanted_bytes = mapping.bytes(),
                "the arena stays smaller than wanted"
            );
            // Nobody listens any more when the arena is being dropped.
            let _ = news.send(News::Stopped(why));
        }
        // Touchers that wait for room in the channel end when its receiver is gone.
        drop(touched);
    });
    registered
}

/// Takes segment after segment, and puts pages behind it.
fn touch(
    mapping: &Mapping,
    segment_bytes: u64,
    next: &AtomicU64,
    stop: &AtomicBool,
    sender: &SyncSender<Touched>,
) {
    while !stop.load(Ordering::Relaxed) {
        let offset = next.fetch_add(segment_bytes, Ordering::Relaxed);
        if offset >= mapping.bytes() {
            return;
        }
        let segment = Extent { offset, bytes: segment_bytes.min(mapping.bytes() - offset) };
        let result = mapping.populate(segment.offset, segment.bytes);
        if sender.send((segment, result)).is_err() {
            return;
        }
    }
}

/// Registers what was touched; says why if it had to stop before the end.
fn register(
    mapping: &Mapping,
    registered: &mut Registered,
    touched: &Receiver<Touched>,
    stop: &AtomicBool,
    news: &Sender<News>,
) -> Option<String> {
    for (segment, result) in touched {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        if let Err(error) = result {
            return Some(format!("the host gives no more memory: {error}"));
        }
        let start = mapping.address(segment.offset, segment.bytes);
        // SAFETY: the segment is mapped; the mapping outlives the registration, which `undo` ends first.
        if let Err(error) = unsafe { registered.registrar.register(start, segment.bytes) } {
            return Some(format!("cannot pin {} bytes: {error}", segment.bytes));
        }
        registered.segments.push(segment);
        if news.send(News::Ready(segment)).is_err() {
            return None;
        }
    }
    None
}
