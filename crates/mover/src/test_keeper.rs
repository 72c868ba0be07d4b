//! A keeper for tests: the real one, on a thread of its own.

use crate::arena::Arena;
use crate::device::Registrar;
use crate::{BLOCK_BYTES, Owner};
use keeper::{Client, InProcess, Part, Patience, Process};
use std::sync::Arc;
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
        let folder = tempfile::tempdir().expect("a folder");
        let parts = [Part { bytes: blocks * BLOCK_BYTES, node: None }];
        let keeper = InProcess::start(&folder.path().join("keeper"), &parts, segment_bytes);
        Arc::new(TestKeeper { keeper: keeper.expect("a small arena"), _folder: folder })
    }

    /// A worker's arena, as soon as there is no other worker.
    pub(crate) fn arena(&self, registrar: Box<dyn Registrar>) -> Arena {
        let client = Client::connect(self.keeper.socket(), PATIENCE).expect("the keeper is there");
        Arena::open(client, registrar).expect("a small arena")
    }
}

/// The process of a tenant.
pub(crate) fn process(owner: Owner) -> Process {
    Process { pid: owner.0, start_ticks: 7 }
}
