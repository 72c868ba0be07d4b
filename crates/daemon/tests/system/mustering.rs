//! A program on several GPUs that comes back, one of them after the other.

use crate::engine::{Engine, new_client};
use crate::world::{World, await_that, rules};
use mover::Device as _;
use mover::fake_device::FakeDevice;
use std::os::fd::OwnedFd;
use wire::{
    ChannelGroup, Connection, FileId, FromDaemon, SharedPage, TenantId, TenantState, ToDaemon, VERSION,
};

const BOTH: [TenantId; 2] = [TenantId(5), TenantId(6)];

/// One of a program's GPUs, of which it told nothing yet.
struct Session {
    connection: Connection,
    page: SharedPage,
}

/// A program on two GPUs whose worker was replaced.
fn world() -> World {
    let process = keeper::Process::find(std::process::id()).expect("it is there");
    World::after_on(2, rules(), &BOTH.map(|tenant| (tenant, process)))
}

/// Comes back on one of its GPUs, with no memory.
fn rejoin(world: &World, gpu: usize, channels: bool) -> Session {
    let connection = Connection::connect(&world.socket()).expect("the daemon listens");
    let rejoin = ToDaemon::Rejoin {
        version: VERSION,
        tenant: BOTH[gpu],
        epoch: 7,
        job: "back".into(),
        program: "spread".into(),
        gpu: FakeDevice::new(0).beside(gpu as u8, 0).uuid().into(),
        resident: true,
        frozen: false,
        channels,
        holds_launches: false,
        sessions: 2,
        vacated: false,
    };
    connection.send(&rejoin, &[]).expect("the daemon hears");
    let answer = || connection.receive::<FromDaemon>().expect("the daemon answers");
    let (first, _) = answer();
    assert!(matches!(first, FromDaemon::Waiting { .. }), "{first:?}");
    let has = ToDaemon::Has { here: vec![], away: vec![], unshown: vec![], passable: vec![], complete: true };
    connection.send(&has, &[]).expect("the daemon hears");
    let (welcome, mut files) = answer();
    assert!(matches!(welcome, FromDaemon::Welcome { tenant, .. } if tenant == BOTH[gpu]), "{welcome:?}");
    let page: OwnedFd = files.pop().expect("a page");
    Session { connection, page: SharedPage::open(page).expect("a page") }
}

impl Session {
    fn tell_of_channels(&self, engine: &Engine) {
        let (file, client) = (FileId(1), new_client());
        let channels = vec![4, 5];
        let groups = vec![ChannelGroup { file, client, subdevice: 2, group: 3, engine: 1, channels }];
        let generation = self.page.raise_channel_generation();
        let message = ToDaemon::Channels { generation, new_files: vec![file], groups };
        self.connection.send(&message, &[engine.file()]).expect("the daemon hears");
    }
}

/// Does the core know of the channels of one?
fn goes_on(world: &World, gpu: usize) -> bool {
    world.listed(BOTH[gpu]).is_some_and(|listed| listed.state != TenantState::Joined)
}

#[test]
fn one_that_is_let_go_when_all_were_back_comes_again_and_all_go_on() {
    let world = world();
    let engines = [Engine::new(), Engine::new()];
    let first = rejoin(&world, 0, true);
    let second = rejoin(&world, 1, false);
    first.tell_of_channels(&engines[0]);
    await_that("it goes on where it has channels", || goes_on(&world, 0));

    // What it has there may be away: until it is back, nothing goes on.
    drop(second);
    await_that("one is let go", || world.listed(BOTH[1]).is_none());
    assert!(!goes_on(&world, 0));

    let second = rejoin(&world, 1, true);
    assert!(!goes_on(&world, 0), "its channels are not known");
    second.tell_of_channels(&engines[1]);
    await_that("it goes on on both", || goes_on(&world, 0) && goes_on(&world, 1));
}
