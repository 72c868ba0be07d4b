//! The bytes of every message, fixed. A keeper outlives its workers, so a newer worker may meet an older keeper: whoever
//! breaks one of these tests raises `VERSION` in the same change.

use proptest::prelude::*;
use rota_keeper::message::{SegmentView, VERSION};
use rota_keeper::*;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(messages: &[(&str, T)]) {
    for (golden, message) in messages {
        let golden = golden.replace(' ', "");
        let bytes = postcard::to_stdvec(message).expect("it can be written");
        assert_eq!(hex(&bytes), golden, "{message:?} is sent in other bytes");
        let read: T = postcard::from_bytes(&bytes).expect("it can be read");
        assert_eq!(&read, message);
    }
}

const TENANT: TenantNumber = TenantNumber(300);
const PROCESS: Process = Process { pid: 7, start_ticks: 1000 };

fn key(handle: u64) -> HandleKey {
    HandleKey { tenant: TENANT, handle }
}

fn fact() -> BlockFact {
    BlockFact { hash: *b"0123456789abcdef", zero: true }
}

fn seed() -> HashSeed {
    HashSeed::new(b"0123456789abcdef").expect("16 bytes will do")
}

fn requests() -> Vec<(&'static str, Request)> {
    let wanted = Wanted { key: key(5), bytes: 2 << 20 };
    vec![
        ("00 03", Request::Hello { version: 3 }),
        ("01 ac02 07 e807", Request::Introduce { tenant: TENANT, process: PROCESS }),
        ("02 0101 01 ac02 05 80808001", Request::Reserve { near: Some(Node(1)), wanted: vec![wanted] }),
        ("02 00 00", Request::Reserve { near: None, wanted: Vec::new() }),
        ("03 02 ac02 05 ac02 06", Request::Cancel { keys: vec![key(5), key(6)] }),
        (
            "04 01 ac02 05 01 30313233343536373839616263646566 01",
            Request::RecordOut { handles: vec![Out { key: key(5), facts: vec![fact()] }] },
        ),
        ("05 01 ac02 05 01", Request::RecordIn { handles: vec![In { key: key(5), keep_clean: true }] }),
        ("06 01 ac02 05", Request::Free { keys: vec![key(5)] }),
        ("07 80808001 00", Request::DropClean { bytes: 2 << 20, keep: None }),
        ("07 80808001 01 ac02 05", Request::DropClean { bytes: 2 << 20, keep: Some(key(5)) }),
        ("08 ac02", Request::Died { tenant: TENANT }),
        ("09", Request::Reclaim),
        ("0a", Request::Progress),
        ("0b 40", Request::Segments { known: 64 }),
        ("0c 00", Request::Tenants { after: None }),
        ("0c 01 ac02", Request::Tenants { after: Some(TENANT) }),
        ("0d ac02 01 05", Request::Recorded { tenant: TENANT, after: Some(5) }),
        ("0e 00", Request::Leave { end: End::Stay }),
        ("0e 01", Request::Leave { end: End::IfNothingAway }),
        ("0e 02", Request::Leave { end: End::Forced }),
        ("0f 10 30313233343536373839616263646566", Request::KeepSeed { seed: seed() }),
        ("10", Request::KeepCellar),
        ("11", Request::Cellar),
        (
            "12 ac02 05 03 02 01 07 02 08 09",
            Request::KeepTickets { key: key(5), first: 3, tickets: vec![vec![7], vec![8, 9]] },
        ),
        ("13 01 ac02 05", Request::Sink { keys: vec![key(5)] }),
        ("14 01 ac02 05", Request::Rise { keys: vec![key(5)] }),
        ("15 ac02 05 03", Request::Tickets { key: key(5), first: 3 }),
    ]
}

fn answers() -> Vec<(&'static str, Answer)> {
    let extents = vec![Extent { offset: 64 << 20, bytes: 2 << 20 }];
    let lack = Lack { missing_bytes: 4, free_bytes: 1, clean_bytes: 2, orphaned_bytes: 3 };
    let recorded =
        |place| Recorded { handle: 5, bytes: 2 << 20, place, extents: extents.clone(), facts: vec![fact()] };
    let progress = Progress {
        wanted_bytes: 1,
        ready_bytes: 2,
        free_bytes: 3,
        reserved_bytes: 4,
        away_bytes: 5,
        clean_bytes: 6,
        orphaned_bytes: 7,
        zero_bytes: 11,
        cellar_bytes: 10,
        segments: 8,
        growing: true,
        stopped: Some("full".into()),
    };
    let welcome = Welcome {
        version: 4,
        keeper: PROCESS,
        segments: 9,
        segment_bytes: 64 << 20,
        highest_tenant: Some(TENANT),
        seed: Some(seed()),
    };
    let view = SegmentView { offset: 64 << 20, bytes: 2 << 20, node: Some(Node(1)) };
    let outcomes = vec![
        Outcome::Done,
        Outcome::AlreadySo,
        Outcome::UnknownTenant,
        Outcome::OtherProcess,
        Outcome::TooManyTenants,
        Outcome::NotReserved,
        Outcome::NotAway,
        Outcome::IsAway,
        Outcome::WrongSize,
        Outcome::WrongFacts,
        Outcome::OtherSeed,
        Outcome::NotInCellar,
        Outcome::BadCellar,
        Outcome::BadTickets,
    ];
    vec![
        (
            "00 04 07 e807 09 80808020 01 ac02 01 10 30313233343536373839616263646566",
            Answer::Welcome(welcome),
        ),
        ("01 00 01", Answer::Refused(Refusal::Version { keeper: 1 })),
        ("01 01 07", Answer::Refused(Refusal::Busy { pid: 7 })),
        ("01 02", Answer::Refused(Refusal::Stranger)),
        ("01 03", Answer::Refused(Refusal::OutOfOrder)),
        ("02 01", Answer::Outcome(Outcome::AlreadySo)),
        ("03 0e 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d", Answer::Outcomes(outcomes)),
        (
            "04 03 00 01 80808020 80808001 01 01 04 01 02 03 02 07",
            Answer::Reserved(vec![
                Reservation::Space { extents: extents.clone(), reused: true },
                Reservation::NoSpace(lack),
                Reservation::Refused(Outcome::IsAway),
            ]),
        ),
        ("05 80808001", Answer::Freed { bytes: 2 << 20 }),
        ("06 01 02 03 04 05 06 07 0b 0a 08 01 01 04 66756c6c", Answer::Progress(progress)),
        ("07 01 80808020 80808001 01 01", Answer::Segments(vec![view])),
        ("08 01 ac02 07 e807", Answer::Tenants(vec![(TENANT, PROCESS)])),
        (
            "09 03 05 80808001 00 01 80808020 80808001 01 30313233343536373839616263646566 01 \
             05 80808001 01 01 80808020 80808001 01 30313233343536373839616263646566 01 \
             05 80808001 02 01 80808020 80808001 01 30313233343536373839616263646566 01",
            Answer::Recorded(vec![recorded(Place::Away), recorded(Place::Clean), recorded(Place::Cellar)]),
        ),
        ("0a 01 05", Answer::Left { ends: true, away_bytes: 5 }),
        ("0b 01", Answer::Cellar { kept: true }),
        ("0c 02 01 07 02 08 09", Answer::Tickets(vec![vec![7], vec![8, 9]])),
    ]
}

#[test]
fn the_bytes_are_fixed() {
    assert_eq!(VERSION, 4);
    check(&requests());
    check(&answers());
}

#[test]
fn every_kind_of_message_is_among_them() {
    let kinds = |goldens: Vec<&str>| {
        let mut kinds: Vec<String> = goldens.iter().map(|golden| golden[..2].to_owned()).collect();
        kinds.dedup();
        kinds.len()
    };
    // One number beyond the last kind is no message.
    let requests = kinds(requests().iter().map(|(golden, _)| *golden).collect());
    let answers = kinds(answers().iter().map(|(golden, _)| *golden).collect());
    assert!(postcard::from_bytes::<Request>(&[requests as u8, 0, 0, 0, 0, 0, 0, 0]).is_err());
    assert!(postcard::from_bytes::<Answer>(&[answers as u8, 0, 0, 0, 0, 0, 0, 0]).is_err());
    assert_eq!((requests, answers), (22, 13));
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = postcard::from_bytes::<Request>(&bytes);
        let _ = postcard::from_bytes::<Answer>(&bytes);
    }
}
