//! Random histories of everything at once. Tenants come, grow, write, take turns and die; their workers are killed at any step;
//! the device, the disk and the tenants themselves fail; the arena and the cellar are too small. The keeper and the cellar are
//! real ones, and every byte of every tenant is known.
//!
//! Who runs is decided by a model of the core: a tenant's memory is *committed* when all of it is on the device, which is
//! revoked before any of it moves, and only who is committed writes. After every commit all its bytes are looked at, and at
//! the end nothing is left in any book.
//!
//! The same seed tells the same history. `ROTA_SEED` chooses one, and `ROTA_EVENTS` how long it is; what fails says both.

mod checks;
mod tests;
mod troubles;
mod turns;

use super::mortal::{Corpse, Fate, Random};
use super::world::{Content, Event};
use super::{A, B, Setup, key};
use crate::mover::Whereabouts;
use crate::mover::planted::Bug;
use crate::test_keeper::process;
use crate::{AdoptError, BLOCK_BYTES, CleanCopies, Domain, HandleKey, Owner};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tenants at a time.
const TENANTS_MAX: usize = 5;

/// A tenant, as the core would know it.
#[derive(Debug, Default)]
struct Tenant {
    /// It may run: all of its memory is there.
    committed: bool,
    /// A number that no handle of it had yet.
    next_handle: u64,
}

/// Whose memory a tenant may have: one in eight has only its own, and one in eight is not like the others.
fn domain(owner: Owner) -> Option<Domain> {
    Some(Domain([1, 1, 1, 1, u64::from(owner.0 % 8) / 7])).filter(|_| !owner.0.is_multiple_of(8))
}

/// Some handles are such that others may have them.
fn may_pass(key: HandleKey) -> bool {
    key.handle % 7 != 6
}

/// What has happened so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    events: u64,
    turns: u64,
    commits: u64,
    moved_bytes: u64,
    passed_bytes: u64,
    worker_kills: u64,
    arena_full: u64,
    cellar_full: u64,
    device_faults: u64,
    disk_faults: u64,
    /// Tenants that failed at something, or did not answer in time.
    tenant_faults: u64,
    /// Tenants that were ended since the disk had lost something of theirs.
    ended: u64,
    /// Handles that were dropped, by the phase they were in.
    dropped: BTreeMap<&'static str, u64>,
}

/// See the module.
struct History {
    seed: u64,
    /// How many events it will have.
    length: u64,
    random: Random,
    fate: Arc<Fate>,
    /// None only while a worker dies.
    setup: Option<Setup>,
    /// Workers that are dead and not wholly gone.
    corpses: Vec<Corpse>,
    how: CleanCopies,
    bug: Option<Bug>,
    tenants: BTreeMap<Owner, Tenant>,
    /// The highest number of a tenant.
    born: u32,
    counts: Counts,
    /// What became of each turn, in words.
    told: Vec<String>,
}

impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() && self.bug.is_none() {
            let (seed, length, events) = (self.seed, self.length, self.counts.events);
            eprintln!("it failed at event {events} of seed {seed}. The last turns:");
            let last = self.told.len().saturating_sub(8);
            self.told[last..].iter().for_each(|line| eprintln!("  {line}"));
            eprintln!(
                "Once more: ROTA_SEED={seed} ROTA_EVENTS={length} cargo test -p rota-mover --lib -- --nocapture \
                 a_thousand_events"
            );
        }
    }
}

impl History {
    fn begin(seed: u64, length: u64, bug: Option<Bug>) -> History {
        let mut random = Random::new(seed);
        let capacity = 6 + random.below(5);
        let mut setup = match seed % 3 {
            0 => Setup::new(capacity, 8 + random.below(8)),
            // Too little for most, so that much of it goes further, and there is an end to that as well.
            _ => Setup::with_cellar(capacity, 3 + random.below(4), 8 + random.below(12)),
        };
        setup.tenants.world().fill_densely();
        setup.mover.pass_from(BLOCK_BYTES);
        for nobody in [A, B] {
            setup.mover.forget_owner(nobody);
        }
        let how = [CleanCopies::On, CleanCopies::On, CleanCopies::Audit, CleanCopies::Off];
        let how = how[random.below(4) as usize];
        setup.mover.keep_copies(how).expect("a device that hashes");
        let mut history = History {
            seed,
            length,
            random,
            fate: Arc::default(),
            setup: Some(setup),
            corpses: Vec::new(),
            how,
            bug,
            tenants: BTreeMap::new(),
            born: B.0,
            counts: Counts::default(),
            told: Vec::new(),
        };
        history.equip();
        history
    }

    /// All of it, from its begin to its end.
    fn whole(seed: u64, length: u64, bug: Option<Bug>) -> (Counts, Vec<String>) {
        let mut history = History::begin(seed, length, bug);
        while history.counts.events < length {
            history.happen();
        }
        history.end();
        (std::mem::take(&mut history.counts), std::mem::take(&mut history.told))
    }

    fn setup(&mut self) -> &mut Setup {
        self.setup.as_mut().expect("somebody works")
    }

    /// What every worker has: a clock that is driven, steps that are counted, and the bug.
    fn equip(&mut self) {
        let (bug, fate) = (self.bug, Arc::clone(&self.fate));
        let setup = self.setup();
        setup.drive_clock();
        setup.mover.pass_from(BLOCK_BYTES);
        setup.mover.planted.bug = bug;
        let step = Arc::clone(&fate);
        setup.mover.device_mut().each_call(move || step.step());
        setup.mover.arena().each_cellar_step(move || fate.step());
    }

    fn happen(&mut self) {
        self.counts.events += 1;
        match self.random.below(100) {
            0..10 => self.arrive(),
            10..16 => self.grow(),
            16..20 => self.shrink(),
            20..32 => self.write(),
            32..93 => self.turn(),
            93..95 => self.die(),
            95..97 => self.kill_worker(),
            _ => self.rest(),
        }
    }

    /// What the device has room for.
    fn room_bytes(&mut self) -> u64 {
        let world = self.setup().tenants.world();
        world.capacity() - world.used()
    }

    /// One of these, by chance.
    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let limit = u64::try_from(all.len()).expect("few");
        (limit > 0).then(|| all[self.random.below(limit) as usize])
    }

    /// Who may run, by chance one of them.
    fn who_runs(&mut self) -> Option<Owner> {
        let committed = self.tenants.iter().filter(|(_, tenant)| tenant.committed);
        let committed: Vec<Owner> = committed.map(|(&owner, _)| owner).collect();
        self.one_of(&committed)
    }

    /// A new tenant, if there is room for it.
    fn arrive(&mut self) {
        // In most histories many have the same size, so that they can have each other's memory.
        let sizes = if self.seed.is_multiple_of(4) { [1, 2, 3] } else { [2, 2, 1 + self.seed % 2] };
        let size = |random: &mut Random| sizes[random.below(3) as usize];
        let blocks: Vec<u64> = (0..1 + self.random.below(3)).map(|_| size(&mut self.random)).collect();
        let bytes = blocks.iter().sum::<u64>() * BLOCK_BYTES;
        if self.tenants.len() >= TENANTS_MAX || bytes > self.room_bytes() {
            return self.turn();
        }
        self.born += 1;
        let owner = Owner(self.born);
        self.setup().mover.introduce(owner, process(owner)).expect("a new tenant");
        self.setup().mover.set_domain(owner, domain(owner));
        self.tenants.insert(owner, Tenant { committed: true, next_handle: 0 });
        for blocks in blocks {
            self.allocate(owner, blocks);
        }
    }

    fn allocate(&mut self, owner: Owner, blocks: u64) {
        let tenant = self.tenants.get_mut(&owner).expect("it lives");
        let key = key(owner, tenant.next_handle);
        tenant.next_handle += 1;
        let setup = self.setup();
        let file = setup.tenants.world().allocate(key, blocks * BLOCK_BYTES);
        if may_pass(key) {
            setup.mover.may_pass(key);
        }
        setup.mover.adopt(key, blocks * BLOCK_BYTES, file).expect("a new handle");
    }

    /// Whoever runs allocates, if there is room, and it stays small enough to be there as a whole.
    fn grow(&mut self) {
        let blocks = 1 + self.random.below(2);
        let Some(owner) = self.who_runs() else { return };
        let room_bytes = self.room_bytes();
        let setup = self.setup();
        let has_bytes = setup.mover.resident_bytes(owner);
        let most_bytes = setup.tenants.world().capacity() * 3 / 4;
        if blocks * BLOCK_BYTES <= room_bytes && has_bytes + blocks * BLOCK_BYTES <= most_bytes {
            self.allocate(owner, blocks);
        }
    }

    /// Whoever runs frees something.
    fn shrink(&mut self) {
        let Some(owner) = self.who_runs() else { return };
        if let Some(key) = self.one_handle(owner) {
            self.setup().tenants.world().happen(Event::Frees(key));
            self.settle();
        }
    }

    fn one_handle(&mut self, owner: Owner) -> Option<HandleKey> {
        let keys: Vec<HandleKey> = self.setup().mover.handles(owner).iter().map(|view| view.key).collect();
        self.one_of(&keys)
    }

    /// Whoever runs writes.
    fn write(&mut self) {
        let (block, what) = (self.random.below(8), self.random.below(4));
        let Some(owner) = self.who_runs() else { return };
        let Some(key) = self.one_handle(owner) else { return };
        let setup = self.setup();
        let blocks = setup.mover.handle(key).expect("it is there").bytes / BLOCK_BYTES;
        let content = if what == 0 { Content::Zero } else { Content::Version(what) };
        setup.tenants.world().write(key, block % blocks, content);
    }

    /// A tenant dies while nothing moves.
    fn die(&mut self) {
        let owners: Vec<Owner> = self.tenants.keys().copied().collect();
        if let Some(owner) = self.one_of(&owners) {
            self.end_tenant(owner);
        }
    }

    fn end_tenant(&mut self, owner: Owner) {
        self.setup().tenants.world().happen(Event::Dies(owner));
        self.settle();
    }

    /// Takes in what tenants say between turns, until nobody has anything more to say.
    fn settle(&mut self) {
        let setup = self.setup();
        for _ in 0..4 {
            let must_end = setup.take_late();
            let mut world = setup.tenants.world();
            for owner in must_end {
                if !world.dead.contains(&owner) {
                    world.happen(Event::Dies(owner));
                }
            }
            drop(world);
            setup.mover.catch_up(&mut setup.tenants);
        }
        let dead = setup.tenants.world().dead.clone();
        self.tenants.retain(|owner, _| !dead.contains(owner));
    }

    /// Whoever has all of its memory may run. Its bytes are looked at by [`History::check`], right behind this.
    fn commit(&mut self) {
        let setup = self.setup.as_mut().expect("somebody works");
        for (&owner, tenant) in &mut self.tenants {
            let is_there =
                setup.mover.handles(owner).iter().all(|view| view.whereabouts == Whereabouts::Device);
            self.counts.commits += u64::from(is_there && !tenant.committed);
            tenant.committed = is_there;
        }
    }

    /// Nothing is late any more: tenants have answered, the dead are torn down, and dead workers are wholly gone.
    fn rest(&mut self) {
        let mut world = self.setup().tenants.world();
        for reply in std::mem::take(&mut world.held_back) {
            world.send(reply);
        }
        drop(world);
        self.settle();
        self.setup().tenants.world().tear_down();
        self.lay_to_rest();
        self.commit();
        self.check();
    }

    /// All that dead workers had under way is over, and their processes are gone.
    fn lay_to_rest(&mut self) {
        for corpse in self.corpses.drain(..) {
            let violations = corpse.device.violations();
            corpse.rest().expect("its device works");
            assert_eq!(*violations.lock().expect("no panic"), [""; 0], "of a dead worker");
        }
        self.setup().mover.arena().reclaim().expect("the keeper answers");
    }

    fn kill_worker(&mut self) {
        self.fate.forget();
        self.succeed();
    }

    /// The worker is dead: another one takes over.
    fn succeed(&mut self) {
        self.counts.worker_kills += 1;
        self.see_dropped();
        self.happen_meanwhile();
        if self.random.below(8) == 0 {
            // It may be another version, or set up in another way.
            self.how = [CleanCopies::On, CleanCopies::Audit, CleanCopies::Off][self.random.below(3) as usize];
        }
        let (corpse, setup) = self.setup.take().expect("somebody worked").succeed(self.how);
        self.corpses.push(corpse);
        self.setup = Some(setup);
        self.equip();
        self.arm_adoption();
        for (owner, _) in self.setup().mover.arena().found() {
            match self.tenants.get(&owner).map(|tenant| tenant.committed) {
                None => drop(self.setup().mover.forget_owner(owner)),
                Some(committed) => {
                    let setup = self.setup();
                    setup.mover.set_domain(owner, domain(owner));
                    let handles = setup.tenants.world().report(owner);
                    let keys = handles.iter().map(|reported| key(owner, reported.handle));
                    keys.filter(|&key| may_pass(key)).for_each(|key| setup.mover.may_pass(key));
                    let adoption = match self.setup().adopt(owner) {
                        Err(AdoptError::Gone { .. }) => continue,
                        adoption => adoption.expect("it is the one that the keeper knows"),
                    };
                    assert_eq!((adoption.lost, adoption.failed), (vec![], vec![]), "{owner}");
                    let is_whole = adoption.away.is_empty() && adoption.unsettled.is_empty();
                    assert!(is_whole || !committed, "{owner} runs, and its memory is not there");
                }
            }
        }
        self.setup().tenants.world().twist = None;
        self.settle();
        self.commit();
        self.check();
        // Otherwise the next turn is done beside what is left of it.
        if self.random.below(3) == 0 {
            self.lay_to_rest();
        }
    }

    /// A tenant that is alone with its memory may free some of it, or die. Nobody hears what it said before.
    fn happen_meanwhile(&mut self) {
        let owners: Vec<Owner> = self.tenants.keys().copied().collect();
        let (what, owner) = (self.random.below(8), self.one_of(&owners));
        let event = owner.and_then(|owner| match what {
            0 => Some(Event::Dies(owner)),
            1 => self.one_handle(owner).map(Event::Frees),
            _ => None,
        });
        let mut world = self.setup().tenants.world();
        world.held_back.clear();
        if let Some(event) = event {
            world.happen(event);
        }
        let dead = world.dead.clone();
        drop(world);
        self.tenants.retain(|owner, _| !dead.contains(owner));
    }
}
