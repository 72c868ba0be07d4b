//! Who is not taken in, and what ends a connection.

use crate::world::*;
use rota_keeper::message::{BATCH_MAX, VERSION};
use rota_keeper::*;
use rustix::net::SendFlags;
use std::os::fd::AsFd;
use std::time::Duration;

#[test]
fn a_second_worker_is_told_who_is_there() {
    let world = World::new(4);
    let mut first = world.worker();
    let hasty = Patience { connect: Duration::ZERO, ..PATIENCE };
    let refused = Client::connect(&world.socket(), hasty).expect_err("there is a worker");
    let this = std::process::id();
    assert!(matches!(refused, ClientError::Busy { pid, .. } if pid == this), "{refused}");
    assert!(refused.to_string().contains(&this.to_string()));
    first.progress().expect("the first one does not notice");
    drop(first);
    drop(world.worker());
    world.stop();
}

#[test]
fn what_is_no_message_ends_that_connection_and_changes_nothing() {
    let world = World::new(8);
    let mut worker = world.worker_with_tenant();
    reserve(&mut worker, 1, 2);
    worker.record_out(&[out(1)]).expect("an answer");
    let before = worker.progress().expect("an answer");
    drop(worker);
    let mut trailing = postcard::to_stdvec(&Request::Died { tenant: TENANT }).expect("bytes");
    trailing.push(0);
    let cut = postcard::to_stdvec(&Request::Free { keys: vec![key(1)] }).expect("bytes");
    let long = vec![0; wire::MESSAGE_BYTES_MAX + 1];
    let many = postcard::to_stdvec(&Request::Free { keys: vec![key(1); BATCH_MAX + 1] }).expect("bytes");
    let hello = postcard::to_stdvec(&Request::Hello { version: VERSION }).expect("bytes");
    for garbage in [&[0xff; 40][..], &trailing, &cut[..cut.len() - 1], &long, &many] {
        // As a first word, and from one who is taken in.
        for hellos in [0, 1] {
            let connection = world.stranger();
            for _ in 0..hellos {
                await_welcome(&connection, &hello);
            }
            rustix::net::send(connection.as_fd(), garbage, SendFlags::NOSIGNAL).expect("sent");
            let refusal = Answer::Refused(Refusal::OutOfOrder);
            assert_eq!(connection.receive::<Answer>().expect("an answer").0, refusal);
            assert!(connection.receive::<Answer>().is_err(), "the connection has ended");
        }
    }
    let mut worker = world.worker();
    assert_eq!(worker.progress().expect("an answer"), before);
    assert_eq!(worker.recorded(TENANT).expect("an answer").len(), 1);
    drop(worker);
    world.stop();
}

fn await_welcome(connection: &wire::Connection, hello: &[u8]) {
    rustix::net::send(connection.as_fd(), hello, SendFlags::NOSIGNAL).expect("sent");
    let (answer, _) = connection.receive::<Answer>().expect("an answer");
    assert!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
}

#[test]
fn files_that_nobody_asked_for_end_the_connection() {
    let world = World::new(4);
    let connection = world.stranger();
    let file = std::fs::File::open("/dev/null").expect("it is everywhere");
    connection.send(&Request::Hello { version: VERSION }, &[file.as_fd()]).expect("sent");
    let (answer, _) = connection.receive::<Answer>().expect("an answer");
    assert_eq!(answer, Answer::Refused(Refusal::OutOfOrder));
    world.stop();
}

#[test]
fn the_first_word_is_a_greeting_in_the_same_version() {
    let world = World::new(4);
    let connection = world.stranger();
    connection.send(&Request::Progress, &[]).expect("sent");
    let (answer, _) = connection.receive::<Answer>().expect("an answer");
    assert_eq!(answer, Answer::Refused(Refusal::OutOfOrder));
    let connection = world.stranger();
    connection.send(&Request::Hello { version: VERSION + 1 }, &[]).expect("sent");
    let (answer, _) = connection.receive::<Answer>().expect("an answer");
    assert_eq!(answer, Answer::Refused(Refusal::Version { keeper: VERSION }));
    world.stop();
}

#[test]
fn those_who_say_nothing_keep_nobody_out() {
    let world = World::new(4);
    let silent: Vec<_> = (0..20).map(|_| world.stranger()).collect();
    // More than may wait at the door.
    drop(world.worker());
    for (number, connection) in silent.iter().take(10).enumerate() {
        assert!(connection.receive::<Answer>().is_err(), "the first ones are hung up on, {number} too");
    }
    world.stop();
}

#[test]
fn a_worker_that_takes_no_answers_is_hung_up_on() {
    let world = World::new(4);
    let deaf = world.stranger();
    deaf.send(&Request::Hello { version: VERSION }, &[]).expect("sent");
    let long = postcard::to_stdvec(&Request::Free { keys: vec![key(1); BATCH_MAX] }).expect("bytes");
    let ask_on = || match rustix::net::send(deaf.as_fd(), &long, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(_) | Err(rustix::io::Errno::AGAIN) => false,
        Err(_) => true,
    };
    await_that("the keeper hangs up", ask_on);
    drop(world.worker());
    drop(deaf);
    world.stop();
}
