//! A keeper for tests: the real one, on a thread of its own.

use crate::arena::Arena;
use crate::device::{DeviceError, Registrar};
use crate::{BLOCK_BYTES, Owner};
use keeper::{Client, InProcess, Part, Patience, Process};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Tests wait for what happens, so this is only how long a broken one takes.
const PATIENCE: Patience = Patience { connect: Duration::from_secs(60), answer: Duration::from_secs(60) };

/// See the module. To be dropped after its arenas.
pub(crate) struct TestKeeper {
    keeper: InProcess,
    _folder: tempfile::TempDir,
}

impl TestKeeper {
    /// With an arena of so many blocks, in segments of so many bytes.
    pub(crate) fn start(blocks: u64, segment_bytes: u64) -> Arc<TestKeeper> {
        TestKeeper::of_parts(&[Part { bytes: blocks * BLOCK_BYTES, node: None }], segment_bytes)
    }

    /// With an arena of these parts.
    pub(crate) fn of_parts(parts: &[Part], segment_bytes: u64) -> Arc<TestKeeper> {
        let folder = tempfile::tempdir().expect("a folder");
        let keeper = InProcess::start(&folder.path().join("keeper"), parts, segment_bytes);
        Arc::new(TestKeeper { keeper: keeper.expect("a small arena"), _folder: folder })
    }

    /// A worker's arena, as soon as there is no other worker.
    pub(crate) fn arena(&self, registrar: Box<dyn Registrar>) -> Arena {
        let client = Client::connect(self.keeper.socket(), PATIENCE).expect("the keeper is there");
        Arena::open(client, registrar).expect("a small arena")
    }
}

/// A registrar that does nothing before the other end is dropped.
pub(crate) struct Later(Box<dyn Registrar>, Receiver<()>);

impl Later {
    pub(crate) fn before(registrar: Box<dyn Registrar>) -> (Box<dyn Registrar>, Sender<()>) {
        let (go, word) = channel();
        (Box::new(Later(registrar, word)), go)
    }
}

impl Registrar for Later {
    unsafe fn register(&mut self, start: *mut u8, bytes: u64) -> Result<(), DeviceError> {
        let _ = self.1.recv();
        // SAFETY: as for this.
        unsafe { self.0.register(start, bytes) }
    }

    unsafe fn unregister(&mut self, start: *mut u8) -> Result<(), DeviceError> {
        // SAFETY: as for this.
        unsafe { self.0.unregister(start) }
    }
}

/// The process of a tenant.
pub(crate) fn process(owner: Owner) -> Process {
    Process { pid: owner.0, start_ticks: 7 }
}
