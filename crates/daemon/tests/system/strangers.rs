//! Whoever says strange things is put out with a reason, and nobody else notices.

use crate::tenant::Tenant;
use crate::world::{CAPACITY_BYTES, LARGE_BYTES, World, await_some, await_that, await_welcome, hello, rules};
use rota_daemon::daemon::About;
use rustix::net::SendFlags;
use std::os::fd::AsFd;
use wire::{
    BLOCK_BYTES, Connection, FileId, FromDaemon, GrantId, HANDLE_BYTES_MAX, HandleId, MESSAGE_BYTES_MAX,
    SizedHandle, ToDaemon, VERSION,
};

/// Something to say.
type Speech<'a> = Box<dyn Fn(&Connection) + 'a>;

fn reach(world: &World) -> Connection {
    Connection::connect(&world.socket()).expect("the daemon listens")
}

fn send_raw(connection: &Connection, bytes: &[u8]) {
    rustix::net::send(connection.as_fd(), bytes, SendFlags::NOSIGNAL).expect("the daemon is there");
}

/// The reason why the daemon ends a conversation that has just begun.
fn reason(connection: &Connection) -> String {
    let reason = match connection.receive::<FromDaemon>().expect("a reason").0 {
        FromDaemon::Refused { reason } => reason,
        other => panic!("a stranger got {other:?}"),
    };
    assert!(connection.receive::<FromDaemon>().is_err(), "the conversation goes on");
    reason
}

/// Two that take turns: they notice if anything stands still.
struct Bystanders(Tenant, Tenant);

impl Bystanders {
    fn join(world: &World) -> Self {
        Self(Tenant::with_memory(world, LARGE_BYTES), Tenant::with_memory(world, LARGE_BYTES))
    }

    fn await_turns(&self) {
        let goals = [self.0.turns() + 3, self.1.turns() + 3];
        await_that("the others have turns", || self.0.turns() >= goals[0] && self.1.turns() >= goals[1]);
    }
}

#[test]
fn strange_first_words_are_refused() {
    let world = World::begin(rules());
    let bystanders = Bystanders::join(&world);
    let refused = |speak: &dyn Fn(&Connection)| {
        let connection = reach(&world);
        speak(&connection);
        reason(&connection)
    };
    let say = |message: ToDaemon| refused(&|connection| connection.send(&message, &[]).expect("heard"));

    let garbage = refused(&|connection| send_raw(connection, &[0xff; 100]));
    assert!(garbage.contains("malformed"), "{garbage}");
    let long = refused(&|connection| send_raw(connection, &vec![0; MESSAGE_BYTES_MAX + 1]));
    assert!(long.contains("more than"), "{long}");
    let file = std::fs::File::open("/dev/null").expect("Linux");
    let files = refused(&|connection| connection.send(&hello("stranger"), &[file.as_fd()]).expect("heard"));
    assert!(files.contains("files"), "{files}");
    for version in [0, VERSION + 1] {
        for message in [
            ToDaemon::Hello { version, job: String::new(), program: String::new(), gpus: Vec::new() },
            ToDaemon::List { version },
        ] {
            let reason = say(message);
            assert!(reason.contains(&format!("version {VERSION}")), "{reason}");
            assert!(reason.contains(&format!("version {version}")), "{reason}");
        }
    }
    let gpus = Vec::new();
    let named = ToDaemon::Hello { version: VERSION, job: "x".repeat(1000), program: String::new(), gpus };
    assert!(say(named).contains("too long"));
    assert!(say(ToDaemon::Grow { grant: GrantId(1), bytes: BLOCK_BYTES }).contains("first message"));

    assert_eq!(world.listing().tenants.len(), 2);
    bystanders.await_turns();
}

#[test]
fn a_tenant_that_says_strange_things_is_put_out() {
    // Room for all: a program that is put out and lives keeps its context, which still counts.
    let world = World::with_capacity(2 * CAPACITY_BYTES, rules(), About::default());
    let bystanders = Bystanders::join(&world);
    let file = std::fs::File::open("/dev/null").expect("Linux");
    let handle = SizedHandle { handle: HandleId(1), bytes: BLOCK_BYTES };
    let odd = SizedHandle { handle: HandleId(1), bytes: BLOCK_BYTES + 1 };
    let large = SizedHandle { handle: HandleId(1), bytes: HANDLE_BYTES_MAX + BLOCK_BYTES };
    let grant = GrantId(1);
    let say = |message: &ToDaemon, files: usize| {
        let (message, files) = (message.clone(), vec![file.as_fd(); files]);
        move |connection: &Connection| connection.send(&message, &files).expect("heard")
    };
    let strange: Vec<(&str, Speech<'_>)> = vec![
        ("malformed", Box::new(|connection| send_raw(connection, &[0xff; 100]))),
        ("more than", Box::new(|connection| send_raw(connection, &vec![0; MESSAGE_BYTES_MAX + 1]))),
        ("number of files", Box::new(say(&ToDaemon::Allocated { grant, handle, passable: false }, 0))),
        ("number of files", Box::new(say(&ToDaemon::Created { handles: vec![HandleId(1)] }, 2))),
        ("number of files", Box::new(say(&ToDaemon::Grow { grant, bytes: BLOCK_BYTES }, 1))),
        ("greeting", Box::new(say(&hello("stranger"), 0))),
        ("greeting", Box::new(say(&ToDaemon::List { version: VERSION }, 0))),
        ("2 MiB", Box::new(say(&ToDaemon::Allocated { grant, handle: odd, passable: false }, 1))),
        ("256 MiB", Box::new(say(&ToDaemon::Allocated { grant, handle: large, passable: false }, 1))),
        (
            "number of files",
            Box::new(say(
                &ToDaemon::Channels { generation: 2, new_files: vec![FileId(7)], groups: vec![] },
                0,
            )),
        ),
    ];
    for (expected, speak) in strange {
        let stranger = Tenant::join(&world);
        speak(stranger.connection());
        await_that("it is put out", || world.listed(stranger.id()).is_none());
        let reason = await_some("it is told why", || stranger.refused());
        assert!(reason.contains(expected), "expected {expected}, got {reason}");
    }
    assert_eq!(world.listing().tenants.len(), 2);
    bystanders.await_turns();
}

#[test]
fn a_tenant_that_uses_more_than_it_was_granted_is_put_out() {
    let world = World::with_capacity(2 * CAPACITY_BYTES, rules(), About::default());
    let bystanders = Bystanders::join(&world);
    let file = std::fs::File::open("/dev/null").expect("Linux");
    let grant = GrantId(1);
    for (asked, used) in [(None, BLOCK_BYTES), (Some(BLOCK_BYTES), 2 * BLOCK_BYTES)] {
        let stranger = Tenant::join(&world);
        if let Some(bytes) = asked {
            stranger.connection().send(&ToDaemon::Grow { grant, bytes }, &[]).expect("heard");
        }
        let handle = SizedHandle { handle: HandleId(1), bytes: used };
        let claim = ToDaemon::Allocated { grant, handle, passable: false };
        stranger.connection().send(&claim, &[file.as_fd()]).expect("heard");
        await_that("it is put out", || world.listed(stranger.id()).is_none());
    }
    bystanders.await_turns();
}

#[test]
fn a_hundred_that_say_nothing_disturb_nobody() {
    let world = World::begin(rules());
    let silent: Vec<Connection> = (0..100).map(|_| reach(&world)).collect();
    let bystanders = Bystanders::join(&world);
    bystanders.await_turns();
    assert_eq!(world.listing().tenants.len(), 2);
    drop(silent);
    bystanders.await_turns();
}

#[test]
fn one_that_does_not_read_disturbs_nobody() {
    let world = World::begin(rules());
    let (a, b) = (Tenant::with_memory(&world, LARGE_BYTES), Tenant::with_memory(&world, LARGE_BYTES));
    let deaf = reach(&world);
    deaf.send(&hello("stranger"), &[]).unwrap();
    await_welcome(&deaf);
    for number in 0..2000 {
        // Denied at once, which nobody reads.
        if deaf.send(&ToDaemon::Grow { grant: GrantId(number), bytes: 1 }, &[]).is_err() {
            break;
        }
    }
    let goals = [a.turns() + 5, b.turns() + 5];
    await_that("the others have turns", || a.turns() >= goals[0] && b.turns() >= goals[1]);
}

#[test]
fn who_sees_several_gpus_is_told_which_are_shared() {
    let world = World::begin(rules());
    let survey = |gpus: &[&str]| {
        let connection = reach(&world);
        let gpus = gpus.iter().map(|gpu| (*gpu).to_owned()).collect();
        connection.send(&ToDaemon::Survey { version: VERSION, job: "test".into(), gpus }, &[]).unwrap();
        connection.receive::<FromDaemon>().unwrap().0
    };
    let shared = world.listing().gpus[0].clone();
    match survey(&["GPU-elsewhere", &shared.uuid]) {
        FromDaemon::Shared { gpus } => {
            assert_eq!(gpus.len(), 1);
            assert_eq!((&gpus[0].uuid, gpus[0].capacity_bytes), (&shared.uuid, shared.capacity_bytes));
        }
        other => panic!("{other:?}"),
    }
    match survey(&["GPU-elsewhere", "GPU-nowhere"]) {
        FromDaemon::Refused { reason } => assert!(reason.contains("and shared here is"), "{reason}"),
        other => panic!("{other:?}"),
    }
}
