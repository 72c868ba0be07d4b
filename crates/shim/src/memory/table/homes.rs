//! Which parts lie in the host's memory, and parts that change their place.

use std::collections::{BTreeMap, VecDeque};

use cuda::types::CUmemGenericAllocationHandle;
use wire::{HandleId, Question, SizedHandle};

use super::parts::Whole;
use super::{Created, Home, Making, Part, Table};

/// Memory for parts that are to have another home.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// Memory of the host's is to be made for these, the first first.
    wanted: VecDeque<Question>,
    /// It is there, and mapped nowhere.
    made: BTreeMap<HandleId, Made>,
}

#[derive(Debug)]
struct Made {
    /// Of the question that it was made for. What is ordered about another is not about this.
    number: u64,
    home: Home,
    physical: CUmemGenericAllocationHandle,
}

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

    /// Can a part change its home? Not if the program has named that, or shares what it created.
    pub(crate) fn can_change_home(&self, handle: HandleId) -> bool {
        let Some((_, part)) = self.part(handle) else { return false };
        let is_own = match self.parts.place(handle) {
            Some((Whole::Created(number), _)) => self
                .created
                .get(number)
                .is_some_and(|created| created.making() == Making::Moving && !created.is_shared()),
            place => place.is_some(),
        };
        is_own && part.physical.is_some() && !matches!(part.home, Home::Named(_))
    }

    /// Memory of the host's is wanted for these.
    pub(crate) fn want_prepared(&mut self, questions: &[Question]) {
        self.prepared.wanted.extend(questions);
    }

    /// The next of them.
    pub(crate) fn next_to_prepare(&mut self) -> Option<Question> {
        self.prepared.wanted.pop_front()
    }

    /// There is memory for a part in another home. Returns what there was before.
    pub(crate) fn add_prepared(
        &mut self,
        question: Question,
        home: Home,
        physical: CUmemGenericAllocationHandle,
    ) -> Option<CUmemGenericAllocationHandle> {
        let made = Made { number: question.number, home, physical };
        self.prepared.made.insert(question.handle, made).map(|before| before.physical)
    }

    /// What was prepared for a question, and nothing else. Whoever takes it uses it, or lets it go.
    pub(crate) fn take_prepared(
        &mut self,
        question: Question,
    ) -> Option<(Home, CUmemGenericAllocationHandle)> {
        self.prepared.wanted.retain(|wanted| *wanted != question);
        if self.prepared.made.get(&question.handle)?.number != question.number {
            return None;
        }
        self.prepared.made.remove(&question.handle).map(|made| (made.home, made.physical))
    }

    /// What was prepared for the parts that these are about, when they were asked for before. Whoever takes it lets it go.
    pub(crate) fn take_outdated(&mut self, questions: &[Question]) -> Vec<CUmemGenericAllocationHandle> {
        let Prepared { wanted, made } = &mut self.prepared;
        wanted.retain(|wanted| questions.iter().all(|question| question.handle != wanted.handle));
        questions.iter().filter_map(|question| made.remove(&question.handle)).map(|it| it.physical).collect()
    }

    /// What was prepared for parts that are gone, or for all. Whoever takes it lets it go.
    pub(crate) fn take_unwanted(&mut self, all: bool) -> Vec<CUmemGenericAllocationHandle> {
        if all {
            self.prepared.wanted.clear();
        }
        let parts = &self.parts;
        let unwanted = |handle: &HandleId, _: &mut _| all || parts.place(*handle).is_none();
        self.prepared.made.extract_if(.., unwanted).map(|(_, made)| made.physical).collect()
    }

    /// Other memory lies under a part from now on, in another home.
    pub(crate) fn set_home(&mut self, handle: HandleId, home: Home, physical: CUmemGenericAllocationHandle) {
        self.change(handle, |part| {
            (part.home, part.physical) = (home, Some(physical));
            // It is its own now, and the daemon has no file of it to pass on.
            (part.file, part.passable) = (None, false);
        });
    }

    /// All that may change its home is shown to a new daemon.
    pub(super) fn show_homes(&mut self) {
        let created = self.created.iter().flat_map(|created| &created.parts);
        let hosted = self.parts().chain(created).filter(|part| part.may_change_home());
        let hosted: Vec<HandleId> = hosted.map(|part| part.handle).collect();
        hosted.into_iter().for_each(|handle| self.parts.export_later(handle));
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
