//! Space that is taken for several handles at once: all of it is used, or goes back.

use super::{A, SHORT, Setup, plan};
use crate::mover::AHEAD_MAX;

#[test]
fn more_handles_than_are_asked_for_at_once_go_out_in_order() {
    let count = AHEAD_MAX + 6;
    let mut setup = Setup::new(count as u64, count as u64);
    let all = setup.allocate(A, &vec![1; count]);
    assert_eq!(setup.exchange(plan(&all, &[], 0)).moved_out, all);
    setup.check_places();
    assert_eq!(setup.exchange(plan(&[], &all, count as u64)).moved_in.len(), count);
    setup.check_places();
}

#[test]
fn a_large_one_is_not_kept_waiting_by_small_ones_behind_it_and_nothing_stays_taken() {
    let mut setup = Setup::new(8, 3);
    let all = setup.allocate(A, &[1, 1, 4, 1]);
    let mut wanted = plan(&all, &[], 0);
    wanted.deadline = SHORT;
    let outcome = setup.exchange(wanted.clone());
    setup.check_told(&wanted, &outcome);
    // Out of order only when nothing else is under way.
    assert_eq!(outcome.moved_out, [all[0], all[1], all[3]]);
    setup.check_places();
}
