//! Every kind of event in every state of a tenant: all cells are reached, none needs an excuse.
//!
//! Random lives reach most of them. The others are provoked: whenever somebody is in a state in which a kind of event has
//! not come yet, it comes now, whether it makes sense or not. What always holds is checked all the while.

use crate::world::life::Life;
use crate::world::matrix::{KINDS, Matrix, Seen};

/// Events of one life.
const EVENTS: u64 = 10_000;
/// Lives until every cell must have been reached.
const LIVES_MAX: u64 = 64;

#[test]
fn every_event_comes_in_every_state() {
    let cells = || KINDS.into_iter().flat_map(|kind| Seen::ALL.map(|seen| (kind, seen)));
    let mut matrix = Matrix::default();
    for seed in 0..LIVES_MAX {
        let mut life = Life::new(100 + seed);
        while life.events < EVENTS {
            life.live(5);
            life.fill(&matrix);
            life.orphan(&matrix);
        }
        life.end_well();
        matrix.merge(&life.matrix);
        if cells().all(|(kind, seen)| matrix.has(kind, seen)) {
            break;
        }
    }
    println!("{}", matrix.table());
    let missed: Vec<_> = cells().filter(|&(kind, seen)| !matrix.has(kind, seen)).collect();
    assert!(missed.is_empty(), "never reached: {missed:?}");
}
