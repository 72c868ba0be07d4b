//! Arrays and mipmaps. The driver does not tell how large they are, so they count as what they hold.

use std::ffi::{c_uint, c_void};

use cuda::CUresult;

use super::{Made, counting, forget, keep, note};
use crate::guard::guarded;
use crate::memory::native;

/// The array has no memory of its own: the program maps some there.
const DEFERRED_MAPPING: u32 = 0x80;
/// The same, piece by piece.
const SPARSE: u32 = 0x40;

/// The driver's description of an array in two dimensions.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Array {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

/// The driver's description of an array in three dimensions.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Array3D {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

const _: () = assert!(size_of::<Array>() == 24 && size_of::<Array3D>() == 40);

impl Array3D {
    /// What so many levels hold, each half as wide, high and deep as the one before. Dimensions that are zero are not there.
    fn bytes(&self, levels: u32) -> u64 {
        if self.flags & (DEFERRED_MAPPING | SPARSE) != 0 {
            return 0;
        }
        let level = |level: u32| {
            let size = |length: usize| (length as u64).checked_shr(level).unwrap_or(0).max(1);
            let pixels = [self.width, self.height, self.depth].map(size);
            let pixels = pixels.into_iter().try_fold(1_u64, u64::checked_mul)?;
            pixels.checked_mul(channel_bytes(self.format) * u64::from(self.channels))
        };
        (0..levels).map_while(level).fold(0, u64::saturating_add)
    }
}

impl From<Array> for Array3D {
    fn from(Array { width, height, format, channels }: Array) -> Self {
        Self { width, height, depth: 0, format, channels, flags: 0 }
    }
}

/// The size of a channel of a pixel, by the driver's number of its format. Those that are not known here are packed or
/// compressed, and have no more.
fn channel_bytes(format: u32) -> u64 {
    match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        _ => 4,
    }
}

macro_rules! making {
    ($symbol:ident($($more:ident: $type:ty)?), $description:ty, $destroy:ident, $made:path, $levels:expr) => {
        /// Makes an array.
        ///
        /// # Safety
        /// As for the driver's function.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(
            array: *mut *mut c_void,
            description: *const $description,
            $($more: $type,)?
        ) -> CUresult {
            // SAFETY: the caller's arguments, as they came.
            let result = unsafe { native::$symbol(array, description.cast(), $($more)?) };
            if result != CUresult::SUCCESS {
                return result;
            }
            // SAFETY: the driver has just read the one and written the other.
            let (made, description) = unsafe { (array.read(), Array3D::from(description.read())) };
            let count = || count($made(made.addr() as u64), description.bytes($levels));
            let counted = guarded(stringify!($symbol), || CUresult::SUCCESS, count);
            if counted != CUresult::SUCCESS {
                // SAFETY: made above, and the program never heard of it.
                let _ = unsafe { native::$destroy(made) };
            }
            counted
        }
    };
}

macro_rules! ending {
    ($symbol:ident, $made:path) => {
        /// Destroys an array.
        ///
        /// # Safety
        /// As for the driver's function.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(array: *mut c_void) -> CUresult {
            // SAFETY: the caller's argument, as it came.
            let result = unsafe { native::$symbol(array) };
            if result == CUresult::SUCCESS {
                guarded(stringify!($symbol), || (), || forget($made(array.addr() as u64)));
            }
            result
        }
    };
}

making!(cuArrayCreate_v2(), Array, cuArrayDestroy, Made::Array, 1);
making!(cuArray3DCreate_v2(), Array3D, cuArrayDestroy, Made::Array, 1);
making!(cuMipmappedArrayCreate(levels: c_uint), Array3D, cuMipmappedArrayDestroy, Made::Mipmap, levels);
ending!(cuArrayDestroy, Made::Array);
ending!(cuMipmappedArrayDestroy, Made::Mipmap);

/// Counts something that was made just now; out of memory if it may not be.
fn count(made: Made, bytes: u64) -> CUresult {
    let Some((session, context)) = counting().filter(|_| bytes > 0) else { return CUresult::SUCCESS };
    match keep(session, bytes) {
        Some(Ok(booking)) => note(session, made, context, booking),
        Some(Err(code)) => return code,
        None => {}
    }
    CUresult::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_count_as_what_they_hold() {
        let array = |width, height, depth, format, channels| Array3D {
            width,
            height,
            depth,
            format,
            channels,
            flags: 0,
        };
        assert_eq!(array(100, 0, 0, 0x20, 4).bytes(1), 1600);
        assert_eq!(array(64, 64, 64, 0x01, 1).bytes(1), 64 * 64 * 64);
        assert_eq!(array(8, 8, 0, 0x10, 2).bytes(4), (64 + 16 + 4 + 1) * 4);
        assert_eq!(array(8, 8, 0, 0x10, 2).bytes(40), (64 + 16 + 4 + 36 + 1) * 4, "levels of one pixel");
        assert_eq!(array(usize::MAX, usize::MAX, 2, 0x20, 4).bytes(1), 0, "there is no such array");
        let deferred = Array3D { flags: DEFERRED_MAPPING, ..array(100, 100, 0, 0x20, 4) };
        assert_eq!(deferred.bytes(1), 0);
    }
}
