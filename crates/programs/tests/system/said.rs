//! What is said where something stands in the way, and with which exit code: nobody runs past rota, or waits for it, without
//! a word. What terms are refused is in [`jobs`](crate::jobs), a daemon that dies in [`deaths`](crate::deaths), one that
//! cannot be started in [`jobs`](crate::jobs).

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use wire::{Connection, FromDaemon, Listener, ToDaemon};

use crate::parts::{WORKER, newest, on_virtual_gpu, with_parts};
use crate::stage::{Setup, Stage, until};

const ROTA_FAILED: i32 = 125;

fn stage() -> Stage {
    Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 64, rotad: &[] })
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn run(stage: &Stage, program: &Path) -> Output {
    stage.rota().args(["run", "--vgpu", "--"]).arg(program).output().unwrap()
}

/// A program in C.
fn built(folder: &Path, name: &str, code: &str, flags: &[&str]) -> PathBuf {
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, code).unwrap();
    let made = Command::new("cc").arg(&source).args(flags).arg("-o").arg(&program).status().unwrap();
    assert!(made.success());
    program
}

/// Ends at once, with 7, with or without a C library.
const ENDS_WITH_7: &str = r#"void _start(void) { __asm__("mov $60, %eax\n mov $7, %edi\n syscall"); }"#;

#[test]
fn a_program_that_runs_as_somebody_else_is_named_before_it_starts() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can make such a program: this is not tested");
        return;
    }
    let stage = stage();
    let program = built(stage.folder(), "sudo", ENDS_WITH_7, &["-nostartfiles"]);
    std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let output = run(&stage, &program);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "it is started all the same: {said}");
    assert!(said.contains("runs with raised privileges, so the loader leaves out the shim"), "{said}");
    assert!(said.contains("hint: sudo rota run -- CMD"), "{said}");
    stage.finish();
}

#[test]
fn a_program_without_a_loader_is_named_before_it_starts() {
    let stage = stage();
    let program = built(stage.folder(), "alone", ENDS_WITH_7, &["-nostdlib", "-static"]);
    let output = run(&stage, &program);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("is linked statically, so there is no loader to put the shim in"), "{said}");
    stage.finish();
}

#[test]
fn a_program_that_has_a_driver_of_its_own_is_named() {
    // It opens the driver's file, where everybody else asks for libcuda.so.1.
    const CODE: &str = r#"
        #include <dlfcn.h>
        #include <stdlib.h>
        int main(void) {
            void *driver = dlopen(getenv("ROTA_DRIVER"), RTLD_NOW);
            int (*init)(unsigned) = driver ? dlsym(driver, "cuInit") : 0;
            int (*retain)(void **, int) = driver ? dlsym(driver, "cuDevicePrimaryCtxRetain") : 0;
            void *context;
            return !init || !retain || init(0) || retain(&context, 0) ? 1 : 7;
        }"#;
    let stage = stage();
    let program = built(stage.folder(), "own", CODE, &["-ldl"]);
    let output = run(&stage, &program);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert_eq!(said.matches("this program uses the GPU past rota").count(), 1, "{said}");
    // One that comes as all do is not.
    let worker = [WORKER, "--mib", "4", "--piece-mib", "4", "--steps", "1"];
    let output = stage.rota().args(["run", "--vgpu", "--"]).args(worker).output().unwrap();
    assert!(
        output.status.success() && !text(&output.stderr).contains("past rota"),
        "{}",
        text(&output.stderr)
    );
    stage.finish();
}

/// A daemon that says one thing to whoever comes.
fn refusing(reason: &'static str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("rotad.sock");
    let listener = Listener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        while let Ok(connection) = listener.accept() {
            let _ = connection.receive::<ToDaemon>();
            let _ = connection.send(&FromDaemon::Refused { reason: reason.into() }, &[]);
        }
    });
    (folder, socket)
}

#[test]
fn a_daemon_of_another_version_is_an_error_for_both_sides() {
    let stage = stage();
    let connection = Connection::connect(stage.socket()).unwrap();
    connection.send(&ToDaemon::List { version: wire::VERSION + 1 }, &[]).unwrap();
    let (FromDaemon::Refused { reason }, _) = connection.receive().unwrap() else {
        panic!("it was not refused")
    };
    assert!(
        reason.contains("this daemon speaks version") && reason.contains("install both anew"),
        "{reason}"
    );
    let (_folder, socket) =
        refusing("this daemon speaks version 99, the other side version 1: install both anew");
    let mut rota = Command::new(newest("rota"));
    with_parts(&mut rota);
    let output =
        rota.arg("--socket").arg(&socket).args(["run", "--vgpu", "--", "echo", "ran"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(ROTA_FAILED), ""), "{said}");
    assert!(said.contains("refused: this daemon speaks version 99"), "{said}");
    // A program that is started later, in a job of the old one.
    let mut program = Command::new(WORKER);
    on_virtual_gpu(&mut program, stage.folder());
    let preloaded = wire::preload(&newest("librota_shim.so"), Some(newest("libvgpu.so").into()));
    program.env("LD_PRELOAD", preloaded).env("ROTA_SOCKET", &socket).env("ROTA_REQUIRED", "1");
    let output = program.args(["--mib", "4", "--piece-mib", "4", "--steps", "1"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{said}");
    assert!(said.contains("the daemon refuses this program: this daemon speaks version 99"), "{said}");
    assert!(said.contains("SYSTEM_NOT_READY"), "{said}");
    stage.finish();
}

/// `rotad` on a machine of this description: it does not start. What it said.
fn does_not_start(folder: &Path, spec: &str, words: &[&str]) -> String {
    std::fs::write(
        folder.join("vgpu.toml"),
        format!("memory = '64MiB'\ncontext_memory = '4MiB'\nlinger = '1s'\n{spec}"),
    )
    .unwrap();
    let socket = folder.join("rotad.sock");
    let mut daemon = Command::new(newest("rotad"));
    with_parts(&mut daemon);
    let output = daemon.arg("--vgpu").arg(folder).arg("--socket").arg(&socket).args(words).output().unwrap();
    let said = text(&output.stderr).to_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!socket.exists(), "it never listened");
    said
}

#[test]
fn a_gpu_for_one_process_is_not_shared() {
    for (mode, said_of_it) in
        [("exclusive-process", "exclusive-process mode"), ("prohibited", "prohibited mode")]
    {
        let folder = tempfile::tempdir().unwrap();
        let said = does_not_start(folder.path(), &format!("compute_mode = '{mode}'\n"), &[]);
        assert!(said.starts_with("rotad: GPU-") && said.contains(said_of_it), "{said}");
        assert!(said.contains("\nhint: sudo nvidia-smi -i GPU-") && said.contains(" -c DEFAULT"), "{said}");
    }
}

#[test]
fn a_gpu_whose_memory_is_confidential_is_not_shared() {
    let folder = tempfile::tempdir().unwrap();
    let said = does_not_start(folder.path(), "confidential = true\n", &[]);
    assert!(said.starts_with("rotad: confidential computing is on: ") && said.contains("\nhint: "), "{said}");
}

#[test]
fn a_gpu_that_is_used_through_mps_is_not_shared() {
    let folder = tempfile::tempdir().unwrap();
    let spec = "mps = true\n";
    std::fs::write(
        folder.path().join("vgpu.toml"),
        format!("memory = '64MiB'\ncontext_memory = '4MiB'\n{spec}"),
    )
    .unwrap();
    let mut program = Command::new(WORKER);
    on_virtual_gpu(&mut program, folder.path());
    program
        .args(["--mib", "4", "--piece-mib", "4", "--steps", "1000000"])
        .stdout(Stdio::piped())
        .stdin(Stdio::null());
    let mut program = program.spawn().unwrap();
    let pid = program.id();
    // Its first line says that it has a context, and has worked with it.
    let mut first = String::new();
    let mut said = std::io::BufReader::new(program.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut first).unwrap();
    let complaint = does_not_start(folder.path(), spec, &[]);
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(complaint.contains(&format!("is used through MPS by process {pid}: ")), "{complaint}");
    assert!(complaint.contains("\nhint: end MPS with `echo quit | nvidia-cuda-mps-control`"), "{complaint}");
}

/// How it is shared all the same, where that is not forbidden, is in [`held`](crate::held).
#[test]
fn a_driver_that_does_not_freeze_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let spec = "[faults.control]\nfreeze_does_nothing = true\n";
    let said = does_not_start(folder.path(), spec, &["--freeze", "channels"]);
    let reason = "freezing cannot be relied on with rota virtual GPU: freezing does nothing on this driver";
    assert!(said.contains(reason) && said.contains("\nhint: "), "{said}");
}

#[test]
fn systemd_is_told_when_it_is_ready_and_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(crate::stage::PATIENCE)).unwrap();
    std::fs::write(
        folder.path().join("vgpu.toml"),
        "memory = '64MiB'\ncontext_memory = '4MiB'\nlinger = '1s'\n",
    )
    .unwrap();
    let socket = folder.path().join("rotad.sock");
    let mut command = Command::new(newest("rotad"));
    with_parts(&mut command);
    command.arg("--vgpu").arg(folder.path()).arg("--socket").arg(&socket).env("NOTIFY_SOCKET", &path);
    let log = std::fs::File::create(folder.path().join("rotad.log")).unwrap();
    let mut daemon = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let heard = || {
        let mut buffer = [0; 1024];
        loop {
            match systemd.recv(&mut buffer) {
                // This test was stopped meanwhile, and went on.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                received => break text(&buffer[..received.unwrap()]).to_owned(),
            }
        }
    };
    let ready = heard();
    assert!(ready.starts_with("READY=1\nSTATUS=shares rota virtual GPU (GPU-"), "{ready}");
    assert!(Connection::connect(&socket).is_ok(), "ready means that it can be reached");
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(heard().starts_with("STOPPING=1\n"));
    let mut ended = None;
    until("it ends", || {
        ended = daemon.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success());
}
