//! Random histories of requests on a real socket, beside a model that is too simple to be wrong. The connection is lost at
//! every point: before a request is sent, while it is on its way, and when the keeper has acted and nobody reads the answer.
//!
//! After each step: no extent is owned twice, nothing that is away is lost or changed, and free space and what is taken are
//! all the space there is.

use proptest::prelude::*;
use rota_keeper::message::VERSION;
use rota_keeper::*;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use wire::{Connection, Listener};

const BLOCKS: u64 = 14;
const SEGMENT: u64 = 4 * BLOCK_BYTES;
const TENANTS: u32 = 3;

/// What happens to the connection.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Nothing.
    Lives,
    /// It ends before the request is sent.
    EndsBefore,
    /// It ends behind the request.
    EndsBehind,
    /// It ends when the answer is there, unread.
    EndsUnread,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Lives),
        1 => Just(Fate::EndsBefore),
        1 => Just(Fate::EndsBehind),
        1 => Just(Fate::EndsUnread),
    ]
}

fn key() -> impl Strategy<Value = HandleKey> {
    (1..=TENANTS, 0u64..4).prop_map(|(tenant, handle)| HandleKey { tenant: TenantNumber(tenant), handle })
}

fn introduce(tenant: TenantNumber) -> Request {
    Request::Introduce { tenant, process: Process { pid: 5, start_ticks: 0 } }
}

fn request() -> impl Strategy<Value = Request> {
    let tenant = || (1..=TENANTS).prop_map(TenantNumber);
    let keys = || prop::collection::vec(key(), 1..3);
    // A handle has always the same size.
    let wanted = |key: HandleKey| Wanted { key, bytes: (1 + key.handle) * BLOCK_BYTES };
    // Few hashes, so that some are the same again. Blocks are zero by the bits of the seed.
    let facts = move |key: HandleKey, seed: u8| match seed {
        0..20 => Vec::new(),
        _ => (0..=key.handle)
            .map(|block| BlockFact { hash: [seed % 3; 16], zero: seed >> block & 1 == 1 })
            .collect(),
    };
    prop_oneof![
        3 => tenant().prop_map(introduce),
        12 => keys().prop_map(move |keys| {
            Request::Reserve { near: None, wanted: keys.into_iter().map(wanted).collect() }
        }),
        10 => prop::collection::vec((key(), any::<u8>()), 1..3).prop_map(move |handles| Request::RecordOut {
            handles: handles.into_iter().map(|(key, seed)| Out { key, facts: facts(key, seed) }).collect(),
        }),
        8 => prop::collection::vec((key(), any::<bool>()), 1..3).prop_map(|handles| Request::RecordIn {
            handles: handles.into_iter().map(|(key, keep_clean)| In { key, keep_clean }).collect(),
        }),
        2 => keys().prop_map(|keys| Request::Cancel { keys }),
        2 => keys().prop_map(|keys| Request::Free { keys }),
        1 => (0..6u64, prop::option::of(key())).prop_map(|(blocks, keep)| {
            Request::DropClean { bytes: blocks * BLOCK_BYTES, keep }
        }),
        1 => tenant().prop_map(|tenant| Request::Died { tenant }),
        2 => Just(Request::Reclaim),
        1 => Just(Request::Leave { end: End::Stay }),
        8 => (key(), 0u64..2).prop_map(|(key, missing)| Request::KeepTickets {
            key,
            first: 0,
            tickets: (0..1 + key.handle.saturating_sub(missing)).map(|block| vec![block as u8; 70]).collect(),
        }),
        8 => keys().prop_map(|keys| Request::Sink { keys }),
        8 => keys().prop_map(|keys| Request::Rise { keys }),
    ]
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Reserved,
    Away,
    Clean(u64),
    Cellar,
}

#[derive(Clone, Debug)]
struct Handle {
    state: State,
    bytes: u64,
    facts: Vec<BlockFact>,
    tickets: Vec<Vec<u8>>,
    /// Of one in the cellar: it has space to be fetched to.
    lands: bool,
    /// Once somebody has heard of them.
    extents: Option<Vec<Extent>>,
}

impl Handle {
    fn arena_bytes(&self) -> u64 {
        match self.state {
            State::Cellar if !self.lands => 0,
            State::Cellar | State::Reserved => self.bytes,
            // Zero blocks have no place, but if all are, one has.
            State::Away | State::Clean(_) => (self.bytes - self.zero_bytes()).max(BLOCK_BYTES),
        }
    }

    fn zero_bytes(&self) -> u64 {
        self.facts.iter().filter(|fact| fact.zero).count() as u64 * BLOCK_BYTES
    }

    /// The places of blocks that are not zero, if all places are known.
    fn let_go_of_zeros(&mut self) {
        let zeros = |block: usize| self.facts.get(block).is_some_and(|fact| fact.zero);
        self.extents = self.extents.as_deref().map(|extents| zeros::part(extents, zeros).kept);
    }
}

/// What has to be so.
#[derive(Default)]
struct Model {
    tenants: BTreeMap<TenantNumber, Process>,
    handles: BTreeMap<HandleKey, Handle>,
    orphaned_bytes: u64,
    ages: u64,
}

impl Model {
    fn taken(&self) -> u64 {
        self.handles.values().map(Handle::arena_bytes).sum::<u64>() + self.orphaned_bytes
    }

    /// Does what is asked. Says what has to be answered, where that is fixed.
    fn step(&mut self, request: &Request) -> Option<Answer> {
        Some(match request {
            Request::Introduce { tenant, process } => {
                let before = self.tenants.insert(*tenant, *process);
                Answer::Outcome(before.map_or(Outcome::Done, |_| Outcome::AlreadySo))
            }
            Request::Reserve { wanted, .. } => {
                wanted.iter().for_each(|wanted| self.reserve(wanted));
                return None;
            }
            Request::RecordOut { handles } => {
                Answer::Outcomes(handles.iter().map(|out| self.record_out(out)).collect())
            }
            Request::RecordIn { handles } => {
                Answer::Outcomes(handles.iter().map(|back| self.record_in(*back)).collect())
            }
            Request::Cancel { keys } => Answer::Outcomes(keys.iter().map(|key| self.cancel(*key)).collect()),
            Request::Free { keys } => Answer::Outcomes(keys.iter().map(|key| self.remove(*key)).collect()),
            Request::DropClean { bytes, keep } => Answer::Freed { bytes: self.drop_clean(*bytes, *keep) },
            Request::Died { tenant } => {
                self.tenants.remove(tenant);
                let before = self.taken();
                self.handles.retain(|key, _| key.tenant != *tenant);
                Answer::Freed { bytes: before - self.taken() }
            }
            Request::Reclaim => Answer::Freed { bytes: std::mem::take(&mut self.orphaned_bytes) },
            Request::Leave { .. } => {
                self.handles.retain(|_, handle| handle.state != State::Reserved);
                self.give_up_between();
                let is_away = |handle: &&Handle| matches!(handle.state, State::Away | State::Cellar);
                let away = self.handles.values().filter(is_away);
                Answer::Left { ends: false, away_bytes: away.map(|handle| handle.bytes).sum() }
            }
            Request::KeepTickets { key, tickets, .. } => Answer::Outcome(self.keep_tickets(*key, tickets)),
            Request::Sink { keys } => Answer::Outcomes(keys.iter().map(|key| self.sink(*key)).collect()),
            Request::Rise { keys } => Answer::Outcomes(keys.iter().map(|key| self.rise(*key)).collect()),
            other => panic!("{other:?} changes nothing"),
        })
    }

    fn keep_tickets(&mut self, key: HandleKey, tickets: &[Vec<u8>]) -> Outcome {
        match self.handles.get_mut(&key) {
            Some(handle) if handle.state == State::Away => {
                handle.tickets = tickets.to_vec();
                Outcome::Done
            }
            Some(handle) if handle.state == State::Cellar => Outcome::AlreadySo,
            _ => Outcome::NotAway,
        }
    }

    fn sink(&mut self, key: HandleKey) -> Outcome {
        match self.handles.get_mut(&key) {
            Some(handle) if handle.state == State::Away => {
                if handle.tickets.len() as u64 != handle.bytes / BLOCK_BYTES {
                    return Outcome::NotInCellar;
                }
                handle.state = State::Cellar;
                (handle.lands, handle.extents) = (false, None);
                Outcome::Done
            }
            Some(handle) if handle.state == State::Cellar => Outcome::AlreadySo,
            _ => Outcome::NotAway,
        }
    }

    fn rise(&mut self, key: HandleKey) -> Outcome {
        match self.handles.get_mut(&key) {
            Some(handle) if handle.state == State::Cellar && !handle.lands => Outcome::NotReserved,
            Some(handle) if handle.state == State::Cellar => {
                handle.state = State::Away;
                handle.tickets.clear();
                handle.let_go_of_zeros();
                Outcome::Done
            }
            Some(handle) if handle.state == State::Away => Outcome::AlreadySo,
            _ => Outcome::NotInCellar,
        }
    }

    /// Nobody puts or fetches any more. Says how much was reserved for that.
    fn give_up_between(&mut self) -> u64 {
        let mut landing_bytes = 0;
        for handle in self.handles.values_mut() {
            match handle.state {
                State::Cellar if handle.lands => {
                    landing_bytes += handle.bytes;
                    (handle.lands, handle.extents) = (false, None);
                }
                State::Away => handle.tickets.clear(),
                _ => {}
            }
        }
        landing_bytes
    }

    fn reserve(&mut self, wanted: &Wanted) {
        let free_bytes = BLOCKS * BLOCK_BYTES - self.taken();
        let fits = wanted.bytes <= free_bytes;
        match self.handles.get_mut(&wanted.key) {
            Some(handle) if handle.state == State::Away => {}
            Some(handle) if handle.state == State::Cellar => handle.lands |= fits,
            Some(handle) if matches!(handle.state, State::Clean(_)) => {
                let missing_bytes = handle.bytes - handle.arena_bytes();
                if missing_bytes <= free_bytes {
                    handle.state = State::Reserved;
                    if missing_bytes > 0 {
                        handle.extents = None;
                    }
                }
            }
            Some(_) => {}
            None if self.tenants.contains_key(&wanted.key.tenant) && fits => {
                let handle = Handle {
                    state: State::Reserved,
                    bytes: wanted.bytes,
                    facts: Vec::new(),
                    tickets: Vec::new(),
                    lands: false,
                    extents: None,
                };
                self.handles.insert(wanted.key, handle);
            }
            None => {}
        }
    }

    fn record_out(&mut self, out: &Out) -> Outcome {
        match self.handles.get_mut(&out.key) {
            Some(handle) if handle.state == State::Away => Outcome::AlreadySo,
            Some(handle) if handle.state == State::Reserved => {
                // What was not written then is known to be zero still, or was written now.
                let left_out = out.facts.is_empty() && !handle.facts.is_empty();
                let mut blocks = handle.facts.iter().zip(&out.facts);
                if left_out || blocks.any(|(was, is)| was.zero && !is.zero && was.hash == is.hash) {
                    return Outcome::WrongFacts;
                }
                handle.state = State::Away;
                handle.facts = out.facts.clone();
                handle.let_go_of_zeros();
                Outcome::Done
            }
            _ => Outcome::NotReserved,
        }
    }

    fn record_in(&mut self, back: In) -> Outcome {
        match (self.handles.get_mut(&back.key), back.keep_clean) {
            (Some(Handle { state: State::Reserved | State::Cellar, .. }), _) => Outcome::NotAway,
            (Some(_), false) => self.remove(back.key),
            (Some(handle), true) if handle.state == State::Away => {
                self.ages += 1;
                handle.tickets.clear();
                handle.state = State::Clean(self.ages);
                Outcome::Done
            }
            _ => Outcome::AlreadySo,
        }
    }

    fn cancel(&mut self, key: HandleKey) -> Outcome {
        match self.handles.get_mut(&key) {
            Some(Handle { state: State::Reserved, .. }) => self.remove(key),
            Some(Handle { state: State::Away, .. }) => Outcome::IsAway,
            Some(handle) if handle.state == State::Cellar && handle.lands => {
                (handle.lands, handle.extents) = (false, None);
                Outcome::Done
            }
            _ => Outcome::AlreadySo,
        }
    }

    fn remove(&mut self, key: HandleKey) -> Outcome {
        self.handles.remove(&key).map_or(Outcome::AlreadySo, |_| Outcome::Done)
    }

    fn drop_clean(&mut self, bytes: u64, keep: Option<HandleKey>) -> u64 {
        let mut clean: Vec<(u64, HandleKey)> = self
            .handles
            .iter()
            .filter_map(|(key, handle)| match handle.state {
                State::Clean(age) if Some(*key) != keep => Some((age, *key)),
                _ => None,
            })
            .collect();
        clean.sort();
        let mut freed = 0;
        for (_, key) in clean {
            if freed >= bytes {
                break;
            }
            freed += self.handles.remove(&key).expect("listed above").arena_bytes();
        }
        freed
    }

    fn lose_worker(&mut self) {
        let reserved = self.handles.extract_if(.., |_, handle| handle.state == State::Reserved);
        self.orphaned_bytes += reserved.map(|(_, handle)| handle.bytes).sum::<u64>();
        self.orphaned_bytes += self.give_up_between();
    }

    /// What a reservation says has to be what the model has.
    fn check_reserved(&mut self, wanted: &[Wanted], reservations: &[Reservation]) {
        for (wanted, reservation) in wanted.iter().zip(reservations) {
            let handle = self.handles.get_mut(&wanted.key);
            match (reservation, handle) {
                (Reservation::Space { extents, .. }, Some(handle)) => {
                    assert!(
                        handle.state == State::Reserved || (handle.state == State::Cellar && handle.lands)
                    );
                    assert_eq!(handle.extents.get_or_insert_with(|| extents.clone()), extents);
                }
                (Reservation::Refused(Outcome::IsAway), Some(handle)) => {
                    assert_eq!(handle.state, State::Away);
                }
                (Reservation::Refused(Outcome::UnknownTenant), None) => {
                    assert!(!self.tenants.contains_key(&wanted.key.tenant));
                }
                (Reservation::NoSpace(_), None) => {}
                (Reservation::NoSpace(_), Some(handle)) if handle.state == State::Cellar => {
                    assert!(!handle.lands);
                }
                (Reservation::NoSpace(_), Some(handle)) if matches!(handle.state, State::Clean(_)) => {}
                (other, handle) => panic!("{wanted:?}: {other:?}, but {handle:?}"),
            }
        }
    }

    /// Asks the keeper for everything, and compares.
    fn check(&mut self, worker: &Connection) {
        let tenants: Vec<_> = self.tenants.iter().map(|(&tenant, &process)| (tenant, process)).collect();
        assert_eq!(ask(worker, &Request::Tenants { after: None }), Answer::Tenants(tenants));
        let mut owned = BTreeSet::new();
        for tenant in (1..=TENANTS).map(TenantNumber) {
            let Answer::Recorded(listed) = ask(worker, &Request::Recorded { tenant, after: None }) else {
                panic!("no list");
            };
            let of_tenant = self.handles.iter_mut().filter(|(key, _)| key.tenant == tenant);
            let expected: Vec<_> = of_tenant.filter(|(_, handle)| handle.state != State::Reserved).collect();
            assert_eq!(listed.len(), expected.len(), "{listed:?} {expected:?}");
            for (listed, (key, handle)) in listed.iter().zip(expected) {
                let place = match handle.state {
                    State::Away => Place::Away,
                    State::Cellar => Place::Cellar,
                    State::Reserved | State::Clean(_) => Place::Clean,
                };
                assert_eq!((listed.handle, listed.bytes, listed.place), (key.handle, handle.bytes, place));
                assert_eq!(listed.facts, handle.facts);
                let tickets = ask(worker, &Request::Tickets { key: *key, first: 0 });
                if place == Place::Cellar {
                    assert_eq!(tickets, Answer::Tickets(handle.tickets.clone()));
                    assert_eq!(listed.extents, []);
                    continue;
                }
                assert_eq!(tickets, Answer::Tickets(Vec::new()));
                assert_eq!(&listed.extents, handle.extents.get_or_insert_with(|| listed.extents.clone()));
            }
        }
        for handle in self.handles.values() {
            let extents = handle.extents.as_deref().unwrap_or_default();
            let bytes: u64 = extents.iter().map(|run| run.bytes).sum();
            assert!(handle.extents.is_none() || bytes == handle.arena_bytes());
            for run in extents {
                for block in run.offset / BLOCK_BYTES..(run.offset + run.bytes) / BLOCK_BYTES {
                    assert!(owned.insert(block), "block {block} is owned twice");
                    assert!(block < BLOCKS);
                }
            }
        }
        let Answer::Progress(progress) = ask(worker, &Request::Progress) else { panic!("no progress") };
        let sum = |is: &dyn Fn(&State) -> bool| -> u64 {
            self.handles.values().filter(|handle| is(&handle.state)).map(|handle| handle.bytes).sum()
        };
        let lands = |handle: &&Handle| handle.state == State::Cellar && handle.lands;
        let landing: u64 = self.handles.values().filter(lands).map(|handle| handle.bytes).sum();
        assert_eq!(progress.reserved_bytes, sum(&|state| *state == State::Reserved) + landing);
        assert_eq!(progress.cellar_bytes, sum(&|state| *state == State::Cellar));
        assert_eq!(progress.away_bytes, sum(&|state| *state == State::Away));
        let clean = self.handles.values().filter(|handle| matches!(handle.state, State::Clean(_)));
        assert_eq!(progress.clean_bytes, clean.map(Handle::arena_bytes).sum::<u64>());
        let away = self.handles.values().filter(|handle| handle.state == State::Away);
        assert_eq!(progress.zero_bytes, away.map(|handle| handle.bytes - handle.arena_bytes()).sum::<u64>());
        assert_eq!(progress.orphaned_bytes, self.orphaned_bytes);
        assert_eq!(progress.free_bytes + self.taken(), progress.ready_bytes);
        assert_eq!(progress.ready_bytes, BLOCKS * BLOCK_BYTES);
    }
}

fn ask(worker: &Connection, request: &Request) -> Answer {
    worker.send(request, &[]).expect("the keeper is there");
    worker.receive().expect("the keeper answers").0
}

/// A worker that is taken in. The one before it may not have been missed yet.
fn enter(socket: &Path) -> Connection {
    loop {
        let worker = Connection::connect(socket).expect("the keeper is there");
        match ask(&worker, &Request::Hello { version: VERSION }) {
            Answer::Welcome(_) => return worker,
            Answer::Refused(Refusal::Busy { .. }) => std::thread::yield_now(),
            other => panic!("{other:?}"),
        }
    }
}

/// A file, and a key that nobody can change.
fn cellar_files() -> [OwnedFd; 2] {
    let file = tempfile::tempfile().expect("a file").into();
    let key = memfd_create("key", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
    rustix::io::pwrite(&key, &[1; 32], 0).expect("a page");
    fcntl_add_seals(&key, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW).expect("it can be sealed");
    [file, key]
}

fn live(steps: &[(Request, Fate)]) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("keeper");
    let listener = Listener::bind(&socket).expect("a socket");
    let parts = [Part { bytes: BLOCKS * BLOCK_BYTES, node: None }];
    let mut server = Server::new(Keeper::start(&parts, SEGMENT).expect("a small arena"), listener);
    let server = std::thread::spawn(move || server.run());
    let mut worker = enter(&socket);
    while matches!(ask(&worker, &Request::Progress), Answer::Progress(progress) if progress.growing) {
        std::thread::yield_now();
    }
    let [file, key] = cellar_files();
    worker.send(&Request::KeepCellar, &[file.as_fd(), key.as_fd()]).expect("the keeper is there");
    let kept: Answer = worker.receive().expect("the keeper answers").0;
    assert_eq!(kept, Answer::Outcome(Outcome::Done));
    let mut model = Model::default();
    for (request, fate) in steps {
        let lost = !matches!(fate, Fate::Lives);
        if matches!(fate, Fate::EndsBefore) {
            drop(worker);
            model.lose_worker();
            worker = enter(&socket);
            model.check(&worker);
            continue;
        }
        worker.send(request, &[]).expect("the keeper is there");
        let expected = model.step(request);
        match fate {
            Fate::EndsUnread => {
                let mut answered = [PollFd::new(&worker, PollFlags::IN)];
                rustix::event::poll(&mut answered, None).expect("the keeper answers");
            }
            Fate::Lives => {
                let answer: Answer = worker.receive().expect("the keeper answers").0;
                if let (Request::Reserve { wanted, .. }, Answer::Reserved(reservations)) = (request, &answer)
                {
                    model.check_reserved(wanted, reservations);
                }
                assert_eq!(&answer, expected.as_ref().unwrap_or(&answer), "{request:?}");
            }
            Fate::EndsBefore | Fate::EndsBehind => {}
        }
        if lost || matches!(request, Request::Leave { .. }) {
            drop(worker);
            model.lose_worker();
            worker = enter(&socket);
        }
        model.check(&worker);
    }
    assert!(matches!(ask(&worker, &Request::Leave { end: End::Forced }), Answer::Left { ends: true, .. }));
    server.join().expect("the keeper does not panic");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_history_ends_as_the_model_says(
        introduced in prop::collection::vec(1..=TENANTS, 1..4),
        steps in prop::collection::vec((request(), fate()), 1..60),
    ) {
        let introduced = introduced.into_iter().map(|tenant| (introduce(TenantNumber(tenant)), Fate::Lives));
        let all: Vec<_> = introduced.chain(steps).collect();
        live(&all);
    }
}
