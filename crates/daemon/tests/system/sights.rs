//! What is outside of rota by NVML: beside programs that it sees best-effort work has no slice on which it would only be switched
//! to, and what nobody is seen to have is promised to nobody.

use crate::door::knock;
use crate::engine;
use crate::requests::{begin, beside_work};
use crate::tenant::Tenant;
use crate::world::{CAPACITY_BYTES, SMALL_BYTES, World, await_that, await_welcome, rules};
use rota_daemon::machine::Process;
use wire::FromDaemon;

const SHORTEST_US: u64 = 1;
const GUARANTEED_US: u64 = 1_200;

#[test]
fn while_a_stranger_is_there_best_effort_work_has_a_longer_slice_beside_a_request() {
    let (world, service, work) = beside_work();
    let client = work.client();
    engine::heed_slices(client);
    let has = |slice_us| move || engine::slice_of(client) == Some(slice_us);
    let stranger = Process { pid: 1, bytes: 1 << 20, program: "stranger".into(), ancestors: vec![] };
    begin(&service);
    for _ in 0..2 {
        // The first look may have met somebody on its way in or out.
        (0..2).for_each(|_| world.sees(vec![stranger.clone()]));
        await_that("it has a longer slice", has(GUARANTEED_US));
        assert_eq!(world.listing().unmanaged.len(), 1);
        world.sees(vec![]);
        await_that("it has the shortest slice", has(SHORTEST_US));
    }
    assert!(work.wrong().is_empty(), "{:?}", work.wrong());
}

#[test]
fn whoever_waits_for_memory_that_nobody_is_seen_to_have_comes_in_when_that_is_free() {
    let world = World::begin(rules());
    let first = Tenant::join(&world);
    first.allocate(SMALL_BYTES);
    let mut waiting = None;
    await_that("a newcomer waits", || {
        // Again: somebody may have been on its way.
        (0..2).for_each(|_| world.looks(CAPACITY_BYTES));
        let newcomer = knock(&world);
        let is_told = matches!(newcomer.receive::<FromDaemon>(), Ok((FromDaemon::Waiting { .. }, _)));
        waiting = is_told.then_some(newcomer);
        is_told
    });
    let steps = first.steps();
    await_that("whoever was there runs", || first.steps() > steps);
    (0..4).for_each(|_| world.looks(0));
    await_welcome(&waiting.unwrap());
}
