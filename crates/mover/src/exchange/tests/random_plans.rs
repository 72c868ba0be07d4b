//! Random plans, with something that goes wrong or without.

use super::world::{Event, Twist};
use super::{A, B, MoveError, Operation, Setup, key};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn random_plans_lose_nothing(
        a in prop::collection::vec(1u64..5, 1..6),
        b in prop::collection::vec(1u64..5, 1..6),
        spare_capacity in 0u64..4,
        spare_arena in 0u64..8,
        polls_per_copy in 1u32..4,
        fault in prop::option::of((prop::sample::select(Operation::ALL[..6].to_vec()), 1u64..12)),
        twist in prop::option::of((1u64..12, 0u8..4, 0u64..6, any::<bool>())),
    ) {
        let (a_blocks, b_blocks) = (a.iter().sum::<u64>(), b.iter().sum::<u64>());
        let capacity = a_blocks.max(b_blocks) + spare_capacity;
        let (mut setup, plan) = Setup::a_in_b_away(&a, &b, capacity, b_blocks + spare_arena);
        setup.mover.device_mut().polls_per_copy = polls_per_copy;
        if let Some((operation, nth)) = fault {
            setup.mover.device_mut().fail(operation, nth);
        }
        if let Some((step, kind, handle, of_a)) = twist {
            let owner = if of_a { A } else { B };
            let twist = match kind {
                0 => Twist::Before(Event::Dies(owner)),
                1 => Twist::After(Event::Frees(key(owner, handle))),
                2 => Twist::Fails,
                _ => Twist::Before(Event::Frees(key(owner, handle))),
            };
            setup.tenants.world().twist = Some((step, twist));
        }
        let outcome = setup.exchange(plan.clone());
        setup.take_late();
        setup.check_told(&plan, &outcome);
        let backed_out = !outcome.failed.iter().any(|(_, error)| matches!(error, MoveError::NotBackedOut { .. }));
        if backed_out {
            setup.check_places();
        }
        if fault.is_none() && twist.is_none() && outcome.stuck.is_none() {
            prop_assert_eq!(outcome.moved_out.len() + outcome.moved_in.len(), a.len() + b.len());
        }
    }
}
