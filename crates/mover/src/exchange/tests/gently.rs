//! Arena space that was registered in short steps: no copy crosses the end of one, which the device would refuse.

use super::world::FakeTenants;
use super::{A, B, Setup, plan};
use crate::device::Device as _;
use crate::fake_device::FakeDevice;
use crate::test_keeper::{Later, TestKeeper, process};
use crate::{BLOCK_BYTES, Mover};
use std::sync::mpsc::channel;

const BLOCKS: u64 = 24;

#[test]
fn what_was_registered_in_steps_is_copied_in_steps() {
    let capacity = 2 * BLOCKS * BLOCK_BYTES;
    let device = FakeDevice::new(capacity);
    let (sender, replies) = channel();
    let tenants = FakeTenants::new(sender, device.imports(), capacity);
    // The first segment may be begun before anybody is gentle; the others are longer than a step.
    let keeper = TestKeeper::start(3 * BLOCKS, BLOCKS * BLOCK_BYTES);
    let (registrar, go) = Later::before(device.registrar());
    let arena = keeper.arena(registrar);
    arena.be_gentle(true);
    drop(go);
    let mut mover = Mover::new(device, arena);
    for owner in [A, B] {
        mover.introduce(owner, process(owner)).expect("a new tenant");
    }
    mover.arena().wait_until_prepared();
    let mut setup = Setup { mover, tenants, replies, keeper, disk: None };
    let first = setup.allocate(A, &[1, BLOCKS]);
    let second = setup.allocate(B, &[7, BLOCKS - 8]);
    let all = [first, second].concat();
    let outcome = setup.exchange(plan(&all, &[], 0));
    assert_eq!((outcome.moved_out, outcome.failed), (all.clone(), vec![]));
    let outcome = setup.exchange(plan(&[], &all, 2 * BLOCKS));
    assert_eq!((outcome.moved_in, outcome.failed), (all, vec![]));
    setup.check_places();
}
