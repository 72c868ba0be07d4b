//! What `rota doctor` says without a GPU and on a virtual one, as it is in `docs/`. With `ROTA_WRITE_DOCS=1` those files are
//! written anew.

use std::path::Path;
use std::process::Command;

use crate::parts::{newest, with_parts};
use crate::stage::{Setup, Stage};

/// Checks whose outcome is the machine's, not rota's.
const OF_THE_MACHINE: [&str; 5] = ["host memory", "memlock", "rights", "container", "environment"];

/// What all machines have in common: numbers, names of files and how the machine is are left out.
fn common(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("hint: run `rotad` on the host"));
    let line = |line: &str| {
        let (verdict, rest) = line.split_at_checked(6).unwrap_or(("", line));
        if let Some(name) = OF_THE_MACHINE.iter().find(|name| rest.starts_with(*name)) {
            return format!("-  {name}");
        }
        let words = rest.split_whitespace().map(|word| match word {
            _ if word.starts_with('/') && word.len() > 1 => "PATH".to_owned(),
            _ => word.chars().map(|letter| if letter.is_ascii_digit() { '9' } else { letter }).collect(),
        });
        let mut words: Vec<String> = words.collect();
        // Whose process it is, is the machine's, too.
        if let Some(at) = words.iter().position(|word| word == "process") {
            let user = words.iter().skip(at).position(|word| word.contains(')')).unwrap_or(0);
            words.drain(at..=at + user);
        }
        format!("{}{}", verdict, words.join(" ")).replace("9999", "9").replace("999", "9").replace("99", "9")
    };
    let mut lines: Vec<String> = lines.map(line).collect();
    // The sum counts what the machine is, too.
    lines.pop();
    lines.join("\n")
}

fn compare(name: &str, socket: &Path, output: &str) {
    // As it would be where rota is installed.
    let places = [
        (newest("librota_shim.so"), "/usr/lib/rota/librota_shim.so"),
        (newest("librota_nvml.so"), "/usr/lib/rota/librota_nvml.so"),
        (socket.into(), "/run/rota/rotad.sock"),
    ];
    let output = places
        .iter()
        .fold(output.to_owned(), |text, (path, installed)| text.replace(path.to_str().unwrap(), installed));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("ROTA_WRITE_DOCS").is_some() {
        std::fs::write(&file, &output).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap();
    assert_eq!(
        common(&output),
        common(&known),
        "docs/{name} is not what the doctor says; it says:\n{output}"
    );
}

#[test]
fn without_a_gpu() {
    if Path::new("/proc/driver/nvidia/version").exists() {
        eprintln!("there is a driver here: this is not tested");
        return;
    }
    let mut rota = Command::new(newest("rota"));
    with_parts(&mut rota);
    let socket = Path::new("/run/rota/no-daemon.sock");
    let output = rota.args(["doctor", "--socket"]).arg(socket).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    compare("doctor-none.txt", socket, &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn on_a_virtual_gpu() {
    let stage = Stage::new(&Setup { gpus: 2, gpu_mib: 64, arena_mib: 64, rotad: &[] });
    crate::stage::until("the self-test's own program is gone", || {
        (0..2).all(|gpu| stage.figures(gpu).processes.len() <= 1)
    });
    let output = stage.rota().arg("doctor").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    compare("doctor-vgpu.txt", stage.socket(), &text);
    assert!(text.contains("the arena has 64.0 MiB; ") && !text.contains("becomes the arena"), "{text}");
    // A program that is not under rota.
    let mut program = Command::new(crate::parts::WORKER);
    crate::parts::on_virtual_gpu(&mut program, stage.folder());
    program
        .args(["--mib", "4", "--piece-mib", "4", "--steps", "1000000"])
        .stdout(std::process::Stdio::null());
    let mut program = program.spawn().unwrap();
    let named = format!("use a GPU outside of rota: {} worker (", program.id());
    crate::stage::until("the doctor names it", || {
        let output = stage.rota().arg("doctor").output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains(&named)
    });
    program.kill().unwrap();
    program.wait().unwrap();
    stage.finish();
}
