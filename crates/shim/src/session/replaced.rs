//! What one daemon knew and the next one does not, unless it is told.

use std::collections::BTreeSet;

use wire::{GrantId, HandleId, SizedHandle};

use super::Session;
use crate::memory::table::Told;
use crate::memory::{Kept, Table};

impl Session {
    /// Whether what was granted to this request counts still: the daemon that granted it may have been replaced since. To be
    /// asked with the table held, or the names, the pins or the books of what is kept, so that it stays so.
    pub(crate) fn knows_grant(&self, grant: GrantId) -> bool {
        self.has_ended() || self.grants.is_of_now(grant)
    }

    /// A name for a request whose answer nobody waits for.
    pub(crate) fn unawaited_request(&self) -> GrantId {
        self.grants.number()
    }

    /// What never moves, and counts: the driver's own, and what it made as the program asked.
    pub(crate) fn kept_survivors(&self) -> Vec<SizedHandle> {
        let kept = self.kept();
        let table = self.table();
        all_kept(&kept, &table).collect()
    }
}

fn all_kept(kept: &Kept, table: &Table) -> impl Iterator<Item = SizedHandle> {
    kept.booked().chain(table.kept_created())
}

/// Of what a daemon was told of as never moving, what is gone meanwhile.
pub(super) fn kept_no_more(kept: &Kept, table: &Table, told: &mut Told) -> BTreeSet<HandleId> {
    let mut gone = std::mem::take(&mut told.kept);
    all_kept(kept, table).for_each(|sized| {
        gone.remove(&sized.handle);
    });
    gone
}
