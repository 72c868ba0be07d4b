//! Workers that die in the middle of moves, at every step of random histories. The next one adopts what is there: no byte is
//! wrong, and none stays taken.
//!
//! What a dead worker had started on its device may still happen, until its process is wholly gone: here as late as it can,
//! right before the next one says that nothing of it is under way any more. A failure names the seed and the steps that it
//! can be seen again with.

mod adoption;

use super::disk::{Fault, On};
use super::mortal::{Corpse, Fate, Killed, Mortal, Random};
use super::world::{Content, Event};
use super::{A, B, LONG, Setup, key};
use crate::arena::ArenaError;
use crate::device::Device;
use crate::exchange::{MoveError, Outcome, Plan};
use crate::mover::Whereabouts;
use crate::test_keeper::process;
use crate::{AdoptError, Adoption, BLOCK_BYTES, CleanCopies, HandleKey, Owner};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

impl Setup {
    pub(super) fn adopt(&mut self, owner: Owner) -> Result<Adoption, AdoptError> {
        let handles = self.tenants.world().report(owner);
        self.mover.adopt_tenant(owner, process(owner), handles, &mut self.tenants)
    }

    /// Everybody who lives is adopted with all it has; the dead are forgotten.
    fn adopt_all(&mut self) {
        for owner in [A, B] {
            let handles = self.tenants.world().report(owner);
            handles.iter().for_each(|reported| self.mover.may_pass(key(owner, reported.handle)));
            if self.tenants.world().dead.contains(&owner) {
                self.mover.forget_owner(owner);
                continue;
            }
            let adoption = self.adopt(owner).expect("it is the one that the keeper knows");
            assert_eq!((adoption.lost, adoption.failed), (vec![], vec![]), "{owner}");
        }
        self.take_late();
        self.check_contents();
    }

    /// Every living handle is on the device with its contents, or in the arena.
    fn check_contents(&mut self) {
        let world = self.tenants.world();
        for (key, bytes) in world.living() {
            let view = self.mover.handle(key).unwrap_or_else(|| panic!("{key} is lost"));
            assert_eq!(view.bytes, bytes);
            match view.whereabouts {
                Whereabouts::Device => assert_eq!(world.wrong_words(key), Some(0), "{key}"),
                Whereabouts::Arena => assert_eq!(world.wrong_words(key), None, "{key}"),
                Whereabouts::Leaving | Whereabouts::Returning => panic!("{key} is unsettled"),
            }
        }
        drop(world);
        self.check_rules();
    }

    pub(super) fn at(&self, owner: Owner, whereabouts: Whereabouts) -> Vec<HandleKey> {
        let handles = self.mover.handles(owner).into_iter();
        handles.filter(|view| view.whereabouts == whereabouts).map(|view| view.key).collect()
    }
}

/// A history, and how it came to its end if that was bad.
struct History {
    seed: u64,
    random: Random,
    fate: Arc<Fate>,
    /// None only while a worker dies.
    setup: Option<Setup>,
    /// Workers that are dead and not wholly gone.
    corpses: Vec<Corpse>,
    how: CleanCopies,
    runs: Owner,
    waits: Owner,
    deaths: u64,
}

impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let dies_at = self.fate.dies_at.load(SeqCst);
            eprintln!("seed {}, dies at step {dies_at}, after {} deaths", self.seed, self.deaths);
        }
    }
}

impl History {
    fn begin(seed: u64, has_cellar: bool) -> History {
        let mut random = Random::new(seed);
        let (a, b) = (random.sizes(), random.sizes());
        let (a_blocks, b_blocks) = (a.iter().sum::<u64>(), b.iter().sum::<u64>());
        let capacity = a_blocks.max(b_blocks) + random.below(3);
        let mut setup = match has_cellar {
            // Too little for one of them, so that most of it goes further.
            true => Setup::with_cellar(capacity, 2 + random.below(a_blocks.max(b_blocks)), 64),
            // Often too little for all, and for what a dead worker has reserved.
            false => Setup::new(capacity, a_blocks.max(b_blocks) + 2 + random.below(6)),
        };
        let how = [CleanCopies::On, CleanCopies::On, CleanCopies::Audit, CleanCopies::Off];
        let how = how[random.below(4) as usize];
        setup.mover.keep_copies(how).expect("a device that hashes");
        setup.trust_each_other();
        let away = setup.allocate(B, &b);
        assert_eq!(setup.exchange(super::plan(&away, &[], 0)).moved_out.len(), away.len());
        setup.allocate(A, &a);
        setup.mover.device_mut().polls_per_copy = 1 + random.below(2) as u32;
        let fate = Arc::<Fate>::default();
        let mut history = History {
            seed,
            random,
            fate,
            setup: Some(setup),
            corpses: Vec::new(),
            how,
            runs: A,
            waits: B,
            deaths: 0,
        };
        history.follow();
        history
    }

    fn setup(&mut self) -> &mut Setup {
        self.setup.as_mut().expect("somebody works")
    }

    /// The worker's steps are counted.
    fn follow(&mut self) {
        let fate = Arc::clone(&self.fate);
        self.setup().mover.device_mut().each_call(move || fate.step());
        let fate = Arc::clone(&self.fate);
        self.setup().mover.arena().each_cellar_step(move || fate.step());
    }

    /// Writes and switches, so many.
    fn go_on(&mut self, happenings: u64) {
        for _ in 0..happenings {
            match self.random.below(2) {
                0 => self.write(),
                _ => self.switch(),
            }
        }
    }

    /// Whoever runs, writes, if all of it is there.
    fn write(&mut self) {
        let runs = self.runs;
        let (which, block, what) = (self.random.below(8), self.random.below(8), self.random.below(4));
        let setup = self.setup();
        let keys = setup.at(runs, Whereabouts::Device);
        if keys.is_empty() || keys.len() < setup.mover.handles(runs).len() {
            return;
        }
        let key = keys[which as usize % keys.len()];
        let blocks = setup.mover.handle(key).expect("it is there").bytes / BLOCK_BYTES;
        let content = if what == 0 { Content::Zero } else { Content::Version(what) };
        setup.tenants.world().write(key, block % blocks, content);
    }

    fn switch(&mut self) {
        let (runs, waits, fate) = (self.runs, self.waits, Arc::clone(&self.fate));
        self.trouble_the_disk();
        let setup = self.setup();
        let (out, into) = (setup.at(runs, Whereabouts::Device), setup.at(waits, Whereabouts::Arena));
        let room_bytes = setup.mover.device_mut().capacity().expect("it works").free_bytes;
        let plan = Plan { out, into, room_bytes, deadline: LONG };
        let mut tenants = Mortal(setup.tenants.clone(), fate);
        let moved =
            catch_unwind(AssertUnwindSafe(|| setup.mover.exchange(plan, &mut tenants, &setup.replies)));
        match moved {
            Ok(Outcome { failed, audit_errors, .. }) => {
                // With space that a dead worker has reserved, or a disk that fails, it may be too little.
                assert!(failed.iter().all(|(_, error)| *error == MoveError::NotStarted), "{failed:?}");
                assert_eq!(audit_errors, []);
                self.setup().check_contents();
                self.lay_to_rest();
            }
            Err(cause) if cause.is::<Killed>() => self.succeed(),
            Err(cause) => resume_unwind(cause),
        }
        (self.runs, self.waits) = (waits, runs);
    }

    /// Now and then a cellar's disk is full, or fails.
    fn trouble_the_disk(&mut self) {
        let Some(disk) = self.setup().disk.clone() else { return };
        let (what, nth) = (self.random.below(8), self.random.below(3));
        match what {
            0 => disk.fail(On::Write, nth, Fault::Error(libc::ENOSPC)),
            1 => disk.fail(On::Write, nth, Fault::Error(libc::EIO)),
            2 => disk.fail(On::Allocate, 0, Fault::Error(libc::ENOSPC)),
            _ => {}
        }
    }

    /// The worker is dead: another one takes over.
    fn succeed(&mut self) {
        self.deaths += 1;
        self.happen_meanwhile();
        if self.random.below(8) == 0 {
            // It may be another version, or set up in another way.
            self.how = [CleanCopies::On, CleanCopies::Audit, CleanCopies::Off][self.random.below(3) as usize];
        }
        let (corpse, setup) = self.setup.take().expect("somebody worked").succeed(self.how);
        self.corpses.push(corpse);
        self.setup = Some(setup);
        self.follow();
        if self.seed.is_multiple_of(2) {
            self.setup().trust_each_other();
        }
        self.setup().adopt_all();
        // Otherwise the next switch is done beside what is left of it.
        if self.random.below(3) == 0 {
            self.lay_to_rest();
        }
    }

    /// A tenant that is alone with its memory may free some of it, or die.
    fn happen_meanwhile(&mut self) {
        let event = match self.random.below(12) {
            0 => Event::Dies(A),
            1 => Event::Dies(B),
            2 => Event::Frees(key(A, self.random.below(3))),
            3 => Event::Frees(key(B, self.random.below(3))),
            _ => return,
        };
        let mut world = self.setup().tenants.world();
        world.happen(event);
        world.tear_down();
    }

    /// All that dead workers had under way is over, and their processes are gone.
    fn lay_to_rest(&mut self) {
        for corpse in self.corpses.drain(..) {
            corpse.rest().expect("its device works");
        }
        let arena = self.setup().mover.arena().clone();
        arena.reclaim().expect("the keeper answers");
        drop(arena);
        self.setup().check_places();
    }

    /// All comes back, once more, and nothing is left.
    fn end(mut self) -> (u64, u64) {
        self.fate.dies_at.store(0, SeqCst);
        let steps = self.fate.steps.load(SeqCst);
        if let Some(disk) = &self.setup().disk {
            disk.heal();
        }
        self.lay_to_rest();
        self.setup().check_all();
        (steps, self.deaths)
    }
}

/// There and back, with writes in between.
fn there_and_back(history: &mut History) {
    for _ in 0..2 {
        history.write();
        history.write();
        history.switch();
    }
}

/// Has a worker die at each so manieth step of these histories.
fn die_at_steps(seeds: std::ops::Range<u64>, stride: usize, has_cellar: bool) {
    for seed in seeds {
        let mut history = History::begin(seed, has_cellar);
        there_and_back(&mut history);
        let (steps, _) = history.end();
        assert!(steps > 20, "seed {seed} has {steps} steps");
        for step in (1 + seed % stride as u64..=steps).step_by(stride) {
            let mut history = History::begin(seed, has_cellar);
            history.fate.dies_at.store(step, SeqCst);
            there_and_back(&mut history);
            let (_, deaths) = history.end();
            assert_eq!(deaths, 1, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn a_worker_dies_at_steps_of_several_histories() {
    die_at_steps(0..5, 5, false);
}

#[test]
fn a_worker_dies_at_steps_of_several_histories_with_a_cellar() {
    die_at_steps(0..5, 7, true);
}

#[test]
#[ignore = "takes minutes; the same as above, at every step"]
fn a_worker_dies_at_every_step() {
    die_at_steps(0..40, 1, false);
    die_at_steps(0..40, 1, true);
}

#[test]
fn workers_die_again_and_again() {
    for (seed, has_cellar) in (100..108).map(|seed| (seed, seed % 2 == 0)) {
        let mut history = History::begin(seed, has_cellar);
        for _ in 0..6 {
            let next = history.fate.steps.load(SeqCst) + 1 + history.random.below(40);
            history.fate.dies_at.store(next, SeqCst);
            history.go_on(4);
        }
        assert!(history.end().1 > 1, "seed {seed}");
    }
}

#[test]
fn space_that_a_dead_worker_may_write_to_is_not_used() {
    let mut setup = Setup::new(8, 2);
    let (a, b) = (setup.allocate(A, &[2]), setup.allocate(B, &[2]));
    setup.mover.device_mut().polls_per_copy = u32::MAX;
    setup.mover.device_mut().at_poll(1, || resume_unwind(Box::new(Killed)));
    let killed = catch_unwind(AssertUnwindSafe(|| setup.exchange(super::plan(&a, &[], 0))));
    assert!(killed.is_err_and(|cause| cause.is::<Killed>()));
    let (corpse, mut setup) = setup.succeed(CleanCopies::Off);
    setup.adopt_all();
    assert!(setup.exchange(super::plan(&b, &[], 0)).stuck.is_some(), "all of it is the dead worker's");
    corpse.rest().expect("its device works");
    assert_eq!(setup.mover.arena().reclaim(), Ok(2 * BLOCK_BYTES));
    assert_eq!(setup.exchange(super::plan(&b, &[], 0)).moved_out, b);
    setup.check_all();
}

#[test]
fn without_the_keeper_nothing_moves_and_what_is_there_stays() {
    let mut setup = Setup::new(8, 8);
    let (a, b) = (setup.allocate(A, &[1, 2]), setup.allocate(B, &[1]));
    assert_eq!(setup.exchange(super::plan(&b, &[], 0)).moved_out, b);
    setup.mover.arena().cut();
    let outcome = setup.exchange(super::plan(&a, &b, 2));
    assert_eq!((outcome.moved_out, outcome.moved_in), (vec![], vec![]));
    for (key, error) in &outcome.failed {
        assert!(matches!(error, MoveError::Keeper(ArenaError::Lost { .. })), "{key}: {error}");
    }
    assert_eq!(setup.at(A, Whereabouts::Device), a, "it may go on");
    assert_eq!(setup.tenants.world().wrong_words(a[1]), Some(0));
    assert_eq!(
        setup.at(B, Whereabouts::Returning),
        b,
        "nobody can write down that it is back: it must not run"
    );
    assert!(setup.mover.arena().lost().is_some());
}
