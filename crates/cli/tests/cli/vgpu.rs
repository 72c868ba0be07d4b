//! `rota run` and `rota ps` with virtual GPUs: a program gets the kind of GPU that was asked for, or none.

use crate::fake_daemon::{FakeDaemon, UUID, listing, listing_on};
use crate::run::empty_library;
use std::process::{Command, Output};

/// `rota run WORDS -- sh -c SCRIPT`, with a library, a device and a shim that do nothing.
fn run(daemon: &FakeDaemon, adjust: impl FnOnce(&mut Command), words: &[&str], script: &str) -> Output {
    let mut command = daemon.rota();
    command
        .env("ROTA_SHIM", empty_library(daemon, "librota_shim.so"))
        .env("ROTA_LIBVGPU", empty_library(daemon, "libvgpu.so"))
        .env("ROTA_VGPUD", "/bin/false");
    adjust(&mut command);
    command.arg("run").args(words).args(["--", "sh", "-c", script]).output().unwrap()
}

fn refusal(output: &Output) -> &str {
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(125), &b""[..]), "nothing ran");
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn the_environment_puts_the_program_on_the_virtual_machine() {
    let daemon = FakeDaemon::start(listing_on(Some("/m"), vec![]));
    let show = "echo $LD_PRELOAD; echo $ROTA_DRIVER; echo $ROTA_VGPU; echo $CUDA_VISIBLE_DEVICES";
    let other = empty_library(&daemon, "other.so");
    let preload = |command: &mut Command| {
        command
            .env("LD_PRELOAD", &other)
            .env("ROTA_DRIVER", "/real/libcuda.so.1")
            .env("ROTA_VGPU", "/elsewhere");
    };
    let output = run(&daemon, preload, &["--vgpu"], show);
    let [shim, library] = ["librota_shim.so", "libvgpu.so"].map(|name| daemon.folder.path().join(name));
    let list = format!("{}:{}:{}", shim.display(), library.display(), other.display());
    let expected = format!("{list}\n{}\n/m\n{UUID}\n", library.display());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    let notice = String::from_utf8(output.stderr).unwrap();
    assert!(notice.contains("16.0 GiB, virtual)"), "{notice}");
}

#[test]
fn a_real_gpu_is_not_given_for_a_virtual_one_nor_the_other_way_round() {
    let real = FakeDaemon::start(listing(vec![]));
    let output = run(&real, |_| (), &["--vgpu"], "echo ran");
    let said = refusal(&output);
    assert!(said.contains("shares a real one (NVIDIA H200)\nhint: leave out --vgpu"), "{said}");

    let in_software = FakeDaemon::start(listing_on(Some("/m"), vec![]));
    let output = run(&in_software, |_| (), &[], "echo ran");
    let said = refusal(&output);
    assert!(said.contains("shares a virtual GPU (NVIDIA H200)"), "{said}");
    assert!(said.contains("\nhint: say `rota run --vgpu` if that is meant"), "{said}");
}

#[test]
fn an_environment_that_leads_past_a_real_gpu_is_refused() {
    let daemon = FakeDaemon::start(listing(vec![]));
    let library = empty_library(&daemon, "libvgpu.so");
    for variable in ["LD_PRELOAD", "ROTA_DRIVER"] {
        let lead = |command: &mut Command| {
            command.env(variable, &library);
        };
        let output = run(&daemon, lead, &[], "echo ran");
        let said = refusal(&output);
        assert!(said.contains(&format!("{variable} leads programs to a virtual GPU")), "{said}");
    }
}

#[test]
fn a_library_or_a_device_that_is_missing_is_named() {
    let daemon = FakeDaemon::start(listing_on(Some("/m"), vec![]));
    let without = |command: &mut Command| {
        command.env("ROTA_LIBVGPU", "/nowhere/libvgpu.so");
    };
    let output = run(&daemon, without, &["--vgpu"], "echo ran");
    let said = refusal(&output);
    assert!(
        said.contains("library was not found\n  tried /nowhere/libvgpu.so: no such file\nhint: "),
        "{said}"
    );
    let without = |command: &mut Command| {
        command.env_remove("ROTA_VGPUD");
    };
    let output = run(&daemon, without, &["--vgpu"], "echo ran");
    let said = refusal(&output);
    assert!(said.contains("vgpud was not found beside"), "{said}");
}

#[test]
fn a_listing_says_that_a_gpu_is_virtual() {
    let daemon = FakeDaemon::start(listing_on(Some("/m\u{1b}"), vec![]));
    let said = String::from_utf8(daemon.rota().arg("ps").output().unwrap().stdout).unwrap();
    assert!(said.contains("arena 24.0 GiB of 32.0 GiB  virtual, in /m?\n"), "{said}");
    assert!(said.ends_with("Start one with: rota run --vgpu -- COMMAND\n"), "{said}");
    let said = String::from_utf8(daemon.rota().args(["ps", "-o", "json"]).output().unwrap().stdout).unwrap();
    assert!(said.contains("\"vgpu\": \"/m\\u001b\""), "{said}");
}
