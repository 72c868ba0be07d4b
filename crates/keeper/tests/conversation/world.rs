//! A keeper on a thread of its own, and workers that know it.

use rota_keeper::*;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) const TENANT: TenantNumber = TenantNumber(1);

/// Tests wait for what happens, so this is only how long a broken one takes.
pub(crate) const PATIENCE: Patience =
    Patience { connect: Duration::from_secs(60), answer: Duration::from_secs(60) };

/// See the module.
pub(crate) struct World {
    folder: tempfile::TempDir,
    thread: Option<JoinHandle<u64>>,
}

impl World {
    /// With an arena of so many blocks, all of it ready.
    pub(crate) fn new(blocks: u64) -> World {
        World::start(blocks, 4 * BLOCK_BYTES, None)
    }

    /// The same in segments of one block.
    pub(crate) fn in_many_segments(blocks: u64) -> World {
        World::start(blocks, BLOCK_BYTES, None)
    }

    /// The same with a file that wishes come through.
    pub(crate) fn with_wishes(blocks: u64, wishes: OwnedFd) -> World {
        World::start(blocks, 4 * BLOCK_BYTES, Some(wishes))
    }

    fn start(blocks: u64, segment_bytes: u64, wishes: Option<OwnedFd>) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let mut world = World { folder, thread: None };
        let listener = wire::Listener::bind(&world.socket()).expect("a socket");
        let parts = [Part { bytes: blocks * BLOCK_BYTES, node: None }];
        let mut server = Server::new(Keeper::start(&parts, segment_bytes).expect("a small arena"), listener);
        if let Some(wishes) = wishes {
            server.end_by(wishes);
        }
        world.thread = Some(std::thread::spawn(move || server.run()));
        let mut worker = world.worker();
        await_that("the arena is ready", || !worker.progress().expect("an answer").growing);
        assert_eq!(worker.leave(End::Stay).expect("it may leave"), (false, 0));
        world
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("keeper")
    }

    /// A worker, as soon as there is no other.
    pub(crate) fn worker(&self) -> Client {
        connect(&self.socket())
    }

    /// A worker that has introduced [`TENANT`].
    pub(crate) fn worker_with_tenant(&self) -> Client {
        let mut worker = self.worker();
        let outcome = worker.introduce(TENANT, Process::this()).expect("an answer");
        assert!(matches!(outcome, Outcome::Done | Outcome::AlreadySo), "{outcome}");
        worker
    }

    /// A connection that has said nothing yet.
    pub(crate) fn stranger(&self) -> wire::Connection {
        wire::Connection::connect(&self.socket()).expect("a connection")
    }

    /// Waits for the keeper's end. Says what was away.
    pub(crate) fn end(&mut self) -> u64 {
        self.thread.take().expect("it ends once").join().expect("it does not panic")
    }

    /// Has the keeper end.
    pub(crate) fn stop(mut self) -> u64 {
        self.worker().leave(End::Forced).expect("it may leave");
        self.end()
    }
}

pub(crate) fn connect(socket: &Path) -> Client {
    Client::connect(socket, PATIENCE).expect("the keeper is there")
}

pub(crate) fn key(handle: u64) -> HandleKey {
    HandleKey { tenant: TENANT, handle }
}

pub(crate) fn wanted(handle: u64, blocks: u64) -> Wanted {
    Wanted { key: key(handle), bytes: blocks * BLOCK_BYTES }
}

pub(crate) fn out(handle: u64) -> Out {
    Out { key: key(handle), facts: Vec::new() }
}

/// All of the arena.
pub(crate) fn map_all(worker: &mut Client) -> View {
    let mut view = View::new(worker.welcome()).expect("addresses");
    let mapped: Result<(), ClientError> = worker.segments(0, |segment, file| {
        view.map(segment, &file)?;
        Ok(())
    });
    mapped.expect("all of it has a place");
    view
}

/// Space for one handle.
pub(crate) fn reserve(worker: &mut Client, handle: u64, blocks: u64) -> Vec<Extent> {
    match worker.reserve(None, &[wanted(handle, blocks)]).expect("an answer").remove(0) {
        Reservation::Space { extents, .. } => extents,
        other => panic!("no space: {other:?}"),
    }
}

pub(crate) fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "it is not so that {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
