//! A program with the library preloaded, in front of a driver in software; the test is its daemon.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use tempfile::TempDir;
use wire::{
    BLOCK_BYTES, Connection, FromDaemon, GrantId, HandleId, Listener, SharedPage, SizedHandle, TenantId,
    ToDaemon,
};

const GPU: &str = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
const CAPACITY_BYTES: u64 = 16 << 30;
/// Noted when the agent leaves captures.
const AGENT_STARTED: &str = "relaxed";
/// For things that must happen; long, because test machines are slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// A folder with the driver, the program and the socket.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tenant");
        let compile = |arguments: &[&str], source: &str, target: &Path| {
            let mut compiler = Command::new("cc");
            compiler
                .args(["-Wall", "-Werror"])
                .args(arguments)
                .arg("-o")
                .arg(target)
                .arg(sources.join(source));
            assert!(compiler.arg("-ldl").status().expect("a C compiler").success());
        };
        compile(&["-shared", "-fPIC"], "driver.c", &bench.path("driver.so"));
        compile(&[], "program.c", &bench.path("program"));
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn listen(&self) -> Listener {
        Listener::bind(&self.path("rotad.sock")).unwrap()
    }

    fn start(&self, variables: &[(&str, &str)]) -> Program {
        let preload = format!("{}:{}", library().display(), self.path("driver.so").display());
        let mut child = Command::new(self.path("program"))
            .env("LD_PRELOAD", preload)
            .env("ROTA_DRIVER", self.path("driver.so"))
            .env("ROTA_SOCKET", self.path("rotad.sock"))
            .env("ROTA_JOB", "night shift")
            .env_remove("ROTA_DISABLE")
            .env("FAKE_LOG", self.path("log"))
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(self.path("stderr")).unwrap())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Program { child, input, output }
    }

    /// A program that is a tenant of this test.
    fn tenant(&self, variables: &[(&str, &str)]) -> (Program, Daemon) {
        let listener = self.listen();
        let mut program = self.start(variables);
        program.tell("init");
        let daemon = Daemon::welcome(&listener);
        assert_eq!(program.answer(), "0");
        (program, daemon)
    }

    /// What the driver noted so far, but for what the agent does on its own.
    fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().filter(|line| *line != AGENT_STARTED).map(str::to_owned).collect()
    }

    fn agent_started(&self) -> bool {
        std::fs::read_to_string(self.path("log")).is_ok_and(|text| text.contains(AGENT_STARTED))
    }

    fn stderr(&self) -> String {
        std::fs::read_to_string(self.path("stderr")).unwrap()
    }
}

/// The library under test: beside this program, or a folder above.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let candidates = program.ancestors().skip(1).take(2).map(|folder| folder.join("librota_shim.so"));
    let built = candidates.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    built.max().expect("cargo builds the library before its tests").1
}

struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }

    /// Makes a context.
    fn enter(&mut self) {
        assert_eq!(self.ask("context"), "0");
    }

    fn allocated(&mut self) -> u64 {
        let answer = self.answer();
        let address = answer.strip_prefix("0 ").unwrap_or_else(|| panic!("alloc: {answer}"));
        u64::from_str_radix(address, 16).unwrap()
    }

    fn end(mut self) -> ExitStatus {
        drop(self.input);
        self.child.wait().unwrap()
    }
}

struct Daemon {
    connection: Connection,
    page: SharedPage,
}

impl Daemon {
    fn welcome(listener: &Listener) -> Self {
        let connection = listener.accept().unwrap();
        let daemon = Self { connection, page: SharedPage::create(1).unwrap() };
        let (hello, _) = daemon.receive();
        let ToDaemon::Hello { version: wire::VERSION, job, program } = hello else { panic!("{hello:?}") };
        assert_eq!((job.as_str(), program.as_str()), ("night shift", "program"));
        let welcome =
            FromDaemon::Welcome { tenant: TenantId(1), gpu: GPU.to_owned(), capacity_bytes: CAPACITY_BYTES };
        daemon.connection.send(&welcome, &[daemon.page.file()]).unwrap();
        daemon
    }

    fn send(&self, message: FromDaemon) {
        self.connection.send(&message, &[]).unwrap();
    }

    /// The next message, whatever it is.
    fn receive(&self) -> (ToDaemon, Vec<OwnedFd>) {
        let mut polled = [PollFd::new(&self.connection, PollFlags::IN)];
        let timeout = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        assert_ne!(rustix::event::poll(&mut polled, Some(&timeout)).unwrap(), 0, "the tenant says nothing");
        self.connection.receive().unwrap()
    }

    /// Whether the tenant hangs up without saying another word.
    fn hung_up(&self) -> bool {
        let mut polled = [PollFd::new(&self.connection, PollFlags::IN)];
        let timeout = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        assert_ne!(
            rustix::event::poll(&mut polled, Some(&timeout)).unwrap(),
            0,
            "the tenant stays and is silent"
        );
        matches!(self.connection.receive::<ToDaemon>(), Err(wire::WireError::Closed))
    }

    /// The next message that is not about channels.
    fn next(&self) -> (ToDaemon, Vec<OwnedFd>) {
        loop {
            match self.receive() {
                (ToDaemon::Channels { .. }, _) => {}
                other => return other,
            }
        }
    }

    /// Serves one allocation, up to its file.
    fn serve(&self, program: &mut Program, asked: u64) -> (u64, SizedHandle, OwnedFd) {
        program.tell(&format!("alloc {asked:x}"));
        let wanted = self.grant(asked);
        let address = program.allocated();
        let (message, mut files) = self.next();
        let ToDaemon::Allocated { grant, handle } = message else { panic!("{message:?}") };
        assert_eq!((grant, handle.bytes, files.len()), (wanted, asked.next_multiple_of(BLOCK_BYTES), 1));
        (address, handle, files.remove(0))
    }

    fn grant(&self, asked: u64) -> GrantId {
        let (message, _) = self.next();
        let ToDaemon::Grow { grant, bytes } = message else { panic!("{message:?}") };
        assert_eq!(bytes, asked.next_multiple_of(BLOCK_BYTES));
        self.send(FromDaemon::Granted { grant });
        grant
    }
}

fn freed(handle: SizedHandle) -> ToDaemon {
    ToDaemon::Freed { handles: vec![handle.handle] }
}

fn word(file: impl AsFd) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::pread(file, &mut bytes, 0), Ok(8));
    u64::from_le_bytes(bytes)
}

#[test]
fn memory_leaves_and_comes_back_under_the_same_address() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, handle, file) = daemon.serve(&mut program, 3_000_000);
    program.ask(&format!("write {address:x} 1234"));
    assert_eq!(word(&file), 0x1234, "the daemon's copy is the same memory");

    daemon.send(FromDaemon::Unmap { handles: vec![handle.handle, HandleId(999)] });
    let done = vec![handle.handle, HandleId(999)];
    assert_eq!(
        daemon.next().0,
        ToDaemon::Unmapped { handles: done },
        "an unknown handle is one that is freed"
    );
    assert_eq!(bench.log().iter().filter(|line| *line == "release").count(), 1);

    // A question about memory that is away is answered when it is back.
    program.tell(&format!("attribute {address:x} 9"));
    // Time to ask too early. Where that is not enough, the test still holds.
    std::thread::sleep(Duration::from_millis(50));
    daemon.send(FromDaemon::Create { handles: vec![HandleId(999), handle.handle] });
    let gone = ToDaemon::Failed { handles: vec![HandleId(999)], code: 0, call: "freed".to_owned() };
    assert_eq!(daemon.next().0, gone);
    let (message, files) = daemon.next();
    assert_eq!(message, ToDaemon::Created { handles: vec![handle.handle] });
    assert_eq!(program.answer(), "0 0");
    rustix::io::pwrite(&files[0], &0x5678u64.to_le_bytes(), 0).unwrap();
    assert_eq!(program.ask(&format!("read {address:x}")), "5678");

    assert_eq!(program.ask(&format!("free {address:x}")), "0");
    assert_eq!(daemon.next().0, freed(handle));
    assert!(bench.log().iter().any(|line| line == "address free"));
    assert!(bench.agent_started(), "outside of captures");
    assert!(program.end().success());
    assert_eq!(bench.stderr(), "");
}

#[test]
fn the_program_sees_its_own_sizes() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, ..) = daemon.serve(&mut program, 1000);
    let inside = address + 999;
    assert_eq!(program.ask(&format!("range {inside:x}")), format!("0 {address:x} 3e8"));
    assert_eq!(program.ask(&format!("range {:x}", address + 1000)), "1 0 0", "past its end");
    assert_eq!(program.ask(&format!("attribute {inside:x} b")), format!("0 {address:x}"));
    assert_eq!(program.ask(&format!("attribute {inside:x} c")), "0 3e8");
    let free = CAPACITY_BYTES - BLOCK_BYTES - (512 << 20);
    assert_eq!(program.ask("info"), format!("0 {free:x} {CAPACITY_BYTES:x}"));
}

#[test]
fn a_denied_request_is_out_of_memory_and_a_refused_one_is_returned() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[("FAKE_CREATE_BYTES_MAX", "2097152")]);
    program.enter();
    program.tell("alloc 100");
    let (message, _) = daemon.next();
    let ToDaemon::Grow { grant, .. } = message else { panic!("{message:?}") };
    daemon.send(FromDaemon::Denied { grant, reason: "the job's limit is 1 GiB".to_owned() });
    assert_eq!(program.answer(), "2 0");

    program.tell("alloc 400000");
    let grant = daemon.grant(4 << 20);
    assert_eq!(daemon.next().0, ToDaemon::Returned { grant });
    assert_eq!(program.answer(), "2 0");
    assert_eq!(program.ask("alloc 0"), "1 0", "the driver's own answer");
    assert_eq!(bench.stderr(), "rota: no memory for this program: the job's limit is 1 GiB\n");
}

#[test]
fn a_free_during_a_capture_fails_as_natively_and_spoils_nothing() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, handle, _) = daemon.serve(&mut program, 100);
    program.ask("capture 1");
    assert_eq!(program.ask(&format!("free {address:x}")), "900");
    assert!(!bench.log().iter().any(|line| line == "address free" || line == "capture spoilt"));
    program.ask("capture 0");
    assert_eq!(program.ask(&format!("free {address:x}")), "0");
    assert_eq!(daemon.next().0, freed(handle));
}

#[test]
fn a_program_that_exits_hangs_up_instead_of_failing() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (_, handle, _) = daemon.serve(&mut program, 100);
    program.ask("deinitialize");
    daemon.send(FromDaemon::Unmap { handles: vec![handle.handle] });
    assert!(daemon.hung_up(), "no answer can be given for memory that is gone");
    assert!(program.end().success());
    assert_eq!(bench.stderr(), "", "nothing is wrong");
}

#[test]
fn copies_wait_while_memory_is_away_and_arrive_with_all_their_arguments() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, handle, _) = daemon.serve(&mut program, 100);
    let order = |order: FromDaemon| {
        daemon.send(order);
        daemon.next()
    };
    for (command, answer, value) in [("copy", "0", 0x11), ("copy-batch", "0 1", 0x22)] {
        order(FromDaemon::Unmap { handles: vec![handle.handle] });
        program.tell(&format!("{command} {address:x} {value:x}"));
        // Time to copy too early. Where that is not enough, the test still holds.
        std::thread::sleep(Duration::from_millis(30));
        let (_, files) = order(FromDaemon::Create { handles: vec![handle.handle] });
        assert_eq!(program.answer(), answer);
        assert_eq!(word(&files[0]), value);
    }
    // Freeing the last allocation that is away lets others' copies go on.
    let (other, ..) = daemon.serve(&mut program, 100);
    order(FromDaemon::Unmap { handles: vec![handle.handle] });
    assert_eq!(program.ask(&format!("free {address:x}")), "0");
    assert_eq!(program.ask(&format!("copy {other:x} 33")), "0");
}

#[test]
fn a_context_takes_its_memory_and_channels_with_it() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (_, handle, _) = daemon.serve(&mut program, 100);
    program.enter();
    assert_eq!(program.ask("end-context"), "0", "still retained once");
    assert!(!bench.log().iter().any(|line| line == "address free"));
    assert_eq!(program.ask("end-context"), "0");
    let (mut is_freed, mut no_groups) = (false, false);
    while !(is_freed && no_groups) {
        match daemon.receive().0 {
            ToDaemon::Channels { groups, .. } => no_groups = groups.is_empty(),
            message => is_freed = message == freed(handle),
        }
    }
}

#[test]
fn channels_are_reported_and_frozen_if_born_frozen() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    daemon.page.set_frozen(true);
    program.enter();
    assert_eq!(daemon.page.channel_generation(), 1);
    let files = loop {
        let (message, files) = daemon.receive();
        let ToDaemon::Channels { generation, new_files, groups } = message else { panic!("{message:?}") };
        assert_eq!(new_files.len(), files.len());
        if generation < 1 {
            continue;
        }
        let [group] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!((group.client, group.subdevice, group.group), (0xc1d0_0001, 3, 4));
        assert_eq!((group.engine, &group.channels[..]), (1, &[5][..]));
        break files;
    };
    drop(files);
    assert_eq!(bench.log(), ["freeze"]);

    // The daemon goes: slices first, then the thaw.
    daemon.page.set_slice_us(2048);
    drop(daemon.connection);
    wait_for(|| bench.stderr().contains("the daemon is gone"));
    assert_eq!(bench.log(), ["freeze", "slice", "thaw"]);
    assert!(!daemon.page.frozen());
    assert!(program.end().success());
}

#[test]
fn without_its_daemon_a_resident_program_goes_on() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (address, ..) = daemon.serve(&mut program, 100);
    program.ask(&format!("write {address:x} 77"));
    program.tell("alloc 100");
    daemon.next();
    drop(daemon);
    let native = program.allocated();
    assert!(bench.log().contains(&"native alloc".to_owned()), "who waits for the daemon goes on natively");
    assert_eq!(program.ask(&format!("read {address:x}")), "77");
    assert_eq!(program.ask(&format!("free {native:x}")), "0");
    assert_eq!(program.ask(&format!("free {address:x}")), "0");
    assert!(bench.log().contains(&"address free".to_owned()));
    assert!(program.end().success());
    assert_eq!(bench.stderr(), "rota: the daemon is gone; running on without rota\n");
}

#[test]
fn without_its_daemon_a_program_that_is_away_ends() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    let (_, handle, _) = daemon.serve(&mut program, 100);
    daemon.page.set_frozen(true);
    daemon.page.revoke_residency();
    daemon.send(FromDaemon::Unmap { handles: vec![handle.handle] });
    daemon.next();
    drop(daemon);
    assert_eq!(program.child.wait().unwrap().code(), Some(125));
    assert!(bench.stderr().contains("cannot go on"), "{}", bench.stderr());
    assert!(!bench.log().contains(&"thaw".to_owned()));
}

#[test]
fn a_forked_child_is_no_tenant() {
    let bench = Bench::new();
    let (mut program, daemon) = bench.tenant(&[]);
    program.enter();
    assert_eq!(program.ask("fork"), "0");
    assert_eq!(bench.log(), ["native alloc", "native free"]);
    daemon.serve(&mut program, 100);
}

#[test]
fn without_a_daemon_the_program_is_told_and_runs() {
    let bench = Bench::new();
    let mut program = bench.start(&[]);
    assert_eq!(program.ask("init"), "0");
    program.enter();
    program.tell("alloc 100");
    program.allocated();
    assert_eq!(bench.log(), ["native alloc"]);
    assert!(program.end().success());
    let stderr = bench.stderr();
    assert!(
        stderr.starts_with("rota: cannot reach ") && stderr.ends_with("; running without rota\n"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1);
}

#[test]
fn a_refused_program_is_told_why() {
    let bench = Bench::new();
    let listener = bench.listen();
    let mut program = bench.start(&[]);
    program.tell("init");
    let connection = listener.accept().unwrap();
    connection.receive::<ToDaemon>().unwrap();
    connection.send(&FromDaemon::Refused { reason: "it speaks version 0".to_owned() }, &[]).unwrap();
    assert_eq!(program.answer(), "0");
    let expected = "rota: the daemon refuses this program: it speaks version 0; running without rota\n";
    assert_eq!(bench.stderr(), expected);
}

#[test]
fn a_disabled_or_unasked_shim_is_silent() {
    for (variable, value) in [("ROTA_DISABLE", "1"), ("ROTA_SOCKET", "")] {
        let bench = Bench::new();
        let mut program = bench.start(&[(variable, value)]);
        assert_eq!(program.ask("init"), "0");
        program.enter();
        program.tell("alloc 100");
        program.allocated();
        assert_eq!(bench.log(), ["native alloc"]);
        assert!(program.end().success());
        assert_eq!(bench.stderr(), "");
    }
}

#[test]
fn a_trace_needs_no_daemon() {
    let bench = Bench::new();
    let trace = bench.path("trace");
    let mut program = bench.start(&[("ROTA_SOCKET", ""), ("ROTA_IOCTL_TRACE", trace.to_str().unwrap())]);
    assert_eq!(program.ask("init"), "0");
    program.enter();
    let text = std::fs::read_to_string(&trace).unwrap();
    assert_eq!(text.lines().count(), 6, "{text}");
    assert!(text.lines().next().unwrap().contains(" c020462b "), "{text}");
}

fn wait_for(condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < end, "it did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
