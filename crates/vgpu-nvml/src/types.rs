//! Codes and layouts of NVML's interface, and the places that programs pass.

use std::ffi::{c_char, c_uint};
use std::mem::size_of;

pub(crate) use nvml::{Memory, MemoryV2, Process, ProcessV1, Return};

/// What the work of a function comes to.
pub(crate) type Outcome = Result<(), Return>;

/// A device for the program: its index, with a mark that tells it from other numbers.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device(usize);

impl Device {
    const MARK: usize = 0xd0;

    /// For the program.
    pub(crate) fn of(index: usize) -> Self {
        Self((index + 1) << 8 | Self::MARK)
    }

    /// From the program.
    pub(crate) fn index(self) -> Result<usize, Return> {
        match (self.0 & 0xff, (self.0 >> 8).checked_sub(1)) {
            (Self::MARK, Some(index)) => Ok(index),
            _ => Err(Return::INVALID_ARGUMENT),
        }
    }
}

/// A place for a result. A pointer that is not null is trusted to be one, as NVML trusts its callers.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

// By hand: a derive would ask T for it.
impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes; a place that is none is refused.
    pub(crate) fn set(self, value: T) -> Outcome {
        if self.is_null() {
            return Err(Return::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so a place for a T.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Reads what the program left there.
    pub(crate) fn get(self) -> Result<T, Return>
    where
        T: Copy,
    {
        if self.is_null() {
            return Err(Return::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the program's value.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Writes a list; the program has said that there is room for it.
    pub(crate) fn set_all(self, values: impl IntoIterator<Item = T>) -> Outcome {
        for (index, value) in values.into_iter().enumerate() {
            Out(self.0.wrapping_add(index)).set(value)?;
        }
        Ok(())
    }
}

/// Writes a text with its closing zero; refused if the room is too small.
pub(crate) fn write_text(to: Out<c_char>, room: c_uint, text: &str) -> Outcome {
    if to.is_null() {
        return Err(Return::INVALID_ARGUMENT);
    }
    if text.len() >= room as usize {
        return Err(Return::INSUFFICIENT_SIZE);
    }
    to.set_all(text.bytes().map(|byte| byte as c_char).chain([0]))
}

/// A text in an array of characters.
pub(crate) fn text_array<const SIZE: usize>(text: &str) -> [c_char; SIZE] {
    let mut array = [0; SIZE];
    for (place, byte) in array.iter_mut().zip(text.bytes().take(SIZE - 1)) {
        *place = byte as c_char;
    }
    array
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Utilization {
    pub(crate) gpu: c_uint,
    pub(crate) memory: c_uint,
}

/// Whether the machine computes confidentially: in which environment, whether it is on, in which mode for tools.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ConfidentialComputing {
    pub(crate) environment: c_uint,
    pub(crate) feature: c_uint,
    pub(crate) tools: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProcessSample {
    pub(crate) pid: c_uint,
    pub(crate) time: u64,
    pub(crate) compute: c_uint,
    pub(crate) memory: c_uint,
    pub(crate) encoder: c_uint,
    pub(crate) decoder: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PciInfo {
    pub(crate) bus_id_legacy: [c_char; 16],
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
    pub(crate) device_id: c_uint,
    pub(crate) subsystem_id: c_uint,
    pub(crate) bus_id: [c_char; 32],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EventData {
    pub(crate) device: Device,
    pub(crate) kind: u64,
    pub(crate) data: u64,
    pub(crate) gpu_instance: c_uint,
    pub(crate) compute_instance: c_uint,
}

/// An event, as the first version tells it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EventDataV1 {
    pub(crate) device: Device,
    pub(crate) kind: u64,
    pub(crate) data: u64,
}

const _: () = {
    assert!(size_of::<ProcessSample>() == 32);
    assert!(size_of::<PciInfo>() == 68);
    assert!(size_of::<EventData>() == 32);
};

/// Writes exported functions: one symbol, or two of the same signature; their arguments; and the work, an [`Outcome`].
macro_rules! nvml {
    () => {};
    ($symbol:ident $arguments:tt $work:block $($rest:tt)*) => {
        $crate::types::export!($symbol $arguments $work);
        $crate::types::nvml!($($rest)*);
    };
    ($symbol:ident, $second:ident $arguments:tt $work:block $($rest:tt)*) => {
        $crate::types::export!($symbol $arguments $work);
        $crate::types::export!($second $arguments $work);
        $crate::types::nvml!($($rest)*);
    };
}

macro_rules! export {
    ($symbol:ident ($($argument:ident: $type:ty),* $(,)?) $work:block) => {
        // SAFETY: the symbol is NVML's, with NVML's signature.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol($($argument: $type),*) -> $crate::types::Return {
            let work = move || -> $crate::types::Outcome { $work };
            // No panic leaves the library.
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
                Ok(Ok(())) => $crate::types::Return::SUCCESS,
                Ok(Err(code)) => code,
                Err(_) => $crate::types::Return::UNKNOWN,
            }
        }
    };
}

pub(crate) use {export, nvml};
