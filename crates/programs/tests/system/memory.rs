//! What memory there is: told the same everywhere inside a job, counted as the device counts it, and shared with programs that
//! know nothing of rota.

use std::process::Command;

use serde_json::Value;

use crate::parts::{PUPPET, newest, on_virtual_gpu};
use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until};

const MIB: u64 = 1 << 20;
/// What a context takes here, which the daemon finds out.
const CONTEXT: u64 = 4 * MIB;
/// Once a second the daemon looks, and after so many looks it believes what it sees.
const LOOKS: usize = 5;
/// The smallest piece that is taken of the device.
const BLOCK: u64 = 2 * MIB;

fn stage(gpu_mib: u64) -> Stage {
    Stage::new(&Setup { gpus: 1, gpu_mib, arena_mib: 256, rotad: &["--turn", "50ms"] })
}

/// A program under a limit.
fn limited(stage: &Stage, job: &str, name: &str, limit: &str) -> Puppet {
    let mut command = stage.rota();
    command.args(["run", "--vgpu", "-q", "--name", job, "--memory", limit, "--", PUPPET]);
    Puppet::by(stage, name, command)
}

/// What `rota` says of something.
fn described(stage: &Stage, what: &str) -> Value {
    let output = stage.rota().args(["describe", what, "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a program sees: what there is, and what of it is used.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    total: u64,
    used: u64,
    processes: Vec<(u64, u64)>,
}

/// What a program sees, if it sees the same by every way there is.
fn look(puppet: &mut Puppet) -> Result<Seen, String> {
    let said = puppet.says("look");
    let look: Value = serde_json::from_str(&said).unwrap();
    let number = |key: &str| look[key].as_u64().unwrap();
    let (total, free) = (number("total"), number("free"));
    let expected = serde_json::json!([total, free, total - free]);
    let nvml = &look["nvml"];
    if number("device_total") != total || nvml["first"] != expected || nvml["second"] != expected {
        return Err(said);
    }
    let processes = nvml["processes"].as_array().unwrap().iter();
    let processes = processes.map(|one| (one[0].as_u64().unwrap(), one[1].as_u64().unwrap())).collect();
    Ok(Seen { total, used: total - free, processes })
}

#[test]
fn the_driver_and_nvml_say_the_same_inside_a_job() {
    let stage = stage(128);
    let mut one = limited(&stage, "a", "a1", "64MiB");
    let began = look(&mut one).unwrap();
    // A word of its own, in a block of the smallest size.
    assert_eq!((began.total, began.used), (64 * MIB, CONTEXT + 512));
    assert_eq!(began.processes, [(one.pid().into(), began.used)]);
    one.does("keep 20");
    assert_eq!(look(&mut one).unwrap().used, began.used + 20 * MIB);
    one.does("allocate");
    one.does("free");
    assert_eq!(look(&mut one).unwrap().used, began.used + 20 * MIB, "what is kept without use is free");

    // Another process of the same job.
    let mut two = limited(&stage, "a", "a2", "64MiB");
    two.does("keep 8");
    for puppet in [&mut one, &mut two] {
        // A program does not wait for long until the daemon tells it what the other one has.
        until("both see what both have", || {
            look(puppet).is_ok_and(|seen| {
                (seen.total, seen.used, seen.processes.len()) == (64 * MIB, 2 * began.used + 28 * MIB, 2)
            })
        });
    }
    // And one that only looks.
    let mut looks = stage.rota();
    looks.args(["run", "--vgpu", "-q", "--name", "a", "--", "sh", "-c", "echo $LD_PRELOAD; echo $ROTA_NVML"]);
    let said = String::from_utf8(looks.output().unwrap().stdout).unwrap();
    assert!(said.contains("librota_nvml.so") && said.contains("libvgpu_nvml.so"), "{said}");
    two.end();
    until("only one is left", || look(&mut one).is_ok_and(|seen| seen.used == began.used + 20 * MIB));

    // The same while its memory is away.
    assert!(stage.rota().args(["pause", "a"]).status().unwrap().success());
    let mut other = limited(&stage, "b", "b", "120MiB");
    other.does("keep 108");
    until("it is away", || stage.listing().tenants.iter().any(|tenant| tenant.away_bytes > 0));
    assert_eq!(look(&mut one).unwrap().used, began.used + 20 * MIB);
    assert_eq!(look(&mut other).unwrap().total, 120 * MIB);
    // A limit that changes is seen at once.
    let set = stage.rota().args(["set", "a", "--memory", "80MiB"]).output().unwrap();
    assert!(set.status.success());
    assert_eq!(look(&mut one).unwrap().total, 80 * MIB);
    other.end();
    assert!(stage.rota().args(["resume", "a"]).status().unwrap().success());
    one.does("check");
    one.end();
    stage.finish();
}

#[test]
fn a_limit_holds_to_the_mebibyte() {
    let stage = stage(192);
    for (limit, kib) in [(65, 1024), (96, 1024), (97, 512), (78, 6 * 1024)] {
        // Each has a name of its own: the daemon may hear a moment later that the last job is over.
        let name = format!("of-{limit}");
        let mut puppet = limited(&stage, &name, &name, &format!("{limit}MiB"));
        let filled: u64 = puppet.says(&format!("fill {kib}")).parse().unwrap();
        let seen = look(&mut puppet).unwrap();
        let limit = limit * MIB;
        assert_eq!(seen.total, limit);
        assert!(seen.used <= limit, "{seen:?}");
        let piece = kib * 1024;
        // A context may grow by a block before that is seen.
        let rest = limit.checked_sub(filled + CONTEXT + BLOCK);
        assert!(rest.is_some_and(|rest| rest < BLOCK + piece), "{filled} of {limit} in pieces of {piece}");
        puppet.does("empty");
        let again: u64 = puppet.says(&format!("fill {kib}")).parse().unwrap();
        assert_eq!(again, filled, "what was freed can be had again");
        puppet.end();
    }
    stage.finish();
}

#[test]
fn what_is_booked_is_what_the_device_counts() {
    let stage = stage(128);
    let mut puppet = Puppet::start(&stage, "p", &[]);
    puppet.does("keep 40");
    let booked = || {
        let tenant = described(&stage, "p")["jobs"][0]["tenants"][0].clone();
        let number = |key: &str| tenant[key].as_u64().unwrap();
        (number("resident_bytes"), number("context_bytes"))
    };
    let pid = puppet.pid();
    let counted = || {
        let processes = stage.figures(0).processes;
        processes.iter().find(|one| one.pid as u32 == pid).map_or(0, |one| one.memory_bytes)
    };
    until("both say the same", || booked().0 + booked().1 == counted());
    assert_eq!(booked().1, CONTEXT);
    // A second context, of which the daemon is told nothing.
    puppet.does("context");
    until("it is seen", || booked().1 == 2 * CONTEXT);
    assert_eq!(booked().0 + booked().1, counted());
    assert_eq!(look(&mut puppet).unwrap().used, 2 * CONTEXT + 40 * MIB + 512);
    // Managed memory, which the device counts for nobody: the context is as large as before.
    puppet.does(&format!("managed {}", 16 * MIB));
    until("it is booked", || booked().0 + booked().1 == counted() + 16 * MIB);
    for _ in 0..LOOKS {
        // A look later.
        std::thread::sleep(std::time::Duration::from_secs(1));
        assert_eq!(booked().1, 2 * CONTEXT);
    }
    puppet.does("free-managed");
    puppet.end();
    stage.finish();
}

#[test]
fn programs_without_rota_are_seen_and_have_their_room() {
    let stage = stage(128);
    let unmanaged = || described(&stage, "gpu0")["gpu"]["unmanaged_bytes"].as_u64().unwrap();
    let mut command = Command::new(PUPPET);
    on_virtual_gpu(&mut command, stage.folder());
    let mut stranger = Puppet::by(&stage, "stranger", command);
    stranger.does("keep 60");
    until("it is seen", || unmanaged() >= 60 * MIB + CONTEXT);
    let gpu = described(&stage, "gpu0")["gpu"].clone();
    let listed = stage.listing().unmanaged;
    assert_eq!((listed.len(), listed[0].pid, listed[0].job.clone()), (1, stranger.pid(), None));
    assert_eq!(listed[0].program, "puppet");
    let output = stage.rota().arg("ps").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(&format!("unmanaged: process {} (puppet) holds ", stranger.pid())), "{said}");

    // A program under rota has the rest, and is out of memory before the device is.
    let mut puppet = Puppet::start(&stage, "p", &[]);
    let filled: u64 = puppet.says("fill 1024").parse().unwrap();
    let rest = 128 * MIB - unmanaged() - gpu["reserve_bytes"].as_u64().unwrap() - CONTEXT;
    assert!(filled <= rest && filled + 2 * BLOCK > rest, "{filled} of {rest}");
    puppet.does("empty");
    stranger.does("check");
    stranger.end();
    until("its room is back", || unmanaged() == 0 && stage.listing().unmanaged.is_empty());
    let more: u64 = puppet.says("fill 1024").parse().unwrap();
    assert!(more >= filled + 60 * MIB, "{more} after {filled}");
    puppet.end();
    stage.finish();
}

#[test]
fn memory_that_nobody_is_seen_to_have_is_promised_to_nobody() {
    let stage = stage(128);
    let unmanaged = || described(&stage, "gpu0")["gpu"]["unmanaged_bytes"].as_u64().unwrap();
    let [mut maker, mut holder] = ["maker", "holder"].map(|name| {
        let mut command = Command::new(PUPPET);
        on_virtual_gpu(&mut command, stage.folder());
        Puppet::by(&stage, name, command)
    });
    let word = stage.path("exported");
    maker.does(&format!("create {}", 40 * MIB));
    maker.does(&format!("export-to {}", word.display()));
    holder.does(&format!("import {}", word.display()));
    maker.end();
    // The daemon keeps what two contexts take for its own.
    until("it is seen", || (40 * MIB..44 * MIB).contains(&unmanaged()));
    assert_eq!(stage.listing().unmanaged.len(), 1, "what the holder has is its context");
    let most = ["--mib", "60", "--piece-mib", "4", "--steps", "4"];
    let workers = ["a", "b"].map(|name| stage.worker(0, name, &most));
    for worker in workers {
        worker.ends_well();
    }
    assert!(stage.count("move_end") > 2);
    holder.end();
    until("its room is back", || unmanaged() == 0);
    stage.finish();
}

#[test]
fn a_process_of_a_job_that_lost_the_shim_is_named() {
    let stage = stage(64);
    let driver = newest("libvgpu.so");
    let mut command = stage.under_rota(0, "wrapped");
    let script = format!("LD_PRELOAD={} {PUPPET}; true", driver.display());
    command.args(["sh", "-c", &script]);
    let mut lost = Puppet::by(&stage, "lost", command);
    lost.does("keep 8");
    let named = |stage: &Stage| stage.listing().unmanaged.first().and_then(|it| it.job.clone());
    until("it is seen", || named(&stage).is_some());
    assert_eq!(named(&stage).as_deref(), Some("wrapped"));
    assert_ne!(stage.listing().unmanaged[0].pid, lost.pid(), "not the shell, but what it started");
    let said = String::from_utf8(stage.rota().arg("ps").output().unwrap().stdout).unwrap();
    assert!(said.contains("of job wrapped, which lost the shim"), "{said}");
    assert_eq!(stage.count("unmanaged"), 1, "it is told once");
    lost.end();
    until("it is gone", || stage.listing().unmanaged.is_empty());
    stage.finish();
}

#[test]
fn outside_of_a_job_nvml_is_the_drivers_own() {
    let stage = stage(64);
    let mut inside = Puppet::start(&stage, "p", &[]);
    inside.does("keep 8");
    let (driver, nvml) = (newest("libvgpu.so"), newest("librota_nvml.so"));
    let plain = |name: &str, environment: &[(&str, &str)]| {
        let mut command = Command::new(PUPPET);
        on_virtual_gpu(&mut command, stage.folder());
        command.env("LD_PRELOAD", format!("{}:{}", nvml.display(), driver.display()));
        command.env("ROTA_NVML", driver.with_file_name("libvgpu_nvml.so")).envs(environment.iter().copied());
        // The daemon and the tenant: what the self-test and the last one of these had goes a little after them.
        until("nobody else is there", || stage.figures(0).processes.len() == 2);
        let mut puppet = Puppet::by(&stage, name, command);
        let said: Value = serde_json::from_str(&puppet.says("look")).unwrap();
        puppet.end();
        said["nvml"].clone()
    };
    let socket = stage.socket().to_str().unwrap();
    let elsewhere = stage.path("nowhere.sock");
    let cases: [(&str, &[(&str, &str)]); 4] = [
        ("without a daemon", &[]),
        ("switched off", &[("ROTA_SOCKET", socket), ("ROTA_JOB", "p"), ("ROTA_DISABLE", "1")]),
        ("of no job", &[("ROTA_SOCKET", socket), ("ROTA_JOB", "q"), ("ROTA_DISABLE", "0")]),
        ("deserted", &[("ROTA_SOCKET", elsewhere.to_str().unwrap()), ("ROTA_JOB", "p")]),
    ];
    // Those who name a socket would be tenants, were the shim in them.
    for (number, (what, environment)) in cases.iter().enumerate() {
        let seen = plain(&format!("plain{number}"), environment);
        assert_eq!(seen["first"][0], 64 * MIB, "{what}: {seen}");
        // The daemon, the tenant, and the one that looks.
        assert_eq!(seen["processes"].as_array().map(Vec::len), Some(3), "{what}: {seen}");
    }
    // Without any NVML, it says so.
    let seen = plain("bare", &[("ROTA_NVML", "/nowhere/libnvidia-ml.so.1")]);
    assert_eq!(seen["error"], "nvmlInit_v2 returned 12", "{seen}");
    inside.end();
    stage.finish();
}
