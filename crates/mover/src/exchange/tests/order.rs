//! What is done first when several answers wait.

use super::world::{Event, FakeTenants, Twist};
use super::{A, Owner, Reply, Setup, Tenants, key};
use crate::exchange::Gone;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Tenants of which B answers only when A is to unmap, and then right after A.
struct BAfterA(FakeTenants);

impl Tenants for BAfterA {
    fn unmap(&mut self, owner: Owner, handles: &[u64]) -> Result<(), Gone> {
        self.0.unmap(owner, handles)?;
        let mut world = self.0.world();
        for reply in std::mem::take(&mut world.held_back) {
            world.send(reply);
        }
        Ok(())
    }

    fn create(&mut self, owner: Owner, handles: &[u64]) -> Result<(), Gone> {
        self.0.create(owner, handles)
    }

    fn take(&mut self, owner: Owner, handles: &[(u64, Arc<OwnedFd>)]) -> Result<(), Gone> {
        self.0.take(owner, handles)
    }
}

#[test]
fn a_copy_in_starts_before_an_import_is_dropped() {
    let (mut setup, plan) = Setup::a_in_b_away(&[1], &[1], 2, 8);
    setup.tenants.world().twist = Some((1, Twist::Silent));
    let imports = setup.mover.device().imports();
    let (sender, imported) = channel();
    // The first look is at the copy out, the second at the copy in.
    setup.mover.device_mut().at_poll(2, move || {
        sender.send(imports.lock().expect("no panic").len()).expect("the test waits");
    });
    let mut tenants = BAfterA(setup.tenants.clone());
    let outcome = setup.mover.exchange(plan.clone(), &mut tenants, &setup.replies);
    assert_eq!((outcome.moved_out, outcome.moved_in), (plan.out, plan.into));
    assert_eq!(imported.try_recv(), Ok(2), "that of A was dropped first");
    setup.check_all();
}

#[test]
fn an_answer_that_comes_twice_changes_nothing() {
    for second in [
        Reply::Unmapped { owner: A, handles: vec![0] },
        Reply::Failed { owner: A, handles: vec![0], code: 1, call: "cuMemUnmap".to_owned() },
    ] {
        let (mut setup, plan) = Setup::a_in_b_away(&[1], &[1], 1, 8);
        // Sent after the first answer, and before that is acted on.
        setup.tenants.world().held_back.push(second);
        let mut tenants = BAfterA(setup.tenants.clone());
        let outcome = setup.mover.exchange(plan.clone(), &mut tenants, &setup.replies);
        assert_eq!((outcome.moved_out, outcome.moved_in, outcome.failed), (plan.out, plan.into, vec![]));
        setup.check_all();
    }
}

#[test]
fn what_is_freed_before_its_import_is_dropped_is_not_moved() {
    let freed = key(A, 0);
    let (mut setup, plan) = Setup::a_in_b_away(&[1], &[1], 1, 8);
    setup.tenants.world().twist = Some((1, Twist::After(Event::Frees(freed))));
    let outcome = setup.exchange(plan.clone());
    assert_eq!((outcome.moved_out, outcome.freed), (vec![], vec![freed]));
    assert_eq!(outcome.moved_in, plan.into, "its room is used");
    setup.check_all();
}
