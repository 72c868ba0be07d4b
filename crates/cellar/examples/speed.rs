//! How fast a cellar is here: plain direct requests of the same size first, then the cellar with data of several kinds.
//!
//! ```console
//! $ cargo run --release -p rota-cellar --example speed -- FOLDER [MiB] [THREADS] [ROUNDS] [MB/s]
//! ```
//!
//! The last number makes the disk as slow as that, to see what packing is worth on another one.
//! Every figure is of the second pass over the same space: the first time a file system has to find room, too. CPU is
//! processor time over time, of the whole process: 200% are two processors.

use rota_cellar::disk::{Disk, LocalFile};
use rota_cellar::{Accept, BLOCK_BYTES_MAX, BlockId, Cellar, Done, Extent, Key, Settings, Ticket};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("which folder?")?;
    let mut number = |usual: usize| arguments.next().map_or(Ok(usual), |text| text.parse());
    let (mebibytes, threads, rounds) = (number(1024)?, number(4)?, number(3)?);
    let pace = number(0)?;
    let blocks = (mebibytes << 20) / BLOCK_BYTES_MAX;
    let settings = Settings { workers: threads, ..Settings::new(folder, (mebibytes as u64) << 20) };
    println!("{blocks} blocks of 2 MiB, {threads} threads\n");
    println!("{:24} {:>20} {:>20}  {:>6}  blocks", "", "write", "read", "ratio");
    for _ in 0..rounds {
        plain(&settings, blocks, pace)?;
        for (name, kind) in KINDS {
            cellar(&settings, blocks, pace, name, kind)?;
        }
        println!();
    }
    Ok(())
}

/// What a stretch of work took.
struct Took {
    time: Duration,
    processor: Duration,
}

impl Took {
    fn measure(work: impl FnOnce()) -> Took {
        let (start, processor) = (Instant::now(), processor_time());
        work();
        Took { time: start.elapsed(), processor: processor_time().saturating_sub(processor) }
    }

    fn print(&self, blocks: usize) -> String {
        let speed = (blocks * BLOCK_BYTES_MAX) as f64 / self.time.as_secs_f64() / 1e6;
        let share = 100.0 * self.processor.as_secs_f64() / self.time.as_secs_f64();
        format!("{speed:.0} MB/s {share:3.0}% CPU")
    }
}

fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills in the time that it is given, which lives until then.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(answer, 0, "Linux has this clock");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Direct requests and nothing else.
fn plain(settings: &Settings, blocks: usize, pace: usize) -> Result<(), Box<dyn std::error::Error>> {
    let file = Slow::new(LocalFile::create(&settings.folder, Accept::LocalDisk)?, pace);
    file.allocate(Extent { offset: 0, bytes: (blocks * BLOCK_BYTES_MAX) as u64 })?;
    let pass = |write: bool| {
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..settings.workers {
                scope.spawn(|| {
                    let mut memory = noise(1, BLOCK_BYTES_MAX + 4096);
                    let start = memory.as_ptr().align_offset(4096);
                    let bytes = &mut memory[start..start + BLOCK_BYTES_MAX];
                    loop {
                        let block = next.fetch_add(1, Ordering::Relaxed);
                        if block >= blocks as u64 {
                            break;
                        }
                        let offset = block * BLOCK_BYTES_MAX as u64;
                        let done =
                            if write { file.write_at(bytes, offset) } else { file.read_at(bytes, offset) };
                        assert_eq!(done.expect("the disk works"), BLOCK_BYTES_MAX);
                    }
                });
            }
        });
    };
    pass(true);
    let write = Took::measure(|| pass(true));
    let read = Took::measure(|| pass(false));
    let how = if file.file.is_direct() { "disk, direct" } else { "disk, through the cache" };
    println!("{how:24} {:>20} {:>20}", write.print(blocks), read.print(blocks));
    Ok(())
}

fn cellar(
    settings: &Settings,
    blocks: usize,
    pace: usize,
    name: &str,
    kind: Kind,
) -> Result<(), Box<dyn std::error::Error>> {
    // A few different blocks, in memory that all jobs read from.
    let sources: Vec<Arc<[u8]>> = (0..8).map(|seed| kind(seed).into()).collect();
    let file = Slow::new(LocalFile::create(&settings.folder, Accept::LocalDisk)?, pace);
    let cellar = Cellar::on_disk(settings, Box::new(file), Key::random()?)?;
    let mut tickets = Vec::new();
    put_all(&cellar, &sources, blocks, &mut tickets);
    tickets.drain(..).for_each(|ticket| assert!(cellar.discard(&ticket)));
    let before = cellar.statistics().totals;
    let write = Took::measure(|| put_all(&cellar, &sources, blocks, &mut tickets));
    let totals = cellar.statistics().totals;
    let ratio = cellar.statistics().ratio().unwrap_or(0.0);
    let read = Took::measure(|| get_all(&cellar, &tickets));
    let packed: Vec<String> = [
        ("zero", totals.zero_blocks - before.zero_blocks),
        ("plain", totals.plain_blocks - before.plain_blocks),
        ("packed", totals.packed_blocks - before.packed_blocks),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(name, count)| format!("{name} {count}"))
    .collect();
    let (write, read) = (write.print(blocks), read.print(blocks));
    println!("{name:24} {write:>20} {read:>20}  {ratio:6.3}  {}", packed.join(", "));
    Ok(())
}

fn put_all(cellar: &Cellar, sources: &[Arc<[u8]>], blocks: usize, tickets: &mut Vec<Ticket>) {
    let (mut submitted, mut done) = (0, 0);
    while done < blocks {
        while submitted < blocks {
            let source = Box::new(Arc::clone(&sources[submitted % sources.len()]));
            let block = BlockId { tenant: 0, handle: 0, index: submitted as u32 };
            if cellar.submit_put(block, source).is_err() {
                break;
            }
            submitted += 1;
        }
        if let Some(Done::Put { result, .. }) = cellar.wait(Duration::from_secs(60)) {
            tickets.push(result.expect("there is room"));
            done += 1;
        }
    }
}

fn get_all(cellar: &Cellar, tickets: &[Ticket]) {
    let mut spare: Vec<Box<dyn AsMut<[u8]> + Send>> = Vec::new();
    for _ in 0..16 {
        spare.push(Box::new(vec![1u8; BLOCK_BYTES_MAX]));
    }
    let (mut next, mut done) = (tickets.iter(), 0);
    while done < tickets.len() {
        while let Some(into) = spare.pop() {
            let Some(ticket) = next.next() else { break };
            cellar.submit_get(ticket.clone(), into).expect("there are more places than destinations");
        }
        if let Some(Done::Get { into, result, .. }) = cellar.wait(Duration::from_secs(60)) {
            result.expect("nothing is broken");
            spare.push(into);
            done += 1;
        }
    }
}

/// A disk that takes and gives no more than so many MB/s; as it is, with zero.
struct Slow {
    file: LocalFile,
    pace: usize,
    /// When all requests so far are over, for writes and reads.
    busy_until: [Mutex<Instant>; 2],
}

impl Slow {
    fn new(file: LocalFile, pace: usize) -> Slow {
        Slow { file, pace, busy_until: [Mutex::new(Instant::now()), Mutex::new(Instant::now())] }
    }

    fn wait(&self, way: usize, bytes: usize) {
        if self.pace == 0 {
            return;
        }
        let until = {
            let mut busy_until = self.busy_until[way].lock().expect("nobody panics");
            let took = Duration::from_secs_f64(bytes as f64 / (self.pace as f64 * 1e6));
            *busy_until = busy_until.max(Instant::now()) + took;
            *busy_until
        };
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

impl Disk for Slow {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.wait(0, bytes.len());
        self.file.write_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.wait(1, bytes.len());
        self.file.read_at(bytes, offset)
    }

    fn allocate(&self, part: Extent) -> io::Result<()> {
        self.file.allocate(part)
    }

    fn release(&self, part: Extent) -> io::Result<()> {
        self.file.release(part)
    }

    fn available_bytes(&self) -> io::Result<u64> {
        self.file.available_bytes()
    }

    fn length_bytes(&self) -> io::Result<u64> {
        self.file.length_bytes()
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.file.duplicate()
    }
}

type Kind = fn(u64) -> Vec<u8>;

const KINDS: [(&str, Kind); 7] = [
    ("incompressible", |seed| noise(seed, BLOCK_BYTES_MAX)),
    ("every second 4 KiB zero", |seed| {
        let mut bytes = noise(seed, BLOCK_BYTES_MAX);
        bytes.chunks_mut(8192).for_each(|chunk| chunk[..4096].fill(0));
        bytes
    }),
    ("zero", |_| vec![0; BLOCK_BYTES_MAX]),
    ("all ones (float32)", |_| 1.0f32.to_le_bytes().repeat(BLOCK_BYTES_MAX / 4)),
    ("weights (float32)", |seed| weights(seed).flat_map(f32::to_le_bytes).take(BLOCK_BYTES_MAX).collect()),
    ("weights (bfloat16)", |seed| {
        let halves = weights(seed).map(|value| (value.to_bits() >> 16) as u16);
        halves.flat_map(u16::to_le_bytes).take(BLOCK_BYTES_MAX).collect()
    }),
    ("token numbers (int64)", |seed| {
        let numbers = randoms(seed).map(|random| random % 50_000);
        numbers.flat_map(u64::to_le_bytes).take(BLOCK_BYTES_MAX).collect()
    }),
];

fn randoms(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    randoms(seed).flat_map(u64::to_le_bytes).take(bytes).collect()
}

/// Numbers around zero, as a layer's weights are.
fn weights(seed: u64) -> impl Iterator<Item = f32> {
    let mut uniform = randoms(seed).map(|random| (random >> 40) as f32 / (1u64 << 24) as f32);
    std::iter::repeat_with(move || ((0..12).filter_map(|_| uniform.next()).sum::<f32>() - 6.0) * 0.02)
}
