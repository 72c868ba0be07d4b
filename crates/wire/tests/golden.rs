//! The bytes on the wire, fixed. Whoever breaks one of these tests changes what a running
//! daemon and an older shim say to each other, and raises `VERSION` in the same change.

use proptest::prelude::*;
use rota_wire::quantity::Memory;
use rota_wire::{
    Answer, Change, ChannelGroup, Class, Command, Connection, Description, FILES_MAX, FileId, FromDaemon,
    Gpu, GpuChoice, GpuView, GrantId, HANDLES_MAX, HandleId, HintSource, Hints, Home, JobMemory, JobRequest,
    JobView, LcMode, Listing, MESSAGE_BYTES_MAX, MemoryOnGpu, NotBack, NotDeep, Occupant, Opened, Priority,
    ProcessOnGpu, Question, RequestTimes, SCHEMA_VERSION, SelfTest, Setting, SharedGpu, SharedPage,
    SizedHandle, Statistics, Status, Tenant, TenantId, TenantState, TenantView, Terms, Times, ToDaemon,
    Token, Unmanaged, VERSION, WireError,
};
use rustix::net::{RecvFlags, SendFlags};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::os::fd::AsFd;

/// The bytes that `message` becomes on a socket.
fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let (here, there) = Connection::pair().unwrap();
    here.send(message, &[]).unwrap();
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let (length, _) = rustix::net::recv(there.as_fd(), &mut bytes[..], RecvFlags::empty()).unwrap();
    bytes.truncate(length);
    bytes
}

/// The message that `bytes` from a socket become.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    let (here, there) = Connection::pair().unwrap();
    rustix::net::send(here.as_fd(), bytes, SendFlags::empty()).unwrap();
    there.receive::<T>().map(|(message, _)| message)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(golden: &str, message: &T) {
    let golden = unhex(golden);
    assert_eq!(hex(&encode(message)), hex(&golden), "{message:?} is sent in other bytes");
    assert_eq!(&decode::<T>(&golden).unwrap(), message, "{} is read as something else", hex(&golden));
}

/// Every message to the daemon, with its bytes. Spaces part the fields.
fn to_daemon() -> Vec<(&'static str, ToDaemon)> {
    let group = ChannelGroup {
        file: FileId(3),
        client: 0xc1d0_0001,
        subdevice: 0x5c00_0002,
        group: 0x5c00_0003,
        engine: 1,
        channels: vec![0x5c00_0004, 5],
    };
    vec![
        (
            "00 01 03616263 06707974686f6e 01 054750552d61",
            ToDaemon::Hello {
                version: 1,
                job: "abc".into(),
                program: "python".into(),
                gpus: vec!["GPU-a".into()],
            },
        ),
        (
            "01 ac02 0103 01 03 8180c08e0c 828080e005 838080e005 01 02 848080e005 05",
            ToDaemon::Channels { generation: 300, new_files: vec![FileId(3)], groups: vec![group] },
        ),
        ("02 07 80808001", ToDaemon::Grow { grant: GrantId(7), bytes: 2 << 20 }),
        (
            "03 07 2a 80808010 01",
            ToDaemon::Allocated {
                grant: GrantId(7),
                handle: SizedHandle { handle: HandleId(42), bytes: 32 << 20 },
                passable: true,
            },
        ),
        ("04 07", ToDaemon::Returned { grant: GrantId(7) }),
        ("05 02 01 8001", ToDaemon::Freed { handles: vec![HandleId(1), HandleId(128)] }),
        ("06 01 ffffffffffffffffff01", ToDaemon::Unmapped { handles: vec![HandleId(u64::MAX)] }),
        ("07 00", ToDaemon::Created { handles: vec![] }),
        (
            "08 01 09 02 0b63754d656d437265617465",
            ToDaemon::Failed { handles: vec![HandleId(9)], code: 2, call: "cuMemCreate".into() },
        ),
        ("09 01", ToDaemon::List { version: 1 }),
        (
            "0a 03 00 0161 0103 0101 0103 0100 8080808020 01 c0843d 010a 0101 0101 0107 0101 00 00 00 00 00 00 00 00 00 \
             00 01 02 01 05",
            command(Command::Open(JobRequest {
                name: "a".into(),
                asked: Change {
                    weight: Some(3),
                    class: Some(Class::BestEffort),
                    priority: Some(Priority::Low),
                    memory: Some(Memory::Bytes(8 << 30)),
                    cores_millionths: Some(1_000_000),
                    slo_ns: Some(10),
                    wait: Some(true),
                    gang: Some(true),
                    oversize_bytes: Some(7),
                    reserve: Some(true),
                },
                usual: Change::default(),
                gpus: GpuChoice::Count(2),
                timeout_ns: Some(5),
            })),
        ),
        (
            "0a 03 01 0161 00 0100 00 0101 05 00 00 00 00 00 00",
            command(Command::Set {
                job: "a".into(),
                change: Change {
                    class: Some(Class::LatencyCritical),
                    memory: Some(Memory::Millionths(5)),
                    ..Change::default()
                },
            }),
        ),
        ("0a 03 02 0161", command(Command::Pause { job: "a".into() })),
        ("0a 03 03 0161", command(Command::Resume { job: "a".into() })),
        ("0a 03 04 0161", command(Command::Describe { what: "a".into() })),
        ("0a 03 05", command(Command::Status)),
        ("0a 03 06", command(Command::Settings)),
        ("0a 03 07 0161", command(Command::Memory { job: "a".into() })),
        ("0a 03 08 0161", command(Command::PauseDeep { job: "a".into() })),
        ("0a 03 09 0161", command(Command::AwaitDeep { job: "a".into() })),
        ("0b ac02", ToDaemon::Wants { since_ns: 300 }),
        ("0c 07 02 01 02", ToDaemon::Pin { request: GrantId(7), handles: vec![HandleId(1), HandleId(2)] }),
        ("0d 01 01", ToDaemon::Unpin { handles: vec![HandleId(1)] }),
        (
            "0e 07 2a 8080808004",
            ToDaemon::Kept {
                grant: GrantId(7),
                handle: SizedHandle { handle: HandleId(42), bytes: 1 << 30 },
            },
        ),
        (
            "0f 07 ac02 01 2a 80808001 01",
            ToDaemon::Publish {
                request: GrantId(7),
                token: Token(300),
                handles: vec![SizedHandle { handle: HandleId(42), bytes: 2 << 20 }],
                complete: true,
            },
        ),
        (
            "10 07 ffffffffffffffffffffffffffffffffffff03",
            ToDaemon::Open { request: GrantId(7), token: Token(u128::MAX) },
        ),
        ("11 05", ToDaemon::Closed { token: Token(5) }),
        ("12 03", ToDaemon::Drained { generation: 3 }),
        (
            "13 03 03616263 01 054750552d61",
            ToDaemon::Survey { version: 3, job: "abc".into(), gpus: vec!["GPU-a".into()] },
        ),
        ("14 07 80808001", ToDaemon::Keep { grant: GrantId(7), bytes: 2 << 20 }),
        (
            "15 03 05 ac02 03616263 06707974686f6e 054750552d61 00 01 01 01 02 01",
            ToDaemon::Rejoin {
                version: 3,
                tenant: TenantId(5),
                epoch: 300,
                job: "abc".into(),
                program: "python".into(),
                gpu: "GPU-a".into(),
                resident: false,
                frozen: true,
                channels: true,
                holds_launches: true,
                sessions: 2,
                vacated: true,
            },
        ),
        (
            "16 01 07 80808001 01 08 80808002 01 09 80808001 02 07 08 01",
            ToDaemon::Has {
                here: vec![SizedHandle { handle: HandleId(7), bytes: 2 << 20 }],
                away: vec![SizedHandle { handle: HandleId(8), bytes: 4 << 20 }],
                unshown: vec![SizedHandle { handle: HandleId(9), bytes: 2 << 20 }],
                passable: vec![HandleId(7), HandleId(8)],
                complete: true,
            },
        ),
        ("17 07 80808001", ToDaemon::GrowHost { grant: GrantId(7), bytes: 2 << 20 }),
        (
            "18 07 2a 80808010",
            ToDaemon::Hosted {
                grant: GrantId(7),
                handle: SizedHandle { handle: HandleId(42), bytes: 32 << 20 },
            },
        ),
        (
            "19 01 2a 80808010",
            ToDaemon::HostedBefore { handles: vec![SizedHandle { handle: HandleId(42), bytes: 32 << 20 }] },
        ),
        ("1a 2a 00", ToDaemon::Shown { handle: HandleId(42), passable: false }),
        ("1b 8001 00", ToDaemon::Hint { at_ns: 128, source: HintSource::Sdk }),
        ("1b 07 01", ToDaemon::Hint { at_ns: 7, source: HintSource::Shim }),
        ("1c", ToDaemon::Served),
        ("1d", ToDaemon::Phase),
        (
            "1e 07 0100 0102",
            ToDaemon::Set { request: GrantId(7), class: Some(Class::LatencyCritical), weight: Some(2) },
        ),
        ("1f 03", ToDaemon::Vacated { number: 3 }),
        ("20 01 2a", ToDaemon::Taken { handles: vec![HandleId(42)] }),
        (
            "21 2a 80808010",
            ToDaemon::HostShown { handle: SizedHandle { handle: HandleId(42), bytes: 32 << 20 } },
        ),
        ("22 02 2a 07 2b ac02", ToDaemon::Prepared { questions: vec![question(42, 7), question(43, 300)] }),
        ("23 01 2a 07", ToDaemon::Exchanged { questions: vec![question(42, 7)] }),
        (
            "24 01 2a 07 02 0663754d656d43",
            ToDaemon::Stayed { questions: vec![question(42, 7)], code: 2, call: "cuMemC".into() },
        ),
        ("25 03 00", ToDaemon::Occupied { number: 3, by: Occupant::Work }),
        ("25 03 01", ToDaemon::Occupied { number: 3, by: Occupant::Foreign }),
    ]
}

fn question(handle: u64, number: u64) -> Question {
    Question { handle: HandleId(handle), number }
}

fn command(command: Command) -> ToDaemon {
    ToDaemon::Command { version: 3, command }
}

/// Every answer to a command, with its bytes.
fn answers(gpu: &Gpu) -> Vec<(&'static str, FromDaemon)> {
    let terms = Terms {
        weight: 1,
        class: Class::BestEffort,
        priority: Priority::Idle,
        memory_max_bytes: Some(5),
        cores_max_millionths: None,
        slo_ns: None,
        wait: false,
        gang: false,
        oversize_bytes: 6,
        reserve: true,
    };
    let tenant = TenantView {
        tenant: TenantId(1),
        pid: 2,
        program: "b".into(),
        gpu: "g".into(),
        state: TenantState::Away,
        reason: "r".into(),
        resident_bytes: 3,
        away_bytes: 4,
        context_bytes: 5,
        turns: 6,
        ran_ns: 7,
        waiting_ns: 8,
        forecast_ns: Some(9),
        pinned_bytes: 10,
        place: None,
        places: Some(3),
        host_bytes: 11,
        hints: Some(Hints {
            sdk: 1,
            shim: 2,
            forecast: 3,
            good: 4,
            early: 5,
            late: 6,
            false_: 7,
            missed: 8,
            dropped: 9,
            warm_ups: 10,
            warm_ups_failed: 11,
            warm_ups_awaited: 13,
            rhythm_ns: Some(12),
        }),
        statistics: Some(Statistics {
            requests: Some(RequestTimes {
                by_program: true,
                times: Times { count: 1, p50_ns: 2, p99_ns: 3, p999_ns: 4, max_ns: 5 },
                slo_missed: 6,
            }),
            granted: Some(Times { count: 7, p50_ns: 8, p99_ns: 9, p999_ns: 10, max_ns: 11 }),
            freezes: 12,
            frozen_ns: 13,
            switching_ns: 14,
            moving_ns: 15,
            phase: Some("p".into()),
        }),
        rehomed_bytes: 12,
    };
    let job = JobView {
        job: "a".into(),
        uid: 1,
        terms: terms.clone(),
        paused: true,
        placed: Some("w".into()),
        root_pid: Some(2),
        age_ns: 3,
        used_bytes: 4,
        ran_ns: 5,
        tenants: vec![tenant],
    };
    let view = GpuView {
        index: 0,
        uuid: "g".into(),
        name: "n".into(),
        capacity_bytes: 1,
        used_bytes: 2,
        reserve_bytes: 3,
        unmanaged_bytes: 4,
        arena_bytes: 5,
        arena_used_bytes: 6,
        arena_clean_bytes: 10,
        vgpu: None,
        turn_of_pid: Some(7),
        favour: "f".into(),
        be_guarantee_millionths: 8,
        stays_bytes: 9,
        lc_mode: LcMode {
            on_for_ns: Some(11),
            begun: 12,
            lasted_ns: 13,
            held_back_ns: 14,
            freezes: 15,
            switching_ns: 16,
        },
    };
    let status = Status {
        schema_version: 1,
        version: "v".into(),
        pid: 1,
        uid: 2,
        uptime_ns: 3,
        config: None,
        policy: "p".into(),
        turn_min_ns: 4,
        turn_max_ns: 5,
        idle_exit_ns: None,
        self_test: Some(SelfTest { rounds: 6, freeze_max_ns: 7, thaw_max_ns: 8 }),
        gpus: vec![],
        jobs: 9,
        tenants: 10,
        running: 11,
        waiting: 12,
        worker_pid: 13,
        worker_restarts: 14,
        keeper_pid: Some(15),
    };
    let setting = Setting { key: "k".into(), value: "v".into(), origin: "o".into() };
    let answer = |answer| FromDaemon::Answer(Box::new(answer));
    vec![
        (
            "08 00 01 054750552d31 0448323030 8080808040 01 02 03 06 01022f76 0107 04 01 01 04 0105 00 00 00 00 06 01",
            answer(Answer::Opened(Opened { gpus: vec![gpu.clone()], others: 4, terms })),
        ),
        (
            "08010101000167016e0102030405060a00010701660809010b0c0d0e0f100101610101010401050000000006010101017701020304050101\
             020162016704017203040506070801090a0001030b010102030405060708090a0b0d010c01010101020304050601070809\
             0a0b0c0d0e0f0101700c",
            answer(Answer::Described(Description { schema_version: 1, gpu: Some(view), jobs: vec![job] })),
        ),
        (
            "08 02 01 0176 01 02 03 00 0170 04 05 00 01060708 00 09 0a 0b 0c 0d 0e 010f",
            answer(Answer::Status(status)),
        ),
        ("08 03 01 016b 0176 016f", answer(Answer::Settings(vec![setting]))),
        ("08 04 026e6f 010168", answer(Answer::Refused { reason: "no".into(), hint: Some("h".into()) })),
        (
            "08 05 01 0167 09 08 01 07 0167 06",
            answer(Answer::Memory(JobMemory {
                gpus: vec![MemoryOnGpu { gpu: "g".into(), limit_bytes: 9, used_bytes: 8 }],
                processes: vec![ProcessOnGpu { pid: 7, gpu: "g".into(), bytes: 6 }],
            })),
        ),
    ]
}

/// Every message from the daemon, with its bytes.
fn from_daemon() -> Vec<(&'static str, FromDaemon)> {
    let gpu = Gpu {
        uuid: "GPU-1".into(),
        name: "H200".into(),
        capacity_bytes: 16 << 30,
        used_bytes: 1,
        arena_bytes: 2,
        arena_used_bytes: 3,
        arena_clean_bytes: 6,
        vgpu: Some("/v".into()),
        lc_mode_for_ns: Some(7),
    };
    let tenant = |state| Tenant {
        tenant: TenantId(1),
        pid: 4242,
        gpu: "GPU-a".into(),
        job: "a".into(),
        program: "b".into(),
        state,
        resident_bytes: 4,
        away_bytes: 5,
        turns: 6,
        waiting_ns: 7,
        place: Some(1),
        places: Some(2),
        forecast_ns: None,
        host_bytes: 8,
        hints: None,
        statistics: None,
        reserved: true,
        not_back: match state {
            TenantState::Paused => Some(NotBack::NoRoom),
            TenantState::Queued => Some(NotBack::Failed),
            _ => None,
        },
        not_deep: (state == TenantState::Moving).then_some(NotDeep::Work),
    };
    let states = [
        TenantState::Joined,
        TenantState::Running,
        TenantState::Frozen,
        TenantState::Moving,
        TenantState::Away,
        TenantState::Paused,
        TenantState::Queued,
    ];
    let tenants = states.into_iter().map(tenant).collect();
    let unmanaged =
        vec![Unmanaged { pid: 8, gpu: "g".into(), bytes: 9, program: "p".into(), job: Some("a".into()) }];
    let listing = Listing { schema_version: 1, gpus: vec![gpu.clone()], tenants, unmanaged };
    let mut all = vec![
        (
            "00 02 054750552d31 8080808040",
            FromDaemon::Welcome { tenant: TenantId(2), gpu: "GPU-1".into(), capacity_bytes: 16 << 30 },
        ),
        ("01 026e6f", FromDaemon::Refused { reason: "no".into() }),
        ("02 07", FromDaemon::Granted { grant: GrantId(7) }),
        ("03 07 0466756c6c", FromDaemon::Denied { grant: GrantId(7), reason: "full".into() }),
        ("04 02 01 02", FromDaemon::Unmap { handles: vec![HandleId(1), HandleId(2)] }),
        ("05 02 01 02", FromDaemon::Create { handles: vec![HandleId(1), HandleId(2)] }),
        (
            "06 01 01 054750552d31 0448323030 8080808040 01 02 03 06 01022f76 0107 07 \
             01 9221 054750552d61 0161 0162 00 04 05 06 07 0101 0102 00 08 00 00 01 00 00  01 9221 054750552d61 0161 0162 01 04 05 06 07 0101 0102 00 08 00 00 01 00 00 \
             01 9221 054750552d61 0161 0162 02 04 05 06 07 0101 0102 00 08 00 00 01 00 00  01 9221 054750552d61 0161 0162 03 04 05 06 07 0101 0102 00 08 00 00 01 00 01 01 \
             01 9221 054750552d61 0161 0162 04 04 05 06 07 0101 0102 00 08 00 00 01 00 00  01 9221 054750552d61 0161 0162 05 04 05 06 07 0101 0102 00 08 00 00 01 01 00 00 \
             01 9221 054750552d61 0161 0162 06 04 05 06 07 0101 0102 00 08 00 00 01 01 01 00  01 08 0167 09 0170 010161",
            FromDaemon::Listing(listing),
        ),
        ("07 0466756c6c", FromDaemon::Waiting { reason: "full".into() }),
        ("0c 03", FromDaemon::Drain { generation: 3 }),
        ("0d 046c617465", FromDaemon::GaveUp { reason: "late".into() }),
        ("11", FromDaemon::WarmUp),
        ("12 07", FromDaemon::Changed { request: GrantId(7) }),
        ("13 03", FromDaemon::Vacate { number: 3 }),
        ("14", FromDaemon::Reenter),
        ("15 02 2a 07", FromDaemon::Take { handles: vec![HandleId(42), HandleId(7)] }),
        ("16 01 2a 07 00", FromDaemon::Prepare { questions: vec![question(42, 7)], home: Home::Device }),
        ("16 01 2a 07 01", FromDaemon::Prepare { questions: vec![question(42, 7)], home: Home::Host }),
        ("17 01 2a 07", FromDaemon::Exchange { questions: vec![question(42, 7)] }),
        ("18 02 2a 07 2b ac02", FromDaemon::Discard { questions: vec![question(42, 7), question(43, 300)] }),
        ("10 07 80808001", FromDaemon::GrantedHost { grant: GrantId(7), host_bytes: 2 << 20 }),
        ("0f 04676f6e65", FromDaemon::Lost { reason: "gone".into() }),
        (
            "0e 01 054750552d61 80808001",
            FromDaemon::Shared { gpus: vec![SharedGpu { uuid: "GPU-a".into(), capacity_bytes: 2 << 20 }] },
        ),
    ];
    all.extend(answers(&gpu));
    all.extend([
        ("09 07", FromDaemon::Pinned { request: GrantId(7) }),
        ("0a 07", FromDaemon::Published { request: GrantId(7) }),
        (
            "0b 07 01 80808001 00",
            FromDaemon::Opened { request: GrantId(7), sizes: vec![2 << 20], complete: false },
        ),
    ]);
    all
}

/// A number for each kind of message, without a wildcard: a new kind does not compile until it is named here, and
/// the tests below fail until it has its golden bytes.
fn kind_to_daemon(message: &ToDaemon) -> usize {
    match message {
        ToDaemon::Hello { .. } => 0,
        ToDaemon::Channels { .. } => 1,
        ToDaemon::Grow { .. } => 2,
        ToDaemon::Allocated { .. } => 3,
        ToDaemon::Returned { .. } => 4,
        ToDaemon::Freed { .. } => 5,
        ToDaemon::Unmapped { .. } => 6,
        ToDaemon::Created { .. } => 7,
        ToDaemon::Failed { .. } => 8,
        ToDaemon::List { .. } => 9,
        ToDaemon::Command { .. } => 10,
        ToDaemon::Wants { .. } => 11,
        ToDaemon::Pin { .. } => 12,
        ToDaemon::Unpin { .. } => 13,
        ToDaemon::Kept { .. } => 14,
        ToDaemon::Publish { .. } => 15,
        ToDaemon::Open { .. } => 16,
        ToDaemon::Closed { .. } => 17,
        ToDaemon::Drained { .. } => 18,
        ToDaemon::Survey { .. } => 19,
        ToDaemon::Rejoin { .. } => 21,
        ToDaemon::Has { .. } => 22,
        ToDaemon::GrowHost { .. } => 23,
        ToDaemon::Hosted { .. } => 24,
        ToDaemon::HostedBefore { .. } => 25,
        ToDaemon::Shown { .. } => 26,
        ToDaemon::Keep { .. } => 20,
        ToDaemon::Hint { .. } => 27,
        ToDaemon::Served => 28,
        ToDaemon::Phase => 29,
        ToDaemon::Set { .. } => 30,
        ToDaemon::Vacated { .. } => 31,
        ToDaemon::Taken { .. } => 32,
        ToDaemon::HostShown { .. } => 33,
        ToDaemon::Prepared { .. } => 34,
        ToDaemon::Exchanged { .. } => 35,
        ToDaemon::Stayed { .. } => 36,
        ToDaemon::Occupied { .. } => 37,
    }
}

fn kind_from_daemon(message: &FromDaemon) -> usize {
    match message {
        FromDaemon::Welcome { .. } => 0,
        FromDaemon::Refused { .. } => 1,
        FromDaemon::Granted { .. } => 2,
        FromDaemon::Denied { .. } => 3,
        FromDaemon::Unmap { .. } => 4,
        FromDaemon::Create { .. } => 5,
        FromDaemon::Listing(_) => 6,
        FromDaemon::Waiting { .. } => 7,
        FromDaemon::Answer(_) => 8,
        FromDaemon::Pinned { .. } => 9,
        FromDaemon::Published { .. } => 10,
        FromDaemon::Opened { .. } => 11,
        FromDaemon::Drain { .. } => 12,
        FromDaemon::GaveUp { .. } => 13,
        FromDaemon::Lost { .. } => 15,
        FromDaemon::GrantedHost { .. } => 16,
        FromDaemon::Shared { .. } => 14,
        FromDaemon::WarmUp => 17,
        FromDaemon::Changed { .. } => 18,
        FromDaemon::Vacate { .. } => 19,
        FromDaemon::Reenter => 20,
        FromDaemon::Take { .. } => 21,
        FromDaemon::Prepare { .. } => 22,
        FromDaemon::Exchange { .. } => 23,
        FromDaemon::Discard { .. } => 24,
    }
}

#[test]
fn reasons_why_a_pause_is_not_deep_keep_their_numbers() {
    let all = [
        (0, NotDeep::Yet),
        (1, NotDeep::Work),
        (2, NotDeep::Calls),
        (3, NotDeep::Shared),
        (4, NotDeep::Reserved),
        (5, NotDeep::Stopped),
        (6, NotDeep::Driver),
        (7, NotDeep::Other),
        (8, NotDeep::Unknown),
    ];
    for (number, why) in all {
        assert_eq!(encode(&why), [number]);
        assert_eq!(decode::<NotDeep>(&[number]).unwrap(), why);
    }
    assert!(decode::<NotDeep>(&[9]).is_err());
}

#[test]
fn the_versions_belong_to_these_bytes() {
    assert_eq!((VERSION, SCHEMA_VERSION), (11, 1), "write new golden bytes, then the new version here");
}

#[test]
fn messages_to_the_daemon_keep_their_bytes() {
    for (golden, message) in to_daemon() {
        check(golden, &message);
    }
    let kinds: BTreeSet<usize> = to_daemon().iter().map(|(_, message)| kind_to_daemon(message)).collect();
    assert!(kinds.into_iter().eq(0..=37), "a kind of message has no golden bytes");
}

#[test]
fn messages_from_the_daemon_keep_their_bytes() {
    for (golden, message) in from_daemon() {
        check(golden, &message);
    }
    let kinds: BTreeSet<usize> = from_daemon().iter().map(|(_, message)| kind_from_daemon(message)).collect();
    assert!(kinds.into_iter().eq(0..=24), "a kind of message has no golden bytes");
}

#[test]
fn as_many_handles_as_allowed_fit_into_a_message_with_their_files() {
    let handles = vec![HandleId(u64::MAX); HANDLES_MAX];
    let here = SharedPage::create(1).unwrap();
    let (a, b) = Connection::pair().unwrap();
    a.send(&ToDaemon::Created { handles: handles.clone() }, &vec![here.file(); HANDLES_MAX]).unwrap();
    let (message, files) = b.receive::<ToDaemon>().unwrap();
    assert_eq!(message, ToDaemon::Created { handles: handles.clone() });
    assert_eq!(files.len(), HANDLES_MAX);
    const { assert!(HANDLES_MAX <= FILES_MAX) };

    let failed = ToDaemon::Failed { handles: handles.clone(), code: u32::MAX, call: "x".repeat(256) };
    for message in [
        ToDaemon::Freed { handles: handles.clone() },
        ToDaemon::Unmapped { handles: handles.clone() },
        failed,
    ] {
        assert_eq!(decode::<ToDaemon>(&encode(&message)).unwrap(), message);
    }
    for message in [FromDaemon::Unmap { handles: handles.clone() }, FromDaemon::Create { handles }] {
        assert_eq!(decode::<FromDaemon>(&encode(&message)).unwrap(), message);
    }
}

/// Bytes that look like a message for a while: a golden one, cut, changed and followed by anything.
fn nearly_a_message() -> impl Strategy<Value = Vec<u8>> {
    let golden: Vec<Vec<u8>> = to_daemon()
        .into_iter()
        .map(|(bytes, _)| bytes)
        .chain(from_daemon().into_iter().map(|(bytes, _)| bytes))
        .map(unhex)
        .collect();
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (
        prop::sample::select(golden),
        edits,
        any::<prop::sample::Index>(),
        prop::collection::vec(any::<u8>(), 0..16),
    )
        .prop_map(|(mut bytes, edits, cut, rest)| {
            for (place, byte) in edits {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            bytes.truncate(1 + cut.index(bytes.len()));
            bytes.extend(rest);
            bytes
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 1..256)) {
        let _ = decode::<ToDaemon>(&bytes);
        let _ = decode::<FromDaemon>(&bytes);
    }

    #[test]
    fn what_is_read_from_strange_bytes_is_a_message_that_can_be_sent(bytes in nearly_a_message()) {
        if let Ok(message) = decode::<ToDaemon>(&bytes) {
            prop_assert_eq!(&decode::<ToDaemon>(&encode(&message)).unwrap(), &message);
        }
        if let Ok(message) = decode::<FromDaemon>(&bytes) {
            prop_assert_eq!(&decode::<FromDaemon>(&encode(&message)).unwrap(), &message);
        }
    }
}
