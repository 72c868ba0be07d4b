//! What people see whose terminal is narrow: no line is wider than it is.

use crate::fake_daemon::{FakeDaemon, listing, two_tenants};
use crate::views::{job, status};
use rustix::ioctl::{Getter, Setter, ioctl};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::process::{Command, Stdio};
use wire::{Answer, Description, FromDaemon, Terms, Unmanaged};

/// `TIOCSPTLCK` and `TIOCGPTN` of <asm-generic/ioctls.h>: a pseudo-terminal is locked or not, and its number.
const SET_LOCK: u32 = 0x4004_5431;
const GET_NUMBER: u32 = 0x8004_5430;

/// Both ends of a terminal that is so wide: ours, and the program's.
fn terminal(columns: u16) -> (File, File) {
    let open = |path: &str| OpenOptions::new().read(true).write(true).open(path).expect("a pseudo-terminal");
    let ours = open("/dev/ptmx");
    // SAFETY: both take a pointer to an int, and it is a pseudo-terminal's own end.
    let number = unsafe {
        ioctl(&ours, Setter::<{ SET_LOCK as _ }, i32>::new(0)).expect("it can be unlocked");
        ioctl(&ours, Getter::<{ GET_NUMBER as _ }, i32>::new()).expect("it has a number")
    };
    let theirs = open(&format!("/dev/pts/{number}"));
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&theirs, size).expect("it has a size");
    (ours, theirs)
}

/// What a command prints on a terminal that is so wide, of which no line may be wider.
fn shown(command: &mut Command, columns: u16) -> String {
    let (mut ours, theirs) = terminal(columns);
    let mut program = command.stdout(Stdio::from(theirs)).stdin(Stdio::null()).spawn().expect("rota runs");
    // What has the program's end open besides.
    command.stdout(Stdio::null());
    let mut bytes = Vec::new();
    // It ends with an error when nobody has the other end any more.
    let _ = ours.read_to_end(&mut bytes);
    assert!(program.wait().expect("it ends").success());
    let text = String::from_utf8(bytes).expect("it is text").replace("\r\n", "\n");
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(widest <= usize::from(columns), "{widest} of {columns} columns:\n{text}");
    text
}

#[test]
fn ps_fits() {
    let FromDaemon::Listing(mut there) = listing(two_tenants()) else { panic!("a listing is a listing") };
    there.unmanaged.push(Unmanaged {
        pid: 77,
        gpu: there.gpus[0].uuid.clone(),
        bytes: 3 << 30,
        program: "a-program-with-a-name-of-its-own".into(),
        job: Some("nightly".into()),
    });
    let daemon = FakeDaemon::start(FromDaemon::Listing(there.clone()));
    let text = shown(daemon.rota().arg("ps"), 80);
    let table = "
 PID  JOB         PROGRAM  STATE    RESIDENT      AWAY  TURNS     WAITING
4242  train-4242  python3  running  12.0 GiB     0 MiB     17           -
 512  nightly     sim?[2J  away        0 MiB  24.0 GiB      9  1 min 23 s

 PID  JOB         NEXT
4242  train-4242  -
 512  nightly     1 of 2, about 45 s
";
    assert!(text.ends_with(table), "{text}");
    for columns in [60, 100, 120] {
        shown(daemon.rota().arg("ps"), columns);
    }
    there.tenants[0].job = "a-name-that-nobody-can-take-in-at-one-glance-".repeat(3);
    let daemon = FakeDaemon::start(FromDaemon::Listing(there));
    let text = shown(daemon.rota().arg("ps"), 80);
    assert!(text.contains('…'), "{text}");
}

#[test]
fn status_fits() {
    let daemon = FakeDaemon::answering(Answer::Status(status()));
    let text = shown(daemon.rota().arg("status"), 80);
    let wrapped = "
  self-test  a running kernel was frozen and thawed 20 times, in at most 1.10
             and 0.60 ms
";
    assert!(text.contains(wrapped), "{text}");
    for columns in [60, 100, 120] {
        shown(daemon.rota().arg("status"), columns);
    }
}

#[test]
fn set_and_describe_fit() {
    let mut job = job();
    job.terms = Terms { slo_ns: Some(10_000_000), wait: true, gang: true, reserve: true, ..job.terms };
    let daemon = FakeDaemon::answering(Answer::Described(Description {
        schema_version: wire::SCHEMA_VERSION,
        gpu: None,
        jobs: vec![job],
    }));
    let text = shown(daemon.rota().args(["set", "nightly", "--weight", "1"]), 80);
    assert!(text.starts_with("nightly: weight 1,") && text.lines().count() > 1, "{text}");
    shown(daemon.rota().args(["describe", "nightly"]), 80);
}
