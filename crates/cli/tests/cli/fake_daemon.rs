//! A daemon that knows one listing and answers every question with it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tempfile::TempDir;
use wire::{Connection, FromDaemon, Gpu, Listener, Listing, Tenant, TenantId, TenantState, ToDaemon};

pub(crate) struct FakeDaemon {
    pub(crate) folder: TempDir,
    pub(crate) socket: PathBuf,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeDaemon {
    pub(crate) fn start(answer: FromDaemon) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("rotad.sock");
        let listener = Listener::bind(&socket).unwrap();
        let stopping = Arc::new(AtomicBool::new(false));
        let seen = stopping.clone();
        let thread = std::thread::spawn(move || {
            loop {
                let connection = listener.accept().unwrap();
                if seen.load(Ordering::SeqCst) {
                    return;
                }
                let (question, files) = connection.receive::<ToDaemon>().unwrap();
                assert_eq!(question, ToDaemon::List { version: wire::VERSION });
                assert!(files.is_empty());
                connection.send(&answer, &[]).unwrap();
            }
        });
        Self { folder, socket, stopping, thread: Some(thread) }
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
        vgpu: vgpu.map(Into::into),
    };
    FromDaemon::Listing(Listing { schema_version: wire::SCHEMA_VERSION, gpus: vec![gpu], tenants })
}

pub(crate) fn two_tenants() -> Vec<Tenant> {
    vec![
        Tenant {
            tenant: TenantId(1),
            pid: 4242,
            job: "train-4242".into(),
            program: "python3".into(),
            state: TenantState::Running,
            resident_bytes: 12 << 30,
            away_bytes: 0,
            turns: 17,
            waiting_ns: 0,
        },
        Tenant {
            tenant: TenantId(2),
            pid: 512,
            job: "nightly".into(),
            program: "sim\x1b[2J".into(),
            state: TenantState::Away,
            resident_bytes: 0,
            away_bytes: 24 << 30,
            turns: 9,
            waiting_ns: 83_500_000_000,
        },
    ]
}
