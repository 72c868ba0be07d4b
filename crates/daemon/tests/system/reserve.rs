//! Memory that stays on the GPU, and priorities: asked for, changed while they run, and refused.

use crate::tenant::{Tenant, Verdict};
use crate::world::{CAPACITY_BYTES, World, await_that, roomy, rules};
use rota_daemon::config::rules::{Rule, Rules as UserRules};
use rota_daemon::daemon::About;
use wire::{Answer, BLOCK_BYTES, Change, Command, Description, GpuView, JobRequest, Priority};

/// Two that are larger than this do not fit together.
const HALF_BYTES: u64 = CAPACITY_BYTES / 2 / BLOCK_BYTES * BLOCK_BYTES;

fn kept(reserve: bool) -> Change {
    Change { reserve: Some(reserve), ..Change::default() }
}

fn open(world: &World, job: &str, asked: Change) -> Answer {
    world.command(Command::Open(JobRequest { name: job.into(), asked, ..JobRequest::default() }))
}

fn set(world: &World, job: &str, change: Change) -> Answer {
    world.command(Command::Set { job: job.into(), change })
}

fn gpu(world: &World) -> GpuView {
    match world.command(Command::Describe { what: "gpu0".into() }) {
        Answer::Described(Description { gpu: Some(gpu), .. }) => gpu,
        other => panic!("asked for a GPU, got {other:?}"),
    }
}

fn refusal(answer: Answer) -> String {
    match answer {
        Answer::Refused { reason, .. } => reason,
        other => panic!("expected to be refused, got {other:?}"),
    }
}

#[test]
fn what_is_reserved_never_goes_and_is_promised_to_nobody_else() {
    let world = World::begin(roomy());
    assert!(matches!(open(&world, "kept", kept(true)), Answer::Opened(opened) if opened.terms.reserve));
    let kept = Tenant::join_in(&world, "kept");
    kept.allocate(HALF_BYTES / 2);
    await_that("the GPU says what stays", || gpu(&world).stays_bytes == HALF_BYTES / 2);
    // Two more that take turns beside it.
    let others = ["one", "two"].map(|job| Tenant::join_in(&world, job));
    for other in &others {
        other.allocate(HALF_BYTES);
    }
    await_that("they take turns", || others.iter().all(|other| other.turns() > 3));
    assert!(kept.unmapped().is_empty() && kept.wrong().is_empty());
    assert!(others.iter().any(|other| !other.unmapped().is_empty()), "somebody had to make room");
    let grant = others[0].grow(HALF_BYTES);
    assert!(matches!(others[0].verdict(grant), Verdict::Denied(_)), "that would be more than is left");
}

#[test]
fn a_job_that_would_leave_others_no_room_does_not_become_reserved() {
    let world = World::begin(rules());
    let (a, b) = (Tenant::join_in(&world, "a"), Tenant::join_in(&world, "b"));
    a.allocate(HALF_BYTES);
    let piece = b.allocate(HALF_BYTES);
    let reason = refusal(set(&world, "a", kept(true)));
    assert!(reason.starts_with("its memory cannot stay on the GPU: "), "{reason}");
    assert_eq!(gpu(&world).stays_bytes, 0, "a refusal changes nothing");
    b.free(piece);
    b.allocate(BLOCK_BYTES);
    await_that("there is room", || matches!(set(&world, "a", kept(true)), Answer::Described(_)));
    assert_eq!(gpu(&world).stays_bytes, HALF_BYTES);
    assert!(matches!(set(&world, "a", kept(false)), Answer::Described(_)));
    assert_eq!(gpu(&world).stays_bytes, 0);
}

#[test]
fn who_may_reserve_and_how_high_a_priority_may_be_is_a_rule() {
    let me = rustix::process::geteuid().as_raw();
    let rule =
        Rule { id: Some(me), reserve: Some(false), priority_max: Some(Priority::Low), ..Rule::default() };
    let about = About { rules: UserRules::new(vec![rule], vec![]).unwrap(), ..About::default() };
    let world = World::begin_with(rules(), about);
    let reason = refusal(open(&world, "a", kept(true)));
    assert_eq!(reason, "memory that stays on the GPU was asked for, and this user may have none");
    let of = |priority| Change { priority: Some(priority), ..Change::default() };
    let reason = refusal(open(&world, "a", of(Priority::Normal)));
    assert_eq!(reason, "the priority normal was asked for, and this user may have low");
    assert!(matches!(
        open(&world, "a", Change::default()),
        Answer::Opened(opened) if opened.terms.priority == Priority::Low
    ));
    refusal(set(&world, "a", of(Priority::Realtime)));
    assert!(matches!(set(&world, "a", of(Priority::Idle)), Answer::Described(_)));
}
