//! Names of the device's things as the pointers that programs know them by.
//!
//! A handle is the thing's id with its kind in the low byte, so that one of another kind, or one that was never handed
//! out, is recognised. Ids are never used twice: a handle of something gone is recognised by the device.

use cuda::CUresult;
use cuda::types::*;
use vgpu_messages::stream::StreamRef;
use vgpu_messages::*;

use crate::context::table::ContextNumber;
use crate::module::table::{KernelId, LibraryId};

/// Bits of a handle that hold its kind.
const KIND_BITS: u32 = 8;

macro_rules! handles {
    ($($kind:literal $handle:ident $id:ident $error:ident;)*) => {$(
        impl Handle for $handle {
            type Id = $id;

            fn of(id: $id) -> Self {
                Self(std::ptr::without_provenance_mut(((id.0 << KIND_BITS) | $kind) as usize))
            }

            fn id(self) -> Result<$id, CUresult> {
                let number = self.0.addr() as u64;
                match number & ((1 << KIND_BITS) - 1) {
                    $kind => Ok($id(number >> KIND_BITS)),
                    _ => Err(CUresult::$error),
                }
            }
        }
    )*};
}

/// A pointer that stands for a thing of the device.
pub(crate) trait Handle: Sized + Copy {
    /// The device's name of it.
    type Id;

    /// For the program.
    fn of(id: Self::Id) -> Self;

    /// From the program; refused unless it was handed out for something of this kind.
    fn id(self) -> Result<Self::Id, CUresult>;
}

handles! {
    0x20 CUcontext ContextNumber INVALID_CONTEXT;
    0x30 CUstream StreamId INVALID_HANDLE;
    0x40 CUevent EventId INVALID_HANDLE;
    0x50 CUmodule ModuleId INVALID_HANDLE;
    0x60 CUfunction FunctionId INVALID_HANDLE;
    0x70 CUmemoryPool PoolId INVALID_VALUE;
    0x80 CUgraph GraphId INVALID_VALUE;
    0x90 CUgraphNode NodeId INVALID_VALUE;
    0xa0 CUgraphExec GraphExecId INVALID_VALUE;
    0xb0 CUlibrary LibraryId INVALID_HANDLE;
    0xc0 CUkernel KernelId INVALID_HANDLE;
}

/// A physical allocation for the program.
pub(crate) fn physical(id: HandleId) -> CUmemGenericAllocationHandle {
    CUmemGenericAllocationHandle(id.0)
}

/// A stream as a program names it; `default` is what it means by none.
pub(crate) fn stream(stream: CUstream, default: StreamRef) -> Result<StreamRef, CUresult> {
    match stream.0.addr() {
        0 => Ok(default),
        1 => Ok(StreamRef::Legacy),
        2 => Ok(StreamRef::PerThread),
        _ => stream.id().map(StreamRef::Made),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_go_there_and_back_and_kinds_differ() {
        assert_eq!(CUstream::of(StreamId(7)).id(), Ok(StreamId(7)));
        assert_eq!(CUevent(CUstream::of(StreamId(7)).0).id(), Err(CUresult::INVALID_HANDLE));
        assert_eq!(CUgraph(std::ptr::null_mut()).id().map(|id| id.0), Err(CUresult::INVALID_VALUE));
    }

    #[test]
    fn default_streams_have_numbers() {
        let number = |number| CUstream(std::ptr::without_provenance_mut(number));
        assert_eq!(stream(number(0), StreamRef::PerThread), Ok(StreamRef::PerThread));
        assert_eq!(stream(number(1), StreamRef::PerThread), Ok(StreamRef::Legacy));
        assert_eq!(stream(number(2), StreamRef::Legacy), Ok(StreamRef::PerThread));
        assert_eq!(stream(number(3), StreamRef::Legacy), Err(CUresult::INVALID_HANDLE));
        assert_eq!(stream(CUstream::of(StreamId(1)), StreamRef::Legacy), Ok(StreamRef::Made(StreamId(1))));
    }
}
