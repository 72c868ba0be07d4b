//! Memory that several processes have, and memory that cannot move.

use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until, until_counted};

const MIB: u64 = 1 << 20;
/// What the driver says of a name that means nothing.
const INVALID_HANDLE: u32 = 400;
/// What it says to whoever opens its own memory.
const INVALID_CONTEXT: u32 = 201;

fn stage() -> Stage {
    Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 96, rotad: &["--turn", "40ms"] })
}

/// A third one, which works until it is killed.
fn worker(mib: &str) -> [&str; 6] {
    ["--mib", mib, "--piece-mib", "4", "--seconds", "600"]
}

/// How often something was told of a job.
fn count(stage: &Stage, job: &str, event: &str) -> usize {
    stage.events().iter().filter(|line| line["event"] == event && line["job"] == job).count()
}

/// What a job's programs have on the device and away.
fn bytes(stage: &Stage, job: &str) -> u64 {
    let listing = stage.listing();
    let tenants = listing.tenants.iter().filter(|tenant| tenant.job == job);
    tenants.map(|tenant| tenant.resident_bytes + tenant.away_bytes).sum()
}

#[test]
fn two_processes_share_memory_while_a_third_takes_turns_with_them() {
    let stage = stage();
    let (large, small) = (stage.path("large"), stage.path("small"));
    let mut owner = Puppet::start(&stage, "owner", &[]);
    let mut opener = Puppet::start(&stage, "opener", &[]);
    owner.does(&format!("share {} 512 7", small.display()));
    owner.does(&format!("share {} {} 1", large.display(), 4 * MIB));
    opener.does(&format!("open {}", small.display()));
    opener.does("see-opened 7");
    opener.does(&format!("open {}", large.display()));
    opener.does("see-opened 1");
    // What is not shared of them goes for a third one.
    owner.does("keep 16");
    opener.does("keep 16");
    let third = stage.worker(0, "third", &worker("36"));
    until_counted("the third one works", 5, || third.said().steps as usize);
    for value in 2..8 {
        let (mine, theirs) = (value * 2, value * 2 + 1);
        owner.does(&format!("fill-shared {mine}"));
        opener.does(&format!("see-opened {mine}"));
        opener.does(&format!("fill-opened {theirs}"));
        owner.does(&format!("see-shared {theirs}"));
        owner.does("check");
        opener.does("check");
        let steps = third.said().steps;
        until("the third one works", || third.said().steps > steps);
    }
    assert!(count(&stage, "owner", "moving_out") > 0 && count(&stage, "third", "moving_out") > 0);
    // Whatever moved, what is shared did not: it is still the same memory.
    opener.does("fill-opened 99");
    owner.does("see-shared 99");
    opener.does("close");
    opener.does("see-opened 7");
    opener.does("close");
    owner.does("free-shared");
    owner.does("free-shared");
    drop(third);
    owner.end();
    opener.end();
    stage.finish();
}

#[test]
fn memory_is_opened_while_its_owner_is_away() {
    let stage = stage();
    let file = stage.path("name");
    let mut owner = Puppet::start(&stage, "owner", &[]);
    owner.does("keep 24");
    let third = stage.worker(0, "third", &worker("24"));
    until("the owner is away", || count(&stage, "owner", "away") > 0);
    owner.does(&format!("share {} {} 5", file.display(), 8 * MIB));
    let mut opener = Puppet::start(&stage, "opener", &[]);
    for _ in 0..3 {
        opener.does(&format!("open {}", file.display()));
        opener.does("see-opened 5");
    }
    let before = count(&stage, "owner", "away");
    owner.does("check");
    until("the owner is away again", || count(&stage, "owner", "away") > before);
    opener.does("fill-opened 6");
    opener.does("close");
    opener.does("see-opened 6");
    owner.does("see-shared 6");
    opener.does("close");
    opener.does("close");
    drop(third);
    owner.end();
    opener.end();
    stage.finish();
}

#[test]
fn names_that_mean_nothing_are_refused_and_those_of_the_process_itself() {
    let stage = stage();
    let file = stage.path("name");
    let mut owner = Puppet::start(&stage, "owner", &[]);
    let mut opener = Puppet::start(&stage, "opener", &[]);
    // Large enough for a range of its own: a slab is there as long as anything is in it.
    owner.does(&format!("share {} {} 1", file.display(), 32 * MIB));
    owner.does(&format!("not-open {} {INVALID_CONTEXT}", file.display()));
    let forged = stage.path("forged");
    let mut name = std::fs::read(&file).unwrap();
    name[10] ^= 1;
    std::fs::write(&forged, name).unwrap();
    opener.does(&format!("not-open {} {INVALID_HANDLE}", forged.display()));
    opener.does(&format!("open {}", file.display()));
    opener.does("see-opened 1");
    // Freed by its owner, it is there for whoever has it open, and for nobody else.
    owner.does("free-shared");
    opener.does("see-opened 1");
    opener.does("fill-opened 3");
    opener.does("see-opened 3");
    opener.does("close");
    until("the daemon knows", || bytes(&stage, "owner") < 32 * MIB);
    opener.does(&format!("not-open {} {INVALID_HANDLE}", file.display()));
    owner.end();
    opener.end();
    stage.finish();
}

#[test]
fn what_an_owner_leaves_stays_with_whoever_has_it_open() {
    let stage = stage();
    let file = stage.path("name");
    let mut owner = Puppet::start(&stage, "owner", &[]);
    let mut opener = Puppet::start(&stage, "opener", &[]);
    owner.does(&format!("share {} {} 42", file.display(), 16 * MIB));
    opener.does(&format!("open {}", file.display()));
    drop(owner);
    until("the owner is gone", || stage.count("reaped") == 1);
    opener.does("see-opened 42");
    opener.does("keep 8");
    let third = stage.worker(0, "third", &worker("28"));
    until_counted("others take turns beside it", 20, || third.said().steps as usize);
    opener.does("see-opened 42");
    opener.does("check");
    opener.does("close");
    opener.does(&format!("not-open {} {INVALID_HANDLE}", file.display()));
    drop(third);
    opener.end();
    stage.finish();
}

/// What a context takes of a GPU, here.
const CONTEXT_BYTES: u64 = 4 * MIB;

#[test]
fn managed_memory_counts_against_the_limit_and_comes_back() {
    let stage = stage();
    // Its context, a block by which that may grow, a block for its word, and 16 MiB.
    let limit = CONTEXT_BYTES + 20 * MIB;
    let mut job = Puppet::start_with(&stage, "job", &["--memory", &format!("{limit}B")], &[]);
    let word = 2 * MIB;
    until("its word is there", || bytes(&stage, "job") == word);
    let free = |job: &mut Puppet| {
        let look: serde_json::Value = serde_json::from_str(&job.says("look")).unwrap();
        look["free"].as_u64().unwrap()
    };
    let before = free(&mut job);
    job.does(&format!("managed {}", 8 * MIB));
    until("it counts", || bytes(&stage, "job") == word + 8 * MIB);
    assert_eq!(free(&mut job), before - 8 * MIB, "the program is told so");
    job.does(&format!("managed {}", 8 * MIB));
    job.does("no-managed 1");
    job.does(&format!("no-managed {}", 32 * MIB));
    job.does("free-managed");
    until("it comes back", || bytes(&stage, "job") == word + 8 * MIB);
    // Small ones share a block, rounded up once.
    job.does("managed 4096");
    job.does("managed 1000000");
    until("they count", || bytes(&stage, "job") == word + 10 * MIB);
    job.does(&format!("no-managed {}", 7 * MIB));
    job.does(&format!("managed {}", 6 * MIB));
    for _ in 0..4 {
        job.does("free-managed");
    }
    until("all of it comes back", || bytes(&stage, "job") == word);
    job.does(&format!("managed {}", 16 * MIB));
    job.end();
    stage.finish();
}

#[test]
fn the_drivers_own_pools_are_counted_and_what_they_give_back() {
    let stage = stage();
    let mut command = stage.under_rota(0, "job");
    command.env("ROTA_POOLS", "native").arg(crate::parts::PUPPET);
    let mut job = Puppet::by(&stage, "job", command);
    until("its word is there", || bytes(&stage, "job") == 2 * MIB);
    job.does(&format!("ordered {}", 12 * MIB));
    until("it counts", || bytes(&stage, "job") >= 14 * MIB);
    job.does(&format!("ordered {}", 4 * MIB));
    until("it counts", || bytes(&stage, "job") >= 18 * MIB);
    job.does("free-ordered");
    job.does("free-ordered");
    until("it comes back", || bytes(&stage, "job") == 2 * MIB);
    job.end();
    stage.finish();
}

#[test]
fn managed_memory_stays_while_the_rest_of_its_program_moves() {
    let stage = stage();
    let mut job = Puppet::start(&stage, "job", &[]);
    job.does(&format!("managed {}", 12 * MIB));
    job.does("keep 16");
    let third = stage.worker(0, "third", &worker("32"));
    until_counted("both take turns", 5, || count(&stage, "job", "away"));
    let listing = stage.listing();
    let tenant = listing.tenants.iter().find(|tenant| tenant.job == "job").unwrap();
    assert!(tenant.resident_bytes >= 12 * MIB, "{tenant:?}");
    let mut describe = stage.rota();
    let described = describe.args(["describe", "job", "-o", "json"]).output().unwrap().stdout;
    let described: serde_json::Value = serde_json::from_slice(&described).unwrap();
    assert_eq!(described["jobs"][0]["tenants"][0]["pinned_bytes"], 12 * MIB, "{described}");
    job.does("check");
    drop(third);
    job.end();
    stage.finish();
}
