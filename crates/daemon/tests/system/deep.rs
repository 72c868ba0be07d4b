//! Jobs that are to give up their contexts, with a driver that refuses. What follows where it does not is shown on virtual GPUs.

use crate::tenant::Tenant;
use crate::world::{SMALL_BYTES, World, await_that, rules};
use rota_daemon::checkpoints::Step;
use wire::{Answer, Command};

const JOB: &str = "test";

fn reason(world: &World) -> String {
    match world.command(Command::Describe { what: JOB.into() }) {
        Answer::Described(description) => description.jobs[0].tenants[0].reason.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_is_said_and_changes_nothing() {
    let world = World::begin(rules());
    let tenant = Tenant::with_memory(&world, SMALL_BYTES);
    await_that("it works", || tenant.steps() > 0);
    assert!(matches!(world.command(Command::PauseDeep { job: JOB.into() }), Answer::Described(_)));
    await_that("the driver refuses", || !world.events_named("deep_refused").is_empty());
    let why = world.events_named("deep_refused")[0]["why"].as_str().unwrap_or_default().to_owned();
    assert!(why.starts_with("cuCheckpointProcessLock answers"), "{why}");
    assert!(reason(&world).contains(&why), "{}", reason(&world));
    let asked = world.checkpoints.asked();
    assert_eq!(
        asked.iter().map(|(_, step)| *step).collect::<Vec<_>>(),
        [Step::Lock],
        "once, and nothing else"
    );
    assert!(tenant.page().frozen() && !tenant.page().resident());
    let steps = tenant.steps();
    assert!(matches!(world.command(Command::Resume { job: JOB.into() }), Answer::Described(_)));
    await_that("it goes on", || tenant.steps() > steps);
    assert_eq!(tenant.wrong(), [""; 0]);
}

#[test]
fn a_plain_pause_asks_the_driver_for_nothing() {
    let world = World::begin(rules());
    let tenant = Tenant::with_memory(&world, SMALL_BYTES);
    await_that("it works", || tenant.steps() > 0);
    assert!(matches!(world.command(Command::Pause { job: JOB.into() }), Answer::Described(_)));
    await_that("it is off", || tenant.page().frozen());
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(tenant.page().resident(), "nobody needs its room");
    assert_eq!(world.checkpoints.asked(), []);
}
