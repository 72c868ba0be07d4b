//! The whole cellar on a disk in memory, which can fail in every way.

mod corruption;
mod faults;
mod handover;
mod model;
mod work;

use super::*;
use crate::GRANULE_BYTES;
use crate::disk::faulty::FaultyDisk;

/// Small, so that files of a few blocks grow and shrink.
const SEGMENT: u64 = 16 * GRANULE_BYTES;

fn settings(limit_bytes: u64) -> Settings {
    Settings {
        leave_bytes: 0,
        segment_bytes: SEGMENT,
        workers: 2,
        jobs: 8,
        ..Settings::new("/nowhere", limit_bytes)
    }
}

/// A cellar with this limit, and its disk. It packs whatever gets smaller.
fn cellar(limit_bytes: u64) -> (Cellar, FaultyDisk) {
    cellar_with(&settings(limit_bytes))
}

fn cellar_with(settings: &Settings) -> (Cellar, FaultyDisk) {
    let disk = FaultyDisk::new(settings.limit_bytes);
    let cellar = reopened(settings, &disk, Key::random().expect("random"), Vec::new());
    (cellar, disk)
}

/// Another one with the same disk, and tickets that are all true.
fn reopened(settings: &Settings, disk: &FaultyDisk, key: Key, tickets: Vec<Ticket>) -> Cellar {
    let taken = taken_over(settings, disk, key, tickets);
    assert_eq!(taken.set_aside, []);
    taken.cellar
}

fn taken_over(settings: &Settings, disk: &FaultyDisk, key: Key, tickets: Vec<Ticket>) -> TakenOver {
    let mut figures = Figures::new(settings);
    figures.pack_whenever_it_saves();
    let sealer = Sealer::new(key).expect("locked");
    let disk = Box::new(disk.clone());
    Cellar::start(settings, figures, disk, sealer, tickets).expect("there are threads")
}

fn block(index: u32) -> BlockId {
    BlockId { tenant: 1, handle: 2, index }
}

/// Bytes that do not pack, different for every seed.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..bytes).map(next).collect()
}

/// Bytes that pack to about this share of their size, spread evenly.
fn noise_and_zeros(seed: u64, bytes: usize, noisy_of_16: usize) -> Vec<u8> {
    let mut block = noise(seed, bytes);
    for chunk in block.chunks_mut(1024) {
        let zeros = chunk.len() - chunk.len() * noisy_of_16 / 16;
        chunk[..zeros].fill(0);
    }
    block
}

fn get(cellar: &Cellar, ticket: &Ticket) -> Result<Vec<u8>, GetError> {
    let mut bytes = vec![0xAA; ticket.plain_bytes()];
    let got = cellar.get(ticket, &mut bytes);
    if got.is_err() {
        assert!(bytes.iter().all(|&byte| byte == 0xAA), "nothing unverified is handed out");
    }
    got.map(|()| bytes)
}
