//! How the keeper ends, and what its worker hears then.

use crate::process::Process;
use crate::world::*;
use rota_keeper::*;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[test]
fn it_stays_while_something_is_away_unless_forced() {
    let mut world = World::new(8);
    let mut worker = world.worker_with_tenant();
    reserve(&mut worker, 1, 2);
    worker.record_out(&[out(1)]).expect("an answer");
    assert_eq!(worker.leave(End::IfNothingAway).expect("an answer"), (false, 2 * BLOCK_BYTES));
    let mut worker = world.worker();
    assert_eq!(worker.died(TENANT).expect("an answer"), 2 * BLOCK_BYTES);
    assert_eq!(worker.leave(End::IfNothingAway).expect("an answer"), (true, 0));
    assert_eq!(world.end(), 0);
}

#[test]
fn a_wish_is_granted_when_nothing_is_away_and_nobody_there() {
    let (mut wish, wishes) = UnixStream::pair().expect("a socket");
    let mut world = World::with_wishes(8, wishes.into());
    let mut worker = world.worker_with_tenant();
    reserve(&mut worker, 1, 2);
    worker.record_out(&[out(1)]).expect("an answer");
    wish.write_all(&[0]).expect("it is heard");
    worker.progress().expect("it stays, because a worker is there");
    drop(worker);
    let mut worker = world.worker();
    assert_eq!(worker.recorded(TENANT).expect("it stays, because something is away").len(), 1);
    let back = In { key: key(1), keep_clean: true };
    worker.record_in(&[back]).expect("an answer");
    drop(worker);
    assert_eq!(world.end(), 0);
}

#[test]
fn many_wishes_are_no_more_than_one() {
    let (mut wish, wishes) = UnixStream::pair().expect("a socket");
    let mut world = World::with_wishes(8, wishes.into());
    let mut worker = world.worker_with_tenant();
    reserve(&mut worker, 1, 2);
    worker.record_out(&[out(1)]).expect("an answer");
    drop(worker);
    for wishes in [1, 2, 40] {
        wish.write_all(&vec![0; wishes]).expect("it is heard");
        let mut worker = world.worker();
        assert_eq!(worker.recorded(TENANT).expect("it stays, because something is away").len(), 1);
    }
    world.worker().died(TENANT).expect("an answer");
    assert_eq!(world.end(), 0);
}

#[test]
fn without_a_worker_it_ends_when_its_tenants_have() {
    let (mut wish, wishes) = UnixStream::pair().expect("a socket");
    let mut world = World::with_wishes(8, wishes.into());
    let mut tenant = std::process::Command::new("sleep").arg("600").spawn().expect("a program");
    let process = rota_keeper::Process::find(tenant.id()).expect("it runs");
    let mut worker = world.worker();
    assert_eq!(worker.introduce(TENANT, process).expect("an answer"), Outcome::Done);
    reserve(&mut worker, 1, 2);
    worker.record_out(&[out(1)]).expect("an answer");
    drop(worker);
    wish.write_all(&[0]).expect("it is heard");
    // Longer than it takes to look.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(world.worker().recorded(TENANT).expect("the tenant is there").len(), 1);
    tenant.kill().expect("it can be ended");
    tenant.wait().expect("it has ended");
    assert_eq!(world.end(), 0);
}

#[test]
fn the_end_by_force_is_heard_as_such() {
    let mut world = World::new(8);
    let mut worker = world.worker_with_tenant();
    reserve(&mut worker, 1, 2);
    worker.record_out(&[out(1)]).expect("an answer");
    assert_eq!(worker.leave(End::Forced).expect("an answer"), (true, 2 * BLOCK_BYTES));
    assert_eq!(world.end(), 2 * BLOCK_BYTES);
}

#[test]
fn whoever_could_wish_may_go_before_the_keeper() {
    let (wish, wishes) = UnixStream::pair().expect("a socket");
    let world = World::with_wishes(8, wishes.into());
    drop(wish);
    world.worker().progress().expect("it is there still");
    world.stop();
}

#[test]
fn a_killed_keeper_is_a_clear_error_and_the_next_one_is_another() {
    let mut keeper = Process::start();
    let mut worker = keeper.worker();
    keeper.child.kill();
    let gone = worker.progress().expect_err("it was killed");
    assert!(matches!(gone, ClientError::Gone), "{gone}");
    assert!(gone.to_string().contains("all that was away is lost"), "{gone}");
    let closed = worker.progress().expect_err("it was killed");
    assert!(matches!(closed, ClientError::Disconnected), "{closed}");
    keeper.replace();
    let other = worker.reconnect().expect_err("it knows nothing");
    let pid = keeper.child.0.id();
    assert!(matches!(other, ClientError::OtherKeeper { pid: other } if other == pid), "{other}");
    keeper.child.kill();
    let hasty = Patience { connect: Duration::ZERO, ..PATIENCE };
    let nobody = Client::connect(&keeper.socket(), hasty).expect_err("nobody is there");
    assert!(matches!(nobody, ClientError::Unreachable(_)), "{nobody}");
}

#[test]
fn a_keeper_that_does_not_answer_is_late() {
    let keeper = Process::start();
    let brief = Patience { answer: Duration::from_secs(1), ..PATIENCE };
    // It may be slow on a busy machine, which is not what is asked here.
    let mut worker = None;
    await_that("it is there", || {
        worker = Client::connect(&keeper.socket(), brief).ok();
        worker.is_some()
    });
    let mut worker = worker.expect("awaited above");
    keeper.signal(rustix::process::Signal::STOP);
    let late = worker.progress().expect_err("it is stopped");
    assert!(matches!(late, ClientError::Late { .. }), "{late}");
    let closed = worker.progress().expect_err("a late answer is for nobody");
    assert!(matches!(closed, ClientError::Disconnected), "{closed}");
    keeper.signal(rustix::process::Signal::CONT);
    await_that("it answers again", || worker.reconnect().is_ok() && worker.progress().is_ok());
}

#[test]
fn a_signal_ends_it_when_nothing_is_away_and_its_socket_goes() {
    let mut keeper = Process::start();
    let mut worker = keeper.worker();
    await_that("the arena is ready", || !worker.progress().expect("an answer").growing);
    let progress = worker.progress().expect("an answer");
    assert_eq!((progress.ready_bytes, progress.stopped), (12 << 20, None));
    reserve(&mut worker, 1, 2);
    worker.record_out(&[out(1)]).expect("an answer");
    keeper.signal(rustix::process::Signal::TERM);
    drop(worker);
    let mut worker = keeper.worker();
    assert_eq!(worker.recorded(TENANT).expect("it is there still").len(), 1);
    worker.died(TENANT).expect("an answer");
    drop(worker);
    assert!(keeper.child.0.wait().expect("it ends").success());
    assert!(!keeper.socket().exists());
}
