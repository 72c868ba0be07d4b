//! A daemon that knows one answer of each kind, and remembers what it was asked.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tempfile::TempDir;
use wire::{
    Answer, Class, Connection, FromDaemon, Gpu, Listener, Listing, Opened, Priority, Tenant, TenantId,
    TenantState, Terms, ToDaemon,
};

pub(crate) struct FakeDaemon {
    pub(crate) folder: TempDir,
    pub(crate) socket: PathBuf,
    asked: Arc<Mutex<Vec<wire::Command>>>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeDaemon {
    /// Answers a listing with `answer`, and a job that is opened with what fits that; anything else, if it is no listing, with
    /// `answer` too.
    pub(crate) fn start(answer: FromDaemon) -> Self {
        Self::dying(answer, 0)
    }

    /// As [`Self::start`], but it takes so many questions with it first, as a worker does that dies.
    pub(crate) fn dying(answer: FromDaemon, mut deaths: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("rotad.sock");
        let listener = Listener::bind(&socket).unwrap();
        let stopping = Arc::new(AtomicBool::new(false));
        let asked = Arc::<Mutex<Vec<wire::Command>>>::default();
        let (seen, heard) = (stopping.clone(), asked.clone());
        let thread = std::thread::spawn(move || {
            loop {
                let connection = listener.accept().unwrap();
                if seen.load(Ordering::SeqCst) {
                    return;
                }
                // Whoever asks nothing only looks whether somebody is there.
                let Ok((question, files)) = connection.receive::<ToDaemon>() else { continue };
                assert!(files.is_empty());
                if deaths > 0 {
                    deaths -= 1;
                    continue;
                }
                let answer = match question {
                    ToDaemon::Command { version: wire::VERSION, command } => {
                        let opens = matches!(command, wire::Command::Open(_));
                        heard.lock().unwrap().push(command);
                        match &answer {
                            FromDaemon::Listing(listing) if opens => opened(listing),
                            other => other.clone(),
                        }
                    }
                    question => {
                        assert_eq!(question, ToDaemon::List { version: wire::VERSION });
                        answer.clone()
                    }
                };
                connection.send(&answer, &[]).unwrap();
            }
        });
        Self { folder, socket, asked, stopping, thread: Some(thread) }
    }

    /// One that answers a command.
    pub(crate) fn answering(answer: Answer) -> Self {
        Self::start(FromDaemon::Answer(Box::new(answer)))
    }

    /// What it was asked, in order.
    pub(crate) fn asked(&self) -> Vec<wire::Command> {
        self.asked.lock().unwrap().clone()
    }

    /// `rota` with this daemon's socket, in an environment without surprises.
    pub(crate) fn rota(&self) -> Command {
        let mut command = rota();
        command.env("ROTA_SOCKET", &self.socket);
        command
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // The thread waits for a caller; this is the last one.
        let _last = Connection::connect(&self.socket);
        if let Some(thread) = self.thread.take() {
            let answered = thread.join();
            if !std::thread::panicking() {
                answered.unwrap();
            }
        }
    }
}

/// `rota` in an environment without surprises: nothing that a developer's shell may have set.
pub(crate) fn rota() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rota"));
    let surprises = [
        "ROTA_SOCKET",
        "ROTA_JOB",
        "ROTA_SHIM",
        "ROTA_DRIVER",
        "ROTA_VGPU",
        "ROTA_VGPUD",
        "ROTA_LIBVGPU",
        "ROTA_MEMORY",
        "ROTA_WEIGHT",
        "ROTA_CORES",
        "ROTA_PRIORITY",
        "ROTA_CLASS",
        "ROTA_SLO",
        "ROTA_WAIT",
        "ROTA_DISABLE",
        "CUDA_VISIBLE_DEVICES",
        "LD_PRELOAD",
    ];
    for variable in surprises {
        command.env_remove(variable);
    }
    command
}

pub(crate) const UUID: &str = "GPU-5e1f0b2a-0000-4000-8000-000000000001";

pub(crate) fn listing(tenants: Vec<Tenant>) -> FromDaemon {
    listing_on(None, tenants)
}

/// Of a GPU whose virtual machine, if it is one in software, lies in this folder.
pub(crate) fn listing_on(vgpu: Option<&str>, tenants: Vec<Tenant>) -> FromDaemon {
    let gpu = Gpu {
        uuid: UUID.into(),
        name: "NVIDIA H200".into(),
        capacity_bytes: 16 << 30,
        used_bytes: 12_884_901_888 + (512 << 20),
        arena_bytes: 32 << 30,
        arena_used_bytes: 24 << 30,
        arena_clean_bytes: 0,
        vgpu: vgpu.map(Into::into),
        lc_mode_for_ns: None,
    };
    FromDaemon::Listing(Listing {
        schema_version: wire::SCHEMA_VERSION,
        gpus: vec![gpu],
        tenants,
        unmanaged: Vec::new(),
    })
}

pub(crate) fn two_tenants() -> Vec<Tenant> {
    vec![
        Tenant {
            tenant: TenantId(1),
            pid: 4242,
            gpu: "GPU-0".into(),
            job: "train-4242".into(),
            program: "python3".into(),
            state: TenantState::Running,
            resident_bytes: 12 << 30,
            away_bytes: 0,
            turns: 17,
            waiting_ns: 0,
            place: None,
            places: None,
            forecast_ns: None,
            host_bytes: 0,
            hints: None,
            statistics: None,
            reserved: false,
            not_back: None,
            not_deep: None,
        },
        Tenant {
            tenant: TenantId(2),
            pid: 512,
            gpu: "GPU-0".into(),
            job: "nightly".into(),
            program: "sim\x1b[2J".into(),
            state: TenantState::Away,
            resident_bytes: 0,
            away_bytes: 24 << 30,
            turns: 9,
            waiting_ns: 83_500_000_000,
            place: Some(1),
            places: Some(2),
            forecast_ns: Some(43_210_000_000),
            host_bytes: 0,
            hints: None,
            statistics: None,
            reserved: false,
            not_back: None,
            not_deep: None,
        },
    ]
}

pub(crate) const TERMS: Terms = Terms {
    weight: 1,
    class: Class::BestEffort,
    priority: Priority::Normal,
    memory_max_bytes: None,
    cores_max_millionths: None,
    slo_ns: None,
    wait: false,
    gang: false,
    oversize_bytes: 0,
    reserve: false,
};

fn opened(listing: &Listing) -> FromDaemon {
    let others = u32::try_from(listing.tenants.len()).unwrap();
    let opened = Opened { gpus: vec![listing.gpus[0].clone()], others, terms: TERMS };
    FromDaemon::Answer(Box::new(Answer::Opened(opened)))
}

/// stdout of a command that succeeds and says nothing on stderr.
pub(crate) fn stdout(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && stderr.is_empty(), "{:?}: {stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// stderr of a command that fails with `code` and prints no data.
pub(crate) fn complaint(command: &mut Command, code: i32) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(output.stdout.is_empty());
    stderr
}
