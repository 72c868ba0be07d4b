//! Whether things cost what the description says: each measured against the clock, and within a tenth of what is expected.
//!
//! `cargo bench -p rota-vgpu-device`. Needs a core for the device and some time of another.

#[path = "../tests/program/mod.rs"]
mod program;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use program::{Device, Program, Ready, address};
use vgpu_messages::host::HostRequest;
use vgpu_messages::memory::MemoryRequest;
use vgpu_messages::module::{Image, ModuleRequest};
use vgpu_messages::request::ContextRequest;
use vgpu_messages::work::{Copy, Launch, Place, Work};
use vgpu_messages::*;

const BYTES: u64 = 64 << 20;
const TOLERANCE: f64 = 0.10;

/// A program with a buffer on the device and a pinned one here.
struct Bench {
    program: Program,
    ready: Ready,
    memory: u64,
    pinned: Vec<u64>,
}

impl Bench {
    fn new(device: &Device) -> Self {
        let program = device.program(None);
        let ready = program.make_ready();
        let alloc = MemoryRequest::Alloc { context: ready.context, bytes: BYTES };
        let Answer::Address(memory) = program.ask(Request::Memory(alloc)) else { panic!() };
        let pinned = vec![0u64; BYTES as usize / 8];
        let register = HostRequest::Register {
            context: ready.context,
            address: address(&pinned[..]),
            bytes: BYTES,
            flags: 0,
            allocated: false,
        };
        program.ask(Request::Host(register));
        let bench = Self { program, ready, memory: memory.0, pinned };
        bench.launch("fill", &[bench.memory, BYTES / 8, 1]);
        bench.synchronize();
        bench
    }

    fn launch(&self, name: &str, words: &[u64]) {
        let parameters: Vec<String> = (0..words.len()).map(|at| format!(".param .u64 p{at}")).collect();
        let text = format!(".version 7.0 .target sm_70 .entry {name}({}) {{ ret; }}", parameters.join(", "));
        let image = Image::Text { address: address(&text[..]), bytes: text.len() as u64 };
        let load = ModuleRequest::Load { context: self.ready.context, image };
        let Answer::Module { entries, .. } = self.program.ask(Request::Module(load)) else { panic!() };
        let launch = Launch {
            function: entries[0].function,
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            parameters: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            cooperative: false,
        };
        self.program.work(self.ready.context, Work::Launch(launch), false);
    }

    fn synchronize(&self) {
        self.program.ask(Request::Context(ContextRequest::Synchronize(self.ready.context)));
    }

    fn copy(&self, host: u64, into: bool) -> f64 {
        let (host, device) = (Place::Host(host), Place::Device(self.memory));
        let copy = if into { Copy::line(host, device, BYTES) } else { Copy::line(device, host, BYTES) };
        let begin = Instant::now();
        self.program.work(self.ready.context, Work::Copy(copy), true);
        begin.elapsed().as_secs_f64()
    }

    /// Starts counting in words of ours: the counter, and the word that stops it.
    fn beat(&self) -> &[AtomicU64; 2] {
        let counter: *const u64 = &self.pinned[0];
        // SAFETY: two words of a buffer that lives as long as `self`, and that nobody uses otherwise while it counts.
        let words = unsafe { &*counter.cast::<[AtomicU64; 2]>() };
        words.iter().for_each(|word| word.store(0, Ordering::SeqCst));
        self.launch("heartbeat", &[address(&words[0]), address(&words[1]), u64::MAX]);
        words
    }

    fn slice(&self, micros: u64) {
        let words = [self.ready.client, self.ready.compute_group, 0xa06c_0103, 0, 8, 0, 8, 0];
        self.program.rm(&self.ready.control, 0xc020_462a, &words, micros.to_le_bytes().into());
    }
}

struct Table {
    bad: u32,
}

impl Table {
    fn row(&mut self, what: &str, expected: f64, measured: f64, unit: &str) {
        let ratio = measured / expected;
        let verdict = if (ratio - 1.0).abs() <= TOLERANCE { "ok" } else { "OFF" };
        self.bad += u32::from(verdict == "OFF");
        println!("{what:<34} {expected:>10.3} {measured:>10.3} {unit:<5} {ratio:>6.3}  {verdict}");
    }
}

/// The shortest: other programs on this machine's CPUs only make things slower.
fn best(values: Vec<f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let spec = Spec { memory: quantity::Bytes(256 << 20), ..Spec::default() };
    let device = Device::start("memory = '256MiB'\n");
    let mut table = Table { bad: 0 };
    println!("{:<34} {:>10} {:>10}", "what", "expected", "measured");
    let (one, two) = (Bench::new(&device), Bench::new(&device));
    let pinned = |bench: &Bench| address(&bench.pinned[..]);
    let rate = |rate: quantity::Rate| rate.0 as f64 / 1e9;
    let speed = |seconds: f64| BYTES as f64 / 1e9 / seconds;

    let times = (0..5).map(|_| one.copy(pinned(&one), true)).collect();
    table.row("copy in, pinned", rate(spec.bus_in), speed(best(times)), "GB/s");
    let times = (0..5).map(|_| one.copy(pinned(&one), false)).collect();
    table.row("copy out, pinned", rate(spec.bus_out), speed(best(times)), "GB/s");
    let pageable = vec![1u8; BYTES as usize];
    let times = (0..5).map(|_| one.copy(address(&pageable[..]), true)).collect();
    table.row("copy in, pageable", rate(spec.bus_pageable), speed(best(times)), "GB/s");
    let (into, out) = std::thread::scope(|scope| {
        let into = scope.spawn(|| (0..5).map(|_| one.copy(pinned(&one), true)).collect());
        let out = scope.spawn(|| (0..5).map(|_| two.copy(pinned(&two), false)).collect());
        (best(into.join().unwrap()), best(out.join().unwrap()))
    });
    table.row("both ways, in", rate(spec.bus_both), speed(into), "GB/s");
    table.row("both ways, out", rate(spec.bus_both), speed(out), "GB/s");
    let begin = Instant::now();
    one.launch("fill", &[one.memory, BYTES / 8, 2]);
    one.synchronize();
    table.row("kernel over memory", rate(spec.memory_rate), speed(begin.elapsed().as_secs_f64()), "GB/s");

    let (a, b) = (one.beat(), two.beat());
    let switch = spec.costs.switch.0 as f64 / 1e3;
    let outside = switch * (spec.costs.switch_save + spec.costs.switch_load);
    for slice in [20_000, 2_048, 1_000, 500] {
        one.slice(slice);
        two.slice(slice);
        std::thread::sleep(Duration::from_millis(100));
        let count = || (a[0].load(Ordering::SeqCst) + b[0].load(Ordering::SeqCst)) as f64;
        let (begin, before) = (Instant::now(), count());
        std::thread::sleep(Duration::from_secs(1));
        let share = (count() - before) / begin.elapsed().as_secs_f64() / spec.compute_rate.0 as f64;
        let inside = slice as f64 - (switch - outside);
        table.row(&format!("two at {slice} us, of one alone"), inside / (slice as f64 + outside), share, "");
    }
    one.slice(6000);
    two.slice(2000);
    std::thread::sleep(Duration::from_millis(100));
    let (before_a, before_b) = (a[0].load(Ordering::SeqCst), b[0].load(Ordering::SeqCst));
    std::thread::sleep(Duration::from_secs(1));
    let gain = |word: &AtomicU64, before: u64| (word.load(Ordering::SeqCst) - before) as f64;
    let inside = |slice: f64| slice - (switch - outside);
    table.row(
        "slices of 6 and 2 ms, shares",
        inside(6000.0) / inside(2000.0),
        gain(&a[0], before_a) / gain(&b[0], before_b),
        "",
    );

    // Every call also takes the way there and back, and the device wakes up for its end: as the cheapest call does.
    let times = (0..200).map(|_| {
        std::thread::sleep(Duration::from_millis(1));
        let begin = Instant::now();
        let words = [one.ready.client, one.ready.compute_group, 0xa06c_0104, 0, 8, 0, 8, 0];
        one.program.rm(&one.ready.control, 0xc020_462a, &words, vec![0; 8]);
        begin.elapsed().as_secs_f64() * 1e3
    });
    let way = median(times.collect()) - spec.costs.control.0 as f64 / 1e6;
    println!("a call takes {:.0} us more than it costs", way * 1e3);
    let mut grips = [Vec::new(), Vec::new()];
    for _ in 0..50 {
        for (times, off) in grips.iter_mut().zip([true, false]) {
            let begin = Instant::now();
            one.program.grip(&one.ready, off);
            times.push(begin.elapsed().as_secs_f64() * 1e3);
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    let [freeze, thaw] = grips.map(median);
    table.row("freeze, all channels", spec.costs.freeze_all.0 as f64 / 1e6 + way, freeze, "ms");
    table.row("thaw", spec.costs.thaw.0 as f64 / 1e6 + way, thaw, "ms");
    a[1].store(1, Ordering::SeqCst);
    b[1].store(1, Ordering::SeqCst);
    one.synchronize();
    two.synchronize();

    if table.bad > 0 {
        eprintln!("{} cost(s) are off by more than {:.0}%", table.bad, TOLERANCE * 100.0);
        std::process::exit(1);
    }
}
