//! What the program is told about its pools: how much is used, and how much is set aside.
//!
//! Memory that nobody uses is the heap's and not a pool's; a pool only says that it keeps it, as far as the program told it to
//! (its threshold).

use cuda::types::{CUdevice, CUmemoryPool};
use wire::BLOCK_BYTES;

use crate::memory::quick::QuickMap;

/// One pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Its memory is the driver's.
    pub(crate) is_native: bool,
    /// How much it keeps of what is not used.
    pub(crate) threshold: u64,
    /// What the program has of it, and had at most.
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    /// What is set aside, and was at most.
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    /// What is used, rounded up.
    held: u64,
}

impl Account {
    fn least_reserved(&self) -> u64 {
        self.held.next_multiple_of(BLOCK_BYTES)
    }

    /// Keeps no more than so much, and what is used.
    pub(crate) fn keep(&mut self, bytes: u64) {
        self.reserved = self.least_reserved().max(self.reserved.min(bytes));
    }
}

/// All pools that are known.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    by_pool: QuickMap<CUmemoryPool, Account>,
    /// The pool that a device allocates from, as far as it is known.
    current: QuickMap<i32, CUmemoryPool>,
}

impl Accounts {
    pub(crate) fn add(&mut self, pool: CUmemoryPool, is_native: bool) {
        self.by_pool.insert(pool, Account { is_native, ..Account::default() });
    }

    pub(crate) fn remove(&mut self, pool: CUmemoryPool) {
        self.by_pool.remove(&pool);
        self.current.retain(|_, current| *current != pool);
    }

    pub(crate) fn get(&self, pool: CUmemoryPool) -> Option<&Account> {
        self.by_pool.get(&pool)
    }

    pub(crate) fn get_mut(&mut self, pool: CUmemoryPool) -> Option<&mut Account> {
        self.by_pool.get_mut(&pool)
    }

    pub(crate) fn current(&self, device: CUdevice) -> Option<CUmemoryPool> {
        self.current.get(&device.0).copied()
    }

    pub(crate) fn set_current(&mut self, device: CUdevice, pool: CUmemoryPool) {
        self.current.insert(device.0, pool);
    }

    /// Devices may allocate from other pools by now.
    pub(crate) fn forget_current(&mut self) {
        self.current.clear();
    }

    /// The pool that a device allocates from, if that is known, and its memory is rota's.
    pub(crate) fn own_current(&self, device: CUdevice) -> Option<CUmemoryPool> {
        self.current(device).filter(|pool| self.get(*pool).is_some_and(|account| !account.is_native))
    }

    /// The program got memory of a pool. Nothing happens for plain memory, and pools that are gone.
    pub(crate) fn taken(&mut self, pool: CUmemoryPool, asked: u64, bytes: u64) {
        if let Some(account) = self.by_pool.get_mut(&pool) {
            account.used += asked;
            account.held += bytes;
            account.used_high = account.used_high.max(account.used);
            account.reserved = account.reserved.max(account.least_reserved());
            account.reserved_high = account.reserved_high.max(account.reserved);
        }
    }

    /// It freed it.
    pub(crate) fn freed(&mut self, pool: CUmemoryPool, asked: u64, bytes: u64) {
        if let Some(account) = self.by_pool.get_mut(&pool) {
            // A pool that was destroyed and made again under the same name knows nothing of the memory of the first.
            account.used = account.used.saturating_sub(asked);
            account.held = account.held.saturating_sub(bytes);
        }
    }

    /// Somebody waited for the device: that is when pools let go of what is above their threshold.
    pub(crate) fn settle(&mut self) {
        for account in self.by_pool.values_mut() {
            account.keep(account.threshold);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_keeps_what_it_is_told_to() {
        let pool = CUmemoryPool(std::ptr::without_provenance_mut(1));
        let mut accounts = Accounts::default();
        accounts.taken(pool, 1, 512);
        assert_eq!(accounts.get(pool), None);
        accounts.add(pool, false);
        accounts.taken(pool, 3_000_000, 4 << 20);
        accounts.taken(pool, 100, 512);
        accounts.freed(pool, 100, 512);
        accounts.settle();
        let account = accounts.get_mut(pool).unwrap();
        assert_eq!((account.used, account.used_high), (3_000_000, 3_000_100));
        assert_eq!(
            (account.reserved, account.reserved_high),
            (4 << 20, 6 << 20),
            "it keeps nothing by itself"
        );
        account.threshold = 3 << 20;
        accounts.freed(pool, 3_000_000, 4 << 20);
        assert_eq!(accounts.get(pool).unwrap().reserved, 4 << 20, "until somebody waits");
        accounts.settle();
        assert_eq!(accounts.get(pool).unwrap().reserved, 3 << 20);
        accounts.get_mut(pool).unwrap().keep(0);
        assert_eq!(accounts.get(pool).unwrap().reserved, 0);
    }
}
