//! Which memory was needed on the device when, for whoever asks how little could have been moved.
//!
//! Whoever runs needs all that it has, new memory is on the device when it is made, and a context takes room for good. Who
//! was moved for that is not noted: it is what is judged.

use super::{Engine, Tenant};
use crate::optimum::{Began, Case, OptimumError, PieceId};
use sched::{Bytes, HandleId};
use std::collections::BTreeMap;

/// What was needed on one GPU, unless that was too much to note.
type Noted = Result<Case, OptimumError>;

/// What was needed on each GPU.
pub(super) struct Needs {
    cases: Vec<Noted>,
    pieces: BTreeMap<(usize, HandleId), PieceId>,
}

impl Needs {
    pub(super) fn new(gpus: usize) -> Self {
        Self { cases: (0..gpus).map(|_| Ok(Case::default())).collect(), pieces: BTreeMap::new() }
    }

    pub(super) fn cases(self) -> Vec<Noted> {
        self.cases
    }
}

impl Engine<'_> {
    /// A tenant made a handle.
    pub(super) fn note_new(&mut self, tenant: usize, handle: HandleId) {
        let gpu = self.tenants[tenant].gpu;
        let Some(held) = self.tenants[tenant].handles.get(&handle) else { return };
        let Some(needs) = &mut self.needs else { return };
        let (bytes, rewritten, pieces) = (held.bytes, held.changes, &mut needs.pieces);
        let mut made = None;
        add(&mut needs.cases[gpu], |case| {
            let piece = case.piece(bytes, rewritten, Began::New)?;
            pieces.insert((tenant, handle), piece);
            made = Some(piece);
            Ok(())
        });
        self.note_step(gpu, made);
    }

    /// Somebody may run now, or a context was made: all that anybody needs is there, and something new perhaps.
    pub(super) fn note_step(&mut self, gpu: usize, new: Option<PieceId>) {
        let room = self.room_for_handles(gpu);
        let Some(needs) = &mut self.needs else { return };
        // Whoever is being frozen has had its turn: it is only still there because the next one was put on first.
        let runs = |it: &Tenant| it.gpu == gpu && it.is_alive() && it.is_thawed() && !it.freezing;
        let running = self.tenants.iter().enumerate().filter(|(_, it)| runs(it));
        let all = running.flat_map(|(tenant, _)| pieces_of(&needs.pieces, tenant)).chain(new);
        add(&mut needs.cases[gpu], |case| case.step(room, all));
    }

    /// A tenant ended, and needs nothing any more.
    pub(super) fn note_end(&mut self, tenant: usize) {
        let gpu = self.tenants[tenant].gpu;
        let Some(needs) = &mut self.needs else { return };
        let all: Vec<_> = pieces_of(&needs.pieces, tenant).collect();
        add(&mut needs.cases[gpu], |case| {
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

/// Adds to the case of a GPU, unless that has grown too large.
fn add(case: &mut Noted, add: impl FnOnce(&mut Case) -> Result<(), OptimumError>) {
    if let Ok(open) = case
        && let Err(error) = add(open)
    {
        *case = Err(error);
    }
}

fn pieces_of(
    pieces: &BTreeMap<(usize, HandleId), PieceId>,
    tenant: usize,
) -> impl Iterator<Item = PieceId> + '_ {
    pieces.range((tenant, HandleId(0))..=(tenant, HandleId(u64::MAX))).map(|(_, &piece)| piece)
}
