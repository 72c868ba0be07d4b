//! Which parts lie in the host's memory, and parts that change their place.

use cuda::types::CUmemGenericAllocationHandle;
use wire::{HandleId, SizedHandle};

use super::{Created, Home, Making, Part, Table};

impl Table {
    /// All that lies in the host's memory.
    pub(crate) fn hosted(&self) -> impl Iterator<Item = SizedHandle> {
        let created = self.created.iter().flat_map(|created| &created.parts);
        let hosted = self.parts().chain(created).filter(|part| part.is_on_host());
        hosted.map(|part| SizedHandle { handle: part.handle, bytes: part.bytes })
    }

    /// The parts on the device that lie wholly in a range of addresses, whatever lies under them just now.
    pub(crate) fn whole_parts_in(&self, address: u64, bytes: u64) -> Vec<HandleId> {
        let end = address.saturating_add(bytes);
        let moving = |created: &&Created| created.making() == Making::Moving && !created.is_shared();
        let created = self.created.iter().filter(moving).flat_map(|created| &created.parts);
        let inside = |part: &&Part| {
            let lies_in = |at: u64| at >= address && at.saturating_add(part.bytes) <= end;
            !part.is_on_host() && part.mappings.iter().any(|mapping| lies_in(mapping.address))
        };
        self.parts().chain(created).filter(inside).map(|part| part.handle).collect()
    }

    /// Other memory lies under a part from now on, in another place, and the part has another name.
    pub(crate) fn rehome(
        &mut self,
        handle: HandleId,
        new: HandleId,
        home: Home,
        physical: CUmemGenericAllocationHandle,
    ) {
        self.change(handle, |part| {
            (part.handle, part.home, part.physical, part.exported) = (new, home, Some(physical), true);
            (part.file, part.passable) = (None, false);
        });
        self.parts.rename(handle, new);
    }
}
