//! A machine with programs on it: what tests are written in.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use cuda::CUresult;
use vgpu_messages::memory::{Access, HandleProperties, Location, MemoryRequest};
use vgpu_messages::module::{Image, ModuleRequest};
use vgpu_messages::quantity::Nanos;
use vgpu_messages::request::ContextRequest;
use vgpu_messages::stream::{StreamRef, StreamRequest};
use vgpu_messages::work::{Copy, Launch, Memset, Place, Work, WorkRequest};
use vgpu_messages::*;

use crate::Machine;
use crate::host::{HostError, HostMemory};
use crate::machine::Outgoing;
use crate::rm::FileKey;
use crate::session::ConnectionId;

pub(super) const MIB: u64 = 1 << 20;
pub(super) const MS: u64 = 1_000_000;
/// Where every program's host memory begins, and how much it has.
pub(super) const HOST: u64 = 0x1000_0000;
pub(super) const HOST_BYTES: u64 = 8 * MIB;

type Memories = Rc<RefCell<BTreeMap<i32, Vec<u8>>>>;

#[derive(Debug)]
struct FakeHost(Memories);

impl FakeHost {
    fn with<T>(
        &self,
        pid: i32,
        at: u64,
        bytes: usize,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, HostError> {
        let mut all = self.0.borrow_mut();
        let memory = all.get_mut(&pid).ok_or(HostError::Gone)?;
        let start = at.checked_sub(HOST).ok_or(HostError::Refused(rustix::io::Errno::FAULT))? as usize;
        memory.get_mut(start..start + bytes).map(f).ok_or(HostError::Refused(rustix::io::Errno::FAULT))
    }
}

impl HostMemory for FakeHost {
    fn read(&mut self, pid: i32, address: u64, into: &mut [u8]) -> Result<(), HostError> {
        self.with(pid, address, into.len(), |memory| into.copy_from_slice(memory))
    }

    fn write(&mut self, pid: i32, address: u64, from: &[u8]) -> Result<(), HostError> {
        self.with(pid, address, from.len(), |memory| memory.copy_from_slice(from))
    }
}

/// The machine and what it has said.
pub(super) struct World {
    pub(super) machine: Machine,
    memories: Memories,
    replies: BTreeMap<ConnectionId, (Reply, Option<FileKey>)>,
    pub(super) callbacks: Vec<Callback>,
    last: u64,
}

/// A program with a context on one GPU.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) connection: ConnectionId,
    pub(super) pid: i32,
    pub(super) session: SessionId,
    pub(super) file: FileKey,
    pub(super) client: u32,
    pub(super) subdevice: u32,
    pub(super) groups: [u32; 3],
    pub(super) channels: Vec<u32>,
    pub(super) context: ContextId,
    pub(super) device: DeviceId,
}

/// A machine whose every cost is round: 1 byte a nanosecond everywhere, switches of 100 us.
pub(super) fn round_spec() -> Spec {
    Spec::parse(
        r#"
        gpus = 2
        memory = "64MiB"
        context_memory = "4MiB"
        bus_in = "1GB/s"
        bus_out = "1GB/s"
        bus_both = "500MB/s"
        clear_rate = "1000000GB/s"
        bus_pageable = "1GB/s"
        memory_rate = "1GB/s"
        peer_rate = "1GB/s"
        compute_rate = "1e6/s"
        [costs]
        switch = "100us"
        switch_save = 0.3
        switch_load = 0.3
        slice = "2ms"
        freeze_compute = "600us"
        freeze_all = "1ms"
        thaw = "300us"
        control = "10us"
        context = "1ms"
        teardown = "5ms"
        launch = "0us"
        copy = "0us"
        "#,
    )
    .unwrap()
}

impl World {
    pub(super) fn new(spec: Spec) -> Self {
        let memories = Memories::default();
        let machine = Machine::new(spec, Box::new(FakeHost(memories.clone())));
        Self { machine, memories, replies: BTreeMap::new(), callbacks: Vec::new(), last: 0 }
    }

    fn collect(&mut self) {
        for outgoing in self.machine.take_outgoing() {
            match outgoing {
                Outgoing::Reply(connection, reply, file) => {
                    let before = self.replies.insert(connection, (reply, file.map(|(key, _)| key)));
                    assert!(before.is_none(), "{connection:?} gets two replies at once");
                }
                Outgoing::Callback(_, callback) => self.callbacks.push(callback),
            }
        }
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, nanos: u64) {
        let target = self.machine.now() + Nanos(nanos);
        self.machine.advance_all(target);
        self.collect();
    }

    /// Asks, and takes the reply if there is one at once.
    pub(super) fn try_ask(&mut self, connection: ConnectionId, request: Request) -> Option<Reply> {
        self.machine.handle(connection, request, None);
        self.taken(connection)
    }

    /// A reply that has come meanwhile.
    pub(super) fn taken(&mut self, connection: ConnectionId) -> Option<Reply> {
        self.collect();
        self.replies.remove(&connection).map(|(reply, _)| reply)
    }

    /// Asks, with a file, and waits for the reply and its file.
    pub(super) fn ask_with(
        &mut self,
        connection: ConnectionId,
        request: Request,
        file: Option<FileKey>,
    ) -> (Reply, Option<FileKey>) {
        self.machine.handle(connection, request.clone(), file);
        for _ in 0..10_000 {
            self.collect();
            if let Some(reply) = self.replies.remove(&connection) {
                return reply;
            }
            self.pass(MS / 2);
        }
        panic!("no reply to {request:?} in five seconds");
    }

    /// Asks and waits for the reply.
    pub(super) fn ask(&mut self, connection: ConnectionId, request: Request) -> Reply {
        self.ask_with(connection, request, None).0
    }

    /// Another connection of a process.
    pub(super) fn connect(&mut self, pid: i32, session: Option<SessionId>) -> (ConnectionId, SessionId) {
        self.last += 1;
        let connection = ConnectionId(self.last);
        self.machine.connect(connection, pid);
        self.memories.borrow_mut().entry(pid).or_insert_with(|| vec![0; HOST_BYTES as usize]);
        let hello = Request::Hello { version: VERSION, session };
        let Ok(Answer::Welcome { session, .. }) = self.ask(connection, hello) else { panic!("not welcome") };
        (connection, session)
    }

    pub(super) fn rm(
        &mut self,
        connection: ConnectionId,
        file: FileKey,
        request: u32,
        argument: Vec<u8>,
        parameters: Vec<u8>,
    ) -> (Vec<u8>, Vec<u8>) {
        let request = Request::Ioctl { request, argument, parameters };
        match self.ask_with(connection, request, Some(file)).0 {
            Ok(Answer::Ioctl { argument, parameters }) => (argument, parameters),
            other => panic!("{other:?}"),
        }
    }

    /// Allocates an RM object; its handle.
    pub(super) fn rm_alloc(
        &mut self,
        connection: ConnectionId,
        file: FileKey,
        [client, parent, class]: [u32; 3],
        parameters: &[u32],
    ) -> u32 {
        let parameters: Vec<u8> = parameters.iter().flat_map(|word| word.to_le_bytes()).collect();
        let words = [client, parent, 0, class, 8, 0, parameters.len() as u32, 0];
        let argument = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (argument, _) = self.rm(connection, file, 0xc020_462b, argument, parameters);
        assert_eq!(word(&argument, 28), 0, "class {class:#x} is refused");
        word(&argument, 8)
    }

    /// Sends an RM control; its status and the parameters.
    pub(super) fn control(
        &mut self,
        connection: ConnectionId,
        file: FileKey,
        [client, object, command]: [u32; 3],
        parameters: Vec<u8>,
    ) -> (u32, Vec<u8>) {
        let words = [client, object, command, 0, 8, 0, parameters.len() as u32, 0];
        let argument = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (argument, parameters) = self.rm(connection, file, 0xc020_462a, argument, parameters);
        (word(&argument, 28), parameters)
    }

    /// A process with a context on `device`.
    pub(super) fn program(&mut self, pid: i32, device: u32) -> Program {
        let (connection, session) = self.connect(pid, None);
        let (reply, file) = self.ask_with(connection, Request::OpenControl, None);
        assert_eq!(reply, Ok(Answer::File));
        let file = file.unwrap();
        self.context_on(connection, pid, session, file, device)
    }

    /// Another context of a process, on any GPU.
    pub(super) fn second(&mut self, program: &Program, device: u32) -> Program {
        self.context_on(program.connection, program.pid, program.session, program.file, device)
    }

    fn context_on(
        &mut self,
        connection: ConnectionId,
        pid: i32,
        session: SessionId,
        file: FileKey,
        device: u32,
    ) -> Program {
        let client = self.rm_alloc(connection, file, [0, 0, 0x41], &[]);
        let rm_device = self.rm_alloc(connection, file, [client, client, 0x80], &[device]);
        let subdevice = self.rm_alloc(connection, file, [client, rm_device, 0x2080], &[0]);
        let mut channels = Vec::new();
        let groups = [1, 9, 10].map(|engine| {
            let group = self.rm_alloc(connection, file, [client, rm_device, 0xa06c], &[0, 0, 0, engine]);
            for _ in 0..if engine == 1 { 8 } else { 2 } {
                channels.push(self.rm_alloc(connection, file, [client, group, 0xc86f], &[]));
            }
            assert_eq!(self.control(connection, file, [client, group, 0xa06c_0101], vec![1, 0, 0]).0, 0);
            group
        });
        let device = DeviceId(device);
        let create = ContextRequest::Create {
            device,
            client,
            compute_group: groups[0],
            copy_groups: vec![groups[1], groups[2]],
            flags: 0,
        };
        let Ok(Answer::Context(context)) = self.ask(connection, Request::Context(create)) else { panic!() };
        Program { connection, pid, session, file, client, subdevice, groups, channels, context, device }
    }

    /// DISABLE_CHANNELS on some of a program's channels, as whoever asks.
    pub(super) fn grip_as(
        &mut self,
        asks: ConnectionId,
        program: &Program,
        channels: &[u32],
        off: bool,
    ) -> u32 {
        let mut parameters = vec![0; 536];
        parameters[0] = u8::from(off);
        parameters[4..8].copy_from_slice(&(channels.len() as u32).to_le_bytes());
        for (place, channel) in channels.iter().enumerate() {
            parameters[24 + 4 * place..28 + 4 * place].copy_from_slice(&program.client.to_le_bytes());
            parameters[280 + 4 * place..284 + 4 * place].copy_from_slice(&channel.to_le_bytes());
        }
        self.control(asks, program.file, [program.client, program.subdevice, 0x2080_110b], parameters).0
    }

    pub(super) fn freeze(&mut self, program: &Program) {
        let other = self.connect(program.pid, Some(program.session)).0;
        assert_eq!(self.grip_as(other, program, &program.channels.clone(), true), 0);
    }

    pub(super) fn thaw(&mut self, program: &Program) {
        let other = self.connect(program.pid, Some(program.session)).0;
        assert_eq!(self.grip_as(other, program, &program.channels.clone(), false), 0);
    }

    pub(super) fn set_slice(&mut self, program: &Program, micros: u64) {
        let target = [program.client, program.groups[0], 0xa06c_0103];
        let other = self.connect(program.pid, Some(program.session)).0;
        assert_eq!(self.control(other, program.file, target, micros.to_le_bytes().into()).0, 0);
    }

    pub(super) fn memory(&mut self, program: &Program, request: MemoryRequest) -> Reply {
        self.ask(program.connection, Request::Memory(request))
    }

    pub(super) fn alloc(&mut self, program: &Program, bytes: u64) -> u64 {
        match self.memory(program, MemoryRequest::Alloc { context: program.context, bytes }) {
            Ok(Answer::Address(address)) => address.0,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn free(&mut self, program: &Program, address: u64) -> Reply {
        self.memory(program, MemoryRequest::Free { context: program.context, address: Address(address) })
    }

    pub(super) fn create(&mut self, program: &Program, bytes: u64) -> HandleId {
        let properties = properties(program.device);
        match self.memory(program, MemoryRequest::Create { bytes, properties }) {
            Ok(Answer::Handle(handle)) => handle,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn reserve(&mut self, program: &Program, bytes: u64) -> u64 {
        match self.memory(program, MemoryRequest::Reserve { bytes, alignment: 0, hint: 0 }) {
            Ok(Answer::Address(address)) => address.0,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn map(&mut self, program: &Program, address: u64, bytes: u64, handle: HandleId) {
        let address = Address(address);
        assert_eq!(
            self.memory(program, MemoryRequest::Map { address, bytes, offset: 0, handle }),
            Ok(Answer::Done)
        );
        let access = vec![(Location::Device(program.device), Access::ReadWrite)];
        let set = MemoryRequest::SetAccess { address, bytes, access };
        assert_eq!(self.memory(program, set), Ok(Answer::Done));
    }

    pub(super) fn stream(&mut self, program: &Program, flags: u32) -> StreamRef {
        let create = StreamRequest::Create { context: program.context, flags, priority: 0 };
        match self.ask(program.connection, Request::Stream(create)) {
            Ok(Answer::Stream(stream)) => StreamRef::Made(stream),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn work(&self, program: &Program, stream: StreamRef, work: Work) -> Request {
        Request::Work(WorkRequest { context: program.context, stream, work, blocking: false })
    }

    pub(super) fn submit(&mut self, program: &Program, stream: StreamRef, work: Work) -> Reply {
        let request = self.work(program, stream, work);
        self.ask(program.connection, request)
    }

    /// The functions of the project's own kernels, by name.
    pub(super) fn load(
        &mut self,
        program: &Program,
        text: &str,
    ) -> Result<BTreeMap<String, FunctionId>, Refusal> {
        self.poke(program.pid, HOST + 4 * MIB, text.as_bytes());
        let image = Image::Text { address: HOST + 4 * MIB, bytes: text.len() as u64 };
        let load = ModuleRequest::Load { context: program.context, image };
        match self.ask(program.connection, Request::Module(load)) {
            Ok(Answer::Module { entries, .. }) => {
                Ok(entries.into_iter().map(|entry| (entry.name, entry.function)).collect())
            }
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => Err(refusal),
        }
    }

    /// A launch of one of the project's kernels.
    pub(super) fn kernel(&mut self, program: &Program, name: &str, words: &[u64]) -> Work {
        let parameters: Vec<String> = (0..words.len()).map(|at| format!(".param .u64 p{at}")).collect();
        let text = format!(".version 7.0 .target sm_70 .entry {name}({}) {{ ret; }}", parameters.join(", "));
        let function = self.load(program, &text).unwrap()[name];
        let parameters = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Work::Launch(Launch {
            function,
            grid: [1; 3],
            block: [32, 1, 1],
            shared_bytes: 0,
            parameters,
            cooperative: false,
        })
    }

    pub(super) fn synchronize(&mut self, program: &Program) -> Reply {
        self.ask(program.connection, Request::Context(ContextRequest::Synchronize(program.context)))
    }

    /// Device memory as a blocking copy brings it.
    pub(super) fn bytes(&mut self, program: &Program, address: u64, bytes: u64) -> Vec<u8> {
        let work = Work::Copy(Copy::line(Place::Device(address), Place::Host(HOST + 6 * MIB), bytes));
        let stream = StreamRef::Legacy;
        let request = WorkRequest { context: program.context, stream, work, blocking: true };
        assert_eq!(self.ask(program.connection, Request::Work(request)), Ok(Answer::Done));
        self.peek(program.pid, HOST + 6 * MIB, bytes as usize)
    }

    pub(super) fn peek(&self, pid: i32, address: u64, bytes: usize) -> Vec<u8> {
        let start = (address - HOST) as usize;
        self.memories.borrow()[&pid][start..start + bytes].to_vec()
    }

    pub(super) fn peek_word(&self, pid: i32, address: u64) -> u64 {
        u64::from_le_bytes(self.peek(pid, address, 8).try_into().unwrap())
    }

    pub(super) fn poke(&mut self, pid: i32, address: u64, bytes: &[u8]) {
        let start = (address - HOST) as usize;
        self.memories.borrow_mut().get_mut(&pid).unwrap()[start..start + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn register(&mut self, program: &Program, address: u64, bytes: u64) -> Reply {
        let context = program.context;
        let request = host::HostRequest::Register { context, address, bytes, flags: 0, allocated: false };
        self.ask(program.connection, Request::Host(request))
    }

    /// A process dies, with all its connections.
    pub(super) fn kill(&mut self, program: &Program) {
        self.memories.borrow_mut().remove(&program.pid);
        self.machine.died(program.pid);
        self.machine.disconnect(program.connection);
        self.collect();
    }

    /// Every connection there ever was.
    pub(super) fn connections(&self) -> Vec<ConnectionId> {
        (1..=self.last).map(ConnectionId).collect()
    }

    pub(super) fn used(&self, device: u32) -> u64 {
        self.machine.store.physical.used(DeviceId(device)).0
    }

    /// What physical memory holds, past all checks.
    pub(super) fn raw(&self, program: &Program, address: u64, bytes: usize) -> Vec<u8> {
        let space = &self.machine.store.spaces[&program.session];
        let mut out = vec![0; bytes];
        match &space.around(address).unwrap().1.kind {
            crate::space::Kind::Allocation(allocation) => {
                let (start, _) = space.around(address).unwrap();
                self.machine.store.physical.block(allocation.block).read(address - start, &mut out);
            }
            _ => {
                let (start, mapping) = space.mapping(address).unwrap();
                self.machine
                    .store
                    .physical
                    .block(mapping.block)
                    .read(mapping.offset + address - start, &mut out);
            }
        }
        out
    }
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(super) fn properties(device: DeviceId) -> HandleProperties {
    HandleProperties { kind: 1, handle_types: 1, location: Location::Device(device), flags: [0; 8] }
}

pub(super) fn code(reply: Reply) -> CUresult {
    match reply {
        Ok(_) => CUresult::SUCCESS,
        Err(refusal) => refusal.code.into(),
    }
}

pub(super) fn memset(address: u64, value: u32, bytes: u64) -> Work {
    let address = Address(address);
    Work::Memset(Memset { address, value, element_bytes: 1, width: bytes, height: 1, pitch: 0 })
}

pub(super) fn to_device(from: u64, to: u64, bytes: u64) -> Work {
    Work::Copy(Copy::line(Place::Host(from), Place::Device(to), bytes))
}

pub(super) fn to_host(from: u64, to: u64, bytes: u64) -> Work {
    Work::Copy(Copy::line(Place::Device(from), Place::Host(to), bytes))
}
