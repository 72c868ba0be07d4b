//! A program that speaks to the real executable: this process is the program. Shared by the tests and the bench.

#![allow(missing_docs, dead_code, unreachable_pub)] // Each user takes what it needs.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use vgpu_messages::request::ContextRequest;
use vgpu_messages::stream::StreamRef;
use vgpu_messages::work::{Work, WorkRequest};
use vgpu_messages::*;
use wire::Connection;

/// For things that must happen; long, because test machines are slow.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Device {
    pub process: Child,
    pub directory: tempfile::TempDir,
}

impl Device {
    pub fn start(spec: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("vgpu.toml"), spec).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_vgpud")).arg(directory.path()).spawn().unwrap();
        Self { process, directory }
    }

    pub fn place(&self) -> Directory {
        Directory::new(self.directory.path())
    }

    pub fn connect(&self) -> Connection {
        let begin = Instant::now();
        loop {
            match Connection::connect(&self.place().socket()) {
                Ok(connection) => return connection,
                Err(error) if begin.elapsed() > PATIENCE => panic!("{error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    pub fn program(&self, session: Option<SessionId>) -> Program {
        let connection = self.connect();
        let (reply, _) = ask(&connection, Request::Hello { version: VERSION, session }, &[]);
        let Ok(Answer::Welcome { session, device_pid, .. }) = reply else { panic!("{reply:?}") };
        // SAFETY: this only allows the device to reach our memory.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, i64::from(device_pid)) };
        Program { connection, session }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn ask(connection: &Connection, request: Request, files: &[&OwnedFd]) -> (Reply, Vec<OwnedFd>) {
    let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    connection.send(&request, &files).unwrap();
    connection.receive().unwrap()
}

pub struct Program {
    pub connection: Connection,
    pub session: SessionId,
}

pub struct Ready {
    pub control: OwnedFd,
    pub client: u32,
    pub subdevice: u32,
    pub compute_group: u32,
    pub channels: Vec<u32>,
    pub context: ContextId,
}

impl Program {
    pub fn ask(&self, request: Request) -> Answer {
        ask(&self.connection, request, &[]).0.unwrap()
    }

    pub fn rm(&self, control: &OwnedFd, request: u32, words: &[u32], parameters: Vec<u8>) -> Vec<u8> {
        let argument = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (reply, _) = ask(&self.connection, Request::Ioctl { request, argument, parameters }, &[control]);
        let Ok(Answer::Ioctl { argument, .. }) = reply else { panic!("{reply:?}") };
        argument
    }

    pub fn alloc(&self, control: &OwnedFd, [client, parent, class]: [u32; 3], parameters: &[u32]) -> u32 {
        let parameters: Vec<u8> = parameters.iter().flat_map(|word| word.to_le_bytes()).collect();
        let words = [client, parent, 0, class, 8, 0, parameters.len() as u32, 0];
        let argument = self.rm(control, 0xc020_462b, &words, parameters);
        assert_eq!(argument[28..], [0; 4]);
        u32::from_le_bytes(argument[8..12].try_into().unwrap())
    }

    pub fn make_ready(&self) -> Ready {
        let (reply, mut files) = ask(&self.connection, Request::OpenControl, &[]);
        assert_eq!(reply, Ok(Answer::File));
        let control = files.pop().unwrap();
        let client = self.alloc(&control, [0, 0, 0x41], &[]);
        let device = self.alloc(&control, [client, client, 0x80], &[0]);
        let subdevice = self.alloc(&control, [client, device, 0x2080], &[]);
        let mut channels = Vec::new();
        let groups = [1, 9, 10].map(|engine| {
            let group = self.alloc(&control, [client, device, 0xa06c], &[0, 0, 0, engine]);
            channels.push(self.alloc(&control, [client, group, 0xc86f], &[]));
            self.rm(&control, 0xc020_462a, &[client, group, 0xa06c_0101, 0, 8, 0, 3, 0], vec![1, 0, 0]);
            group
        });
        let create = ContextRequest::Create {
            device: DeviceId(0),
            client,
            compute_group: groups[0],
            copy_groups: groups[1..].to_vec(),
            flags: 0,
        };
        let Answer::Context(context) = self.ask(Request::Context(create)) else { panic!() };
        Ready { control, client, subdevice, compute_group: groups[0], channels, context }
    }

    pub fn grip(&self, ready: &Ready, off: bool) {
        let mut parameters = vec![0; 536];
        (parameters[0], parameters[4]) = (u8::from(off), ready.channels.len() as u8);
        for (place, channel) in ready.channels.iter().enumerate() {
            parameters[24 + 4 * place..28 + 4 * place].copy_from_slice(&ready.client.to_le_bytes());
            parameters[280 + 4 * place..284 + 4 * place].copy_from_slice(&channel.to_le_bytes());
        }
        let words = [ready.client, ready.subdevice, 0x2080_110b, 0, 8, 0, 536, 0];
        assert_eq!(self.rm(&ready.control, 0xc020_462a, &words, parameters)[28..], [0; 4]);
    }

    pub fn work(&self, context: ContextId, work: Work, blocking: bool) {
        let request = WorkRequest { context, stream: StreamRef::Legacy, work, blocking };
        assert_eq!(self.ask(Request::Work(request)), Answer::Done);
    }
}

pub fn address<T: ?Sized>(of: &T) -> u64 {
    std::ptr::from_ref(of).expose_provenance() as u64
}
