//! Which memory was needed on the device when, for whoever asks how little could have been moved.
//!
//! A tenant needs all that it has when it is thawed, new memory is on the device when it is made, and a context takes room
//! for good. Who was moved for that is not noted: it is what is judged.

use super::Engine;
use crate::optimum::{Began, Case, OptimumError, PieceId};
use sched::{Bytes, HandleId};
use std::collections::BTreeMap;

/// What was needed on each GPU.
pub(super) struct Needs {
    cases: Vec<Result<Case, OptimumError>>,
    pieces: BTreeMap<(usize, HandleId), PieceId>,
}

impl Needs {
    pub(super) fn new(gpus: usize) -> Self {
        Self { cases: (0..gpus).map(|_| Ok(Case::default())).collect(), pieces: BTreeMap::new() }
    }

    pub(super) fn cases(self) -> Vec<Result<Case, OptimumError>> {
        self.cases
    }

    /// Adds to the case of a GPU, unless that has grown too large.
    fn add(&mut self, gpu: usize, add: impl FnOnce(&mut Case) -> Result<(), OptimumError>) {
        let case = &mut self.cases[gpu];
        if let Ok(open) = case
            && let Err(error) = add(open)
        {
            *case = Err(error);
        }
    }
}

impl Engine<'_> {
    /// A tenant made a handle.
    pub(super) fn note_new(&mut self, tenant: usize, handle: HandleId) {
        let Some(mut needs) = self.needs.take() else { return };
        let (gpu, room) = (self.tenants[tenant].gpu, self.room_for_handles(self.tenants[tenant].gpu));
        if let Some(held) = self.tenants[tenant].handles.get(&handle) {
            let (bytes, rewritten, pieces) = (held.bytes, held.changes, &mut needs.pieces);
            let mut made = None;
            if let Ok(case) = &mut needs.cases[gpu] {
                made = Some(case.piece(bytes, rewritten, Began::New));
            }
            match made {
                Some(Ok(piece)) => {
                    pieces.insert((tenant, handle), piece);
                    needs.add(gpu, |case| case.step(room, [piece]));
                }
                Some(Err(error)) => needs.cases[gpu] = Err(error),
                None => {}
            }
        }
        self.needs = Some(needs);
    }

    /// A tenant may run: all that it has is there.
    pub(super) fn note_need(&mut self, tenant: usize) {
        let Some(mut needs) = self.needs.take() else { return };
        let (gpu, room) = (self.tenants[tenant].gpu, self.room_for_handles(self.tenants[tenant].gpu));
        let all: Vec<_> = pieces_of(&needs.pieces, tenant).collect();
        needs.add(gpu, |case| case.step(room, all));
        self.needs = Some(needs);
    }

    /// A context was made: there was room for it.
    pub(super) fn note_context(&mut self, gpu: usize) {
        let room = self.room_for_handles(gpu);
        if let Some(needs) = &mut self.needs {
            needs.add(gpu, |case| case.step(room, []));
        }
    }

    /// A tenant ended, and needs nothing any more.
    pub(super) fn note_end(&mut self, tenant: usize) {
        let gpu = self.tenants[tenant].gpu;
        let Some(needs) = &mut self.needs else { return };
        let all: Vec<_> = pieces_of(&needs.pieces, tenant).collect();
        needs.add(gpu, |case| {
            all.into_iter().for_each(|piece| case.free_piece(piece));
            Ok(())
        });
    }

    /// What is left of a GPU when all contexts have theirs.
    fn room_for_handles(&self, gpu: usize) -> Bytes {
        let spec = self.gpus[gpu].gpu;
        let contexts = self.tenants.iter().filter(|it| it.gpu == gpu && it.group.is_some()).count() as u64;
        spec.capacity.less(spec.reserve).less(Bytes(spec.residue.0.saturating_mul(contexts)))
    }
}

fn pieces_of(
    pieces: &BTreeMap<(usize, HandleId), PieceId>,
    tenant: usize,
) -> impl Iterator<Item = PieceId> + '_ {
    pieces.range((tenant, HandleId(0))..=(tenant, HandleId(u64::MAX))).map(|(_, &piece)| piece)
}
