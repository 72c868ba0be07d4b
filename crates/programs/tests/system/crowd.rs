//! Fifty programs on four GPUs that come and go: whoever asks is told the truth at every step, and nothing is left in the end.

use std::collections::BTreeMap;

use programs::kernels::mix;
use serde_json::Value;

use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until};

const GPUS: usize = 4;
const TENANTS: usize = 50;
/// How many of them come at once. A program does not wait for long to be heard by the daemon, which is one of as many that want
/// the processors.
const BURST: usize = 10;
/// Joins and deaths, those of the first fifty included.
const CHANGES: usize = 110;

/// Someone who is there.
struct Member {
    job: String,
    puppet: Puppet,
    kept_mib: u64,
    /// Where it is, once it was seen: it stays there.
    gpu: Option<String>,
}

/// Everybody, by process.
#[derive(Default)]
struct Crowd {
    members: BTreeMap<u32, Member>,
    born: u64,
    /// What a context takes, once it was seen.
    context: Option<u64>,
}

impl Crowd {
    /// Starts one more, and waits for nothing.
    fn begin(&mut self, stage: &Stage, seed: u64) -> u32 {
        self.born += 1;
        let job = format!("job{}", self.born);
        let mut command = stage.rota();
        command.args(["run", "--vgpu", "-q", "--name", &job, "--"]);
        let puppet = Puppet::spawn(stage, &job, command);
        let (pid, kept_mib) = (puppet.pid(), 4 * (1 + mix(seed ^ self.born) % 2));
        self.members.insert(pid, Member { job, puppet, kept_mib, gpu: None });
        pid
    }

    /// Waits until someone who was started is there with its memory.
    fn settle(&mut self, pid: u32) {
        let member = self.members.get_mut(&pid).unwrap();
        member.puppet.is_ready();
        member.puppet.does(&format!("keep {}", member.kept_mib));
    }

    /// Whether `rota ps -o json` says exactly who is there, and adds up.
    fn is_told(&mut self, stage: &Stage) -> bool {
        // To ask takes less than a process that asks.
        if stage.listing().tenants.len() != self.members.len() {
            return false;
        }
        let output = stage.rota().args(["ps", "-o", "json"]).output().unwrap();
        assert!(output.status.success());
        let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
        let tenants = seen["tenants"].as_array().unwrap();
        if tenants.len() != self.members.len() {
            return false;
        }
        for tenant in tenants {
            let pid = tenant["pid"].as_u64().unwrap() as u32;
            let Some(member) = self.members.get_mut(&pid) else { return false };
            let gpu = tenant["gpu"].as_str().unwrap();
            assert_eq!(tenant["job"].as_str(), Some(member.job.as_str()), "{tenant}");
            assert_eq!(member.gpu.get_or_insert_with(|| gpu.into()), gpu, "it never moves to another GPU");
            let has = tenant["resident_bytes"].as_u64().unwrap() + tenant["away_bytes"].as_u64().unwrap();
            if has < member.kept_mib << 20 {
                return false;
            }
        }
        seen["gpus"].as_array().unwrap().iter().all(|gpu| self.adds_up(gpu, tenants))
    }

    /// Whether what is used on a GPU is what tenants have there, and their contexts: nothing else.
    fn adds_up(&mut self, gpu: &Value, tenants: &[Value]) -> bool {
        let here: Vec<&Value> = tenants.iter().filter(|tenant| tenant["gpu"] == gpu["uuid"]).collect();
        let resident: u64 = here.iter().map(|tenant| tenant["resident_bytes"].as_u64().unwrap()).sum();
        let used = gpu["used_bytes"].as_u64().unwrap();
        let Some(contexts) = used.checked_sub(resident) else { return false };
        if here.is_empty() {
            return contexts == 0;
        }
        let count = here.len() as u64;
        if self.context.is_none() && contexts.is_multiple_of(count) && contexts > 0 {
            self.context = Some(contexts / count);
        }
        self.context.is_some_and(|context| contexts == context * count)
    }
}

/// How many files and threads a process has.
fn holdings(pid: u32) -> (usize, usize) {
    let count = |what: &str| std::fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    (count("fd"), count("task"))
}

#[test]
fn fifty_programs_on_four_gpus_come_and_go_and_leave_nothing() {
    let seed = std::env::var("ROTA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let rotad = ["--turn", "20ms"];
    let stage = Stage::new(&Setup { gpus: GPUS, gpu_mib: 160, arena_mib: 512, rotad: &rotad });
    let mut crowd = Crowd::default();
    // Some come to every GPU and go before the counting: what is made once is not lost.
    let first: Vec<u32> = (0..2 * GPUS).map(|_| crowd.begin(&stage, seed)).collect();
    first.iter().for_each(|pid| crowd.settle(*pid));
    until("the first are told of", || crowd.is_told(&stage));
    for member in crowd.members.values_mut() {
        member.puppet.does("launch 5 20");
    }
    for (_, mut member) in std::mem::take(&mut crowd.members) {
        member.puppet.does("synchronize");
        member.puppet.end();
    }
    until("nobody is there", || crowd.is_told(&stage));
    let before = holdings(stage.daemon_pid());

    for _ in 0..TENANTS / BURST {
        let pids: Vec<u32> = (0..BURST).map(|_| crowd.begin(&stage, seed)).collect();
        pids.into_iter().for_each(|pid| crowd.settle(pid));
    }
    until("all fifty are told of", || crowd.is_told(&stage));
    for gpu in stage.listing().gpus {
        let here = crowd.members.values().filter(|member| member.gpu.as_ref() == Some(&gpu.uuid)).count();
        // What those have who came already counts too, so it is not the same number everywhere.
        assert!((8..=17).contains(&here), "{here} of {TENANTS} on {}", gpu.uuid);
    }
    let mut chance = seed;
    for change in TENANTS..CHANGES {
        chance = mix(chance.wrapping_add(change as u64));
        let some = crowd.members.keys().nth(chance as usize % crowd.members.len()).copied().unwrap();
        if crowd.members.len() < TENANTS {
            let new = crowd.begin(&stage, seed);
            crowd.settle(new);
        } else {
            let gone = crowd.members.remove(&some).unwrap();
            // Some in peace, most in the middle of something.
            match chance >> 60 {
                0..4 => gone.puppet.end(),
                _ => {
                    let mut puppet = gone.puppet;
                    puppet.begin("launch 3 20");
                    puppet.kill();
                }
            }
        }
        until(&format!("the truth is told after change {change}"), || crowd.is_told(&stage));
    }
    for member in crowd.members.values_mut() {
        // Through all of that nobody's memory has changed.
        member.puppet.does("check");
    }
    std::mem::take(&mut crowd.members).into_values().for_each(|member| member.puppet.kill());
    until("nobody is told of", || crowd.is_told(&stage));
    let mut now = before;
    let has_all_back = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        until("the daemon has the files and threads that it had", || {
            now = holdings(stage.daemon_pid());
            now.0 <= before.0 && now.1 <= before.1
        });
    }));
    assert!(has_all_back.is_ok(), "{before:?} files and threads before, {now:?} now");
    stage.finish();
}
