//! Jobs that are to give up their contexts, with a driver that refuses. What follows where it does not is shown on virtual GPUs.

use crate::tenant::{Tenant, Verdict};
use crate::world::{RESIDUE_BYTES, SMALL_BYTES, World, await_that, rules};
use rota_daemon::checkpoints::{Standing, Step};
use std::sync::Arc;
use wire::{
    Answer, BLOCK_BYTES, Command, Connection, FromDaemon, HandleId, SizedHandle, TenantId, ToDaemon, VERSION,
};

const JOB: &str = "test";

fn described(world: &World) -> wire::TenantView {
    match world.command(Command::Describe { what: JOB.into() }) {
        Answer::Described(description) => description.jobs[0].tenants[0].clone(),
        other => panic!("{other:?}"),
    }
}

fn refused(answer: Answer) -> (String, String) {
    match answer {
        Answer::Refused { reason, hint } => (reason, hint.unwrap_or_default()),
        other => panic!("{other:?}"),
    }
}

fn reason(world: &World) -> String {
    described(world).reason
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
    // Whoever waits for it is told.
    let (told, hint) = refused(world.command(Command::AwaitDeep { job: JOB.into() }));
    assert_eq!(told, format!("test is paused, but not deep: its context stays on the GPU: {why}"));
    assert_eq!(hint, "it is not tried again before `rota resume test`");
    let steps = tenant.steps();
    assert!(matches!(world.command(Command::Resume { job: JOB.into() }), Answer::Described(_)));
    await_that("it goes on", || tenant.steps() > steps);
    assert_eq!(tenant.wrong(), [""; 0]);
}

#[test]
fn one_whose_memory_others_may_use_is_refused_before_the_driver_is_asked() {
    let world = World::begin(rules());
    let tenant = Tenant::with_memory(&world, SMALL_BYTES);
    await_that("it works", || tenant.steps() > 0);
    assert_eq!(tenant.pin(&tenant.handles()[..1]), Verdict::Granted);
    world.command(Command::PauseDeep { job: JOB.into() });
    await_that("it is refused", || !world.events_named("deep_refused").is_empty());
    // The rest of its memory goes out all the same.
    await_that("it is said", || {
        let why = reason(&world);
        why.contains("its context stays on the GPU: ") && why.contains("other processes")
    });
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(world.checkpoints.asked(), []);
    let steps = tenant.steps();
    world.command(Command::Resume { job: JOB.into() });
    await_that("it goes on", || tenant.steps() > steps);
    assert_eq!(tenant.wrong(), [""; 0]);
}

#[test]
fn what_it_waits_for_is_said() {
    let world = World::begin(rules());
    let tenant = Tenant::with_memory(&world, SMALL_BYTES);
    await_that("it works", || tenant.steps() > 0);
    let grant = tenant.grow(BLOCK_BYTES);
    assert_eq!(tenant.verdict(grant), Verdict::Granted);
    world.command(Command::PauseDeep { job: JOB.into() });
    await_that("it waits", || reason(&world).contains("stays on the GPU for now: it was promised"));
    tenant.use_grant(grant, BLOCK_BYTES);
    await_that("it is done, and the driver asked", || !world.checkpoints.asked().is_empty());
}

#[test]
fn whoever_waits_for_it_is_answered_when_it_is_refused_resumed_or_gone() {
    let world = World::begin(rules());
    let tenant = Tenant::with_memory(&world, SMALL_BYTES);
    await_that("it works", || tenant.steps() > 0);
    let (reason, _) = refused(world.command(Command::AwaitDeep { job: "other".into() }));
    assert!(reason.starts_with("nothing here is called `other`"), "{reason}");
    let (reason, _) = refused(world.command(Command::AwaitDeep { job: JOB.into() }));
    assert_eq!(reason, "test is not paused so any more: somebody has resumed it");
    // It cannot go while it was promised something.
    let grant = tenant.grow(BLOCK_BYTES);
    assert_eq!(tenant.verdict(grant), Verdict::Granted);
    let waits = || {
        std::thread::scope(|scope| {
            world.command(Command::PauseDeep { job: JOB.into() });
            let waiting = scope.spawn(|| refused(world.command(Command::AwaitDeep { job: JOB.into() })));
            await_that("it waits", || self::reason(&world).contains("it was promised"));
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(!waiting.is_finished(), "nothing is known yet");
            world.command(Command::Resume { job: JOB.into() });
            waiting.join().expect("it is answered").0
        })
    };
    assert_eq!(waits(), "test is not paused so any more: somebody has resumed it");
    world.command(Command::PauseDeep { job: JOB.into() });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| refused(world.command(Command::AwaitDeep { job: JOB.into() })));
        // Nothing says that it waits; asked later, there would be no such job.
        std::thread::sleep(std::time::Duration::from_millis(500));
        drop(tenant);
        assert_eq!(waiting.join().expect("it is answered").0, "test has ended");
    });
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

/// A program of an earlier worker, with memory on the device that cannot move; its threads keep out of the driver.
fn returner(world: &World) -> (TenantId, Arc<Connection>) {
    let connection = Arc::new(Connection::connect(&world.socket()).expect("the daemon listens"));
    let word = ToDaemon::Rejoin {
        version: VERSION,
        tenant: TenantId(5),
        epoch: 7,
        job: JOB.into(),
        program: "survivor".into(),
        gpu: world.listing().gpus[0].uuid.clone(),
        resident: true,
        frozen: false,
        channels: false,
        holds_launches: false,
        sessions: 1,
        vacated: true,
    };
    connection.send(&word, &[]).expect("the daemon hears");
    let answer = || connection.receive::<FromDaemon>().expect("the daemon answers").0;
    assert!(matches!(answer(), FromDaemon::Waiting { .. }));
    let unshown = vec![SizedHandle { handle: HandleId(1), bytes: BLOCK_BYTES }];
    let has = ToDaemon::Has { here: vec![], away: vec![], unshown, passable: vec![], complete: true };
    connection.send(&has, &[]).expect("the daemon hears");
    match answer() {
        FromDaemon::Welcome { tenant, .. } => {
            let agent = connection.clone();
            std::thread::spawn(move || {
                while let Ok((message, _)) = agent.receive::<FromDaemon>() {
                    if let FromDaemon::Vacate { number } = message {
                        let _ = agent.send(&ToDaemon::Vacated { number }, &[]);
                    }
                }
            });
            (tenant, connection)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_that_is_put_away_is_found_though_some_of_its_memory_never_moves() {
    let world = World::begin(rules());
    world.checkpoints.say_that_all_are(Standing::Out);
    let (_, _connection) = returner(&world);
    await_that("it is found", || !world.events_named("deep").is_empty());
}

#[test]
fn one_that_is_found_locked_has_its_context_on_the_gpu() {
    let world = World::begin(rules());
    world.checkpoints.say_that_all_are(Standing::Locked);
    let (_, _connection) = returner(&world);
    await_that("it is found", || !world.events_named("deep_refused").is_empty());
    await_that("it cannot be brought back", || reason(&world).contains("cannot be brought back"));
    assert_eq!(world.events_named("deep").len(), 0, "its context is there, and counts");
}

#[test]
fn what_others_do_asks_for_nobody_again_who_was_refused() {
    let world = World::begin(rules());
    let tenant = Tenant::with_memory(&world, SMALL_BYTES);
    let _other = Tenant::join_in(&world, "other");
    await_that("it works", || tenant.steps() > 0);
    world.command(Command::PauseDeep { job: JOB.into() });
    await_that("the driver refuses", || !world.events_named("deep_refused").is_empty());
    for others in 1..=3 {
        world.command(Command::PauseDeep { job: "other".into() });
        await_that("it refuses the other", || world.events_named("deep_refused").len() > others);
        world.command(Command::Resume { job: "other".into() });
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    let refused = world.events_named("deep_refused");
    let of_it = refused.iter().filter(|event| event["tenant"] == tenant.id().0).count();
    assert_eq!((of_it, refused.len()), (1, 4), "{refused:?}");
}

#[test]
fn nothing_is_kept_free_for_one_that_is_paused_again_before_it_is_back() {
    let world = World::begin(rules());
    world.checkpoints.say_that_all_are(Standing::Out);
    let (_, _connection) = returner(&world);
    await_that("it is to come back, and cannot", || reason(&world).contains("cannot be brought back"));
    assert_eq!(described(&world).context_bytes, RESIDUE_BYTES);
    world.command(Command::Pause { job: JOB.into() });
    await_that("it counts for nothing", || described(&world).context_bytes == 0);
}
