//! The bench: a folder with the driver, the program and the socket; and the two sides that a test plays.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use tempfile::TempDir;
use wire::{
    BLOCK_BYTES, Connection, FromDaemon, GrantId, Listener, SharedPage, SizedHandle, TenantId, ToDaemon,
    WireError,
};

pub(crate) const GPU: &str = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
pub(crate) const CAPACITY_BYTES: u64 = 16 << 30;
/// Noted when the agent leaves captures.
pub(crate) const AGENT_STARTED: &str = "relaxed";
/// For things that must happen; long, because test machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A folder with the driver, the program and the socket.
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Once nobody else does: a process that another test has just forked has the last listener as well, until it is a program.
    pub(crate) fn listen(&self) -> Listener {
        let until = Instant::now() + PATIENCE;
        loop {
            match Listener::bind(&self.path("rotad.sock")) {
                Err(WireError::NotListening { cause: Errno::ADDRINUSE, .. }) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                bound => return bound.unwrap(),
            }
        }
    }

    pub(crate) fn start(&self, variables: &[(&str, &str)]) -> Program {
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
    pub(crate) fn tenant(&self, variables: &[(&str, &str)]) -> (Program, Daemon) {
        let listener = self.listen();
        let mut program = self.start(variables);
        program.tell("init");
        let daemon = Daemon::welcome(&listener);
        assert_eq!(program.answer(), "0");
        (program, daemon)
    }

    /// What the driver noted so far, but for what the agent does on its own.
    pub(crate) fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().filter(|line| *line != AGENT_STARTED).map(str::to_owned).collect()
    }

    pub(crate) fn agent_started(&self) -> bool {
        std::fs::read_to_string(self.path("log")).is_ok_and(|text| text.contains(AGENT_STARTED))
    }

    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(self.path("stderr")).unwrap()
    }
}

/// The library under test: beside this program, or a folder above.
pub(crate) fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let candidates = program.ancestors().skip(1).take(2).map(|folder| folder.join("librota_shim.so"));
    let built = candidates.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    built.max().expect("cargo builds the library before its tests").1
}

pub(crate) struct Program {
    pub(crate) child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }

    /// Makes a context.
    pub(crate) fn enter(&mut self) {
        assert_eq!(self.ask("context"), "0");
    }

    pub(crate) fn allocated(&mut self) -> u64 {
        let answer = self.answer();
        let address = answer.strip_prefix("0 ").unwrap_or_else(|| panic!("alloc: {answer}"));
        u64::from_str_radix(address, 16).unwrap()
    }

    pub(crate) fn end(mut self) -> ExitStatus {
        drop(self.input);
        self.child.wait().unwrap()
    }
}

/// What a program says that comes back.
pub(crate) struct Survivor {
    pub(crate) epoch: u64,
    pub(crate) resident: bool,
    pub(crate) frozen: bool,
    pub(crate) here: Vec<(SizedHandle, OwnedFd)>,
    pub(crate) away: Vec<SizedHandle>,
    pub(crate) unshown: Vec<SizedHandle>,
    pub(crate) passable: Vec<wire::HandleId>,
}

pub(crate) struct Daemon {
    pub(crate) connection: Connection,
    pub(crate) page: SharedPage,
}

impl Daemon {
    pub(crate) fn welcome(listener: &Listener) -> Self {
        Self::welcome_with(SharedPage::create(1).unwrap(), listener)
    }

    /// With a page of one of several daemons.
    pub(crate) fn welcome_with(page: SharedPage, listener: &Listener) -> Self {
        let connection = listener.accept().unwrap();
        let daemon = Self { connection, page };
        let (hello, _) = daemon.receive();
        let ToDaemon::Hello { version: wire::VERSION, job, program, .. } = hello else { panic!("{hello:?}") };
        assert_eq!((job.as_str(), program.as_str()), ("night shift", "program"));
        let welcome =
            FromDaemon::Welcome { tenant: TenantId(1), gpu: GPU.to_owned(), capacity_bytes: CAPACITY_BYTES };
        daemon.connection.send(&welcome, &[daemon.page.file()]).unwrap();
        daemon
    }

    /// Takes over a program whose daemon went: hears who it was and what it has, and gives it a page.
    pub(crate) fn take_over(page: SharedPage, listener: &Listener) -> (Self, Survivor) {
        let connection = listener.accept().unwrap();
        let daemon = Self { connection, page };
        let (rejoin, _) = daemon.receive();
        let ToDaemon::Rejoin { version: wire::VERSION, tenant, epoch, job, gpu, resident, frozen, .. } =
            rejoin
        else {
            panic!("{rejoin:?}")
        };
        assert_eq!((tenant, job.as_str(), gpu.as_str()), (TenantId(1), "night shift", GPU));
        daemon.send(FromDaemon::Waiting { reason: "its memory".to_owned() });
        let (here, away, unshown, passable) = Default::default();
        let mut survivor = Survivor { epoch, resident, frozen, here, away, unshown, passable };
        loop {
            let (message, files) = daemon.receive();
            let ToDaemon::Has { here, away, unshown, passable, complete } = message else {
                panic!("{message:?}")
            };
            survivor.passable.extend(passable);
            assert_eq!(here.len(), files.len());
            survivor.here.extend(here.into_iter().zip(files));
            survivor.away.extend(away);
            survivor.unshown.extend(unshown);
            if complete {
                break;
            }
        }
        let welcome =
            FromDaemon::Welcome { tenant: TenantId(1), gpu: GPU.to_owned(), capacity_bytes: CAPACITY_BYTES };
        daemon.connection.send(&welcome, &[daemon.page.file()]).unwrap();
        (daemon, survivor)
    }

    pub(crate) fn send(&self, message: FromDaemon) {
        self.connection.send(&message, &[]).unwrap();
    }

    /// The next message, whatever it is.
    pub(crate) fn receive(&self) -> (ToDaemon, Vec<OwnedFd>) {
        let mut polled = [PollFd::new(&self.connection, PollFlags::IN)];
        let timeout = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        assert_ne!(rustix::event::poll(&mut polled, Some(&timeout)).unwrap(), 0, "the tenant says nothing");
        self.connection.receive().unwrap()
    }

    /// Whether another message is there, or comes in a moment.
    pub(crate) fn has_more(&self) -> bool {
        let mut polled = [PollFd::new(&self.connection, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
        rustix::event::poll(&mut polled, Some(&timeout)).unwrap() != 0
    }

    /// Whether the tenant hangs up without saying another word.
    pub(crate) fn hung_up(&self) -> bool {
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
    pub(crate) fn next(&self) -> (ToDaemon, Vec<OwnedFd>) {
        loop {
            match self.receive() {
                (ToDaemon::Channels { .. }, _) => {}
                other => return other,
            }
        }
    }

    /// Serves one allocation, up to its file.
    pub(crate) fn serve(&self, program: &mut Program, asked: u64) -> (u64, SizedHandle, OwnedFd) {
        program.tell(&format!("alloc {asked:x}"));
        let wanted = self.grant(asked);
        let address = program.allocated();
        let (message, mut files) = self.next();
        let ToDaemon::Allocated { grant, handle, .. } = message else { panic!("{message:?}") };
        assert_eq!((grant, handle.bytes, files.len()), (wanted, asked.next_multiple_of(BLOCK_BYTES), 1));
        (address, handle, files.remove(0))
    }

    pub(crate) fn grant(&self, asked: u64) -> GrantId {
        let (message, _) = self.next();
        let ToDaemon::Grow { grant, bytes } = message else { panic!("{message:?}") };
        assert_eq!(bytes, asked.next_multiple_of(BLOCK_BYTES));
        self.send(FromDaemon::Granted { grant });
        grant
    }

    /// Grants what will be kept.
    pub(crate) fn grant_to_keep(&self, asked: u64) -> GrantId {
        let (message, _) = self.next();
        let ToDaemon::Keep { grant, bytes } = message else { panic!("{message:?}") };
        assert_eq!(bytes, asked);
        self.send(FromDaemon::Granted { grant });
        grant
    }
}

pub(crate) fn freed(handle: SizedHandle) -> ToDaemon {
    ToDaemon::Freed { handles: vec![handle.handle] }
}

pub(crate) fn word(file: impl AsFd) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::pread(file, &mut bytes, 0), Ok(8));
    u64::from_le_bytes(bytes)
}

pub(crate) fn wait_for(condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < end, "it did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
