//! Programs outside of rota that NVML sees: best-effort work has no slice beside them on which it would only be switched to.

use crate::engine;
use crate::requests::{begin, beside_work};
use crate::world::await_that;
use rota_daemon::machine::Process;

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
