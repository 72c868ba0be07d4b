//! The real executable with real sockets, files and time.

mod program;

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use program::{Device, PATIENCE, address};
use vgpu_messages::host::HostRequest;
use vgpu_messages::memory::MemoryRequest;
use vgpu_messages::module::{Image, ModuleRequest};
use vgpu_messages::request::ContextRequest;
use vgpu_messages::work::{Copy, Launch, Place, Work};
use vgpu_messages::*;

/// It is ended with its test; by itself only long after that, however late the test comes to use it.
const SPEC: &str = "memory = '64MiB'\nlinger = '60s'\n[costs]\ncontext = '1ms'\nteardown = '1ms'\n";

#[test]
fn bytes_of_this_process_go_in_and_out() {
    let device = Device::start(SPEC);
    let program = device.program(None);
    let ready = program.make_ready();
    let alloc = MemoryRequest::Alloc { context: ready.context, bytes: 3 << 20 };
    let Answer::Address(memory) = program.ask(Request::Memory(alloc)) else { panic!() };
    let text: Vec<u8> = (0..3_000_000u32).map(|at| ((at * 31) >> 3) as u8).collect();
    let back = vec![0u8; text.len()];
    let bytes = text.len() as u64;
    program.work(
        ready.context,
        Work::Copy(Copy::line(Place::Host(address(&text[..])), Place::Device(memory.0), bytes)),
        true,
    );
    program.work(
        ready.context,
        Work::Copy(Copy::line(Place::Device(memory.0), Place::Host(address(&back[..])), bytes)),
        true,
    );
    assert!(std::hint::black_box(&back) == &text);
    assert_eq!(std::fs::read_to_string(device.place().misuse()).unwrap(), "");
}

#[test]
fn a_heartbeat_in_this_process_stops_while_frozen() {
    let device = Device::start(SPEC);
    let program = device.program(None);
    let ready = program.make_ready();
    let words: Box<[AtomicU64; 2]> = Box::default();
    let text = channels::HEARTBEAT_PTX;
    let image = Image::Text { address: address(text), bytes: text.len() as u64 };
    let load = ModuleRequest::Load { context: ready.context, image };
    let Answer::Module { entries, .. } = program.ask(Request::Module(load)) else { panic!() };
    let register = HostRequest::Register {
        context: ready.context,
        address: address(&*words),
        bytes: 16,
        flags: 2,
        allocated: false,
    };
    program.ask(Request::Host(register));
    let parameters: Vec<u8> = [address(&words[0]), address(&words[1]), u64::MAX]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let launch = Launch {
        function: entries[0].function,
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 0,
        parameters,
        cooperative: false,
    };
    program.work(ready.context, Work::Launch(launch), false);
    let moves_within = |time: Duration| {
        let (begin, before) = (Instant::now(), words[0].load(Ordering::SeqCst));
        while begin.elapsed() < time && words[0].load(Ordering::SeqCst) == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        words[0].load(Ordering::SeqCst) != before
    };
    // Another thread, as the daemon would be another process.
    let other = device.program(Some(program.session));
    for _ in 0..3 {
        assert!(moves_within(PATIENCE), "it does not run");
        other.grip(&ready, true);
        assert!(!moves_within(Duration::from_millis(30)), "it runs on although frozen");
        other.grip(&ready, false);
    }
    words[1].store(1, Ordering::SeqCst);
    program.ask(Request::Context(ContextRequest::Synchronize(ready.context)));
}

#[test]
fn everything_is_given_back_when_the_control_file_is_closed() {
    let device = Device::start(SPEC);
    let watcher = device.program(None);
    let used = || match watcher.ask(Request::Figures(DeviceId(0))) {
        Answer::Figures(figures) => figures.memory_used_bytes,
        other => panic!("{other:?}"),
    };
    let program = device.program(None);
    let ready = program.make_ready();
    program.ask(Request::Memory(MemoryRequest::Alloc { context: ready.context, bytes: 8 << 20 }));
    let copy = ready.control.try_clone().unwrap();
    drop((program, ready));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(used(), 24 << 20, "a copy of its control file is open");
    drop(copy);
    let begin = Instant::now();
    while used() != 0 {
        assert!(begin.elapsed() < PATIENCE, "{} bytes are left", used());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_device_a_directory_and_it_ends_by_itself() {
    // Long enough for this test to come, should something hold it up.
    const LINGER: Duration = Duration::from_secs(1);
    let mut device = Device::start("memory = '64MiB'\nlinger = '1s'\n");
    let program = device.program(None);
    let second = Command::new(env!("CARGO_BIN_EXE_vgpud")).arg(device.directory.path()).output().unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("another vgpud"), "{second:?}");
    let begin = Instant::now();
    drop(program);
    let status = loop {
        if let Some(status) = device.process.try_wait().unwrap() {
            break status;
        }
        assert!(begin.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success());
    assert!(begin.elapsed() >= LINGER, "it lingers a little");
    let log = std::fs::read_to_string(device.place().log()).unwrap();
    assert!(!log.contains("not given back"), "{log}");
}

#[test]
fn rubbish_ends_its_own_connection_only() {
    let device = Device::start(SPEC);
    let program = device.program(None);
    let bad = device.connect();
    bad.send(&[0xffu8; 30], &[]).unwrap();
    assert!(bad.receive::<Reply>().is_err());
    assert!(matches!(program.ask(Request::Figures(DeviceId(0))), Answer::Figures(_)));
}

#[test]
fn faults_come_and_go_while_it_runs() {
    let device = Device::start(SPEC);
    let program = device.program(None);
    let ready = program.make_ready();
    let alloc = || {
        let alloc = MemoryRequest::Alloc { context: ready.context, bytes: 4096 };
        program::ask(&program.connection, Request::Memory(alloc), &[]).0.is_ok()
    };
    let until = |wanted: bool| {
        let begin = Instant::now();
        while alloc() != wanted {
            assert!(begin.elapsed() < PATIENCE, "the faults are not looked at");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    assert!(alloc());
    std::fs::write(device.place().faults(), "out_of_memory_at = 1\nout_of_memory_stays = true\n").unwrap();
    until(false);
    std::fs::remove_file(device.place().faults()).unwrap();
    until(true);
}
