//! States that were moved to a fixed instant.

use super::*;
use crate::guarantee::HALF;

#[test]
fn a_moved_state_is_as_far_into_its_window_and_from_what_comes_next_as_it_was() {
    let mut rig = Rig::new(settings());
    rig.job(100, Terms { class: Class::LatencyCritical, ..Terms::default() });
    rig.tenant(10, 100, 0, 1);
    let _ = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 4));
    rig.until(1.03);
    rig.tell(Event::Tick);
    let (moved, now, _) = rig.core.rebased(OpId(1));
    assert_eq!(now.0 % HALF.0, rig.now.0 % HALF.0);
    let next = |core: &Core, now: Time| core.wake_at().map(|at| at.since(now));
    assert_eq!(next(&moved, now), next(&rig.core, rig.now));
    assert!(next(&moved, now) > Some(Span::ZERO));
}
