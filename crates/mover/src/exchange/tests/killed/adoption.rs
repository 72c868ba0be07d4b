//! What tenants of a dead worker say they have, against what the keeper recorded.

use super::super::plan;
use super::*;
use crate::{Reported, ReportedMemory};
use std::collections::BTreeMap;

#[test]
fn only_the_very_process_is_adopted_and_only_once() {
    let mut setup = Setup::new(4, 6);
    let keys = setup.allocate(A, &[1, 1]);
    assert_eq!(setup.exchange(plan(&keys[..1], &[], 0)).moved_out, keys[..1]);
    let (corpse, mut setup) = setup.succeed(CleanCopies::Off);
    corpse.rest().expect("its device works");
    let other = keeper::Process { start_ticks: 8, ..process(A) };
    let handles = setup.tenants.world().report(A);
    let refused = setup.mover.adopt_tenant(A, other, handles, &mut setup.tenants);
    assert_eq!(refused, Err(AdoptError::OtherProcess { owner: A, recorded: process(A) }));
    let unknown = setup.mover.adopt_tenant(Owner(7), process(A), Vec::new(), &mut setup.tenants);
    assert_eq!(unknown, Err(AdoptError::Unknown { owner: Owner(7) }));
    let adoption = setup.adopt(A).expect("it is the one");
    assert_eq!((adoption.away, adoption.resident), (vec![0], vec![1]));
    assert_eq!(setup.adopt(A), Err(AdoptError::Unknown { owner: A }));
    setup.adopt(B).expect("it has nothing");
    setup.check_all();
}

#[test]
fn one_that_went_again_without_a_word_is_adopted_once_more() {
    let mut setup = Setup::new(4, 6);
    let keys = setup.allocate(A, &[1, 1]);
    assert_eq!(setup.exchange(plan(&keys[..1], &[], 0)).moved_out, keys[..1]);
    let (corpse, mut setup) = setup.succeed(CleanCopies::Off);
    corpse.rest().expect("its device works");
    let first = setup.adopt(A).expect("it is the one");
    assert!(setup.mover.let_go(A, process(A)));
    assert_eq!(setup.mover.handles(A), []);
    let again = setup.adopt(A).expect("it is the one still");
    assert_eq!(again, first);
    assert_eq!((again.away, again.resident), (vec![0], vec![1]));
    setup.adopt(B).expect("it has nothing");
    assert_eq!(setup.exchange(plan(&[], &keys[..1], 1)).moved_in, keys[..1]);
    setup.check_all();
}

#[test]
fn what_is_nowhere_is_said() {
    let mut setup = Setup::new(4, 6);
    let keys = setup.allocate(A, &[1, 2]);
    assert_eq!(setup.exchange(plan(&keys[1..], &[], 0)).moved_out, keys[1..]);
    let (corpse, mut setup) = setup.succeed(CleanCopies::Off);
    corpse.rest().expect("its device works");
    let adoption = setup.adopt_as(&[(0, 1, None), (1, 2, None), (5, 1, None)]).expect("it is the one");
    assert_eq!((adoption.lost, adoption.away, adoption.resident), (vec![0, 5], vec![1], vec![]));
}

/// A handle with its blocks, and whether its tenant shows memory of it, has some that it does not show, or has none.
type Told = (u64, u64, Option<bool>);

impl Setup {
    /// Adopts A with what it says, whatever it has.
    fn adopt_as(&mut self, told: &[Told]) -> Result<Adoption, AdoptError> {
        let world = self.tenants.world();
        let mut real: BTreeMap<u64, Reported> =
            world.report(A).into_iter().map(|reported| (reported.handle, reported)).collect();
        drop(world);
        let handles = told.iter().map(|&(handle, blocks, shown)| {
            let memory = match shown {
                None => ReportedMemory::None,
                Some(false) => ReportedMemory::Unshown,
                Some(true) => real.remove(&handle).expect("it is there").memory,
            };
            Reported { handle, bytes: blocks * BLOCK_BYTES, memory }
        });
        let handles = handles.collect();
        self.mover.adopt_tenant(A, process(A), handles, &mut self.tenants)
    }
}

#[test]
fn what_cannot_be_shown_loses_nothing_that_is_away() {
    let mut setup = Setup::new(8, 8);
    let keys = setup.allocate(A, &[1, 2, 1]);
    // Recorded as away, and the worker dies before the tenant has unmapped one of them.
    assert_eq!(setup.exchange(plan(&keys[..1], &[], 0)).moved_out, keys[..1]);
    let fate = Arc::<Fate>::default();
    fate.dies_at.store(1, SeqCst);
    let mut tenants = Mortal(setup.tenants.clone(), fate);
    let wanted = plan(&keys[1..2], &[], 0);
    let killed =
        catch_unwind(AssertUnwindSafe(|| setup.mover.exchange(wanted, &mut tenants, &setup.replies)));
    assert!(killed.is_err_and(|cause| cause.is::<Killed>()));
    let (corpse, mut setup) = setup.succeed(CleanCopies::Off);
    corpse.rest().expect("its device works");
    // Nothing of it is shown: what is away is unmapped, and the rest stays where it is.
    let adoption =
        setup.adopt_as(&[(0, 1, None), (1, 2, Some(false)), (2, 1, Some(false))]).expect("it is the one");
    assert_eq!(
        (&adoption.away[..], &adoption.unsettled[..], &adoption.unmovable[..]),
        (&[0][..], &[1][..], &[2][..])
    );
    assert_eq!((adoption.lost, adoption.failed, adoption.resident), (vec![], vec![], vec![]));
    setup.take_late();
    assert_eq!(setup.at(A, Whereabouts::Arena), keys[..2]);
    assert_eq!(setup.tenants.world().wrong_words(keys[1]), None, "its memory did not count");
    setup.adopt(B).expect("it has nothing");
    assert_eq!(setup.exchange(plan(&[], &keys[..2], 3)).moved_in, keys[..2]);
    for &key in &keys {
        assert_eq!(setup.tenants.world().wrong_words(key), Some(0), "{key}");
    }
}

#[test]
fn what_cannot_be_true_changes_nothing() {
    let mut setup = Setup::new(4, 6);
    let keys = setup.allocate(A, &[1, 2]);
    assert_eq!(setup.exchange(plan(&keys, &[], 0)).moved_out, keys);
    let (corpse, mut setup) = setup.succeed(CleanCopies::Off);
    corpse.rest().expect("its device works");
    let wrong: [&[Told]; 2] = [&[(1, 1, None)], &[(0, 1, None), (0, 1, Some(false))]];
    for told in wrong {
        let refused = setup.adopt_as(told);
        assert!(matches!(refused, Err(AdoptError::Contradiction { .. })), "{refused:?}");
    }
    let adoption = setup.adopt(A).expect("it may come again, and all is there");
    assert_eq!(adoption.away, [0, 1]);
    setup.adopt(B).expect("it has nothing");
    setup.check_all();
}
