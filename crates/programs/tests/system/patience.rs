//! A program that waits for the GPU and is frozen keeps no processor busy, with a driver that waits by looking again and
//! again.

use std::time::{Duration, Instant};

use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until};

/// For how long a frozen program is watched.
const WATCHED: Duration = Duration::from_secs(1);

/// A kernel that is not over by then.
const LONG: &str = "launch 1 2500";

/// A program whose driver spins.
fn spinning(stage: &Stage, name: &str, waits: &str) -> Puppet {
    let mut command = stage.under_rota(0, name);
    command.env("ROTA_VGPU_SPINS", "1").env("ROTA_WAITS", waits).arg(crate::parts::PUPPET);
    Puppet::by(stage, name, command)
}

fn rota(stage: &Stage, verb: &str, job: &str) {
    let output = stage.rota().args([verb, job]).output().unwrap();
    assert!(output.status.success(), "{verb} {job}: {}", String::from_utf8_lossy(&output.stderr));
}

/// For how long threads of a process had a processor, and for how long they would have liked one, which is much on a machine with
/// much else to do.
fn processor_time(pid: u32) -> [Duration; 2] {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_thread = |folder: std::path::PathBuf| {
        let text = std::fs::read_to_string(folder.join("schedstat")).unwrap();
        let nanos: Vec<u64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
        [nanos[0], nanos[1]].map(Duration::from_nanos)
    };
    let all = threads.map(|thread| of_thread(thread.unwrap().path()));
    all.fold([Duration::ZERO; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
}

/// One whose waits are rota's: it has been frozen before.
fn frozen_before(stage: &Stage, name: &str) -> Puppet {
    // Not with a driver that spins: the virtual one waits until there is nothing, then.
    let mut command = stage.under_rota(0, name);
    command.env("ROTA_WAITS", "patient").arg(crate::parts::PUPPET);
    let mut puppet = Puppet::by(stage, name, command);
    puppet.does("launch 1 1");
    puppet.does("stream");
    let frozen = || stage.events().iter().filter(|event| event["event"] == "freeze").count();
    let before = frozen();
    rota(stage, "pause", name);
    until("it is frozen", || frozen() > before);
    rota(stage, "resume", name);
    puppet.does("launch 1 1");
    puppet.does("stream");
    puppet
}

/// The share of a processor that a program uses, and would use, that is frozen while it waits so. It has been frozen before.
fn used_while_frozen(stage: &Stage, name: &str, waits: &str, wait: &str) -> [f64; 2] {
    let mut puppet = spinning(stage, name, waits);
    let paused = |wanted: bool| {
        until("the program is as it was told", || {
            stage
                .events()
                .iter()
                .rfind(|event| event["event"] == "freeze" || event["event"] == "thaw")
                .is_some_and(|event| (event["event"] == "freeze") == wanted)
        });
    };
    puppet.does("launch 1 1");
    puppet.does("stream");
    rota(stage, "pause", name);
    paused(true);
    rota(stage, "resume", name);
    puppet.does(LONG);
    puppet.begin(wait);
    // It waits by now, or will when it is frozen: both are to be seen.
    std::thread::sleep(Duration::from_millis(200));
    rota(stage, "pause", name);
    paused(true);
    let (began, before) = (Instant::now(), processor_time(puppet.pid()));
    std::thread::sleep(WATCHED);
    let (after, took) = (processor_time(puppet.pid()), began.elapsed().as_secs_f64());
    let [used, liked] = [0, 1].map(|time| (after[time] - before[time]).as_secs_f64() / took);
    rota(stage, "resume", name);
    puppet.has_done(wait);
    puppet.end();
    [used, used + liked]
}

#[test]
fn whoever_waits_for_the_gpu_sleeps_while_it_is_frozen() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 16, rotad: &[] });
    for wait in ["stream", "event", "synchronize"] {
        let [spun, by_driver] = used_while_frozen(&stage, &format!("driver-{wait}"), "driver", wait);
        let [patient, _] = used_while_frozen(&stage, &format!("patient-{wait}"), "patient", wait);
        eprintln!("{wait}: {by_driver:.2} of a processor with the driver's wait, {patient:.2} with rota's");
        // All of one, but for what a busy machine has not accounted for yet.
        assert!(by_driver > 0.3, "{wait}: the driver was to spin, and used {by_driver} of a processor");
        assert!(patient < 0.2, "{wait}: a frozen program used {patient} of a processor");
        assert!(
            patient < spun / 2.0,
            "{wait}: a frozen program used {patient} of a processor, a spinning one {spun}"
        );
    }
    stage.finish();
}

#[test]
fn a_wait_is_for_what_was_there_when_it_began() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 16, rotad: &[] });
    for wait in ["stream", "await-event", "synchronize"] {
        let mut puppet = frozen_before(&stage, &format!("fed-{wait}"));
        puppet.does("feed 3000");
        puppet.does("host 200");
        let began = Instant::now();
        puppet.does(wait);
        let took = began.elapsed();
        puppet.does("thread");
        puppet.end();
        assert!(
            took < Duration::from_millis(1500),
            "{wait}: it waited for {took:?}, and for what came later"
        );
    }
    stage.finish();
}

#[test]
fn a_wait_and_a_capture_that_begins_meanwhile_do_not_spoil_each_other() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 16, rotad: &[] });
    for wait in ["stream", "event", "synchronize"] {
        let mut puppet = frozen_before(&stage, &format!("beside-{wait}"));
        puppet.does("launch 1 600");
        puppet.does("capture-soon 200 1000");
        puppet.does(wait);
        puppet.does("thread");
        puppet.end();
    }
    stage.finish();
}
