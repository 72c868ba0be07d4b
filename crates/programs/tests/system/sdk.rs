//! Programs that speak to rota themselves: the examples in C, C++ and Python, as people build and install them, beside
//! best-effort work, without a daemon, and killed in the middle of a request.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::parts::{newest, on_virtual_gpu};
use crate::puppet::Puppet;
use crate::stage::{Program, Setup, Stage, until};

const REQUESTS: u64 = 100;
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn stage() -> Stage {
    Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 96, rotad: &[] })
}

/// Work that goes on all the time.
fn work(stage: &Stage) -> Program {
    let mut work = stage.worker(0, "work", &["--mib", "8", "--piece-mib", "4", "--seconds", "600"]);
    work.goes_on(1);
    work
}

/// Is there such a program here? What needs it is left out where there is none, and says so.
fn have(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success());
    if !found {
        eprintln!("left out: there is no {program} here");
    }
    found
}

/// Compiles a source file against `rota.h` and the library, into a folder.
fn compile(compiler: &str, source: &Path, folder: &Path) -> PathBuf {
    let program = folder.join(format!("program-{compiler}"));
    let library = newest("librota.so");
    // By the name that the program will look for.
    let linked = folder.join("librota.so.1");
    let _ = std::os::unix::fs::symlink(&library, &linked);
    let out = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-O1"])
        .arg(format!("-I{ROOT}/crates/sdk/include"))
        .arg(format!("-I{ROOT}/crates/sdk/examples"))
        .arg(source)
        .arg(&linked)
        .args(["-ldl", &format!("-Wl,-rpath,{}", folder.display()), "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(out.status.success(), "{compiler}: {}", String::from_utf8_lossy(&out.stderr));
    program
}

fn example(name: &str) -> PathBuf {
    Path::new(ROOT).join("crates/sdk/examples").join(name)
}

/// A program that says a line when it is done, and stays until nobody writes to it any more.
struct Service {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Service {
    fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut errors = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("it ended without a word: {errors}");
        }
        line.trim_end().to_owned()
    }

    /// What it said to people.
    fn ends(mut self) -> String {
        drop(self.child.stdin.take());
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(self.child.wait().unwrap().success(), "{errors}");
        errors
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What became of the hints of the service, as the daemon counts them.
fn hints(stage: &Stage) -> wire::Hints {
    let listing = stage.listing();
    let service = listing.tenants.iter().find(|tenant| tenant.job == "service").expect("it is there");
    service.hints.expect("it is latency-critical")
}

/// All hints that were given have come to an end, each in one way.
fn all_have_ended(stage: &Stage, given: u64) -> wire::Hints {
    until("all hints have ended", || {
        let seen = hints(stage);
        seen.good + seen.early + seen.late + seen.false_ + seen.missed + seen.dropped >= given * 9 / 10
    });
    let seen = hints(stage);
    assert_eq!(seen.sdk + seen.dropped, given, "{seen:?}");
    seen
}

#[test]
fn the_example_in_c_is_heard_and_its_context_is_warmed_up() {
    if !have("cc") {
        return;
    }
    let stage = stage();
    let mut work = work(&stage);
    let program = compile("cc", &example("serve.c"), stage.folder());
    let mut command = stage.under_rota_with(0, "service", &["--class", "lc", "--slo", "20ms"]);
    command.arg(program).args([&REQUESTS.to_string(), "stay"]);
    let mut service = Service::start(command);
    let line = service.line();
    assert!(line.starts_with(&format!("requests {REQUESTS} missed ")), "{line}");
    assert!(line.contains(" tenant 1 critical 1 slo_ns 20000000 "), "{line}");
    let seen = all_have_ended(&stage, REQUESTS);
    assert!(seen.warm_ups > 0, "{seen:?}");
    work.goes_on(2);
    assert_eq!(service.ends(), "");
    work.kill();
    stage.finish();
}

#[test]
fn the_example_in_cpp_is_heard_and_what_it_may_not_is_refused() {
    if !have("c++") {
        return;
    }
    let stage = stage();
    let mut work = work(&stage);
    let program = compile("c++", &example("serve.cpp"), stage.folder());
    let mut command = stage.under_rota_with(0, "service", &["--class", "lc"]);
    command.arg(program).args([&REQUESTS.to_string(), "stay"]);
    let mut service = Service::start(command);
    let line = service.line();
    assert!(line.starts_with(&format!("requests {REQUESTS} missed 0 tenant 1 critical 1 set 4 ")), "{line}");
    assert!(line.contains("weight"), "{line}");
    all_have_ended(&stage, REQUESTS);
    let phases: Vec<bool> = stage
        .events()
        .iter()
        .filter(|event| event["event"] == "phase" && event["job"] == "service")
        .map(|event| event["gives_way"] == true)
        .collect();
    assert!(!phases.is_empty() && phases.last() == Some(&false), "{phases:?}");
    assert_eq!(service.ends(), "");
    work.kill();
    stage.finish();
}

#[test]
fn without_a_daemon_the_example_only_times_its_requests_and_says_so_once() {
    if !have("cc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compile("cc", &example("serve.c"), folder.path());
    for (quiet, said) in [("0", 1), ("1", 0)] {
        let mut command = Command::new(&program);
        on_virtual_gpu(&mut command, folder.path());
        command.args(["20", "stay"]).env("ROTA_QUIET", quiet);
        let mut service = Service::start(command);
        let line = service.line();
        assert_eq!(line, "requests 20 missed 0 tenant 0 critical 0 slo_ns 0 warm_ups 0");
        let errors = service.ends();
        assert_eq!(errors.matches("rota:").count(), said, "{errors}");
    }
}

#[test]
fn a_service_that_is_killed_inside_a_request_holds_nobody_back() {
    if !have("cc") {
        return;
    }
    let stage = stage();
    let mut work = work(&stage);
    let source = stage.path("dies.c");
    let text = "#include \"gpu.h\"\n#include \"rota.h\"\nint main(void) {\n    rota_request request;\n    gpu_begin();\n    \
                for (int number = 0;; number++) {\n        rota_request_begin(&request, 5000000, 0);\n        sleep_ms(5);\n        \
                gpu_work(number);\n        puts(\"inside\");\n        fflush(stdout);\n        if (number == 20) sleep_ms(600000);\n        \
                rota_request_end(&request);\n        sleep_ms(5);\n    }\n}\n";
    std::fs::File::create(&source).unwrap().write_all(text.as_bytes()).unwrap();
    let program = compile("cc", &source, stage.folder());
    let mut command = stage.under_rota_with(0, "service", &["--class", "lc"]);
    command.arg(program);
    let mut service = Service::start(command);
    for _ in 0..=20 {
        assert_eq!(service.line(), "inside");
    }
    service.child.kill().unwrap();
    service.child.wait().unwrap();
    until("the daemon knows", || stage.listing().tenants.iter().all(|tenant| tenant.job != "service"));
    work.goes_on(5);
    work.kill();
    drop(service);
    stage.finish();
}

/// A program that says nothing gives no hints; what the shim sees of it does.
#[test]
fn the_shim_hints_where_inputs_come_some_time_before_kernels() {
    let stage = stage();
    let mut work = work(&stage);
    let mut service = Puppet::start_with(&stage, "service", &["--class", "lc"], &[]);
    until("the shim has given a hint", || {
        service.does("read");
        std::thread::sleep(std::time::Duration::from_millis(3));
        service.does("launch 1 1");
        service.does("stream");
        std::thread::sleep(std::time::Duration::from_millis(5));
        hints(&stage).shim > 0
    });
    assert_eq!(hints(&stage).sdk, 0);
    work.goes_on(1);
    service.end();
    work.kill();
    stage.finish();
}

/// The package, installed by pip into a fresh environment.
fn environment(folder: &Path) -> PathBuf {
    let run = |command: &mut Command| {
        let out = command.output().unwrap();
        let [said, errors] = [&out.stdout, &out.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(out.status.success(), "{command:?}: {said}{errors}");
    };
    let home = folder.join("venv");
    run(Command::new("python3").args(["-m", "venv"]).arg(&home));
    let install = ["-m", "pip", "install", "--no-index", "--disable-pip-version-check", "--quiet"];
    let python = home.join("bin/python");
    run(Command::new(&python)
        .args(install)
        .arg(Path::new(ROOT).join("python"))
        .env("ROTA_SDK", newest("librota.so"))
        .env("PYTHONDONTWRITEBYTECODE", "1"));
    python
}

#[test]
fn the_python_package_is_installed_and_heard_and_does_nothing_without_a_daemon() {
    if !have("python3") {
        return;
    }
    let stage = stage();
    let python = environment(stage.folder());
    let mut work = work(&stage);
    let mut command = stage.under_rota_with(0, "service", &["--class", "lc", "--slo", "20ms"]);
    command.arg(&python).arg(Path::new(ROOT).join("python/examples/serve.py"));
    command.args([&REQUESTS.to_string(), "stay"]);
    let mut service = Service::start(command);
    let found: serde_json::Value = serde_json::from_str(&service.line()).unwrap();
    let expected =
        serde_json::json!({ "requests": REQUESTS, "tenant": true, "critical": true, "changed": true });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(found[key], *value, "{key} in {found}");
    }
    assert_eq!((found["slo_ns"].as_u64(), found["requests_open"].as_u64()), (Some(20_000_000), Some(0)));
    assert!(found["p50_ns"].as_u64() <= found["p99_ns"].as_u64(), "{found}");
    assert!(found["refused"].as_str().is_some_and(|why| why.contains("weight")), "{found}");
    all_have_ended(&stage, REQUESTS);
    assert_eq!(service.ends(), "");

    let script = "import rota\nassert 'torch' not in __import__('sys').modules\n\
                  with rota.request(slo='1ns'): pass\nassert not rota.hint(in_ms=2)\n\
                  with rota.phase('checkpoint'): pass\nassert rota.set(cls='be') is False\n\
                  seen = rota.statistics()\nassert (seen.requests, seen.slo_missed, seen.tenant) == (1, 1, False), seen\n\
                  def answers(): yield 1\n\
                  try: rota.serves()(answers)\nexcept TypeError: pass\nelse: raise SystemExit('a call of it does no work')\n";
    for (quiet, said) in [("0", 1), ("1", 0)] {
        let out = Command::new(&python)
            .args(["-c", script])
            .env_remove("LD_PRELOAD")
            .env("ROTA_QUIET", quiet)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{errors}");
        assert_eq!(errors.matches("rota:").count(), said, "{errors}");
    }
    work.kill();
    stage.finish();
}
