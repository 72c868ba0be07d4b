//! The parts of all memory: where each is, which ones are away, and which ones the daemon has no file for.

use std::collections::{HashMap, VecDeque};

use cuda::types::{
    CUdevice, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationPropFlags, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};
use wire::{BLOCK_BYTES, HandleId, PASS_BYTES_MIN};

use crate::memory::taken::{Files, TakenFile};

/// What kind of memory was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The device it lies on.
    pub(crate) device: CUdevice,
    /// How the program wants to share it.
    pub(crate) handle_types: CUmemAllocationHandleType,
    /// Further properties.
    pub(crate) flags: CUmemAllocationPropFlags,
}

impl Kind {
    /// Plain memory of a device.
    pub(crate) fn plain(device: CUdevice) -> Self {
        Self {
            device,
            handle_types: CUmemAllocationHandleType::NONE,
            flags: CUmemAllocationPropFlags::default(),
        }
    }

    /// As the program asked for it.
    pub(crate) fn asked(&self) -> CUmemAllocationProp {
        let prop = CUmemAllocationProp::on_device(self.device, self.handle_types);
        CUmemAllocationProp { alloc_flags: self.flags, ..prop }
    }

    /// As it is made in the host's memory, so that the daemon can have a file of it.
    pub(crate) fn on_host(node: i32) -> CUmemAllocationProp {
        let location = CUmemLocation { type_: CUmemLocationType::HOST_NUMA, id: node };
        CUmemAllocationProp { location, ..Self::plain(CUdevice(0)).made() }
    }

    /// As it is made: the daemon gets a file of it. And not for RDMA: other devices register memory at the kernel's driver,
    /// past this library, and would go on using what has been moved.
    pub(crate) fn made(&self) -> CUmemAllocationProp {
        let files = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
        let mut made = self.asked();
        made.requested_handle_types.0 |= files.0;
        made.alloc_flags.gpu_direct_rdma_capable = 0;
        made
    }
}

/// Where a part is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Where it starts.
    pub(crate) address: u64,
    /// Who may do what there.
    pub(crate) access: Vec<CUmemAccessDesc>,
}

impl Mapping {
    /// One that its own device may read and write.
    pub(crate) fn for_device(address: u64, device: CUdevice) -> Self {
        let location = Kind::plain(device).asked().location;
        Self { address, access: vec![CUmemAccessDesc { location, flags: CUmemAccess_flags::READWRITE }] }
    }
}

/// Where the memory of a part is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// On its device, or away from it for a while.
    Device,
    /// In the host's memory, on this NUMA node: it is mapped like any other. It never goes to the arena, but the daemon may
    /// have it change places with memory on the device.
    Host(i32),
    /// The same, because the program named it: there it stays.
    Named(i32),
}

/// What is moved as one: so much of a range, or of what the program created, as one handle has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its name towards the daemon.
    pub(crate) handle: HandleId,
    /// Where it is mapped, also while it is away.
    pub(crate) mappings: Vec<Mapping>,
    /// Its size.
    pub(crate) bytes: u64,
    /// What it is made as.
    pub(crate) kind: Kind,
    /// Where.
    pub(crate) home: Home,
    /// The memory under it; None while it is away.
    pub(crate) physical: Option<CUmemGenericAllocationHandle>,
    /// The file of that memory, if another program made it.
    pub(crate) file: Option<TakenFile>,
    /// Has the daemon its file? Only then it can be moved, and is freed by its name.
    pub(crate) exported: bool,
    /// Nobody else has the memory under it, or will: others may have it when it leaves, and it may get others'.
    pub(crate) passable: bool,
}

impl Part {
    /// As the memory under it is made.
    pub(crate) fn made(&self) -> CUmemAllocationProp {
        match self.home {
            Home::Device => self.kind.made(),
            Home::Host(node) | Home::Named(node) => Kind::on_host(node),
        }
    }

    /// How much of the memory under it another program made.
    fn taken_bytes(&self) -> u64 {
        if self.file.is_some() { self.bytes } else { 0 }
    }

    /// Does it lie in the host's memory, and not by the program's word?
    pub(crate) fn may_change_home(&self) -> bool {
        matches!(self.home, Home::Host(_))
    }

    /// Does it lie in the host's memory?
    pub(crate) fn is_on_host(&self) -> bool {
        self.home != Home::Device
    }
}

/// What a part is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    /// The range that starts there.
    Range(u64),
    /// What the program created under this number.
    Created(u64),
}

#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Where each part is: what it is a part of, and its place there.
    places: HashMap<HandleId, (Whole, usize)>,
    /// Handles that the daemon has no file for yet, oldest first.
    unexported: VecDeque<HandleId>,
    /// How many have no memory under them.
    absent: usize,
    /// Where a file is set aside for each that may have one of memory that was taken.
    files: Files,
    /// Bytes that other programs made.
    taken_bytes: u64,
}

/// What is counted of a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    is_absent: bool,
    may_have_file: bool,
    taken_bytes: u64,
}

impl Counted {
    pub(super) fn of(part: &Part) -> Self {
        // One that is not passed any more has the file of what it took all the same.
        let may_have_file = part.passable || part.file.is_some();
        Self { is_absent: part.physical.is_none(), may_have_file, taken_bytes: part.taken_bytes() }
    }
}

impl Parts {
    pub(super) fn insert(&mut self, whole: Whole, parts: &[Part]) {
        for (place, part) in parts.iter().enumerate() {
            self.places.insert(part.handle, (whole, place));
            self.count(Counted::of(part));
            if !part.exported || part.may_change_home() {
                self.unexported.push_back(part.handle);
            }
        }
    }

    pub(super) fn remove(&mut self, parts: &[Part]) {
        for part in parts {
            let counted = Counted::of(part);
            self.places.remove(&part.handle);
            self.uncount(counted);
            self.files.give_back(usize::from(counted.may_have_file));
        }
        // Also those that the daemon knows by name may be in line.
        if !self.unexported.is_empty() {
            self.unexported.retain(|handle| self.places.contains_key(handle));
        }
    }

    /// A part has another name.
    pub(super) fn rename(&mut self, handle: HandleId, new: HandleId) {
        if let Some(place) = self.places.remove(&handle) {
            self.places.insert(new, place);
            self.unexported.retain(|known| *known != handle);
        }
    }

    pub(super) fn place(&self, handle: HandleId) -> Option<(Whole, usize)> {
        self.places.get(&handle).copied()
    }

    fn count(&mut self, part: Counted) {
        self.absent += usize::from(part.is_absent);
        self.taken_bytes += part.taken_bytes;
    }

    fn uncount(&mut self, part: Counted) {
        self.absent -= usize::from(part.is_absent);
        self.taken_bytes -= part.taken_bytes;
    }

    /// A part is not as it was.
    pub(super) fn changed(&mut self, before: Counted, now: Counted) {
        self.uncount(before);
        self.count(now);
        if before.may_have_file && !now.may_have_file {
            self.files.give_back(1);
        }
    }

    /// Lets new parts of a range be passed, if they are large and there are not too many of such.
    pub(super) fn allow_passing(&self, parts: &mut [Part]) {
        let large = |part: &&mut Part| !part.is_on_host() && part.bytes >= PASS_BYTES_MIN;
        for part in parts.iter_mut().filter(large) {
            part.passable = self.files.set_aside();
        }
    }

    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    pub(super) fn any_absent(&self) -> bool {
        self.absent > 0
    }

    pub(super) fn next_unexported(&mut self) -> Option<HandleId> {
        self.unexported.pop_front()
    }

    /// The daemon gets no files before these are queued again.
    pub(super) fn export_none(&mut self) {
        self.unexported.clear();
    }

    pub(super) fn export_later(&mut self, handle: HandleId) {
        self.unexported.push_back(handle);
    }
}

/// The sizes of the handles that so much memory is made of, none larger than `most`: as few as can be, and about as large as
/// each other, so that none is a sliver that costs as much to map as a large one.
pub(crate) fn part_sizes(bytes: u64, most: u64) -> impl Iterator<Item = u64> {
    let blocks = bytes / BLOCK_BYTES;
    let parts = bytes.div_ceil(most).max(1);
    (0..parts).map(move |part| (blocks / parts + u64::from(part < blocks % parts)) * BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn a_part_gives_its_file_back_when_it_needs_none_any_more() {
        static ASIDE: AtomicUsize = AtomicUsize::new(0);
        let mut parts = Parts { files: Files::of(&ASIDE), ..Parts::default() };
        let part = |handle| Part {
            handle: HandleId(handle),
            mappings: Vec::new(),
            bytes: PASS_BYTES_MIN,
            kind: Kind::plain(CUdevice(0)),
            physical: None,
            home: Home::Device,
            file: None,
            exported: false,
            passable: false,
        };
        let mut four = [1, 2, 3, 4].map(part);
        four[3].bytes -= BLOCK_BYTES;
        parts.allow_passing(&mut four);
        assert_eq!(four.each_ref().map(|part| part.passable), [true, true, true, false]);
        parts.insert(Whole::Created(1), &four);
        let aside = || ASIDE.load(Relaxed);
        assert_eq!(aside(), 3);
        let mut change = |part: &mut Part, change: fn(&mut Part)| {
            let before = Counted::of(part);
            change(part);
            parts.changed(before, Counted::of(part));
        };
        change(&mut four[0], |part| {
            let file = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            part.file = TakenFile::keep(file);
        });
        change(&mut four[0], |part| part.passable = false);
        assert_eq!(aside(), 3, "the file of what it took is there still");
        change(&mut four[0], |part| part.file = None);
        change(&mut four[1], |part| part.exported = true);
        assert_eq!(aside(), 2);
        parts.remove(&four);
        assert_eq!(aside(), 0);
    }

    #[test]
    fn large_memory_comes_in_even_parts() {
        const MOST: u64 = 8 * BLOCK_BYTES;
        let sizes = |bytes| part_sizes(bytes, MOST).collect::<Vec<u64>>();
        assert_eq!(sizes(BLOCK_BYTES), [BLOCK_BYTES]);
        assert_eq!(sizes(MOST), [MOST]);
        let half = MOST / 2;
        assert_eq!(sizes(MOST + BLOCK_BYTES), [half + BLOCK_BYTES, half]);
        for blocks in 1..300 {
            let bytes = blocks * BLOCK_BYTES;
            let sizes = sizes(bytes);
            assert_eq!(sizes.iter().sum::<u64>(), bytes);
            assert_eq!(sizes.len() as u64, bytes.div_ceil(MOST));
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(*most <= MOST && most - least <= BLOCK_BYTES, "{blocks}: {sizes:?}");
            assert!(sizes.iter().all(|size| size.is_multiple_of(BLOCK_BYTES)));
        }
    }
}
