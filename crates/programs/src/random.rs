//! Random calls by a seed: two drivers that agree print the same hashes.
//!
//! A small world of memory, streams, events and mappings; each call is chosen by the seed alone, some of them wrong on
//! purpose, in ways a real driver survives. Every code and every byte read back goes into one hash, which is printed every
//! [`REPORT_CALLS`] calls. Nothing that depends on time is asked: work is waited for before its memory is touched from
//! elsewhere, and memory is written before it is read.

mod dice;
mod mappings;
mod memory;
mod work;
mod world;

use crate::api::ApiError;
use world::World;

/// How often the hash is printed.
const REPORT_CALLS: u64 = 1000;

/// Makes so many calls and prints the hash every [`REPORT_CALLS`]; from the call `verbose_from` on also each call with its
/// code, to find the first one that differs.
pub fn run(seed: u64, calls: u64, verbose_from: Option<u64>) -> Result<(), ApiError> {
    let mut world = World::new(seed, verbose_from.unwrap_or(u64::MAX))?;
    while world.calls() < calls {
        step(&mut world);
    }
    world.end();
    Ok(())
}

/// One thing to do, with how often it is done, in parts of the sum.
type Deed = (u32, fn(&mut World));

const DEEDS: &[Deed] = &[
    (6, World::allocate),
    (5, World::free),
    (1, World::free_twice),
    (1, World::free_wrongly),
    (1, World::allocate_wrongly),
    (8, World::write),
    (8, World::read),
    (5, World::copy),
    (5, World::copy_in),
    (5, World::copy_out),
    (2, World::copy_rows),
    (2, World::copy_wrongly),
    (8, World::set),
    (2, World::set_wrongly),
    (3, World::ask_pointer),
    (2, World::register),
    (6, World::rewrite),
    (4, World::add),
    (4, World::increment),
    (4, World::touch),
    (4, World::checksum),
    (2, World::launch_wrongly),
    (2, World::replace_stream),
    (5, World::record),
    (3, World::wait),
    (2, World::ask_event),
    (1, World::replace_event),
    (1, World::graph),
    (1, World::contexts),
    (1, World::map),
    (1, World::unmap),
    (1, World::map_wrongly),
    (2, World::use_mapping),
];

fn step(world: &mut World) {
    let all: u32 = DEEDS.iter().map(|(weight, _)| weight).sum();
    let mut left = world.dice.below(u64::from(all)) as u32;
    for (weight, deed) in DEEDS {
        if left < *weight {
            return deed(world);
        }
        left -= weight;
    }
}
