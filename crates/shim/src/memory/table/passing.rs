//! The memory under parts: this program's own, or such as goes from one program to the next.

use cuda::types::CUmemGenericAllocationHandle;
use wire::HandleId;

use super::Table;
use crate::memory::taken::TakenFile;

impl Table {
    /// New memory of this program lies under a part, or none any more.
    pub(crate) fn set_physical(&mut self, handle: HandleId, physical: Option<CUmemGenericAllocationHandle>) {
        self.change(handle, |part| (part.physical, part.file) = (physical, None));
    }

    /// Memory that another program made lies under a part.
    pub(crate) fn set_taken(
        &mut self,
        handle: HandleId,
        physical: CUmemGenericAllocationHandle,
        file: TakenFile,
    ) {
        self.change(handle, |part| (part.physical, part.file) = (Some(physical), Some(file)));
    }

    /// Others may have the memory of these from now on.
    pub(crate) fn never_pass(&mut self, handles: &[HandleId]) {
        handles.iter().for_each(|&handle| self.change(handle, |part| part.passable = false));
    }

    /// So much of what the driver made for the program is managed.
    pub(crate) fn set_managed_bytes(&mut self, bytes: u64) {
        self.managed_bytes = bytes;
    }

    /// What NVML does not count for this program, although it is its own: managed memory, and what others made.
    pub(crate) fn unseen_bytes(&self) -> u64 {
        self.managed_bytes + self.parts.taken_bytes()
    }
}
