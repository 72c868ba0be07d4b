//! Workers that can be killed at any step, and what is left of them; and chance, by a seed.

use super::Setup;
use super::world::FakeTenants;
use crate::arena::Arena;
use crate::device::{Device, DeviceError};
use crate::exchange::{Gone, Tenants};
use crate::fake_device::FakeDevice;
use crate::{CleanCopies, Mover, Owner};
use std::os::fd::OwnedFd;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

/// What a worker dies of.
pub(super) struct Killed;

/// Counts the steps of workers, and ends one at the step that it is to die at.
#[derive(Default)]
pub(super) struct Fate {
    pub(super) steps: AtomicU64,
    pub(super) dies_at: AtomicU64,
    /// What else happens, and at which step.
    happens: Mutex<Option<(u64, Happening)>>,
}

type Happening = Box<dyn FnOnce() + Send>;

impl Fate {
    pub(super) fn step(&self) {
        let step = self.steps.fetch_add(1, SeqCst) + 1;
        let happens = self.happens.lock().expect("no panic").take_if(|(at, _)| *at == step);
        if let Some((_, what)) = happens {
            what();
        }
        if step == self.dies_at.load(SeqCst) {
            resume_unwind(Box::new(Killed));
        }
    }

    /// Has something happen at the n-th step (from 1) from now on.
    pub(super) fn at_step(&self, nth: u64, what: impl FnOnce() + Send + 'static) {
        *self.happens.lock().expect("no panic") = Some((self.steps.load(SeqCst) + nth, Box::new(what)));
    }

    /// Nothing more happens, and nobody dies.
    pub(super) fn forget(&self) {
        *self.happens.lock().expect("no panic") = None;
        self.dies_at.store(0, SeqCst);
    }
}

/// Tenants that see a worker die before and behind each request.
pub(super) struct Mortal(pub(super) FakeTenants, pub(super) Arc<Fate>);

impl Tenants for Mortal {
    fn unmap(&mut self, owner: Owner, handles: &[u64]) -> Result<(), Gone> {
        self.1.step();
        let done = self.0.unmap(owner, handles);
        self.1.step();
        done
    }

    fn create(&mut self, owner: Owner, handles: &[u64]) -> Result<(), Gone> {
        self.1.step();
        let done = self.0.create(owner, handles);
        self.1.step();
        done
    }

    fn take(&mut self, owner: Owner, handles: &[(u64, Arc<OwnedFd>)]) -> Result<(), Gone> {
        self.1.step();
        let done = self.0.take(owner, handles);
        self.1.step();
        done
    }
}

/// What is left of a worker: copies that its device has not done yet, and the memory that they read and write.
pub(super) struct Corpse {
    pub(super) device: FakeDevice,
    _arena: Arena,
}

impl Corpse {
    /// Whatever was under way happens.
    pub(super) fn rest(mut self) -> Result<(), DeviceError> {
        self.device.drain()
    }
}

impl Setup {
    /// The worker dies, and the next one is there. Nobody is adopted yet.
    pub(super) fn succeed(self, how: CleanCopies) -> (Corpse, Setup) {
        let Setup { mover, tenants, keeper, disk, .. } = self;
        let capacity_bytes = tenants.world().capacity();
        let (device, arena) = mover.kill();
        let corpse = Corpse { device, _arena: arena };
        let device = FakeDevice::new(capacity_bytes);
        let (sender, replies) = channel();
        tenants.world().meet(sender, device.imports());
        let arena = keeper.arena(device.registrar());
        // So that the same steps follow each time.
        arena.wait_until_prepared();
        if let Some(disk) = &disk {
            disk.open(&arena);
        }
        let mut mover = Mover::new(device, arena);
        mover.keep_copies(how).expect("a device that hashes");
        (corpse, Setup { mover, tenants, replies, keeper, disk })
    }
}

/// Numbers that are the same for the same seed.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            random.below(2);
        }
        random
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    pub(super) fn sizes(&mut self) -> Vec<u64> {
        (0..1 + self.below(3)).map(|_| 1 + self.below(2)).collect()
    }
}
