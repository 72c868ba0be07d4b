//! The arguments of every program of this package are consistent: a debug build looks at all of them before it reads any.

use std::process::Command;

#[test]
fn every_program_explains_its_arguments() {
    let conformance = env!("CARGO_BIN_EXE_conformance");
    let misuse = env!("CARGO_BIN_EXE_misuse");
    // Those of a command are looked at when it is called.
    let all: [(&str, &[&str]); 10] = [
        (conformance, &[]),
        (conformance, &["random"]),
        (conformance, &["part"]),
        (conformance, &["import"]),
        (env!("CARGO_BIN_EXE_hasher"), &[]),
        (env!("CARGO_BIN_EXE_meeting"), &[]),
        (misuse, &[]),
        (misuse, &["one"]),
        (env!("CARGO_BIN_EXE_spread"), &[]),
        (env!("CARGO_BIN_EXE_worker"), &[]),
    ];
    for (program, words) in all {
        let output = Command::new(program).args(words).arg("--help").output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {words:?}: {complaint}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("Usage:"), "{program} {words:?}");
    }
}
