//! Whoever says that it was here before: believed only as far as the keeper and the kernel say so.

use crate::tenant::Tenant;
use crate::world::{CAPACITY_BYTES, World, rules};
use std::os::fd::AsFd as _;
use wire::{BLOCK_BYTES, Connection, FromDaemon, HandleId, SizedHandle, TenantId, ToDaemon, VERSION};

pub(crate) const OTHER_EPOCH: u64 = 7;

pub(crate) fn rejoin(world: &World, tenant: TenantId, epoch: u64, resident: bool) -> ToDaemon {
    ToDaemon::Rejoin {
        version: VERSION,
        tenant,
        epoch,
        job: "back".into(),
        program: "survivor".into(),
        gpu: world.listing().gpus[0].uuid.clone(),
        resident,
        frozen: !resident,
        channels: false,
        holds_launches: false,
        sessions: 1,
        vacated: false,
    }
}

/// What is said to somebody with this much, and the connection.
pub(crate) fn answer(
    world: &World,
    word: &ToDaemon,
    here: Vec<SizedHandle>,
    away: Vec<SizedHandle>,
) -> (FromDaemon, Connection) {
    let connection = Connection::connect(&world.socket()).expect("the daemon listens");
    connection.send(word, &[]).expect("the daemon hears");
    let (first, _) = connection.receive::<FromDaemon>().expect("the daemon answers");
    let FromDaemon::Waiting { .. } = first else { return (first, connection) };
    let files: Vec<std::fs::File> = here.iter().map(|handle| memory(handle.bytes)).collect();
    tell(&connection, here, away, &files);
    (connection.receive::<FromDaemon>().expect("the daemon answers").0, connection)
}

pub(crate) fn memory(bytes: u64) -> std::fs::File {
    let file = rustix::fs::memfd_create("handle", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&file, bytes).expect("memory");
    file.into()
}

fn tell(connection: &Connection, here: Vec<SizedHandle>, away: Vec<SizedHandle>, files: &[std::fs::File]) {
    let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    let has = ToDaemon::Has { here, away, unshown: Vec::new(), passable: Vec::new(), complete: true };
    connection.send(&has, &files).expect("the daemon hears");
}

/// What is said to somebody that has this much and shows nothing of it, and the connection.
pub(crate) fn answer_unshown(
    world: &World,
    word: &ToDaemon,
    unshown: Vec<SizedHandle>,
) -> (FromDaemon, Connection) {
    let connection = Connection::connect(&world.socket()).expect("the daemon listens");
    connection.send(word, &[]).expect("the daemon hears");
    let (first, _) = connection.receive::<FromDaemon>().expect("the daemon answers");
    assert!(matches!(first, FromDaemon::Waiting { .. }), "{first:?}");
    let has =
        ToDaemon::Has { here: Vec::new(), away: Vec::new(), unshown, passable: Vec::new(), complete: true };
    connection.send(&has, &[]).expect("the daemon hears");
    (connection.receive::<FromDaemon>().expect("the daemon answers").0, connection)
}

pub(crate) fn handle(number: u64) -> SizedHandle {
    SizedHandle { handle: HandleId(number), bytes: BLOCK_BYTES }
}

#[test]
fn one_that_the_keeper_does_not_know_is_new_or_lost() {
    let world = World::begin(rules());
    let bystander = Tenant::join(&world);
    let away = rejoin(&world, TenantId(5), OTHER_EPOCH, false);
    let (lost, _) = answer(&world, &away, vec![handle(1)], vec![handle(2)]);
    assert!(matches!(&lost, FromDaemon::Lost { reason } if reason.contains("keeper")), "{lost:?}");

    // Under the number of somebody else, which it does not get.
    let here = rejoin(&world, bystander.id(), OTHER_EPOCH, true);
    let (welcome, _connection) = answer(&world, &here, vec![handle(1), handle(2)], Vec::new());
    let FromDaemon::Welcome { tenant, .. } = welcome else { panic!("{welcome:?}") };
    assert_ne!(tenant, bystander.id());
    crate::world::await_that("it is there with its memory", || {
        world.listed(tenant).is_some_and(|listed| listed.resident_bytes == 2 * BLOCK_BYTES)
    });
    crate::world::await_that("it is imported", || world.imported_bytes() == 2 * BLOCK_BYTES);
    assert_eq!(world.listed(bystander.id()).expect("it is there").resident_bytes, 0);
}

#[test]
fn one_that_was_put_out_does_not_come_back() {
    let world = World::begin(rules());
    let tenant = Tenant::join(&world);
    for resident in [true, false] {
        let word = rejoin(&world, tenant.id(), tenant.page().epoch(), resident);
        let (lost, _) = answer(&world, &word, vec![handle(1)], Vec::new());
        assert!(
            matches!(&lost, FromDaemon::Lost { reason } if reason.contains("put this program out")),
            "{lost:?}"
        );
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let world = World::begin(rules());
    let odd = SizedHandle { bytes: BLOCK_BYTES + 1, ..handle(1) };
    let word = rejoin(&world, TenantId(5), OTHER_EPOCH, true);
    let (refused, _) = answer(&world, &word, vec![odd], Vec::new());
    assert!(matches!(&refused, FromDaemon::Refused { reason } if reason.contains("2 MiB")), "{refused:?}");
    let ToDaemon::Rejoin { tenant, epoch, job, program, .. } = word else { unreachable!() };
    let elsewhere = ToDaemon::Rejoin {
        version: VERSION,
        tenant,
        epoch,
        job,
        program,
        gpu: "GPU-elsewhere".into(),
        resident: true,
        frozen: false,
        channels: false,
        holds_launches: false,
        sessions: 1,
        vacated: false,
    };
    let (refused, _) = answer(&world, &elsewhere, Vec::new(), Vec::new());
    assert!(
        matches!(&refused, FromDaemon::Refused { reason } if reason.contains("not shared")),
        "{refused:?}"
    );
    assert_eq!(world.listing().tenants, []);
}

fn is_refused(answer: &FromDaemon, why: &str) -> bool {
    matches!(answer, FromDaemon::Refused { reason } if reason.contains(why))
}

#[test]
fn memory_that_is_not_there_does_not_count() {
    let world = World::begin(rules());
    let word = rejoin(&world, TenantId(5), OTHER_EPOCH, true);
    let connection = Connection::connect(&world.socket()).expect("the daemon listens");
    connection.send(&word, &[]).expect("the daemon hears");
    let (first, _) = connection.receive::<FromDaemon>().expect("the daemon answers");
    assert!(matches!(first, FromDaemon::Waiting { .. }), "{first:?}");
    tell(&connection, vec![handle(1), handle(2)], Vec::new(), &[memory(BLOCK_BYTES), memory(0)]);
    let (refused, _) = connection.receive::<FromDaemon>().expect("the daemon answers");
    assert!(is_refused(&refused, "cannot be taken in"), "{refused:?}");
    assert_eq!(world.listing().tenants, []);
    crate::world::await_that("what was taken in goes too", || world.imported_bytes() == 0);
}

#[test]
fn nobody_comes_with_more_than_the_gpu_has_or_twice_the_same() {
    let world = World::begin(rules());
    let word = rejoin(&world, TenantId(5), OTHER_EPOCH, true);
    let many = (0..=CAPACITY_BYTES / BLOCK_BYTES).map(handle).collect();
    let (refused, _) = answer(&world, &word, many, Vec::new());
    assert!(is_refused(&refused, "may have"), "{refused:?}");
    let (refused, _) = answer(&world, &word, vec![handle(1), handle(1)], Vec::new());
    assert!(is_refused(&refused, "twice"), "{refused:?}");
    assert_eq!(world.listing().tenants, []);
    assert_eq!(world.imported_bytes(), 0);
}

pub(crate) fn this_process() -> keeper::Process {
    keeper::Process::find(std::process::id()).expect("it is there")
}

#[test]
fn one_that_hangs_up_at_its_welcome_comes_once_more() {
    let number = TenantId(5);
    let world = World::after(rules(), &[(number, this_process())]);
    let word = rejoin(&world, number, OTHER_EPOCH, false);
    let welcome =
        |answer: &FromDaemon| matches!(answer, FromDaemon::Welcome { tenant, .. } if *tenant == number);
    for _ in 0..3 {
        let (first, connection) = answer(&world, &word, vec![handle(1)], Vec::new());
        assert!(welcome(&first), "{first:?}");
        let second = first_answer(&world, &word);
        assert!(is_refused(&second, "already"), "{second:?}");
        drop(connection);
        crate::world::await_that("it is not there any more", || world.listed(number).is_none());
        crate::world::await_that("nor is its memory imported", || world.imported_bytes() == 0);
    }
    // Whoever has said something and hangs up is gone.
    let (last, connection) = answer(&world, &word, vec![handle(1)], Vec::new());
    assert!(welcome(&last), "{last:?}");
    connection.send(&ToDaemon::Freed { handles: Vec::new() }, &[]).expect("the daemon hears");
    drop(connection);
    crate::world::await_that("it is not there any more", || world.listed(number).is_none());
    crate::world::await_that("what it had goes", || world.imported_bytes() == 0);
    let (lost, _) = answer(&world, &word, vec![handle(1)], Vec::new());
    assert!(matches!(&lost, FromDaemon::Lost { reason } if reason.contains("keeper")), "{lost:?}");
}

#[test]
fn one_that_was_back_and_goes_on_without_keeps_nobody_waiting() {
    let number = TenantId(5);
    let world = World::after(rules(), &[(number, this_process())]);
    let mut word = rejoin(&world, number, OTHER_EPOCH, true);
    if let ToDaemon::Rejoin { channels, .. } = &mut word {
        *channels = true;
    }
    let (welcome, connection) = answer(&world, &word, vec![handle(1)], Vec::new());
    assert!(matches!(welcome, FromDaemon::Welcome { .. }), "{welcome:?}");
    // It says something, and not what channels it has.
    connection.send(&ToDaemon::Freed { handles: Vec::new() }, &[]).expect("the daemon hears");
    drop(connection);
    crate::world::await_that("it is not there any more", || world.listed(number).is_none());
    world.stop();
    crate::world::await_that("nobody is left", || world.ended());
}

#[test]
fn one_that_this_daemon_lets_go_comes_once_more() {
    let number = TenantId(5);
    let world = World::after(rules(), &[(number, this_process())]);
    let connection = Connection::connect(&world.socket()).expect("the daemon listens");
    let heard = || connection.receive::<FromDaemon>().expect("the daemon answers");
    connection.send(&rejoin(&world, number, OTHER_EPOCH, false), &[]).expect("the daemon hears");
    assert!(matches!(heard().0, FromDaemon::Waiting { .. }));
    tell(&connection, vec![handle(1)], Vec::new(), &[memory(BLOCK_BYTES)]);
    let (welcome, mut files) = heard();
    assert!(matches!(welcome, FromDaemon::Welcome { .. }), "{welcome:?}");
    let page = wire::SharedPage::open(files.pop().expect("a page")).expect("a page");
    // It has its new page, and its connection breaks before it has said anything.
    drop(connection);
    crate::world::await_that("it is not there any more", || world.listed(number).is_none());
    let word = rejoin(&world, number, page.epoch(), false);
    let (welcome, _connection) = answer(&world, &word, vec![handle(1)], Vec::new());
    assert!(matches!(welcome, FromDaemon::Welcome { tenant, .. } if tenant == number), "{welcome:?}");
}

#[test]
fn what_is_not_shown_counts_and_moves_only_once_it_is() {
    let number = TenantId(5);
    let world = World::after(rules(), &[(number, this_process())]);
    let word = rejoin(&world, number, OTHER_EPOCH, true);
    let (welcome, connection) = answer_unshown(&world, &word, vec![handle(1), handle(2)]);
    assert!(matches!(welcome, FromDaemon::Welcome { .. }), "{welcome:?}");
    crate::world::await_that("it is there with its memory", || {
        world.listed(number).is_some_and(|listed| listed.resident_bytes == 2 * BLOCK_BYTES)
    });
    assert_eq!(world.imported_bytes(), 0);
    // Twice, and one that it never told of: nothing comes of that.
    for shown in [1, 1, 9] {
        let file = memory(BLOCK_BYTES);
        let shown = ToDaemon::Shown { handle: HandleId(shown), passable: false };
        connection.send(&shown, &[file.as_fd()]).expect("the daemon hears");
    }
    crate::world::await_that("what it shows is imported", || world.imported_bytes() == BLOCK_BYTES);
    connection.send(&ToDaemon::Freed { handles: vec![HandleId(2)] }, &[]).expect("the daemon hears");
    crate::world::await_that("what it frees is gone", || {
        world.listed(number).is_some_and(|listed| listed.resident_bytes == BLOCK_BYTES)
    });
    assert_eq!(world.imported_bytes(), BLOCK_BYTES);
}

#[test]
fn somebody_new_may_not_keep_more_than_leaves_room_for_others() {
    let world = World::begin(rules());
    let word = rejoin(&world, TenantId(5), OTHER_EPOCH, true);
    let most = CAPACITY_BYTES / BLOCK_BYTES;
    let (refused, _) = answer_unshown(&world, &word, (0..most).map(handle).collect());
    assert!(matches!(refused, FromDaemon::Refused { .. }), "{refused:?}");
    let (welcome, _connection) = answer_unshown(&world, &word, vec![handle(1)]);
    assert!(matches!(welcome, FromDaemon::Welcome { .. }), "{welcome:?}");
}

#[test]
fn one_that_is_stopped_in_another_way_may_come_again() {
    let number = TenantId(5);
    let world = World::after(rules(), &[(number, this_process())]);
    let mut word = rejoin(&world, number, OTHER_EPOCH, false);
    if let ToDaemon::Rejoin { holds_launches, .. } = &mut word {
        *holds_launches = true;
    }
    let (refused, _) = answer(&world, &word, vec![handle(1)], Vec::new());
    assert!(is_refused(&refused, "another way"), "{refused:?}");
    let word = rejoin(&world, number, OTHER_EPOCH, false);
    let (welcome, _connection) = answer(&world, &word, vec![handle(1)], Vec::new());
    assert!(matches!(welcome, FromDaemon::Welcome { tenant, .. } if tenant == number), "{welcome:?}");
}

#[test]
fn a_process_that_says_hello_is_not_expected_any_more() {
    let number = TenantId(5);
    let world = World::after(rules(), &[(number, this_process())]);
    let word = rejoin(&world, number, OTHER_EPOCH, false);
    let newcomer = Tenant::join(&world);
    assert_ne!(newcomer.id(), number);
    crate::world::await_that("its old number is forsaken", || {
        let (answer, connection) = answer(&world, &word, vec![handle(1)], Vec::new());
        // One that comes before that is taken in: it hangs up again.
        drop(connection);
        matches!(&answer, FromDaemon::Lost { reason } if reason.contains("keeper"))
    });
}

/// The answer to somebody's first word.
fn first_answer(world: &World, word: &ToDaemon) -> FromDaemon {
    let connection = Connection::connect(&world.socket()).expect("the daemon listens");
    connection.send(word, &[]).expect("the daemon hears");
    connection.receive::<FromDaemon>().expect("the daemon answers").0
}

#[test]
fn who_cannot_be_taken_in_hears_it_before_it_tells_of_its_memory() {
    let world = World::begin(rules());
    let tenant = Tenant::join(&world);
    let put_out = rejoin(&world, tenant.id(), tenant.page().epoch(), true);
    let unknown = rejoin(&world, TenantId(5), OTHER_EPOCH, false);
    for word in [put_out, unknown] {
        let lost = first_answer(&world, &word);
        assert!(matches!(lost, FromDaemon::Lost { .. }), "{lost:?}");
    }
    let mut elsewhere = rejoin(&world, TenantId(5), OTHER_EPOCH, true);
    if let ToDaemon::Rejoin { gpu, .. } = &mut elsewhere {
        *gpu = "GPU-elsewhere".into();
    }
    let refused = first_answer(&world, &elsewhere);
    assert!(is_refused(&refused, "not shared"), "{refused:?}");
    world.stop();
    let late = rejoin(&world, TenantId(5), OTHER_EPOCH, true);
    crate::world::await_that("it is stopping", || is_refused(&first_answer(&world, &late), "stopping"));
}
