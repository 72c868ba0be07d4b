//! What must hold between any two events, and at the end.

use super::super::world::Event;
use super::History;
use crate::exchange::{Plan, Reply};
use crate::mover::Whereabouts;
use crate::{HandleKey, Owner};
use std::collections::BTreeSet;
use std::time::Duration;

fn who(reply: &Reply) -> Owner {
    match reply {
        Reply::Unmapped { owner, .. }
        | Reply::Created { owner, .. }
        | Reply::Taken { owner, .. }
        | Reply::Failed { owner, .. }
        | Reply::Gone { owner }
        | Reply::Freed { owner, .. }
        | Reply::Prepared { owner, .. }
        | Reply::Exchanged { owner, .. }
        | Reply::Stayed { owner, .. } => *owner,
    }
}

impl History {
    /// Every byte is right that a tenant could see, what is away is mapped nowhere, and all books agree.
    pub(super) fn check(&mut self) {
        let setup = self.setup.as_mut().expect("somebody works");
        let world = setup.tenants.world();
        // These owe an answer: only theirs may be on its way for longer than an exchange.
        let silent: BTreeSet<Owner> = world.held_back.iter().map(who).collect();
        let living: Vec<HandleKey> = world.living().into_iter().map(|(key, _)| key).collect();
        for &key in &living {
            let view = setup.mover.handle(key).unwrap_or_else(|| panic!("{key} is lost"));
            match view.whereabouts {
                Whereabouts::Device => assert_eq!(world.wrong_words(key), Some(0), "{key}"),
                Whereabouts::Arena => assert_eq!(world.wrong_words(key), None, "{key}"),
                other => assert!(silent.contains(&key.owner), "{key} is {other:?}, and nobody is to answer"),
            }
            let committed = self.tenants.get(&key.owner).expect("who has handles lives").committed;
            assert!(
                !committed || view.whereabouts == Whereabouts::Device,
                "{key} is not there and may be used"
            );
        }
        drop(world);
        for owner in (0..=self.born).map(Owner) {
            let known: Vec<HandleKey> = setup.mover.handles(owner).iter().map(|view| view.key).collect();
            let has: Vec<HandleKey> = living.iter().copied().filter(|key| key.owner == owner).collect();
            assert_eq!(known, has, "{owner}");
        }
        setup.check_rules();
        assert_eq!(setup.mover.planted.seen.freed_twice, [], "their arena space was freed twice");
        let (sinking, fetching) = setup.mover.between();
        if silent.is_empty() && !setup.mover.has_graves() && sinking.is_empty() && fetching.is_empty() {
            self.check_books();
        }
    }

    /// The mover, the keeper, the cellar and the device have the same in their books.
    fn check_books(&mut self) {
        let owners: Vec<Owner> = self.tenants.keys().copied().collect();
        let is_alone = self.corpses.is_empty();
        let setup = self.setup();
        let sum = |bytes_of: &dyn Fn(Owner) -> u64| owners.iter().map(|&owner| bytes_of(owner)).sum::<u64>();
        let imported: u64 = setup.mover.device().imports().lock().expect("no panic").values().sum();
        let resident = sum(&|owner| setup.mover.resident_bytes(owner));
        assert_eq!(imported, resident + setup.mover.lost_device_bytes(), "imports");
        let (books, known) = setup.mover.arena().books();
        let away = sum(&|owner| setup.mover.away_bytes(owner));
        assert_eq!(books.away_bytes + books.cellar_bytes, away, "what is away");
        assert_eq!(books.reserved_bytes, setup.mover.lost_arena_bytes(), "what is reserved");
        let placed = books.away_bytes - books.zero_bytes;
        let all = [books.free_bytes, books.reserved_bytes, placed, books.clean_bytes];
        assert_eq!(books.ready_bytes, all.iter().sum::<u64>() + books.orphaned_bytes, "the arena");
        assert!(books.orphaned_bytes == 0 || !is_alone, "{} bytes are nobody's", books.orphaned_bytes);
        let cellar = setup.mover.arena().cellar_statistics().unwrap_or_default();
        assert_eq!(cellar.plain_bytes, books.cellar_bytes, "the cellar");
        assert_eq!(known, owners, "tenants that the keeper knows");
    }

    /// How handles were dropped under the worker that there is.
    pub(super) fn see_dropped(&mut self) {
        let dropped = std::mem::take(&mut self.setup().mover.planted.seen.phases);
        for (phase, count) in dropped {
            *self.counts.dropped.entry(phase).or_default() += count;
        }
    }

    /// Everybody comes back as a whole, if it can, and dies. Then nothing is left anywhere.
    pub(super) fn end(&mut self) {
        self.rest();
        // What a device has refused to let go of goes with its worker.
        self.kill_worker();
        self.rest();
        while let Some(owner) = self.next_to_end() {
            self.come_alone(owner);
            let is_whole = self.tenants.get(&owner).is_some_and(|tenant| tenant.committed);
            let goes = if is_whole { Some(owner) } else { self.largest_resident() };
            let goes = goes.unwrap_or(owner);
            self.setup().tenants.world().happen(Event::Dies(goes));
            self.rest();
        }
        self.see_dropped();
        let setup = self.setup();
        assert!(setup.tenants.world().is_empty(), "something of the dead is there");
        assert_eq!(*setup.mover.device().imports().lock().expect("no panic"), [].into(), "imports");
        let (books, known) = setup.mover.arena().books();
        assert_eq!((books.free_bytes, known), (books.ready_bytes, vec![]), "the keeper's books: {books:?}");
        let cellar = setup.mover.arena().cellar_statistics().unwrap_or_default();
        assert_eq!((cellar.blocks, cellar.disk_bytes, cellar.jobs), (0, 0, 0), "the cellar");
        assert_eq!(setup.mover.arena().found(), [], "tenants of dead workers");
    }

    /// Those who are wholly there first: they have been looked at, and make room for the others.
    fn next_to_end(&self) -> Option<Owner> {
        let whole = self.tenants.iter().find(|(_, tenant)| tenant.committed);
        whole.or_else(|| self.tenants.first_key_value()).map(|(&owner, _)| owner)
    }

    fn come_alone(&mut self, owner: Owner) {
        let others: Vec<Owner> = self.tenants.keys().copied().filter(|other| *other != owner).collect();
        let into = self.setup().at(owner, Whereabouts::Arena);
        if into.is_empty() {
            return;
        }
        let out = others.iter().flat_map(|&other| self.setup().at(other, Whereabouts::Device)).collect();
        let plan = Plan { out, into, room_bytes: self.room_bytes(), deadline: Duration::from_secs(1) };
        self.exchange(plan, &[]);
    }

    fn largest_resident(&mut self) -> Option<Owner> {
        let owners: Vec<Owner> = self.tenants.keys().copied().collect();
        let setup = self.setup();
        owners.into_iter().max_by_key(|&owner| setup.mover.resident_bytes(owner))
    }
}
