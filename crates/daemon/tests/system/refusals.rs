//! A tenant that the driver does not freeze.

use crate::engine;
use crate::tenant::{Order, Tenant};
use crate::world::{LARGE_BYTES, World, await_that, rules};
use wire::TenantState;

#[test]
fn one_that_cannot_be_frozen_keeps_running_and_is_not_moved() {
    let world = World::begin(rules());
    let stubborn = Tenant::with_memory(&world, LARGE_BYTES);
    engine::refuse_freezing(stubborn.client(), true);
    let other = Tenant::join(&world);
    let request = other.grow(LARGE_BYTES);

    let refused = || {
        let errors = world.events_named("error").into_iter();
        errors.filter(|event| event["tenant"] == stubborn.id().0).collect::<Vec<_>>()
    };
    await_that("the refusal is tried again and again", || refused().len() >= 3);
    let errors = refused();
    for error in &errors {
        let what = error["what"].as_str().expect("an error says what");
        assert!(what.contains("cannot freeze") && what.contains("0x56"), "{what}");
    }
    let times: Vec<u64> = errors.iter().map(|error| error["t_ns"].as_u64().expect("a time")).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 1_000_000_000), "tried too often: {times:?}");

    assert_eq!(world.listed(stubborn.id()).expect("it is there").state, TenantState::Running);
    assert!(!stubborn.page().frozen() && stubborn.page().resident());
    assert!(!stubborn.was_asked_to(Order::Unmap), "memory moved under a running tenant");
    assert_eq!(world.events_named("move_begin"), Vec::<serde_json::Value>::new());
    let steps = stubborn.steps();
    await_that("it runs", || stubborn.steps() > steps + 2);

    // When the driver gives in, turns go on as if nothing had been.
    engine::refuse_freezing(stubborn.client(), false);
    assert_eq!(other.verdict(request), crate::tenant::Verdict::Granted);
    other.use_grant(request, LARGE_BYTES);
    let goals = [stubborn.turns() + 3, other.turns() + 3];
    await_that("both have turns", || stubborn.turns() >= goals[0] && other.turns() >= goals[1]);
}
