//! Jobs and their terms: opened, changed while they run, paused, limited by rules, and gone.

use crate::engine;
use crate::tenant::{Tenant, Verdict};
use crate::world::{CAPACITY_BYTES, SMALL_BYTES, World, await_that, hello, rules};
use rota_daemon::config::rules::{Rule, Rules as UserRules};
use rota_daemon::daemon::commands::{Asked, Peer};
use rota_daemon::daemon::{About, Input};
use sched::JobId;
use std::time::{Duration, Instant};
use wire::quantity::Memory;
use wire::{
    Answer, BLOCK_BYTES, Change, Class, Command, Connection, Description, FromDaemon, JobRequest, JobView,
    TenantState, Terms,
};

/// What fake tenants say their job is.
const JOB: &str = "test";

fn open(world: &World, asked: Change) -> Answer {
    world.command(Command::Open(JobRequest { name: JOB.into(), asked, ..JobRequest::default() }))
}

fn terms(answer: Answer) -> Terms {
    match answer {
        Answer::Opened(opened) => opened.terms,
        other => panic!("opened a job, got {other:?}"),
    }
}

fn job(answer: Answer) -> JobView {
    match answer {
        Answer::Described(Description { mut jobs, .. }) if jobs.len() == 1 => jobs.remove(0),
        other => panic!("asked for a job, got {other:?}"),
    }
}

fn refusal(answer: Answer) -> (String, String) {
    match answer {
        Answer::Refused { reason, hint } => (reason, hint.unwrap_or_default()),
        other => panic!("expected to be refused, got {other:?}"),
    }
}

fn set(world: &World, change: Change) -> Answer {
    world.command(Command::Set { job: JOB.into(), change })
}

fn blocks(count: u64) -> Change {
    Change { memory: Some(Memory::Bytes(count * BLOCK_BYTES)), ..Change::default() }
}

#[test]
fn a_limit_on_memory_holds_and_can_be_lifted_while_it_runs() {
    let world = World::begin(rules());
    assert_eq!(terms(open(&world, blocks(4))).memory_max_bytes, Some(4 * BLOCK_BYTES));
    let tenant = Tenant::join(&world);
    // The context is the fourth.
    tenant.allocate(3 * BLOCK_BYTES);
    let grant = tenant.grow(BLOCK_BYTES);
    let Verdict::Denied(reason) = tenant.verdict(grant) else { panic!("more than the limit was granted") };
    assert!(reason.contains("that its job may have"), "{reason}");
    assert_eq!(job(set(&world, blocks(5))).terms.memory_max_bytes, Some(5 * BLOCK_BYTES));
    tenant.allocate(BLOCK_BYTES);
    let seen = || job(world.command(Command::Describe { what: JOB.into() }));
    await_that("memory and a context are seen", || seen().used_bytes == 5 * BLOCK_BYTES);
    assert_eq!(seen().root_pid, Some(std::process::id()));
}

/// The size of the GPU that a program of the job is told.
fn told_bytes(world: &World) -> u64 {
    let connection = Connection::connect(&world.socket()).unwrap();
    connection.send(&hello("program"), &[]).unwrap();
    loop {
        match connection.receive::<FromDaemon>().unwrap().0 {
            FromDaemon::Waiting { .. } => {}
            FromDaemon::Welcome { capacity_bytes, .. } => return capacity_bytes,
            other => panic!("said hello, got {other:?}"),
        }
    }
}

#[test]
fn a_program_sees_a_gpu_of_the_size_that_it_may_have() {
    let world = World::begin(rules());
    assert_eq!(told_bytes(&world), CAPACITY_BYTES);
    // Its job goes with it, and only then another of that name has terms of its own.
    await_that("the first one is gone", || {
        matches!(world.command(Command::Describe { what: JOB.into() }), Answer::Refused { .. })
    });
    terms(open(&world, blocks(4)));
    assert_eq!(told_bytes(&world), 4 * BLOCK_BYTES);
}

#[test]
fn a_paused_job_gets_no_turn_until_it_is_resumed() {
    let world = World::begin(rules());
    let tenant = Tenant::with_memory(&world, SMALL_BYTES);
    await_that("it runs", || tenant.steps() > 3);
    assert!(job(world.command(Command::Pause { job: JOB.into() })).paused);
    // The page says so first, and then the GPU.
    await_that("it is off the GPU", || {
        world.listed(tenant.id()).is_some_and(|listed| listed.state == TenantState::Paused)
            && tenant.page().frozen()
            && engine::is_off(tenant.client())
    });
    let steps = tenant.steps();
    let described = job(world.command(Command::Describe { what: std::process::id().to_string() }));
    assert!(described.tenants[0].reason.contains("`rota resume test`"), "{:?}", described.tenants);
    assert!(tenant.steps() <= steps + 1, "it went on while it was paused");
    assert!(!job(world.command(Command::Resume { job: JOB.into() })).paused);
    await_that("it goes on", || tenant.steps() > steps + 3);
}

#[test]
fn terms_that_differ_are_no_way_into_a_job() {
    let world = World::begin(rules());
    terms(open(&world, Change { weight: Some(3), ..Change::default() }));
    assert_eq!(terms(open(&world, Change::default())).weight, 3, "who says nothing joins");
    let wish = JobRequest {
        name: JOB.into(),
        usual: Change { weight: Some(7), ..Change::default() },
        ..JobRequest::default()
    };
    assert_eq!(terms(world.command(Command::Open(wish))).weight, 3, "a wish is none any more");
    let (reason, hint) = refusal(open(&world, Change { weight: Some(4), ..Change::default() }));
    assert_eq!(reason, "job test is there already, with other terms");
    assert!(hint.contains("`rota set test`"), "{hint}");
}

/// As if this process had asked for it; nobody tells the daemon when it ends.
fn open_as(world: &World, process: keeper::Process, asked: Change) -> (Answer, Option<JobId>) {
    let command = Command::Open(JobRequest { name: JOB.into(), asked, ..JobRequest::default() });
    let (answer, done) = std::sync::mpsc::channel();
    let peer = Peer { process, uid: rustix::process::geteuid().as_raw() };
    world.inputs.send(Input::Command(Asked { peer, command, answer })).expect("the daemon is there");
    done.recv().expect("the daemon answers")
}

#[test]
fn the_name_of_a_job_whose_program_has_ended_is_free_before_the_daemon_hears_of_it() {
    let weight = |weight| Change { weight: Some(weight), ..Change::default() };
    let world = World::begin(rules());
    let mut program = std::process::Command::new("sleep").arg("600").spawn().expect("sleep is there");
    let process = keeper::Process::find(program.id()).expect("it runs");
    let (answer, before) = open_as(&world, process, weight(2));
    assert_eq!(terms(answer).weight, 2);
    refusal(open(&world, weight(3)));
    // It has ended from here on, though nobody has reaped it.
    program.kill().expect("it can be ended");
    await_that("it has ended", || !process.is_there());
    assert_eq!(terms(open(&world, weight(3))).weight, 3, "a job of the dead has no say");
    assert_eq!(job(world.command(Command::Describe { what: JOB.into() })).terms.weight, 3);
    // What comes late ends the job that it is about.
    let before = before.expect("it opened one");
    world.inputs.send(Input::RootGone(before, process.pid)).expect("the daemon is there");
    assert_eq!(job(world.command(Command::Describe { what: JOB.into() })).terms.weight, 3);
    let Answer::Status(status) = world.command(Command::Status) else { panic!("no status") };
    assert_eq!(status.jobs, 1);
    program.wait().expect("it has ended");
}

#[test]
fn a_limit_that_leaves_no_room_beside_the_context_is_refused_at_once() {
    let world = World::begin(rules());
    let (reason, hint) = refusal(open(&world, blocks(1)));
    assert_eq!(reason, "2.0 MiB of memory were asked for, and a program's context alone takes 2.0 MiB");
    assert!(hint.starts_with("ask for that"), "{hint}");
    assert_eq!(terms(open(&world, blocks(2))).memory_max_bytes, Some(2 * BLOCK_BYTES));
}

#[test]
fn nobody_gets_more_than_the_rules_allow() {
    let me = rustix::process::geteuid().as_raw();
    let rule = Rule {
        id: Some(me),
        memory_max: Some(Memory::Bytes(4 * BLOCK_BYTES)),
        weight_max: Some(2),
        lc: Some(false),
        ..Rule::default()
    };
    let about = About { rules: UserRules::new(vec![rule], vec![]).unwrap(), ..About::default() };
    let world = World::begin_with(rules(), about);
    let (reason, hint) = refusal(open(&world, blocks(8)));
    assert_eq!(reason, "16.0 MiB of memory were asked for, and this user may have 8.0 MiB");
    assert!(hint.contains("rota config show"), "{hint}");
    refusal(open(&world, Change { class: Some(Class::LatencyCritical), ..Change::default() }));
    // One that nobody opened has the same limits.
    let tenant = Tenant::join(&world);
    let grant = tenant.grow(4 * BLOCK_BYTES);
    assert!(matches!(tenant.verdict(grant), Verdict::Denied(_)));
    assert_eq!(terms(open(&world, Change::default())).memory_max_bytes, Some(4 * BLOCK_BYTES));
    refusal(set(&world, Change { weight: Some(3), ..Change::default() }));
    assert_eq!(job(set(&world, Change { weight: Some(2), ..Change::default() })).terms.weight, 2);
}

#[test]
fn what_nobody_is_called_is_said_with_who_there_is() {
    let world = World::begin(rules());
    let ask = |what: &str| refusal(world.command(Command::Describe { what: what.into() }));
    assert!(ask("x").1.contains("`rota run -- CMD` starts one"));
    terms(open(&world, Change::default()));
    let (reason, hint) = ask("x");
    assert_eq!(reason, "nothing here is called `x`: no job, no process, no GPU");
    assert_eq!(hint, "the jobs there are: test");
    let gpu = match world.command(Command::Describe { what: "gpu0".into() }) {
        Answer::Described(Description { gpu: Some(gpu), jobs, .. }) => {
            assert_eq!(jobs.len(), 1);
            gpu
        }
        other => panic!("asked for a GPU, got {other:?}"),
    };
    let by_uuid = world.command(Command::Describe { what: gpu.uuid[..8].into() });
    assert!(matches!(by_uuid, Answer::Described(Description { gpu: Some(_), .. })), "{by_uuid:?}");
}

#[test]
fn the_status_counts() {
    let world = World::begin(rules());
    let _tenant = Tenant::with_memory(&world, SMALL_BYTES);
    let Answer::Status(status) = world.command(Command::Status) else { panic!("no status") };
    assert_eq!((status.jobs, status.tenants, status.gpus.len()), (1, 1, 1));
    assert_eq!((status.pid, status.policy.as_str()), (std::process::id(), "fair"));
}

#[test]
fn a_daemon_that_nobody_needs_ends() {
    let after = |time| About { idle_exit: Some(time), ..About::default() };
    let world = World::begin_with(rules(), after(Duration::from_millis(50)));
    await_that("it ends", || world.ended());
    // Long enough for somebody to come, should anything hold this test up.
    let alone = Duration::from_secs(1);
    let world = World::begin_with(rules(), after(alone));
    let tenant = Tenant::with_memory(&world, SMALL_BYTES);
    let (begin, steps) = (Instant::now(), tenant.steps());
    await_that("somebody is there for longer", || begin.elapsed() > alone && tenant.steps() > steps + 20);
    world.listed(tenant.id()).expect("it stays while somebody is there");
    drop(tenant);
    // The fake tenant's process, which is this one, lives on: only its job is over.
    await_that("it ends after that", || world.ended());
}

#[test]
fn a_page_that_makes_no_sense_hurts_nobody() {
    let world = World::begin(rules());
    let (a, b) = (Tenant::join(&world), Tenant::join(&world));
    for tenant in [&a, &b] {
        tenant.page().set_used_bytes(u64::MAX);
    }
    let job = world.listed(a.id()).expect("it is there").job;
    let Answer::Memory(memory) = world.command(Command::Memory { job }) else { panic!("no memory") };
    assert!(memory.processes.len() >= 2 && memory.gpus[0].used_bytes > 0, "{memory:?}");
    world.listed(b.id()).expect("both are there still");
}
