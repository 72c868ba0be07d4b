//! Programs on several GPUs, and which GPUs a program gets.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;
use std::rc::Rc;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::parts::{PUPPET, SPREAD, WORKER};
use crate::puppet::Puppet;
use crate::stage::{Program, Setup, Stage, until, until_counted};

const ROTA_FAILED: i32 = 125;

fn stage(gpus: usize, rotad: &[&str]) -> Stage {
    Stage::new(&Setup { gpus, gpu_mib: 48, arena_mib: 128, rotad })
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A competitor on each of two GPUs that does not fit beside another 16 MiB: little, so that moving takes little.
fn competitors(stage: &Stage) -> [Program; 2] {
    let busy = ["--mib", "16", "--piece-mib", "4", "--kernel-ms", "20", "--steps", "1000000"];
    [0, 1].map(|gpu| stage.worker(gpu, &format!("beside{gpu}"), &[&busy[..], &["--seed", "7"]].concat()))
}

/// How many turns a job had, on all its GPUs together.
fn turns_on(stage: &Stage, job: &str) -> usize {
    stage.events().iter().filter(|event| event["event"] == "turn_begin" && event["job"] == job).count()
}

#[test]
fn one_process_on_two_gpus_has_every_byte_right_while_both_are_contended() {
    let stage = stage(2, &["--turn", "100ms"]);
    let mut others = competitors(&stage);
    let mut spread = stage.program(
        "both",
        &["--name", "both", "--gpus", "2"],
        &[SPREAD, "--mib", "16", "--piece-mib", "4", "--kernel-ms", "10", "--steps", "1000000"],
    );
    spread.goes_on(1);
    let listing = stage.listing();
    let mine = listing.tenants.iter().filter(|tenant| tenant.pid == spread.pid());
    let mut on: Vec<&str> = mine.map(|tenant| tenant.gpu.as_str()).collect();
    on.sort_unstable();
    assert_eq!(on, [listing.gpus[0].uuid.as_str(), listing.gpus[1].uuid.as_str()], "a tenant on each GPU");
    until_counted("it had so many turns", 12, || turns_on(&stage, "both"));
    spread.goes_on(2);
    for other in &mut others {
        other.goes_on(1);
    }
    let moves = stage.count("move_end");
    assert!(moves >= 6, "only {moves} moves");
    let events = stage.events();
    assert!(moves_with_all_frozen(&events, "both") > 2);
    // On each GPU its channels there are frozen, and no others.
    let channels = |job: &str| {
        let freezes = events.iter().filter(|event| event["event"] == "freeze" && event["job"] == job);
        freezes.filter_map(|event| event["channels"].as_u64()).max()
    };
    assert_eq!(channels("both"), channels("beside0"));
    // By its process, both of its tenants are found.
    let output = stage.rota().args(["describe", "--json", &spread.pid().to_string()]).output().unwrap();
    let seen = serde_json::from_slice::<Value>(&output.stdout).unwrap();
    assert_eq!(seen["jobs"][0]["tenants"].as_array().map(Vec::len), Some(2), "{seen}");
    spread.kill();
    drop(others);
    stage.finish();
}

/// Counts the moves of a job's memory from when it had turns on both GPUs; in each of them all of it must be frozen.
fn moves_with_all_frozen(events: &[Rc<Value>], job: &str) -> usize {
    let (mut frozen, mut had_turns, mut moves) = (BTreeMap::new(), BTreeSet::new(), 0);
    for event in events.iter().filter(|event| event["job"] == job) {
        let Some(tenant) = event["tenant"].as_u64() else { continue };
        match event["event"].as_str().unwrap() {
            "turn_begin" => drop(had_turns.insert(tenant)),
            "freeze" => drop(frozen.insert(tenant, true)),
            "thaw" => drop(frozen.insert(tenant, false)),
            "moving_out" | "moving_in" if had_turns.len() == 2 => {
                assert!(had_turns.iter().all(|tenant| frozen.get(tenant) == Some(&true)), "{event}");
                moves += 1;
            }
            _ => {}
        }
    }
    moves
}

#[test]
fn a_process_with_a_thread_for_each_gpu_has_every_byte_right() {
    let stage = stage(2, &["--turn", "100ms"]);
    let mut others = competitors(&stage);
    others.iter_mut().for_each(|other| other.goes_on(1));
    let work = [SPREAD, "--threads", "--mib", "16", "--piece-mib", "4", "--kernel-ms", "10", "--steps", "10"];
    let spread = stage.program("threads", &["--name", "threads", "--gpus", "all"], &work);
    assert_eq!(spread.ends_well().steps, 10);
    assert!(stage.count("move_end") > 2);
    drop(others);
    stage.finish();
}

#[test]
fn a_forked_child_keeps_nothing_of_its_parents_place() {
    let stage = stage(2, &[]);
    let work = [SPREAD, "--fork", "--mib", "8", "--piece-mib", "4", "--steps", "1000000"];
    let mut spread = stage.program("fork", &["--gpus", "2"], &work);
    spread.goes_on(3);
    assert_eq!(stage.listing().tenants.len(), 2);
    let parent = Pid::from_raw(spread.pid() as i32).unwrap();
    let child = children(parent);
    assert_eq!(child.len(), 1, "{child:?}");
    spread.kill();
    until("the daemon knows that it is gone, though the child lives", || stage.listing().tenants.is_empty());
    rustix::process::kill_process(child[0], Signal::KILL).unwrap();
    stage.finish();
}

/// The children of a process.
fn children(parent: Pid) -> Vec<Pid> {
    let path = format!("/proc/{0}/task/{0}/children", parent.as_raw_nonzero());
    let list = std::fs::read_to_string(path).unwrap();
    list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

fn run(stage: &Stage, gpus: &str, program: &[&str]) -> Output {
    let mut command = stage.rota();
    command.args(["run", "--vgpu", "-q", "--gpus", gpus, "--"]).args(program).output().unwrap()
}

/// What a variable is in a program that asked for these GPUs.
fn variable(stage: &Stage, gpus: &str, name: &str) -> String {
    let output = run(stage, gpus, &["sh", "-c", &format!("echo ${name}")]);
    assert!(output.status.success(), "{gpus}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// The GPUs that a program sees that asked for these.
fn visible(stage: &Stage, gpus: &str) -> Vec<String> {
    variable(stage, gpus, "CUDA_VISIBLE_DEVICES").split(',').map(str::to_owned).collect()
}

#[test]
fn gpus_are_had_by_number_by_name_and_all() {
    let stage = stage(4, &[]);
    let uuids: Vec<String> = stage.listing().gpus.into_iter().map(|gpu| gpu.uuid).collect();
    assert_eq!(visible(&stage, "all"), uuids);
    assert_eq!(visible(&stage, "device=3,1"), [uuids[3].clone(), uuids[1].clone()], "as they were named");
    assert_eq!(visible(&stage, &format!("device={}", uuids[2])), uuids[2..3]);
    let two = visible(&stage, "2");
    assert!(two.len() == 2 && two[0] != two[1] && two.iter().all(|uuid| uuids.contains(uuid)), "{two:?}");
    // With several GPUs memory is shared, and with one it moves.
    assert_eq!(["1", "2"].map(|gpus| variable(&stage, gpus, "ROTA_WHOLE_HANDLES")), ["", "1"]);
    let refused = |gpus: &str, why: &str| {
        let output = run(&stage, gpus, &["true"]);
        assert_eq!(output.status.code(), Some(ROTA_FAILED), "{gpus}");
        assert!(text(&output.stderr).contains(why), "{gpus}: {}", text(&output.stderr));
    };
    refused("5", "5 GPUs were asked for, and 4 are shared here");
    refused("device=4", "no GPU here has the index `4`");
    refused("device=1,1", "GPU 1 was named twice");
    // All of them begin so.
    refused(&format!("device={}", &uuids[0][..12]), "of no GPU here, or of several");
    stage.finish();
}

#[test]
fn the_reason_for_a_place_is_told_and_a_burst_is_spread() {
    let stage = stage(4, &[]);
    let mut children: Vec<_> = (0..8)
        .map(|number| {
            let mut command = stage.rota();
            command.args(["run", "--vgpu", "-q", "--name", &format!("burst{number}"), "--"]);
            // None of them ever uses the GPU that it was sent to.
            command.args(["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 1000"]);
            let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            let out = child.stdout.take().unwrap();
            std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
            (child, line)
        })
        .collect();
    let mut uuids: Vec<&str> = children.iter().map(|(_, line)| line.trim()).collect();
    uuids.sort_unstable();
    for gpu in stage.listing().gpus {
        assert_eq!(uuids.iter().filter(|uuid| **uuid == gpu.uuid).count(), 2, "{uuids:?}");
    }
    let output = stage.rota().args(["describe", "burst7", "--json"]).output().unwrap();
    let placed = serde_json::from_slice::<Value>(&output.stdout).unwrap()["jobs"][0]["placed"].clone();
    assert!(placed.as_str().unwrap().contains("on the way"), "{placed}");
    for (child, _) in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    stage.finish();
}

#[test]
fn nobody_has_more_gpus_than_the_rules_allow() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("rotad.toml");
    std::fs::write(&config, "[[user]]\nname = \"*\"\ngpus_max = 1\n").unwrap();
    let stage = stage(2, &["--config", config.to_str().unwrap()]);
    let output = run(&stage, "2", &["true"]);
    assert_eq!(output.status.code(), Some(ROTA_FAILED));
    let said = text(&output.stderr);
    assert!(said.contains("2 GPUs were asked for, and a job of this user may have 1"), "{said}");
    assert_eq!(visible(&stage, "all").len(), 1);
    // Nor by naming more of them than it was given.
    let mut command = stage.rota();
    command.env("CUDA_VISIBLE_DEVICES", "0,1").args(["run", "--vgpu", "-q", "--", SPREAD, "--steps", "1"]);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("a job of this user may have 1"), "{}", text(&output.stderr));
    stage.finish();
}

#[test]
fn who_gives_up_at_the_door_says_so_and_ends() {
    let setup = Setup { gpus: 1, gpu_mib: 64, arena_mib: 64, rotad: &["--tenants-max", "1"] };
    let stage = Stage::new(&setup);
    let mut holder = stage.worker(0, "holder", &["--mib", "4", "--steps", "1000000"]);
    holder.goes_on(1);
    let mut command = stage.rota();
    command.args(["run", "--vgpu", "--name", "late", "--timeout", "300ms", "--", PUPPET]);
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(ROTA_FAILED), "{said}");
    assert!(said.contains("giving up: it waited 300ms at the door of GPU 0"), "{said}");
    // With time enough it comes in.
    let worker = [WORKER, "--mib", "4", "--steps", "1"];
    let patient = stage.program("patient", &["--timeout", "10m"], &worker);
    until("it waits at the door", || stage.listing().tenants.len() == 2);
    holder.kill();
    patient.ends_well();
    stage.finish();
}

/// A puppet that sees two GPUs.
fn on_two(stage: &Stage, name: &str) -> Puppet {
    let mut command = stage.rota();
    command.env("CUDA_VISIBLE_DEVICES", "0,1");
    command.args(["run", "--vgpu", "--name", name, "--gpus", "all", "--"]).arg(PUPPET);
    Puppet::by(stage, name, command)
}

#[test]
fn a_context_takes_its_managed_memory_with_it_on_any_gpu() {
    let stage = stage(2, &[]);
    let mut puppet = on_two(&stage, "puppet");
    let pinned_bytes = || {
        let output = stage.rota().args(["describe", "--json", "puppet"]).output().unwrap();
        let seen = serde_json::from_slice::<Value>(&output.stdout).unwrap();
        let tenants = seen["jobs"][0]["tenants"].as_array().unwrap().clone();
        tenants.iter().map(|tenant| tenant["pinned_bytes"].as_u64().unwrap()).sum::<u64>()
    };
    puppet.does("context-on 1");
    puppet.does(&format!("managed {}", 8 << 20));
    until("it counts", || pinned_bytes() == 8 << 20);
    puppet.does("end-context");
    until("it counts no more", || pinned_bytes() == 0);
    puppet.end();
    stage.finish();
}

#[test]
fn a_gpu_that_is_not_shared_cannot_use_memory_that_moves() {
    const PEER_ACCESS_UNSUPPORTED: u32 = 217;
    let stage = stage(2, &["--gpus", "0"]);
    let mut command = stage.under_rota(0, "puppet");
    command.env("CUDA_VISIBLE_DEVICES", "0,1").arg(PUPPET);
    let mut puppet = Puppet::by(&stage, "puppet", command);
    puppet.does("context-on 1");
    puppet.does(&format!("no-peer {PEER_ACCESS_UNSUPPORTED}"));
    puppet.does(&format!("no-peer {PEER_ACCESS_UNSUPPORTED}"));
    let said = puppet.log();
    assert_eq!(said.matches("cannot use the memory of one that is").count(), 1, "{said}");
    puppet.does("end-context");
    puppet.end();
    stage.finish();
}

#[test]
fn shared_gpus_use_each_others_memory() {
    let stage = stage(2, &[]);
    let mut puppet = on_two(&stage, "puppet");
    puppet.does("context-on 1");
    puppet.does("peer");
    puppet.does("end-context");
    puppet.end();
    stage.finish();
}
