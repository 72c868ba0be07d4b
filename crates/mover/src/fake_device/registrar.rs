//! What registers host memory with a fake device.

use super::{Operation, Shared, lock};
use crate::device::{DeviceError, Registrar};
use cuda::CUresult;
use std::sync::{Arc, Mutex};

pub(super) struct FakeRegistrar(pub(super) Arc<Mutex<Shared>>);

impl Registrar for FakeRegistrar {
    unsafe fn register(&mut self, start: *mut u8, bytes: u64) -> Result<(), DeviceError> {
        let mut shared = lock(&self.0);
        if let Err(error) = shared.may_fail(Operation::Register) {
            shared.refused = true;
            return Err(error);
        }
        shared.registered.insert(start as usize, bytes);
        Ok(())
    }

    unsafe fn unregister(&mut self, start: *mut u8) -> Result<(), DeviceError> {
        match lock(&self.0).registered.remove(&(start as usize)) {
            Some(_) => Ok(()),
            None => Err(DeviceError::Call { call: "unregister", code: CUresult::INVALID_VALUE }),
        }
    }
}

pub(super) fn is_registered(shared: &Mutex<Shared>, start: usize, bytes: u64) -> bool {
    let shared = lock(shared);
    let before = shared.registered.range(..=start).next_back();
    shared.refused
        || before.is_some_and(|(&range, &range_bytes)| start as u64 + bytes <= range as u64 + range_bytes)
}
