//! Random lives of several programs on two GPUs: no wrong byte, no leaked byte. `ROTA_SEED` and `ROTA_SEEDS` choose others.

use vgpu_messages::memory::MemoryRequest;
use vgpu_messages::pool::PoolRequest;
use vgpu_messages::stream::StreamRef;
use vgpu_messages::*;

use super::world::*;

const STEPS: usize = 400;
const SIZE: u64 = 256 << 10;

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((self.0 >> 33) as usize) % below.max(1)
    }
}

/// Memory that a program knows the contents of.
struct Piece {
    address: u64,
    value: u8,
    kind: PieceKind,
}

enum PieceKind {
    Plain,
    Pool,
    Mapped(HandleId),
}

struct Life {
    program: Program,
    pieces: Vec<Piece>,
    frozen: bool,
}

impl Life {
    fn new_piece(&mut self, world: &mut World, random: &mut Random) {
        let program = &self.program;
        let (address, kind) = match random.next(3) {
            0 => (world.alloc(program, SIZE), PieceKind::Plain),
            1 => {
                let stream = StreamRef::Legacy;
                let request =
                    PoolRequest::Alloc { context: program.context, stream, pool: None, bytes: SIZE };
                match world.ask(program.connection, Request::Pool(request)) {
                    Ok(Answer::Address(address)) => (address.0, PieceKind::Pool),
                    other => panic!("{other:?}"),
                }
            }
            _ => {
                let (address, handle) = (world.reserve(program, 2 * MIB), world.create(program, 2 * MIB));
                world.map(program, address, 2 * MIB, handle);
                (address, PieceKind::Mapped(handle))
            }
        };
        let value = random.next(256) as u8;
        world.submit(program, StreamRef::Legacy, memset(address, value.into(), SIZE)).unwrap();
        self.pieces.push(Piece { address, value, kind });
    }

    fn work(&mut self, world: &mut World, random: &mut Random) {
        let (program, count) = (&self.program, self.pieces.len());
        if count == 0 {
            return;
        }
        let (one, other) = (random.next(count), random.next(count));
        let (from, to) = (self.pieces[other].address, self.pieces[one].address);
        match random.next(3) {
            0 => {
                let value = random.next(256) as u8;
                let words = u64::from_le_bytes([value; 8]);
                let kernel = world.kernel(program, "fill", &[to, SIZE / 8, words]);
                world.submit(program, StreamRef::Legacy, kernel).unwrap();
                self.pieces[one].value = value;
            }
            1 if one != other => {
                let copy = work::Copy::line(work::Place::Device(from), work::Place::Device(to), SIZE);
                world.submit(program, StreamRef::Legacy, work::Work::Copy(copy)).unwrap();
                self.pieces[one].value = self.pieces[other].value;
            }
            _ => {
                let spin = world.kernel(program, "spin", &[random.next(2000) as u64, u64::MAX]);
                world.submit(program, StreamRef::PerThread, spin).unwrap();
            }
        }
    }

    fn drop_piece(&mut self, world: &mut World, random: &mut Random) {
        if self.pieces.is_empty() {
            return;
        }
        let piece = self.pieces.swap_remove(random.next(self.pieces.len()));
        let program = &self.program;
        match piece.kind {
            PieceKind::Plain => assert_eq!(world.free(program, piece.address), Ok(Answer::Done)),
            PieceKind::Pool => {
                let address = Address(piece.address);
                let free = PoolRequest::Free { context: program.context, stream: StreamRef::Legacy, address };
                assert_eq!(world.ask(program.connection, Request::Pool(free)), Ok(Answer::Done));
            }
            PieceKind::Mapped(handle) => {
                world.synchronize(program).unwrap();
                let unmap = MemoryRequest::Unmap { address: Address(piece.address), bytes: 2 * MIB };
                assert_eq!(world.memory(program, unmap), Ok(Answer::Done));
                assert_eq!(world.memory(program, MemoryRequest::Release(handle)), Ok(Answer::Done));
            }
        }
    }

    /// What rota does: memory away while frozen, other memory in its place, thawed.
    fn swap(&mut self, world: &mut World) {
        world.freeze(&self.program);
        for piece in &mut self.pieces {
            let PieceKind::Mapped(handle) = &mut piece.kind else { continue };
            let bytes = world.raw(&self.program, piece.address, 2 << 20);
            let unmap = MemoryRequest::Unmap { address: Address(piece.address), bytes: 2 * MIB };
            assert_eq!(world.memory(&self.program, unmap), Ok(Answer::Done));
            assert_eq!(world.memory(&self.program, MemoryRequest::Release(*handle)), Ok(Answer::Done));
            *handle = world.create(&self.program, 2 * MIB);
            let block = world.machine.block_of(self.program.session, *handle).unwrap();
            world.machine.store.physical.block_mut(block).write(0, &bytes);
            world.map(&self.program, piece.address, 2 * MIB, *handle);
        }
        world.thaw(&self.program);
    }

    fn check(&self, world: &mut World, random: &mut Random, seed: u64) {
        if let Some(piece) = self.pieces.get(random.next(self.pieces.len())) {
            let bytes = world.bytes(&self.program, piece.address, SIZE);
            let wrong = bytes.iter().position(|byte| *byte != piece.value);
            assert_eq!(wrong, None, "seed {seed}: at {:#x} of {:?}", piece.address, self.program.pid);
        }
    }
}

fn live(seed: u64) {
    let mut random = Random(seed);
    let mut world = World::new(round_spec());
    let (mut lives, mut closing): (Vec<Life>, Vec<Program>) = (Vec::new(), Vec::new());
    let mut pid = 100;
    for _ in 0..STEPS {
        let at = random.next(lives.len());
        match random.next(20) {
            0 | 1 if lives.len() < 4 => {
                pid += 1;
                let program = world.program(pid, random.next(2) as u32);
                lives.push(Life { program, pieces: Vec::new(), frozen: false });
            }
            2 if !lives.is_empty() => {
                let life = lives.swap_remove(at);
                world.kill(&life.program);
                closing.push(life.program);
            }
            3 => closing.drain(..).for_each(|program| world.machine.closed(program.file)),
            4 | 5 => world.pass(random.next(5_000_000) as u64),
            _ if lives.is_empty() => {}
            6 if lives[at].frozen => {
                world.thaw(&lives[at].program);
                lives[at].frozen = false;
            }
            6 => {
                world.freeze(&lives[at].program);
                lives[at].frozen = true;
            }
            // Whoever is frozen would wait in these for ever.
            _ if lives[at].frozen => {}
            7 | 8 if lives[at].pieces.len() < 5 => lives[at].new_piece(&mut world, &mut random),
            9 | 10 => lives[at].drop_piece(&mut world, &mut random),
            11 | 12 => lives[at].check(&mut world, &mut random, seed),
            13 => lives[at].swap(&mut world),
            14 => {
                let micros = 500 + random.next(5000) as u64;
                world.set_slice(&lives[at].program, micros);
            }
            _ => lives[at].work(&mut world, &mut random),
        }
    }
    for life in &lives {
        world.kill(&life.program);
    }
    let files = lives.iter().map(|life| life.program.file).chain(closing.iter().map(|program| program.file));
    files.for_each(|file| world.machine.closed(file));
    for connection in world.connections() {
        world.machine.disconnect(connection);
    }
    world.pass(20 * MS);
    assert!(world.machine.is_clean() && world.machine.is_deserted(), "seed {seed}: something is left");
    assert_eq!(world.machine.take_misuse(), [], "seed {seed}");
}

#[test]
fn random_lives_leave_no_wrong_byte_and_no_leaked_byte() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("ROTA_SEED").unwrap_or(1);
    for seed in first..first + number("ROTA_SEEDS").unwrap_or(30) {
        live(seed);
    }
}
