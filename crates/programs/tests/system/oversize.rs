//! Programs that are larger than their GPU: what that cannot have lies in the host's memory, and every byte is right.

use serde_json::Value;

use crate::parts::WORKER;
use crate::puppet::Puppet;
use crate::stage::{Program, Setup, Stage, until};

const MIB: u64 = 1 << 20;

fn stage(gpu_mib: u64, rotad: &[&str]) -> Stage {
    Stage::new(&Setup { gpus: 1, gpu_mib, arena_mib: 256, rotad })
}

/// A worker of half as much again as the GPU has.
fn large_worker(stage: &Stage, name: &str, more: &[&str]) -> Program {
    let mut command = stage.under_rota_with(0, name, &["--oversize"]);
    command.arg(WORKER).args(["--mib", "96", "--piece-mib", "4", "--seed", "7"]).args(more);
    stage.start(name, command)
}

/// What a program has in the host's memory, and on the device or away.
fn has(stage: &Stage, pid: u32) -> (u64, u64) {
    let listing = stage.listing();
    let of = listing.tenants.iter().find(|tenant| tenant.pid == pid);
    of.map_or((0, 0), |tenant| (tenant.host_bytes, tenant.resident_bytes + tenant.away_bytes))
}

/// What there is and what is used, if the driver and NVML say the same.
fn seen(puppet: &mut Puppet) -> (u64, u64) {
    let said = puppet.says("look");
    let look: Value = serde_json::from_str(&said).unwrap();
    let number = |key: &str| look[key].as_u64().unwrap();
    let (total, free) = (number("total"), number("free"));
    assert_eq!(number("device_total"), total, "{said}");
    assert_eq!(look["nvml"]["first"], serde_json::json!([total, free, total - free]), "{said}");
    (total, total - free)
}

#[test]
fn one_larger_than_the_gpu_finds_every_byte_right() {
    let stage = stage(64, &[]);
    let mut program = large_worker(&stage, "large", &["--steps", "1000000"]);
    program.goes_on(2);
    let (host, device) = has(&stage, program.pid());
    // With a little for what is small.
    assert!((96 * MIB..=100 * MIB).contains(&(host + device)), "all of it is somewhere");
    assert!(host >= 32 * MIB && device >= 36 * MIB, "{host} on the host, {device} on the device");
    let ps = stage.rota().arg("ps").output().unwrap();
    assert!(String::from_utf8(ps.stdout).unwrap().contains(" HOST "));
    program.goes_on(2);
    drop(program);
    until("nothing of it is left", || stage.listing().tenants.is_empty());
    let again = large_worker(&stage, "again", &["--steps", "3", "--copies"]);
    again.ends_well();
    stage.finish();
}

#[test]
fn it_takes_turns_with_another_and_only_what_is_on_the_device_moves() {
    let stage = stage(64, &["--turn", "300ms"]);
    let mut large = large_worker(&stage, "large", &["--steps", "1000000", "--kernel-ms", "20"]);
    large.goes_on(1);
    let (host, device) = has(&stage, large.pid());
    let other = ["--mib", "40", "--piece-mib", "4", "--seed", "2", "--steps", "8", "--kernel-ms", "30"];
    stage.worker(0, "other", &other).ends_well();
    large.goes_on(2);
    assert_eq!(has(&stage, large.pid()), (host, device), "each byte is at home where it was");
    let events = stage.events();
    let moved = |job: &str| events.iter().any(|event| event["event"] == "turn_begin" && event["job"] == job);
    assert!(moved("large") && moved("other"));
    let most = events.iter().filter_map(|event| event["bytes_out"].as_u64()).max().unwrap_or(0);
    assert!((1..=64 * MIB).contains(&most), "the largest move took {most} bytes out");
    drop(large);
    stage.finish();
}

#[test]
fn memory_that_a_program_creates_itself_can_be_larger_too() {
    let stage = stage(64, &["--turn", "300ms"]);
    let more = ["--segments", "--steps", "1000000", "--kernel-ms", "20"];
    let mut large = large_worker(&stage, "large", &more);
    large.goes_on(1);
    assert!(has(&stage, large.pid()).0 >= 32 * MIB);
    let other = ["--mib", "40", "--piece-mib", "4", "--seed", "2", "--steps", "4", "--kernel-ms", "30"];
    stage.worker(0, "other", &other).ends_well();
    large.goes_on(2);
    drop(large);
    stage.finish();
}

#[test]
fn it_is_out_of_memory_where_the_budget_ends_and_knows_so() {
    let stage = stage(64, &["--oversize-max", "64MiB"]);
    let mut small = Puppet::start_with(&stage, "small", &["--oversize=16MiB"], &[]);
    let (total, began) = seen(&mut small);
    assert_eq!(total, 80 * MIB);
    let filled: u64 = small.says("fill 2048").parse().unwrap();
    let (host, _) = has(&stage, small.pid());
    assert_eq!(host, 16 * MIB);
    let (total, used) = seen(&mut small);
    assert_eq!((total, used), (80 * MIB, began + filled));
    small.does("empty");
    small.end();
    // Without it the same program has so much less.
    until("nobody is there", || stage.listing().tenants.is_empty());
    let mut plain = Puppet::start(&stage, "plain", &[]);
    assert_eq!(seen(&mut plain).0, 64 * MIB);
    let without: u64 = plain.says("fill 2048").parse().unwrap();
    assert_eq!(filled - without, 16 * MIB);
    plain.end();
    stage.finish();
}

#[test]
fn a_limit_on_the_gpu_is_one_on_the_gpu() {
    let stage = stage(64, &["--oversize-max", "64MiB"]);
    let mut both = Puppet::start_with(&stage, "both", &["--memory", "32MiB", "--oversize=16MiB"], &[]);
    assert_eq!(seen(&mut both).0, 48 * MIB);
    let filled: u64 = both.says("fill 2048").parse().unwrap();
    let (host, device) = has(&stage, both.pid());
    assert_eq!(host, 16 * MIB);
    assert!(device <= 32 * MIB && filled >= 38 * MIB, "{filled}, of which {device} on the device");
    // More of it, while it runs.
    let set = stage.rota().args(["set", "both", "--oversize=32MiB"]).output().unwrap();
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    assert_eq!(seen(&mut both).0, 64 * MIB);
    let more: u64 = both.says("fill 2048").parse().unwrap();
    assert_eq!(more - filled, 16 * MIB);
    let much = stage.rota().args(["set", "both", "--oversize=1GiB"]).output().unwrap();
    assert!(String::from_utf8_lossy(&much.stderr).contains("there are 64.0 MiB in all"));
    both.end();
    stage.finish();
}

#[test]
fn the_dead_leave_the_budget_to_others() {
    let stage = stage(64, &["--oversize-max", "32MiB"]);
    let mut first = Puppet::start_with(&stage, "first", &["--oversize"], &[]);
    first.does("large 32 5");
    first.does("prefer-host 0");
    until("it has all of it", || has(&stage, first.pid()).0 == 32 * MIB);
    let mut second = Puppet::start_with(&stage, "second", &["--oversize"], &[]);
    let before: u64 = second.says("fill 2048").parse().unwrap();
    assert_eq!(has(&stage, second.pid()).0, 0, "all of it is taken");
    first.kill();
    until("the first is gone", || stage.listing().tenants.len() == 1);
    let mut all = before;
    until("the second has it all", || {
        all = second.says("fill 2048").parse().unwrap();
        has(&stage, second.pid()).0 == 32 * MIB
    });
    assert!(all > before);
    second.end();
    stage.finish();
}

#[test]
fn one_allocation_can_be_larger_than_the_gpu() {
    let stage = stage(320, &["--oversize-max", "512MiB"]);
    let mut puppet = Puppet::start_with(&stage, "large", &["--oversize"], &[]);
    puppet.does("large 480 90");
    // Of so large a one multiples of the largest handle, 256 MiB, go to the device.
    assert_eq!(has(&stage, puppet.pid()).0, 224 * MIB);
    puppet.does("see-large");
    puppet.does("fill-large 91");
    puppet.does("see-large");
    puppet.does("free-large");
    puppet.end();
    stage.finish();
}

#[test]
fn what_a_program_names_lies_in_the_hosts_memory() {
    let stage = stage(128, &["--turn", "50ms", "--oversize-max", "96MiB"]);
    let mut puppet = Puppet::start_with(&stage, "names", &["--oversize=64MiB"], &[]);
    puppet.does("large 64 33");
    let (host, device) = has(&stage, puppet.pid());
    assert_eq!(host, 0);
    puppet.does("prefer-host 0");
    until("it is there", || has(&stage, puppet.pid()) == (64 * MIB, device - 64 * MIB));
    puppet.does("see-large");
    puppet.does("prefer-host 0");
    assert_eq!(has(&stage, puppet.pid()).0, 64 * MIB, "it is there already");
    puppet.does("fill-large 34");
    puppet.does("large 40 35");
    // The budget is used up: nothing changes.
    puppet.does("prefer-host 2");
    puppet.does("see-large");
    // And beside another, with which it takes turns.
    let other = ["--mib", "100", "--piece-mib", "4", "--steps", "5"];
    let other = stage.worker(0, "other", &other);
    puppet.does("fill-large 36");
    puppet.does("see-large");
    other.ends_well();
    puppet.does("see-large");
    puppet.does("free-large");
    puppet.does("free-large");
    until("nothing is left of it", || has(&stage, puppet.pid()).0 == 0);
    puppet.end();
    stage.finish();
}

#[test]
fn what_lies_in_the_hosts_memory_cannot_be_shared() {
    let stage = stage(64, &[]);
    let mut puppet = Puppet::start_with(&stage, "large", &["--oversize=64MiB"], &[]);
    puppet.does("fill 2048");
    let name = stage.path("name");
    puppet.begin(&format!("share {} 4194304 7", name.display()));
    until("it ended", || puppet.has_ended());
    drop(puppet);
    stage.finish();
}

#[test]
fn it_goes_on_under_the_next_worker_of_the_daemon() {
    let stage = stage(64, &["--oversize-max", "64MiB"]);
    let mut program = large_worker(&stage, "large", &["--steps", "1000000"]);
    program.goes_on(1);
    let had = has(&stage, program.pid());
    assert!(stage.kill_worker());
    program.goes_on(2);
    until("all of it is counted again", || {
        let listing = stage.listing();
        let of = listing.tenants.iter().find(|tenant| tenant.pid == program.pid());
        of.is_some_and(|tenant| (tenant.host_bytes, tenant.resident_bytes + tenant.away_bytes) == had)
    });
    program.goes_on(1);
    drop(program);
    stage.finish();
}

#[test]
fn who_may_have_none_is_told_so() {
    let stage = stage(64, &["--oversize-max", "none"]);
    let refused = stage.under_rota_with(0, "large", &["--oversize"]).arg("true").output().unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("this daemon has none to give") && said.contains("oversize_max"), "{said}");
    stage.finish();
}
