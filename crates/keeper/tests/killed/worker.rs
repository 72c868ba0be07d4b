//! A worker: this test program, started once more, with [`PLAN`] in its environment.

use crate::PATIENCE;
use crate::ground::{ALL, Ground, TENANTS};
use crate::pattern::{self, Random};
use rota_keeper::*;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The environment variable that makes this program a worker: seed, socket and ground.
const PLAN: &str = "ROTA_TEST_WORKER";

/// Starts one.
pub(crate) fn start(socket: &Path, ground: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().expect("this program has a file"))
        .args(["--exact", "worker::is_a_worker", "--nocapture", "--quiet"])
        .env(PLAN, format!("{seed} {} {}", socket.display(), ground.display()))
        .stdout(Stdio::null())
        .spawn()
        .expect("this program can be started")
}

#[test]
fn is_a_worker() {
    let Ok(plan) = std::env::var(PLAN) else { return };
    let words: Vec<&str> = plan.split(' ').collect();
    let [seed, socket, ground] = words[..] else { panic!("{plan}") };
    let mut random = Random(seed.parse().expect("the seed is a number"));
    let ground = Ground::open(Path::new(ground));
    let mut client = Client::connect(Path::new(socket), PATIENCE).expect("the keeper is there");
    let view = map(&mut client);
    for number in 0..TENANTS {
        let process = Process { pid: number, start_ticks: 1 };
        client.introduce(TenantNumber(number + 1), process).expect("an answer");
    }
    check(&mut client, &ground, &view);
    let mut worker = Worker { client, ground, view };
    loop {
        worker.act(&mut random);
    }
}

/// Maps all of the arena.
pub(crate) fn map(client: &mut Client) -> View {
    while client.progress().expect("an answer").growing {
        std::thread::yield_now();
    }
    let mut view = View::new(client.welcome()).expect("addresses");
    let mapped: Result<(), ClientError> = client.segments(0, |segment, file| {
        view.map(segment, &file)?;
        Ok(())
    });
    mapped.expect("all of it has a place");
    view
}

/// Every handle is where the keeper says, and what its tenant wrote last is there. Says how many are away.
pub(crate) fn check(client: &mut Client, ground: &Ground, view: &View) -> usize {
    let mut away = 0;
    let recorded: Vec<Vec<Recorded>> =
        (1..=TENANTS).map(|tenant| client.recorded(TenantNumber(tenant)).expect("an answer")).collect();
    for number in 0..ALL {
        let (key, blocks) = Ground::handle(number);
        let found = recorded[key.tenant.0 as usize - 1].iter().find(|recorded| recorded.handle == key.handle);
        let truth = ground.truth(number);
        if let Some(recorded) = found.filter(|recorded| !recorded.facts.is_empty()) {
            assert_eq!(recorded.bytes, blocks * BLOCK_BYTES);
            assert!(holds(view, recorded, &recorded.facts), "{key}: not the bytes that were recorded");
        }
        if let Some(recorded) = found.filter(|recorded| recorded.place == Place::Away) {
            check_away(view, recorded, &pattern::facts(key, truth, blocks), key);
            away += 1;
        } else {
            assert_eq!(ground.on_device(number), Some(truth), "{key} is neither away nor on the device");
        }
    }
    away
}

/// What is away is what its tenant wrote last.
fn check_away(view: &View, recorded: &Recorded, truth: &[BlockFact], key: HandleKey) {
    assert!(recorded.facts.is_empty() || recorded.facts == truth, "{key} is away, but old");
    assert!(holds(view, recorded, truth), "{key}: not the bytes that were recorded");
}

/// Whether the arena has these blocks there. Where facts say that one is zero, it has no place.
fn holds(view: &View, recorded: &Recorded, facts: &[BlockFact]) -> bool {
    let stored = facts.iter().filter(|fact| recorded.facts.is_empty() || !fact.zero);
    // SAFETY: mapped, and recorded: nobody writes there.
    blocks(view, &recorded.extents).zip(stored).all(|(at, fact)| unsafe { pattern::is_there(at, fact) })
}

/// The addresses of all blocks, in order.
fn blocks<'a>(view: &'a View, extents: &'a [Extent]) -> impl Iterator<Item = *mut u8> + 'a {
    let offsets =
        extents.iter().flat_map(|run| (run.offset..run.offset + run.bytes).step_by(BLOCK_BYTES as usize));
    offsets.map(|offset| view.address(Extent { offset, bytes: BLOCK_BYTES }).expect("all of it is mapped"))
}

struct Worker {
    client: Client,
    ground: Ground,
    view: View,
}

impl Worker {
    /// Does one thing, with any handle.
    fn act(&mut self, random: &mut Random) {
        let number = random.below(ALL as u64) as usize;
        match self.ground.on_device(number) {
            // Unless it is away by the keeper's word: a worker that died before its tenant unmapped leaves that.
            Some(_) if self.find(number).is_none_or(|recorded| recorded.place == Place::Clean) => {
                match random.below(3) {
                    0 => self.ground.run(number),
                    _ => self.move_out(number, random.below(4) > 0),
                }
            }
            _ => {
                self.move_in(number, random.below(3) > 0);
                if random.below(3) == 0 {
                    self.ground.run(number);
                }
            }
        }
        if !self.ground.is_busy() {
            self.client.reclaim().expect("an answer");
        }
    }

    fn find(&mut self, number: usize) -> Option<Recorded> {
        let (key, _) = Ground::handle(number);
        let recorded = self.client.recorded(key.tenant).expect("an answer");
        recorded.into_iter().find(|recorded| recorded.handle == key.handle)
    }

    /// With facts, or as one that does not hash and is careless.
    fn move_out(&mut self, number: usize, with_facts: bool) {
        let (key, count) = Ground::handle(number);
        let clean = self.find(number);
        let wanted = Wanted { key, bytes: count * BLOCK_BYTES };
        let (extents, reused) = match self.client.reserve(None, &[wanted]).expect("an answer").remove(0) {
            Reservation::Space { extents, reused } => (extents, reused),
            Reservation::NoSpace(_) => {
                self.client.drop_clean(count * BLOCK_BYTES, None).expect("an answer");
                return;
            }
            Reservation::Refused(why) => panic!("{key}: {why}"),
        };
        self.ground.step();
        let now = pattern::facts(key, self.ground.truth(number), count);
        let before = clean.filter(|_| reused).map(|clean| clean.facts).unwrap_or_default();
        self.ground.begin_copy(&extents);
        for (block, at) in blocks(&self.view, &extents).enumerate() {
            if before.get(block) == Some(&now[block]) {
                self.ground.count_reused();
            } else if !now[block].zero || before.is_empty() && !with_facts {
                // SAFETY: reserved for this handle, and mapped.
                unsafe { pattern::write(at, &now[block]) };
                self.ground.step();
            }
        }
        self.ground.end_copy();
        if !with_facts {
            let outcome = self.record_out(Out { key, facts: Vec::new() });
            if !before.is_empty() {
                // Else what lies in the unwritten places of zero blocks would count.
                assert_eq!(outcome, Outcome::WrongFacts, "{key}");
                self.ground.count_refused();
            } else {
                assert_eq!(outcome, Outcome::Done, "{key}");
            }
        }
        if with_facts || !before.is_empty() {
            assert_eq!(self.record_out(Out { key, facts: now }), Outcome::Done, "{key}");
        }
        self.ground.step();
        self.ground.unmap(number);
    }

    fn record_out(&mut self, out: Out) -> Outcome {
        self.client.record_out(&[out]).expect("an answer").remove(0)
    }

    fn move_in(&mut self, number: usize, keep_clean: bool) {
        let recorded = self.find(number).expect("what is not on the device is away");
        let (key, blocks) = Ground::handle(number);
        let truth = self.ground.truth(number);
        self.ground.create_memory(number);
        check_away(&self.view, &recorded, &pattern::facts(key, truth, blocks), key);
        self.ground.fill(number, truth);
        let outcome = self.client.record_in(&[In { key, keep_clean }]).expect("an answer");
        assert_eq!(outcome, [Outcome::Done], "{key}");
        self.ground.step();
    }
}
