//! Tests of the driver's side against a fake driver that sees the bytes.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::{AsFd, AsRawFd};

use super::*;
use crate::tracker::Engine;
use proptest::prelude::*;

/// One control as the driver sees it.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    argument: Vec<u8>,
    parameters: Vec<u8>,
}

impl Seen {
    fn word(&self, offset: usize) -> u32 {
        crate::rm::word(&self.parameters, offset).unwrap()
    }

    fn disables(&self) -> bool {
        self.parameters[0] == 1
    }

    fn channels(&self) -> Vec<u32> {
        (0..self.word(4) as usize).map(|place| self.word(280 + 4 * place)).collect()
    }
}

/// Answers each call with the next status, then with success, and keeps what it saw.
#[derive(Default)]
struct FakeDriver {
    seen: RefCell<Vec<Seen>>,
    statuses: RefCell<Vec<u32>>,
    errnos: RefCell<Vec<c_int>>,
    slice: Cell<u64>,
    uuid_bytes: Cell<u32>,
}

impl FakeDriver {
    fn answering(statuses: &[u32]) -> Self {
        Self { statuses: RefCell::new(statuses.to_vec()), ..Self::default() }
    }

    fn ioctl(&self, request: c_ulong, argument: *mut c_void) -> c_int {
        assert_eq!(request, 0xc020_462a);
        let mut errnos = self.errnos.borrow_mut();
        if !errnos.is_empty() {
            // SAFETY: errno's address is valid on every thread.
            unsafe { *libc::__errno_location() = errnos.remove(0) };
            return -1;
        }
        // SAFETY: the request says 32 bytes, and nobody else refers to them now.
        let argument = unsafe { std::slice::from_raw_parts_mut(argument.cast::<u8>(), 32) };
        let address = crate::rm::long(argument, 16).unwrap() as usize;
        let length = crate::rm::word(argument, 24).unwrap() as usize;
        assert_eq!(address % 8, 0);
        let parameters = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the argument says where the parameters are and how many, and nobody else refers to them now.
        let parameters = unsafe { std::slice::from_raw_parts_mut(parameters, length) };
        self.seen.borrow_mut().push(Seen { argument: argument.to_vec(), parameters: parameters.to_vec() });
        if crate::rm::word(argument, 8) == Some(crate::rm::GROUP_GET_TIMESLICE) {
            parameters.copy_from_slice(&self.slice.get().to_le_bytes());
        }
        if crate::rm::word(argument, 8) == Some(crate::rm::GPU_GET_GID_INFO) {
            parameters[8..12].copy_from_slice(&self.uuid_bytes.get().to_le_bytes());
            parameters[12..28].copy_from_slice(&std::array::from_fn::<u8, 16, _>(|at| at as u8));
        }
        let mut statuses = self.statuses.borrow_mut();
        let status = if statuses.is_empty() { 0 } else { statuses.remove(0) };
        argument[28..].copy_from_slice(&status.to_le_bytes());
        0
    }

    fn with<R>(&self, act: impl FnOnce(&dyn Control) -> R) -> R {
        let file = std::fs::File::open("/dev/null").unwrap();
        let number = file.as_raw_fd();
        act(&RmControl::through(file.as_fd(), |file, request, argument| {
            assert_eq!(file, number);
            self.ioctl(request, argument)
        }))
    }

    fn batches(&self) -> Vec<(bool, Vec<u32>)> {
        self.seen.borrow().iter().map(|seen| (seen.disables(), seen.channels())).collect()
    }
}

fn set(channels: impl IntoIterator<Item = u32>) -> ChannelSet {
    ChannelSet { client: 0xc1d0_0001, subdevice: 0x5c00_0003, channels: channels.into_iter().collect() }
}

#[test]
fn the_bytes_of_a_freeze_and_of_a_thaw() {
    let driver = FakeDriver::default();
    driver.with(|control| {
        control.freeze(&set([0x5c00_0011, 0x5c00_0012])).unwrap();
        control.thaw(&set([0x5c00_0011, 0x5c00_0012])).unwrap();
    });
    let seen = driver.seen.borrow();
    for (seen, disable) in seen.iter().zip([1, 0]) {
        let mut expected = vec![0u8; 536];
        expected[0] = disable;
        expected[4] = 2;
        expected[24..32].copy_from_slice(&[0x01, 0x00, 0xd0, 0xc1, 0x01, 0x00, 0xd0, 0xc1]);
        expected[280..288].copy_from_slice(&[0x11, 0x00, 0x00, 0x5c, 0x12, 0x00, 0x00, 0x5c]);
        assert_eq!(seen.parameters, expected);

        let golden =
            [0x01, 0x00, 0xd0, 0xc1, 0x03, 0x00, 0x00, 0x5c, 0x0b, 0x11, 0x80, 0x20, 0x00, 0x00, 0x00, 0x00];
        assert_eq!(seen.argument[..16], golden);
        assert_eq!(seen.argument[24..], [0x18, 0x02, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff]);
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_subdevice_is_asked_for_its_gpu() {
    let driver = FakeDriver::default();
    let file = std::fs::File::open("/dev/null").unwrap();
    let control = RmControl::through(file.as_fd(), |_, request, argument| driver.ioctl(request, argument));
    driver.uuid_bytes.set(16);
    assert_eq!(control.uuid(1, 2).unwrap(), std::array::from_fn::<u8, 16, _>(|at| at as u8));
    driver.uuid_bytes.set(40);
    assert!(control.uuid(1, 2).is_err(), "text was not asked for");
    let seen = &driver.seen.borrow()[0];
    assert_eq!(seen.argument[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0x4a, 0x01, 0x80, 0x20]);
    assert_eq!((seen.parameters.len(), seen.word(4)), (268, 2));
}

#[test]
fn a_full_batch_fills_both_lists() {
    let driver = FakeDriver::default();
    driver.with(|control| control.freeze(&set(1..=64))).unwrap();
    let seen = driver.seen.borrow();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].word(4), seen[0].word(24 + 4 * 63), seen[0].word(532)), (64, 0xc1d0_0001, 64));
}

#[test]
fn the_bytes_of_time_slices() {
    let driver = FakeDriver::default();
    driver.slice.set(2048);
    let group = GroupAddress { client: 1, group: 2 };
    driver.with(|control| {
        control.set_time_slice(group, Micros(20_000)).unwrap();
        assert_eq!(control.time_slice(group).unwrap(), Micros(2048));
    });
    let seen = driver.seen.borrow();
    assert_eq!(seen[0].parameters, [0x20, 0x4e, 0, 0, 0, 0, 0, 0]);
    assert_eq!(seen[0].argument[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0x03, 0x01, 0x6c, 0xa0]);
    assert_eq!(seen[1].argument[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0x04, 0x01, 0x6c, 0xa0]);
    assert_eq!(seen[1].argument[24..28], [8, 0, 0, 0]);
}

#[test]
fn an_empty_set_asks_nothing() {
    let driver = FakeDriver::default();
    driver.with(|control| {
        control.freeze(&set([])).unwrap();
        control.thaw(&set([])).unwrap();
    });
    assert!(driver.seen.borrow().is_empty());
}

#[test]
fn statuses_have_names_and_numbers() {
    for (number, status, text) in [
        (0x1b, Status::InsufficientPermissions, "status 0x1b, insufficient permissions"),
        (0x1f, Status::InvalidArgument, "status 0x1f, invalid argument"),
        (0x21, Status::InvalidChannel, "status 0x21, invalid channel"),
        (0x23, Status::InvalidClient, "status 0x23, invalid client"),
        (0x56, Status::NotSupported, "status 0x56, not supported"),
        (0x57, Status::ObjectNotFound, "status 0x57, object not found"),
        (0x65, Status::Other(0x65), "status 0x65, a status that is not known"),
    ] {
        let driver = FakeDriver::answering(&[number]);
        let error = driver.with(|control| control.freeze(&set([1]))).unwrap_err();
        assert_eq!(error.status(), Some(status));
        assert_eq!(status.number(), number);
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_eq!(Status::from_number(0), None);
}

#[test]
fn a_failing_system_call_is_not_a_status() {
    let driver = FakeDriver::default();
    driver.errnos.borrow_mut().extend([libc::ENOTTY, libc::ENOTTY]);
    let error = driver.with(|control| control.freeze(&set([1]))).unwrap_err();
    assert_eq!(error.status(), None);
    let ControlError::System { source, .. } = error else { panic!("{error}") };
    assert_eq!(source.raw_os_error(), Some(libc::ENOTTY));
}

#[test]
fn an_interrupted_call_is_made_again() {
    let driver = FakeDriver::default();
    driver.errnos.borrow_mut().extend([libc::EINTR; 3]);
    driver.with(|control| control.freeze(&set([1]))).unwrap();
    assert_eq!(driver.seen.borrow().len(), 1);

    driver.errnos.borrow_mut().extend(vec![libc::EINTR; 5000]);
    let error = driver.with(|control| control.thaw(&set([1]))).unwrap_err();
    assert!(matches!(error, ControlError::System { .. }), "{error}");
}

#[test]
fn a_failing_batch_undoes_the_earlier_ones() {
    let driver = FakeDriver::answering(&[0, 0, 0x57]);
    let error = driver.with(|control| control.freeze(&set(0..150))).unwrap_err();
    assert!(matches!(error, ControlError::Batch { batch: 3, batches: 3, undo: Undo::Done, .. }), "{error:?}");
    assert_eq!(error.status(), Some(Status::ObjectNotFound));
    assert!(!error.left_frozen());
    let (first, second, third) = ((0..64).collect(), (64..128).collect(), (128..150).collect());
    let batches = driver.batches();
    assert_eq!(batches[2], (true, third));
    let thawed: Vec<_> = batches[3..].iter().filter(|batch| !batch.0).map(|batch| batch.1.clone()).collect();
    assert!(thawed.contains(&first) && thawed.contains(&second), "{batches:?}");

    let driver = FakeDriver::answering(&[0, 0, 0x57, 0x57, 0x57, 0]);
    let error = driver.with(|control| control.freeze(&set(0..150))).unwrap_err();
    assert!(error.left_frozen(), "{error}");
    assert_eq!(driver.batches().len(), 6, "the other batch is thawed all the same");
}

#[test]
fn a_failing_thaw_goes_on_with_the_others() {
    let driver = FakeDriver::answering(&[0x57]);
    let error = driver.with(|control| control.thaw(&set(0..130))).unwrap_err();
    assert_eq!(error.status(), Some(Status::ObjectNotFound));
    assert_eq!(driver.batches().len(), 3);
}

#[test]
fn a_file_that_is_not_the_drivers_is_refused_by_the_system() {
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = RmControl::new(file.as_fd()).freeze(&set([1])).unwrap_err();
    assert!(matches!(error, ControlError::System { .. }), "{error}");
}

fn group(file: RawFd, client: u32, subdevice: Option<u32>, handle: u32, channels: &[u32]) -> Group {
    Group {
        file,
        client,
        device: 2,
        subdevice,
        handle,
        engine: Engine::Compute,
        channels: channels.to_vec(),
        scheduled: true,
        lone: false,
    }
}

#[test]
fn groups_of_one_subdevice_make_one_set() {
    let groups = [
        group(5, 1, Some(3), 10, &[11, 12]),
        group(5, 1, Some(3), 20, &[21]),
        group(5, 1, None, 30, &[31]),
        group(5, 1, None, 40, &[]),
        group(6, 1, Some(3), 10, &[11]),
    ];
    let (sets, unreachable) = channel_sets(&groups);
    let set = |channels: &[u32]| ChannelSet { client: 1, subdevice: 3, channels: channels.to_vec() };
    assert_eq!(sets, [(5, set(&[11, 12, 21])), (6, set(&[11]))]);
    assert_eq!(unreachable, [groups[2].key()]);
}

proptest! {
    #[test]
    fn batches_cover_each_channel_exactly_once(count in 0..1000u32, freeze: bool) {
        let driver = FakeDriver::default();
        let set = set(1000..1000 + count);
        driver.with(|control| if freeze { control.freeze(&set) } else { control.thaw(&set) }).unwrap();
        let mut covered = Vec::new();
        for (disables, channels) in driver.batches() {
            prop_assert_eq!(disables, freeze);
            prop_assert!((1..=BATCH_CHANNELS_MAX).contains(&channels.len()));
            covered.extend(channels);
        }
        prop_assert_eq!(covered, set.channels);
    }

    #[test]
    fn a_failed_freeze_leaves_nothing_frozen(count in 1..500u32, failing in 0..8usize) {
        let batches = (count as usize).div_ceil(BATCH_CHANNELS_MAX);
        let mut statuses = vec![0; failing];
        statuses.push(0x57);
        let driver = FakeDriver::answering(&statuses);
        let result = driver.with(|control| control.freeze(&set(0..count)));
        prop_assert_eq!(result.is_err(), failing < batches);
        let mut frozen = std::collections::BTreeSet::new();
        for (disables, channels) in driver.batches() {
            for channel in channels {
                if disables { frozen.insert(channel); } else { frozen.remove(&channel); }
            }
        }
        prop_assert_eq!(frozen.len(), if result.is_ok() { count as usize } else { 0 });
    }
}
