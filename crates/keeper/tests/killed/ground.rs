//! What outlives a worker: the tenants' memory on the device, what its true contents are, and which parts of the arena the
//! device is writing to. In a file that the test and its workers map, so that what was stored is there after a kill.

use rota_keeper::{BLOCK_BYTES, Extent, HandleKey, TenantNumber, View};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Tenants, and handles of each.
pub(crate) const TENANTS: u32 = 2;
const HANDLES: u64 = 7;
/// All handles.
pub(crate) const ALL: usize = TENANTS as usize * HANDLES as usize;
/// Blocks that the device may be writing to at a time.
const COPIED_MAX: usize = 16;

/// A handle has no memory on the device.
const UNMAPPED: u64 = u64::MAX;
/// It has memory with anything in it.
const UNFILLED: u64 = u64::MAX - 1;
/// No block.
const NONE: u64 = u64::MAX;

/// Of one handle.
struct Held {
    /// The version of what its tenant wrote last: what has to be somewhere.
    truth: AtomicU64,
    /// The version that is on the device.
    device: AtomicU64,
}

#[repr(C)]
struct Layout {
    held: [Held; ALL],
    /// Offsets of blocks in the arena that are being written by the device.
    copied: [AtomicU64; COPIED_MAX],
    /// The same for the worker that died.
    dying: [AtomicU64; COPIED_MAX],
    /// A copy of that one may still be under way.
    busy: AtomicU64,
    steps: AtomicU64,
    /// At this step the worker goes no further, and waits for its end.
    halt_at: AtomicU64,
    out: AtomicU64,
    back: AtomicU64,
    reused: AtomicU64,
    refused: AtomicU64,
}

/// How often something happened.
pub(crate) struct Counts {
    pub(crate) out: u64,
    pub(crate) back: u64,
    /// Blocks that were there already.
    pub(crate) reused: u64,
    /// Copies that left out facts that had to be there.
    pub(crate) refused: u64,
}

/// See the module. Stays mapped to the end.
pub(crate) struct Ground(&'static Layout);

impl Ground {
    /// Everything is on the device, in version 1.
    pub(crate) fn create(path: &Path) -> Ground {
        let file = File::create_new(path).expect("a new file");
        file.set_len(size_of::<Layout>() as u64).expect("a small file");
        let ground = Ground::open(path);
        for held in &ground.0.held {
            held.truth.store(1, SeqCst);
            held.device.store(1, SeqCst);
        }
        let places = ground.0.copied.iter().chain(&ground.0.dying);
        places.for_each(|block| block.store(NONE, SeqCst));
        ground
    }

    pub(crate) fn open(path: &Path) -> Ground {
        let file = File::options().read(true).write(true).open(path).expect("the file is there");
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses, of a file that is as long.
        let start = unsafe {
            mmap(std::ptr::null_mut(), size_of::<Layout>(), protection, MapFlags::SHARED, &file, 0)
        };
        // SAFETY: mapped for good and aligned to a page; all of it are atomics, for which any bytes will do.
        Ground(unsafe { &*start.expect("a small mapping").cast::<Layout>() })
    }

    /// The handle of a number, and its blocks.
    pub(crate) fn handle(number: usize) -> (HandleKey, u64) {
        let (tenant, handle) = (number as u32 % TENANTS + 1, number as u64 / u64::from(TENANTS));
        (HandleKey { tenant: TenantNumber(tenant), handle }, 1 + number as u64 % 5)
    }

    /// One more step is done. Every change of the ground is one, so that a worker can be killed behind each.
    pub(crate) fn step(&self) {
        let steps = self.0.steps.fetch_add(1, SeqCst) + 1;
        while steps == self.0.halt_at.load(SeqCst) {
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    /// The worker goes no further than to this step.
    pub(crate) fn halt_at(&self, steps: u64) {
        self.0.halt_at.store(steps, SeqCst);
    }

    pub(crate) fn steps(&self) -> u64 {
        self.0.steps.load(SeqCst)
    }

    pub(crate) fn counts(&self) -> Counts {
        let Layout { out, back, reused, refused, .. } = self.0;
        let [out, back, reused, refused] = [out, back, reused, refused].map(|count| count.load(SeqCst));
        Counts { out, back, reused, refused }
    }

    pub(crate) fn count_reused(&self) {
        self.0.reused.fetch_add(1, SeqCst);
    }

    pub(crate) fn count_refused(&self) {
        self.0.refused.fetch_add(1, SeqCst);
    }

    /// What has to be somewhere.
    pub(crate) fn truth(&self, number: usize) -> u64 {
        self.0.held[number].truth.load(SeqCst)
    }

    /// What is on the device, if anything that counts.
    pub(crate) fn on_device(&self, number: usize) -> Option<u64> {
        let version = self.0.held[number].device.load(SeqCst);
        (version != UNMAPPED && version != UNFILLED).then_some(version)
    }

    /// The tenant unmaps: what was on the device is gone.
    pub(crate) fn unmap(&self, number: usize) {
        self.0.held[number].device.store(UNMAPPED, SeqCst);
        self.0.out.fetch_add(1, SeqCst);
        self.step();
    }

    /// The tenant creates memory, with anything in it.
    pub(crate) fn create_memory(&self, number: usize) {
        self.0.held[number].device.store(UNFILLED, SeqCst);
        self.step();
    }

    /// A copy in is complete.
    pub(crate) fn fill(&self, number: usize, version: u64) {
        self.0.held[number].device.store(version, SeqCst);
        self.0.back.fetch_add(1, SeqCst);
        self.step();
    }

    /// The tenant runs, and writes.
    pub(crate) fn run(&self, number: usize) {
        let version = self.on_device(number).expect("only who has its memory runs");
        let held = &self.0.held[number];
        // Both at once as far as anybody can tell: the device's is what the tenant has written.
        held.device.store(version + 1, SeqCst);
        held.truth.store(version + 1, SeqCst);
        self.step();
    }

    /// A tenant whose worker died between the two stores of [`Ground::run`] had written all the same.
    fn settle(&self) {
        for (number, held) in self.0.held.iter().enumerate() {
            let version = self.on_device(number);
            if let Some(version) = version.filter(|&version| version == held.truth.load(SeqCst) + 1) {
                held.truth.store(version, SeqCst);
            }
        }
    }

    /// The device begins to write to these blocks.
    pub(crate) fn begin_copy(&self, runs: &[Extent]) {
        let blocks =
            runs.iter().flat_map(|run| (0..run.bytes / BLOCK_BYTES).map(|at| run.offset + at * BLOCK_BYTES));
        let mut places = self.0.copied.iter();
        for block in blocks {
            places.next().expect("no handle has so many").store(block, SeqCst);
        }
    }

    /// It is done with them.
    pub(crate) fn end_copy(&self) {
        self.0.copied.iter().for_each(|block| block.store(NONE, SeqCst));
    }

    /// The worker is dead; what it has begun goes on.
    pub(crate) fn bury_worker(&self) {
        assert!(!self.is_busy(), "the one before it has ended wholly");
        self.settle();
        for (dying, copied) in self.0.dying.iter().zip(&self.0.copied) {
            dying.store(copied.swap(NONE, SeqCst), SeqCst);
        }
        self.0.busy.store(1, SeqCst);
    }

    /// May something of a dead worker be under way?
    pub(crate) fn is_busy(&self) -> bool {
        self.0.busy.load(SeqCst) != 0
    }

    /// A dead worker's copies end now: they write to what they were begun for, whoever has it. Says how much.
    pub(crate) fn scribble(&self, view: &View) -> u64 {
        let mut bytes = 0;
        for block in &self.0.dying {
            let offset = block.swap(NONE, SeqCst);
            if offset != NONE {
                let at = view.address(Extent { offset, bytes: BLOCK_BYTES }).expect("it was reserved once");
                // SAFETY: it is mapped; that somebody may have it is what is being tried, and only this test does.
                unsafe { at.write_bytes(0xee, BLOCK_BYTES as usize) };
                bytes += BLOCK_BYTES;
            }
        }
        self.0.busy.store(0, SeqCst);
        bytes
    }
}
