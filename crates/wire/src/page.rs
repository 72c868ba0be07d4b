//! The page of memory that one tenant and the daemon share.
//!
//! It answers, without a message: is this tenant frozen (`freezing`), is all of its memory there, which channels has it made, has
//! it work for the GPU, how much memory its job may have and has, which requests it serves (`requests`), and is its context to be
//! loaded ahead of one (`warm_ups`). The one module with shared memory in this crate.
//!
//! **Idleness meets new work.** A tenant that has no work says since when, in `idle_since_ns`; before new work it takes
//! that back ([`Page::wake`]), then looks whether it is watched, and if so tells the daemon. The daemon takes a tenant for
//! idle only if it finds it so after it began to watch ([`Page::is_idle_when_watched`]). So either the daemon sees that
//! there is work, or the tenant sees that it is watched: nobody who has work waits for a turn that nobody gives it. A
//! tenant that says nothing is never idle.

mod freezing;
mod requests;
mod warm_ups;

pub use warm_ups::WARM_UP_WAITED_FOR_NS;

use crate::Latencies;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use thiserror::Error;

const MAGIC: u64 = u64::from_le_bytes(*b"rotapage");
const PAGE_BYTES: usize = 4096;

/// The layout. Fields are written by those who are named with them.
#[repr(C)]
#[derive(Debug)]
pub struct Page {
    magic: u64,
    version: u64,
    /// Daemon: which daemon this is, so that a tenant can tell a new one from the old.
    epoch: AtomicU64,
    /// Daemon (the tenant's agent when the daemon is gone): odd while the tenant is frozen.
    freeze_generation: AtomicU64,
    /// Daemon: 0 while some of the tenant's memory is away, else the number of the move that brought it all back.
    residency_commit: AtomicU64,
    /// Daemon (the tenant's agent when there is a new daemon): the compute time slice to go back to, in microseconds; 0 if it
    /// was never changed.
    slice_us: AtomicU64,
    /// Tenant: raised after each channel that it allocates.
    channel_generation: AtomicU64,
    /// The daemon sets it to be told when an idle tenant has work again; the tenant takes it back when it tells.
    watched: AtomicU64,
    /// Daemon: what the tenant's job may have on this GPU, contexts included.
    limit_bytes: AtomicU64,
    /// Daemon: what other tenants of the job have on this GPU.
    others_bytes: AtomicU64,
    /// Daemon: what this tenant's context takes.
    residue_bytes: AtomicU64,
    /// Daemon: 1 if the tenant's job is latency-critical.
    critical: AtomicU64,
    /// Daemon: how soon the job's requests are to be served; 0 if nothing is said.
    slo_ns: AtomicU64,
    /// Daemon: 1 while others are kept off the GPU for the tenant's request.
    end_awaited: AtomicU64,
    /// To the next two cache lines: what follows is written often.
    _apart: [u64; 2],
    /// Tenant: since when it has no work, on the system's monotonic clock; 0 while it has.
    idle_since_ns: AtomicU64,
    /// Tenant: how long it had no work, up to the last time that it had some again.
    idle_total_ns: AtomicU64,
    /// Daemon, before the tenant has the page: 1 if the tenant is frozen by holding its launches back.
    holds_launches: AtomicU64,
    /// Tenant: what its program has on this GPU, wherever it lies just now. What rota keeps beyond that is not in it.
    used_bytes: AtomicU64,
    /// Tenant: of it, what the driver counts for no process.
    unseen_bytes: AtomicU64,
    /// Tenant: requests that it serves now.
    requests_open: AtomicU64,
    /// Tenant: phases that it is in, in which it gives way as soon as it has no work.
    phases_open: AtomicU64,
    /// Tenant: 1 if nobody is to forecast its requests.
    unforecast: AtomicU64,
    /// Tenant: hints that could not be sent.
    hints_dropped: AtomicU64,
    /// Tenant: warm-up kernels that it launched.
    warm_ups: AtomicU64,
    /// Tenant: warm-up kernels that it could not launch.
    warm_ups_failed: AtomicU64,
    /// Tenant: 1 if it says itself when requests begin and end.
    requests_told: AtomicU64,
    /// Tenant: what it calls the phase that it is in, with zeros behind.
    phase_name: [AtomicU64; PHASE_NAME_BYTES / 8],
    /// Tenant: how long its requests took.
    latencies: Latencies,
    /// Tenant: when it launched the last warm-up kernel.
    warmed_ns: AtomicU64,
    /// Both: how often channels of the tenant were frozen since all were thawed.
    freezes: AtomicU64,
    /// Both: 1 while all channels of the tenant are frozen, and not only those that compute.
    frozen_wholly: AtomicU64,
    /// Daemon: how often it wanted a warm-up kernel launched, with those that its forerunners wanted.
    warm_ups_ordered: AtomicU64,
    /// Daemon: until then another one is about to be wanted, on the system's monotonic clock; 0 if none is.
    warm_up_expected_ns: AtomicU64,
    /// Tenant: 1 if it stays awake for one that is about to be wanted.
    awaits_warm_ups: AtomicU64,
    /// Tenant: warm-up kernels that it launched because it was awake for them.
    warm_ups_awaited: AtomicU64,
    /// Daemon: when the last one that it wanted is to be launched, on the system's monotonic clock; 0 for at once.
    warm_up_due_ns: AtomicU64,
}

const _: () = assert!(size_of::<Page>() == 3536 && size_of::<Page>() <= PAGE_BYTES);

/// As much of a phase's name is kept.
pub const PHASE_NAME_BYTES: usize = 32;

/// Where in a [`Page`] the word lies that is 0 while the tenant has work, for code that reads it without Rust.
pub const IDLE_SINCE_OFFSET: usize = std::mem::offset_of!(Page, idle_since_ns);

/// Nanoseconds on the system's monotonic clock, the same for both sides; never 0.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library writes one time. This clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    (now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()).max(1)
}

impl Page {
    /// Which daemon made this page.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    /// Is every byte of the tenant on the device, by the daemon's word?
    pub fn resident(&self) -> bool {
        self.residency_commit.load(SeqCst) != 0
    }

    /// Everything is there: the daemon says so after the copy in, and before the thaw.
    pub fn commit_residency(&self, generation: u64) {
        assert_ne!(generation, 0, "0 means that memory is away");
        self.residency_commit.store(generation, SeqCst);
    }

    /// Something is about to leave: the daemon says so before the first unmap.
    pub fn revoke_residency(&self) {
        self.residency_commit.store(0, SeqCst);
    }

    /// The compute time slice to go back to, in microseconds, if the daemon changed it.
    pub fn slice_us(&self) -> Option<u64> {
        Some(self.slice_us.load(SeqCst)).filter(|&us| us != 0)
    }

    /// Remembers the compute time slice to go back to.
    pub fn set_slice_us(&self, us: u64) {
        self.slice_us.store(us, SeqCst);
    }

    /// How many times the tenant has made channels.
    pub fn channel_generation(&self) -> u64 {
        self.channel_generation.load(SeqCst)
    }

    /// The tenant made a channel; returns the new generation.
    pub fn raise_channel_generation(&self) -> u64 {
        self.channel_generation.fetch_add(1, SeqCst) + 1
    }

    /// Of no tenant: for code that needs a page before there is one.
    pub const fn of_nobody() -> Self {
        Self {
            magic: 0,
            version: 0,
            epoch: AtomicU64::new(0),
            freeze_generation: AtomicU64::new(0),
            residency_commit: AtomicU64::new(0),
            slice_us: AtomicU64::new(0),
            channel_generation: AtomicU64::new(0),
            watched: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(0),
            others_bytes: AtomicU64::new(0),
            residue_bytes: AtomicU64::new(0),
            critical: AtomicU64::new(0),
            slo_ns: AtomicU64::new(0),
            end_awaited: AtomicU64::new(0),
            _apart: [0; 2],
            idle_since_ns: AtomicU64::new(0),
            idle_total_ns: AtomicU64::new(0),
            used_bytes: AtomicU64::new(0),
            unseen_bytes: AtomicU64::new(0),
            holds_launches: AtomicU64::new(0),
            requests_open: AtomicU64::new(0),
            phases_open: AtomicU64::new(0),
            unforecast: AtomicU64::new(0),
            hints_dropped: AtomicU64::new(0),
            warm_ups: AtomicU64::new(0),
            warm_ups_failed: AtomicU64::new(0),
            warmed_ns: AtomicU64::new(0),
            freezes: AtomicU64::new(0),
            frozen_wholly: AtomicU64::new(0),
            warm_ups_ordered: AtomicU64::new(0),
            warm_up_expected_ns: AtomicU64::new(0),
            awaits_warm_ups: AtomicU64::new(0),
            warm_ups_awaited: AtomicU64::new(0),
            warm_up_due_ns: AtomicU64::new(0),
            requests_told: AtomicU64::new(0),
            phase_name: [const { AtomicU64::new(0) }; PHASE_NAME_BYTES / 8],
            latencies: Latencies::new(),
        }
    }

    /// Of no tenant, and idle for ever: whoever looks at it before new work goes the long way.
    pub const fn of_nobody_idle() -> Self {
        Self { idle_since_ns: AtomicU64::new(1), ..Self::of_nobody() }
    }

    /// The daemon says how the tenant's job is: what it may have on this GPU, what others of it have, and what the
    /// tenant's own context takes.
    pub fn set_memory(&self, limit_bytes: u64, others_bytes: u64, residue_bytes: u64) {
        self.limit_bytes.store(limit_bytes, SeqCst);
        self.others_bytes.store(others_bytes, SeqCst);
        self.residue_bytes.store(residue_bytes, SeqCst);
    }

    /// What the tenant's job may have on this GPU.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(SeqCst)
    }

    /// What other tenants of its job have there.
    pub fn others_bytes(&self) -> u64 {
        self.others_bytes.load(SeqCst)
    }

    /// What the tenant's context takes there.
    pub fn residue_bytes(&self) -> u64 {
        self.residue_bytes.load(SeqCst)
    }

    /// What the tenant's program has there beside its context, by its own word.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(SeqCst)
    }

    /// Of it, what the driver counts for no process: it is in the books, but not in NVML's figure for the tenant.
    pub fn unseen_bytes(&self) -> u64 {
        self.unseen_bytes.load(SeqCst)
    }

    /// The tenant says what of its memory the driver counts for no process.
    pub fn set_unseen_bytes(&self, bytes: u64) {
        self.unseen_bytes.store(bytes, SeqCst);
    }

    /// The tenant says what its program has.
    pub fn set_used_bytes(&self, bytes: u64) {
        // Nothing else is ordered by it.
        self.used_bytes.store(bytes, Relaxed);
    }

    /// Since when the tenant has no work; None while it has.
    pub fn idle_since_ns(&self) -> Option<u64> {
        Some(self.idle_since_ns.load(SeqCst)).filter(|&since| since != 0)
    }

    /// The tenant has no work since this instant. False if it said so before. Work that begins on another thread meanwhile
    /// is found by whoever looks after this, or finds this.
    pub fn rest(&self, since_ns: u64) -> bool {
        self.idle_since_ns.compare_exchange(0, since_ns.max(1), SeqCst, SeqCst).is_ok()
    }

    /// The tenant has work. True if the daemon is to be told.
    #[must_use = "a daemon that watches waits to be told"]
    pub fn wake(&self, now_ns: u64) -> bool {
        let since = self.idle_since_ns.swap(0, SeqCst);
        if since == 0 {
            // Whoever woke it is the one to tell.
            return false;
        }
        self.idle_total_ns.fetch_add(now_ns.saturating_sub(since), SeqCst);
        self.take_watch()
    }

    /// The tenant tells the daemon that it has work, or is about to have some. False if the daemon does not wait for that, because
    /// it was told.
    #[must_use = "a daemon that watches waits to be told"]
    pub fn take_watch(&self) -> bool {
        self.watched.load(SeqCst) != 0 && self.watched.swap(0, SeqCst) != 0
    }

    /// It could not be told: whoever has work next tells. True if somebody has some already, and found nothing to tell: then it
    /// has to be told after all.
    #[must_use = "a daemon that watches waits to be told"]
    pub fn give_watch_back(&self) -> bool {
        self.watched.store(1, SeqCst);
        self.idle_since_ns.load(SeqCst) == 0 && self.take_watch()
    }

    /// How long the tenant has had no work in all, up to now.
    pub fn idle_total_ns(&self, now_ns: u64) -> u64 {
        let look = || (self.idle_since_ns.load(SeqCst), self.idle_total_ns.load(SeqCst));
        let (mut since, mut total) = look();
        // It may wake in between. Anything is as good as the truth about a tenant that does so all the time.
        for _ in 0..4 {
            let again = look();
            if (since, total) == again {
                break;
            }
            (since, total) = again;
        }
        total.saturating_add(if since == 0 { 0 } else { now_ns.saturating_sub(since) })
    }

    /// Watches a tenant if it has no work. True if so: then it tells when it has.
    pub fn is_idle_when_watched(&self) -> bool {
        self.watched.store(1, SeqCst);
        let idle = self.idle_since_ns.load(SeqCst) != 0;
        if !idle {
            self.stop_watching();
        }
        idle
    }

    /// Does the daemon wait to be told that the tenant has work?
    pub fn is_watched(&self) -> bool {
        self.watched.load(SeqCst) != 0
    }

    /// The daemon need not be told. It may be all the same, if the tenant woke just before.
    pub fn stop_watching(&self) {
        self.watched.store(0, SeqCst);
    }
}

/// Why a page could not be shared.
#[derive(Debug, Error)]
pub enum PageError {
    /// The system refused memory.
    #[error("cannot make or map a shared page: {0}")]
    System(#[from] rustix::io::Errno),
    /// The other side's file is not such a page.
    #[error("the file is not a rota page of version {expected} (magic {magic:#x}, version {version})")]
    Foreign {
        /// What stands where the magic should be.
        magic: u64,
        /// What stands where the version should be.
        version: u64,
        /// The version this side speaks.
        expected: u32,
    },
    /// The file is too short to map.
    #[error("the file has {0} bytes, a page needs {PAGE_BYTES}")]
    Short(u64),
}

/// A mapped [`Page`]. Unmapped when dropped.
#[derive(Debug)]
pub struct SharedPage {
    page: NonNull<Page>,
    file: OwnedFd,
}

// SAFETY: all shared fields are atomics; the rest is written once before the page is shared.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// The daemon makes a page for a tenant: not frozen, resident (there is nothing yet that could be away).
    pub fn create(epoch: u64) -> Result<Self, PageError> {
        let file = rustix::fs::memfd_create("rota-page", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, PAGE_BYTES as u64)?;
        // A page that could shrink would let one side crash the other.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapped = Self::map(file)?;
        let page = mapped.page.as_ptr();
        // SAFETY: the mapping is writable, aligned and large enough, and nobody else has the file yet.
        unsafe {
            (*page).magic = MAGIC;
            (*page).version = u64::from(crate::VERSION);
        }
        mapped.epoch.store(epoch, SeqCst);
        mapped.commit_residency(1);
        Ok(mapped)
    }

    /// The tenant maps the page that came with its welcome.
    pub fn open(file: OwnedFd) -> Result<Self, PageError> {
        let mapped = Self::map(file)?;
        if mapped.magic != MAGIC || mapped.version != u64::from(crate::VERSION) {
            return Err(PageError::Foreign {
                magic: mapped.magic,
                version: mapped.version,
                expected: crate::VERSION,
            });
        }
        Ok(mapped)
    }

    /// Another page takes the place of this one, at the same address: the tenant has a new daemon. How long requests took
    /// goes with it, how often channels were frozen, and how many warm-ups were wanted.
    ///
    /// Whoever looks at it meanwhile sees the one or the other.
    pub fn renew(&self, by: SharedPage) -> Result<(), PageError> {
        by.take_requests_from(self);
        by.take_warm_ups_from(self);
        by.freezes.fetch_add(self.freezes.load(SeqCst), SeqCst);
        by.frozen_wholly.fetch_max(self.frozen_wholly.load(SeqCst), SeqCst);
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        let address = self.page.as_ptr().cast();
        // SAFETY: the address is that of this mapping, as long as the new one, and what lies there is atomics, or the same in
        // all pages.
        unsafe {
            rustix::mm::mmap(address, PAGE_BYTES, flags, MapFlags::SHARED | MapFlags::FIXED, &by.file, 0)?
        };
        replace_file(&by.file, &self.file)?;
        Ok(())
    }

    /// The file behind it, to be sent to the tenant.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn map(file: OwnedFd) -> Result<Self, PageError> {
        let length = rustix::fs::fstat(&file)?.st_size.unsigned_abs();
        if length < PAGE_BYTES as u64 {
            return Err(PageError::Short(length));
        }
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), PAGE_BYTES, flags, MapFlags::SHARED, &file, 0)? };
        let page = NonNull::new(address.cast::<Page>()).expect("mmap never returns null");
        Ok(Self { page, file })
    }
}

/// Puts a file under another one's number, which stays open throughout, and belongs to whoever it did.
pub(crate) fn replace_file(by: &OwnedFd, old: &OwnedFd) -> rustix::io::Result<()> {
    // SAFETY: the number is that of an open file, whose owner goes on to own it: the guard must not close it.
    let mut target = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(old.as_raw_fd()) });
    rustix::io::dup3(by, &mut target, rustix::io::DupFlags::CLOEXEC)
}

impl std::ops::Deref for SharedPage {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: mapped for as long as self lives, aligned to a page, and large enough.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; no reference outlives self.
        let _ = unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests;
