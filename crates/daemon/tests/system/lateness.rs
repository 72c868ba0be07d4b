//! An agent that answers after the daemon has given up waiting: its program was stopped by its user, say.

use crate::process::Process;
use crate::tenant::{Manners, Order, Tenant, Verdict};
use crate::world::{LARGE_BYTES, SMALL_BYTES, World, await_that, roomy, rules, turns_of};
use sched::Span;
use std::time::{Duration, Instant};
use wire::TenantState;

#[test]
fn an_unmap_that_comes_late_takes_nothing_from_under_a_kernel() {
    let world = World::begin(roomy());
    let late = Tenant::join_with(&world, Manners::UnmapsLate);
    late.allocate_in_three(LARGE_BYTES);
    let other = Tenant::with_memory(&world, SMALL_BYTES);
    let request = other.grow(LARGE_BYTES);
    await_that("the late one is to unmap", || late.was_asked_to(Order::Unmap));
    await_that("people are told", || world.events_named("error").iter().any(|e| e["tenant"] == late.id().0));

    // Its order still stands, so it must not run: it could lose its memory at any moment.
    let (running, steps) = (other.steps(), late.steps());
    await_that("the other one runs meanwhile", || other.steps() > running + 10);
    assert_eq!(late.steps(), steps, "it runs with an order to unmap outstanding");

    // The request has waited, and is granted as soon as there is room.
    late.answer();
    assert_eq!(other.verdict(request), Verdict::Granted);
    other.use_grant(request, LARGE_BYTES);
    let goals = [late.turns() + 3, other.turns() + 3];
    await_that("both have turns when they do not fit", || {
        late.turns() >= goals[0] && other.turns() >= goals[1]
    });
}

#[test]
fn a_create_that_comes_late_is_undone_and_done_again_when_there_is_time() {
    let world = World::begin(rules());
    let late = Tenant::join_with(&world, Manners::CreatesLate);
    late.allocate_in_three(LARGE_BYTES);
    let other = Tenant::with_memory(&world, LARGE_BYTES);
    await_that("the late one is to create", || late.was_asked_to(Order::Create));
    await_that("people are told", || world.events_named("error").iter().any(|e| e["tenant"] == late.id().0));
    let running = other.steps();
    await_that("the other one runs meanwhile", || other.steps() > running + 10);
    // Memory that nobody waits for any more comes up, and goes again. Then both take turns as if nothing had been.
    late.answer();
    let goals = [late.turns() + 5, other.turns() + 5];
    await_that("both have turns", || late.turns() >= goals[0] && other.turns() >= goals[1]);
    let errors = world.events_named("error").len();
    let goals = [late.turns() + 10, other.turns() + 10];
    await_that("both have more turns", || late.turns() >= goals[0] && other.turns() >= goals[1]);
    assert_eq!(world.events_named("error").len(), errors, "books and memory disagree");
}

/// How long what went wrong is not tried again, in the test below.
const RETRY: Span = Span::from_secs(3);
/// A tenant is not looked at again for this long after it failed, unless it says something.
const LEFT_ALONE_FOR: Duration = Duration::from_secs(30);

#[test]
fn a_program_that_was_stopped_is_served_as_soon_as_it_goes_on() {
    // Long enough that one that is seen to be away is so still when it is stopped.
    let mut rules = turns_of(Duration::from_secs(1));
    rules.settings.deadlines.retry = RETRY;
    let world = World::begin(rules);
    let stopped = Process::start(&world, Manners::Good, LARGE_BYTES);
    let other = Tenant::with_memory(&world, LARGE_BYTES);
    await_that("one is away", || world.listed(stopped.id()).expect("it lives").state == TenantState::Away);
    stopped.stop();
    let about_it = |name: &str| {
        let events = world.events_named(name).into_iter();
        events.filter(|event| event["tenant"] == stopped.id().0).count()
    };
    await_that("people are told that it does not answer", || about_it("error") > 0);
    let steps = other.steps();
    await_that("the other one runs meanwhile", || other.steps() > steps + 10);
    let turns = about_it("turn_begin");
    stopped.go_on();
    let begin = Instant::now();
    await_that("it has its turn", || about_it("turn_begin") > turns);
    let took = begin.elapsed();
    assert!(took < LEFT_ALONE_FOR * 2 / 3, "it waited for {took:?}");
    let errors = about_it("error");
    let goals = [about_it("turn_begin") + 3, other.turns() as usize + 3];
    await_that("both have turns", || {
        about_it("turn_begin") >= goals[0] && other.turns() as usize >= goals[1]
    });
    assert_eq!(about_it("error"), errors, "it does not answer again");
    stopped.end();
}
